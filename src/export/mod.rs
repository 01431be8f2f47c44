//! Export of an archive's runs to the file formats of the field.
//!
//! The entry point is [`Query::export_runs`]: the query selects run ids, and the runs are written in the order of
//! ids. Invariant: a run that the format cannot hold is rejected before anything is written. Parts that
//! `docs/formats.md` lists as omitted are the exception.

mod session;
mod sink;

use crate::archive::{RunsOf, StoredMeta, StoredRun, each_run};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Compression, SourceFormat};
use crate::progress::Progress;
use crate::query::Query;
use arrow::array::{Array, AsArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, UInt32Type};
use arrow::util::display::FormatOptions;
use session::Sessions;
use sink::Item;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The format of exported runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExportFormat {
    /// Copies of the original run files, each in its format.
    #[default]
    Original,
    /// A2T1 run files, without values.
    A2t1,
    /// a2run2 run files.
    A2run2,
    /// One a2pack. It holds the original run files; other runs are encoded as a2run2.
    A2pack,
    /// One pack.dat, without final boards and with 16-bit values.
    PackDat,
    /// A folder with `steps.npy`, `metadata.db` and `manifest.json`, without final boards.
    Npy,
    /// A self-play session: a folder with `steps.npy` and `metadata.db`, without final boards and values.
    Session,
    /// One file of JSON Lines.
    Jsonl,
}

impl ExportFormat {
    /// Every format.
    pub const ALL: [ExportFormat; 8] = [
        ExportFormat::Original,
        ExportFormat::A2t1,
        ExportFormat::A2run2,
        ExportFormat::A2pack,
        ExportFormat::PackDat,
        ExportFormat::Npy,
        ExportFormat::Session,
        ExportFormat::Jsonl,
    ];

    /// `"original"`, `"a2t1"`, `"a2run2"`, `"a2pack"`, `"packdat"`, `"npy"`, `"session"` or `"jsonl"`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ExportFormat::Original => "original",
            ExportFormat::A2t1 => "a2t1",
            ExportFormat::A2run2 => "a2run2",
            ExportFormat::A2pack => "a2pack",
            ExportFormat::PackDat => "packdat",
            ExportFormat::Npy => "npy",
            ExportFormat::Session => "session",
            ExportFormat::Jsonl => "jsonl",
        }
    }
}

impl fmt::Display for ExportFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ExportFormat {
    type Err = Error;

    fn from_str(name: &str) -> Result<ExportFormat> {
        let found = ExportFormat::ALL.into_iter().find(|format| format.name() == name);
        found.ok_or_else(|| Error::argument("format", ExportFormat::ALL.map(ExportFormat::name).join(", "), name))
    }
}

/// Options of an export.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ExportOptions {
    /// The format to write.
    pub format: ExportFormat,
    /// Number of threads; `None` = one per core.
    pub workers: Option<usize>,
    /// a2pack: the alignment of entries in bytes; `None` = 4096.
    pub align: Option<u32>,
    /// a2pack: the compression of entries.
    pub compression: Compression,
    /// Dataset or session: maximum rows per shard (`steps-00000.npy`, …); `None` = one `steps.npy`. Appending to
    /// a dataset keeps its own sharding.
    pub shard_rows: Option<u64>,
    /// pack.dat and dataset: append to an existing one.
    pub append: bool,
    /// JSON Lines: one line per step instead of one per run.
    pub by_step: bool,
    /// JSON Lines: the compact layout, which DuckDB and other tools read directly.
    pub compact: bool,
}

impl ExportOptions {
    /// Returns options for this format, with defaults for the rest.
    #[must_use]
    pub fn new(format: ExportFormat) -> ExportOptions {
        ExportOptions { format, ..ExportOptions::default() }
    }

    /// Returns an error if the format cannot hold the run.
    fn examine(&self, run: &StoredMeta) -> Result<()> {
        let format = self.format;
        let refuse = |expected: &str, found: String| {
            Err(Error::argument("format", format!("for {format}, {expected}"), format!("run {}, {found}", run.run_id)))
        };
        match format {
            ExportFormat::Original => match run.format {
                Some(SourceFormat::File(_)) => Ok(()),
                Some(other) => refuse("runs that came from run files", format!("from {}", other.name())),
                None => refuse("runs that came from run files", "from another format".into()),
            },
            ExportFormat::PackDat | ExportFormat::Npy | ExportFormat::Session => Ok(()),
            ExportFormat::Jsonl if self.by_step => Ok(()),
            _ if run.final_board.is_none() => refuse("whole games", "which has no final board".into()),
            _ => Ok(()),
        }
    }
}

