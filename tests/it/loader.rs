use crate::support::Games;
use a2store::loader::Sampling;
use a2store::query::no_params;
use a2store::table::ElementType;
use a2store::{Batch, CancellationToken, ErrorKind, Loader, LoaderOptions, StepTable};
use std::collections::HashSet;

type Key = (u32, u16);

fn table() -> (Games, StepTable) {
    let games = Games::new();
    let query = games.archive.sql("SELECT * FROM steps", no_params()).unwrap();
    let table = query.materialize(&Default::default(), &(), &CancellationToken::new()).unwrap();
    (games, table)
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
    LoaderOptions::default().with_batch_size(batch_size).with_seed(7)
}

/// Returns the rows of all ranks: at each step, the batch of rank 0, then of rank 1, and so on.
fn merged(table: &StepTable, options: &LoaderOptions, state: Option<&a2store::loader::LoaderState>) -> Vec<Key> {
    let loaders: Vec<Loader> =
        (0..options.world_size).map(|rank| table.loader(options.clone().with_rank(rank)).unwrap()).collect();
    for loader in &loaders {
        if let Some(state) = state {
            loader.load_state(state).unwrap();
        }
    }
    let mut ranks: Vec<_> = loaders.iter().map(|loader| loader.batches().unwrap()).collect();
    let mut out = Vec::new();
    loop {
        let step: Vec<Option<Batch>> = ranks.iter_mut().map(Iterator::next).collect();
        // Every rank takes the same number of steps.
        assert!(step.iter().all(Option::is_some) || step.iter().all(Option::is_none));
        if step[0].is_none() {
            return out;
        }
        out.extend(step.iter().flatten().flat_map(keys));
    }
}

#[test]
fn an_epoch_serves_every_row_exactly_once_on_any_number_of_ranks() {
    let (_games, table) = table();
    let one = merged(&table, &options(100), None);
    assert_eq!(one.len() as u64, table.num_rows());
    assert_eq!(one.iter().collect::<HashSet<_>>().len(), one.len());
    for world_size in [2, 3, 5, 17] {
        let options = options(100).with_world_size(world_size);
        assert_eq!(merged(&table, &options, None), one, "{world_size} ranks");
    }
    // With more ranks than rows in the last step.
    let tiny = options((table.num_rows() as usize - 3) / 7).with_world_size(7);
    assert_eq!(merged(&table, &tiny, None), one);
}

#[test]
fn orders_depend_only_on_seed_and_epoch() {
    let (_games, table) = table();
    let loader = table.loader(options(128)).unwrap();
    let first = epoch(&loader);
    // Each iteration serves the next epoch.
    assert_eq!(loader.epoch(), 1);
    let second = epoch(&loader);
    assert_ne!(second, first);
    loader.set_epoch(1);
    assert_eq!(epoch(&loader), second);
    loader.set_epoch(0);
    assert_eq!(epoch(&loader), first);
    let other = epoch(&table.loader(options(128).with_seed(8)).unwrap());
    assert!(other != first && other != second);
    let begun = table.loader(options(64).with_epoch(1)).unwrap();
    assert_eq!(epoch(&begun), second);
    let mut sorted = second;
    sorted.sort_unstable();
    let plain = table.loader(options(100).with_sampling(Sampling::Sequential)).unwrap();
    assert_eq!(epoch(&plain), sorted);
}

#[test]
fn num_batches_is_the_number_of_batches() {
    let (_games, table) = table();
    let n = table.num_rows();
    for (batch_size, world_size) in [(1, 1), (100, 1), (100, 3), (n as usize, 1), (n as usize + 1, 2)] {
        for drop_last in [false, true] {
            let options = options(batch_size).with_drop_last(drop_last).with_world_size(world_size);
            let loader = table.loader(options).unwrap();
            let sizes: Vec<usize> = loader.batches().unwrap().map(|batch| batch.num_rows()).collect();
            assert_eq!(sizes.len() as u64, loader.num_batches());
            let step = (batch_size * world_size) as u64;
            assert_eq!(loader.num_batches(), if drop_last { n / step } else { n.div_ceil(step) });
            let full = if drop_last { sizes.len() } else { sizes.len() - 1 };
            assert!(sizes[..full].iter().all(|&size| size == batch_size));
        }
    }
}

#[test]
fn an_epoch_resumes_in_its_middle_on_another_number_of_ranks() {
    let (_games, table) = table();
    let all = merged(&table, &options(64).with_epoch(3), None);
    let loader = table.loader(options(50).with_world_size(2).with_rank(1).with_epoch(3)).unwrap();
    let mut batches = loader.batches().unwrap();
    for _ in 0..4 {
        batches.next().unwrap();
    }
    // The state does not count prefetched batches.
    let state = loader.state();
    assert_eq!((state.position, state.epoch), (4 * 2 * 50, 3));
    let text = serde_json::to_string(&state).unwrap();
    assert!(text.len() <= 512);
    let state = serde_json::from_str(&text).unwrap();
    drop(batches);
    for (world_size, batch_size) in [(1, 64), (3, 7), (17, 11)] {
        let rest = merged(&table, &options(batch_size).with_world_size(world_size), Some(&state));
        assert_eq!(rest, all[400..], "{world_size} ranks");
    }
}

#[test]
fn a_loaded_position_is_used_once_and_only_for_its_epoch() {
    let (_games, table) = table();
    let loader = table.loader(options(100)).unwrap();
    let whole = epoch(&loader);
    let mut state = loader.state();
    assert_eq!(state.position, table.num_rows());
    state.position = 300;
    loader.load_state(&state).unwrap();
    loader.set_epoch(0);
    assert_eq!(loader.state().position, 300);
    assert_eq!(epoch(&loader), whole[300..]);
    assert_eq!(loader.epoch(), 1);
    loader.set_epoch(0);
    assert_eq!(epoch(&loader), whole);
    loader.load_state(&state).unwrap();
    loader.set_epoch(1);
    assert_eq!(epoch(&loader).len(), whole.len());
}

