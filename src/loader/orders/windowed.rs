//! A shuffle within windows, for tables that are read from disk.
//!
//! The table is cut into blocks, and the blocks are shuffled. A window is the next 256 blocks, whose rows are
//! shuffled together. So an epoch has every row once and reads each block once, contiguously. One window is in
//! use at a time, and a batch has rows from up to 256 places of the table. One in 256 pairs of a batch's rows
//! is from the same block. Rows of different blocks meet as in a full shuffle. The rows at the end of the table that
//! fill no block belong to the last window.

use crate::error::Result;
use crate::loader::orders::permutation::Permutation;
use std::ops::Range;

/// The number of blocks of a window.
pub(in crate::loader) const BLOCKS: u64 = 256;

/// Returns the binary logarithm of the rows of a block, for windows of about `window` rows. A block is never larger
/// than the table.
pub(in crate::loader) fn block_shift(window: u64, num_rows: u64) -> u32 {
    (window / BLOCKS).max(1).ilog2().min(num_rows.checked_next_power_of_two().map_or(63, u64::ilog2))
}

#[derive(Clone, Debug)]
pub(in crate::loader) struct WindowedOrder {
    num_rows: u64,
    /// The binary logarithm of the rows of a block.
    shift: u32,
    seed: u64,
    epoch: u64,
    /// The order of the whole blocks.
    blocks: Permutation,
    /// The current window: its number, the order of its rows, and the first row of each of its blocks.
    current: Option<(u64, Permutation, Vec<u64>)>,
}

impl WindowedOrder {
    /// Returns an order with blocks of `2^shift` rows.
    pub(in crate::loader) fn new(num_rows: u64, shift: u32, seed: u64, epoch: u64) -> Result<WindowedOrder> {
        let blocks = Permutation::keyed(num_rows >> shift, &[seed, epoch, 0])?;
        Ok(WindowedOrder { num_rows, shift, seed, epoch, blocks, current: None })
    }

    fn last_window(&self) -> u64 {
        self.blocks.n.div_ceil(BLOCKS).saturating_sub(1)
    }

    /// Returns the number of the window at a position, its first position, and its number of rows.
    fn window_at(&self, position: u64) -> (u64, u64, u64) {
        let full = BLOCKS << self.shift;
        let window = (position / full).min(self.last_window());
        let start = window * full;
        let len = if window == self.last_window() { self.num_rows - start } else { full };
        (window, start, len)
    }

    /// Returns the first row of each block of a window; none for a window after the last.
    fn blocks_of(&self, window: u64) -> Vec<u64> {
        let end = self.blocks.n.min((window + 1) * BLOCKS);
        let whole = (window * BLOCKS..end).filter_map(|place| self.blocks.get(place));
        let has_rest = window == self.last_window() && self.blocks.n << self.shift < self.num_rows;
        let rest = has_rest.then_some(self.blocks.n);
        whole.chain(rest).map(|block| block << self.shift).collect()
    }

    /// Sets `out` to the rows at the positions from `start` on. Calls `advise` with ranges of rows that will be
    /// needed soon (`true`), or not for long (`false`).
    pub(in crate::loader) fn fill(
        &mut self,
        start: u64,
        out: &mut [u64],
        advise: impl Fn(Range<u64>, bool),
    ) -> Result<()> {
        let (mut start, mut rest) = (start, out);
        while !rest.is_empty() {
            let (window, first, len) = self.window_at(start);
            if self.current.as_ref().is_none_or(|(current, ..)| *current != window) {
                self.enter(window, len, &advise)?;
            }
            let Some((_, permutation, blocks)) = &self.current else { return Ok(()) };
            let from = start - first;
            let now = rest.len().min((len - from) as usize);
            let (part, later) = rest.split_at_mut(now);
            permutation.fill(from, part);
            let within = (1 << self.shift) - 1;
            part.iter_mut().for_each(|row| *row = blocks[(*row >> self.shift) as usize] + (*row & within));
            rest = later;
            start += now as u64;
        }
        Ok(())
    }

