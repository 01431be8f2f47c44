//! What a pack holds: how long its runs are, how far they came, and who played them.

use super::PackReader;
use crate::error::Result;
use crate::format::bytes::{ByteReader, put_varint};
use crate::progress::{Progress, Unit, check};
use crate::workers;
use rayon::prelude::*;
use std::collections::{BTreeMap, HashMap};

/// Statistics of a pack.
///
/// Lengths are numbers of steps. A percentile is the length at the place nearest to it among all lengths in order, the upper
/// one of two that are equally near.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct PackStats {
    /// The number of runs.
    pub count: u64,
    /// The number of steps of all runs.
    pub total_steps: u64,
    /// The shortest run; 0 if there is none.
    pub min_len: u32,
    /// The longest run.
    pub max_len: u32,
    /// The mean of all lengths; 0 if there is none.
    pub mean_len: f64,
    /// The median length.
    pub p50: u32,
    /// The 90th percentile.
    pub p90: u32,
    /// The 99th percentile.
    pub p99: u32,
    /// Whether the above were stored in the pack, rather than computed from those of its runs that can be read.
    pub stored: bool,
    /// The number of runs that cannot be read, and so are not in what follows.
    pub unreadable: u64,
    /// How many runs say that this was their highest tile, in ascending order of tiles.
    pub highest_tiles: Vec<(u32, u64)>,
    /// How many runs each engine played, the most first. A name is cut to 1,024 bytes.
    pub engines: Vec<(Option<String>, u64)>,
}

/// The first eight numbers of [`PackStats`], which a pack may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct LengthStats {
    pub(super) count: u64,
    pub(super) total_steps: u64,
    pub(super) min_len: u32,
    pub(super) max_len: u32,
    pub(super) mean_len: f64,
    pub(super) p50: u32,
    pub(super) p90: u32,
    pub(super) p99: u32,
}

/// The longest name of an engine that is kept: many runs could each have one of megabytes.
const MAX_NAME_LEN: usize = 1024;
/// Runs between two looks at whether to stop.
const CHUNK_RUNS: usize = 1024;

impl PackReader {
    /// Statistics of the pack, computed once.
    ///
    /// The lengths are the stored ones where the pack has some that the runs agree with. Of each run only what precedes its steps is read, so that damage
    /// further on goes unseen; a run that is compressed is read as a whole.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled). Damaged runs are counted.
    pub fn stats(&self, progress: &dyn Progress) -> Result<PackStats> {
        if let Some(stats) = self.stats_cell().get() {
            return Ok(stats.clone());
        }
        progress.begin("reading headers", Unit::Runs, self.len() as u64);
        let tally = self.tally(progress);
        progress.end();
        let tally = tally?;
        // No checksum covers the stored ones, so they count only as far as the runs say the same.
        let computed = LengthStats::of(tally.lengths);
        let (lengths, stored) = match self.stored_stats() {
            Some(Ok(lengths)) if lengths.difference(&computed).is_none() => (lengths, true),
            _ => (computed, false),
        };
        let LengthStats { count, total_steps, min_len, max_len, mean_len, p50, p90, p99 } = lengths;
        let mut engines: Vec<_> = tally.engines.into_iter().collect();
        engines.sort_unstable_by(|(a, a_runs), (b, b_runs)| b_runs.cmp(a_runs).then_with(|| a.cmp(b)));
        let stats = PackStats {
            count,
            total_steps,
            min_len,
            max_len,
            mean_len,
            p50,
            p90,
            p99,
            stored,
            unreadable: tally.unreadable,
            highest_tiles: tally.highest_tiles.into_iter().collect(),
            engines,
        };
        Ok(self.stats_cell().get_or_init(|| stats).clone())
    }

    fn tally(&self, progress: &dyn Progress) -> Result<Tally> {
        let starts: Vec<usize> = (0..self.len()).step_by(CHUNK_RUNS).collect();
        let of_chunk = |start: usize| {
            check(progress)?;
            let mut tally = Tally::default();
            let chunk = start..self.len().min(start + CHUNK_RUNS);
            let num_runs = chunk.len() as u64;
            for index in chunk {
                // A tombstone is no run.
                if !self.entry(index)?.is_tombstone() {
                    tally.add(self, index);
                }
            }
            progress.advance(num_runs);
            Ok(tally)
        };
        let merge = |a: Tally, b| Ok(a.merge(b));
        workers::shared()?.install(|| starts.into_par_iter().map(of_chunk).try_reduce(Tally::default, merge))
    }

