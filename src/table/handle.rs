//! One copy of a table for many processes.
//!
//! A table's rows begin as private memory of one process. For other processes, they move into a sealed memory
//! file (`memfd_create(2)`). They move in pieces and keep their address, so there are never two copies. Every
//! process of the same user can map the file through `/proc/<pid>/fd/<fd>` while a process that holds it lives.
//! The file has no name in any folder, so the system frees its memory when the last process ends.
//!
//! The file holds the rows from byte 0 on, then a [`footer`](super::footer).

use super::array_shards::ArrayShards;
use super::attached::AttachedColumn;
use super::file_identity::FileIdentity;
use super::fingerprint::Fingerprint;
use super::memory::{Backing, MemoryFile};
use super::shared_memory::move_to_file;
use super::step_table::StepTable;
use crate::cancellation::CancellationToken;
use crate::error::{Error, ErrorKind, Location, Result};
use crate::format::open_regular;
use crate::random;
use std::path::PathBuf;
use std::sync::{PoisonError, TryLockError};

/// A small, serializable handle to a table. Another process of the same user on the same machine can open the table
/// with it.
///
/// It is valid while a process that holds the table lives, or while the mapped file stays unchanged.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TableHandle {
    place: TableLocation,
    fingerprint: Fingerprint,
    /// The fingerprint of all rows, including those that a view does not show.
    whole: Fingerprint,
    /// The attached columns, in their order.
    attached: Vec<AttachedFiles>,
    /// The rows of a view.
    #[serde(skip)]
    selection: Option<Vec<u64>>,
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
enum TableLocation {
    Memory { process: u32, fd: i32, token: String },
    File(FileIdentity),
}

/// The files of an attached column.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct AttachedFiles {
    name: String,
    values: Vec<FileIdentity>,
    keys: Vec<FileIdentity>,
}

impl StepTable {
    /// Returns a handle with which another process opens this table without a copy. The first call moves the
    /// rows into shared memory in place, at about the speed of a copy. References to the rows stay valid.
    ///
    /// Attached columns do not move into shared memory. The other process maps their files and aligns them
    /// again. Columns of [`attach_rows`](StepTable::attach_rows) have no files, so such a table has no handle.
    ///
    /// A forked process already has its parent's tables and needs no handle.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the system has no sealed memory files, as outside of Linux; [`ErrorKind::Argument`] for a
    /// table with a column of `attach_rows`.
    pub fn handle(&self) -> Result<TableHandle> {
        let place = match &self.rows.backing {
            Backing::File(identity) => TableLocation::File(identity.clone()),
            Backing::Shared(shared) => TableLocation::of_memory(shared),
            Backing::Private(owner, slot) => {
                let mut slot = match slot.try_lock() {
                    Ok(slot) => slot,
                    Err(TryLockError::Poisoned(slot)) => slot.into_inner(),
                    // The thread that holds the lock exists only in the parent process and never releases it in
                    // this one.
                    Err(TryLockError::WouldBlock) if !owner.is_current() => {
                        let message = "this process was forked while another thread was sharing the table";
                        return Err(std::io::Error::new(std::io::ErrorKind::WouldBlock, message).into());
                    }
                    Err(TryLockError::WouldBlock) => slot.lock().unwrap_or_else(PoisonError::into_inner),
                };
                match &*slot {
                    Some(shared) => TableLocation::of_memory(shared),
                    None => {
                        let token = format!("{:016x}", random::seed()?);
                        let footer = self.footer_of_memory(&token)?;
                        let shared = MemoryFile { file: move_to_file(&self.rows, &footer)?, token };
                        TableLocation::of_memory(slot.insert(shared))
                    }
                }
            }
        };
        let selection = self.selection.as_ref().map(|selection| selection.to_words());
        let (fingerprint, whole) = (self.fingerprint().clone(), Fingerprint::clone(&self.whole_fingerprint));
        if let Some(column) = self.attached.iter().find(|column| column.identities().0.is_empty()) {
            let found = format!("{}, attached from rows; attach it again in the other process", column.name());
            return Err(Error::argument("attached", "columns of files in a table for other processes", found));
        }
        let files = |column: &AttachedColumn| {
            let (values, keys) = column.identities();
            AttachedFiles { name: column.name().to_owned(), values: values.to_vec(), keys: keys.to_vec() }
        };
        let attached = self.attached.iter().map(files).collect();
        Ok(TableHandle { place, fingerprint, whole, attached, selection })
    }

