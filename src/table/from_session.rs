//! A self-play session → a table, without an archive. Rows keep the session's run ids.

#[cfg(test)]
mod tests;

use super::element::ElementType;
use super::fingerprint::Fingerprint;
use super::layout::{ExtraField, RowLayout};
use super::memory::{Region, check_memory};
use super::runs::{RunFacts, Runs};
use super::step_table::StepTable;
use super::wide::{MissingColumns, WideColumns, WideOffsets};
use crate::archive::Phases;
use crate::cancellation::CancellationToken;
use crate::error::{Error, Result};
use crate::format::{Session, WideStep, flatten};
use crate::progress::{Progress, Unit};
use crate::run::RunMeta;
use crate::workers;
use derive_setters::Setters;
use rayon::prelude::*;
use std::collections::HashSet;
use std::path::Path;

/// The options for loading the rows of a session.
///
/// Set fields with the `with_*` methods: `FromSessionOptions::default().with_run_ids([5, 7])`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Setters)]
#[setters(prefix = "with_", strip_option)]
#[non_exhaustive]
pub struct FromSessionOptions {
    /// The ids of the runs; `None` = all.
    #[setters(skip)]
    pub run_ids: Option<Vec<u64>>,
    /// Extra columns with facts on a row's run: `max_score` (uint64) and `highest_tile` (uint32).
    #[setters(skip)]
    pub extra: Vec<String>,
    /// The memory limit for the rows in bytes; `None` = the memory that the system has available.
    pub memory_limit: Option<u64>,
    /// The number of threads; `None` = one per core.
    pub workers: Option<usize>,
}

impl FromSessionOptions {
    /// Selects the runs with these ids.
    #[must_use]
    pub fn with_run_ids(mut self, run_ids: impl IntoIterator<Item = u64>) -> Self {
        self.run_ids = Some(run_ids.into_iter().collect());
        self
    }

    /// Sets the extra columns.
    #[must_use]
    pub fn with_extra<S: Into<String>>(mut self, extra: impl IntoIterator<Item = S>) -> Self {
        self.extra = extra.into_iter().map(Into::into).collect();
        self
    }
}

/// An extra column: its name, its type, and its value for a run. Only the first `width` bytes of the value
/// count.
type Extra = (&'static str, ElementType, fn(&RunMeta) -> [u8; 8]);

const EXTRAS: [Extra; 2] = [
    ("max_score", ElementType::Int64, |meta| meta.max_score.to_le_bytes()),
    ("highest_tile", ElementType::UInt32, |meta| u64::from(meta.highest_tile).to_le_bytes()),
];

/// A run that becomes rows.
struct Wanted<'a> {
    index: usize,
    run_id: u32,
    rows: &'a mut [u8],
}

