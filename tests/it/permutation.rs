//! Statistical tests of computed permutations against uniformly random ones.
//!
//! The seeds are fixed, so the results are deterministic. A uniformly random permutation would stay within the bounds.

use a2store::loader::Permutation;

fn all(n: u64, seed: u64, epoch: u64) -> Vec<u64> {
    let mut out = vec![0; n as usize];
    Permutation::new(n, seed, epoch).unwrap().fill(0, &mut out);
    out
}

/// Four values have 24 orders, five have 120, six have 720. Each order must be equally frequent.
#[test]
fn every_order_of_few_values_is_equally_likely() {
    for (n, orders) in [(2, 2), (3, 6), (4, 24), (5, 120), (6, 720)] {
        let deviation = (2.0 * (orders - 1) as f64).sqrt();
        let trials = orders * 500;
        let mut counts = std::collections::HashMap::new();
        for seed in 0..trials {
            *counts.entry(all(n, seed, seed % 7)).or_insert(0_u32) += 1;
        }
        assert_eq!(counts.len() as u64, orders);
        let chi2: f64 = counts.values().map(|&count| (f64::from(count) - 500.0).powi(2) / 500.0).sum();
        let expected = (orders - 1) as f64;
        // χ² with `orders - 1` degrees of freedom; the bound is four standard deviations.
        assert!((chi2 - expected).abs() < 4.0 * deviation, "{n} values: χ² {chi2}, not {expected} ± {deviation}");
    }
}

/// Returns whether an order is an even permutation.
fn is_even(order: &[u64]) -> bool {
    let mut seen = vec![false; order.len()];
    let mut cycles = 0;
    for start in 0..order.len() {
        let mut at = start;
        cycles += usize::from(!seen[start]);
        while !std::mem::replace(&mut seen[at], true) {
            at = order[at] as usize;
        }
    }
    // A cycle of k values is a product of k - 1 transpositions.
    (order.len() - cycles).is_multiple_of(2)
}

/// Half of all permutations are even. The lengths are odd squares, their neighbours and others, because a Feistel network
/// alone yields only even permutations for odd squares, and a bias for their neighbours.
#[test]
fn half_of_all_orders_are_even() {
    for n in [2, 3, 7, 8, 9, 10, 15, 16, 24, 25, 48, 49, 80, 81, 120, 121, 960, 961, 3969, 65_025, 65_535] {
        let trials = if n < 1000 { 4000_u64 } else { 200 };
        let even = (0..trials).filter(|seed| is_even(&all(n, *seed, 1))).count() as f64;
        let (mean, deviation) = (trials as f64 / 2.0, (trials as f64).sqrt() / 2.0);
        assert!((even - mean).abs() < 4.0 * deviation, "{n} values: {even} of {trials} orders are even");
    }
}

/// χ² of position × value, and of the first value × the second value, over many permutations.
#[test]
fn small_permutations_have_independent_positions_and_neighbours() {
    for n in [7_usize, 8, 9, 10, 16] {
        let trials = 20_000_u32;
        let (mut places, mut pairs) = (vec![0_f64; n * n], vec![0_f64; n * n]);
        for seed in 0..trials {
            let order = all(n as u64, seed.into(), 0);
            (0..).zip(&order).for_each(|(position, &value): (usize, _)| places[position * n + value as usize] += 1.0);
            pairs[order[0] as usize * n + order[1] as usize] += 1.0;
        }
        let chi2 = |counts: &[f64], expected: f64| -> f64 {
            counts.iter().map(|count| (count - expected).powi(2) / expected).sum()
        };
        // All rows and columns have equal sums, so the χ² with (n - 1)² degrees of freedom is larger by n / (n - 1).
        let degrees = ((n - 1) * (n - 1)) as f64;
        let found = chi2(&places, f64::from(trials) / n as f64) * (n - 1) as f64 / n as f64;
        assert!((found - degrees).abs() < 4.0 * (2.0 * degrees).sqrt(), "{n} values: χ² {found} of {degrees}");
        assert!((0..n).all(|value| pairs[value * n + value] == 0.0));
        let pairs: Vec<f64> = (0..n * n).filter(|at| at / n != at % n).map(|at| pairs[at]).collect();
        let degrees = (pairs.len() - 1) as f64;
        let found = chi2(&pairs, f64::from(trials) / pairs.len() as f64);
        assert!((found - degrees).abs() < 4.0 * (2.0 * degrees).sqrt(), "{n} values: pairs, χ² {found} of {degrees}");
    }
}

