//! Reading and removal of journal files.

use super::ended_game::EndedGame;
use super::journal_record::{FRAME_LEN, HEADER_LEN, RecordHead, game_of};
use crate::error::{Error, Result};
use crate::format::{JOURNAL_MAGIC, journal_number};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// The size of a read.
const BUFFER_LEN: usize = 1 << 18;

/// Returns the journal files of a folder in the order in which they were written.
pub(super) fn files_in(folder: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let io = |source| Error::io(folder, source);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        files.extend(journal_number(&path).map(|number| (number, path)));
    }
    files.sort_unstable();
    Ok(files)
}

/// Passes the games in a folder's journal files to `visit`, in the order in which they ended.
pub(super) fn replay(folder: &Path, mut visit: impl FnMut(EndedGame) -> Result<()>) -> Result<()> {
    for (_, path) in files_in(folder)? {
        let io = |source| Error::io(&path, source);
        let file = File::open(&path).map_err(io)?;
        let mut left = file.metadata().map_err(io)?.len();
        let mut reader = BufReader::with_capacity(BUFFER_LEN, file);
        let mut header = [0; HEADER_LEN];
        if left < HEADER_LEN as u64 {
            continue;
        }
        reader.read_exact(&mut header).map_err(io)?;
        if !header.starts_with(JOURNAL_MAGIC) {
            continue;
        }
        left -= HEADER_LEN as u64;
        let sample_rate = header[8..].first_chunk().map_or(1, |bytes| u32::from_le_bytes(*bytes)).max(1);
        let with_evs = header[12] != 0;
        let mut record = Vec::new();
        while left >= FRAME_LEN as u64 {
            let mut frame = [0; FRAME_LEN];
            reader.read_exact(&mut frame).map_err(io)?;
            left -= FRAME_LEN as u64;
            let len = frame.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            let crc = frame[8..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
            if len < size_of::<RecordHead>() as u64 || len > left {
                break;
            }
            record.resize(len as usize, 0);
            reader.read_exact(&mut record).map_err(io)?;
            left -= len;
            if crc32c::crc32c(&record) != crc {
                break;
            }
            match game_of(&record, sample_rate, with_evs) {
                Some(game) => visit(game)?,
                None => break,
            }
        }
    }
    Ok(())
}

/// Returns the number of games in a folder's journal files.
pub(super) fn num_games(folder: &Path) -> Result<u64> {
    let mut num_games = 0;
    replay(folder, |_| {
        num_games += 1;
        Ok(())
    })?;
    Ok(num_games)
}

/// Removes the journal files of a folder.
pub(super) fn remove_all(folder: &Path) -> Result<()> {
    for (_, path) in files_in(folder)? {
        std::fs::remove_file(&path).map_err(|source| Error::io(&path, source))?;
    }
    Ok(())
}
