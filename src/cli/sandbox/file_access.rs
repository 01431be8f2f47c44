//! Access to files and the network, restricted by Landlock.

use std::io;
use std::path::{Path, PathBuf};

/// Restricts this thread and the threads that it starts later.
///
/// They may read below `readable`, and read and write below `folder`. They may not use TCP. Without `readable`, only
/// writing is restricted: reads and the network stay allowed. A kernel with an older Landlock enforces what it
/// supports.
///
/// # Errors
///
/// The system has no Landlock, or a system call fails; then nothing is restricted.
#[cfg(target_os = "linux")]
pub(super) fn restrict(readable: Option<&[PathBuf]>, folder: &Path) -> io::Result<()> {
    use landlock::{LandlockStatus, RulesetStatus};

    let status = linux::restrict(readable, folder).map_err(io::Error::other)?;
    let reason = match (status.ruleset, status.landlock) {
        (RulesetStatus::NotEnforced, LandlockStatus::NotEnabled) => "Landlock is disabled in this kernel",
        (RulesetStatus::NotEnforced, _) => "this kernel does not support Landlock",
        _ => return Ok(()),
    };
    Err(io::Error::new(io::ErrorKind::Unsupported, reason))
}

/// Returns an error, because only Linux has Landlock.
#[cfg(not(target_os = "linux"))]
pub(super) fn restrict(_readable: Option<&[PathBuf]>, _folder: &Path) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "Landlock: expected Linux"))
}

#[cfg(target_os = "linux")]
mod linux {
    use landlock::{
        ABI, Access, AccessFs, AccessNet, RestrictionStatus, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
        Scope, path_beneath_rules,
    };
    use std::path::{Path, PathBuf};

    /// The newest version of Landlock whose rights are restricted. An older kernel ignores rights that it does not
    /// know.
    const VERSION: ABI = ABI::V6;

    /// Files that the query engine reads to learn the number of cores and the size of memory.
    const SYSTEM: [&str; 4] = ["/proc/self/cgroup", "/proc/self/mountinfo", "/proc/meminfo", "/sys/fs/cgroup"];

    pub(super) fn restrict(readable: Option<&[PathBuf]>, folder: &Path) -> Result<RestrictionStatus, RulesetError> {
        let all = AccessFs::from_all(VERSION);
        let read = AccessFs::ReadFile | AccessFs::ReadDir;
        // Files and folders only: no devices, sockets, pipes or links.
        let make = AccessFs::MakeReg | AccessFs::MakeDir;
        let remove = AccessFs::RemoveFile | AccessFs::RemoveDir;
        let write = AccessFs::WriteFile | AccessFs::Truncate | AccessFs::Refer | make | remove;
        match readable {
            Some(paths) => Ruleset::default()
                .handle_access(all)?
                .handle_access(AccessNet::from_all(VERSION))?
                .scope(Scope::from_all(VERSION))?
                .create()?
                .add_rules(path_beneath_rules([folder], read | write))?
                .add_rules(path_beneath_rules(paths, read))?
                .add_rules(path_beneath_rules(SYSTEM, read))?
                .restrict_self(),
            None => Ruleset::default()
                .handle_access(all & !read)?
                .create()?
                .add_rules(path_beneath_rules([folder], write))?
                .restrict_self(),
        }
    }
}
