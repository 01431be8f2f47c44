//! The [`Sink`] that commits each buffer to an archive, with moves, values and final boards.

use super::buffer::FinishedGame;
use super::options::RecorderOptions;
use super::sink::{Sink, SinkFormat};
use crate::archive::{Archive, IngestOptions, TableName};
use crate::error::{Error, Result};
use crate::format::{Container, RunInput, RunSource, SourceFacts, SourceFormat, SourceRun};
use crate::run::RunMeta;
use crate::system::cancellation::CancellationToken;
use crate::system::random;
use std::path::PathBuf;
use std::sync::Arc;

/// A sink that commits games to an archive.
#[derive(Debug)]
pub(super) struct ArchiveSink {
    archive: Archive,
    /// The session name of the runs. With the id of a game, it identifies the run.
    session: Arc<str>,
    meta: RunMeta,
    /// The size of the archive before the recording.
    bytes_before: u64,
}

/// Finished games as a source for ingest, which converts them to runs one by one.
#[derive(Debug)]
struct Games {
    games: Arc<Vec<FinishedGame>>,
    meta: RunMeta,
}

impl ArchiveSink {
    pub(super) fn create(archive: &Archive, options: &RecorderOptions) -> ArchiveSink {
        let engine = options.engine.as_ref().unwrap_or(&options.tag);
        ArchiveSink {
            archive: archive.clone(),
            session: format!("recording-{}", random::id()).into(),
            meta: RunMeta { engine: Some(engine.clone()), ..RunMeta::default() },
            bytes_before: num_bytes(archive),
        }
    }
}

impl Sink for ArchiveSink {
    fn write(&mut self, games: &Arc<Vec<FinishedGame>>) -> Result<Vec<PathBuf>> {
        let source = Box::new(Games { games: Arc::clone(games), meta: self.meta.clone() });
        let (path, session) = (PathBuf::from(&*self.session), Some(Arc::clone(&self.session)));
        let runs = Container { source, path, format: SourceFormat::Session, session };
        let options = IngestOptions { strict: true, ..IngestOptions::default() };
        // This view shows none of the games. Games of a commit that was written but not confirmed are not added again,
        // because their ids are compared.
        let recorded_since = Some(self.archive.manifest().next_run_id);
        let input = RunInput::Open { runs: &Arc::new(runs), recorded_since };
        self.archive.ingest_input(input, &options, &(), CancellationToken::never())?;
        Ok(Vec::new())
    }

    fn num_bytes(&self) -> u64 {
        num_bytes(&self.archive).saturating_sub(self.bytes_before)
    }

    fn format(&self) -> SinkFormat {
        // Compressed games take about a third. Incompressible games take slightly more than their raw size.
        SinkFormat {
            with_action: true,
            with_evs: true,
            bytes_per_write: 1 << 16,
            bytes_per_game: 512,
            bytes_per_step: 40,
        }
    }
}

fn num_bytes(archive: &Archive) -> u64 {
    TableName::ALL.into_iter().map(|table| archive.num_bytes(table)).sum()
}

impl RunSource for Games {
    fn num_runs(&self) -> usize {
        self.games.len()
    }

    fn num_bytes(&self, index: usize) -> u64 {
        self.games.get(index).map_or(0, |game| 64 + 32 * u64::from(game.rows.len))
    }

    fn facts(&self, index: usize) -> SourceFacts {
        let game = self.games.get(index);
        SourceFacts { id: game.map(|game| game.id), num_steps: game.map(|game| game.num_steps) }
    }

    fn read(&self, index: usize) -> Result<SourceRun<'_>> {
        let game = self.games.get(index).ok_or_else(|| Error::no_index(index, self.games.len()))?;
        game.to_run(&self.meta).map(SourceRun::Run)
    }
}
