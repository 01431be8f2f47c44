//! The runs of a table, with the columns of `runs` that filters of rows use.

use crate::archive::{Archive, Phases};
use crate::error::{Error, Result};
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, UInt32Type};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The game of a run without steps.
const NO_GAME: i64 = -1;

/// The archive, the version and the query that rows come from; empty and 0 for other rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    pub(crate) archive: String,
    pub(crate) version: u64,
    /// A hash of the query's text, parameters and limits.
    pub(crate) query: String,
}

/// The runs that a table's rows may belong to, and the thresholds of the game phases.
#[derive(Default)]
pub(in crate::table) struct Runs {
    pub(in crate::table) phases: Option<Phases>,
    pub(in crate::table) origin: Origin,
    source: RunsSource,
    /// Whether the rows have run ids. If not, the scores, games and engines of the rows are unknown.
    has_run_ids: bool,
    facts: OnceLock<Arc<TableRunFacts>>,
}

/// The source of the runs, which is read on first use.
#[derive(Default)]
enum RunsSource {
    #[default]
    Nowhere,
    Archive(Archive),
    /// The bytes of [`TableRunFacts::to_bytes`], in this file.
    Bytes(Vec<u8>, PathBuf),
}

/// Score, game and engine of each run, ordered by id.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::table) struct TableRunFacts {
    run_id: Vec<u32>,
    max_score: Vec<u64>,
    /// [`Run::game`](crate::Run::game); `NO_GAME` for a run without steps.
    game: Vec<i64>,
    engine: Vec<Option<String>>,
}

impl Runs {
    pub(in crate::table) fn of_archive(archive: &Archive, query: String, has_run_ids: bool) -> Runs {
        let source = RunsSource::Archive(archive.clone());
        let origin = Origin { archive: archive.id().to_owned(), version: archive.version(), query };
        Runs { phases: Some(archive.phases()), origin, source, has_run_ids, facts: OnceLock::new() }
    }

    /// Returns runs that are already known.
    pub(in crate::table) fn of_facts(facts: TableRunFacts) -> Runs {
        Runs { phases: Some(Phases::default()), facts: Arc::new(facts).into(), ..Runs::default() }
    }

    /// Returns the runs of a file's footer.
    pub(in crate::table) fn of_bytes(phases: Option<Phases>, origin: Origin, bytes: Vec<u8>, path: &Path) -> Runs {
        let source = if bytes.is_empty() { RunsSource::Nowhere } else { RunsSource::Bytes(bytes, path.into()) };
        Runs { phases, origin, source, has_run_ids: true, facts: OnceLock::new() }
    }

    /// Returns whether a path is in the archive of the runs.
    pub(in crate::table) fn is_in_archive(&self, path: &Path) -> Result<bool> {
        Ok(matches!(&self.source, RunsSource::Archive(archive) if archive.contains(path)?))
    }

    /// Returns the runs; `None` if their source is unknown.
    ///
    /// # Errors
    /// Any error of reading the archive; [`ErrorKind::Damaged`](crate::ErrorKind::Damaged) if the file's bytes are invalid.
    pub(in crate::table) fn facts(&self) -> Result<Option<Arc<TableRunFacts>>> {
        if let Some(facts) = self.facts.get() {
            return Ok(Some(Arc::clone(facts)));
        }
        let facts = match &self.source {
            RunsSource::Nowhere => return Ok(None),
            RunsSource::Archive(_) if !self.has_run_ids => return Ok(None),
            RunsSource::Archive(archive) => TableRunFacts::read(archive)?,
            RunsSource::Bytes(bytes, path) => TableRunFacts::from_bytes(bytes).ok_or_else(|| {
                let found = format!("{} other bytes", bytes.len());
                Error::damaged(path, "the runs of a table", "ids, scores, games and engines", found)
            })?,
        };
        Ok(Some(Arc::clone(self.facts.get_or_init(|| Arc::new(facts)))))
    }
}

