//! The interface of a container format: how its files are detected and opened.

use super::npy::NpyHeader;
use super::source::RunSource;
use crate::cancellation::CancellationToken;
use crate::error::Result;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

/// The number of bytes at the start of a file that detection reads.
pub(crate) const PREFIX_LEN: usize = 4096;

/// The description of a format that holds many runs, or one run that is not a run file.
pub(super) struct ContainerFormat {
    pub(super) name: &'static str,
    /// Whether runs may lack some of their steps.
    pub(super) may_be_sampled: bool,
    /// The kinds of files of this format. Empty for a folder of NumPy rows.
    pub(super) files: &'static [&'static dyn FileKind],
    /// The format as a folder of NumPy rows.
    pub(super) folder: Option<RowFolder>,
}

/// A format that consists of a folder with NumPy rows and `metadata.db`.
pub(super) struct RowFolder {
    /// Returns whether an array with this header holds rows of the format.
    pub(super) has_rows: fn(&NpyHeader) -> bool,
    pub(super) open: fn(&Path) -> Result<Box<dyn RunSource>>,
}

/// A kind of file that holds many runs, or a part of them.
pub(super) trait FileKind: fmt::Debug + Send + Sync {
    /// Returns whether a file with this prefix is of this kind.
    fn detect(&self, prefix: &[u8]) -> bool;

    /// Returns whether this name belongs to this kind. A file of this name with other content is damaged.
    fn has_name(&self, name: &str) -> bool {
        let _ = name;
        false
    }

    /// Opens a file of this kind.
    fn open(&self, path: &Path, cancel: &CancellationToken) -> Result<Opened<Box<dyn RunSource>>>;

    /// Returns whether opening another file may give [`Opened::Part`] with the path of a file of this kind.
    fn has_parts(&self) -> bool {
        false
    }

    /// Returns the kind of the main file, if a file of this kind is a part of a container.
    fn main(&self) -> Option<&'static dyn FileKind> {
        None
    }

    /// Returns the names of the files of this kind that the main files in a folder refer to.
    fn parts_named_in(&self, folder: &Path) -> HashSet<OsString> {
        let _ = folder;
        HashSet::new()
    }
}

/// The result of opening a file of a known kind.
pub(crate) enum Opened<T> {
    Container(T),
    /// The file belongs to this folder, which must be opened as a whole.
    Folder(PathBuf),
    /// The file is a part of a container. Open the container by this main file.
    Part(PathBuf),
    /// The file holds no runs, or its runs cannot be read without other files.
    Nothing,
}
