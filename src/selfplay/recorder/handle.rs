//! [`Recorder`]: the handle that callers hold.

use super::archive_sink::ArchiveSink;
use super::game::GameRecording;
use super::options::{RecorderOptions, RecorderStats};
use super::session_sink::SessionSink;
use super::shared::SharedRecorder;
use super::sink::Sink;
use crate::archive::Archive;
use crate::error::{Error, ErrorKind, Result};
use crate::format::is_archive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use tracing::{info, warn};

/// A recorder of games, into sessions or into an archive. Clones share the same recording.
///
/// A *rotation* writes all games that have ended: as one complete session, or as one commit of the archive. A thread
/// rotates when enough steps wait, when two fifths of the memory are used, and when a game has waited for
/// [`rotate_every`](RecorderOptions::rotate_every). A crash loses games that no rotation has written, and only those.
///
/// If a rotation fails, its games stay in memory and a later rotation writes them. The next [`begin`](Recorder::begin)
/// returns the error.
///
/// Dropping the last clone ends the recording as [`close`](Recorder::close) does, but only logs its errors.
///
/// # Examples
/// ```
/// # let root = tempfile::tempdir()?;
/// use a2store::{Board, Move};
/// use a2store::selfplay::{Recorder, RecorderOptions};
/// use a2store::format::Session;
/// let recorder = Recorder::create(root.path(), RecorderOptions::new("v1"))?;
/// let mut game = recorder.begin(Some(7))?;
/// game.push(Board(0x1100_0000_0000_0000), Some(Move::Left), None)?;
/// game.end(Board(0x2100_0000_0000_0000))?;
/// recorder.close()?;
///
/// let session = Session::open(&recorder.sessions()[0])?;
/// assert_eq!((session.num_steps(), session.decode(0)?.meta().seed), (1, Some(7)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Recorder(Arc<RecorderHandle>);

#[derive(Debug)]
struct RecorderHandle {
    shared: Arc<SharedRecorder>,
    thread: Option<JoinHandle<()>>,
}

impl Recorder {
    /// Begins a recording into a folder of sessions, and creates the folder if it is missing. Each rotation writes a
    /// session `<time>_model=<tag>`. Any number of recorders may share a folder.
    ///
    /// Removes the unfinished sessions that recorders left there when they crashed.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] for an invalid option, and [`ErrorKind::Io`].
    pub fn create(folder: impl AsRef<Path>, options: RecorderOptions) -> Result<Recorder> {
        options.check()?;
        let folder = std::path::absolute(&folder).map_err(|source| Error::io(&folder, source))?;
        if let Some(archive) = folder.ancestors().find(|folder| is_archive(folder)) {
            let found = format!("a folder of the archive {}", archive.display());
            return Err(Error::argument("target", "a folder of sessions, or an open archive", found));
        }
        let sink = SessionSink::create(&folder, &options)?;
        Recorder::with_sink(options, Box::new(sink))
    }

    /// Begins a recording into an archive. The runs have the session name `recording-<id>`, and `source_id` is the
    /// game's id. `engine` is the engine of the options, or else the tag.
    ///
    /// A rotation takes the memory of an ingest in addition to `max_ram_mb`. As in a session, every ended game becomes
    /// a run. Games are distinguished by id, so equal games are all kept, even if they equal runs of files.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] for an invalid option.
    ///
    /// # Examples
    /// ```
    /// # let root = tempfile::tempdir()?;
    /// use a2store::{Archive, Board, Move};
    /// use a2store::selfplay::{Recorder, RecorderOptions};
    /// let mut archive = Archive::create(root.path().join("games.a2"), Default::default())?;
    /// let recorder = Recorder::into_archive(&archive, RecorderOptions::new("v1"))?;
    /// let mut game = recorder.begin(Some(7))?;
    /// game.push(Board(0x1100_0000_0000_0000), Some(Move::Left), None)?;
    /// game.end(Board(0x2000_0000_0000_0001))?;
    /// recorder.close()?;
    /// archive.refresh()?;
    /// assert_eq!((archive.num_runs(), archive.num_steps()), (1, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_archive(archive: &Archive, options: RecorderOptions) -> Result<Recorder> {
        options.check()?;
        let sink = ArchiveSink::create(archive, &options);
        Recorder::with_sink(options, Box::new(sink))
    }

    pub(in crate::selfplay) fn with_sink(options: RecorderOptions, sink: Box<dyn Sink>) -> Result<Recorder> {
        let shared = Arc::new(SharedRecorder::new(options, sink));
        info!(target: "a2store::recorder", tag = shared.options.tag, "started a recorder");
        let rotating = shared.clone();
        let thread = std::thread::Builder::new().name("a2store-recorder".into());
        let thread = thread.spawn(move || rotating.rotate_when_due()).map_err(Error::from)?;
        Ok(Recorder(Arc::new(RecorderHandle { shared, thread: Some(thread) })))
    }

    /// Begins a game. If memory is used up, it waits for a rotation.
    ///
    /// # Errors
    /// [`ErrorKind::RecorderLimit`] if a limit is reached. [`ErrorKind::Argument`] if the recorder is closed, and for
    /// the seed 2^64 - 1, which a session cannot store. The error of a failed rotation, once per failure; no game is
    /// lost.
    pub fn begin(&self, seed: Option<u64>) -> Result<GameRecording> {
        // A session stores 2^64 - 1 for an unknown seed.
        if seed == Some(u64::MAX) {
            return Err(Error::argument("seed", "at most 18446744073709551614", u64::MAX));
        }
        GameRecording::begin(self.0.shared.clone(), seed)
    }

    /// Returns the limit that was reached, if any: `"games"`, `"steps"`, `"wall"` or `"disk"`.
    #[must_use]
    pub fn is_full(&self) -> Option<&'static str> {
        let reached = self.0.shared.check_limits(&self.0.shared.lock());
        reached.err().and_then(|error| match error.kind() {
            ErrorKind::RecorderLimit { limit, .. } => Some(*limit),
            _ => None,
        })
    }

    /// Writes all ended games, and waits until they are durable. Returns the number of durable games: all games
    /// whose id is below it.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] if the recorder is closed, and the error of a failed write. The games then stay in
    /// memory, and the next rotation writes them.
    pub fn rotate(&self) -> Result<u64> {
        self.0.shared.rotate()
    }

    /// Ends the recording: writes all ended games. Running games can no longer end. Returns the final counters.
    ///
    /// # Errors
    /// The error of a failed write. The recorder then stays open, and can be closed again.
    pub fn close(&self) -> Result<RecorderStats> {
        self.0.shared.close()
    }

    /// Returns the current counters.
    #[must_use]
    pub fn stats(&self) -> RecorderStats {
        self.0.shared.lock().stats.clone()
    }

    /// Returns the folders of the sessions that were written, in order. Empty if the games go to an archive.
    #[must_use]
    pub fn sessions(&self) -> Vec<PathBuf> {
        self.0.shared.lock().sessions.clone()
    }
}

impl Drop for RecorderHandle {
    fn drop(&mut self) {
        let shared = &self.shared;
        if shared.check_process().is_err() {
            return;
        }
        if let Err(error) = shared.close() {
            warn!(target: "a2store::recorder", tag = shared.options.tag, %error, "lost games that could not be written");
            shared.give_up();
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
