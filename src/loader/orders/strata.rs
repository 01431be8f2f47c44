//! Stratified rows: every prefix of an epoch has the quota of each stratum, to within one row.
//!
//! The stream repeats a cycle of strata. Each stratum occurs in the cycle as often as its quota says, spread
//! evenly. Within a stratum, rows come in shuffled order, each once before any is repeated.

use crate::error::{Error, Result};
use crate::loader::options::Sampling;
use crate::loader::orders::extra_column::{check_at, extra_column};
use crate::loader::orders::permutation::Permutation;
use crate::system::cancellation::CancellationToken;
use crate::system::machine::reserve;
use crate::table::StepTable;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// The maximum number of strata.
const MAX_STRATA: usize = 4096;
/// The maximum length of the cycle of whole numbers, and the approximate length of any other cycle.
const CYCLE: u64 = 1 << 16;

/// The rows of each stratum, and the cycle. They take four bytes per row.
#[derive(Debug)]
pub(in crate::loader) struct Strata {
    /// The column of the strata; `None` for tables.
    column: Option<String>,
    strata: Vec<Stratum>,
    /// The stratum at each place of the cycle, and the number of its earlier occurrences in the cycle.
    cycle: Vec<(u16, u32)>,
}

#[derive(Debug)]
struct Stratum {
    name: String,
    rows: StratumRows,
    /// The number of occurrences in the cycle.
    quota: u64,
}

/// The rows of a stratum.
#[derive(Debug)]
enum StratumRows {
    Listed(Vec<u32>),
    /// All rows of one of several tables, which are numbered one table after the other.
    Table(Range<u64>),
}

impl StratumRows {
    fn len(&self) -> u64 {
        match self {
            StratumRows::Listed(rows) => rows.len() as u64,
            StratumRows::Table(rows) => rows.end - rows.start,
        }
    }

    /// Replaces places in the stratum by the rows at these places.
    fn map(&self, places: &mut [u64]) {
        match self {
            StratumRows::Listed(rows) => places.iter_mut().for_each(|place| *place = u64::from(rows[*place as usize])),
            StratumRows::Table(rows) => places.iter_mut().for_each(|place| *place += rows.start),
        }
    }
}

impl Strata {
    /// Returns strata of whole tables, with the given numbers of rows and shares. A table without rows has no share.
    pub(in crate::loader) fn of_tables(tables: &[(u64, f64)]) -> Result<Strata> {
        let shares: Vec<f64> = tables.iter().map(|(_, share)| *share).collect();
        if let Some(share) = shares.iter().find(|share| !(0.0..f64::INFINITY).contains(*share)) {
            return Err(Error::argument("shares", "finite numbers of at least 0", share));
        }
        if let Some(empty) = tables.iter().position(|(num_rows, share)| *num_rows == 0 && *share > 0.0) {
            return Err(Error::argument(
                "shares",
                "0 for a table without rows",
                format!("{} for table {empty}", tables[empty].1),
            ));
        }
        let counts = checked_counts("shares", &shares, true)?;
        let mut start = 0;
        let stratum = |((k, (num_rows, _)), quota): ((usize, &(u64, f64)), u64)| {
            let rows = StratumRows::Table(start..start + num_rows);
            start += num_rows;
            Stratum { name: k.to_string(), rows, quota }
        };
        let cycle = cycle(&counts);
        let strata = tables.iter().enumerate().zip(counts).map(stratum).collect();
        Ok(Strata { column: None, strata, cycle })
    }

