//! Recording games while they are played: many at once, from any number of threads, into a session that is whole at any
//! moment.
//!
//! ```text
//!  Game ─push─▶ its own blocks ─end─▶ games that ended ─rotation─▶ Sink: a shard of a session, or an archive
//!  (no lock)                    └──▶ journal, if asked           (one thread, which nobody waits for)
//! ```
//!
//! | file | owns |
//! | --- | --- |
//! | `options`, `limits` | how to record, and how much |
//! | `game` | [`Game`], [`EndedGame`] |
//! | `rows` | steps in memory |
//! | `shared` | games that ended, memory, waiting |
//! | `rotation` | the thread that writes |
//! | `sink`, `session_sink`, `archive_sink` | [`Sink`], a session and an archive as one |
//! | `status`, `journal`, `recovery` | what a process that dies leaves behind, and [`recover`] |
//!
//! Invariant: what [`Recorder::rotate`] has returned for is durable, and stays whole whatever happens to the process; a
//! folder has `recording.json` as long as its recording has not ended.

mod archive_sink;
mod game;
mod journal;
mod limits;
mod options;
mod recovery;
mod rotation;
mod rows;
mod session_sink;
mod shared;
mod sink;
mod status;

#[cfg(test)]
mod tests;

pub use archive_sink::recover_into_archive;
pub use game::{EndedGame, Game};
pub use limits::{Limit, Limits};
pub use options::RecorderOptions;
pub use recovery::{Recovered, Unfinished, recover, recover_with};
pub use sink::{Closing, DiskCost, Sink};

use crate::clock;
use crate::error::{Error, Result};
use crate::format::StagedFolder;
use crate::publish;
use journal::Journal;
use session_sink::SessionSink;
use shared::{Phase, Shared, State};
use status::{MAX_ENGINE_LEN, Recording, Status};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Records games into a session, or another [`Sink`]. A clone is the same recorder.
///
/// When the last clone is dropped the recording ends as with [`close`](Recorder::close), which also tells what went
/// wrong.
///
/// # Examples
/// ```
/// # let root = tempfile::tempdir()?;
/// use a2store::{Board, Move, Recorder, RecorderOptions, Session};
/// let recorder = Recorder::create(root.path(), RecorderOptions::new("v1"))?;
/// let mut game = recorder.begin(Some(7))?;
/// game.push(Board(0x1100_0000_0000_0000), Some(Move::Left), None)?;
/// game.end(Board(0x2100_0000_0000_0000))?;
/// let report = recorder.close()?;
///
/// let session = Session::open(&report.folder)?;
/// assert_eq!((session.num_runs(), session.meta(0)?.seed), (1, Some(7)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Recorder(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    unfinished: Vec<Unfinished>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// How far a recorder is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecorderStats {
    /// Games that were begun.
    pub begun: u64,
    /// Games under way.
    pub live: u64,
    /// Games that ended and are kept.
    pub ended: u64,
    /// Games that were given up, or refused at their end.
    pub abandoned: u64,
    /// Games that were refused at their end.
    pub refused: u64,
    /// Steps that are kept, of games that ended.
    pub steps: u64,
    /// Games that are written: those whose id is below this number.
    pub durable: u64,
    /// Rotations.
    pub rotations: u64,
    /// Bytes that they take on disk, and that the next one may need for a while.
    pub disk_bytes: u64,
    /// Bytes of steps in memory.
    pub ram_bytes: u64,
    /// What went wrong with the last rotation. It is tried again.
    pub failure: Option<String>,
}

/// What was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecorderReport {
    /// The session's folder, or that of the journal; empty if there is none.
    pub folder: PathBuf,
    /// Games.
    pub runs: u64,
    /// Steps of them that are kept.
    pub steps: u64,
    /// Rotations.
    pub rotations: u64,
    /// Games that were given up, or refused at their end.
    pub abandoned: u64,
    /// Games that were refused at their end.
    pub refused: u64,
    /// Games that were under way, and are lost.
    pub live: u64,
    /// Bytes on disk.
    pub num_bytes: u64,
    /// How long it took.
    pub elapsed: Duration,
}

