//! What names a table's rows and their order.

use super::{MaterializeOptions, RowLayout};
use crate::error::Result;
use crate::query::Query;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Names a table's rows and their order, by all that they follow from. Tables of equal fingerprint have equal rows.
///
/// Its `Display` is 32 hexadecimal digits made of all parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fingerprint {
    /// The archive's version; 0 for rows that came from no archive.
    pub archive_version: u64,
    /// The archive and the commit of that version, 16 hexadecimal digits: copies of an archive that went different ways
    /// share a version, but not this.
    pub archive: String,
    /// 16 hexadecimal digits. They are a hash of the query, its parameters and its materialize options, if these
    /// determine the rows. Otherwise (window functions, sums of floating-point numbers, `random()`, `now()`) they are a
    /// hash of the rows.
    pub query: String,
    /// The filters and splits of a view, 16 hexadecimal digits; empty for a whole table.
    pub view: String,
}

impl Fingerprint {
    /// The fingerprint of a query's result. `hash_rows` is called only if the query does not determine its rows.
    pub(super) fn of_result(
        query: &Query,
        options: &MaterializeOptions,
        layout: &RowLayout,
        hash_rows: impl FnOnce() -> Result<blake3::Hash>,
    ) -> Result<Fingerprint> {
        let mut hasher = blake3::Hasher::new();
        match query.fingerprint()? {
            Some(text) => hasher.update(text.as_bytes()),
            None => hasher.update(hash_rows()?.as_bytes()).update(&layout.to_bytes()?),
        };
        hasher.update(&[options.chosen_ev as u8]);
        for name in &options.extra {
            hasher.update(&(name.len() as u64).to_le_bytes());
            hasher.update(name.as_bytes());
        }
        let archive = query.archive();
        Ok(Fingerprint {
            archive_version: archive.version(),
            archive: short(&blake3::hash(format!("{} {}", archive.id(), archive.snapshot().newest().txn).as_bytes())),
            query: short(&hasher.finalize()),
            view: String::new(),
        })
    }

    /// Of rows that came from elsewhere, by their content.
    pub(super) fn of_content(content: &blake3::Hash) -> Fingerprint {
        Fingerprint { archive_version: 0, archive: "0".repeat(16), query: short(content), view: String::new() }
    }

    /// Of a view of what this names.
    pub(super) fn with_view(&self, what: &str) -> Fingerprint {
        let view = short(&blake3::hash(format!("{}\n{what}", self.view).as_bytes()));
        Fingerprint { view, ..self.clone() }
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fingerprint { archive_version, archive, query, view } = self;
        let all = blake3::hash(format!("{archive_version} {archive} {query} {view}").as_bytes());
        f.write_str(&all.to_hex()[..32])
    }
}

fn short(hash: &blake3::Hash) -> String {
    hash.to_hex()[..16].to_owned()
}
