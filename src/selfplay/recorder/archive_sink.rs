//! The [`Sink`] that commits games to an archive, with moves, values and final boards.

use super::ended_game::EndedGame;
use super::handle::Recorder;
use super::options::RecorderOptions;
use super::recovery::{Recovered, recover_into};
use super::sink::{Closing, DiskCost, Sink};
use super::status::{MAX_ENGINE_LEN, RecordingStatus};

use crate::archive::{Archive, IngestOptions, OnError, TableName};
use crate::cancellation::CancellationToken;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Container, RunSource, SourceFacts, SourceFormat, SourceRun};
use crate::run::RunMeta;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A sink that commits each flush to an archive.
struct ArchiveSink {
    archive: Archive,
    /// The session name of the runs.
    session: Arc<str>,
    meta: RunMeta,
    num_durable: u64,
    num_runs: u64,
    /// The size of the archive before the recording.
    bytes_before: u64,
}

/// Ended games as a source for ingest, which converts them to runs one by one.
#[derive(Debug)]
struct Games {
    games: Arc<Vec<EndedGame>>,
    meta: RunMeta,
}

impl Recorder {
    /// Begins a recording into an archive. The runs have the session name `recording-<id>`, and `source_id` is the
    /// game's id. `engine` is the engine of the options, or else the tag.
    ///
    /// A flush takes the memory of an ingest in addition to `max_ram_mb`. As in a session, every ended game becomes a
    /// run. Games are distinguished by id, so equal games are all kept, even if they equal runs of files.
    ///
    /// The folder `archive-<archive's id>_model=<tag>` in `root` holds the journal, if one is requested. It also
    /// holds a status file, from which the next recorder with that tag detects a crash of this one.
    ///
    /// # Errors
    /// The errors of [`with_sink`](Recorder::with_sink), and errors of the archive. [`ErrorKind::Argument`] for an
    /// engine of more than 256 bytes.
    ///
    /// # Examples
    /// ```
    /// # let root = tempfile::tempdir()?;
    /// use a2store::{Archive, Board, Move, Recorder, RecorderOptions};
    /// let mut archive = Archive::create(root.path().join("games.a2"), Default::default())?;
    /// let recorder = Recorder::into_archive(root.path(), RecorderOptions::new("v1"), &archive)?;
    /// let mut game = recorder.begin(Some(7))?;
    /// game.push(Board(0x1100_0000_0000_0000), Some(Move::Left), None)?;
    /// game.end(Board(0x2000_0000_0000_0001))?;
    /// recorder.close()?;
    /// archive.refresh()?;
    /// assert_eq!((archive.num_runs(), archive.num_steps()), (1, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_archive(root: impl AsRef<Path>, options: RecorderOptions, archive: &Archive) -> Result<Recorder> {
        options.check()?;
        // The journal belongs to this archive only.
        let folder = root.as_ref().join(format!("archive-{}_model={}", archive.id(), options.tag));
        let engine = options.engine.clone().unwrap_or_else(|| options.tag.clone());
        if engine.len() > MAX_ENGINE_LEN {
            return Err(Error::argument("engine", format!("at most {MAX_ENGINE_LEN} bytes"), engine.len()));
        }
        let (archive, tag) = (archive.clone(), options.tag.clone());
        Recorder::with_sink_for(Some(&folder), options, move |id, left| {
            Ok(Box::new(match left {
                Some(left) => ArchiveSink::resume(archive.clone(), &tag, left)?,
                None => ArchiveSink::begin(archive.clone(), engine.clone(), id)?,
            }))
        })
    }
}

