//! `valuation_types.json`: the names of valuation types and their ids in the rows of a pack.

use crate::error::{Error, Result};
use crate::format::files::mapped::{header_error, read_json};
use std::collections::BTreeMap;
use std::path::Path;

pub(super) const NAME: &str = "valuation_types.json";
/// Enough for 256 long names.
const MAX_LEN: u64 = 1 << 16;

/// The valuation types of a pack: the id of each name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ValuationTypes {
    pub(super) ids: BTreeMap<String, u8>,
}

impl Default for ValuationTypes {
    /// Returns the types that every pack has.
    fn default() -> ValuationTypes {
        let usual = [("search", 0), ("tuple11", 1), ("tuple10", 2)];
        ValuationTypes { ids: usual.map(|(name, id)| (name.to_owned(), id)).into() }
    }
}

impl ValuationTypes {
    pub(super) fn read(folder: &Path) -> Result<ValuationTypes> {
        let path = folder.join(NAME);
        let found = read_json(&path, MAX_LEN, "valuation types", "an object of names and ids in 0..=255")?;
        let missing = || Error::io(&path, std::io::ErrorKind::NotFound.into());
        let ids: BTreeMap<String, u8> = found.ok_or_else(missing)?;
        let mut names: [Option<&str>; 256] = [None; 256];
        for (name, &id) in &ids {
            if let Some(other) = names[usize::from(id)].replace(name) {
                let found = format!("the id {id} of both {other:?} and {name:?}");
                return Err(header_error("valuation types", "unique ids", found, &path));
            }
        }
        Ok(ValuationTypes { ids })
    }

    /// Returns the name of each id.
    pub(super) fn names(&self) -> [Option<&str>; 256] {
        let mut names = [None; 256];
        for (name, &id) in &self.ids {
            names[usize::from(id)] = Some(name.as_str());
        }
        names
    }

    /// Returns the id of a type. Adds the type with the lowest free id if it is new.
    pub(super) fn id_or_add(&mut self, name: &str) -> Result<u8> {
        if let Some(&id) = self.ids.get(name) {
            return Ok(id);
        }
        let names = self.names();
        let free = (0..=u8::MAX).find(|&id| names[usize::from(id)].is_none());
        let id = free.ok_or_else(|| Error::argument("valuation_type", "at most 256 types in a pack", name))?;
        self.ids.insert(name.to_owned(), id);
        Ok(id)
    }
}