/// The result of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExportReport {
    /// The path of the file or folder that was written.
    pub path: PathBuf,
    /// The number of runs.
    pub runs: u64,
    /// The number of steps of these runs.
    pub num_steps: u64,
    /// The number of run files; 1 for other formats.
    pub num_files: u64,
}

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
    /// use a2store::{Archive, ExportFormat, ExportOptions, no_params};
    /// let query = Archive::open("games.a2")?.sql("SELECT run_id FROM runs WHERE max_score >= 50000", no_params())?;
    /// let report = query.export_runs("best.a2pack", &ExportOptions::new(ExportFormat::A2pack), &())?;
    /// println!("{} runs", report.runs);
    /// # Ok::<(), a2store::Error>(())
    /// ```
    pub fn export_runs(
        &self,
        out: impl AsRef<Path>,
        options: &ExportOptions,
        progress: &dyn Progress,
    ) -> Result<ExportReport> {
        let run_ids = self.run_ids(progress)?;
        // Rejects unsuitable runs before any file is created.
        let mut sessions = Sessions::default();
        self.archive().examine_runs(&run_ids, progress, |run| {
            sessions.add(run);
            options.examine(run)
        })?;
        let (path, encoder, mut sink) = sink::open(out.as_ref(), options, Some(run_ids.len()), &sessions.plan()?)?;
        let mut report = ExportReport { path, ..ExportReport::default() };
        let written = self.archive().read_runs(
            &run_ids,
            options.workers,
            progress,
            |stored: StoredRun| {
                let original = stored.original()?.map(|(format, bytes)| (format, bytes.into_owned()));
                let StoredRun { run_id, run, source_id, game_steps, .. } = stored;
                let num_steps = run.num_steps() as u64;
                let encoded = encoder.encode(Item { id: run_id.into(), run, original, source_id, game_steps });
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
    fn run_ids(&self, progress: &dyn Progress) -> Result<Vec<u32>> {
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
        let mut stream = self.select(&[column])?.stream_unless_cancelled(progress)?;
        while let Some(batch) = stream.next_unless_cancelled(progress)? {
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

/// Converts runs to another format without an archive. The inputs are run files, packs, pack.dat files, datasets,
/// sessions and logs, and folders of them. Runs are written in the order in which they are read.
///
/// With [`ExportOptions::append`], the runs are added to an existing pack.dat or dataset. This merges several
/// inputs into one. [`ExportFormat::Original`] is rejected: use a file copy instead.
///
/// # Errors
/// The first file or run that cannot be read, and the errors of [`Query::export_runs`]. A file of many runs
/// appears completely or not at all. After an error, an appended file is unchanged.
///
/// # Examples
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let (runs, pack) = (folder.path().join("runs"), folder.path().join("pack.dat"));
/// use a2store::{ExportFormat, ExportOptions, SimulateOptions};
/// a2store::simulate(&runs, &SimulateOptions { runs: 4, ..Default::default() }, &())?;
/// let report = a2store::convert([&runs], &pack, &ExportOptions::new(ExportFormat::PackDat), &())?;
/// assert_eq!(report.runs, 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn convert<P: AsRef<Path>>(
    paths: impl IntoIterator<Item = P>,
    out: impl AsRef<Path>,
    options: &ExportOptions,
    progress: &dyn Progress,
) -> Result<ExportReport> {
    if options.format == ExportFormat::Original {
        return Err(Error::argument("format", "a format other than original", options.format));
    }
    let paths: Vec<PathBuf> = paths.into_iter().map(|path| path.as_ref().to_path_buf()).collect();
    refuse_overlap(&paths, out.as_ref(), options)?;
    let (path, encoder, mut sink) = sink::open(out.as_ref(), options, None, &Sessions::default().plan()?)?;
    let mut report = ExportReport { path, ..ExportReport::default() };
    let with_files = matches!(options.format, ExportFormat::A2pack | ExportFormat::Jsonl);
    each_run(&RunsOf::Paths(&paths), options.workers, with_files, progress, |_, (run, original)| {
        let (id, num_steps) = (report.runs, run.num_steps() as u64);
        let encoded = encoder.encode(Item { id, run, original, source_id: None, game_steps: None });
        encoded.and_then(|encoded| sink.push(encoded)).map_err(|error| of_run(error, id))?;
        report.runs += 1;
        report.num_steps += num_steps;
        Ok(())
    })?;
    report.num_files = sink.finish()?;
    Ok(report)
}

/// Returns an error if the output would be appended to an input, or if run files would be written into a folder
/// that is read.
fn refuse_overlap(paths: &[PathBuf], out: &Path, options: &ExportOptions) -> Result<()> {
    let is_folder = matches!(options.format, ExportFormat::A2t1 | ExportFormat::A2run2);
    // The nearest existing ancestor, with links resolved.
    let absolute = std::path::absolute(out).map_err(|source| Error::io(out, source))?;
    let Some(real) = absolute.ancestors().find_map(|path| path.canonicalize().ok()) else { return Ok(()) };
    for path in paths {
        let Ok(input) = path.canonicalize() else { continue };
        let is_same = real.starts_with(&input) || (out.exists() && input.starts_with(&real));
        if (options.append && is_same) || (is_folder && input.is_dir() && real.starts_with(&input)) {
            return Err(Error::argument("out", "a path outside the inputs", out.display()));
        }
    }
    Ok(())
}

/// Adds the run to an error about a run that does not fit the format.
fn of_run(error: Error, id: u64) -> Error {
    match error.into_kind() {
        ErrorKind::Argument { name, expected, found } => Error::argument(name, expected, format!("run {id}: {found}")),
        other => other.into(),
    }
}