/// Recovers a recording into an archive; see [`recover`](super::recover).
///
/// # Errors
/// The errors of [`recover`](super::recover), and errors of the archive. [`ErrorKind::Argument`] for the folder of
/// another archive.
///
/// # Examples
/// ```
/// # let root = tempfile::tempdir()?;
/// use a2store::{Archive, Recorder, RecorderOptions, recover_into_archive};
/// let archive = Archive::create(root.path().join("games.a2"), Default::default())?;
/// let recorder = Recorder::into_archive(root.path(), RecorderOptions::new("v1"), &archive)?;
/// let folder = recorder.folder().to_owned();
/// recorder.close()?;
/// // The recorder was closed, so there is nothing to recover.
/// assert_eq!(recover_into_archive(folder, &archive)?.runs, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn recover_into_archive(folder: impl AsRef<Path>, archive: &Archive) -> Result<Recovered> {
    let folder = folder.as_ref();
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!("archive-{}_model=", archive.id());
    let Some(tag) = name.strip_prefix(&prefix) else {
        return Err(Error::argument("folder", format!("{prefix}…, of this archive"), name));
    };
    let recovered = recover_into(folder, |left| Ok(Box::new(ArchiveSink::resume(archive.clone(), tag, left)?)))?;
    Ok(recovered.unwrap_or_else(|| Recovered::nothing(folder)))
}

impl ArchiveSink {
    /// Begins a new recording with a unique id.
    fn begin(mut archive: Archive, engine: String, id: &str) -> Result<ArchiveSink> {
        // Games in the archive are removed from the journal, so the archive must be durable.
        archive.refresh_durable()?;
        let (session, bytes_before) = (format!("recording-{id}").into(), num_bytes(&archive));
        let meta = RunMeta { engine: Some(engine), ..RunMeta::default() };
        Ok(ArchiveSink { archive, session, meta, num_durable: 0, num_runs: 0, bytes_before })
    }

    /// Resumes an interrupted recording with its engine. The archive already has some of its games.
    fn resume(archive: Archive, tag: &str, left: &RecordingStatus) -> Result<ArchiveSink> {
        let engine = left.engine.clone().unwrap_or_else(|| tag.to_owned());
        let mut sink = ArchiveSink::begin(archive, engine, &left.id)?;
        let ids = sink.archive.source_ids(&sink.session)?;
        (sink.num_durable, sink.num_runs) = (ids.last().map_or(0, |last| last + 1), ids.len() as u64);
        Ok(sink)
    }
}

impl Sink for ArchiveSink {
    fn write(&mut self, games: &Arc<Vec<EndedGame>>) -> Result<()> {
        let source = Box::new(Games { games: Arc::clone(games), meta: self.meta.clone() });
        let (path, session) = (PathBuf::from(&*self.session), Some(Arc::clone(&self.session)));
        let runs = Container { source, path, format: SourceFormat::Session, session };
        let options = IngestOptions { on_error: OnError::Raise, ..IngestOptions::default() };
        self.archive.ingest_recorded(&Arc::new(runs), &options, &(), CancellationToken::never())?;
        self.num_durable = games.last().map_or(self.num_durable, |game| game.id() + 1);
        self.num_runs += games.len() as u64;
        Ok(())
    }

    fn close(&mut self, _: &Closing) -> Result<()> {
        Ok(())
    }

    fn num_durable(&self) -> u64 {
        self.num_durable
    }

    fn num_runs(&self) -> u64 {
        self.num_runs
    }

    fn num_bytes(&self) -> u64 {
        num_bytes(&self.archive).saturating_sub(self.bytes_before)
    }

    fn cost(&self) -> DiskCost {
        // Compressed games take about a third. Incompressible games take slightly more than their raw size.
        DiskCost { fixed: 1 << 16, per_game: 512, per_step: 40 }
    }

    fn with_action(&self) -> bool {
        true
    }

    fn with_evs(&self) -> bool {
        true
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
        self.games.get(index).map_or(0, |game| 64 + 32 * u64::from(game.num_rows()))
    }

    fn offset(&self, _: usize) -> u64 {
        0
    }

    fn facts(&self, index: usize) -> SourceFacts {
        let game = self.games.get(index);
        SourceFacts { id: game.map(EndedGame::id), num_steps: game.map(EndedGame::num_steps) }
    }

    fn read(&self, index: usize) -> Result<SourceRun<'_>> {
        match self.games.get(index) {
            Some(game) => game.to_run(&self.meta).map(SourceRun::Run),
            None => Err(ErrorKind::IndexOutOfBounds { index: index as i128, len: self.games.len() as u64 }.into()),
        }
    }
}
