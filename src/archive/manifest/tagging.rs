//! Tagging versions, and finding the version that a tag names.

use super::tags::{self, TAGS_FOLDER, VersionName};
use super::versions::Versions;
use crate::archive::storage::Storage;
use crate::error::{Error, ErrorKind, Result};
use crate::system::publish::Published;
use std::collections::BTreeMap;

/// Returns the number of a version; `None` for the newest.
pub(in crate::archive) fn resolve(storage: &Storage, version: VersionName) -> Result<Option<u64>> {
    let name = match version {
        VersionName::Newest => return Ok(None),
        VersionName::Number(number) => return Ok(Some(number)),
        VersionName::Tag(name) => name,
    };
    // A location without an archive has no tags, which is not the problem.
    Versions::new(storage).list()?;
    let tags = tags::tags(storage)?;
    tags.get(&name).copied().map(Some).ok_or_else(|| unknown("version", &tags, &name))
}

/// Gives a version a name.
pub(in crate::archive) fn tag(storage: &Storage, name: &str, version: u64) -> Result<()> {
    tags::check_name(name)?;
    let versions = Versions::new(storage);
    versions.open(Some(version))?;
    let is_new = tags::create(storage, name, version)? == Published::New;
    if !is_new {
        // Its writer may have been interrupted before the tag was durable.
        storage.sync(TAGS_FOLDER)?;
    }
    // An expiry that began before the tag was there may have dropped the version.
    let newest = versions.newest()?;
    let mut tags = tags::tags(storage)?;
    let known = tags.remove(name);
    let is_dropped = version < newest.first_version && !tags.values().any(|&tagged| tagged == version);
    match (is_new, is_dropped) {
        (_, false) if known == Some(version) => Ok(()),
        (true, true) => {
            tags::remove(storage, name)?;
            let (path, oldest) = (storage.root().to_path_buf(), newest.first_version);
            Err(ErrorKind::VersionNotFound { path, version, oldest, newest: newest.version }.into())
        }
        // If the version has expired, this tag may keep it, or its writer may be about to remove the tag.
        _ => {
            let found = known.map_or("a removed tag".into(), |known| format!("{name}, the tag of version {known}"));
            Err(Error::argument("name", "a new name", found))
        }
    }
}

/// Removes a tag, and returns its version.
pub(in crate::archive) fn untag(storage: &Storage, name: &str) -> Result<u64> {
    let tags = tags::tags(storage)?;
    let version = *tags.get(name).ok_or_else(|| unknown("name", &tags, name))?;
    tags::remove(storage, name)?;
    Ok(version)
}

fn unknown(argument: &'static str, tags: &BTreeMap<String, u64>, name: &str) -> Error {
    let names: Vec<&str> = tags.keys().map(String::as_str).collect();
    let expected = if names.is_empty() { "a tag of the archive, which has none".into() } else { names.join(", ") };
    Error::argument(argument, expected, name)
}