impl Recorder {
    /// Begins a session `<time>_model=<tag>` in a folder of sessions, which is made if it is missing. Sessions beside
    /// it that a recorder left unfinished are [recovered](recover) first, and told by
    /// [`unfinished`](Recorder::unfinished).
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) and [`ErrorKind::Io`](crate::ErrorKind::Io).
    #[allow(clippy::needless_pass_by_value)] // They are made for it.
    pub fn create(root: impl AsRef<Path>, options: RecorderOptions) -> Result<Recorder> {
        options.check()?;
        let root = std::path::absolute(&root).map_err(|source| Error::io(&root, source))?;
        publish::create_folders(&root)?;
        let unfinished = recovery::recover_in(&root)?;
        let started = clock::now().format("%Y%m%dT%H%M%SZ");
        let name = format!("{started}_model={}", options.tag);
        let mut number = 1;
        loop {
            let folder = match number {
                1 => root.join(&name),
                // The time stays in front of the first `_`, and the tag behind the last `=`.
                _ => root.join(format!("{started}-{number}_model={}", options.tag)),
            };
            number += 1;
            if folder.symlink_metadata().is_ok() {
                continue;
            }
            let staging = StagedFolder::new_in(&root)?;
            let mut status = status(staging.path(), &recording_id()?, None)?;
            let mut sink = SessionSink::create(staging.path(), &options)?;
            let mut journal = journal(staging.path(), &options, &sink)?;
            match staging.publish(&folder) {
                Ok(()) => {}
                // The folder has got its name in spite of the error.
                Err(_) if status.stands_in(&folder) => publish::sync_parent(&folder)?,
                // Another recorder was faster.
                Err(_) if folder.symlink_metadata().is_ok() => continue,
                Err(error) => return Err(error),
            }
            sink.set_folder(&folder);
            status.set_folder(&folder);
            if let Some(journal) = &mut journal {
                journal.set_folder(&folder);
            }
            return start(folder, &options, Box::new(sink), journal, Some(status), unfinished);
        }
    }

    /// Begins a recording into another sink, which is made for it by its id. The folder, if one is given, has the
    /// journal, and what tells the next recorder there that this one died; then what the journal holds goes to the sink
    /// that is made for the id of that recording. Nothing of `options` that is said of a session counts.
    ///
    /// # Errors
    /// As [`create`](Recorder::create), and those of the sink; [`ErrorKind::Argument`](crate::ErrorKind::Argument) for
    /// a journal without a folder; [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) when a recorder is at work
    /// there.
    #[allow(clippy::needless_pass_by_value)] // They are made for it.
    pub fn with_sink(
        folder: Option<&Path>,
        options: RecorderOptions,
        sink: impl Fn(&str) -> Result<Box<dyn Sink>>,
    ) -> Result<Recorder> {
        Recorder::with_sink_for(folder, options, |id, _| sink(id))
    }

    /// As [`with_sink`](Recorder::with_sink); to recover a dead recorder's games, the sink gets its recording.
    #[allow(clippy::needless_pass_by_value)] // As above.
    fn with_sink_for(
        folder: Option<&Path>,
        options: RecorderOptions,
        sink: impl Fn(&str, Option<&Recording>) -> Result<Box<dyn Sink>>,
    ) -> Result<Recorder> {
        options.check()?;
        let id = recording_id()?;
        let Some(folder) = folder else {
            if options.journal {
                return Err(Error::argument("journal", "a folder to write it to", "none"));
            }
            return start(PathBuf::new(), &options, sink(&id, None)?, None, None, Vec::new());
        };
        let folder = std::path::absolute(folder).map_err(|source| Error::io(folder, source))?;
        publish::create_folders(&folder)?;
        let recovered = recovery::recover_into(&folder, |left| sink(&left.id, Some(left)))?;
        let unfinished = recovered.map(|recovered| Unfinished { folder: folder.clone(), recovered: Ok(recovered) });
        let unfinished = Vec::from_iter(unfinished);
        let sink = sink(&id, None)?;
        let status = status(&folder, &id, Some(&options))?;
        // Staged files of processes that died before they recorded anything. A live process with a staged file has
        // lost the folder to this one.
        for staged in publish::staged_in(&folder)? {
            std::fs::remove_file(&staged).ok();
        }
        let journal = journal(&folder, &options, &*sink)?;
        start(folder, &options, sink, journal, Some(status), unfinished)
    }

    /// Begins a game. It waits, where memory is used up, for the rotation under way.
    ///
    /// # Errors
    /// [`ErrorKind::RecorderLimit`](crate::ErrorKind::RecorderLimit) when a limit is reached;
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) when the recorder is closed; the error of a rotation that
    /// failed, once: nothing is lost, and it is tried again.
    pub fn begin(&self, seed: Option<u64>) -> Result<Game> {
        self.0.shared.begin(seed)
    }

    /// The limit that keeps games from beginning.
    #[must_use]
    pub fn is_full(&self) -> Option<Limit> {
        let shared = &self.0.shared;
        shared.reached(&shared.lock()).map(|(limit, _)| limit)
    }

    /// Writes all games that ended, and waits until they are durable. The number of games that are: all whose id is
    /// below it.
    ///
    /// # Errors
    /// Those of the files: then the games stay in memory, and are written with the next rotation.
    pub fn rotate(&self) -> Result<u64> {
        let shared = &self.0.shared;
        shared.check_process()?;
        let mut state = shared.lock();
        state.check_open()?;
        if !state.ended.games.is_empty() || state.is_writing {
            let rotation = state.ask();
            shared.work.notify_one();
            while state.done < rotation {
                state = shared.wait(&shared.done, state);
            }
            state.tell_failure(rotation)?;
        }
        Ok(state.num_durable)
    }

    /// Ends the recording: writes all games that ended, and says so in the session. Games under way can no longer end.
    /// Once it is closed, it gives the same report again.
    ///
    /// # Errors
    /// Those of the files: then the recorder goes on, and can be closed again.
    pub fn close(&self) -> Result<RecorderReport> {
        self.0.shared.check_process()?;
        self.0.close()
    }

    /// How far it is.
    #[must_use]
    pub fn stats(&self) -> RecorderStats {
        self.0.shared.stats()
    }

    /// The session's folder, or that of the journal; empty if there is none.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0.shared.folder
    }

    /// The recordings that were found unfinished, and what became of them.
    #[must_use]
    pub fn unfinished(&self) -> &[Unfinished] {
        &self.0.unfinished
    }
}

