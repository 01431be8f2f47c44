//! The names of the files in the log's folder.

/// The folder of the log, relative to the archive.
pub(super) const LOG_FOLDER: &str = "_log";
/// The lock file of writers.
pub(super) const LOG_LOCK: &str = "_log/.lock";
const CHECKPOINT_SUFFIX: &str = ".checkpoint.json";
/// The end of the name of a file of digests.
pub(super) const DIGESTS_SUFFIX: &str = ".digests";

/// The part of a file name that marks files set aside.
pub(super) const ASIDE: &str = ".damaged";

/// The versions of the files in the log's folder, in ascending order.
#[derive(Debug, Default)]
pub(super) struct LogNames {
    pub(super) commits: Vec<u64>,
    pub(super) checkpoints: Vec<u64>,
    pub(super) digests: Vec<u64>,
}

/// Returns the file name of a version's commit.
pub(super) fn commit_path(version: u64) -> String {
    format!("{LOG_FOLDER}/{version:020}.json")
}

/// Returns the file name of a version's checkpoint.
pub(super) fn checkpoint_path(version: u64) -> String {
    format!("{LOG_FOLDER}/{version:020}{CHECKPOINT_SUFFIX}")
}

/// Returns the file name of a version's digests.
pub(super) fn digests_path(version: u64) -> String {
    format!("{LOG_FOLDER}/{version:020}{DIGESTS_SUFFIX}")
}

impl LogNames {
    pub(super) fn new(names: &[String]) -> LogNames {
        let versions = |suffix| {
            let mut versions: Vec<u64> = names.iter().filter_map(|name| version_of(name, suffix)).collect();
            versions.sort_unstable();
            versions
        };
        LogNames {
            commits: versions(".json"),
            checkpoints: versions(CHECKPOINT_SUFFIX),
            digests: versions(DIGESTS_SUFFIX),
        }
    }

    /// Returns the first version in a range that has no commit.
    pub(super) fn first_missing(&self, first: u64, last: u64) -> Option<u64> {
        let start = self.commits.partition_point(|&version| version < first);
        let mut expected = first;
        for &version in &self.commits[start..] {
            if version != expected || version >= last {
                break;
            }
            expected += 1;
        }
        let found = self.commits.binary_search(&expected).is_ok();
        (first <= last && !(found && expected == last)).then_some(expected)
    }

    pub(super) fn newest_commit(&self) -> Option<u64> {
        self.commits.last().copied()
    }

    /// Returns the version of the newest digests up to a version; 0 = none.
    pub(super) fn newest_digests(&self, version: u64) -> u64 {
        let after = self.digests.partition_point(|&of| of <= version);
        self.digests[..after].last().copied().unwrap_or(0)
    }

    /// Returns the newest version of any checkpoint or file of digests. A commit of that version has existed.
    pub(super) fn newest_shortcut(&self) -> Option<u64> {
        self.checkpoints.last().max(self.digests.last()).copied()
    }

    /// Returns whether every version of any file has a commit.
    pub(super) fn is_complete(&self) -> bool {
        let newest = self.newest_commit().max(self.newest_shortcut());
        self.commits.first() == Some(&1) && newest == Some(self.commits.len() as u64)
    }
}

/// Returns the version in the name of a log file.
fn version_of(name: &str, suffix: &str) -> Option<u64> {
    let digits = name.strip_suffix(suffix).filter(|digits| digits.len() == 20)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_digests_up_to_a_version() {
        let digests = vec![16, 32, 48];
        let names = LogNames { digests, ..LogNames::default() };
        assert_eq!([15, 16, 40, 48, 50].map(|version| names.newest_digests(version)), [0, 16, 32, 48, 48]);
    }
}
