//! The state of a loader, small and serializable, and the check that a state belongs to a loader.

use crate::error::{ErrorKind, Result};
use crate::loader::loader::Loader;
use crate::table::Origin;
use serde::{Deserialize, Serialize};

/// The position of a [`Loader`], and the identity of its rows and order. Its JSON has at most 512 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoaderState {
    /// The version of this structure and of the orders, 1.
    pub version: u32,
    /// The id of the archive that the rows come from; empty for other rows. It tells people where to find the rows.
    /// Another archive or version with the same rows fits the state.
    pub archive: String,
    /// The archive's version; 0 for other rows.
    pub archive_version: u64,
    /// A hash of the query's text, parameters and limits; empty for other rows and for mixes of several queries. Another
    /// query with the same rows fits the state.
    pub query: String,
    /// The table's [`fingerprint`](crate::StepTable::fingerprint).
    pub rows: String,
    /// The table's number of rows.
    pub num_rows: u64,
    /// The number of rows of an epoch.
    pub num_samples: u64,
    /// The name of the order: the loader's [`Sampling`](crate::loader::Sampling) in its simplest form. Equal orders have equal
    /// names, regardless of the spelling of quotas or a window. A name of more than 80 bytes, or with bytes that JSON
    /// escapes, is replaced by its beginning and a hash.
    pub order: String,
    /// The loader's `seed`.
    pub seed: u64,
    /// The loader's `symmetries`.
    pub symmetries: bool,
    /// The epoch.
    pub epoch: u64,
    /// Rows of the epoch that have been returned on all ranks together.
    pub position: u64,
}

const STATE_VERSION: u32 = 1;
/// Longer order names are cut and hashed.
const MAX_ORDER: usize = 80;

impl Loader {
    /// Returns the position after the batches that were returned. Batches that were only made ahead do not
    /// count.
    #[must_use]
    pub fn state(&self) -> LoaderState {
        let (epoch, position) = self.position.newest();
        let Origin { archive, version: archive_version, query } = self.rows.origin();
        LoaderState {
            version: STATE_VERSION,
            archive,
            archive_version,
            query,
            rows: self.rows.fingerprint().to_string(),
            num_rows: self.rows.num_rows(),
            num_samples: self.position.share().num_rows,
            order: short(self.plan.name(&self.options.sampling)),
            seed: self.options.seed,
            symmetries: self.options.symmetries,
            epoch,
            position,
        }
    }

    /// Resumes from a state: the next [`batches`](Loader::batches) begins there. The loader that made the
    /// state may have another batch size, rank, number of ranks, columns and tokens.
    ///
    /// # Errors
    /// [`ErrorKind::StateMismatch`] with the differing field if the state has other rows or another order. The
    /// loader then stays unchanged.
    pub fn load_state(&self, state: &LoaderState) -> Result<()> {
        let own = self.state();
        let fields = [
            ("version", own.version.to_string(), state.version.to_string()),
            ("num_rows", own.num_rows.to_string(), state.num_rows.to_string()),
            ("rows", own.rows.clone(), state.rows.clone()),
            ("order", own.order.clone(), state.order.clone()),
            ("num_samples", own.num_samples.to_string(), state.num_samples.to_string()),
            ("seed", own.seed.to_string(), state.seed.to_string()),
            ("symmetries", own.symmetries.to_string(), state.symmetries.to_string()),
        ];
        for (field, expected, found) in fields {
            if expected != found {
                // Other rows are usually rows of another version or query.
                let with_origin = |state: &LoaderState, value: String| match state.archive_version {
                    version if version > 0 && field.ends_with("rows") => {
                        let query = if state.query.is_empty() { "several" } else { &state.query };
                        format!("{value} (version {version} of the archive, query: {query})")
                    }
                    _ => value,
                };
                let (expected, found) = (with_origin(&own, expected), with_origin(state, found));
                return Err(ErrorKind::StateMismatch { field, expected, found }.into());
            }
        }
        if state.position > own.num_samples {
            let expected = format!("0..={}", own.num_samples);
            let found = state.position.to_string();
            return Err(ErrorKind::StateMismatch { field: "position", expected, found }.into());
        }
        self.position.load(state.epoch, state.position);
        Ok(())
    }
}

/// Returns the name of an order, or its beginning and a hash if it is long.
fn short(order: String) -> String {
    // Names with characters that JSON escapes are treated as long.
    let is_plain = |c: char| (c.is_ascii_graphic() && !matches!(c, '"' | '\\')) || c == ' ';
    if order.len() <= MAX_ORDER && order.chars().all(is_plain) {
        return order;
    }
    let hash = blake3::hash(order.as_bytes()).to_hex();
    let start: String = order.chars().take_while(|&c| is_plain(c)).take(MAX_ORDER - 40).collect();
    format!("{start}... {}", &hash[..32])
}
