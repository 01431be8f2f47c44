//! Folders with NumPy rows and `metadata.db`: their files, and the format of their rows.

use super::annotations;
use super::container::{FileKind, Opened};
use super::mapped::open_file;
use super::npy::NpyHeader;
use super::registry::SourceFormat;
use super::shards;
use super::source::RunSource;
use crate::cancellation::CancellationToken;
use crate::error::{Error, Result};
use crate::publish::parent;
use std::path::Path;

/// The file kind of NumPy arrays, which may hold the steps of such a folder.
#[derive(Debug)]
pub(super) struct StepsFile;

/// The file kind of SQLite databases, which may hold the metadata of such a folder.
#[derive(Debug)]
pub(super) struct MetadataFile;

impl FileKind for StepsFile {
    fn detect(&self, prefix: &[u8]) -> bool {
        prefix.starts_with(b"\x93NUMPY")
    }

    fn has_name(&self, name: &str) -> bool {
        is_name_of_steps(name)
    }

    fn open(&self, path: &Path, _: &CancellationToken) -> Result<Opened<Box<dyn RunSource>>> {
        if is_named_as_steps(path) {
            return Ok(Opened::Folder(parent(path).to_path_buf()));
        }
        match open_file(path).and_then(|file| NpyHeader::read(&file)) {
            Ok(header) if format_of(&header).is_some() => {
                let found = path.file_name().unwrap_or_default().to_string_lossy();
                let error = Error::decode(0, "name of the file of steps", "steps.npy or steps-<number>.npy", found);
                Err(error.with_path(path))
            }
            // The array holds something else.
            _ => Ok(Opened::Nothing),
        }
    }
}

impl FileKind for MetadataFile {
    fn detect(&self, prefix: &[u8]) -> bool {
        prefix.starts_with(b"SQLite format 3\0")
    }

    fn has_name(&self, name: &str) -> bool {
        name == shards::METADATA
    }

    fn open(&self, path: &Path, _: &CancellationToken) -> Result<Opened<Box<dyn RunSource>>> {
        let folder = parent(path);
        // A folder of annotations has a copy of its pool's database.
        let may_lack_steps = folder.join(annotations::MANIFEST).exists();
        if path.file_name().is_some_and(|name| name == shards::METADATA) && !may_lack_steps && !has_steps(folder)? {
            let expected = "steps.npy or steps-<number>.npy beside it";
            return Err(Error::decode(0, "file of steps", expected, "no such file").with_path(path));
        }
        Ok(Opened::Folder(folder.to_path_buf()))
    }
}

/// Opens a folder of runs and detects its format from its rows. Returns `None` if the folder holds no runs.
pub(super) fn open(folder: &Path) -> Result<Option<(SourceFormat, Box<dyn RunSource>)>> {
    if !has_steps(folder)? {
        return Ok(None);
    }
    let files = shards::files_in(folder)?;
    // `files_in` returns at least one file.
    let Some(path) = files.first() else { return Ok(None) };
    let located = |error: Error| error.of_header().with_path(path);
    let header = open_file(path).and_then(|file| NpyHeader::read(&file)).map_err(located)?;
    match format_of(&header) {
        Some((format, open)) => Ok(Some((format, open(folder)?))),
        // A `StepTable` file may have this name; no database lies beside it.
        None if !folder.join(shards::METADATA).exists() => Ok(None),
        None => {
            let expected = "the fields of a dataset, a session or a Macroxue pack, little-endian";
            Err(located(Error::decode(10, "fields of a row", expected, header.shown())))
        }
    }
}

/// Returns whether a file without runs belongs to a dataset, a session, a pack or annotations in its folder.
pub(crate) fn is_companion(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_of_folder = matches!(name, "manifest.json" | "valuation_types.json" | annotations::MANIFEST)
        || ["annotations", "embeddings", shards::METADATA].iter().any(|start| name.starts_with(start));
    is_of_folder && parent(path).join(shards::METADATA).exists()
}

fn has_steps(folder: &Path) -> Result<bool> {
    let mut entries = std::fs::read_dir(folder).map_err(|source| Error::io(folder, source))?;
    Ok(entries.any(|entry| entry.is_ok_and(|entry| is_named_as_steps(&entry.path()))))
}

fn is_named_as_steps(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(is_name_of_steps)
}

fn is_name_of_steps(name: &str) -> bool {
    name.strip_suffix(".npy").is_some_and(|name| name == "steps" || name.starts_with("steps-"))
}

type OpenFolder = fn(&Path) -> Result<Box<dyn RunSource>>;

/// Returns the format of rows with this header and how to open it, or `None` for an unknown layout.
fn format_of(header: &NpyHeader) -> Option<(SourceFormat, OpenFolder)> {
    SourceFormat::ALL.into_iter().find_map(|format| {
        let folder = format.container()?.folder.as_ref()?;
        (folder.has_rows)(header).then_some((format, folder.open))
    })
}
