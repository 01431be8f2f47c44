//! Which files hold many runs, told by their content, and how they are opened.

use super::dataset::{self, Dataset};
use super::macroxue::{self, Macroxue};
use super::mapped::open_file;
use super::npy::NpyHeader;
use super::pack::PackReader;
use super::packdat::PackDat;
use super::session::{self, Session};
use super::source::RunSource;
use super::{SourceFormat, a2run2, a2t1, shards};
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::publish::parent;
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
            None if prefix.starts_with(session::JOURNAL_MAGIC) => Content::Other,
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
        } else if macroxue::is_meta(prefix) {
            Some(ContainerKind::MacroxueMeta)
        } else if macroxue::is_rows(prefix) {
            Some(ContainerKind::MacroxueRows)
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
    /// What it says of itself, as JSON.
    pub(crate) session_info: Option<Arc<str>>,
}

/// What opening a file of a kind gave.
pub(crate) enum Opened {
    Container(Box<Container>),
    /// The folder, as which the whole of it is to be opened, by [`open_folder`].
    Folder(PathBuf),
    /// The file by which it is to be opened.
    Part(PathBuf),
    /// Nothing that holds runs, or nothing by itself.
    Nothing,
}

/// Opens a file of many runs.
pub(crate) fn open_container(path: &Path, kind: ContainerKind, progress: &dyn Progress) -> Result<Opened> {
    let container = |source: Box<dyn RunSource>, format| {
        Ok(Opened::Container(Box::new(Container {
            source,
            path: path.into(),
            format,
            session: None,
            session_info: None,
        })))
    };
    match kind {
        ContainerKind::Pack => {
            // What entries are is said by each.
            container(Box::new(PackReader::open(path)?), SourceFormat::File(super::RunFormat::A2run2))
        }
        ContainerKind::PackDat => {
            container(Box::new(PackDat::open_unless_cancelled(path, progress)?), SourceFormat::PackDat)
        }
        ContainerKind::MacroxueMeta => container(Box::new(Macroxue::open(path)?), SourceFormat::Macroxue),
        ContainerKind::MacroxueRows => match macroxue::meta_of(path) {
            Some(meta) => Ok(Opened::Part(meta)),
            None => {
                let expected = "NAME.meta.json beside its NAME.jsonl";
                Err(Error::decode(0, "meta file of these steps", expected, "none").with_path(path))
            }
        },
        ContainerKind::Npy => {
            if is_named_as_steps(path) {
                return Ok(Opened::Folder(parent(path).to_path_buf()));
            }
            match rows_in(path) {
                Ok(Some(_)) if !session::is_unrecorded(path) => {
                    let found = path.file_name().unwrap_or_default().to_string_lossy();
                    let error = Error::decode(0, "name of the file of steps", "steps.npy or steps-<number>.npy", found);
                    Err(error.with_path(path))
                }
                // Arrays of anything else lie about too.
                _ => Ok(Opened::Nothing),
            }
        }
        ContainerKind::Sqlite => Ok(Opened::Folder(parent(path).to_path_buf())),
    }
}

/// Opens a dataset or a session; `None` if the folder holds neither.
pub(crate) fn open_folder(folder: &Path) -> Result<Option<Container>> {
    let mut entries = std::fs::read_dir(folder).map_err(|source| Error::io(folder, source))?;
    if !entries.any(|entry| entry.is_ok_and(|entry| is_named_as_steps(&entry.path()))) {
        return Ok(None);
    }
    let files = shards::files_in(folder)?;
    let rows = files.first().map(|path| rows_in(path).map_err(|error| error.of_header().with_path(path)));
    match rows.transpose()?.flatten() {
        Some(SourceFormat::Session) => {
            let session = Session::open(folder)?;
            let (path, name) = (folder.to_path_buf(), Some(session.name().into()));
            let info = serde_json::to_string(&session.info()).map_err(std::io::Error::other)?;
            Ok(Some(Container {
                source: Box::new(session),
                path,
                format: SourceFormat::Session,
                session: name,
                session_info: Some(info.into()),
            }))
        }
        Some(format) => {
            let (path, dataset) = (folder.to_path_buf(), Dataset::open(folder)?);
            Ok(Some(Container { source: Box::new(dataset), path, format, session: None, session_info: None }))
        }
        // A table that was saved under this name lies alone.
        None if !folder.join("metadata.db").exists() => Ok(None),
        None => {
            let expected = "those of a dataset or of a session, little-endian and packed";
            let error = Error::decode(10, "fields of a row", expected, "others").of_header();
            Err(error.with_path(files.first().map_or(folder, PathBuf::as_path)))
        }
    }
}

fn is_named_as_steps(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".npy"));
    name.is_some_and(|name| name == "steps" || name.starts_with("steps-"))
}

/// Of which format the rows of a NumPy file are; `None` = of none.
fn rows_in(path: &Path) -> Result<Option<SourceFormat>> {
    let header = NpyHeader::read(&open_file(path)?)?;
    Ok(if session::has_rows(&header) {
        Some(SourceFormat::Session)
    } else if dataset::has_rows(&header) {
        Some(SourceFormat::Npy)
    } else {
        None
    })
}