    /// The stored stats, if there are some.
    pub(super) fn stored_stats(&self) -> Option<Result<LengthStats>> {
        let offset = self.layout().stats_offset;
        (offset != 0).then(|| LengthStats::read(self.bytes(), offset as usize))
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

impl LengthStats {
    pub(super) fn of(mut lengths: Vec<u32>) -> LengthStats {
        lengths.sort_unstable();
        let (Some(&min_len), Some(&max_len)) = (lengths.first(), lengths.last()) else {
            return LengthStats::default();
        };
        let total_steps = lengths.iter().map(|&len| u64::from(len)).sum();
        let percentile = |share: f64| {
            let place = (share * (lengths.len() - 1) as f64).round() as usize;
            lengths.get(place).copied().unwrap_or(max_len)
        };
        LengthStats {
            count: lengths.len() as u64,
            total_steps,
            min_len,
            max_len,
            mean_len: total_steps as f64 / lengths.len() as f64,
            p50: percentile(0.5),
            p90: percentile(0.9),
            p99: percentile(0.99),
        }
    }

    /// The first number that differs, and both of its values. Means may differ by what another order of adding makes of them.
    pub(super) fn difference(&self, other: &LengthStats) -> Option<(&'static str, String, String)> {
        let numbers = |stats: &LengthStats| {
            let LengthStats { count, total_steps, min_len, max_len, p50, p90, p99, .. } = *stats;
            let [min_len, max_len, p50, p90, p99] = [min_len, max_len, p50, p90, p99].map(u64::from);
            [count, total_steps, min_len, max_len, p50, p90, p99]
        };
        let names = [
            "count of the stats",
            "total_steps of the stats",
            "min_len of the stats",
            "max_len of the stats",
            "p50 of the stats",
            "p90 of the stats",
            "p99 of the stats",
        ];
        let pairs = numbers(self).into_iter().zip(numbers(other));
        let number = names.into_iter().zip(pairs).find(|(_, (own, others))| own != others);
        if let Some((name, (own, others))) = number {
            return Some((name, own.to_string(), others.to_string()));
        }
        // A mean that is no number is close to none.
        let close = (self.mean_len - other.mean_len).abs() <= 1e-9 * other.mean_len.abs();
        (!close).then(|| ("mean_len of the stats", self.mean_len.to_string(), other.mean_len.to_string()))
    }

    /// The block of a pack, with its length before it.
    pub(super) fn to_block(self) -> Vec<u8> {
        let mut block = Vec::new();
        put_varint(&mut block, self.count);
        put_varint(&mut block, self.total_steps);
        put_varint(&mut block, u64::from(self.min_len));
        put_varint(&mut block, u64::from(self.max_len));
        block.extend_from_slice(&self.mean_len.to_le_bytes());
        for percentile in [self.p50, self.p90, self.p99] {
            put_varint(&mut block, u64::from(percentile));
        }
        let mut out = (block.len() as u32).to_le_bytes().to_vec();
        out.append(&mut block);
        out
    }

    /// Reads the block at an offset of a pack.
    fn read(bytes: &[u8], offset: usize) -> Result<LengthStats> {
        let mut reader = ByteReader::new(bytes);
        reader.skip(offset);
        let len = reader.u32("length of the stats")? as usize;
        let end = reader.offset().saturating_add(len);
        // What is read beyond the block is part of the pack still, and the length is checked at the end.
        let stats = LengthStats {
            count: reader.varint_u64("count of the stats")?,
            total_steps: reader.varint_u64("total_steps of the stats")?,
            min_len: reader.varint_u32("min_len of the stats")?,
            max_len: reader.varint_u32("max_len of the stats")?,
            mean_len: reader.array("mean_len of the stats").map(f64::from_le_bytes)?,
            p50: reader.varint_u32("p50 of the stats")?,
            p90: reader.varint_u32("p90 of the stats")?,
            p99: reader.varint_u32("p99 of the stats")?,
        };
        if reader.offset() != end {
            let found = reader.offset().abs_diff(end);
            let side = if reader.offset() < end { "more" } else { "fewer" };
            return Err(reader.error(0, "end of the stats", format!("{len} bytes"), format_args!("{found} {side}")));
        }
        Ok(stats)
    }
}
