//! Detection of files by their content, and opening of those that hold many runs.

use super::registry::SourceFormat;
use super::run_file::{self, PREFIX_LEN, RunFormat};
use super::source::RunSource;
use super::{macroxue, npy, numpy_folder, pack, packdat, shards, sqlite};
use crate::cancellation::CancellationToken;
use crate::error::{Error, Result};
use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The kind of a file that is not a run file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContainerKind {
    Pack,
    PackDat,
    /// A NumPy array, which may hold the steps of a folder of runs.
    Steps,
    /// An SQLite database, which may hold the metadata of a folder of runs.
    Metadata,
    /// The meta file of a Macroxue log. It is the main file of the log.
    LogMeta,
    /// The rows of a Macroxue log.
    LogRows,
}

/// The kind of content that the first bytes of a file indicate.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Content {
    Run,
    Container(ContainerKind),
    Other,
}

/// An open file or folder of runs.
#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) source: Box<dyn RunSource>,
    /// The file, or the folder of a dataset or session.
    pub(crate) path: PathBuf,
    /// The format of the runs, unless they are run files.
    pub(crate) format: SourceFormat,
    /// The name of the session or Macroxue pack.
    pub(crate) session: Option<Arc<str>>,
}

/// The result of opening a file of a known kind.
pub(crate) enum Opened {
    Container(Container),
    /// The file belongs to this folder, which must be opened as a whole.
    Folder(PathBuf),
    /// The file is a part of a container. Open the container by this main file.
    Part(PathBuf),
    /// The file holds no runs, or its runs cannot be read without other files.
    Nothing,
}

impl Content {
    /// Detects the content from the first [`PREFIX_LEN`] bytes of a file, or from all bytes of a shorter one.
    pub(crate) fn of(prefix: &[u8]) -> Content {
        match ContainerKind::of(prefix) {
            Some(kind) => Content::Container(kind),
            None if run_file::is_run(prefix) => Content::Run,
            None => Content::Other,
        }
    }
}

impl ContainerKind {
    const ALL: [ContainerKind; 6] = [
        ContainerKind::Pack,
        ContainerKind::Steps,
        ContainerKind::Metadata,
        ContainerKind::PackDat,
        ContainerKind::LogMeta,
        ContainerKind::LogRows,
    ];

    /// Detects the kind from the first [`PREFIX_LEN`] bytes of a file.
    pub(crate) fn of(prefix: &[u8]) -> Option<ContainerKind> {
        let prefix = &prefix[..prefix.len().min(PREFIX_LEN)];
        ContainerKind::ALL.into_iter().find(|kind| match kind {
            ContainerKind::Pack => prefix.starts_with(&pack::MAGIC),
            ContainerKind::PackDat => prefix.starts_with(packdat::PREFIX),
            ContainerKind::Steps => prefix.starts_with(npy::MAGIC),
            ContainerKind::Metadata => prefix.starts_with(sqlite::MAGIC),
            ContainerKind::LogMeta => macroxue::is_meta(prefix),
            ContainerKind::LogRows => macroxue::is_rows(prefix),
        })
    }

    /// Returns the kind to which the name of a file belongs. A file of this name with other content is damaged.
    pub(crate) fn of_name(path: &Path) -> Option<ContainerKind> {
        let name = path.file_name()?.to_str()?;
        ContainerKind::ALL.into_iter().find(|kind| match kind {
            ContainerKind::Pack => name.ends_with(".a2pack"),
            ContainerKind::PackDat => name.ends_with("pack.dat"),
            ContainerKind::Steps => numpy_folder::is_name_of_steps(name),
            ContainerKind::Metadata => name == shards::METADATA,
            ContainerKind::LogMeta => name.strip_suffix(".gz").unwrap_or(name).ends_with(".meta.json"),
            ContainerKind::LogRows => false,
        })
    }

    /// Returns whether this is the main file of a container of several files.
    pub(crate) fn has_parts(self) -> bool {
        self == ContainerKind::LogMeta
    }

    /// Returns the kind of the main file, if this is a part of a container.
    pub(crate) fn main(self) -> Option<ContainerKind> {
        (self == ContainerKind::LogRows).then_some(ContainerKind::LogMeta)
    }

    /// Returns the names of the parts of this kind that the main files in a folder refer to.
    pub(crate) fn parts_named_in(self, folder: &Path) -> HashSet<OsString> {
        if self == ContainerKind::LogRows { macroxue::rows_named_in(folder) } else { HashSet::new() }
    }
}

impl Container {
    fn new(source: Box<dyn RunSource>, path: &Path, format: SourceFormat) -> Container {
        let session = source.session();
        Container { source, path: path.to_path_buf(), format, session }
    }
}

/// Opens a file of many runs.
pub(crate) fn open_container(path: &Path, kind: ContainerKind, cancel: &CancellationToken) -> Result<Opened> {
    let opened = |source, format| Ok(Opened::Container(Container::new(source, path, format)));
    match kind {
        ContainerKind::Pack => {
            // Each entry states its own format.
            opened(Box::new(pack::PackReader::open(path)?), SourceFormat::File(RunFormat::A2run2))
        }
        ContainerKind::PackDat => opened(Box::new(packdat::PackDat::open_with(path, cancel)?), SourceFormat::PackDat),
        ContainerKind::LogMeta => opened(Box::new(macroxue::Macroxue::open(path)?), SourceFormat::Macroxue),
        ContainerKind::LogRows => match macroxue::meta_of(path) {
            Some(meta) => Ok(Opened::Part(meta)),
            None => {
                let expected = "NAME.meta.json beside its NAME.jsonl";
                Err(Error::decode(0, "meta file of these steps", expected, "none").with_path(path))
            }
        },
        ContainerKind::Steps => Ok(numpy_folder::folder_of_steps(path)?.map_or(Opened::Nothing, Opened::Folder)),
        ContainerKind::Metadata => numpy_folder::folder_of_metadata(path).map(Opened::Folder),
    }
}

/// Opens a dataset, a session or a Macroxue pack. Returns `None` if the folder holds none of them.
pub(crate) fn open_folder(folder: &Path) -> Result<Option<Container>> {
    let opened = numpy_folder::open(folder)?;
    Ok(opened.map(|(format, source)| Container::new(source, folder, format)))
}
