//! Reports and descriptions for Python: instances of the dataclasses in `python/a2store/_results.py`, which lists and
//! documents their fields.

use super::interpreter::Inside;
use super::numpy::copied_array;
use a2store::archive::{
    AnnotateReport, CommitInfo, CompactReport, ExpireReport, IngestReport, ModelInfo, Problem, RestoreReport,
    VerifyReport,
};
use a2store::error::{Error, Result};
use a2store::export::ExportReport;
use a2store::format::{JsonlReport, PackStats, Rejected, RunFormat};
use a2store::query::{Function, SavedParameter, SavedQuery, json_scalar};
use a2store::run::Run;
use a2store::selfplay::{PlayReport, PlayedGame, RecorderStats, SimulateReport};
use a2store::table::Shard;
use bytemuck::NoUninit;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyTuple};

/// Makes an instance of a dataclass from fields of a value, and from other values: `field = value`.
macro_rules! instance {
    ($py:ident, $class:ident, $from:ident: $($field:ident $(= $other:expr)?),*) => {{
        let _inside = Inside::new($py);
        let fields = PyDict::new($py);
        $(fields.set_item(stringify!($field), instance!(@value $from, $field $(= $other)?))?;)*
        $py.import("a2store._results")?.getattr(stringify!($class))?.call((), Some(&fields))
    }};
    (@value $from:ident, $field:ident = $other:expr) => { $other };
    (@value $from:ident, $field:ident) => { $from.$field };
}

/// Implements [`IntoInstance`] for types, with the class and the fields of each, as in `instance!`.
macro_rules! into_instance {
    ($self:ident, $py:ident: $($type:ty as $class:ident { $($field:ident $(= $other:expr)?),* $(,)? })*) => {
        $(impl IntoInstance for $type {
            fn into_instance($self, $py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
                instance! { $py, $class, $self: $($field $(= $other)?),* }
            }
        })*
    };
}

/// A value that becomes an instance of a dataclass.
pub(crate) trait IntoInstance {
    fn into_instance(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>>;
}

/// Converts several values.
pub(crate) fn instances<T: IntoInstance>(
    py: Python<'_>,
    values: impl IntoIterator<Item = T>,
) -> PyResult<Vec<Bound<'_, PyAny>>> {
    values.into_iter().map(|value| value.into_instance(py)).collect()
}

into_instance! { self, py:
    AnnotateReport as AnnotateReport { model, num_runs, num_rows, missing_steps, replaced_rows }
    CommitInfo as CommitInfo {
        version,
        time = py.import("datetime")?.getattr("datetime")?.call_method1("fromisoformat", (self.time,))?,
        operation = self.operation.name(),
        txn, added_runs, added_steps, next_run_id, num_runs, num_steps, added_files, removed_files,
    }
    CompactReport as CompactReport { files_before, files_after, bytes_before, bytes_after, num_rows }
    ExpireReport as ExpireReport { first_version, tags, num_versions, num_files, num_bytes, paths }
    ExportReport as ExportReport { path, runs, num_steps, num_files, errors = instances(py, &self.errors)? }
    &Function as SqlFunction {
        name, signature = self.signature(), returns = self.return_type().to_string(), doc, example,
    }
    IngestReport as IngestReport {
        accepted, duplicates, twins, rejected, ignored, num_steps, num_bytes, errors = instances(py, &self.errors)?,
    }
    JsonlReport as JsonlReport {
        num_runs, num_steps, num_bytes, errors = self.errors.iter().map(ToString::to_string).collect::<Vec<_>>(),
    }
    ModelInfo as ModelInfo { model, num_rows, num_files, num_bytes, first_run_id, last_run_id }
    PackStats as PackStats {
        count, total_steps, min_len, max_len, mean_len, p50, p90, p99, unreadable,
        highest_tiles = self.highest_tiles.into_py_dict(py)?, engines = self.engines.into_py_dict(py)?,
    }
    PlayReport as PlayResult {
        games = column(py, &self.games, "=u8", |game| game.number)?,
        scores = column(py, &self.games, "=i8", |game| i64::from(game.score))?,
        highest_tiles = column(py, &self.games, "=i8", |game| i64::from(game.final_board.highest_tile()))?,
        num_steps = column(py, &self.games, "=i8", |game| i64::from(game.num_steps))?,
        final_boards = column(py, &self.games, "=u8", |game| game.final_board.0)?,
        terminated = column(py, &self.games, "|b1", |game| u8::from(game.final_board.is_terminal()))?,
        total_steps = self.num_steps, seconds = self.elapsed.as_secs_f64(), stopped,
    }
    Problem as Problem { path, run_id, what, expected, found }
    RecorderStats as RecorderStats {
        begun, live, ended, abandoned, steps, durable, rotations, disk_bytes, ram_bytes, failure,
    }
    &Rejected as Rejected {
        path = &self.path,
        offset = self.error.location().and_then(|location| location.offset),
        run = self.error.location().and_then(|location| location.run),
        step = self.error.location().and_then(|location| location.step),
        kind = self.error.kind_name(), message = self.message(),
    }
    RestoreReport as RestoreReport { version, new_version, adopted_runs, adopted, lost, damaged, done }
    SavedParameter as SavedParameter {
        name, type = self.dtype, doc,
        default = py.import("json")?.call_method1("loads", (json_scalar(&self.default).to_string(),))?,
    }
    SavedQuery as SavedQuery {
        name, purpose,
        parameters = PyTuple::new(py, instances(py, self.parameters)?)?,
        sql,
    }
    Shard as Shard {
        rank = self.rank, world_size = self.world_size, seed = self.seed, round = self.round,
        total_rows = self.total_rows.unwrap_or_default(),
    }
    SimulateReport as SimulateReport { runs, num_steps, num_bytes }
    VerifyReport as VerifyReport {
        problems = instances(py, self.problems)?,
        version, num_versions, num_files, num_bytes, num_runs, num_steps, unnamed_files,
    }
}

impl IntoInstance for (&Run, RunFormat) {
    fn into_instance(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let (run, format) = self;
        let meta = run.meta();
        instance! { py, RunMeta, meta:
            num_steps = run.num_steps(), start_unix_s, elapsed_s, max_score, highest_tile, engine = &meta.engine, seed,
            raw_evs, format = format.name()
        }
    }
}

/// Returns a value of each game as an array.
fn column<'py, T: NoUninit>(
    py: Python<'py>,
    games: &[PlayedGame],
    dtype: &str,
    of: impl Fn(&PlayedGame) -> T,
) -> PyResult<Bound<'py, PyAny>> {
    copied_array(py, &games.iter().map(of).collect::<Vec<T>>(), dtype, None)
}

/// Returns whether `on_error` is `"skip"`, and not `"raise"`.
pub(crate) fn skips_errors(on_error: &str) -> Result<bool> {
    is_first("on_error", on_error, ["skip", "raise"])
}

/// Returns whether an argument is the first of its two values.
pub(crate) fn is_first(name: &'static str, value: &str, [first, second]: [&str; 2]) -> Result<bool> {
    if value != first && value != second {
        return Err(Error::argument(name, format!("{first} or {second}"), value));
    }
    Ok(value == first)
}
