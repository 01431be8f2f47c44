//! Which files hold many runs, told by their content, and how they are opened.

use super::source::RunSource;
use super::{SourceFormat, a2run2, a2t1};
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a file that is not a run file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContainerKind {
    /// An a2pack.
    Pack,
    PackDat,
    /// The rows of a dataset or of a session.
    Npy,
    /// The runs of a dataset or of a session.
    Sqlite,
    /// What a Macroxue log says of its game.
    MacroxueMeta,
    /// The steps of one.
    MacroxueRows,
}

/// What the first bytes of a file say that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Run,
    Container(ContainerKind),
    Other,
}

/// So many of a file's first bytes tell what it is.
pub(crate) const PREFIX_LEN: usize = 4096;

impl Content {
    /// Tells a file by its first bytes, [`PREFIX_LEN`] of them or all that there are.
    pub(crate) fn of(prefix: &[u8]) -> Content {
        match ContainerKind::of(prefix) {
            Some(kind) => Content::Container(kind),
            None if prefix.starts_with(a2t1::MAGIC) || a2run2::begins(prefix) => Content::Run,
            None => Content::Other,
        }
    }
}

impl ContainerKind {
    pub(crate) fn of(prefix: &[u8]) -> Option<ContainerKind> {
        let prefix = &prefix[..prefix.len().min(PREFIX_LEN)];
        if prefix.starts_with(b"A2PACK\0\0") {
            Some(ContainerKind::Pack)
        } else if prefix.starts_with(b"2048\x01\0\0\0") {
            Some(ContainerKind::PackDat)
        } else if prefix.starts_with(b"\x93NUMPY") {
            Some(ContainerKind::Npy)
        } else if prefix.starts_with(b"SQLite format 3\0") {
            Some(ContainerKind::Sqlite)
        } else {
            None
        }
    }
}

/// A file or a folder of runs.
#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) source: Box<dyn RunSource>,
    /// The file, or the folder of a dataset or session.
    pub(crate) path: PathBuf,
    /// The format of its runs, if they are not run files.
    pub(crate) format: SourceFormat,
    /// The session's name, if it is one.
    pub(crate) session: Option<Arc<str>>,
}

/// What opening a file of a kind gave.
pub(crate) enum Opened {
    Container(Box<Container>),
    /// The folder, as which the whole of it is to be opened, by [`open_folder`].
    Folder(PathBuf),
    /// Nothing that holds runs, or nothing by itself.
    Nothing,
}

/// Opens a file of many runs.
pub(crate) fn open_container(_path: &Path, _kind: ContainerKind) -> Result<Opened> {
    Ok(Opened::Nothing)
}
pub(crate) fn open_folder(_folder: &Path) -> Result<Option<Container>> {
    Ok(None)
}
