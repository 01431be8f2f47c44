//! The writing of checkpoints and digests when they are due, and the removal of old ones.

use super::checkpoint::Checkpoint;
use super::digests::Digests;
use super::last_checkpoint::point_to_newest;
use super::log::Log;
use super::log_names::{LogNames, checkpoint_path, digests_path};
use super::snapshot::Snapshot;
use super::storage::Storage;
use crate::error::Result;

/// Writes a checkpoint and digests if they are due. Ignores errors, because the commit is already durable and
/// these files only make later reads faster.
pub(super) fn write_due(storage: &Storage, snapshot: &Snapshot, digests: &Digests) {
    let due = (is_due(snapshot), are_digests_due(snapshot, digests));
    write(storage, snapshot, due.0, Some(digests).filter(|_| due.1)).ok();
}

/// Writes a checkpoint and removes older ones.
pub(super) fn write_checkpoint(storage: &Storage, snapshot: &Snapshot) -> Result<()> {
    write(storage, snapshot, true, None)
}

fn write(storage: &Storage, snapshot: &Snapshot, is_checkpoint: bool, digests: Option<&Digests>) -> Result<()> {
    if let Some(digests) = digests {
        digests.write(storage, snapshot)?;
    }
    if is_checkpoint {
        Checkpoint::write(storage, snapshot)?;
    }
    if is_checkpoint || digests.is_some() {
        let names = Log::new(storage).names()?;
        point_to_newest(storage, &names)?;
        prune(storage, &names)?;
    }
    Ok(())
}

/// Returns whether enough commits follow the last checkpoint that a new checkpoint saves time.
///
/// The distance grows with the log, so the total size of all checkpoints stays proportional to the log.
fn is_due(snapshot: &Snapshot) -> bool {
    let version = snapshot.newest.version;
    version - snapshot.checkpoint >= (version / 16).clamp(16, 256)
}

/// Returns whether enough commits follow the last digests that new digests save time. Without digests, a writer
/// reads a file of `runs` for each later commit, which takes longer than the commit itself. Digests take at
/// most 64 KiB per commit.
fn are_digests_due(snapshot: &Snapshot, digests: &Digests) -> bool {
    snapshot.newest.version - snapshot.digests >= (digests.len() as u64 / 4096).clamp(16, 256)
}

/// Removes all but the newest checkpoints and digests.
fn prune(storage: &Storage, names: &LogNames) -> Result<()> {
    const KEPT: usize = 2;
    let older = |versions: &[u64]| versions[..versions.len().saturating_sub(KEPT)].to_vec();
    for version in older(&names.checkpoints) {
        storage.remove(&checkpoint_path(version))?;
    }
    for version in older(&names.digests) {
        storage.remove(&digests_path(version))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::commit::Commit;
    use crate::archive::phases::Phases;

    #[test]
    fn digests_are_written_less_often_for_more_runs() {
        let mut digests = Digests::default();
        let mut snapshot = Snapshot::after(None, Commit::first(Phases::default()), String::new());
        for (num_runs, distance) in [(0_u32, 16), (80_000, 19), (200_000, 48)] {
            for run in 0..num_runs {
                let mut digest = [0; 32];
                digest[..4].copy_from_slice(&run.to_le_bytes());
                digests.insert(&digest);
            }
            // At these versions, checkpoints are 125 versions apart.
            (snapshot.newest.version, snapshot.digests) = (2_000 + distance - 1, 2_000);
            assert!(!are_digests_due(&snapshot, &digests), "{num_runs} runs");
            snapshot.newest.version += 1;
            assert!(are_digests_due(&snapshot, &digests), "{num_runs} runs");
        }
    }
}