    /// Reads the strata: each value of a table's column is one. Strata have the given quotas, or equal ones.
    pub(in crate::loader) fn new(
        table: &StepTable,
        column: &str,
        quotas: Option<&[(String, f64)]>,
        cancel: &CancellationToken,
    ) -> Result<Strata> {
        let extra = extra_column(table, "strata", column)?;
        let num_rows = table.num_rows();
        if num_rows > u64::from(u32::MAX) {
            return Err(Error::argument("strata", format!("a table of at most {} rows", u32::MAX), num_rows));
        }
        let mut rows: HashMap<i128, Vec<u32>> = HashMap::new();
        for (row, bytes) in (0..).zip(table.extra_bytes(extra)) {
            check_at(u64::from(row), cancel)?;
            let of_stratum = rows.entry(extra.dtype.to_key(bytes)).or_default();
            reserve(of_stratum, 1)?;
            of_stratum.push(row);
            if rows.len() > MAX_STRATA {
                return Err(Error::column(column, None, format!("at most {MAX_STRATA} different values"), "more"));
            }
        }
        let mut found: Vec<(i128, Vec<u32>)> = rows.into_iter().collect();
        found.sort_unstable_by_key(|(key, _)| *key);
        let name = |key: i128| match &extra.categories {
            Some(names) => {
                usize::try_from(key).ok().and_then(|code| names.get(code)).map_or("null", String::as_str).into()
            }
            None => extra.dtype.key_name(key),
        };
        let names: Vec<String> = found.iter().map(|(key, _)| name(*key)).collect();
        let mut shares = vec![if quotas.is_some() { 0.0 } else { 1.0 }; found.len()];
        let mut is_named = vec![false; found.len()];
        for (stratum, quota) in quotas.unwrap_or_default() {
            // Floats are compared by value, in any spelling: 4.0 is 4, and -0.0 is 0. A null float is NaN.
            let number = if stratum == "null" { Some(f64::NAN) } else { stratum.parse::<f64>().ok() };
            let number = number.filter(|_| extra.categories.is_none()).map(|value| (value + 0.0).to_string());
            let same = |name: &String| name == stratum || number.as_ref() == Some(name);
            let exact = names.iter().position(|name| name == stratum);
            let Some(index) = exact.or_else(|| names.iter().position(same)) else {
                if num_rows == 0 {
                    continue;
                }
                let shown: Vec<&str> = names.iter().take(20).map(String::as_str).collect();
                let expected = format!("strata of {column}: {}", shown.join(", "));
                return Err(Error::argument("quotas", expected, stratum));
            };
            if !(0.0..f64::INFINITY).contains(quota) {
                return Err(Error::argument("quotas", "finite numbers of at least 0", format!("{stratum}: {quota}")));
            }
            if std::mem::replace(&mut is_named[index], true) {
                return Err(Error::argument("quotas", "each stratum once", stratum));
            }
            shares[index] = *quota;
        }
        let counts = checked_counts("quotas", &shares, num_rows > 0)?;
        let cycle = cycle(&counts);
        let stratum = |(((_, rows), name), quota)| Stratum { name, rows: StratumRows::Listed(rows), quota };
        let strata = found.into_iter().zip(names).zip(counts).map(stratum).collect();
        Ok(Strata { column: Some(column.to_owned()), strata, cycle })
    }

    /// Returns the name of the orders. It gives the quotas as the smallest whole numbers in their proportion, with
    /// the table's names of the strata. If all quotas are equal, the name omits them. Equal orders have one name,
    /// regardless of the spelling of quotas.
    pub(in crate::loader) fn name(&self) -> String {
        let Some(column) = &self.column else {
            let quotas: Vec<String> = self.strata.iter().map(|stratum| stratum.quota.to_string()).collect();
            return format!("mixed {}", quotas.join(" "));
        };
        let is_equal = self.strata.iter().all(|stratum| stratum.quota == 1);
        let served = self.strata.iter().filter(|stratum| stratum.quota > 0);
        let quotas = served.map(|stratum| (stratum.name.clone(), stratum.quota as f64));
        let quotas = (!is_equal).then(|| quotas.collect());
        Sampling::Stratified { column: column.clone(), quotas }.to_string()
    }
}

/// Returns the smallest whole numbers in the proportion of the shares. `argument` names the shares in an error.
fn checked_counts(argument: &'static str, shares: &[f64], needs_any: bool) -> Result<Vec<u64>> {
    if needs_any && !shares.iter().any(|share| *share > 0.0) {
        return Err(Error::argument(argument, "at least one above 0", "none"));
    }
    if !shares.iter().sum::<f64>().is_finite() {
        return Err(Error::argument(argument, "numbers of a finite sum", format!("{shares:?}")));
    }
    counts(shares).ok_or_else(|| {
        let expected = format!("shares of at least 1 in {CYCLE}");
        Error::argument(argument, expected, format!("{shares:?}"))
    })
}

