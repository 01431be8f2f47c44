//! Tags: names for versions. A version does not expire while it has a tag.
//!
//! A tag is the file `_tags/<name>.json` with the number of its version. It is created if its name is free.

use crate::archive::storage::Storage;
use crate::error::{Error, Result};
use crate::system::publish::Published;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The folder of the tags.
pub(in crate::archive) const TAGS_FOLDER: &str = "_tags";

/// The maximum length of a name in bytes.
const MAX_NAME: usize = 100;

/// A version to open: the newest, or one by its number or its tag.
///
/// Text of digits is a number, and other text is the name of a tag.
///
/// ```
/// use a2store::archive::VersionName;
/// assert_eq!(VersionName::from("7"), VersionName::Number(7));
/// assert_eq!(VersionName::from("baseline-3"), VersionName::Tag("baseline-3".into()));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum VersionName {
    /// The newest version.
    #[default]
    Newest,
    /// The version of this number, from 1.
    Number(u64),
    /// The version with this tag.
    Tag(String),
}

impl From<u64> for VersionName {
    fn from(number: u64) -> VersionName {
        VersionName::Number(number)
    }
}

impl From<&str> for VersionName {
    fn from(text: &str) -> VersionName {
        text.parse().map_or_else(|_| VersionName::Tag(text.to_owned()), VersionName::Number)
    }
}

impl<T: Into<VersionName>> From<Option<T>> for VersionName {
    /// `None` is the newest version.
    fn from(version: Option<T>) -> VersionName {
        version.map_or(VersionName::Newest, Into::into)
    }
}

impl fmt::Display for VersionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VersionName::Newest => f.write_str("newest"),
            VersionName::Number(number) => write!(f, "{number}"),
            VersionName::Tag(name) => f.write_str(name),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Tag {
    version: u64,
}

/// Returns the path of a tag's file.
pub(in crate::archive) fn path_of(name: &str) -> String {
    format!("{TAGS_FOLDER}/{name}.json")
}

/// Returns the names of the tags, also of damaged tags.
pub(super) fn names(storage: &Storage) -> Result<BTreeSet<String>> {
    let files = storage.names(TAGS_FOLDER)?;
    let names = files.iter().filter_map(|name| name.strip_suffix(".json"));
    Ok(names.filter(|name| is_name(name)).map(Into::into).collect())
}

/// Returns the tags with their versions, in the order of their names.
pub(in crate::archive) fn tags(storage: &Storage) -> Result<BTreeMap<String, u64>> {
    let names = names(storage)?;
    let paths: Vec<String> = names.iter().map(|name| path_of(name)).collect();
    let files = storage.read_all(&paths)?;
    let mut tags = BTreeMap::new();
    for (name, file) in names.into_iter().zip(files) {
        // A tag that vanished since the listing is no tag.
        let Some(bytes) = file? else { continue };
        let found = |error: serde_json::Error| format!("{error}; `tag --remove {name}` removes the tag");
        let tag: Tag = serde_json::from_slice(&bytes)
            .map_err(|error| storage.damaged(&path_of(&name), "tag", "the number of a version", found(error)))?;
        tags.insert(name, tag.version);
    }
    Ok(tags)
}

/// Creates a tag; returns whether its name was free.
pub(super) fn create(storage: &Storage, name: &str, version: u64) -> Result<Published> {
    storage.create_folders(&[TAGS_FOLDER])?;
    storage.put_new(&path_of(name), serde_json::to_vec(&Tag { version }).map_err(Error::other)?.into())
}

/// Checks the name of a new tag.
pub(super) fn check_name(name: &str) -> Result<()> {
    if !is_name(name) {
        let expected = format!("1 to {MAX_NAME} letters, digits and -_. that are not all digits and begin with no dot");
        return Err(Error::argument("name", expected, format!("{name:?}")));
    }
    Ok(())
}

/// Returns an error about a name that no version has.
pub(super) fn unknown<'a>(argument: &'static str, tags: impl IntoIterator<Item = &'a String>, name: &str) -> Error {
    let names: Vec<&str> = tags.into_iter().map(String::as_str).collect();
    let expected = if names.is_empty() { "a tag of the archive, which has none".into() } else { names.join(", ") };
    Error::argument(argument, expected, name)
}

fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=MAX_NAME).contains(&name.len())
        && name.bytes().all(is_allowed)
        && !name.starts_with('.')
        && !name.bytes().all(|byte| byte.is_ascii_digit())
}
