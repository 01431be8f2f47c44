//! Arrays of `[rows, D]` numbers in `.npy` files, and the JSON description beside an array.

use super::element::ElementType;
use super::file_identity::FileIdentity;
use super::memory::{FrozenRegion, Region};
use crate::cancellation::CancellationToken;
use crate::error::{Error, Result};
use crate::format::npy::NpyMatrix;
use crate::format::{header_error, open_file};
use crate::progress::Progress;
use crate::workers;
use rayon::prelude::*;
use serde::Deserialize;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The maximum size of a row in bytes. Embeddings are smaller.
const MAX_WIDTH: u64 = 1 << 20;
/// The maximum size of a description in bytes.
const MAX_DESCRIPTION: u64 = 1 << 20;
/// The number of bytes that are read at a time.
const CHUNK: usize = 8 << 20;

/// An array file whose header was read.
pub(super) struct ArrayFile {
    file: File,
    identity: FileIdentity,
    start: u64,
    num_rows: u64,
    values_per_row: usize,
    dtype: ElementType,
}

/// The fields of `embeddings.json` that matter here.
#[derive(Debug, Default, Deserialize)]
struct Description {
    #[serde(rename = "D")]
    values_per_row: Option<u64>,
    dtype: Option<String>,
    dtype_bits: Option<String>,
}

impl ArrayFile {
    pub(super) fn open(path: &Path) -> Result<ArrayFile> {
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

    pub(super) fn path(&self) -> &Path {
        &self.identity.path
    }

    pub(super) fn dtype(&self) -> ElementType {
        self.dtype
    }

    pub(super) fn values_per_row(&self) -> usize {
        self.values_per_row
    }

    pub(super) fn num_bytes(&self) -> u64 {
        self.num_rows * (self.values_per_row * self.dtype.width()) as u64
    }

    pub(super) fn num_rows(&self) -> u64 {
        self.num_rows
    }

    pub(super) fn identity(&self) -> &FileIdentity {
        &self.identity
    }

    /// Returns an error unless the array has one row per key.
    pub(super) fn check_rows(&self, num_keys: u64, keys: &Path) -> Result<()> {
        if self.num_rows == num_keys {
            return Ok(());
        }
        let expected = format!("{num_keys}, as many as {}", keys.display());
        Err(header_error("rows of the array", expected, self.num_rows.to_string(), &self.identity.path))
    }

    /// Maps the values.
    pub(super) fn map(&self) -> Result<FrozenRegion> {
        FrozenRegion::of_file(&self.file, self.start, self.num_bytes() as usize, self.identity.clone())
    }

    /// Reads the values into memory on all cores.
    pub(super) fn read(&self, progress: &dyn Progress, cancel: &CancellationToken) -> Result<FrozenRegion> {
        let needed = self.num_bytes();
        let len = needed as usize;
        let mut region = Region::reserve(needed)?;
        let read = |(k, bytes): (usize, &mut [u8])| {
            cancel.check()?;
            let offset = self.start + (k * CHUNK) as u64;
            self.file.read_exact_at(bytes, offset).map_err(|error| Error::io(&self.identity.path, error))?;
            progress.advance(bytes.len() as u64);
            Ok::<(), Error>(())
        };
        let bytes = &mut region.bytes_mut()[..len];
        workers::shared()?.install(|| bytes.par_chunks_mut(CHUNK).enumerate().try_for_each(read))?;
        region.freeze(len)
    }
}

/// Returns the type of an array's values, which a description may declare. The description must match the
/// array.
fn declared(path: &Path, of_numpy: ElementType, values_per_row: u64) -> Result<ElementType> {
    let Some((file, description)) = Description::beside(path)? else {
        if of_numpy == ElementType::UInt16 && has_tag(path, &["bf16"]) {
            let expected = format!("a description that declares bf16, {}", description_of(path).display());
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

/// Returns the type of a common name.
fn element(name: &str) -> Option<ElementType> {
    Some(match name {
        "bf16" | "bfloat16" => ElementType::BFloat16,
        "f16" | "fp16" | "float16" => ElementType::Float16,
        "f32" | "fp32" | "float32" => ElementType::Float32,
        "f64" | "fp64" | "float64" => ElementType::Float64,
        "i8" | "int8" => ElementType::Int8,
        "i16" | "int16" => ElementType::Int16,
        "i32" | "int32" => ElementType::Int32,
        "i64" | "int64" => ElementType::Int64,
        "u8" | "uint8" => ElementType::UInt8,
        "u16" | "uint16" => ElementType::UInt16,
        "u32" | "uint32" => ElementType::UInt32,
        "u64" | "uint64" => ElementType::UInt64,
        name => return ElementType::of_numpy(name),
    })
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

impl Description {
    /// Reads the description of an array, if it has one, and returns it with its path.
    fn beside(path: &Path) -> Result<Option<(PathBuf, Description)>> {
        let path = description_of(path);
        match path.metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            _ => {}
        }
        let mut text = Vec::new();
        let read = open_file(&path)?.take(MAX_DESCRIPTION + 1).read_to_end(&mut text);
        read.map_err(|error| Error::io(&path, error))?;
        if text.len() as u64 > MAX_DESCRIPTION {
            let expected = format!("at most {MAX_DESCRIPTION} bytes");
            return Err(header_error("description of an array", expected, "more".into(), &path));
        }
        let description = serde_json::from_slice(&text).map_err(|error| {
            let expected = "an object whose D is an integer, dtype and dtype_bits names";
            header_error("description of an array", expected, error.to_string(), &path)
        })?;
        Ok(Some((path, description)))
    }
}
