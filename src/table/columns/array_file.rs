//! Arrays of `[rows, D]` numbers in `.npy` files, and the JSON description beside an array.

use crate::error::{Error, Result};
use crate::format::npy::NpyMatrix;
use crate::format::{header_error, numbered_files, open_file, read_json};
use crate::table::columns::attached::{AttachedColumn, RowPlaces, ValueFile};
use crate::table::columns::step_keys::StepKeys;
use crate::table::rows::element::ElementType;
use crate::table::rows::memory::{FileIdentity, FrozenRegion};
use serde::Deserialize;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The maximum size of a row in bytes. Embeddings are smaller.
const MAX_WIDTH: u64 = 1 << 20;
/// The maximum size of a description in bytes.
const MAX_DESCRIPTION: u64 = 1 << 20;

/// An array file whose header was read.
struct ArrayFile {
    file: File,
    identity: FileIdentity,
    start: u64,
    num_rows: u64,
    values_per_row: usize,
    dtype: ElementType,
}

/// The files of an array in order: one file, or numbered shards of it. All have the same type and number of values per
/// row, and there is at least one. Some programs write one shard of embeddings for each shard of steps.
pub(in crate::table) struct ArrayFiles(Vec<ArrayFile>);

/// The fields of `embeddings.json` that matter here.
#[derive(Debug, Default, Deserialize)]
struct Description {
    #[serde(rename = "D")]
    values_per_row: Option<u64>,
    dtype: Option<String>,
    dtype_bits: Option<String>,
}

impl ArrayFiles {
    /// Opens the file at `path`, or `embeddings.npy` or its shards in a folder.
    pub(in crate::table) fn open(path: &Path) -> Result<ArrayFiles> {
        let paths = match path.is_dir() {
            true => numbered_files(path, "embeddings", "files of the embeddings")?,
            false => vec![path.to_owned()],
        };
        let files = paths.iter().map(|path| ArrayFile::open(path)).collect::<Result<Vec<_>>>()?;
        let first = &files[0];
        let values_of = |file: &ArrayFile| format!("{} × {}", file.values_per_row, file.dtype.numpy());
        if let Some(other) = files.iter().find(|other| values_of(other) != values_of(first)) {
            let expected = format!("{}, as {} has", values_of(first), first.identity.path.display());
            return Err(header_error("values of a row", expected, values_of(other), &other.identity.path));
        }
        Ok(ArrayFiles(files))
    }

    pub(in crate::table) fn path(&self) -> &Path {
        &self.0[0].identity.path
    }

    /// Returns an error unless the array has one row per key. With as many files as the keys have, each file must have
    /// one row per key of its counterpart.
    pub(in crate::table) fn check_rows(&self, keys: &StepKeys) -> Result<()> {
        let (num_files, num_key_files) = (self.0.len(), keys.files().len());
        if num_files == num_key_files {
            let mut pairs = self.0.iter().zip(keys.files());
            let Some((file, (path, num_keys))) = pairs.find(|(file, (_, num_keys))| file.num_rows != *num_keys) else {
                return Ok(());
            };
            let expected = format!("{num_keys}, as many as {}", path.display());
            return Err(header_error("rows of the array", expected, file.num_rows.to_string(), &file.identity.path));
        }
        let num_rows: u64 = self.0.iter().map(|file| file.num_rows).sum();
        if num_rows == keys.num_rows() {
            return Ok(());
        }
        let expected = format!("{} in {num_key_files} files, as {} has", keys.num_rows(), keys.path().display());
        Err(header_error("rows of the array", expected, format!("{num_rows} in {num_files}"), self.path()))
    }

    /// Maps the values as a column of a table whose rows have these places.
    pub(in crate::table) fn column(&self, name: &str, places: RowPlaces) -> Result<AttachedColumn> {
        let mut first_row = 0;
        let shard = |file: &ArrayFile| {
            let shard = ValueFile { first_row, values: file.map()? };
            first_row += file.num_rows;
            Ok(shard)
        };
        let values = self.0.iter().map(shard).collect::<Result<_>>()?;
        let ArrayFile { dtype, values_per_row, .. } = self.0[0];
        Ok(AttachedColumn { name: name.into(), dtype, values_per_row, values, places })
    }
}

