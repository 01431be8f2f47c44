//! Recovery of recordings whose recorder crashed.

use super::journal_replay::{num_games, remove_all, replay};
use super::session_sink::SessionSink;
use super::sink::{Closing, Sink};
use super::status::{RecordingStatus, StatusFile};
use crate::error::{Error, ErrorKind, Result};
use crate::format::RECORDING;
use crate::publish::Staged;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tracing::{info, warn};

/// The outcome of a recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// The folder of the recording.
    pub folder: PathBuf,
    /// The number of games that the recording now has.
    pub runs: u64,
    /// The number of these games that were recovered from the journal.
    pub from_journal: u64,
    /// The number of ended games that are lost because no flush had written them. After a power failure it may be
    /// too low.
    pub lost_runs: u64,
    /// The number of kept steps of the lost games.
    pub lost_steps: u64,
    /// The number of games that were still running, and are lost.
    pub live: u64,
}

/// An unfinished recording that a recorder found when it started.
#[derive(Debug)]
pub struct Unfinished {
    /// The folder of the recording.
    pub folder: PathBuf,
    /// The outcome of its recovery. After an error it is unchanged.
    pub recovered: Result<Recovered>,
}

/// The number of a journal's steps that are written together.
const STEPS_AT_ONCE: u64 = 1_000_000;

impl Recovered {
    /// Returns the outcome for a folder without an unfinished recording.
    pub(super) fn nothing(folder: &Path) -> Recovered {
        Recovered { folder: folder.to_owned(), ..Recovered::default() }
    }
}

/// Recovers a session whose recorder crashed: adds the games of its journal, and removes incomplete files. Does
/// nothing if the recording has ended.
///
/// # Errors
/// [`ErrorKind::Conflict`] if a recorder uses the folder, [`ErrorKind::Io`], and [`ErrorKind::Header`] for a
/// damaged file. A repeated call continues where the previous one stopped.
pub fn recover(folder: impl AsRef<Path>) -> Result<Recovered> {
    let folder = folder.as_ref();
    Ok(recover_session(folder)?.unwrap_or_else(|| Recovered::nothing(folder)))
}

/// Recovers a recording into another sink; see [`recover`]. `sink` opens the sink by the id of the recording.
///
/// # Errors
/// The errors of [`recover`], and errors of the sink.
pub fn recover_with(folder: impl AsRef<Path>, sink: impl FnOnce(&str) -> Result<Box<dyn Sink>>) -> Result<Recovered> {
    let folder = folder.as_ref();
    let recovered = recover_into(folder, |left| sink(&left.id))?;
    Ok(recovered.unwrap_or_else(|| Recovered::nothing(folder)))
}

/// Recovers a session. Returns `None` if nothing was recorded.
fn recover_session(folder: &Path) -> Result<Option<Recovered>> {
    let Some((status, recording)) = StatusFile::take_over(folder)? else { return Ok(None) };
    let recording = match recording {
        Some(recording) => recording,
        // The session lists its own games. The number of lost games is unknown.
        None if folder.join("metadata.db").exists() => RecordingStatus { session: true, ..RecordingStatus::default() },
        None => return clear(folder, &status).map(|()| None),
    };
    if !recording.session {
        return Err(Error::argument(
            "folder",
            "the folder of a session",
            "the folder of a recording into another sink",
        ));
    }
    let mut sink = SessionSink::recover(folder)?;
    let from_journal = take_in(folder, &mut sink)?;
    let rows = sink.num_rows();
    finish(folder, &mut sink, &status, &recording, from_journal, Some(rows)).map(Some)
}

/// Recovers a recording into the sink that `sink` opens. Returns `None` if nothing was recorded.
pub(super) fn recover_into(
    folder: &Path,
    sink: impl FnOnce(&RecordingStatus) -> Result<Box<dyn Sink>>,
) -> Result<Option<Recovered>> {
    let Some((status, recording)) = StatusFile::take_over(folder)? else { return Ok(None) };
    let Some(recording) = recording else { return clear(folder, &status).map(|()| None) };
    if recording.session {
        return Err(Error::argument(
            "folder",
            "the folder of a recording into another sink",
            "the folder of a session",
        ));
    }
    let mut sink = sink(&recording)?;
    let from_journal = take_in(folder, &mut *sink)?;
    // The number of steps in another sink is unknown.
    finish(folder, &mut *sink, &status, &recording, from_journal, None).map(Some)
}