/// Returns the smallest whole numbers in the proportion of the shares, whose sum is finite: 0.7 and 0.3 are 7 and 3. If
/// no multiple of the shares is within rounding errors of whole numbers that fit a cycle, rounds their parts of a cycle.
/// Returns `None` if a positive share would become 0.
fn counts(shares: &[f64]) -> Option<Vec<u64>> {
    let sum: f64 = shares.iter().sum();
    let multiple = |total: u64| -> Option<Vec<u64>> {
        let exact = shares.iter().map(|share| share / sum * total as f64);
        let whole = |exact: f64| ((exact - exact.round()).abs() < 1e-9 * exact.max(1.0)).then(|| exact.round() as u64);
        exact.map(whole).collect()
    };
    if sum == 0.0 {
        return Some(vec![0; shares.len()]);
    }
    let rounded = || shares.iter().map(|share| (share / sum * CYCLE as f64).round() as u64).collect();
    let counts: Vec<u64> = (1..=CYCLE).find_map(multiple).unwrap_or_else(rounded);
    let is_kept = counts.iter().zip(shares).all(|(count, share)| *count > 0 || *share == 0.0);
    is_kept.then_some(counts)
}

/// Returns a cycle with the given counts, spread evenly: in each prefix, each stratum has its quota, rounded down or
/// up. This is the quota method of Balinski and Young (1975). Each place gets the stratum whose next row is due first,
/// among those that are not ahead of their quotas.
fn cycle(counts: &[u64]) -> Vec<(u16, u32)> {
    let len: u64 = counts.iter().sum();
    let mut seen = vec![0_u64; counts.len()];
    let mut cycle = Vec::with_capacity(len as usize);
    for place in 1..=len {
        let not_ahead = (0..counts.len()).filter(|&k| seen[k] * len < place * counts[k]);
        let due = |&a: &usize, &b: &usize| ((seen[a] + 1) * counts[b]).cmp(&((seen[b] + 1) * counts[a]));
        let Some(stratum) = not_ahead.min_by(due) else {
            break;
        };
        cycle.push((stratum as u16, seen[stratum] as u32));
        seen[stratum] += 1;
    }
    cycle
}

/// The order of one epoch. It takes two bytes per row in strata with stored permutations.
#[derive(Clone, Debug)]
pub(in crate::loader) struct StratifiedOrder {
    strata: Arc<Strata>,
    seed: u64,
    epoch: u64,
    /// The newest pass of each stratum, and its order.
    newest: Vec<Option<(u64, Permutation)>>,
    /// For each stratum, the first requested place, the number of requested places, and their start in `buffer`.
    wanted: Vec<(u64, u64, usize)>,
    buffer: Vec<u64>,
}

impl StratifiedOrder {
    pub(in crate::loader) fn new(strata: Arc<Strata>, seed: u64, epoch: u64) -> StratifiedOrder {
        let (newest, wanted) = (vec![None; strata.strata.len()], vec![(0, 0, 0); strata.strata.len()]);
        StratifiedOrder { strata, seed, epoch, newest, wanted, buffer: Vec::new() }
    }

