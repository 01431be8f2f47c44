//! Export of the runs that a query selects.

use super::options::{ExportOptions, ExportReport, expected_originals};
use super::original_pack::check_whole;
use super::registry::ExportFormat;
use super::session_plan::SessionOrigins;
use super::target::{ExpectedRuns, ExportOutput, ExportedRun, of_run};
use crate::archive::StoredRun;
use crate::cancellation::CancellationToken;
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::query::Query;
use arrow::array::{Array, AsArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, UInt32Type};
use arrow::util::display::FormatOptions;
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
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if the query has no column `run_id`, or if a run does
    /// not fit the format. [`ErrorKind::Io`](crate::ErrorKind::Io), for example if a file already exists.
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
        let run_ids = self.run_ids(cancel)?;
        // Rejects unsuitable runs before any file is created.
        let mut sessions = SessionOrigins::default();
        let mut unfit = None;
        self.archive().examine_runs(&run_ids, cancel, |run| {
            sessions.add(run);
            unfit = unfit.take().or_else(|| options.examine(run).err());
            Ok(())
        })?;
        let (num_runs, session) = (Some(run_ids.len()), &sessions.plan(options.moves)?);
        let options = &match (unfit, options.format, &session.pack) {
            // The original of these runs is a pack.
            (Some(_), ExportFormat::Original, Some(pack)) if !options.append => {
                check_whole(self.archive(), session, pack, run_ids.len(), cancel)?;
                ExportOptions { format: ExportFormat::Macroxue, ..options.clone() }
            }
            (Some(error), ExportFormat::Original, _) => {
                let Some(found) = &session.why_mixed else { return Err(error) };
                return Err(Error::argument("format", expected_originals(), found));
            }
            (Some(error), ..) => return Err(error),
            (None, ..) => options.clone(),
        };
        let ExportOutput { path, encoder, mut sink } =
            options.open(out.as_ref(), &ExpectedRuns { num_runs, session })?;
        let mut report = ExportReport { path, ..ExportReport::default() };
        let written = self.archive().read_runs(
            &run_ids,
            options.workers,
            progress,
            cancel,
            |stored: StoredRun| {
                let original = stored.original()?.map(|(format, bytes)| (format, bytes.into_owned()));
                let StoredRun { run_id, run, source_id, game_steps, .. } = stored;
                let num_steps = run.num_steps() as u64;
                let encoded = encoder.encode(ExportedRun { id: run_id.into(), run, original, source_id, game_steps });
                Ok((num_steps, encoded.map_err(|error| of_run(error, run_id.into()))?))
            },
            |run_id, (num_steps, encoded)| {
                report.runs += 1;
                report.num_steps += num_steps;
                sink.push(encoded).map_err(|error| of_run(error, run_id.into()))
            },
        );
        written?;
        report.num_files = sink.finish()?;
        Ok(report)
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
