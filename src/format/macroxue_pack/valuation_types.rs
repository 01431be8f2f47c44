//! `valuation_types.json`: the names of valuation types and their ids in the rows of a pack.

use crate::error::{Error, Result};
use crate::format::mapped::open_file;
use crate::format::shards::header_error;
use crate::publish::Staged;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::path::Path;

pub(super) const NAME: &str = "valuation_types.json";
/// Enough for 256 long names.
const MAX_LEN: u64 = 1 << 16;

/// The valuation types of a pack, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ValuationTypes {
    entries: Vec<(String, u8)>,
}

impl Default for ValuationTypes {
    /// Returns the types that every pack has.
    fn default() -> ValuationTypes {
        let usual = [("search", 0), ("tuple11", 1), ("tuple10", 2)];
        ValuationTypes { entries: usual.map(|(name, id)| (name.to_owned(), id)).into() }
    }
}

impl ValuationTypes {
    pub(super) fn read(folder: &Path) -> Result<ValuationTypes> {
        let path = folder.join(NAME);
        let mut text = Vec::new();
        let file = open_file(&path)?;
        file.take(MAX_LEN + 1).read_to_end(&mut text).map_err(|source| Error::io(&path, source))?;
        if text.len() as u64 > MAX_LEN {
            return Err(header_error("valuation types", format!("at most {MAX_LEN} bytes"), "more".into(), &path));
        }
        let text = std::str::from_utf8(&text)
            .map_err(|error| header_error("valuation types", "UTF-8", error.to_string(), &path))?;
        ValuationTypes::parse(text).map_err(|problem| {
            header_error("valuation types", "an object of unique names and unique ids in 0..=255", problem, &path)
        })
    }

    /// Parses the text of a file. Returns a description of the problem if it is invalid.
    fn parse(text: &str) -> Result<ValuationTypes, String> {
        let entries: Entries = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let mut entries = entries.0.into_iter();
        let mut types = ValuationTypes { entries: Vec::new() };
        entries.try_for_each(|(name, id)| {
            let id = u8::try_from(id).map_err(|_| format!("the id {id} of {name:?}"))?;
            if let Some((other, _)) = types.entries.iter().find(|(_, known)| *known == id) {
                return Err(format!("the id {id} of both {other:?} and {name:?}"));
            }
            if types.id(&name).is_some() {
                return Err(format!("{name:?} twice"));
            }
            types.entries.push((name, id));
            Ok(())
        })?;
        Ok(types)
    }

    /// Returns the name of each id.
    pub(super) fn names(&self) -> [Option<&str>; 256] {
        let mut names = [None; 256];
        for (name, id) in &self.entries {
            names[usize::from(*id)] = Some(name.as_str());
        }
        names
    }

    fn id(&self, name: &str) -> Option<u8> {
        self.entries.iter().find(|(known, _)| known == name).map(|&(_, id)| id)
    }

    /// Returns the id of a type. Adds the type with the lowest free id if it is new.
    pub(super) fn id_or_add(&mut self, name: &str) -> Result<u8> {
        if let Some(id) = self.id(name) {
            return Ok(id);
        }
        let names = self.names();
        let free = (0..=u8::MAX).find(|&id| names[usize::from(id)].is_none());
        let id = free.ok_or_else(|| Error::argument("valuation_type", "at most 256 types in a pack", name))?;
        self.entries.push((name.to_owned(), id));
        Ok(id)
    }

    /// Writes the file into a folder.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(NAME);
        let entries: BTreeMap<&str, u8> = self.entries.iter().map(|(name, id)| (name.as_str(), *id)).collect();
        let mut staged = Staged::new(folder)?;
        let written = serde_json::to_writer_pretty(&mut staged, &entries).map_err(io::Error::from);
        written.and_then(|()| staged.write_all(b"\n")).map_err(|source| Error::io(&path, source))?;
        staged.replace(&path)
    }
}

/// The entries of a JSON object, with repeated names.
struct Entries(Vec<(String, u64)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Entries, D::Error> {
        struct EntriesVisitor;
        impl<'de> Visitor<'de> for EntriesVisitor {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "an object of names and ids")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(EntriesVisitor)
    }
}
