//! Detection of files by their content, and opening of those that hold many runs.

use crate::error::Result;
use crate::format::files::mapped_rows;
use crate::format::files::npy;
use crate::format::files::sqlite;
use crate::format::macroxue;
use crate::format::numpy_folder;
use crate::format::pack;
use crate::format::packdat;
use crate::format::registry::SourceFormat;
use crate::format::run_file::{self, PREFIX_LEN, RunFormat};
use crate::format::source::RunSource;
use crate::system::cancellation::CancellationToken;
use crate::system::publish::parent;
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
            ContainerKind::Metadata => name == mapped_rows::METADATA,
            ContainerKind::LogMeta => name.strip_suffix(".gz").unwrap_or(name).ends_with(".meta.json"),
            ContainerKind::LogRows => false,
        })
    }

    /// Returns whether several files belong to the container of a file of this kind.
    pub(crate) fn has_parts(self) -> bool {
        !matches!(self, ContainerKind::Pack | ContainerKind::PackDat)
    }

    /// Returns the path of the container that a file of this kind belongs to: the file, the folder of a dataset or
    /// session, or the meta file of a log. Returns `None` for an array that holds no steps, according to its name.
    pub(crate) fn container_of(self, path: &Path) -> Option<PathBuf> {
        match self {
            ContainerKind::Steps => numpy_folder::is_named_as_steps(path).then(|| parent(path).to_path_buf()),
            ContainerKind::Metadata => Some(parent(path).to_path_buf()),
            ContainerKind::LogRows => Some(macroxue::meta_of(path)),
            ContainerKind::Pack | ContainerKind::PackDat | ContainerKind::LogMeta => Some(path.to_path_buf()),
        }
    }
}

/// Opens the container of a file of this kind ([`ContainerKind::container_of`]). Returns `None` if a folder holds no
/// runs.
pub(crate) fn open_container(
    container: &Path,
    kind: ContainerKind,
    cancel: &CancellationToken,
) -> Result<Option<Container>> {
    let (format, source): (SourceFormat, Box<dyn RunSource>) = match kind {
        // Each entry states its own format.
        ContainerKind::Pack => (SourceFormat::File(RunFormat::A2run2), Box::new(pack::PackReader::open(container)?)),
        ContainerKind::PackDat => (SourceFormat::PackDat, Box::new(packdat::PackDat::open_with(container, cancel)?)),
        ContainerKind::LogMeta | ContainerKind::LogRows => {
            (SourceFormat::Macroxue, Box::new(macroxue::Macroxue::open(container)?))
        }
        ContainerKind::Steps | ContainerKind::Metadata => match numpy_folder::open(container)? {
            Some(opened) => opened,
            None => return Ok(None),
        },
    };
    let session = source.session();
    Ok(Some(Container { source, path: container.to_path_buf(), format, session }))
}
