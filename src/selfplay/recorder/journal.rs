//! The journal: ended games that no flush has written yet.
//!
//! A game is durable once its record is synced. If several threads wait, one of them syncs for all. Reading stops at
//! the first incomplete record, because no record after it was ever reported as durable.

use super::ended_game::EndedGame;
use super::journal_record::{FRAME_LEN, HEADER_LEN, head_of};
use super::journal_replay::files_in;
use crate::error::{Error, Result};
use crate::format::{JOURNAL_MAGIC, journal_name};
use crate::publish;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The size of a write.
const BUFFER_LEN: usize = 1 << 18;

/// A journal that is open for appending.
#[derive(Debug)]
pub(super) struct Journal {
    folder: PathBuf,
    header: [u8; HEADER_LEN],
    inner: Mutex<JournalState>,
    synced: Condvar,
}

/// The state under the lock. Games are added in the order of their ids.
#[derive(Debug)]
pub(super) struct JournalState {
    file: Arc<File>,
    number: u64,
    len: u64,
    buffer: Vec<u8>,
    /// The number of records that were written, and of records whose sync has succeeded or failed, over all files.
    num_written: u64,
    num_settled: u64,
    /// Records that are not durable until a flush writes their games, and the error code.
    lost: Vec<(Range<u64>, i32)>,
    /// The error code of a failed sync of this file. A later success proves nothing: the kernel reports a page that
    /// it could not write only once.
    failed: Option<i32>,
    is_syncing: bool,
    /// A thread waits for the end of the sync, and no other sync may begin before it continues.
    is_awaited: bool,
}

impl Journal {
    pub(super) fn create(folder: &Path, sample_rate: u32, with_evs: bool) -> Result<Journal> {
        let mut header = [0; HEADER_LEN];
        header[..8].copy_from_slice(JOURNAL_MAGIC);
        header[8..12].copy_from_slice(&sample_rate.to_le_bytes());
        header[12] = u8::from(with_evs);
        let file = Arc::new(begin(folder, 1, &header)?);
        let inner = JournalState {
            file,
            number: 1,
            len: HEADER_LEN as u64,
            buffer: Vec::new(),
            num_written: 0,
            num_settled: 0,
            lost: Vec::new(),
            failed: None,
            is_syncing: false,
            is_awaited: false,
        };
        Ok(Journal { folder: folder.to_owned(), header, inner: Mutex::new(inner), synced: Condvar::new() })
    }

