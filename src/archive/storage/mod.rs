//! The storage of an archive: a folder of this machine, or a prefix of an object store.
//!
//! | file | owns |
//! | --- | --- |
//! | `backend.rs` | the operations that an archive needs |
//! | `folder.rs` | a folder |
//! | `object_prefix.rs`, `storage_options.rs` | a prefix of an object store, and options of the store |
//! | `lock.rs`, `queue.rs` | the lock among writers of one machine; the order of other writers |

mod backend;
mod folder;
pub(in crate::archive) mod lock;
mod object_prefix;
pub(in crate::archive) mod queue;
pub(in crate::archive) mod storage_options;

pub(in crate::archive) use self::backend::{Backend, Guard, ListedFile};
use self::folder::Folder;
use self::object_prefix::ObjectPrefix;
#[cfg(feature = "sql")]
pub(crate) use self::object_prefix::io_kind;
use self::queue::Queue;
use self::storage_options::StorageOptions;
use crate::archive::table_name::TableName;
use crate::error::{Error, Result};
use std::fmt::Display;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

/// The location of an archive.
#[derive(Clone, Debug)]
pub(crate) struct Storage {
    backend: Arc<dyn Backend>,
    /// The place of this writer among others. Clones share it.
    pub(in crate::archive) queue: Arc<Queue>,
}

impl Storage {
    /// Returns the location that a path or URL names, without accessing it.
    pub(crate) fn new(location: &Path, options: &StorageOptions) -> Result<Storage> {
        let url = location.to_str().filter(|text| text.contains("://"));
        if let Some(text) = url.filter(|text| !text.starts_with("file://")) {
            return Ok(Storage::of(ObjectPrefix::new(text, options)?));
        }
        let folder = match url {
            Some(url) => url::Url::parse(url)
                .ok()
                .and_then(|url| url.to_file_path().ok())
                .ok_or_else(|| Error::argument("path", "a folder or a URL of one", url))?,
            None => location.to_path_buf(),
        };
        let root = std::path::absolute(&folder).map_err(|source| Error::io(folder, source))?;
        Ok(Storage::of(Folder(root)))
    }

    pub(in crate::archive) fn of(backend: impl Backend + 'static) -> Storage {
        Storage { backend: Arc::new(backend), queue: Arc::default() }
    }

    /// Returns an error about a file that contradicts the rest of the archive.
    pub(in crate::archive) fn damaged(
        &self,
        path: &str,
        what: &'static str,
        expected: impl Display,
        found: impl Display,
    ) -> Error {
        Error::damaged(self.path(path), what, expected, found)
    }

    /// Returns the paths of a table's data files, in no particular order.
    pub(in crate::archive) fn data_files(&self, table: TableName) -> Result<Vec<String>> {
        let names = self.names(table.name())?;
        Ok(names.iter().filter(|name| name.ends_with(".parquet")).map(|name| format!("{table}/{name}")).collect())
    }
}

impl Deref for Storage {
    type Target = dyn Backend;

    fn deref(&self) -> &Self::Target {
        &*self.backend
    }
}
