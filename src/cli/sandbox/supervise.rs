//! The parent's side of a sandbox: it starts the child, watches it, and kills it at a limit.

use super::child::{ChildGroup, StderrTail};
use super::limits::{SandboxError, SandboxLimits};
use crate::cli::progress::Interrupt;
use crate::error::{Error, ErrorKind};
use anyhow::Result;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The interval between two checks. A process that allocates at full speed exceeds its limit by about 50 MiB per core.
const TICK: Duration = Duration::from_millis(10);
/// Checks between two measurements of the child's temporary files.
const TICKS_PER_DISK_CHECK: u32 = 16;

/// A command to run in the sandbox.
pub(in super::super) struct SandboxJob<'a> {
    /// The program and its first arguments, such as `python -m a2store`.
    pub(in super::super) program: &'a [OsString],
    pub(in super::super) args: &'a [OsString],
    /// Whether it connects to an object store. It then inherits this process's credentials.
    pub(in super::super) is_remote: bool,
    pub(in super::super) limits: &'a SandboxLimits,
}

/// Runs a job, sends its rows to `stdout`, and returns its exit status.
///
/// # Errors
///
/// [`SandboxError`] if the job was killed or crashed, [`ErrorKind::Cancelled`] after Ctrl-C, [`ErrorKind::Io`] if the job
/// cannot be started or watched. In every case the process and its temporary files are gone on return.
pub(in super::super) fn supervise(job: &SandboxJob<'_>, stdout: Stdio, interrupt: &Interrupt) -> Result<u8> {
    let Some((program, first_args)) = job.program.split_first() else {
        anyhow::bail!("--sandbox: the program's own path is not known");
    };
    let limits = job.limits;
    let temporary = std::env::temp_dir();
    // A killed child cannot remove its files, so the parent owns the folder.
    let folder = tempfile::Builder::new().prefix("a2store-").tempdir_in(&temporary);
    let folder = folder.map_err(|source| Error::io(&temporary, source))?;
    let environment = std::env::vars_os().filter(|(name, _)| is_passed_on(name, job.is_remote));
    let start = Instant::now();
    let mut child = ChildGroup::spawn(
        Command::new(program)
            .args(first_args)
            .args(job.args)
            .env_clear()
            .envs(environment)
            .env("RUST_BACKTRACE", "0")
            .env("TMPDIR", folder.path())
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(Stdio::piped())
            .process_group(0),
    )
    .map_err(|source| Error::io(Path::new(program), source))?;

    let mut stderr = StderrTail::of(&mut child);
    let mut tick = 0_u32;
    let status = loop {
        stderr.poll(TICK);
        if let Some(status) = child.reap_if_exited()? {
            break status;
        }
        if interrupt.is_raised() {
            return Err(Error::from(ErrorKind::Cancelled).into());
        }
        if start.elapsed() >= limits.time {
            return Err(SandboxError::Time(limits.time).into());
        }
        if child.memory()? > limits.memory {
            return Err(SandboxError::Memory(limits.memory).into());
        }
        if tick.is_multiple_of(TICKS_PER_DISK_CHECK) && bytes_beneath(folder.path()) > limits.disk {
            return Err(SandboxError::Disk(limits.disk).into());
        }
        tick = tick.wrapping_add(1);
    };
    stderr.drain();
    let Some(code) = status.code() else { return Err(cause(status, &stderr, limits).into()) };
    stderr.print();
    Ok(u8::try_from(code).unwrap_or(1))
}

/// Returns why the child ended by a signal that the parent did not send.
fn cause(status: ExitStatus, stderr: &StderrTail, limits: &SandboxLimits) -> SandboxError {
    match status.signal().unwrap_or(0) {
        libc::SIGXCPU => SandboxError::Time(limits.time),
        libc::SIGXFSZ => SandboxError::Disk(limits.disk),
        // Rust's runtime prints the reason of an abort.
        libc::SIGABRT if stderr.contains("memory allocation of ") => SandboxError::Memory(limits.memory),
        signal if stderr.contains("overflowed its stack") => SandboxError::StackOverflow(signal),
        signal => SandboxError::Signal(signal),
    }
}

/// Returns whether the child inherits this environment variable.
fn is_passed_on(name: &OsStr, is_remote: bool) -> bool {
    const NAMES: [&str; 6] = ["HOME", "LANG", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TZ", "VIRTUAL_ENV"];
    const PREFIXES: [&str; 2] = ["LC_", "PYTHON"];
    const REMOTE_PREFIXES: [&str; 6] = ["AWS_", "AZURE_", "GOOGLE_", "SSL_CERT_", "IDENTITY_", "MSI_"];
    const REMOTE_NAMES: [&str; 5] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SERVICE_ACCOUNT"];
    let Some(name) = name.to_str() else { return false };
    let starts_with_one = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    let of_remote = || starts_with_one(&REMOTE_PREFIXES) || REMOTE_NAMES.contains(&&*name.to_ascii_uppercase());
    NAMES.contains(&name) || starts_with_one(&PREFIXES) || is_remote && of_remote()
}

/// Sums the sizes of the files in a folder. Files that vanish during the scan do not count.
fn bytes_beneath(folder: &Path) -> u64 {
    let entries = walkdir::WalkDir::new(folder).into_iter().flatten();
    let files = entries.filter(|entry| entry.file_type().is_file());
    files.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_for_object_stores() {
        let passed = |name: &str| [false, true].map(|is_remote| is_passed_on(OsStr::new(name), is_remote));
        for name in ["AWS_SECRET_ACCESS_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "https_proxy", "HTTPS_PROXY"] {
            assert_eq!(passed(name), [false, true], "{name}");
        }
        for (name, expected) in [("LC_ALL", true), ("PYTHONPATH", true), ("PATH", false), ("GITHUB_TOKEN", false)] {
            assert_eq!(passed(name), [expected; 2], "{name}");
        }
    }
}
