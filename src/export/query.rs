//! Export of the runs that a query selects.

use super::losses::{Losses, lost};
use super::options::{ExportOptions, ExportReport, expected_originals};
use super::original_pack::check_whole;
use super::registry::ExportFormat;
use super::session_plan::SessionOrigins;
use super::target::{ExpectedRuns, ExportOutput, ExportedRun, Holds, of_run};
use crate::archive::StoredRun;
use crate::cancellation::CancellationToken;
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::query::Query;
use arrow::array::{Array, AsArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, UInt32Type};
use arrow::util::display::FormatOptions;
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
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if the query has no column `run_id`, or if a run does
    /// not fit the format and [`ExportOptions::skip_errors`] is not set. [`ErrorKind::Io`](crate::ErrorKind::Io), for
    /// example if a file already exists.
    /// [`ErrorKind::Damaged`](crate::ErrorKind::Damaged) if the archive is damaged.
    ///
    /// # Examples
    /// ```no_run
    /// use a2store::{Archive, CancellationToken, ExportFormat, ExportOptions, no_params};
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
        if let Some(shard_rows) = options.shard_rows.filter(|_| options.format == ExportFormat::Original) {
            return Err(Error::argument("shard_rows", "none for original, which keeps the shards", shard_rows));
        }
        let mut run_ids = self.run_ids(cancel)?;
        let mut report = ExportReport::default();
        // Finds unsuitable runs before any file is created.
        let mut sessions = SessionOrigins::default();
        let (mut unfit, mut without_final_board) = (Vec::new(), Vec::new());
        self.archive().examine_runs(&run_ids, cancel, |run| {
            sessions.add(run);
            unfit.extend(options.examine(run).err().map(|error| (run.run_id, error)));
            if run.final_board.is_none() {
                without_final_board.push(run.run_id);
            }
            Ok(())
        })?;
        let session = &sessions.plan(options.moves)?;
        let mut options = options.clone();
        if let (Some(pack), false, false) = (&session.pack, unfit.is_empty(), options.append) {
            // The original of these runs is a pack.
            check_whole(self.archive(), session, pack, run_ids.len(), cancel)?;
            options.format = ExportFormat::Macroxue;
            unfit.clear();
        }
        let options = &options;
        if options.holds() == Holds::WholeGames {
            let lacking = self.lacking_final_board(&without_final_board, options, cancel)?;
            if !options.skip_errors && !lacking.is_empty() {
                return Err(options.without_final_board(&lacking));
            }
            unfit.extend(lacking.into_iter().map(|run_id| (run_id, options.without_final_board(&[run_id]))));
        }
        let path = self.archive().path();
        let mut skipped = HashSet::new();
        for (run_id, error) in unfit {
            let error = match &session.why_mixed {
                Some(found) if !options.skip_errors => Error::argument("format", expected_originals(), found),
                _ => error,
            };
            report.add(0, Err(error), path, options.skip_errors)?;
            skipped.insert(run_id);
        }
        run_ids.retain(|run_id| !skipped.contains(run_id));
        let parts = &options.loses(session);
        let mut losses = Losses::new(parts.len());
        let expected = ExpectedRuns { num_runs: Some(run_ids.len()), session };
        let ExportOutput { path: out, encoder, mut sink } = options.open(out.as_ref(), &expected)?;
        report.path = out;
        self.archive().read_runs(
            &run_ids,
            options.workers,
            progress,
            cancel,
            |stored: StoredRun| {
                let original = stored.original()?.map(|(format, bytes)| (format, bytes.into_owned()));
                let StoredRun { run_id, run, source_id, game_steps, .. } = stored;
                let (num_steps, run) = (run.num_steps() as u64, options.prepared(run));
                let lost = lost(parts, &run);
                // The next closure handles an error of the encoder, in the order of ids.
                let exported = ExportedRun { id: run_id.into(), run, original, source_id, game_steps };
                Ok((num_steps, lost, encoder.encode(exported)))
            },
            |run_id, (num_steps, lost, encoded)| {
                let written = encoded.and_then(|encoded| sink.push(encoded));
                let written = written.map_err(|error| of_run(error, run_id.into()));
                if report.add(num_steps, written, path, options.skip_errors)? {
                    losses.add(&lost);
                }
                Ok(())
            },
        )?;
        report.num_files = sink.finish()?;
        losses.warn(parts, &options.layout(), progress);
        Ok(report)
    }

    /// Returns the runs whose final board the score does not determine.
    fn lacking_final_board(
        &self,
        run_ids: &[u32],
        options: &ExportOptions,
        cancel: &CancellationToken,
    ) -> Result<Vec<u32>> {
        let mut lacking = Vec::new();
        self.archive().read_runs(
            run_ids,
            options.workers,
            &(),
            cancel,
            |stored| Ok(options.prepared(stored.run).final_board().is_none()),
            |run_id, is_lacking| {
                lacking.extend(is_lacking.then_some(run_id));
                Ok(())
            },
        )?;
        Ok(lacking)
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
        let options = CastOptions { safe: false, format_options: FormatOptions::default() };
        let mut run_ids = Vec::new();
        let mut stream = self.select(&[column])?.stream_unless_cancelled(cancel)?;
        while let Some(batch) = stream.next_unless_cancelled(cancel)? {
            let ids = cast_with_options(batch.column(0), &DataType::UInt32, &options)
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
