//! Sorting finished rows by run, step and bytes.

use crate::error::Result;
use crate::step::STEP_SIZE;
use crate::system::machine::reserve;
use crate::system::workers;
use crate::table::rows::layout::RowLayout;
use rayon::prelude::*;
use std::cmp::Ordering;

/// Sorts rows in place by run, then step, then bytes, on all cores. Rows of usual sizes need no further memory; larger
/// rows need eight bytes each.
pub(in crate::table) fn sort_rows(rows: &mut [u8], layout: &RowLayout) -> Result<()> {
    let key = |row: &[u8]| (layout.step_of(row).run_id, layout.step_index_of(row));
    let order = |a: &[u8], b: &[u8]| key(a).cmp(&key(b)).then_with(|| a.cmp(b));
    workers::shared()?.install(|| match layout.stride() {
        STEP_SIZE => sort_arrays::<STEP_SIZE>(rows, order),
        40 => sort_arrays::<40>(rows, order),
        48 => sort_arrays::<48>(rows, order),
        56 => sort_arrays::<56>(rows, order),
        64 => sort_arrays::<64>(rows, order),
        stride => sort_slices(rows, stride, order),
    })
}

fn sort_arrays<const N: usize>(rows: &mut [u8], order: impl Fn(&[u8], &[u8]) -> Ordering + Sync) -> Result<()> {
    rows.as_chunks_mut::<N>().0.par_sort_unstable_by(|a, b| order(a, b));
    Ok(())
}

/// Sorts rows of any size by way of a list of their places.
fn sort_slices(rows: &mut [u8], stride: usize, order: impl Fn(&[u8], &[u8]) -> Ordering + Sync) -> Result<()> {
    let num_rows = rows.len() / stride;
    let mut places: Vec<usize> = Vec::new();
    reserve(&mut places, num_rows)?;
    places.extend(0..num_rows);
    let row = |place: usize| &rows[place * stride..][..stride];
    places.par_sort_unstable_by(|&a, &b| order(row(a), row(b)));
    // The row of `places[k]` belongs at `k`. Each cycle of such moves begins with a copy of its first row.
    let mut first = vec![0; stride];
    for start in 0..num_rows {
        first.copy_from_slice(&rows[start * stride..][..stride]);
        let mut to = start;
        loop {
            let from = std::mem::replace(&mut places[to], to);
            if from == start {
                break;
            }
            rows.copy_within(from * stride..(from + 1) * stride, to * stride);
            to = from;
        }
        rows[to * stride..][..stride].copy_from_slice(&first);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::element::ElementType;
    use super::super::layout::ExtraField;
    use super::*;
    use crate::board::Board;
    use crate::step::Step;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_are_in_the_order_of_run_step_and_bytes(
            steps in prop::collection::vec((0u32..3, 0u16..3, 0u64..3, 0u8..2), 0..200),
            extra in prop::sample::select(vec![0usize, 8, 16, 24, 32, 40, 64]),
        ) {
            let layout = RowLayout::new((0..extra / 8).map(|k| ExtraField::new(&k.to_string(), ElementType::Int64, 1)).collect());
            let mut expected: Vec<((u32, u16), Vec<u8>)> = steps.iter().map(|&(run_id, step_index, board, last)| {
                let step = Step { run_id, step_index, board: Board(board), ..Step::default() };
                let mut row = bytemuck::bytes_of(&step).to_vec();
                row.resize(layout.stride(), last);
                ((run_id, step_index), row)
            }).collect();
            let mut rows: Vec<u8> = expected.iter().flat_map(|(_, row)| row.clone()).collect();
            sort_rows(&mut rows, &layout).unwrap();
            expected.sort();
            prop_assert_eq!(rows, expected.into_iter().flat_map(|(_, row)| row).collect::<Vec<u8>>());
        }
    }
}