    /// Opens the table of a handle. It neither reads nor copies rows. It takes a few milliseconds at most, for
    /// the table's list of runs. With attached columns, it takes as long as attaching and mapping them.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if no process holds the table any more, or the file is missing; [`ErrorKind::Damaged`]
    /// if something else is in its place.
    pub fn from_handle(handle: &TableHandle) -> Result<StepTable> {
        let whole = match &handle.place {
            TableLocation::File(expected) => {
                let table = StepTable::map(&expected.path, Some(&handle.whole))?;
                if let Backing::File(found) = &table.rows.backing {
                    expected.check("the file of a shared table", found)?;
                }
                table
            }
            TableLocation::Memory { process, fd, token } => {
                let path = PathBuf::from(format!("/proc/{process}/fd/{fd}"));
                let file = open_regular(&path).map_err(|error| gone(&path, *process, &error))?;
                StepTable::of_shared(MemoryFile { file, token: token.clone() }, &path)?
            }
        };
        let mut table = match &handle.selection {
            None => whole,
            Some(words) => whole.with_selection(words, handle.fingerprint.clone())?,
        };
        for AttachedFiles { name, values, keys } in &handle.attached {
            let paths = |files: &[FileIdentity]| files.iter().map(|file| file.path.clone()).collect::<Vec<PathBuf>>();
            let column = table.column(
                name,
                &ArrayShards::open(&paths(values))?,
                &paths(keys),
                None,
                &(),
                CancellationToken::never(),
            )?;
            let found = column.identities();
            for (expected, found) in keys.iter().zip(found.1).chain(values.iter().zip(found.0)) {
                expected.check("a file of an attached column", found)?;
            }
            table = table.with_column(column)?;
        }
        Ok(table)
    }
}

impl TableHandle {
    /// Returns the handle as bytes: the length of a JSON object as u32, the object, and for a view the first
    /// row and the length of each range as u64. All numbers are little-endian.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let json = serde_json::to_vec(&(self, self.selection.is_some())).unwrap_or_default();
        let mut bytes = (json.len() as u32).to_le_bytes().to_vec();
        bytes.extend(json);
        bytes.extend(self.selection.iter().flatten().flat_map(|word| word.to_le_bytes()));
        bytes
    }

    /// Parses the result of [`to_bytes`](TableHandle::to_bytes).
    ///
    /// # Errors
    /// [`ErrorKind::Decode`] for anything else.
    pub fn from_bytes(bytes: &[u8]) -> Result<TableHandle> {
        let parse = || -> Option<TableHandle> {
            let (len, rest) = bytes.split_first_chunk()?;
            let (json, words) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
            let (handle, is_view): (TableHandle, bool) = serde_json::from_slice(json).ok()?;
            let (words, odd) = words.as_chunks();
            let words: Vec<u64> = words.iter().copied().map(u64::from_le_bytes).collect();
            (odd.is_empty() && (is_view || words.is_empty()))
                .then(|| TableHandle { selection: is_view.then_some(words), ..handle })
        };
        parse().ok_or_else(|| {
            let (location, what) = (Location::default(), "handle of a table");
            let (expected, found) = ("output of TableHandle::to_bytes".into(), format!("{} other bytes", bytes.len()));
            ErrorKind::Decode { location, what, expected, found }.into()
        })
    }
}

fn gone(path: &std::path::Path, process: u32, error: &std::io::Error) -> Error {
    let message = format!(
        "process {process} no longer shares the table: it ended, dropped the table, or belongs to another user ({error})"
    );
    Error::io(path, std::io::Error::new(error.kind(), message))
}

impl TableLocation {
    #[cfg(unix)]
    fn of_memory(shared: &MemoryFile) -> TableLocation {
        use std::os::fd::AsRawFd;
        TableLocation::Memory { process: std::process::id(), fd: shared.file.as_raw_fd(), token: shared.token.clone() }
    }

    #[cfg(not(unix))]
    fn of_memory(shared: &MemoryFile) -> TableLocation {
        TableLocation::Memory { process: std::process::id(), fd: -1, token: shared.token.clone() }
    }
}
