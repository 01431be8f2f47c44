//! What a sandboxed process does first: it gives up what a query has no need of.

use super::{Limits, landlock};
use std::io;
use std::path::PathBuf;
use std::thread::available_parallelism;

/// Stacks are address space that is hardly used: 64 MiB for each thread, of which the query engine has one per core and, to
/// read files, up to 512 more; glibc reserves as much for each of up to 8 heaps per core. The rest is for the program.
const SLACK: u64 = 40 << 30;
const SLACK_PER_CORE: u64 = (1 + 8) * (64 << 20);
/// Open files: what a shell gives.
const FILES: u64 = 1024;

/// Arguments of `prctl`, which are as wide as this and not what their form suggests.
#[cfg(target_os = "linux")]
const YES: libc::c_ulong = 1;
#[cfg(target_os = "linux")]
const NO: libc::c_ulong = 0;

/// Confines this process, which must have started no thread yet: a thread keeps the rights that it began with.
///
/// `readable` are the folders and files that may be read, `None` for an archive that is read over the network; nothing can be
/// written but the folder of temporary files. Returns why files are not restricted, where the system cannot do that.
///
/// # Errors
///
/// When a limit cannot be set, and when `parent` is not this process's parent, or no longer.
pub(in super::super) fn confine(
    limits: &Limits,
    parent: u32,
    readable: Option<&[PathBuf]>,
) -> io::Result<Option<io::Error>> {
    die_with(parent)?;
    // What a panic says is about the program; the error that it becomes is about the query.
    std::panic::set_hook(Box::new(|_| {}));
    let cores = available_parallelism().map_or(1, |cores| cores.get() as u64);
    let slack = SLACK.saturating_add(SLACK_PER_CORE.saturating_mul(cores));
    let seconds = limits.time.as_secs().saturating_add(1).saturating_mul(cores);
    limit(libc::RLIMIT_CORE, 0, 0)?;
    #[cfg(not(target_os = "openbsd"))]
    limit(libc::RLIMIT_AS, limits.memory.saturating_add(slack), 0)?;
    limit(libc::RLIMIT_FSIZE, limits.disk, 0)?;
    limit(libc::RLIMIT_NOFILE, FILES, 0)?;
    // At the first limit comes a signal that tells what happened, at the second the end.
    limit(libc::RLIMIT_CPU, seconds, 5)?;
    for (signal, action) in [
        // Python ignores it, and a write would fail with an error like any other.
        (libc::SIGXFSZ, libc::SIG_DFL),
        // Some terminals stop a process that prints while another group is in front.
        (libc::SIGTTOU, libc::SIG_IGN),
    ] {
        // SAFETY: no code is registered, and both signals may have either action.
        unsafe { libc::signal(signal, action) };
    }
    #[cfg(target_os = "linux")]
    // SAFETY: no memory is passed.
    checked(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, YES, NO, NO, NO) })?;
    Ok(landlock::restrict(readable, &std::env::temp_dir()).err())
}

/// Has the kernel kill this process when its parent dies, or rather the thread that started it, which waits for it.
fn die_with(parent: u32) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    // SAFETY: no memory is passed.
    checked(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong) })?;
    // It may have died before.
    if std::os::unix::process::parent_id() == parent {
        return Ok(());
    }
    Err(io::Error::other("the process that started this one is not its parent"))
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
type Resource = libc::c_int;

/// Lowers a limit for good, but for `grace` between the one that warns and the one that cannot be passed.
// On some systems a limit is narrower than on others.
#[allow(clippy::useless_conversion)]
fn limit(resource: Resource, value: u64, grace: u64) -> io::Result<()> {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure outlives the call that fills it.
    checked(unsafe { libc::getrlimit(resource, &raw mut limits) })?;
    let below = |old: libc::rlim_t, new: u64| libc::rlim_t::try_from(new).map_or(old, |new| new.min(old));
    limits.rlim_max = below(limits.rlim_max, value.saturating_add(grace));
    limits.rlim_cur = below(limits.rlim_cur.min(limits.rlim_max), value);
    // SAFETY: the structure outlives the call that reads it.
    checked(unsafe { libc::setrlimit(resource, &raw const limits) })
}

/// The error of a system call that says -1.
fn checked(result: libc::c_int) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