impl StepTable {
    /// Reads a session directly into a table. A row has the session's own `run_id`, and `step_index` is the
    /// step's index in its game, so the session's embeddings can be [attached](StepTable::attach). Rows are
    /// ordered by both, whatever their order in the session.
    ///
    /// The values are NaN. A move that the session lacks is derived if the rules allow only one; otherwise it
    /// is 255. [`filter`](StepTable::filter) can filter by the scores and engines of the runs. Phases have the
    /// default thresholds of an archive.
    ///
    /// # Errors
    /// Any error of [`Session::open`] and [`Session::decode`];
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) for a run id above 4,294,967,295, which a row cannot
    /// hold, for an unknown run id, and for an unknown extra column;
    /// [`ErrorKind::MemoryLimit`](crate::ErrorKind::MemoryLimit);
    /// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
    pub fn from_session(
        path: impl AsRef<Path>,
        options: &FromSessionOptions,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<StepTable> {
        let threads = workers::pool("session", options.workers)?;
        let session = Session::open(path)?;
        session.ignored_rows().iter().for_each(|text| progress.warn(text));
        WideColumns::retry(|columns, missing| {
            StepTable::of_session(&session, options, &threads, columns, missing, progress, cancel)
        })
    }

    /// Reads the rows with these wide columns.
    fn of_session(
        session: &Session,
        options: &FromSessionOptions,
        threads: &rayon::ThreadPool,
        columns: WideColumns,
        missing: &MissingColumns,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<StepTable> {
        let (layout, extras) = layout(&options.extra, columns)?;
        let offsets = WideOffsets::of(&layout);
        let indices = indices(session, options.run_ids.as_deref())?;
        let stride = layout.stride();
        let num_rows: u64 = indices.iter().map(|&(index, _)| session.num_rows_of(index)).sum();
        let needed = num_rows.saturating_mul(stride as u64);
        check_memory(needed, options.memory_limit)?;
        let mut region = Region::reserve(needed)?;
        let mut rest = &mut region.bytes_mut()[..needed as usize];
        let mut wanted = Vec::with_capacity(indices.len());
        for &(index, run_id) in &indices {
            let (rows, after) = rest.split_at_mut(session.num_rows_of(index) as usize * stride);
            wanted.push(Wanted { index, run_id, rows });
            rest = after;
        }
        progress.begin("session", Unit::Rows, num_rows);
        let places: Vec<usize> = extras.iter().zip(layout.extras()).map(|(_, field)| field.offset).collect();
        // Fills the rows of a run, and returns its game.
        let fill = |wanted: Wanted<'_>| -> Result<Option<i64>> {
            cancel.check()?;
            let run = session.decode(wanted.index)?;
            columns.check(&run, missing)?;
            let mut steps: Vec<WideStep> = Vec::new();
            flatten(&run, u64::from(wanted.run_id), &mut steps)?;
            for (row, step) in wanted.rows.chunks_exact_mut(stride).zip(&steps) {
                offsets.write(step, row);
                for ((_, dtype, value), &at) in extras.iter().zip(&places) {
                    row[at..at + dtype.width()].copy_from_slice(&value(run.meta())[..dtype.width()]);
                }
            }
            progress.advance(steps.len() as u64);
            Ok(run.game())
        };
        let games: Vec<Result<Option<i64>>> = threads.install(|| wanted.into_par_iter().map(fill).collect());
        progress.end();
        let mut facts = RunFacts::default();
        // The first failed run's error is returned, independent of thread scheduling.
        for ((place, run_id), game) in indices.into_iter().zip(games) {
            let (game, meta) = (game?, session.meta(place)?);
            facts.push(run_id, meta.max_score, game, meta.engine);
        }
        let rows = region.freeze(needed as usize)?;
        let fingerprint = Fingerprint::of_content(&blake3::hash(rows.bytes()));
        StepTable::new(rows, layout, fingerprint, Runs::of_facts(Phases::default(), facts))
    }
}

/// Returns the row layout and its extra columns.
fn layout(names: &[String], columns: WideColumns) -> Result<(RowLayout, Vec<Extra>)> {
    let mut extras: Vec<Extra> = Vec::with_capacity(names.len());
    for name in names {
        let known = EXTRAS.iter().find(|(known, ..)| known == name);
        let extra = known.ok_or_else(|| Error::argument("extra", "max_score and highest_tile", name))?;
        if extras.iter().any(|(other, ..)| other == name) {
            return Err(Error::argument("extra", "each column once", name));
        }
        extras.push(*extra);
    }
    let field = |&(name, dtype, _): &Extra| ExtraField::new(name, dtype, 1);
    Ok((RowLayout::new(extras.iter().map(field).chain(columns.fields()).collect()), extras))
}

/// Returns each selected run's index in the session and its id, ordered by id.
fn indices(session: &Session, run_ids: Option<&[u64]>) -> Result<Vec<(usize, u32)>> {
    let mut left: Option<HashSet<u64>> = run_ids.map(|ids| ids.iter().copied().collect());
    let mut indices = Vec::new();
    for index in 0..session.num_runs() {
        let Some(id) = session.id(index).filter(|id| left.as_mut().is_none_or(|left| left.remove(id))) else {
            continue;
        };
        let run_id = u32::try_from(id).map_err(|_| {
            Error::argument("run_id", "at most 4294967295, the largest run id of a row", format!("run {id}"))
        })?;
        indices.push((index, run_id));
    }
    match left.into_iter().flatten().min() {
        Some(id) => Err(Error::argument("run_ids", "run ids of the session", id)),
        None => Ok(indices),
    }
}