    /// Enters a window. The next window will be needed soon, and the previous one no longer.
    fn enter(&mut self, window: u64, len: u64, advise: impl Fn(Range<u64>, bool)) -> Result<()> {
        let rows = |block: u64| block..self.num_rows.min(block + (1 << self.shift));
        if let Some((_, _, past)) = &self.current {
            past.iter().for_each(|&block| advise(rows(block), false));
        } else {
            self.blocks_of(window).into_iter().for_each(|block| advise(rows(block), true));
        }
        self.blocks_of(window + 1).into_iter().for_each(|block| advise(rows(block), true));
        let permutation = Permutation::keyed(len, &[self.seed, self.epoch, 1, window])?;
        self.current = Some((window, permutation, self.blocks_of(window)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(num_rows: u64, window: u64, seed: u64, epoch: u64) -> WindowedOrder {
        WindowedOrder::new(num_rows, block_shift(window, num_rows), seed, epoch).unwrap()
    }

    fn all(mut order: WindowedOrder) -> Vec<u64> {
        let mut rows = vec![0; order.num_rows as usize];
        order.fill(0, &mut rows, |_, _| ()).unwrap();
        rows
    }

    #[test]
    fn has_every_row_once() {
        for (num_rows, window) in
            [(1, 1), (1000, 1), (1000, 512), (1_000, 100_000), (100_003, 2048), (70_000, 1024), (65_536, 4096)]
        {
            for seed in 0..3 {
                let mut rows = all(order(num_rows, window, seed, 0));
                rows.sort_unstable();
                assert!(rows.iter().copied().eq(0..num_rows), "{num_rows} rows, window {window}");
            }
        }
    }

    #[test]
    fn a_window_has_256_whole_blocks_from_random_places() {
        let (num_rows, window) = (1 << 20, 1 << 12);
        let rows = all(order(num_rows, window, 1, 0));
        for rows in rows.chunks(window as usize) {
            let mut blocks: Vec<u64> = rows.iter().map(|row| row >> 4).collect();
            blocks.sort_unstable();
            assert!(blocks.chunks(16).all(|block| block.iter().all(|b| *b == block[0])));
            blocks.dedup();
            assert_eq!(blocks.len(), 256);
            // With 256 random blocks, the lower half of the table has 128 ± 8.
            let low = blocks.iter().filter(|&&block| block < (num_rows >> 5)).count();
            assert!((80..=176).contains(&low), "{low}");
        }
    }

    #[test]
    fn begins_anywhere() {
        let rows = all(order(100_003, 2048, 4, 1));
        for start in [0, 1, 2047, 2048, 50_000, 99_999] {
            let mut out = vec![0; 4];
            order(100_003, 2048, 4, 1).fill(start, &mut out, |_, _| ()).unwrap();
            assert_eq!(out, rows[start as usize..][..4]);
        }
    }

    #[test]
    fn advises_each_row_once_before_it_comes() {
        let wanted = std::cell::RefCell::new(vec![0; 10_000]);
        let mut order = order(10_000, 512, 4, 1);
        let mut row = [0];
        for position in 0..10_000 {
            order
                .fill(position, &mut row, |rows, soon| {
                    rows.filter(|_| soon).for_each(|row| wanted.borrow_mut()[row as usize] += 1);
                })
                .unwrap();
            assert_eq!(wanted.borrow()[row[0] as usize], 1);
        }
    }

    /// Measures the distance from a full shuffle. Pairs within one block are `(b - 1) / (w - 1)` of a batch's
    /// pairs. Pairs of adjacent blocks are as rare as in a random sample.
    #[test]
    fn pairs_are_as_frequent_as_documented() {
        let (num_rows, window, batch) = (1 << 20, 1 << 14, 1 << 10);
        let block = window / BLOCKS;
        let (mut same, mut next, mut batches) = (0.0, 0.0, 0.0);
        for seed in 0..4 {
            for rows in all(order(num_rows, window, seed, 0)).chunks(batch) {
                let mut counts = std::collections::BTreeMap::new();
                rows.iter().for_each(|row| *counts.entry(row / block).or_insert(0_u64) += 1);
                same += counts.values().map(|count| (count * (count - 1) / 2) as f64).sum::<f64>();
                let beside = |(block, count): (&u64, &u64)| counts.get(&(block + 1)).map_or(0, |other| count * other);
                next += counts.iter().map(beside).sum::<u64>() as f64;
                batches += 1.0;
            }
        }
        let pairs = (batch * (batch - 1) / 2) as f64;
        let expected = pairs * (block - 1) as f64 / (window - 1) as f64;
        assert!((same / batches / expected - 1.0).abs() < 0.02, "{} pairs, not {expected}", same / batches);
        // Pairs from blocks k and k + 1. A random sample of the table has as many.
        let expected = pairs * 2.0 * block as f64 / num_rows as f64;
        assert!((next / batches / expected - 1.0).abs() < 0.1, "{} pairs, not {expected}", next / batches);
    }
}
