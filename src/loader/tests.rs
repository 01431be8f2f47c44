//! Cancellation of a loader and of `take`: where they check, and that no batch is lost.

use crate::error::ErrorKind;
use crate::loader::Loader;
use crate::loader::LoaderOptions;
use crate::loader::Sampling;
use crate::selfplay::{SimulateOptions, simulate};
use crate::system::cancellation::CancellationToken;
use crate::table::{Batch, FromRunsOptions, HeldOut, StepTable};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

type Key = (u32, u16);

fn table() -> StepTable {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    let never = CancellationToken::never();
    simulate(&runs, &SimulateOptions { runs: 24, seed: 1, depth: 0, ..Default::default() }, &(), never).unwrap();
    StepTable::from_runs([&runs], &FromRunsOptions::default(), &(), never).unwrap()
}

fn keys(batch: &Batch) -> Vec<Key> {
    let run_id = batch.column("run_id").unwrap();
    let step_index = batch.column("step_index").unwrap();
    run_id.values().unwrap().iter().copied().zip(step_index.values().unwrap().iter().copied()).collect()
}

fn epoch(loader: &Loader) -> Vec<Key> {
    loader.batches().unwrap().flat_map(|batch| keys(&batch)).collect()
}

fn options(batch_size: usize) -> LoaderOptions {
    LoaderOptions { batch_size, seed: 7, ..LoaderOptions::default() }
}

/// A token that is cancelled at its `last` check, and the number of its checks.
struct StopsAt {
    cancel: CancellationToken,
    checks: Arc<AtomicU32>,
}

impl StopsAt {
    fn new(last: u32) -> StopsAt {
        let checks = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&checks);
        let cancel = CancellationToken::polling(move || counter.fetch_add(1, Ordering::SeqCst) + 1 >= last);
        StopsAt { cancel, checks }
    }

    fn asked(&self) -> u32 {
        self.checks.load(Ordering::SeqCst)
    }
}

/// With narrow columns, one piece of work is 2^20 rows, so a batch of this size consists of four pieces.
const LARGE: usize = 3_500_000;

#[test]
fn a_batch_is_cancelled_between_its_pieces_and_repeated_later() {
    let table = table();
    let (view, _) = table.split(&HeldOut::new("val", 0.3, 0).unwrap(), CancellationToken::never()).unwrap();
    let columns = Some(vec!["run_id".to_owned(), "step_index".to_owned()]);
    for table in [&table, &view] {
        let (sampling, num_samples) = (Sampling::Uniform, Some(5_000_000));
        let options = LoaderOptions { sampling, num_samples, columns: columns.clone(), prefetch: 0, ..options(LARGE) };
        let loader = table.loader(options.clone()).unwrap();
        let small = table.loader(LoaderOptions { batch_size: 10_007, ..options }).unwrap();
        let mut batches = loader.batches().unwrap();
        for last in 1..=3 {
            let stop = StopsAt::new(last);
            let error = batches.next_batch(&stop.cancel).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Cancelled), "{error}");
            assert_eq!((stop.asked(), loader.state().position), (last, 0));
        }
        // The work checks for cancellation only between pieces.
        let stop = StopsAt::new(4);
        let first = batches.next_batch(&stop.cancel).unwrap().unwrap();
        assert_eq!((stop.asked(), first.num_rows(), loader.state().position), (3, LARGE, LARGE as u64));
        let rest = batches.next_batch(&StopsAt::new(2).cancel).unwrap().unwrap();
        assert!(batches.next_batch(&StopsAt::new(1).cancel).unwrap().is_none());
        let found: Vec<Key> = [first, rest].iter().flat_map(keys).collect();
        assert!(found == epoch(&small));
    }
}

#[test]
fn a_take_is_cancelled_between_its_pieces() {
    let table = table();
    let (view, _) = table.split(&HeldOut::new("val", 0.3, 0).unwrap(), CancellationToken::never()).unwrap();
    for table in [&table, &view] {
        let indices: Vec<u64> = (0..2_500_000).map(|k| k * 7 % table.num_rows()).collect();
        let num_pieces = |stop: &StopsAt| table.take_with_cancel(&indices, &stop.cancel).map(|_| stop.asked());
        // A piece is 2^20 rows.
        assert_eq!(num_pieces(&StopsAt::new(9)).unwrap(), 2);
        let stop = StopsAt::new(1);
        assert!(matches!(num_pieces(&stop).unwrap_err().kind(), ErrorKind::Cancelled));
        assert_eq!(stop.asked(), 1);
    }
}

#[test]
fn cancelled_calls_lose_no_batch() {
    let table = table();
    for prefetch in [1, 4] {
        let loader = table.loader(LoaderOptions { prefetch, ..options(50) }).unwrap();
        let whole = epoch(&loader);
        loader.set_epoch(0);
        let mut batches = loader.batches().unwrap();
        let mut found = Vec::new();
        // Each call may be cancelled while it waits for the other thread.
        loop {
            match batches.next_batch(&StopsAt::new(1).cancel) {
                Ok(Some(batch)) => found.extend(keys(&batch)),
                Ok(None) => break,
                Err(error) => assert!(matches!(error.kind(), ErrorKind::Cancelled)),
            }
        }
        assert_eq!(found, whole);
    }
}
