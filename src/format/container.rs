//! Detection of files that hold many runs, by their content, and how to open them.

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
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The kind of a file that is not a run file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContainerKind {
    /// An a2pack.
    Pack,
    PackDat,
    /// The steps of a dataset or of a session.
    Npy,
    /// The run metadata of a dataset or of a session.
    Sqlite,
    /// The meta file of a Macroxue log.
    MacroxueMeta,
    /// The steps of a Macroxue log.
    MacroxueRows,
}

/// The kind of content that the first bytes of a file indicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Run,
    Container(ContainerKind),
    Other,
}

/// The number of bytes at the start of a file that detection reads.
pub(crate) const PREFIX_LEN: usize = 4096;

impl Content {
    /// Detects the content from the first [`PREFIX_LEN`] bytes of a file, or from all bytes of a shorter one.
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

/// An open file or folder of runs.
#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) source: Box<dyn RunSource>,
    /// The file, or the folder of a dataset or session.
    pub(crate) path: PathBuf,
    /// The format of the runs, unless they are run files.
    pub(crate) format: SourceFormat,
    /// The name of the session, for a session.
    pub(crate) session: Option<Arc<str>>,
    /// The session's description as JSON.
    pub(crate) session_info: Option<Arc<str>>,
}

/// The result of opening a file of a known kind.
pub(crate) enum Opened {
    Container(Box<Container>),
    /// The file belongs to this folder. Open the folder with [`open_folder`].
    Folder(PathBuf),
    /// The file belongs to a log. Open the log by this meta file.
    Part(PathBuf),
    /// The file holds no runs, or none without other files.
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
            // Each entry of a pack states its own format.
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
                return Ok(Opened::Folder(folder_of(path)));
            }
            match rows_in(path) {
                Ok(Some(_)) if !session::is_unrecorded(path) => {
                    let found = path.file_name().unwrap_or_default().to_string_lossy();
                    let error = Error::decode(0, "name of the file of steps", "steps.npy or steps-<number>.npy", found);
                    Err(error.with_path(path))
                }
                // The array holds something else.
                _ => Ok(Opened::Nothing),
            }
        }
        ContainerKind::Sqlite => Ok(Opened::Folder(folder_of(path))),
    }
}

/// Opens a dataset or a session. Returns `None` if the folder holds neither.
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
        // A `StepTable` file may have this name; no database lies beside it.
        None if !folder.join("metadata.db").exists() => Ok(None),
        None => {
            let expected = "the fields of a dataset or a session, little-endian and packed";
            let error = Error::decode(10, "fields of a row", expected, "other fields").of_header();
            Err(error.with_path(files.first().map_or(folder, PathBuf::as_path)))
        }
    }
}

fn is_named_as_steps(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".npy"));
    name.is_some_and(|name| name == "steps" || name.starts_with("steps-"))
}

/// Returns the format of the rows in a NumPy file, or `None` for an unknown layout.
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

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_path_buf(),
        _ => PathBuf::from("."),
    }
}
