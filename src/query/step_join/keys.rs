//! Keys of batches, and the pairs of equal keys.

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::UInt32Type;
use datafusion::common::{Result as DataFusionResult, exec_err};
use std::ops::Range;

/// The columns of a side's keys: `run_id`, and `step_index` unless the join is only by run.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyColumns {
    pub(super) run: usize,
    pub(super) step: Option<usize>,
    /// Whether no key occurs twice.
    pub(super) are_unique: bool,
}

/// Returns the key of each row: the run in the upper half, the step in the lower.
///
/// # Errors
/// If the keys do not ascend from `before`.
pub(super) fn keys_of(rows: &RecordBatch, columns: KeyColumns, before: Option<u64>) -> DataFusionResult<Vec<u64>> {
    let numbers = |column: usize| rows.column(column).as_primitive::<UInt32Type>().values();
    let mut keys: Vec<u64> = numbers(columns.run).iter().map(|&run| u64::from(run) << 32).collect();
    if let Some(step) = columns.step {
        keys.iter_mut().zip(numbers(step)).for_each(|(key, &step)| *key |= u64::from(step));
    }
    if let Some((before, key)) = first_descent(&keys, before, columns.are_unique) {
        let pair = |key: u64| (key >> 32, key & u64::from(u32::MAX));
        let (before, key) = (pair(before), pair(key));
        return exec_err!("a join of sorted rows: expected ascending (run, step), found {key:?} after {before:?}");
    }
    Ok(keys)
}

/// Returns the first key that is not greater than the key before it, and the key before it. If keys may occur more than
/// once, a key may equal the key before it.
fn first_descent(keys: &[u64], before: Option<u64>, are_unique: bool) -> Option<(u64, u64)> {
    let descends = |before: u64, key: u64| before > key || are_unique && before == key;
    let first = before.zip(keys.first().copied()).filter(|&(before, key)| descends(before, key));
    if first.is_some() || keys.is_sorted_by(|&before, &key| !descends(before, key)) {
        return first;
    }
    keys.iter()
        .zip(keys.iter().skip(1))
        .map(|(&before, &key)| (before, key))
        .find(|&(before, key)| descends(before, key))
}

/// Returns the pairs of equal keys of two ascending lists, as positions on both sides. No key of `build` occurs twice.
pub(super) fn pairs(probe: &[u64], build: &[u64]) -> (Vec<u32>, Vec<u32>) {
    // Batches have far fewer than 2^32 rows.
    if probe == build {
        let rows: Vec<u32> = (0..probe.len() as u32).collect();
        return (rows.clone(), rows);
    }
    let (mut probe_rows, mut build_rows) = (Vec::with_capacity(probe.len()), Vec::with_capacity(probe.len()));
    let mut at = 0;
    for (row, &key) in (0..).zip(probe) {
        while build.get(at).is_some_and(|&found| found < key) {
            at += 1;
        }
        match build.get(at) {
            None => break,
            Some(&found) if found == key => {
                probe_rows.push(row);
                build_rows.push(at as u32);
            }
            Some(_) => {}
        }
    }
    (probe_rows, build_rows)
}

/// Returns the range of positions that follow each other; `None` if there is a gap or a repetition.
pub(super) fn slice(rows: &[u32]) -> Option<Range<usize>> {
    let Some(&first) = rows.first() else { return Some(0..0) };
    (first..).zip(rows).all(|(at, &row)| at == row).then(|| first as usize..first as usize + rows.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, UInt32Array};
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;
    use std::sync::Arc;

    proptest! {
        #[test]
        fn pairs_are_those_of_two_loops(mut probe in vec(0_u64..200, 0..80), build in btree_set(0_u64..200, 0..80)) {
            probe.sort_unstable();
            let build: Vec<u64> = build.into_iter().collect();
            let mut expected = Vec::new();
            for (i, a) in probe.iter().enumerate() {
                for (j, b) in build.iter().enumerate() {
                    if a == b {
                        expected.push((i as u32, j as u32));
                    }
                }
            }
            let expected: (Vec<u32>, Vec<u32>) = expected.into_iter().unzip();
            prop_assert_eq!(pairs(&probe, &build), expected);
        }
    }

    #[test]
    fn keys_must_ascend() {
        let rows = |keys: &[(u32, u32)]| {
            let column = |values: Vec<u32>| Arc::new(UInt32Array::from(values)) as ArrayRef;
            let runs = column(keys.iter().map(|key| key.0).collect());
            let steps = column(keys.iter().map(|key| key.1).collect());
            RecordBatch::try_from_iter([("step_index", steps), ("run_id", runs)]).unwrap()
        };
        let by_step = KeyColumns { run: 1, step: Some(0), are_unique: true };
        let keys = keys_of(&rows(&[(1, 7), (2, 0), (2, 1)]), by_step, Some(1 << 32 | 6)).unwrap();
        assert_eq!(keys, [1 << 32 | 7, 2 << 32, 2 << 32 | 1]);
        let by_run = KeyColumns { step: None, are_unique: false, ..by_step };
        assert_eq!(
            keys_of(&rows(&[(1, 7), (1, 0), (2, 1)]), by_run, Some(1 << 32)).unwrap(),
            [1 << 32, 1 << 32, 2 << 32]
        );
        keys_of(&rows(&[(1, 7), (1, 8)]), KeyColumns { are_unique: true, ..by_run }, None).unwrap_err();
        for (out_of_order, before, found) in [
            (rows(&[(1, 0), (1, 0)]), None, "found (1, 0) after (1, 0)"),
            (rows(&[(2, 0), (1, 5)]), None, "found (1, 5) after (2, 0)"),
            (rows(&[(1, 7)]), Some(1 << 32 | 8), "found (1, 7) after (1, 8)"),
        ] {
            let error = keys_of(&out_of_order, by_step, before).unwrap_err().to_string();
            assert!(error.contains(found), "{error}");
        }
    }

    #[test]
    fn pairs_that_follow_each_other_are_slices() {
        let slices = |probe: &[u64], build: &[u64]| {
            let (probe, build) = pairs(probe, build);
            (slice(&probe), slice(&build))
        };
        assert_eq!(slices(&[1, 2, 3], &[1, 2, 3]), (Some(0..3), Some(0..3)));
        assert_eq!(slices(&[1, 2, 3], &[2, 3, 4]), (Some(1..3), Some(0..2)));
        assert_eq!(slices(&[1, 2, 3], &[1, 3]), (None, Some(0..2)));
        assert_eq!(slices(&[1, 2], &[3]), (Some(0..0), Some(0..0)));
        assert_eq!(slices(&[1, 1, 2], &[1, 2, 3]), (Some(0..3), None));
        assert_eq!(slice(&[0, 0, 2]), None);
    }
}
