//! The run ids of new runs. No id is given twice.
//!
//! In a folder, the lock among its writers makes the next ids free. In an object store, a writer reserves ids before it
//! writes them into data files, so that the files stay as they are if another writer commits first. A reservation is a
//! small file `_ids/<u64::MAX - first id, in 20 digits>.json`: the last one comes first in a listing, and of two writers
//! that reserve the same ids, one fails to create the file. Ids of reservations that no version uses are not given again.

use crate::archive::manifest::Manifest;
use crate::archive::manifest::data_file::DataFile;
use crate::archive::manifest::versions::{descending_name, number_of};
use crate::archive::storage::Storage;
use crate::archive::storage::queue::Queue;
use crate::archive::table_name::TableName;
use crate::error::{Error, ErrorKind, Result};
use crate::system::cancellation::CancellationToken;
use crate::system::publish::Published;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// The folder of the reservations.
pub(in crate::archive) const IDS_FOLDER: &str = "_ids";
/// The number of run ids.
const MAX_IDS: u64 = 1 << 32;
/// The number of attempts to reserve ids. Each fails only if another writer reserved ids meanwhile.
const ATTEMPTS: usize = 100;

/// The ids that one ingest gives.
pub(in crate::archive) struct RunIds<'a> {
    storage: &'a Storage,
    newest: &'a Manifest,
    /// The next id in a folder; `None` in an object store.
    next: Option<u64>,
    has_reserved: bool,
}

#[derive(Serialize, Deserialize)]
struct Reservation {
    first_run_id: u64,
    num_runs: u64,
}

impl Reservation {
    fn name(&self) -> String {
        descending_name(self.first_run_id)
    }

    /// Returns the last reservation.
    fn last(storage: &Storage) -> Result<Option<Reservation>> {
        let mut path = IDS_FOLDER.to_owned();
        for _ in 0..5 {
            let Some(name) = storage.first_names(IDS_FOLDER, 1)?.pop() else { return Ok(None) };
            path = format!("{IDS_FOLDER}/{name}");
            // An expiry may have removed the reservation, because there is a later one.
            let Some(bytes) = storage.read(&path)? else { continue };
            return match serde_json::from_slice::<Reservation>(&bytes) {
                Ok(last) if last.name() == name => Ok(Some(last)),
                _ => Err(storage.damaged(&path, "reservation", "first_run_id as in the name, num_runs", "neither")),
            };
        }
        Err(storage.damaged(&path, "reservation", "a file", "no file"))
    }
}

impl<'a> RunIds<'a> {
    pub(in crate::archive) fn new(storage: &'a Storage, newest: &'a Manifest) -> Result<RunIds<'a>> {
        let next = if storage.is_remote() { None } else { Some(next_run_id(storage, newest)?) };
        Ok(RunIds { storage, newest, next, has_reserved: false })
    }

    /// Returns the first of `count` ids that are given now.
    pub(in crate::archive) fn take(&mut self, count: u64, cancel: &CancellationToken) -> Result<u64> {
        let Some(first) = self.next else { return self.reserve(count, cancel) };
        check(first + count)?;
        self.next = Some(first + count);
        Ok(first)
    }

    fn reserve(&mut self, count: u64, cancel: &CancellationToken) -> Result<u64> {
        for losses in 0..ATTEMPTS {
            if losses > 0 {
                self.storage.queue.pause_after(losses, &**self.storage, cancel)?;
            }
            cancel.check()?;
            let begun = Instant::now();
            let first_run_id = match Reservation::last(self.storage)? {
                Some(last) => last.first_run_id.saturating_add(last.num_runs).max(self.newest.next_run_id),
                // The archive may be a copy of a folder.
                None => next_run_id(self.storage, self.newest)?,
            };
            let reservation = Reservation { first_run_id, num_runs: count };
            check(first_run_id.saturating_add(count))?;
            let bytes = serde_json::to_vec(&reservation).map_err(Error::other)?;
            let path = format!("{IDS_FOLDER}/{}", reservation.name());
            // After a long sleep, the name of an old reservation may be free again. A later one shows this.
            if self.storage.put_new(&path, bytes.into())? == Published::New {
                let names = self.storage.first_names(IDS_FOLDER, Queue::LENGTH)?;
                let mut ids = names.iter().filter_map(|name| number_of(name));
                if ids.next() == Some(first_run_id) {
                    if !std::mem::replace(&mut self.has_reserved, true) {
                        self.storage.queue.join(ids.collect(), begun.elapsed());
                    }
                    return Ok(first_run_id);
                }
            }
        }
        let what = format!("other writers reserved run ids first, {ATTEMPTS} times");
        Err(ErrorKind::Conflict { path: self.storage.root().to_path_buf(), what }.into())
    }
}

/// Checks the number of ids that are given.
fn check(next: u64) -> Result<()> {
    match next <= MAX_IDS {
        true => Ok(()),
        false => Err(Error::argument("runs", "at most 4294967296 in an archive", next)),
    }
}

/// Returns the first id that no run has, in this version or in any data file.
///
/// A data file may have ids that no manifest knows: its writer was interrupted, or the newest manifest was lost. These
/// ids are not given again.
pub(in crate::archive) fn next_run_id(storage: &Storage, newest: &Manifest) -> Result<u64> {
    let mut next = newest.next_run_id;
    for table in TableName::ALL {
        let ids = storage.names(table.name())?.into_iter().filter_map(|name| DataFile::last_run_id_of(&name));
        next = ids.fold(next, |next, last| next.max(u64::from(last) + 1));
    }
    Ok(next)
}
