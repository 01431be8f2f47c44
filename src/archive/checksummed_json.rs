//! JSON with a checksum: the form of the commits and checkpoints in the log.
//!
//! The trailer is the last 24 bytes of a file: `,"crc32c":"<8 digits>"}` and a newline. It holds the CRC32C of
//! all bytes before it. So a file is valid JSON, and can be checked without parsing it.

use super::problem::damaged;
use super::schema::SCHEMA_VERSION;
use crate::error::{Error, ErrorKind, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Encodes a value as JSON with a trailer.
pub(super) fn seal(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(value).map_err(Error::other)?;
    // The object's closing brace belongs to the trailer.
    bytes.pop();
    let crc = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(format!(",\"crc32c\":\"{crc:08x}\"}}\n").as_bytes());
    Ok(bytes)
}

/// Checks the bytes before a trailer against its checksum, and returns the checksum.
pub(super) fn check_seal(bytes: &[u8], path: &Path) -> Result<String> {
    const TRAILER_LEN: usize = r#","crc32c":"00000000"}"#.len() + 1;
    let crc = bytes.len().checked_sub(TRAILER_LEN).and_then(|len| {
        let (body, trailer) = bytes.split_at(len);
        let digits = trailer.strip_prefix(b",\"crc32c\":\"")?.strip_suffix(b"\"}\n")?;
        Some((body, std::str::from_utf8(digits).ok()?))
    });
    let Some((body, stored)) = crc else {
        let found = format!("{} bytes without a checksum", bytes.len());
        return Err(damaged(path, "end of the file", "a checksum", found));
    };
    let found = format!("{:08x}", crc32c::crc32c(body));
    if stored != found {
        return Err(damaged(path, "CRC32C of the commit", stored, found));
    }
    Ok(found)
}

/// The content of a log file with a trailer.
pub(super) trait Sealed: DeserializeOwned {
    fn schema_version(&self) -> u32;
}

/// Checks and parses JSON with a trailer. Also returns the trailer's checksum.
pub(super) fn unseal<T: Sealed>(bytes: &[u8], path: &Path) -> Result<(T, String)> {
    #[derive(Deserialize)]
    struct Header {
        schema_version: u32,
    }
    let crc = check_seal(bytes, path)?;
    let parse_error = |error: serde_json::Error| damaged(path, "commit", "its fields", error.to_string());
    let parsed = serde_json::from_slice::<T>(bytes);
    let found = match &parsed {
        Ok(value) => value.schema_version(),
        // Another version may have other fields.
        Err(_) => serde_json::from_slice::<Header>(bytes).map_err(parse_error)?.schema_version,
    };
    if found != SCHEMA_VERSION {
        return Err(ErrorKind::SchemaVersion { path: path.to_path_buf(), supported: SCHEMA_VERSION, found }.into());
    }
    Ok((parsed.map_err(parse_error)?, crc))
}
