//! Statistics of a pack, and the block in which a pack stores some of them.

use crate::error::Result;
use crate::format::files::bytes::{ByteReader, put_varint};

/// Statistics of a pack.
///
/// Lengths are numbers of steps. A percentile `p` is the length at rank `p × (count - 1)`, rounded half up, in
/// ascending order.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct PackStats {
    /// The number of runs.
    pub count: u64,
    /// The number of steps of all runs.
    pub total_steps: u64,
    /// The shortest length; 0 if there are no runs.
    pub min_len: u32,
    /// The longest length; 0 if there are no runs.
    pub max_len: u32,
    /// The mean length; 0 if there are no runs.
    pub mean_len: f64,
    /// The median length.
    pub p50: u32,
    /// The 90th percentile.
    pub p90: u32,
    /// The 99th percentile.
    pub p99: u32,
    /// Whether the numbers above were stored in the pack. Otherwise they were computed from the readable runs.
    pub stored: bool,
    /// The number of unreadable runs, which the numbers below exclude.
    pub unreadable: u64,
    /// The number of runs per highest tile, in ascending order of tiles.
    pub highest_tiles: Vec<(u32, u64)>,
    /// The number of runs per engine, in descending order of runs. Names are truncated to 1,024 bytes.
    pub engines: Vec<(Option<String>, u64)>,
}

impl PackStats {
    /// Returns the numbers that a pack may store: `count` to `p99`.
    pub(super) fn of(mut lengths: Vec<u32>) -> PackStats {
        lengths.sort_unstable();
        let (Some(&min_len), Some(&max_len)) = (lengths.first(), lengths.last()) else {
            return PackStats::default();
        };
        let total_steps = lengths.iter().map(|&len| u64::from(len)).sum();
        let percentile = |share: f64| {
            let place = (share * (lengths.len() - 1) as f64).round() as usize;
            lengths.get(place).copied().unwrap_or(max_len)
        };
        PackStats {
            count: lengths.len() as u64,
            total_steps,
            min_len,
            max_len,
            mean_len: total_steps as f64 / lengths.len() as f64,
            p50: percentile(0.5),
            p90: percentile(0.9),
            p99: percentile(0.99),
            ..PackStats::default()
        }
    }

    /// Returns the first stored number that differs, with both values. Means may differ by rounding errors.
    pub(super) fn difference(&self, other: &PackStats) -> Option<(&'static str, String, String)> {
        let numbers = |stats: &PackStats| {
            [
                ("count of the stats", stats.count),
                ("total_steps of the stats", stats.total_steps),
                ("min_len of the stats", u64::from(stats.min_len)),
                ("max_len of the stats", u64::from(stats.max_len)),
                ("p50 of the stats", u64::from(stats.p50)),
                ("p90 of the stats", u64::from(stats.p90)),
                ("p99 of the stats", u64::from(stats.p99)),
            ]
        };
        let differing = numbers(self).into_iter().zip(numbers(other)).find(|(own, others)| own != others);
        if let Some(((name, own), (_, others))) = differing {
            return Some((name, own.to_string(), others.to_string()));
        }
        // This is false for NaN.
        let close = (self.mean_len - other.mean_len).abs() <= 1e-9 * other.mean_len.abs();
        (!close).then(|| ("mean_len of the stats", self.mean_len.to_string(), other.mean_len.to_string()))
    }

    /// Returns the stats block of a pack, with its length in front.
    pub(super) fn to_block(&self) -> Vec<u8> {
        let mut block = Vec::new();
        for number in [self.count, self.total_steps, self.min_len.into(), self.max_len.into()] {
            put_varint(&mut block, number);
        }
        block.extend_from_slice(&self.mean_len.to_le_bytes());
        for percentile in [self.p50, self.p90, self.p99] {
            put_varint(&mut block, u64::from(percentile));
        }
        let mut out = (block.len() as u32).to_le_bytes().to_vec();
        out.append(&mut block);
        out
    }

    /// Reads the stats block at an offset of a pack.
    pub(super) fn read(bytes: &[u8], offset: usize) -> Result<PackStats> {
        let mut reader = ByteReader::new(bytes);
        reader.skip(offset);
        let len = reader.u32("length of the stats")? as usize;
        let end = reader.offset().saturating_add(len);
        // A damaged block may be read past its end, but within the pack. The length is checked below.
        let stats = PackStats {
            count: reader.varint_u64("count of the stats")?,
            total_steps: reader.varint_u64("total_steps of the stats")?,
            min_len: reader.varint_u32("min_len of the stats")?,
            max_len: reader.varint_u32("max_len of the stats")?,
            mean_len: reader.array("mean_len of the stats").map(f64::from_le_bytes)?,
            p50: reader.varint_u32("p50 of the stats")?,
            p90: reader.varint_u32("p90 of the stats")?,
            p99: reader.varint_u32("p99 of the stats")?,
            stored: true,
            ..PackStats::default()
        };
        if reader.offset() != end {
            let found = reader.offset().abs_diff(end);
            let side = if reader.offset() < end { "more" } else { "fewer" };
            return Err(reader.error(0, "end of the stats", format!("{len} bytes"), format_args!("{found} {side}")));
        }
        Ok(stats)
    }
}
