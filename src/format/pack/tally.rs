//! Computing the statistics of a pack from its runs.

use super::{PackReader, PackStats};
use crate::error::Result;
use crate::system::cancellation::CancellationToken;
use crate::system::progress::{Progress, ReportedWork, Unit};
use crate::system::workers;
use rayon::prelude::*;
use std::collections::{BTreeMap, HashMap};

/// Longer engine names are truncated, because each run could have a name of megabytes.
const MAX_NAME_LEN: usize = 1024;
/// Cancellation is checked, and progress reported, once per this number of runs.
const CHUNK_RUNS: usize = 1024;

impl PackReader {
    /// Returns the statistics of the pack. They are computed once.
    ///
    /// Stored lengths are used if they agree with the runs. Only the start of each run is read, up to its steps,
    /// so later damage stays unnoticed. A compressed run is read completely.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled). Damaged runs are counted, not reported.
    pub fn stats(&self, progress: &dyn Progress, cancel: &CancellationToken) -> Result<PackStats> {
        if let Some(stats) = self.pack.stats.get() {
            return Ok(stats.clone());
        }
        let _work = ReportedWork::begin(progress, "reading headers", Unit::Runs, self.len() as u64);
        let of_chunk = |chunk: Vec<usize>| -> Result<Tally> {
            cancel.check()?;
            let mut tally = Tally::default();
            for &index in &chunk {
                // A tombstone does not count as a run.
                if !self.entry(index)?.is_tombstone() {
                    tally.add(self, index);
                }
            }
            progress.advance(chunk.len() as u64);
            Ok(tally)
        };
        let merge = |a: Tally, b: Tally| Ok(a.merge(b));
        let chunks = (0..self.len()).into_par_iter().chunks(CHUNK_RUNS);
        let tally = || chunks.map(of_chunk).try_reduce(Tally::default, merge);
        let tally = workers::shared()?.install(tally)?;
        // No checksum covers the stored stats, so they must agree with the runs.
        let computed = PackStats::of(tally.lengths);
        let lengths = match self.stored_stats() {
            Some(Ok(stored)) if stored.difference(&computed).is_none() => stored,
            _ => computed,
        };
        let mut engines: Vec<_> = tally.engines.into_iter().collect();
        engines.sort_unstable_by(|(a, a_runs), (b, b_runs)| b_runs.cmp(a_runs).then_with(|| a.cmp(b)));
        let highest_tiles = tally.highest_tiles.into_iter().collect();
        let stats = PackStats { unreadable: tally.unreadable, highest_tiles, engines, ..lengths };
        Ok(self.pack.stats.get_or_init(|| stats).clone())
    }

    /// Returns the game of each run ([`Run::game`](crate::Run::game)); `None` for a damaged run.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
    pub fn games(&self, cancel: &CancellationToken) -> Result<Vec<Option<i64>>> {
        let game = |index| {
            cancel.check()?;
            Ok(self.decode(index).ok().and_then(|run| run.game()))
        };
        workers::shared()?.install(|| (0..self.len()).into_par_iter().map(game).collect())
    }

    /// Returns the stored stats, if there are any.
    pub(super) fn stored_stats(&self) -> Option<Result<PackStats>> {
        let offset = self.pack.layout.stats_offset;
        (offset != 0).then(|| PackStats::read(&self.pack.bytes, offset as usize))
    }
}

#[derive(Default)]
struct Tally {
    lengths: Vec<u32>,
    highest_tiles: BTreeMap<u32, u64>,
    engines: HashMap<Option<String>, u64>,
    unreadable: u64,
}

impl Tally {
    fn add(&mut self, reader: &PackReader, index: usize) {
        let Ok((num_steps, mut meta)) = reader.decode_meta(index) else {
            self.unreadable += 1;
            return;
        };
        if let Some(engine) = &mut meta.engine {
            engine.truncate(engine.floor_char_boundary(MAX_NAME_LEN));
            engine.shrink_to_fit();
        }
        self.lengths.push(num_steps);
        *self.highest_tiles.entry(meta.highest_tile).or_default() += 1;
        *self.engines.entry(meta.engine).or_default() += 1;
    }

    fn merge(mut self, other: Tally) -> Tally {
        self.lengths.extend(other.lengths);
        for (tile, runs) in other.highest_tiles {
            *self.highest_tiles.entry(tile).or_default() += runs;
        }
        for (engine, runs) in other.engines {
            *self.engines.entry(engine).or_default() += runs;
        }
        self.unreadable += other.unreadable;
        self
    }
}