impl Handle {
    fn close(&self) -> Result<RecorderReport> {
        let shared = &self.shared;
        let mut state = shared.lock();
        if matches!(state.phase, Phase::Open) {
            state.phase = Phase::Closing;
            shared.work.notify_all();
            shared.done.notify_all();
        }
        while matches!(state.phase, Phase::Closing) {
            state = shared.wait(&shared.done, state);
        }
        if let Phase::Closed(report) = &state.phase {
            return Ok((**report).clone());
        }
        state.tell_failure(1)?;
        state.check_open()?;
        Err(io::Error::other("another thread closed the recorder, and failed").into())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.shared.check_process().is_err() {
            return;
        }
        let _ = self.close();
        let mut state = self.shared.lock();
        if !matches!(state.phase, Phase::Closed(_)) {
            state.phase = Phase::Left;
        }
        drop(state);
        self.shared.work.notify_all();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            let _ = writer.join();
        }
    }
}

/// A session says itself whose games it has; what goes elsewhere has `options`.
fn status(folder: &Path, id: &str, options: Option<&RecorderOptions>) -> Result<Status> {
    let started = clock::text();
    let (process, session) = (std::process::id(), options.is_none());
    let engine = options.and_then(|options| options.engine.clone()).filter(|engine| engine.len() <= MAX_ENGINE_LEN);
    let id = id.to_owned();
    Status::create(folder, Recording { id, session, engine, process, started, ..Recording::default() })
}

fn journal(folder: &Path, options: &RecorderOptions, sink: &dyn Sink) -> Result<Option<Journal>> {
    options.journal.then(|| Journal::create(folder, options.sample_rate, sink.with_evs())).transpose()
}

fn start(
    folder: PathBuf,
    options: &RecorderOptions,
    mut sink: Box<dyn Sink>,
    journal: Option<Journal>,
    status: Option<Status>,
    unfinished: Vec<Unfinished>,
) -> Result<Recorder> {
    let num_durable = sink.num_durable();
    let state = State { next_id: num_durable, num_durable, sink_bytes: sink.num_bytes(), ..State::default() };
    let shared = Arc::new(Shared {
        with_action: sink.with_action(),
        with_evs: sink.with_evs(),
        sample_rate: options.sample_rate,
        limits: options.limits,
        counts_steps: options.limits.max_steps.is_some(),
        live_steps: AtomicU64::new(0),
        ram_budget: options.limits.ram_budget(),
        disk_budget: options.limits.disk_budget(),
        cost: sink.cost(),
        rotate_steps: options.rotate_steps,
        rotate_every: options.rotate_every,
        started: Instant::now(),
        process: std::process::id(),
        folder,
        journal,
        status,
        state: Mutex::new(state),
        work: Condvar::new(),
        done: Condvar::new(),
    });
    shared.start();
    let writing = shared.clone();
    let builder = std::thread::Builder::new().name("a2store-recorder".into());
    let writer = builder.spawn(move || rotation::run(&writing, &mut *sink)).map_err(Error::from)?;
    Ok(Recorder(Arc::new(Handle { shared, unfinished, writer: Mutex::new(Some(writer)) })))
}

/// A name that no other recording has.
fn recording_id() -> Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| Error::from(io::Error::other(error)))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