impl ArrayFile {
    fn open(path: &Path) -> Result<ArrayFile> {
        let file = open_file(path)?;
        let identity = FileIdentity::of(path, &file)?;
        let located = |error: Error| error.of_header().with_path(path);
        let header = NpyMatrix::read(&file).map_err(located)?;
        // NumPy stores the native bfloat16 of other libraries as two bytes without a type.
        let name = if header.dtype == "|V2" || header.dtype == "<V2" { "<u2" } else { &header.dtype };
        let of_numpy = ElementType::of_numpy(name).filter(|dtype| *dtype != ElementType::Bool);
        let refuse = |what, expected: &str, found: String| Err(header_error(what, expected, found, path));
        let Some(of_numpy) = of_numpy else {
            return refuse("type of the values", "little-endian integers or floats", header.dtype);
        };
        let dtype = declared(path, of_numpy, header.values_per_row)?;
        if name != header.dtype && dtype != ElementType::BFloat16 {
            return refuse("type of the values", "a description with the dtype bf16", header.dtype);
        }
        let width = header.values_per_row.saturating_mul(dtype.width() as u64);
        if !(1..=MAX_WIDTH).contains(&width) {
            let expected = format!("1..={} values of {} bytes", MAX_WIDTH / dtype.width() as u64, dtype.width());
            return refuse("values of a row", &expected, header.values_per_row.to_string());
        }
        header.check_file_len(width, identity.num_bytes).map_err(located)?;
        let (start, num_rows, values_per_row) = (header.len, header.num_rows, header.values_per_row as usize);
        Ok(ArrayFile { file, identity, start, num_rows, values_per_row, dtype })
    }

    fn map(&self) -> Result<FrozenRegion> {
        let num_bytes = self.num_rows * (self.values_per_row * self.dtype.width()) as u64;
        FrozenRegion::of_file(&self.file, self.start, num_bytes as usize, self.identity.clone())
    }
}

/// Returns the type of an array's values, which a description may declare. The description must match the
/// array.
fn declared(path: &Path, of_numpy: ElementType, values_per_row: u64) -> Result<ElementType> {
    let file = description_of(path);
    let expected = "an object whose D is an integer, dtype and dtype_bits names";
    let description = read_json::<Description>(&file, MAX_DESCRIPTION, "description of an array", expected)?;
    let Some(description) = description else {
        if of_numpy == ElementType::UInt16 && has_tag(path, &["bf16"]) {
            let expected = format!("a description that declares bf16, {}", file.display());
            return Err(header_error("type of the values", expected, "none".into(), path));
        }
        return Ok(of_numpy);
    };
    let refuse = |what, expected: String, found: String| Err(header_error(what, expected, found, &file));
    if let Some(found) = description.values_per_row.filter(|&found| found != values_per_row) {
        return refuse("D", format!("{values_per_row}, as the array has"), found.to_string());
    }
    let mut dtype = of_numpy;
    for (key, name) in [("dtype", description.dtype), ("dtype_bits", description.dtype_bits)] {
        let Some(name) = name else { continue };
        match element(&name) {
            Some(ElementType::BFloat16) if of_numpy == ElementType::UInt16 => dtype = ElementType::BFloat16,
            Some(named) if named == of_numpy => {}
            _ => return refuse(key, format!("a name of {}, as the array has", of_numpy.numpy()), format!("{name:?}")),
        }
    }
    Ok(dtype)
}

/// Returns the type of a common name, such as `bf16`, `float32` or NumPy's `<f4`.
fn element(name: &str) -> Option<ElementType> {
    match name {
        "bf16" => Some(ElementType::BFloat16),
        "f16" => Some(ElementType::Float16),
        "f32" => Some(ElementType::Float32),
        name => ElementType::of_numpy(name).or_else(|| serde_json::from_value(name.into()).ok()),
    }
}

/// Returns whether the file name has one of these tags between its stem and `.npy`.
fn has_tag(path: &Path, tags: &[&str]) -> bool {
    let stem = path.file_stem().map(Path::new);
    stem.and_then(Path::extension).is_some_and(|tag| tags.iter().any(|other| tag == *other))
}

/// Returns the path of an array's description: `embeddings.json` for `embeddings.npy` and
/// `embeddings.bf16.npy`.
fn description_of(path: &Path) -> PathBuf {
    match has_tag(path, &["bf16", "f16", "f32", "fp16", "fp32"]) {
        true => path.with_extension("").with_extension("json"),
        false => path.with_extension("json"),
    }
}
