//! What names a table's rows and their order.

use super::MaterializeOptions;
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
    /// The query, its parameters and the options of materializing it, 16 hexadecimal digits. Of a query that depends on
    /// chance or on the time, another one each time.
    pub query: String,
    /// The filters and splits of a view, 16 hexadecimal digits; empty for a whole table.
    pub view: String,
}

impl Fingerprint {
    pub(super) fn of_query(query: &Query, options: &MaterializeOptions) -> Result<Fingerprint> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(query.fingerprint()?.as_bytes());
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
