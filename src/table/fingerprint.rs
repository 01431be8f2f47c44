//! The fingerprint of a table's rows and their order.

use super::chosen_columns::ChosenColumns;
use super::layout::RowLayout;
use super::materialize_options::MaterializeOptions;
use crate::error::Result;
use crate::query::Query;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The fingerprint of a table's rows and their order, computed from everything that determines them. Tables of
/// equal fingerprint have equal rows.
///
/// Its `Display` is 32 hexadecimal digits, a hash of all parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fingerprint {
    /// The archive's version; 0 for rows without an archive.
    pub archive_version: u64,
    /// The archive and the commit of that version, 16 hexadecimal digits. Copies of an archive that diverged
    /// may share a version, but not this hash.
    pub archive: String,
    /// 16 hexadecimal digits. They are a hash of the query, its parameters and its materialize options, if
    /// these determine the rows. Otherwise (window functions, sums of floating-point numbers, `random()`,
    /// `now()`) they are a hash of the rows.
    pub query: String,
    /// The filters and splits of a view, 16 hexadecimal digits; empty for a whole table.
    pub view: String,
}

impl Fingerprint {
    /// Returns the fingerprint of a query's result. It calls `hash_rows` only if the query does not determine
    /// its rows.
    pub(super) fn of_result(
        query: &Query,
        options: &MaterializeOptions,
        columns: &ChosenColumns,
        layout: &RowLayout,
        hash_rows: impl FnOnce() -> Result<blake3::Hash>,
    ) -> Result<Fingerprint> {
        let mut hasher = blake3::Hasher::new();
        match query.fingerprint()? {
            Some(text) => hasher.update(text.as_bytes()),
            None => hasher.update(hash_rows()?.as_bytes()).update(&layout.to_bytes()?),
        };
        hasher.update(&[options.chosen_ev as u8]);
        let mut add = |name: &String| {
            hasher.update(&(name.len() as u64).to_le_bytes());
            hasher.update(name.as_bytes());
        };
        columns.extra.iter().for_each(&mut add);
        if !columns.left_out.is_empty() {
            // No column has an empty name.
            add(&String::new());
            columns.left_out.iter().for_each(add);
        }
        if let Some(shard) = &options.shard {
            hasher.update(b"shard").update(&shard.to_bytes());
        }
        let archive = query.archive();
        Ok(Fingerprint {
            archive_version: archive.version(),
            archive: short(&blake3::hash(format!("{} {}", archive.id(), archive.snapshot().newest().txn).as_bytes())),
            query: short(&hasher.finalize()),
            view: String::new(),
        })
    }

    /// Returns the fingerprint of rows without an archive, from their content.
    pub(super) fn of_content(content: &blake3::Hash) -> Fingerprint {
        Fingerprint { archive_version: 0, archive: "0".repeat(16), query: short(content), view: String::new() }
    }

    /// Returns the fingerprint of several tables in their order.
    pub(super) fn of_several(tables: &[&Fingerprint]) -> Fingerprint {
        let all = |part: fn(&Fingerprint) -> String| {
            let parts: Vec<String> = tables.iter().map(|table| part(table)).collect();
            short(&blake3::hash(parts.join(" ").as_bytes()))
        };
        let mut versions = tables.iter().map(|table| table.archive_version);
        let first = versions.next().unwrap_or_default();
        Fingerprint {
            // 0 if the tables have different archive versions.
            archive_version: if versions.all(|version| version == first) { first } else { 0 },
            archive: all(|table| format!("{} {}", table.archive_version, table.archive)),
            query: all(|table| table.query.clone()),
            view: all(|table| table.view.clone()),
        }
    }

    /// Returns the fingerprint of a view of this table.
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