/// χ² of position × value, averaged over seeds. It has 15 × 15 degrees of freedom, because the margins are fixed.
#[test]
fn positions_and_values_are_independent_over_many_seeds() {
    for n in [4096, 5000, 65_537] {
        let seeds = 300;
        let cell = |x: u64| (x * 16 / n) as usize;
        let mut sizes = [0_f64; 16];
        (0..n).for_each(|x| sizes[cell(x)] += 1.0);
        let chi2s: Vec<f64> = (0..seeds)
            .map(|seed| {
                let mut counts = [[0_f64; 16]; 16];
                for (position, value) in (0..).zip(all(n, seed, seed / 3)) {
                    counts[cell(position)][cell(value)] += 1.0;
                }
                let cells = (0..16).flat_map(|i| (0..16).map(move |j| (i, j)));
                cells
                    .map(|(i, j)| {
                        let expected = sizes[i] * sizes[j] / n as f64;
                        (counts[i][j] - expected).powi(2) / expected
                    })
                    .sum()
            })
            .collect();
        let mean = chi2s.iter().sum::<f64>() / seeds as f64;
        let expected = 225.0 * n as f64 / (n - 1) as f64;
        // The standard deviation of one χ² is √450. The mean over 300 seeds has √(450 / 300).
        assert!((mean - expected).abs() < 4.0 * (450.0 / seeds as f64).sqrt(), "{n}: {mean}");
        let variance = chi2s.iter().map(|chi2| (chi2 - mean).powi(2)).sum::<f64>() / (seeds - 1) as f64;
        assert!((300.0..640.0).contains(&variance), "{n}: variance {variance}, not about 450");
    }
}

/// Autocorrelation at several lags. For a uniformly random permutation its standard deviation is 1 / √n.
#[test]
fn values_are_not_correlated_with_earlier_ones() {
    for n in [1_000_000_u64, 999_983] {
        for seed in 0..4 {
            let values = all(n, seed, 1);
            let mean = (n - 1) as f64 / 2.0;
            let variance = ((n * n) as f64 - 1.0) / 12.0;
            // √n is the row length of the network's grid.
            for lag in [1, 2, 3, 64, 999, 1000, 1001, 4096] {
                let pairs = values.iter().zip(&values[lag..]);
                let sum: f64 = pairs.map(|(&a, &b)| (a as f64 - mean) * (b as f64 - mean)).sum();
                let correlation = sum / (n - lag as u64) as f64 / variance;
                assert!(correlation.abs() < 4.0 / (n as f64).sqrt(), "seed {seed}, lag {lag}: {correlation}");
            }
        }
    }
}

/// Counts pairs of rows of one run in one batch. The hypergeometric distribution gives the expected number.
#[test]
fn pairs_of_rows_of_one_run_are_as_frequent_in_a_batch_as_by_chance() {
    let (n, run, batch) = (2_000_000_u64, 350_u64, 4096_usize);
    let same = n / run * run * (run - 1) + (n % run) * (n % run).saturating_sub(1);
    let expected = (batch * (batch - 1) / 2) as f64 * same as f64 / (n as f64 * (n - 1) as f64);
    for seed in 0..3 {
        let values = all(n, seed, 0);
        let pairs: Vec<f64> = values
            .chunks_exact(batch)
            .map(|batch| {
                let mut counts = std::collections::HashMap::new();
                batch.iter().for_each(|value| *counts.entry(value / run).or_insert(0_u64) += 1);
                counts.values().map(|count| (count * (count - 1) / 2) as f64).sum()
            })
            .collect();
        let batches = pairs.len() as f64;
        let mean = pairs.iter().sum::<f64>() / batches;
        // The pairs are nearly independent, so their number is nearly Poisson-distributed.
        let deviation = (expected / batches).sqrt();
        assert!((mean - expected).abs() < 3.0 * deviation, "seed {seed}: {mean}, not {expected} ± {deviation}");
        let variance = pairs.iter().map(|pairs| (pairs - mean).powi(2)).sum::<f64>() / (batches - 1.0);
        assert!((0.8..1.25).contains(&(variance / expected)), "seed {seed}: variance {variance}, mean {mean}");
    }
}

/// The position of a row in one epoch is independent of its position in another epoch or with another seed.
#[test]
fn epochs_and_seeds_are_independent_of_each_other() {
    let n = 300_000;
    let orders: Vec<Vec<u64>> =
        [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (1 << 63, 0), (0, 1 << 32)].map(|(s, e)| all(n, s, e)).into();
    for (k, a) in orders.iter().enumerate() {
        for b in &orders[k + 1..] {
            let agree = a.iter().zip(b).filter(|(a, b)| a == b).count();
            // Poisson with mean 1.
            assert!(agree < 9, "{agree}");
            let mean = (n - 1) as f64 / 2.0;
            let sum: f64 = a.iter().zip(b).map(|(&a, &b)| (a as f64 - mean) * (b as f64 - mean)).sum();
            let correlation = sum / n as f64 / (((n * n) as f64 - 1.0) / 12.0);
            assert!(correlation.abs() < 4.0 / (n as f64).sqrt(), "{correlation}");
        }
    }
}
