//! Detection of files by their content, and opening of those that hold many runs.

use super::container::{FileKind, Opened, PREFIX_LEN};
use super::numpy_folder::{self, MetadataFile, StepsFile};
use super::pack::PackFile;
use super::registry::SourceFormat;
use super::run_file::{self, RunFormat};
use super::source::RunSource;
use crate::cancellation::CancellationToken;
use crate::error::Result;
use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The kind of a file that is not a run file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContainerKind {
    file: &'static dyn FileKind,
    /// The format of the runs, unless they are run files.
    format: SourceFormat,
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
    /// The name of the session, for a session.
    pub(crate) session: Option<Arc<str>>,
    /// The session's description as JSON.
    pub(crate) session_info: Option<Arc<str>>,
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
    /// Detects the kind from the first [`PREFIX_LEN`] bytes of a file.
    pub(crate) fn of(prefix: &[u8]) -> Option<ContainerKind> {
        let prefix = &prefix[..prefix.len().min(PREFIX_LEN)];
        ContainerKind::all().find(|kind| kind.file.detect(prefix))
    }

    /// Returns the kind to which the name of a file belongs.
    pub(crate) fn of_name(path: &Path) -> Option<ContainerKind> {
        let name = path.file_name()?.to_str()?;
        ContainerKind::all().find(|kind| kind.file.has_name(name))
    }

    fn all() -> impl Iterator<Item = ContainerKind> {
        // Each entry of a pack states its own format. The rows of a folder do too.
        let shared: [&'static dyn FileKind; 3] = [&PackFile, &StepsFile, &MetadataFile];
        let format = SourceFormat::File(RunFormat::A2run2);
        let shared = shared.into_iter().map(move |file| ContainerKind { file, format });
        let own = SourceFormat::ALL.into_iter().filter_map(|format| Some((format, format.container()?.files)));
        shared.chain(own.flat_map(|(format, files)| files.iter().map(move |&file| ContainerKind { file, format })))
    }

    /// Returns whether this is the main file of a container of several files.
    pub(crate) fn has_parts(self) -> bool {
        self.file.has_parts()
    }

    /// Returns the kind of the main file, if this is a part of a container.
    pub(crate) fn main(self) -> Option<ContainerKind> {
        Some(ContainerKind { file: self.file.main()?, format: self.format })
    }

    /// Returns the names of the parts of this kind that the main files in a folder refer to.
    pub(crate) fn parts_named_in(self, folder: &Path) -> HashSet<OsString> {
        self.file.parts_named_in(folder)
    }
}

impl Container {
    fn new(source: Box<dyn RunSource>, path: &Path, format: SourceFormat) -> Result<Container> {
        let (session, session_info) = source.session()?.unzip();
        Ok(Container { source, path: path.to_path_buf(), format, session, session_info })
    }
}

/// Opens a file of many runs.
pub(crate) fn open_container(
    path: &Path,
    kind: ContainerKind,
    cancel: &CancellationToken,
) -> Result<Opened<Box<Container>>> {
    Ok(match kind.file.open(path, cancel)? {
        Opened::Container(source) => Opened::Container(Box::new(Container::new(source, path, kind.format)?)),
        Opened::Folder(folder) => Opened::Folder(folder),
        Opened::Part(main) => Opened::Part(main),
        Opened::Nothing => Opened::Nothing,
    })
}

/// Opens a dataset or a session. Returns `None` if the folder holds neither.
pub(crate) fn open_folder(folder: &Path) -> Result<Option<Container>> {
    let opened = numpy_folder::open(folder)?;
    opened.map(|(format, source)| Container::new(source, folder, format)).transpose()
}
