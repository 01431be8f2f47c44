//! Confinement of the child process: resource limits, signals and access to files.

use super::file_access::restrict;
use super::limits::SandboxLimits;
use std::io;
use std::path::PathBuf;
use std::thread::available_parallelism;

/// Address space that a process reserves but hardly touches, in bytes.
///
/// A thread's stack takes 64 MiB. The query engine has one thread per core, and up to 512 more to read files. glibc
/// reserves 64 MiB for each of up to 8 heaps per core. The remainder of [`SLACK`] is for the program.
const SLACK: u64 = 40 << 30;
const SLACK_PER_CORE: u64 = (1 + 8) * (64 << 20);
/// Open files: the usual limit of a shell.
const FILES: u64 = 1024;

/// Arguments of `prctl`. The function is variadic and reads them as `unsigned long`, so a plain integer is too narrow.
#[cfg(target_os = "linux")]
const YES: libc::c_ulong = 1;
#[cfg(target_os = "linux")]
const NO: libc::c_ulong = 0;

/// Confines this process. Call it before the process starts a thread, because running threads keep their rights.
///
/// `readable` lists the folders and files that the process may read. `None` stands for an archive on the network:
/// reads and connections stay allowed. The process may write only to the folder of temporary files.
///
/// Returns the reason if the system cannot restrict access to files.
///
/// # Errors
///
/// A limit cannot be set, or `parent` is not (or is no longer) the parent of this process.
pub(in super::super) fn confine(
    limits: &SandboxLimits,
    parent: u32,
    readable: Option<&[PathBuf]>,
) -> io::Result<Option<io::Error>> {
    die_with(parent)?;
    // The panic message would describe the program. The error that the panic becomes describes the query.
    std::panic::set_hook(Box::new(|_| {}));
    let cores = available_parallelism().map_or(1, |cores| cores.get() as u64);
    let slack = SLACK.saturating_add(SLACK_PER_CORE.saturating_mul(cores));
    let seconds = limits.time.as_secs().saturating_add(1).saturating_mul(cores);
    limit(libc::RLIMIT_CORE, 0, 0)?;
    #[cfg(not(target_os = "openbsd"))]
    limit(libc::RLIMIT_AS, limits.memory.saturating_add(slack), 0)?;
    limit(libc::RLIMIT_FSIZE, limits.disk, 0)?;
    limit(libc::RLIMIT_NOFILE, FILES, 0)?;
    // At the soft limit the kernel sends SIGXCPU, which names the cause; at the hard limit it kills the process.
    limit(libc::RLIMIT_CPU, seconds, 5)?;
    for (signal, action) in [
        // Python ignores this signal. A write beyond the limit would then fail with an ordinary I/O error.
        (libc::SIGXFSZ, libc::SIG_DFL),
        // With `stty tostop`, a terminal stops a background process group that prints.
        (libc::SIGTTOU, libc::SIG_IGN),
    ] {
        // SAFETY: no code is registered, and both signals may have either action.
        unsafe { libc::signal(signal, action) };
    }
    #[cfg(target_os = "linux")]
    // SAFETY: no memory is passed.
    checked(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, YES, NO, NO, NO) })?;
    Ok(restrict(readable, &std::env::temp_dir()).err())
}

/// Asks the kernel to kill this process when the parent's thread that started it dies. That thread waits for this
/// process.
fn die_with(parent: u32) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    // SAFETY: no memory is passed.
    checked(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong) })?;
    // The parent may have died before the call.
    if std::os::unix::process::parent_id() == parent {
        return Ok(());
    }
    Err(io::Error::other(format!("--sandboxed {parent}: not the parent of this process")))
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
type LimitKind = libc::__rlimit_resource_t;
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
type LimitKind = libc::c_int;

/// Lowers the soft limit of a resource to `value` and the hard limit to `value + grace`. Lower limits stay.
fn limit(resource: LimitKind, value: u64, grace: u64) -> io::Result<()> {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure outlives the call that fills it.
    checked(unsafe { libc::getrlimit(resource, &raw mut limits) })?;
    // The width of `rlim_t` depends on the system.
    let below = |old: libc::rlim_t, new: u64| libc::rlim_t::try_from(new).map_or(old, |new| new.min(old));
    limits.rlim_max = below(limits.rlim_max, value.saturating_add(grace));
    limits.rlim_cur = below(limits.rlim_cur.min(limits.rlim_max), value);
    // SAFETY: the structure outlives the call that reads it.
    checked(unsafe { libc::setrlimit(resource, &raw const limits) })
}

/// Returns the system's last error if a system call returned -1.
fn checked(result: libc::c_int) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
