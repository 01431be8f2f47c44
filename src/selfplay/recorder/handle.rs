//! [`Recorder`]: the handle that callers hold.

use super::flush;
use super::game::Game;
use super::journal::Journal;
use super::limits::Limit;
use super::options::RecorderOptions;
use super::recovery::{Unfinished, recover_in, recover_into};
use super::report::{RecorderReport, RecorderStats};
use super::session_sink::SessionSink;
use super::shared::SharedRecorder;
use super::sink::Sink;
use super::state::{RecorderPhase, RecorderState};
use super::status::{MAX_ENGINE_LEN, RecordingStatus, StatusFile};
use crate::clock;
use crate::error::{Error, Result};
use crate::format::StagedFolder;
use crate::process::ProcessId;
use crate::publish;
use crate::random;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;
use tracing::info;

/// A recorder of games into a session or another [`Sink`]. Clones share the same recording.
///
/// Dropping the last clone ends the recording as [`close`](Recorder::close) does, but discards its errors.
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
pub struct Recorder(Arc<RecorderHandle>);

#[derive(Debug)]
struct RecorderHandle {
    shared: Arc<SharedRecorder>,
    unfinished: Vec<Unfinished>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Recorder {
    /// Begins a session `<time>_model=<tag>` in a folder of sessions, and creates that folder if it is missing.
    /// First it [recovers](crate::recover) the sessions there that another recorder left unfinished, and lists them in
    /// [`unfinished`](Recorder::unfinished).
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) and [`ErrorKind::Io`](crate::ErrorKind::Io).
    #[allow(clippy::needless_pass_by_value)] // Callers build the options for this call.
    pub fn create(root: impl AsRef<Path>, options: RecorderOptions) -> Result<Recorder> {
        options.check()?;
        let root = std::path::absolute(&root).map_err(|source| Error::io(&root, source))?;
        publish::create_folders(&root)?;
        let unfinished = recover_in(&root)?;
        let started = clock::now().format("%Y%m%dT%H%M%SZ");
        let name = format!("{started}_model={}", options.tag);
        let mut number = 1;
        loop {
            let folder = match number {
                1 => root.join(&name),
                // Put the number between the time and the first `_`, so that the tag still follows the last `=`.
                _ => root.join(format!("{started}-{number}_model={}", options.tag)),
            };
            number += 1;
            if folder.symlink_metadata().is_ok() {
                continue;
            }
            let staging = StagedFolder::new_in(&root)?;
            let mut status = status(staging.path(), &random::id(), None)?;
            let mut sink = SessionSink::create(staging.path(), &options)?;
            let mut journal = journal(staging.path(), &options, &sink)?;
            match staging.publish(&folder) {
                Ok(()) => {}
                // The rename succeeded in spite of the error.
                Err(_) if status.stands_in(&folder) => publish::sync_parent(&folder)?,
                // Another recorder took the name.
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

    /// Begins a recording into another sink. `sink` creates the sink from the id of the recording.
    ///
    /// `folder` holds the journal, and a status file from which the next recorder in that folder detects a crash of
    /// this one. The next recorder then calls `sink` with the id of the dead recording, and writes the games of the
    /// journal to that sink. Options that describe a session are ignored.
    ///
    /// # Errors
    /// The errors of [`create`](Recorder::create), and errors of the sink.
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) for a journal without a folder.
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) if another recorder uses the folder.
    pub fn with_sink(
        folder: Option<&Path>,
        options: RecorderOptions,
        sink: impl Fn(&str) -> Result<Box<dyn Sink>>,
    ) -> Result<Recorder> {
        Recorder::with_sink_for(folder, options, |id, _| sink(id))
    }

    /// Does the same as [`with_sink`](Recorder::with_sink). To recover a dead recording, `sink` gets its status too.
    #[allow(clippy::needless_pass_by_value)] // Callers build the options for this call.
    pub(super) fn with_sink_for(
        folder: Option<&Path>,
        options: RecorderOptions,
        sink: impl Fn(&str, Option<&RecordingStatus>) -> Result<Box<dyn Sink>>,
    ) -> Result<Recorder> {
        options.check()?;
        let id = random::id();
        let Some(folder) = folder else {
            if options.journal {
                return Err(Error::argument("journal", "a folder to write it to", "none"));
            }
            return start(PathBuf::new(), &options, sink(&id, None)?, None, None, Vec::new());
        };
        let folder = std::path::absolute(folder).map_err(|source| Error::io(folder, source))?;
        publish::create_folders(&folder)?;
        let recovered = recover_into(&folder, |left| sink(&left.id, Some(left)))?;
        let unfinished = recovered.map(|recovered| Unfinished { folder: folder.clone(), recovered: Ok(recovered) });
        let unfinished = Vec::from_iter(unfinished);
        let sink = sink(&id, None)?;
        let status = status(&folder, &id, Some(&options))?;
        // Remove the staged files of processes that died before they recorded anything. If a staged file belongs to
        // a live process, that process has lost the folder to this one.
        for staged in publish::staged_in(&folder)? {
            std::fs::remove_file(&staged).ok();
        }
        let journal = journal(&folder, &options, &*sink)?;
        start(folder, &options, sink, journal, Some(status), unfinished)
    }

    /// Begins a game. If memory is used up, it waits for the current flush.
    ///
    /// # Errors
    /// [`ErrorKind::RecorderLimit`](crate::ErrorKind::RecorderLimit) if a limit is reached.
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if the recorder is closed, and for the seed 2^64 - 1, which
    /// a session cannot store. The error of a failed flush, once per failure; no game is lost and the flush is retried.
    pub fn begin(&self, seed: Option<u64>) -> Result<Game> {
        // A session stores 2^64 - 1 for an unknown seed.
        if seed == Some(u64::MAX) {
            return Err(Error::argument("seed", "at most 18446744073709551614", u64::MAX));
        }
        Game::begin(self.0.shared.clone(), seed)
    }

    /// Returns the limit that was reached, if any.
    #[must_use]
    pub fn is_full(&self) -> Option<Limit> {
        let shared = &self.0.shared;
        shared.reached(&shared.lock()).map(|(limit, _)| limit)
    }

    /// Flushes all ended games, and waits until they are durable. Returns the number of durable games: all games
    /// whose id is below it.
    ///
    /// # Errors
    /// The error of the flush. The games then stay in memory, and the next flush writes them.
    pub fn rotate(&self) -> Result<u64> {
        let shared = &self.0.shared;
        shared.check_process()?;
        let mut state = shared.lock();
        state.check_open()?;
        if !state.unflushed.games.is_empty() || state.is_writing {
            let flush = state.request_flush();
            shared.wake_writer.notify_one();
            while state.flush_done < flush {
                state = shared.wait(&shared.wake_waiters, state);
            }
            state.check_failure(flush)?;
        }
        Ok(state.num_durable)
    }

    /// Ends the recording: flushes all ended games, and marks the session as finished. Running games can no longer
    /// end. Further calls return the same report.
    ///
    /// # Errors
    /// The error of the flush or of the sink. The recorder then stays open, and can be closed again.
    pub fn close(&self) -> Result<RecorderReport> {
        self.0.shared.check_process()?;
        self.0.close()
    }

    /// Returns the current counters.
    #[must_use]
    pub fn stats(&self) -> RecorderStats {
        self.0.shared.stats()
    }

    /// Returns the folder of the session or of the journal; empty if there is no folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0.shared.folder
    }