    pub(super) fn set_folder(&mut self, folder: &Path) {
        folder.clone_into(&mut self.folder);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, JournalState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the journal while no sync runs. The kernel reports an error once, so it must be assigned to the right
    /// records.
    pub(super) fn lock_between_syncs(&self) -> MutexGuard<'_, JournalState> {
        let mut inner = self.lock();
        inner.is_awaited = true;
        while inner.is_syncing {
            inner = self.synced.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        inner.is_awaited = false;
        self.synced.notify_all();
        inner
    }

    /// Appends a game, and returns the number of its record for [`wait`](Journal::wait).
    pub(super) fn append(&self, inner: &mut JournalState, game: &EndedGame) -> Result<u64> {
        if let Some(code) = inner.failed {
            return Err(self.not_durable(inner, code));
        }
        let (head, mut crc) = (head_of(game), 0);
        let parts = || std::iter::once(bytemuck::bytes_of(&head)).chain(game.rows.slices());
        let mut len = 0;
        for part in parts() {
            crc = crc32c::crc32c_append(crc, part);
            len += part.len() as u64;
        }
        let mut frame = [0; FRAME_LEN];
        frame[..8].copy_from_slice(&len.to_le_bytes());
        frame[8..12].copy_from_slice(&crc.to_le_bytes());
        let mut at = inner.len;
        inner.buffer.clear();
        let write = |inner: &mut JournalState, at: &mut u64| -> io::Result<()> {
            inner.file.write_all_at(&inner.buffer, *at)?;
            *at += inner.buffer.len() as u64;
            inner.buffer.clear();
            Ok(())
        };
        let written = std::iter::once(&frame[..]).chain(parts()).try_for_each(|part| {
            inner.buffer.extend_from_slice(part);
            if inner.buffer.len() >= BUFFER_LEN { write(inner, &mut at) } else { Ok(()) }
        });
        match written.and_then(|()| write(inner, &mut at)) {
            Ok(()) => {
                inner.len = at;
                inner.num_written += 1;
                Ok(inner.num_written)
            }
            Err(error) => {
                // The next record overwrites this one. Any remainder after it is not a valid record.
                let _ = inner.file.set_len(inner.len);
                Err(Error::io(self.path(inner.number), error))
            }
        }
    }

    /// Waits until a record is durable.
    pub(super) fn wait(&self, record: u64) -> Result<()> {
        let mut inner = self.lock();
        loop {
            if let Some((_, code)) = inner.lost.iter().find(|(lost, _)| lost.contains(&record)) {
                return Err(self.not_durable(&inner, *code));
            }
            if inner.num_settled >= record {
                return Ok(());
            }
            if inner.is_syncing || inner.is_awaited {
                inner = self.synced.wait(inner).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            inner.is_syncing = true;
            let (file, upto) = (inner.file.clone(), inner.num_written);
            drop(inner);
            let synced = file.sync_data();
            inner = self.lock();
            inner.is_syncing = false;
            inner.settle(upto, &synced);
            self.synced.notify_all();
        }
    }

    /// Creates the next file.
    pub(super) fn prepare(&self) -> Result<File> {
        let number = self.lock().number + 1;
        begin(&self.folder, number, &self.header)
    }

    /// Switches to the next file. No sync may be running.
    pub(super) fn switch(&self, inner: &mut JournalState, next: File) {
        let synced = inner.file.sync_data();
        inner.settle(inner.num_written, &synced);
        inner.failed = None;
        (inner.file, inner.len) = (Arc::new(next), HEADER_LEN as u64);
        inner.number += 1;
        self.synced.notify_all();
    }

    /// Removes all files before the current one.
    pub(super) fn remove_old(&self) -> Result<()> {
        let current = self.lock().number;
        for (number, path) in files_in(&self.folder)? {
            if number < current {
                std::fs::remove_file(&path).map_err(|source| Error::io(&path, source))?;
            }
        }
        Ok(())
    }

    fn not_durable(&self, inner: &JournalState, code: i32) -> Error {
        Error::io(self.path(inner.number), io::Error::from_raw_os_error(code))
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(journal_name(number))
    }
}

impl JournalState {
    /// Stores the result of a sync for all records up to this one.
    fn settle(&mut self, upto: u64, synced: &io::Result<()>) {
        // Reading stops at a lost record, so all later records of the same file are lost too.
        if let Err(error) = synced {
            self.failed = self.failed.or(Some(error.raw_os_error().unwrap_or(libc::EIO)));
        }
        let settled = upto.max(self.num_settled);
        if let Some(code) = self.failed.filter(|_| self.num_settled < settled) {
            self.lost.push((self.num_settled + 1..settled + 1, code));
        }
        self.num_settled = settled;
    }
}

fn begin(folder: &Path, number: u64, header: &[u8; HEADER_LEN]) -> Result<File> {
    let path = folder.join(journal_name(number));
    // A failed attempt may have left the file.
    let file = File::options().write(true).create(true).truncate(true).open(&path);
    let file = file.and_then(|file| file.write_all_at(header, 0).and_then(|()| file.sync_all()).map(|()| file));
    let file = file.map_err(|source| Error::io(&path, source))?;
    publish::sync(folder)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::super::journal_record::{RecordHead, game_of};
    use super::super::journal_replay::replay;
    use super::*;

    fn game() -> EndedGame {
        let head = [0; size_of::<RecordHead>()];
        game_of(&head, 1, false).expect("a game without steps")
    }

    fn append(journal: &Journal) -> Result<u64> {
        journal.append(&mut journal.lock(), &game())
    }

    #[test]
    fn a_file_stays_failed_after_a_failed_sync() {
        let folder = tempfile::tempdir().expect("a folder");
        let journal = Journal::create(folder.path(), 1, false).expect("a journal");
        let first = append(&journal).expect("a record");
        journal.wait(first).expect("a durable record");
        let lost = append(&journal).expect("a record");
        journal.lock().settle(lost, &Err(io::Error::from_raw_os_error(libc::ENOSPC)));
        // From here on, the kernel would report a successful sync.
        assert!(journal.wait(lost).is_err());
        assert!(append(&journal).is_err());
        assert!(journal.wait(first).is_ok());

        let next = journal.prepare().expect("another file");
        journal.switch(&mut journal.lock_between_syncs(), next);
        let after = append(&journal).expect("a record");
        journal.wait(after).expect("a durable record");
        let error = journal.wait(lost).expect_err("it was lost").to_string();
        assert!(error.contains("No space left on device"), "{error}");
        let mut found = 0;
        replay(folder.path(), |_| {
            found += 1;
            Ok(())
        })
        .expect("journals");
        assert_eq!(found, 3);
    }
}