/// Removes a recording whose process died before it wrote the content of `recording.json`. Journals are created later,
/// so if a journal has games, the file was damaged afterwards.
fn clear(folder: &Path, status: &StatusFile) -> Result<()> {
    match num_games(folder)? {
        0 => {
            remove_all(folder)?;
            status.remove()
        }
        num_games => {
            let expected = format!("JSON, because the journal has {num_games} games");
            Err(Error::decode(0, "recording", expected, "none").of_header().with_path(status.path()))
        }
    }
}

/// Recovers all sessions in a folder, except those that are being recorded. Removes staged folders that never became
/// sessions.
pub(super) fn recover_in(root: &Path) -> Result<Vec<Unfinished>> {
    let io = |source| Error::io(root, source);
    let mut folders = Vec::new();
    let (prefix, suffix) = Staged::AFFIXES;
    for entry in std::fs::read_dir(root).map_err(io)? {
        let folder = entry.map_err(io)?.path();
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        if !folder.join(RECORDING).is_file() {
            continue;
        }
        if name.contains("_model=") {
            folders.push(folder);
        } else if name.starts_with(prefix)
            && name.ends_with(suffix)
            && let Ok(Some(_)) = StatusFile::take_over(&folder)
        {
            // The folder never got its name, so nothing was recorded there.
            std::fs::remove_dir_all(&folder).map_err(|source| Error::io(&folder, source))?;
        }
    }
    folders.sort_unstable();
    let mut unfinished = Vec::new();
    for folder in folders {
        let recovered = match recover_session(&folder) {
            Ok(None) => continue,
            Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => continue,
            Ok(Some(recovered)) => Ok(recovered),
            Err(error) => Err(error),
        };
        unfinished.push(Unfinished { folder, recovered });
    }
    Ok(unfinished)
}

/// Writes the journal's games that the sink lacks, and returns their number.
fn take_in(folder: &Path, sink: &mut dyn Sink) -> Result<u64> {
    let (mut next, mut taken) = (sink.num_durable(), 0);
    let (mut games, mut num_steps) = (Vec::new(), 0);
    replay(folder, |game| {
        // The sink already has the game, or two journal files contain it.
        if game.id < next {
            return Ok(());
        }
        next = game.id + 1;
        taken += 1;
        num_steps += u64::from(game.num_rows());
        games.push(game);
        if num_steps >= STEPS_AT_ONCE {
            sink.write(&Arc::new(std::mem::take(&mut games)))?;
            num_steps = 0;
        }
        Ok(())
    })?;
    if !games.is_empty() {
        sink.write(&Arc::new(games))?;
    }
    Ok(taken)
}

/// Ends a recovered recording, and removes its journal and status file.
fn finish(
    folder: &Path,
    sink: &mut dyn Sink,
    status: &StatusFile,
    recording: &RecordingStatus,
    from_journal: u64,
    rows: Option<u64>,
) -> Result<Recovered> {
    let live = recording.live();
    sink.close(&Closing { finished: false, abandoned: recording.counts.abandoned, live })?;
    remove_all(folder)?;
    status.remove()?;
    let runs = sink.num_runs();
    let lost_runs = recording.counts.ended.saturating_sub(runs);
    let lost_steps = rows.map_or(0, |rows| recording.counts.steps.saturating_sub(rows));
    let place = folder.display();
    if lost_runs > 0 {
        warn!(target: "a2store::recorder", folder = %place, runs, from_journal, lost_runs, lost_steps, "lost ended games");
    } else {
        info!(target: "a2store::recorder", folder = %place, runs, from_journal, live, "recovered a recording");
    }
    Ok(Recovered { folder: folder.to_owned(), runs, from_journal, lost_runs, lost_steps, live })
}