    /// Returns the unfinished recordings that were found at the start, and the outcome of their recovery.
    #[must_use]
    pub fn unfinished(&self) -> &[Unfinished] {
        &self.0.unfinished
    }
}

#[cfg(test)]
impl Recorder {
    pub(super) fn shared(&self) -> &SharedRecorder {
        &self.0.shared
    }
}

impl RecorderHandle {
    fn close(&self) -> Result<RecorderReport> {
        let shared = &self.shared;
        let mut state = shared.lock();
        if matches!(state.phase, RecorderPhase::Open) {
            state.phase = RecorderPhase::Closing;
            shared.wake_writer.notify_all();
            shared.wake_waiters.notify_all();
        }
        while matches!(state.phase, RecorderPhase::Closing) {
            state = shared.wait(&shared.wake_waiters, state);
        }
        if let RecorderPhase::Closed(report) = &state.phase {
            return Ok((**report).clone());
        }
        state.check_failure(1)?;
        state.check_open()?;
        Err(Error::other("another thread failed to close the recorder"))
    }
}

impl Drop for RecorderHandle {
    fn drop(&mut self) {
        if self.shared.check_process().is_err() {
            return;
        }
        let _ = self.close();
        let mut state = self.shared.lock();
        if !matches!(state.phase, RecorderPhase::Closed(_)) {
            state.phase = RecorderPhase::Dropped;
        }
        drop(state);
        self.shared.wake_writer.notify_all();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            let _ = writer.join();
        }
    }
}

/// Creates the status file. A session stores its own engine; other sinks need the engine of `options`.
fn status(folder: &Path, id: &str, options: Option<&RecorderOptions>) -> Result<StatusFile> {
    let started = clock::text();
    let (process, session) = (std::process::id(), options.is_none());
    let engine = options.and_then(|options| options.engine.clone()).filter(|engine| engine.len() <= MAX_ENGINE_LEN);
    let id = id.to_owned();
    StatusFile::create(folder, RecordingStatus { id, session, engine, process, started, ..RecordingStatus::default() })
}

fn journal(folder: &Path, options: &RecorderOptions, sink: &dyn Sink) -> Result<Option<Journal>> {
    options.journal.then(|| Journal::create(folder, options.sample_rate, sink.with_evs())).transpose()
}

fn start(
    folder: PathBuf,
    options: &RecorderOptions,
    mut sink: Box<dyn Sink>,
    journal: Option<Journal>,
    status: Option<StatusFile>,
    unfinished: Vec<Unfinished>,
) -> Result<Recorder> {
    let num_durable = sink.num_durable();
    let state =
        RecorderState { next_id: num_durable, num_durable, sink_bytes: sink.num_bytes(), ..RecorderState::default() };
    let shared = Arc::new(SharedRecorder {
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
        process: ProcessId::current(),
        folder,
        journal,
        status,
        state: Mutex::new(state),
        wake_writer: Condvar::new(),
        wake_waiters: Condvar::new(),
    });
    shared.start_thresholds();
    info!(target: "a2store::recorder", folder = %shared.folder.display(), runs = num_durable, "started a recorder");
    let writing = shared.clone();
    let builder = std::thread::Builder::new().name("a2store-recorder".into());
    let writer = builder.spawn(move || flush::run(&writing, &mut *sink)).map_err(Error::from)?;
    Ok(Recorder(Arc::new(RecorderHandle { shared, unfinished, writer: Mutex::new(Some(writer)) })))
}