    pub(in crate::loader) fn fill(&mut self, start: u64, out: &mut [u64]) -> Result<()> {
        let strata = Arc::clone(&self.strata);
        let len = strata.cycle.len() as u64;
        if len == 0 {
            return Ok(());
        }
        let at = |position: u64| {
            let (stratum, before) = strata.cycle[(position % len) as usize];
            let stratum = usize::from(stratum);
            (stratum, position / len * strata.strata[stratum].quota + u64::from(before))
        };
        self.wanted.fill((0, 0, 0));
        for position in (start..).take(out.len()) {
            let (stratum, place) = at(position);
            let (first, count, _) = &mut self.wanted[stratum];
            if *count == 0 {
                *first = place;
            }
            *count += 1;
        }
        self.buffer.clear();
        reserve(&mut self.buffer, out.len())?;
        self.buffer.resize(out.len(), 0);
        let mut rest = self.buffer.as_mut_slice();
        let mut begin = 0;
        for (k, (stratum, (first, count, slot))) in strata.strata.iter().zip(&mut self.wanted).enumerate() {
            let (mut wanted, after) = std::mem::take(&mut rest).split_at_mut(*count as usize);
            rest = after;
            *slot = begin;
            begin += wanted.len();
            let num_rows = stratum.rows.len();
            let mut place = *first;
            while !wanted.is_empty() {
                // Each pass has every row once; the next pass has another order.
                let (pass, from) = (place / num_rows, place % num_rows);
                let order = match self.newest[k].take().filter(|(newest, _)| *newest == pass) {
                    Some(order) => order,
                    None => (pass, Permutation::keyed(num_rows, &[self.seed, self.epoch, k as u64, pass])?),
                };
                let (_, permutation) = self.newest[k].insert(order);
                let now = wanted.len().min((num_rows - from) as usize);
                let (part, later) = wanted.split_at_mut(now);
                permutation.fill(from, part);
                stratum.rows.map(part);
                wanted = later;
                place += now as u64;
            }
        }
        for (out, position) in out.iter_mut().zip(start..) {
            let (_, _, slot) = &mut self.wanted[at(position).0];
            *out = self.buffer[*slot];
            *slot += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};

    #[test]
    fn every_prefix_has_its_quotas() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut below = |bound: u64| random.next_u64() % bound;
        let some: Vec<Vec<u64>> = (0..200)
            .map(|_| (0..1 + below(40)).map(|_| if below(4) == 0 { below(200) } else { below(8) }).collect())
            .collect();
        for counts in [vec![1, 2, 5], vec![1, 0, 1], vec![7], vec![3; 40]].into_iter().chain(some) {
            let cycle = cycle(&counts);
            let len: u64 = counts.iter().sum();
            assert_eq!(cycle.len() as u64, len);
            let mut seen = vec![0; counts.len()];
            for (t, &(stratum, before)) in cycle.iter().enumerate() {
                assert_eq!(seen[usize::from(stratum)], u64::from(before));
                seen[usize::from(stratum)] += 1;
                for (seen, count) in seen.iter().zip(&counts) {
                    // Whole numbers, so that the bound is exact.
                    let (seen, share) = (seen * len, (t as u64 + 1) * count);
                    assert!(seen.abs_diff(share) < len, "{counts:?}: {seen}/{len} after {t}, not {share}/{len}");
                }
            }
            assert_eq!(seen, counts);
        }
    }

    #[test]
    fn shares_become_whole_numbers_of_the_same_proportion() {
        for (shares, expected) in [
            (&[1.0, 3.0][..], Some(vec![1, 3])),
            (&[0.1, 0.2, 0.7], Some(vec![1, 2, 7])),
            (&[1e-9, 0.5], None),
            (&[0.0, 0.5], Some(vec![0, 1])),
            (&[2.0, 0.0, 4.0], Some(vec![1, 0, 2])),
            (&[0.25, 0.75], Some(vec![1, 3])),
            (&[0.0], Some(vec![0])),
            (&[f64::MAX], Some(vec![1])),
            (&[1.0, 65_535.0], Some(vec![1, 65_535])),
            (&[1.0, 65_536.0], Some(vec![1, 65_535])),
        ] {
            assert_eq!(counts(shares), expected, "{shares:?}");
        }
        let rounded = counts(&[0.1, std::f64::consts::FRAC_1_PI, 0.7]).unwrap();
        let len: u64 = rounded.iter().sum();
        assert!(len > 60_000 / 16 && (rounded[0] as f64 / len as f64 - 0.1 / 1.118_309_886).abs() < 1e-4);
    }

    /// An order that is named by its smallest numbers is unchanged.
    #[test]
    fn a_multiple_of_the_counts_repeats_the_cycle() {
        for smallest in [vec![1, 2, 5], vec![1, 0, 1], vec![1], vec![3, 4], vec![1; 7]] {
            for factor in [2, 3, 16] {
                let multiple: Vec<u64> = smallest.iter().map(|count| count * factor).collect();
                let once = cycle(&smallest);
                let again = (0..factor as u32).flat_map(|k| {
                    let smallest = &smallest;
                    once.iter().map(move |&(stratum, seen)| (stratum, seen + k * smallest[usize::from(stratum)] as u32))
                });
                assert!(cycle(&multiple).into_iter().eq(again), "{factor} × {smallest:?}");
            }
        }
    }
}
