//! Random seeds and ids from the system's generator.

use crate::clock;
use crate::error::{Error, Result};

/// Returns a random seed.
///
/// # Errors
/// [`ErrorKind::Io`](crate::ErrorKind::Io) if the system has no random generator.
pub(crate) fn seed() -> Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(Error::other)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Returns a unique id: 128 random bits in hexadecimal. Without a random generator, the clock makes the id unique.
pub(crate) fn id() -> String {
    let mut bytes = [0; 16];
    if getrandom::fill(&mut bytes).is_err() {
        bytes = clock::now().timestamp_nanos_opt().map_or(i128::from(std::process::id()), i128::from).to_le_bytes();
    }
    format!("{:032x}", u128::from_le_bytes(bytes))
}
