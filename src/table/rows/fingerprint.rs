//! The fingerprint of a table's rows and their order.

use crate::error::Result;
use crate::system::cancellation::CancellationToken;
use crate::system::workers;
use crate::table::rows::layout::RowLayout;
use crate::table::rows::selection::Selection;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The fingerprint of a table's rows and their order. Tables of equal fingerprint have equal rows.
///
/// It is a BLAKE3 hash of the rows and of their layout. A view has a hash of the table's fingerprint and of the ranges
/// of rows that it shows. A saved view keeps this fingerprint when it is loaded. Its `Display` is 32 hexadecimal
/// digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(String);

/// The number of bytes that are hashed between two cancellation checks. A power of two keeps the hash's tree aligned.
const PIECE: usize = 64 << 20;

impl Fingerprint {
    /// Returns the fingerprint of a whole table. Hashes its rows on all cores.
    pub(in crate::table) fn of_rows(
        rows: &[u8],
        layout: &RowLayout,
        cancel: &CancellationToken,
    ) -> Result<Fingerprint> {
        let (mut hasher, threads) = (blake3::Hasher::new(), workers::shared()?);
        for piece in rows.chunks(PIECE) {
            cancel.check()?;
            threads.install(|| hasher.update_rayon(piece));
        }
        Fingerprint::of_hash(&hasher.finalize(), layout)
    }

    /// Returns the fingerprint of a whole table from the hash of its rows.
    pub(in crate::table) fn of_hash(rows: &blake3::Hash, layout: &RowLayout) -> Result<Fingerprint> {
        // Different layouts have different bytes.
        let layout = serde_json::to_vec(layout).map_err(std::io::Error::from)?;
        Ok(Fingerprint::of_parts(&[rows.as_bytes(), &layout]))
    }

    /// Returns the fingerprint of several tables in their order.
    pub(in crate::table) fn of_several<'a>(tables: impl Iterator<Item = &'a Fingerprint>) -> Fingerprint {
        Fingerprint::of_parts(&tables.map(|table| table.0.as_bytes()).collect::<Vec<_>>())
    }

    /// Returns the fingerprint of a view of this whole table.
    pub(in crate::table) fn of_view(&self, selection: &Selection) -> Fingerprint {
        Fingerprint::of_parts(&[self.0.as_bytes(), bytemuck::cast_slice(&selection.to_pairs())])
    }

    fn of_parts(parts: &[&[u8]]) -> Fingerprint {
        let mut hasher = blake3::Hasher::new();
        parts.iter().for_each(|part| {
            hasher.update(part);
        });
        Fingerprint(hasher.finalize().to_hex()[..32].to_owned())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
