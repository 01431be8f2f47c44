//! The files that a recorder keeps in a folder while it records, and the files that recovery sets aside. Readers
//! ignore them. Finished games are in the session, or recovery adds them to it.

use std::path::Path;

/// The file that marks a folder with a recording in progress.
pub(crate) const RECORDING: &str = "recording.json";
/// The first bytes of a journal.
pub(crate) const JOURNAL_MAGIC: &[u8; 8] = b"A2JOURN1";
/// The prefix of the name of a shard without known runs.
const UNRECORDED: &str = "unrecorded-";

/// Returns the file name of a journal.
pub(crate) fn journal_name(number: u64) -> String {
    format!("journal-{number:06}.bin")
}

/// Returns the number in the file name of a journal.
pub(crate) fn journal_number(path: &Path) -> Option<u64> {
    let digits = path.file_name()?.to_str()?.strip_prefix("journal-")?.strip_suffix(".bin")?;
    (digits.len() >= 6 && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok())?
}

/// Returns the new name of a shard without known runs.
pub(super) fn unrecorded_name(number: u64) -> String {
    format!("{UNRECORDED}{number:06}.npy")
}

/// Returns whether the folder has a recording in progress.
pub(in crate::format) fn is_recording(folder: &Path) -> bool {
    folder.join(RECORDING).exists()
}

/// Returns whether the file is a shard that recovery set aside, because it has no known runs.
pub(crate) fn is_unrecorded(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with(UNRECORDED) && name.ends_with(".npy"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recording_names_round_trip() {
        for number in [1, 999_999, 1_000_000, u64::MAX] {
            assert_eq!(journal_number(&Path::new("folder").join(journal_name(number))), Some(number));
            assert!(is_unrecorded(Path::new(&unrecorded_name(number))));
        }
        for name in ["journal-.bin", "journal-00001.bin", "journal-00000a.bin", "journal-+00001.bin", "journal-000001"]
        {
            assert_eq!(journal_number(Path::new(name)), None, "{name}");
        }
        assert!(!is_unrecorded(Path::new("steps-000001.npy")));
    }
}
