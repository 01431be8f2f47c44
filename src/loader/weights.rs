//! Draws of rows in proportion to their weights: a binary search in the running sums of the weights.

use super::draws::Draws;
use super::extra_column::{check_at, extra_column};
use crate::cancellation::CancellationToken;
use crate::error::{Error, Result};
use crate::machine::reserve;
use crate::table::StepTable;

/// The sum of the weights of all rows up to each row, eight bytes each.
#[derive(Debug)]
pub(super) struct WeightSums(Vec<f64>);

/// The number of rows that are searched together, so that their loads from memory overlap.
const LANES: usize = 64;

impl WeightSums {
    /// Reads the weights in a table's column: finite numbers of at least 0, with a positive sum.
    pub(super) fn new(table: &StepTable, column: &str, cancel: &CancellationToken) -> Result<WeightSums> {
        let extra = extra_column(table, "weights", column)?;
        if extra.categories.is_some() {
            return Err(Error::argument("weights", "a column of numbers", format!("{column}, a column of strings")));
        }
        let num_rows = table.num_rows();
        let (mut sums, mut sum) = (Vec::new(), 0.0);
        reserve(&mut sums, num_rows as usize)?;
        for (row, weight) in (0..).zip(table.extra_values(extra)) {
            check_at(row, cancel)?;
            if !(0.0..f64::INFINITY).contains(&weight) {
                return Err(Error::column(column, Some(row), "a finite weight of at least 0", weight));
            }
            sum += weight;
            sums.push(sum);
        }
        if num_rows > 0 && !(sum > 0.0 && sum.is_finite()) {
            return Err(Error::column(column, None, "weights of a positive, finite sum", sum));
        }
        let mean = sum / num_rows.max(1) as f64;
        if num_rows > 0 && !mean.is_normal() {
            // Subnormal numbers have too few digits.
            let expected = format!("weights of a mean of at least {:e}", f64::MIN_POSITIVE);
            return Err(Error::column(column, None, expected, format_args!("{mean:e}")));
        }
        Ok(WeightSums(sums))
    }

    /// Draws the rows at the positions from `start` on.
    pub(super) fn fill(&self, draws: Draws, start: u64, out: &mut [u64]) {
        draws.fill(start, out);
        let sums = &self.0;
        let total = sums.last().copied().unwrap_or_default();
        // A number below 1 times the total is below the total.
        let drawn = |word: u64| (word >> 11) as f64 / (1_u64 << 53) as f64 * total;
        for words in out.chunks_mut(LANES) {
            // The row is the first one whose sum is above the drawn number. So a row of weight 0 is never drawn.
            let mut rows = [0; LANES];
            let mut len = sums.len();
            while len > 1 {
                let half = len / 2;
                for (row, word) in rows.iter_mut().zip(&*words) {
                    if sums[*row + half - 1] <= drawn(*word) {
                        *row += half;
                    }
                }
                len -= half;
            }
            words.iter_mut().zip(rows).for_each(|(slot, row)| *slot = row as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sums(weights: &[f64]) -> WeightSums {
        WeightSums((1..=weights.len()).map(|len| weights[..len].iter().sum()).collect())
    }

    proptest! {
        #[test]
        fn a_draw_is_the_first_row_above_it(weights in prop::collection::vec(prop_oneof![Just(0.0), 0.0..1.0, 0.0..1e6], 1..300)) {
            prop_assume!(weights.iter().sum::<f64>() > 0.0);
            let sums = sums(&weights);
            let (mut words, mut rows) = ([0; 100], [0; 100]);
            let draws = Draws::new(1, 2);
            draws.fill(5, &mut words);
            sums.fill(draws, 5, &mut rows);
            for (word, row) in words.into_iter().zip(rows) {
                let number = (word >> 11) as f64 / 2_f64.powi(53) * sums.0[weights.len() - 1];
                prop_assert_eq!(row as usize, sums.0.iter().position(|&sum| sum > number).unwrap());
                prop_assert!(weights[row as usize] > 0.0);
            }
        }
    }

    #[test]
    fn every_row_has_its_share() {
        let mut rows = vec![0; 100_000];
        sums(&[1.0, 0.0, 2.0, 7.0]).fill(Draws::new(3, 0), 0, &mut rows);
        let count = |row: u64| rows.iter().filter(|&&found| found == row).count();
        // Four standard deviations are at most 633.
        for (row, expected) in [(0, 10_000), (1, 0), (2, 20_000), (3, 70_000)] {
            assert!(count(row).abs_diff(expected) < 640, "row {row}: {}", count(row));
        }
    }
}
