//! Folders with NumPy rows and `metadata.db`: their files, and the format of their rows.

use crate::error::{Error, Result};
use crate::format::annotations;
use crate::format::dataset;
use crate::format::files::mapped::open_file;
use crate::format::files::mapped_rows;
use crate::format::files::npy::NpyHeader;
use crate::format::macroxue_pack;
use crate::format::registry::SourceFormat;
use crate::format::session;
use crate::format::source::RunSource;
use crate::system::publish::parent;
use std::path::Path;

/// Opens a folder of runs and detects its format from its rows. Returns `None` if the folder holds no runs.
pub(in crate::format) fn open(folder: &Path) -> Result<Option<(SourceFormat, Box<dyn RunSource>)>> {
    if !has_steps(folder)? {
        let metadata = folder.join(mapped_rows::METADATA);
        // A folder of annotations has a copy of its pool's database.
        if !metadata.exists() || folder.join(annotations::MANIFEST).exists() {
            return Ok(None);
        }
        let expected = "steps.npy or steps-<number>.npy beside it";
        return Err(Error::decode(0, "file of steps", expected, "no such file").with_path(metadata));
    }
    let files = mapped_rows::files_in(folder)?;
    // `files_in` returns at least one file.
    let Some(path) = files.first() else { return Ok(None) };
    let located = |error: Error| error.of_header().with_path(path);
    let header = open_file(path).and_then(|file| NpyHeader::read(&file)).map_err(located)?;
    let opened: (SourceFormat, Box<dyn RunSource>) = if dataset::has_rows(&header) {
        (SourceFormat::Npy, Box::new(dataset::Dataset::open(folder)?))
    } else if session::has_rows(&header) {
        (SourceFormat::Session, Box::new(session::Session::open(folder)?))
    } else if macroxue_pack::has_rows(&header) {
        (SourceFormat::Macroxue, Box::new(macroxue_pack::MacroxuePack::open(folder)?))
    } else if folder.join(mapped_rows::METADATA).exists() {
        let expected = "the fields of a dataset, a session or a Macroxue pack, little-endian";
        return Err(located(Error::decode(10, "fields of a row", expected, header.shown())));
    } else {
        // A `StepTable` file may have this name; no database lies beside it.
        return Ok(None);
    };
    Ok(Some(opened))
}

/// Returns whether a file without runs belongs to a dataset, a session, a pack or annotations in its folder.
pub(crate) fn is_companion(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_of_folder = matches!(name, "manifest.json" | "valuation_types.json" | annotations::MANIFEST)
        || ["annotations", "embeddings", mapped_rows::METADATA].iter().any(|start| name.starts_with(start));
    is_of_folder && parent(path).join(mapped_rows::METADATA).exists()
}

/// Returns whether a file of this name holds steps.
pub(in crate::format) fn is_name_of_steps(name: &str) -> bool {
    name.strip_suffix(".npy").is_some_and(|name| name == "steps" || name.starts_with("steps-"))
}

pub(in crate::format) fn is_named_as_steps(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(is_name_of_steps)
}

fn has_steps(folder: &Path) -> Result<bool> {
    let mut entries = std::fs::read_dir(folder).map_err(|source| Error::io(folder, source))?;
    Ok(entries.any(|entry| entry.is_ok_and(|entry| is_named_as_steps(&entry.path()))))
}
