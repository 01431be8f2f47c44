//! The rows of a view: ranges, with constant-time lookup by position.
//!
//! A view's rows are usually whole runs or parts of runs, so it has few ranges per run, of about 20 bytes each. A
//! list of rows would take 8 bytes per row, and each lookup would load one of them from memory.

use std::ops::Range;

/// Ascending, disjoint ranges of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selection {
    /// The position of each range's first row among all selected rows, then the number of selected rows.
    positions: Vec<u64>,
    /// The first row of each range.
    rows: Vec<u64>,
    /// For each `1 << shift` positions, the range that holds the first of them.
    guide: Vec<u32>,
    shift: u32,
}

impl Selection {
    /// Returns the selection of these ascending ranges. Adjacent ranges are merged; empty ranges are dropped.
    pub(in crate::table) fn new(ranges: impl IntoIterator<Item = Range<u64>>) -> Selection {
        let (mut positions, mut rows) = (Vec::new(), Vec::new());
        let (mut len, mut end) = (0, None);
        for range in ranges.into_iter().filter(|range| range.start < range.end) {
            if end != Some(range.start) {
                positions.push(len);
                rows.push(range.start);
            }
            len += range.end - range.start;
            end = Some(range.end);
        }
        positions.push(len);
        let mean = len / (rows.len() as u64).max(1);
        let shift = mean.max(1).ilog2();
        let mut range = 0;
        let guide = (0..(len >> shift) + 1).map(|bucket| {
            let position = bucket << shift;
            while range + 1 < rows.len() && positions[range + 1] <= position {
                range += 1;
            }
            range as u32
        });
        let guide = guide.collect();
        Selection { positions, rows, guide, shift }
    }

    /// Returns the number of rows.
    pub(in crate::table) fn len(&self) -> u64 {
        self.positions.last().copied().unwrap_or(0)
    }

    /// Replaces positions by the rows at these positions. Every position must be below `len`.
    pub(in crate::table) fn map(&self, positions: &mut [u64]) {
        for slot in positions {
            let position = *slot;
            let bucket = (position >> self.shift) as usize;
            let mut range = self.guide[bucket] as usize;
            let last = self.guide.get(bucket + 1).map_or(self.rows.len() - 1, |&range| range as usize);
            range += self.positions[range + 1..=last].partition_point(|&first| first <= position);
            *slot = self.rows[range] + (position - self.positions[range]);
        }
    }

    /// Returns the ranges, in ascending order.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.rows.iter().zip(self.positions.windows(2)).map(|(&row, at)| row..row + (at[1] - at[0]))
    }

    /// Returns the first row and the length of each range.
    pub(in crate::table) fn to_pairs(&self) -> Vec<[u64; 2]> {
        self.ranges().map(|range| [range.start, range.end - range.start]).collect()
    }

    /// Checks the result of [`to_pairs`](Selection::to_pairs). Ranges that overlap, descend or end above `num_rows` are
    /// rejected with a description.
    pub(in crate::table) fn from_pairs(pairs: &[[u64; 2]], num_rows: u64) -> Result<Selection, String> {
        let mut end = 0;
        let mut ranges = Vec::with_capacity(pairs.len());
        for &[first, len] in pairs {
            let next = first.checked_add(len).filter(|&next| first >= end && next <= num_rows);
            let next = next.ok_or_else(|| format!("{len} rows from row {first} on, after row {end}"))?;
            ranges.push(first..next);
            end = next;
        }
        Ok(Selection::new(ranges))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn selection_agrees_with_a_list_of_rows(gaps in prop::collection::vec((0u64..40, 0u64..40), 0..200), big in 0u64..100_000) {
            let mut ranges = Vec::new();
            let mut at = 0;
            for (gap, len) in gaps {
                ranges.push(at + gap..at + gap + len);
                at += gap + len;
            }
            ranges.push(at + 5..at + 5 + big);
            let list: Vec<u64> = ranges.iter().cloned().flatten().collect();
            let selection = Selection::new(ranges);
            prop_assert_eq!(selection.len(), list.len() as u64);
            let mut positions: Vec<u64> = (0..selection.len()).collect();
            selection.map(&mut positions);
            prop_assert_eq!(&positions, &list);
            prop_assert_eq!(selection.ranges().flatten().collect::<Vec<_>>(), list);
            let again = Selection::from_pairs(&selection.to_pairs(), at + 5 + big);
            prop_assert_eq!(again.as_ref(), Ok(&selection));
            if big > 0 {
                prop_assert!(Selection::from_pairs(&selection.to_pairs(), at + 4 + big).is_err());
            }
        }
    }

    #[test]
    fn overlapping_ranges_are_rejected() {
        assert!(Selection::from_pairs(&[[0, 5], [5, 1]], 10).is_ok());
        assert_eq!(Selection::from_pairs(&[[0, 5], [4, 1]], 10), Err("1 rows from row 4 on, after row 5".into()));
        assert!(Selection::from_pairs(&[[u64::MAX, 5]], 10).is_err());
    }
}
