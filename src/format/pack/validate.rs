//! Validation of a whole pack.

use super::{PackReader, PackStats};
use crate::error::{Error, Result};
use crate::system::cancellation::CancellationToken;
use crate::system::progress::{Progress, ReportedWork, Unit};
use crate::system::workers;
use derive_setters::Setters;
use rayon::prelude::*;

/// Options for validating a pack.
///
/// Set fields with the `with_*` methods: `ValidateOptions::default().with_sample(100)`.
#[derive(Clone, Copy, Debug, Default, Setters)]
#[setters(prefix = "with_", strip_option)]
#[non_exhaustive]
pub struct ValidateOptions {
    /// The number of runs to check, evenly spread over the index. `None` = all runs, the data's checksum and the
    /// stats.
    pub sample: Option<usize>,
    /// Number of threads; `None` = one per core.
    pub workers: Option<usize>,
}

/// The result of validating a pack.
#[derive(Debug, Default)]
#[non_exhaustive]
#[derive(serde::Serialize)]
pub struct ValidateReport {
    /// The number of runs in the pack, including tombstones.
    pub num_runs: u64,
    /// The number of runs that were decoded or failed to decode.
    pub num_checked: u64,
    /// The number of tombstones among the selected entries. They are not problems.
    pub num_tombstones: u64,
    /// The number of steps of the decoded runs.
    pub num_steps: u64,
    /// The number of stored bytes that were checked.
    pub num_bytes: u64,
    /// Whether the pack has a checksum of all data, and it was verified.
    pub data_checked: bool,
    /// Whether the pack has stats, and they were compared.
    pub stats_checked: bool,
    /// All problems that were found.
    pub problems: Vec<Error>,
}

#[derive(Default)]
struct CheckedRun {
    num_bytes: u64,
    num_steps: Option<u32>,
    problem: Option<Error>,
    /// The checksum from the start of the run to the next run or the end of the data, and the length of these bytes.
    crc: (u32, usize),
}

impl PackReader {
    /// Validates the pack: verifies every checksum, decodes every run in parallel, and compares stored stats to
    /// the runs. Does not repeat the checks of [`PackReader::open`].
    ///
    /// With a sample, verifies and decodes only the sampled runs. The data's checksum and the stats are then
    /// skipped.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled); [`ErrorKind::Argument`](crate::ErrorKind::Argument) for
    /// an invalid number of workers. Problems of the pack are in the report.
    pub fn validate(
        &self,
        options: &ValidateOptions,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<ValidateReport> {
        let pool = workers::pool("validate", options.workers)?;
        let sample = options.sample.filter(|&sample| sample < self.len());
        let to_check = sample.unwrap_or(self.len());
        let _work = ReportedWork::begin(progress, "validating", Unit::Runs, to_check as u64);
        let check = |place: usize| {
            cancel.check()?;
            let index = sample.map_or(place, |sample| (place as u128 * self.len() as u128 / sample as u128) as usize);
            let checked = self.check_run(index)?;
            progress.advance(1);
            Ok(checked)
        };
        let checked: Result<Vec<Option<CheckedRun>>> =
            pool.install(|| (0..to_check).into_par_iter().map(check).collect());
        let mut report = ValidateReport { num_runs: self.len() as u64, ..ValidateReport::default() };
        let (mut lengths, mut data_crc) = (Vec::new(), None);
        for run in checked? {
            let Some(CheckedRun { num_bytes, num_steps, problem, crc: (crc, len) }) = run else {
                report.num_tombstones += 1;
                continue;
            };
            report.num_checked += 1;
            report.num_bytes += num_bytes;
            report.num_steps += u64::from(num_steps.unwrap_or(0));
            lengths.extend(num_steps);
            report.problems.extend(problem);
            data_crc = Some(data_crc.map_or(crc, |before| crc32c::crc32c_combine(before, crc, len)));
        }
        if sample.is_none() {
            self.check_whole(&mut report, data_crc.unwrap_or_default(), lengths);
        }
        Ok(report)
    }

    /// Checks a run and the padding after it. Returns `None` for a tombstone.
    fn check_run(&self, index: usize) -> Result<Option<CheckedRun>> {
        let entry = self.entry(index)?;
        if entry.is_tombstone() {
            return Ok(None);
        }
        let next = (index + 1..self.len()).flat_map(|next| self.entry(next)).find(|next| !next.is_tombstone());
        let next = next.map_or(self.pack.layout.data_end, |next| next.offset);
        let mut checked = CheckedRun::default();
        let outcome = self.stored(&entry).and_then(|stored| {
            let crc = crc32c::crc32c(stored);
            let end = entry.offset + stored.len() as u64;
            let padding = self.pack.bytes.get(end as usize..next as usize).unwrap_or_default();
            checked.num_bytes = stored.len() as u64;
            checked.crc = (crc32c::crc32c_append(crc, padding), stored.len() + padding.len());
            if entry.crc32c != 0 && entry.crc32c != crc {
                return Err(Error::checksum(0, "the entry", entry.crc32c, crc));
            }
            Ok(())
        });
        let outcome = outcome.map_err(|error| self.about(error, index, &entry));
        match outcome.and_then(|()| self.clone().with_checksums(false).decode(index)) {
            Ok(run) => checked.num_steps = Some(run.num_steps() as u32),
            Err(error) => checked.problem = Some(error),
        }
        Ok(Some(checked))
    }

    /// Checks the data's checksum and the stats.
    fn check_whole(&self, report: &mut ValidateReport, data_crc: u32, lengths: Vec<u32>) {
        let layout = &self.pack.layout;
        if layout.data_crc != 0 {
            report.data_checked = true;
            if layout.data_crc != data_crc {
                let error = Error::checksum(0, "the data", layout.data_crc, data_crc);
                report.problems.push(error.located(|location| location.offset = None).with_path_of(self.path()));
            }
        }
        let Some(stored) = self.stored_stats() else { return };
        report.stats_checked = true;
        let problem = match stored {
            Err(error) => Some(error),
            // The stats include the damaged runs, so they cannot be compared.
            Ok(_) if lengths.len() as u64 != report.num_checked => None,
            Ok(stored) => stored.difference(&PackStats::of(lengths)).map(|(what, stored, computed)| {
                Error::decode(layout.stats_offset, what, format!("{computed} as in the runs"), stored)
            }),
        };
        report.problems.extend(problem.map(|error| error.with_path_of(self.path())));
    }
}

impl ValidateReport {
    /// Returns whether no problem was found.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}
