//! Landlock, the Linux interface by which a process gives up its rights to files and to the network.
//!
//! The numbers come from `linux/landlock.h`. The kernel's version of the interface tells which of them it supports.

use std::io;
use std::path::{Path, PathBuf};

/// Restricts this thread and the threads it starts later: they may read below these paths and use `folder`.
///
/// Without paths, only writing is restricted: reads and the network stay allowed.
///
/// # Errors
///
/// The system cannot restrict access; then nothing is restricted.
#[cfg(not(target_os = "linux"))]
pub(super) fn restrict(_readable: Option<&[PathBuf]>, _folder: &Path) -> io::Result<()> {
    Err(io::Error::other("Landlock: expected Linux"))
}

#[cfg(target_os = "linux")]
pub(super) use linux::restrict;

#[cfg(target_os = "linux")]
mod linux {
    use super::{Path, PathBuf, io};
    use std::ffi::c_long;
    use std::fs::File;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::os::unix::fs::OpenOptionsExt;

    /// LANDLOCK_ACCESS_FS_*: those of version 1 are bits 0 to 12.
    const FIRST: u64 = (1 << 13) - 1;
    const WRITE: u64 = 1 << 1;
    /// Files, and the names in folders.
    const READ: u64 = 1 << 2 | 1 << 3;
    /// Folders and files, but no devices, sockets, pipes and links.
    const REMOVE_AND_MAKE: u64 = 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8;
    /// Since version 2, moving between folders; since 3, truncating; since 5, controlling devices.
    const REFER: u64 = 1 << 13;
    const TRUNCATE: u64 = 1 << 14;
    const IOCTL: u64 = 1 << 15;
    /// What makes sense for a file that is no folder.
    const OF_FILES: u64 = 1 << 0 | WRITE | 1 << 2 | TRUNCATE | IOCTL;
    /// LANDLOCK_ACCESS_NET_BIND_TCP and _CONNECT_TCP (version 4).
    const TCP: u64 = 1 << 0 | 1 << 1;
    /// LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET and _SIGNAL: not to processes outside (version 6).
    const SCOPES: u64 = 1 << 0 | 1 << 1;
    const CREATE_RULESET_VERSION: u32 = 1;
    const RULE_PATH_BENEATH: u32 = 1;

    /// What the threads of a query engine read to learn how many they should be, and how much memory there is.
    const SYSTEM: [&str; 4] = ["/proc/self/cgroup", "/proc/self/mountinfo", "/proc/meminfo", "/sys/fs/cgroup"];

    /// `landlock_ruleset_attr`; older kernels accept the longer form as long as what they do not know is zero.
    #[repr(C)]
    struct Ruleset {
        files: u64,
        network: u64,
        scopes: u64,
    }

    /// `landlock_path_beneath_attr`.
    #[repr(C, packed)]
    struct Beneath {
        access: u64,
        parent: i32,
    }

    pub(in super::super) fn restrict(readable: Option<&[PathBuf]>, folder: &Path) -> io::Result<()> {
        let version = version()?;
        let since = |first: c_long, rights: u64| if version >= first { rights } else { 0 };
        let all = FIRST | since(2, REFER) | since(3, TRUNCATE) | since(5, IOCTL);
        let handled = match readable {
            Some(_) => Ruleset { files: all, network: since(4, TCP), scopes: since(6, SCOPES) },
            None => Ruleset { files: all & !READ, network: 0, scopes: 0 },
        };
        let ruleset = create(&handled)?;
        let allow = |path: &Path, access: u64| allow(&ruleset, path, access & handled.files);
        allow(folder, READ | WRITE | REMOVE_AND_MAKE | REFER | TRUNCATE)?;
        if let Some(readable) = readable {
            for path in readable.iter().map(PathBuf::as_path).chain(SYSTEM.map(Path::new)) {
                allow(path, READ)?;
            }
        }
        // SAFETY: the descriptor is open, and no memory is passed.
        done(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0_u32) })?;
        Ok(())
    }

    fn version() -> io::Result<c_long> {
        let (none, len) = (std::ptr::null::<Ruleset>(), 0_usize);
        // SAFETY: with this flag, no memory is looked at.
        done(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, len, CREATE_RULESET_VERSION) })
    }

    fn create(handled: &Ruleset) -> io::Result<OwnedFd> {
        let len = size_of::<Ruleset>();
        // SAFETY: the structure has this length and outlives the call.
        let fd = done(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &raw const *handled, len, 0_u32) })?;
        let fd = i32::try_from(fd).map_err(io::Error::other)?;
        // SAFETY: the call gave a new descriptor, which nobody else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Lets what lies beneath a path be used so. What cannot be opened needs no leave: whoever tries will see why.
    fn allow(ruleset: &OwnedFd, path: &Path, access: u64) -> io::Result<()> {
        let Ok(parent) = File::options().read(true).custom_flags(libc::O_PATH).open(path) else { return Ok(()) };
        let access = if parent.metadata()?.is_dir() { access } else { access & OF_FILES };
        if access == 0 {
            return Ok(());
        }
        let rule = Beneath { access, parent: parent.as_raw_fd() };
        let (number, fd) = (libc::SYS_landlock_add_rule, ruleset.as_raw_fd());
        // SAFETY: the structure is the one that this kind of rule has, and outlives the call, as its descriptor does.
        done(unsafe { libc::syscall(number, fd, RULE_PATH_BENEATH, &raw const rule, 0_u32) })?;
        Ok(())
    }

    fn done(result: c_long) -> io::Result<c_long> {
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
    }
}
