//! The layout of a pack's files: the form of its rows, its header and its shards. An archive keeps it, so that the pack
//! can be exported unchanged.

use super::row::AlignedRow;
use super::valuation_types::ValuationTypes;
use crate::error::{Error, Result};
use crate::format::npy::{self, HeaderTemplate, NpyHeader};
use crate::format::shards::{NpyRow, SINGLE, ShardNumbering};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

/// The naming of shards by the field's packer.
pub(super) const NUMBERING: ShardNumbering = ShardNumbering { digits: 5, first: 0 };

/// The layout of a pack.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PackLayout {
    /// Whether rows have 48 bytes.
    pub(super) aligned: bool,
    /// The header of the first file, one character per byte; `None` = NumPy's own.
    header: Option<String>,
    /// `None` for one `steps.npy`.
    shards: Option<Shards>,
    /// The text of `valuation_types.json`.
    valuation_types: String,
    /// The number of runs in `metadata.db`.
    num_runs: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Shards {
    digits: usize,
    first: u64,
    /// Stretches of shards of equal size: the number of rows per shard, and the number of shards.
    rows: Vec<(u64, u64)>,
}

impl PackLayout {
    /// Returns the layout of the field's packer, with the usual valuation types.
    pub(super) fn of_packer(shards: bool) -> Result<PackLayout> {
        let shards = shards.then(|| Shards { digits: NUMBERING.digits, first: NUMBERING.first, rows: Vec::new() });
        let header = Some(packer_header()?.into_iter().map(char::from).collect());
        let valuation_types = ValuationTypes::default().text()?;
        Ok(PackLayout { aligned: false, header, shards, valuation_types, num_runs: None })
    }

    /// Returns the layout of an existing pack. `start` is the start of its first file, and `num_rows` the number of
    /// rows of each file.
    pub(super) fn of_pack(
        files: &[PathBuf],
        start: &[u8],
        num_rows: impl Iterator<Item = u64>,
        num_runs: Option<u64>,
        types: &ValuationTypes,
    ) -> Result<PackLayout> {
        let header = NpyHeader::parse(start)?;
        let text = start.get(..header.len as usize).unwrap_or_default();
        // Without a number of rows in the usual form, an export writes NumPy's header.
        let is_usual = HeaderTemplate::of(text)
            .is_some_and(|template| template.render(header.num_rows).is_ok_and(|rendered| rendered == text));
        let mut layout = PackLayout {
            aligned: header.stride == size_of::<AlignedRow>(),
            header: is_usual.then(|| text.iter().copied().map(char::from).collect()),
            shards: None,
            valuation_types: types.text()?,
            num_runs,
        };
        let Some(first) = files.first().filter(|path| !path.ends_with(SINGLE)) else { return Ok(layout) };
        let digits = number_of(first).map_or(NUMBERING.digits, str::len);
        let first = number_of(first).and_then(|digits| digits.parse().ok()).unwrap_or_default();
        let mut rows: Vec<(u64, u64)> = Vec::new();
        for num_rows in num_rows {
            match rows.last_mut().filter(|(last, _)| *last == num_rows) {
                Some((_, count)) => *count += 1,
                None => rows.push((num_rows, 1)),
            }
        }
        layout.shards = Some(Shards { digits, first, rows });
        Ok(layout)
    }

    pub(super) fn to_json(&self) -> Result<Value> {
        serde_json::to_value(self).map_err(Error::other)
    }

    pub(super) fn of_json(layout: &Value) -> Result<PackLayout> {
        PackLayout::deserialize(layout)
            .map_err(|error| Error::argument("session_info", "the layout of a Macroxue pack", error))
    }

    pub(super) fn valuation_types(&self) -> Result<ValuationTypes> {
        ValuationTypes::of_text(self.valuation_types.clone())
            .map_err(|problem| Error::argument("session_info", "valuation types of a Macroxue pack", problem))
    }

    pub(super) fn numbering(&self) -> Option<ShardNumbering> {
        self.shards.as_ref().map(|shards| ShardNumbering { digits: shards.digits.min(20), first: shards.first.min(1) })
    }

    /// Returns the number of rows of each shard, in order. Returns at most 2^20 shards, because an archive may be
    /// damaged.
    pub(super) fn shard_rows(&self) -> VecDeque<u64> {
        let stretches = self.shards.iter().flat_map(|shards| &shards.rows);
        stretches
            .flat_map(|&(rows, count)| std::iter::repeat_n(rows, usize::try_from(count).unwrap_or(usize::MAX)))
            .take(1 << 20)
            .collect()
    }

    /// Returns the header's template; `None` = NumPy's own header.
    pub(super) fn header(&self) -> Option<HeaderTemplate> {
        let text: Option<Vec<u8>> = self.header.as_ref()?.chars().map(|c| u8::try_from(c).ok()).collect();
        HeaderTemplate::of(&text?)
    }
}

/// Returns the header of the field's packer for a file without rows.
fn packer_header() -> Result<Vec<u8>> {
    // The packer writes a comma after each field, and one-byte fields with a byte order.
    let field = |&(name, dtype, values): &(&str, &str, usize)| {
        let shape = if values > 1 { format!(", ({values},)") } else { String::new() };
        format!("('{name}', '{}'{shape}), ", dtype.replace('|', "<"))
    };
    let fields: String = super::row::PackedRow::FIELDS.iter().map(field).collect();
    let text = format!("{{'descr': [{fields}], 'fortran_order': False, 'shape': (0,), }}");
    let mut bytes = npy::header(&super::row::PackedRow::fields(), size_of::<super::row::PackedRow>(), 0, 384)?;
    let (start, padded) = bytes.split_at_mut(10);
    debug_assert!(start.len() == 10 && text.len() < padded.len());
    padded.fill(b' ');
    padded.iter_mut().zip(text.bytes()).for_each(|(byte, of_text)| *byte = of_text);
    if let Some(last) = padded.last_mut() {
        *last = b'\n';
    }
    Ok(bytes)
}

/// Returns the digits in the name of a shard.
fn number_of(path: &Path) -> Option<&str> {
    path.file_stem()?.to_str()?.strip_prefix("steps-")
}