impl TableRunFacts {
    fn read(archive: &Archive) -> Result<TableRunFacts> {
        let mut facts = TableRunFacts::default();
        archive.read_columns_of_runs(&["run_id", "max_score", "game", "engine"], |batch| {
            facts.append(batch).ok_or_else(|| {
                let expected = "run_id, max_score, game and engine as in the schema, in the order of run_id";
                Error::damaged(archive.path(), "the runs", expected, "other columns")
            })
        })?;
        Ok(facts)
    }

    fn append(&mut self, batch: &RecordBatch) -> Option<()> {
        let run_id = batch.column_by_name("run_id")?.as_primitive_opt::<UInt32Type>()?;
        let max_score = batch.column_by_name("max_score")?.as_primitive_opt::<Int64Type>()?;
        let game = batch.column_by_name("game")?.as_primitive_opt::<Int64Type>()?;
        let engine = cast(batch.column_by_name("engine")?, &DataType::Utf8).ok()?;
        let engine = engine.as_string_opt::<i32>()?;
        let is_sorted = self.run_id.last().into_iter().chain(run_id.values()).is_sorted();
        if !is_sorted || run_id.null_count() > 0 || max_score.null_count() > 0 {
            return None;
        }
        self.run_id.extend(run_id.values());
        self.max_score.extend(max_score.values().iter().map(|score| score.unsigned_abs()));
        self.game.extend(game.iter().map(|game| game.unwrap_or(NO_GAME)));
        self.engine.extend(engine.iter().map(|name| name.map(str::to_owned)));
        Some(())
    }

    /// Adds a run, whose id must be greater than all others.
    pub(in crate::table) fn push(&mut self, run_id: u32, max_score: u64, game: Option<i64>, engine: Option<String>) {
        self.run_id.push(run_id);
        self.max_score.push(max_score);
        self.game.push(game.unwrap_or(NO_GAME));
        self.engine.push(engine);
    }

    /// Returns a run's score and engine.
    pub(in crate::table) fn get(&self, run_id: u32) -> Option<(u64, Option<&str>)> {
        let at = self.run_id.binary_search(&run_id).ok()?;
        Some((*self.max_score.get(at)?, self.engine.get(at)?.as_deref()))
    }

    /// Returns a run's game.
    pub(in crate::table) fn game(&self, run_id: u32) -> Option<i64> {
        let at = self.run_id.binary_search(&run_id).ok()?;
        self.game.get(at).copied().filter(|&game| game != NO_GAME)
    }

    /// Returns the runs as JSON: an object with a list for each field.
    pub(in crate::table) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Parses the result of [`to_bytes`](TableRunFacts::to_bytes); `None` for anything else.
    pub(in crate::table) fn from_bytes(bytes: &[u8]) -> Option<TableRunFacts> {
        let facts: TableRunFacts = serde_json::from_slice(bytes).ok()?;
        let lengths = [facts.max_score.len(), facts.game.len(), facts.engine.len()];
        (lengths == [facts.run_id.len(); 3] && facts.run_id.is_sorted()).then_some(facts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> TableRunFacts {
        let engine = |k: u32| (!k.is_multiple_of(3)).then(|| format!("engine {}", k % 3));
        TableRunFacts {
            run_id: (0..50).map(|k| k * 2).collect(),
            max_score: (0..50).map(|k| k << 33).collect(),
            game: (0..50).map(|k| (k - 1) << 40).collect(),
            engine: (0..50).map(engine).collect(),
        }
    }

    #[test]
    fn round_trips_through_bytes() {
        let facts = facts();
        assert_eq!(TableRunFacts::from_bytes(&facts.to_bytes()).as_ref(), Some(&facts));
        assert_eq!(facts.get(4), Some((2 << 33, Some("engine 2"))));
        let none = TableRunFacts::default();
        assert_eq!(TableRunFacts::from_bytes(&none.to_bytes()), Some(none));
    }

    #[test]
    fn damaged_bytes_are_rejected() {
        let text = String::from_utf8(facts().to_bytes()).unwrap();
        for (old, new) in
            [("[0,2,", "[2,0,"), ("[0,2,", "[2,"), ("engine 2", "engine \"2"), ("}", ""), ("game", "games")]
        {
            assert!(text.contains(old) && TableRunFacts::from_bytes(text.replacen(old, new, 1).as_bytes()).is_none());
        }
    }
}
