//! Export of the runs that a query selects.

use super::format::Needs;
use super::options::{ExportOptions, ExportReport};
use super::write::{RunsToWrite, write_runs};
use crate::error::{Error, Result};
use crate::format::SourceFormat;
use crate::query::Query;
use crate::system::cancellation::CancellationToken;
use crate::system::casts::checked_cast;
use crate::system::progress::Progress;
use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, UInt32Type};
use std::collections::HashSet;
use std::path::Path;

impl Query {
    /// Writes the runs whose ids are in the query's column `run_id`. Each run is written once, in the order of
    /// ids.
    ///
    /// Run files go into the folder `out` and are named by run id (`run-00000042.a2run2`). More than a thousand
    /// runs are split into subfolders of a thousand ids each.
    ///
    /// Other formats are written to `out`, or into the folder `out` under their usual name. They appear
    /// completely or not at all. No existing file is replaced.
    ///
    /// For a format that needs final boards, a missing one is derived if the last move and the score determine it.
    /// `progress` gets one warning about the parts of runs that the format loses.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if the query has no column `run_id`, if the format does not
    /// have an option, or if a run does not fit the format and [`ExportOptions::skip_errors`] is not set.
    /// [`ErrorKind::Io`](crate::ErrorKind::Io), for example if a file already exists.
    /// [`ErrorKind::Damaged`](crate::ErrorKind::Damaged) for a damaged archive. After an error, no new run file remains.
    ///
    /// # Examples
    /// ```no_run
    /// use a2store::{Archive, CancellationToken};
    /// use a2store::export::{ExportFormat, ExportOptions};
    /// use a2store::query::no_params;
    /// let query = Archive::open("games.a2")?.sql("SELECT run_id FROM runs WHERE max_score >= 50000", no_params())?;
    /// let options = ExportOptions::new(ExportFormat::A2pack);
    /// let report = query.export_runs("best.a2pack", &options, &(), &CancellationToken::new())?;
    /// println!("{} runs", report.runs);
    /// # Ok::<(), a2store::Error>(())
    /// ```
    pub fn export_runs(
        &self,
        out: impl AsRef<Path>,
        options: &ExportOptions,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<ExportReport> {
        options.check()?;
        let mut run_ids = self.run_ids(cancel)?;
        let mut report = ExportReport::default();
        let mut unfit = HashSet::new();
        for (run_id, error) in self.unfit_runs(&run_ids, options, cancel)? {
            report.add(0, Err(error), self.archive().path(), options.skip_errors)?;
            unfit.insert(run_id);
        }
        run_ids.retain(|run_id| !unfit.contains(run_id));
        let runs = RunsToWrite::Stored { archive: self.archive(), run_ids: &run_ids };
        write_runs(&runs, out.as_ref(), options, report, progress, cancel)
    }

    /// Returns an error for each run that is known not to fit the format before any file is created.
    /// Without `skip_errors`, one error lists all runs without a final board.
    fn unfit_runs(
        &self,
        run_ids: &[u32],
        options: &ExportOptions,
        cancel: &CancellationToken,
    ) -> Result<Vec<(u32, Error)>> {
        let (mut unfit, mut without_final_board) = (Vec::new(), Vec::new());
        self.archive().examine_runs(run_ids, cancel, |run| {
            match (options.needs(), run.source_format()) {
                (Needs::Nothing, _) | (Needs::RunFile, Some(SourceFormat::File(_))) => {}
                (Needs::RunFile, format) => {
                    let found = format!("run {}, from {}", run.run_id, format.map_or("another format", |it| it.name()));
                    let expected = "for original, runs that came from run files";
                    unfit.push((run.run_id, Error::argument("format", expected, found)));
                }
                (Needs::WholeGame, _) if run.final_board.is_some() => {}
                (Needs::WholeGame, _) => without_final_board.push(run.run_id),
            }
            Ok(())
        })?;
        // The score may determine the final board.
        let mut lacking = Vec::new();
        self.archive().read_runs(
            &without_final_board,
            options.workers,
            &(),
            cancel,
            |stored| Ok(stored.run.with_derived_final_board().final_board().is_none()),
            |run_id, is_lacking| {
                lacking.extend(is_lacking.then_some(run_id));
                Ok(())
            },
        )?;
        if !options.skip_errors && !lacking.is_empty() {
            return Err(options.without_final_board(&lacking));
        }
        unfit.extend(lacking.into_iter().map(|run_id| (run_id, options.without_final_board(&[run_id]))));
        Ok(unfit)
    }

    /// Returns the run ids that the query selects, in ascending order.
    fn run_ids(&self, cancel: &CancellationToken) -> Result<Vec<u32>> {
        let schema = self.schema();
        let Ok(column) = schema.index_of("run_id") else {
            let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
            return Err(Error::argument("query", "a column run_id", names.join(", ")));
        };
        let dtype = schema.field(column).data_type();
        if !dtype.is_integer() {
            return Err(Error::argument("run_id", "a column of integers", dtype));
        }
        let mut run_ids = Vec::new();
        let mut stream = self.select(&[column])?.stream(cancel)?;
        while let Some(batch) = stream.next_batch(cancel)? {
            let ids = checked_cast(batch.column(0), &DataType::UInt32, false)
                .map_err(|error| Error::argument("run_id", "integers of 32 bits", error))?;
            if ids.null_count() > 0 {
                return Err(Error::argument("run_id", "integers", "null"));
            }
            run_ids.extend_from_slice(ids.as_primitive::<UInt32Type>().values());
        }
        run_ids.sort_unstable();
        run_ids.dedup();
        Ok(run_ids)
    }
}