#[test]
fn only_the_newest_iteration_moves_the_position() {
    let (_games, table) = table();
    let loader = table.loader(options(100)).unwrap();
    let mut old = loader.batches().unwrap();
    old.next().unwrap();
    assert_eq!(loader.state().position, 100);
    loader.set_epoch(1);
    old.next().unwrap();
    assert_eq!((loader.state().epoch, loader.state().position), (1, 0));
    let mut new = loader.batches().unwrap();
    new.next().unwrap();
    old.next().unwrap();
    assert_eq!((loader.state().epoch, loader.state().position), (1, 100));
}

#[test]
fn the_error_for_a_state_of_other_data_names_the_field() {
    let (games, table) = table();
    let loader = table.loader(options(100)).unwrap();
    let good = loader.state();
    let other = games.archive.sql("SELECT * FROM steps WHERE move = 1", no_params()).unwrap();
    let other = other
        .materialize(&Default::default(), &(), &CancellationToken::new())
        .unwrap()
        .loader(options(100))
        .unwrap()
        .state();
    for (state, field) in [
        (other, "num_rows"),
        (a2store::loader::LoaderState { seed: 8, ..good.clone() }, "seed"),
        (a2store::loader::LoaderState { order: "sequential".into(), ..good.clone() }, "order"),
        (a2store::loader::LoaderState { version: 2, ..good.clone() }, "version"),
        (a2store::loader::LoaderState { rows: "other".into(), ..good.clone() }, "rows"),
        (a2store::loader::LoaderState { num_samples: 1, ..good.clone() }, "num_samples"),
        (a2store::loader::LoaderState { symmetries: true, ..good.clone() }, "symmetries"),
        (a2store::loader::LoaderState { num_rows: 1, ..good.clone() }, "num_rows"),
        (a2store::loader::LoaderState { position: table.num_rows() + 1, ..good.clone() }, "position"),
    ] {
        let error = loader.load_state(&state).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::StateMismatch { field: f, .. } if *f == field), "{field}: {error}");
        assert_eq!(loader.state(), good);
    }
}

#[test]
fn options_out_of_range_are_rejected() {
    let (_games, table) = table();
    let base = LoaderOptions::default;
    for (options, name) in [
        (base().with_batch_size(0), "batch_size"),
        (base().with_batch_size(usize::MAX), "batch_size"),
        (base().with_world_size(0), "world_size"),
        (base().with_rank(1), "rank"),
        (base().with_prefetch(usize::MAX), "prefetch"),
        (base().with_columns(vec!["nothing".into()]), "columns"),
    ] {
        let error = table.loader(options).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Argument { name: n, .. } if *n == name), "{name}: {error}");
    }
}

#[test]
fn live_batches_are_never_overwritten() {
    let (_games, table) = table();
    for prefetch in [0, 1, 4] {
        let loader = table.loader(options(37).with_prefetch(prefetch)).unwrap();
        let kept: Vec<Batch> = loader.batches().unwrap().collect();
        let all: Vec<Key> = kept.iter().flat_map(keys).collect();
        assert_eq!(all.iter().collect::<HashSet<_>>().len() as u64, table.num_rows());
        let arrow: Vec<_> = kept.iter().map(|batch| batch.to_record_batch().unwrap()).collect();
        drop(kept);
        let _ = epoch(&loader);
        let again: u64 = arrow.iter().map(|batch| batch.num_rows() as u64).sum();
        assert_eq!(again, table.num_rows());
    }
}

#[test]
fn memory_of_dropped_batches_is_reused() {
    let (_games, table) = table();
    let loader = table.loader(options(16).with_prefetch(2)).unwrap();
    let addresses: HashSet<usize> =
        loader.batches().unwrap().map(|batch| batch.column("tokens").unwrap().bytes.as_ptr() as usize).collect();
    assert!(loader.num_batches() > 50 && addresses.len() <= 6, "{} addresses", addresses.len());
}

#[test]
fn batches_have_the_requested_columns_and_token_type() {
    let (_games, table) = table();
    for (tokens, width) in [(ElementType::UInt8, 1), (ElementType::Int32, 4), (ElementType::Int64, 8)] {
        let columns = vec!["tokens".to_owned(), "board".to_owned()];
        let loader = table.loader(options(100).with_tokens(tokens).with_columns(columns)).unwrap();
        for batch in loader.batches().unwrap() {
            assert_eq!(batch.columns().map(|column| column.name.to_owned()).collect::<Vec<_>>(), ["tokens", "board"]);
            let boards = batch.column("board").unwrap().values::<u64>().unwrap();
            let exps: Vec<u8> = boards.iter().flat_map(|&board| a2store::Board(board).exps()).collect();
            let found = batch.column("tokens").unwrap();
            assert_eq!(found.dtype.width(), width);
            assert!(
                found.bytes.chunks(width).zip(&exps).all(|(t, &exp)| t[0] == exp && t[1..].iter().all(|&b| b == 0))
            );
        }
    }
    let error = table.loader(options(100).with_tokens(ElementType::Float32)).unwrap_err();
    assert!(error.to_string().contains("tokens: expected uint8, int32 or int64, found Float32"), "{error}");
}

#[test]
fn a_loader_can_be_dropped_at_any_time() {
    let (_games, table) = table();
    for taken in [0, 1, 5] {
        let loader = table.loader(options(10)).unwrap();
        let batches: Vec<Batch> = loader.batches().unwrap().take(taken).collect();
        drop(loader);
        assert_eq!(batches.len(), taken);
    }
}
