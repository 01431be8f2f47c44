//! A sandbox for queries: a child process with limits on memory, time and written bytes.
//!
//! The parent survives a crash of the child and reports the cause. The child runs the same program with the same
//! arguments and a hidden flag. With that flag it confines itself ([`confine`]) before it does anything else, so no
//! code of this crate runs between fork and exec. The parent enforces each limit, and the kernel enforces a second,
//! looser one:
//!
//! | limit | parent, every [`TICK`] | kernel, in the child |
//! | --- | --- | --- |
//! | memory | anonymous, shared and swapped pages | address space, plus room for untouched stacks and heaps |
//! | time | wall-clock time | processor time, the limit times the number of cores |
//! | disk | all files in the child's temporary folder | the size of each file |
//!
//! The child leads a process group. Ctrl-C in a terminal therefore reaches only the parent, and killing the group
//! also kills the child's descendants. A descendant could escape only by leaving the group, and SQL cannot start
//! processes.

// The standard library has no safe call for waiting without reaping, for signals to a group, and for polling a pipe.
#![allow(unsafe_code)]

mod confine;
mod landlock;

pub(super) use confine::confine;

use super::interrupt::Interrupt;
use crate::error::{Error, ErrorKind};
use anyhow::Result;
use signal_hook::low_level::signal_name;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The interval between two checks. A process that allocates at full speed exceeds its limit by about 50 MiB per core.
const TICK: Duration = Duration::from_millis(10);
/// Checks between two measurements of the child's temporary files.
const TICKS_PER_COUNT: u32 = 16;
/// Bytes of the child's standard error that the parent keeps. It keeps the end, which states the cause.
const SAID: usize = 16 << 10;

/// The limits of a sandboxed query.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    /// In bytes.
    pub(super) memory: u64,
    pub(super) time: Duration,
    /// Bytes of all temporary files together, and of the result.
    pub(super) disk: u64,
}

/// A command to run in the sandbox.
pub(super) struct Job<'a> {
    /// The program and its first arguments, such as `python -m a2store`.
    pub(super) program: &'a [OsString],
    pub(super) args: &'a [OsString],
    /// Whether it connects to an object store. It then inherits this process's credentials.
    pub(super) is_remote: bool,
    pub(super) limits: &'a Limits,
}

/// The reason why a query was killed or crashed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Stopped {
    #[error("query killed: time limit of {} exceeded", humantime::format_duration(*.0))]
    Time(Duration),
    #[error("query killed: memory limit of {} exceeded", size(*.0))]
    Memory(u64),
    #[error("query killed: disk limit of {} exceeded", size(*.0))]
    Disk(u64),
    #[error("the query process ended by signal {}: stack overflow", named(*.0))]
    StackOverflow(i32),
    #[error("the query process ended by signal {}", named(*.0))]
    Signal(i32),
}

/// Runs a job, sends its rows to `stdout`, and returns its exit status.
///
/// # Errors
///
/// [`Stopped`] if the job was killed or crashed, [`ErrorKind::Cancelled`] after Ctrl-C, [`ErrorKind::Io`] if the job
/// cannot be started or watched. In every case the process and its temporary files are gone on return.
pub(super) fn supervise(job: &Job<'_>, stdout: Stdio, interrupt: &Interrupt) -> Result<u8> {
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
    let mut child = Group::spawn(
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

    let mut said = Said::of(&mut child);
    let mut tick = 0_u32;
    let status = loop {
        said.listen(TICK);
        if let Some(status) = child.reap_if_exited()? {
            break status;
        }
        if interrupt.is_raised() {
            return Err(Error::from(ErrorKind::Cancelled).into());
        }
        if start.elapsed() >= limits.time {
            return Err(Stopped::Time(limits.time).into());
        }
        if child.memory()? > limits.memory {
            return Err(Stopped::Memory(limits.memory).into());
        }
        if tick.is_multiple_of(TICKS_PER_COUNT) && bytes_beneath(folder.path()) > limits.disk {
            return Err(Stopped::Disk(limits.disk).into());
        }
        tick = tick.wrapping_add(1);
    };
    said.listen_to_the_rest();
    let Some(code) = status.code() else { return Err(cause(status, &said, limits).into()) };
    said.pass_on();
    Ok(u8::try_from(code).unwrap_or(1))
}

/// Returns why the child ended by a signal that the parent did not send.
fn cause(status: ExitStatus, said: &Said, limits: &Limits) -> Stopped {
    match status.signal().unwrap_or(0) {
        libc::SIGXCPU => Stopped::Time(limits.time),
        libc::SIGXFSZ => Stopped::Disk(limits.disk),
        // Rust's runtime prints the reason of an abort.
        libc::SIGABRT if said.contains("memory allocation of ") => Stopped::Memory(limits.memory),
        signal if said.contains("overflowed its stack") => Stopped::StackOverflow(signal),
        signal => Stopped::Signal(signal),
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

/// Formats a number of bytes in the largest unit that divides it.
fn size(bytes: u64) -> String {
    for (unit, name) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes >= unit && bytes.is_multiple_of(unit) {
            return format!("{} {name}", bytes / unit);
        }
    }
    format!("{bytes} bytes")
}

/// Formats a signal as its number and name.
fn named(signal: i32) -> String {
    signal_name(signal).map_or_else(|| signal.to_string(), |name| format!("{signal} ({name})"))
}

/// A child that leads a process group. Dropping it kills the group and reaps the child.
struct Group {
    child: Child,
    is_reaped: bool,
}

impl Group {
    fn spawn(command: &mut Command) -> io::Result<Group> {
        Ok(Group { child: command.spawn()?, is_reaped: false })
    }

    /// Kills the rest of the group. The group's number stays reserved until its leader is reaped.
    fn kill(&self) {
        if let Ok(leader) = libc::pid_t::try_from(self.child.id()) {
            // SAFETY: no memory is passed. `process_group(0)` made the group, and its leader is not reaped yet.
            unsafe { libc::kill(-leader, libc::SIGKILL) };
        }
    }

    /// Returns the exit status if the child has exited. It first kills the rest of the group, then reaps the child.
    // `id_t` is wider than `u32` on some systems.
    #[allow(clippy::useless_conversion)]
    fn reap_if_exited(&mut self) -> io::Result<Option<ExitStatus>> {
        let (id, options) = (libc::id_t::from(self.child.id()), libc::WEXITED | libc::WNOHANG | libc::WNOWAIT);
        // SAFETY: the structure is plain data, for which zeros are valid, and outlives the call that fills it.
        let (result, info) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            (libc::waitid(libc::P_PID, id, &raw mut info, options), info)
        };
        if result != 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(None) } else { Err(error) };
        }
        if info.si_signo == 0 {
            return Ok(None);
        }
        self.kill();
        let status = self.child.wait()?;
        self.is_reaped = true;
        Ok(Some(status))
    }

    /// Returns the bytes of memory that killing the child would free. Pages of mapped files do not count.
    #[cfg(target_os = "linux")]
    fn memory(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(&path).map_err(|source| Error::io(Path::new(&path), source))?;
        let kilobytes = text.lines().filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            let is_counted = matches!(name, "RssAnon" | "RssShmem" | "VmSwap");
            if is_counted { value.trim().strip_suffix(" kB")?.parse::<u64>().ok() } else { None }
        });
        Ok(kilobytes.sum::<u64>().saturating_mul(1024))
    }

    /// Returns 0: outside Linux only the kernel's limit in the child holds.
    #[cfg(not(target_os = "linux"))]
    fn memory(&self) -> Result<u64> {
        Ok(0)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.is_reaped {
            self.kill();
            let _ = self.child.wait();
        }
    }
}

/// The end of the child's standard error, kept until the child has exited.
struct Said {
    pipe: Option<ChildStderr>,
    text: Vec<u8>,
}

impl Said {
    fn of(child: &mut Group) -> Said {
        Said { pipe: child.child.stderr.take(), text: Vec::new() }
    }

    /// Waits at most `period` for text or for the end of the pipe, which closes when the child exits.
    ///
    /// Returns whether either came.
    fn listen(&mut self, period: Duration) -> bool {
        let Some(pipe) = &mut self.pipe else {
            std::thread::sleep(period);
            return false;
        };
        let mut poll = libc::pollfd { fd: pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let milliseconds = i32::try_from(period.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one structure is passed, which outlives the call.
        if unsafe { libc::poll(&raw mut poll, 1, milliseconds) } <= 0 {
            return false;
        }
        let mut bytes = [0; 4096];
        match pipe.read(&mut bytes) {
            Ok(len @ 1..) => self.text.extend_from_slice(&bytes[..len]),
            _ => self.pipe = None,
        }
        let surplus = self.text.len().saturating_sub(SAID);
        self.text.drain(..surplus);
        true
    }

    /// Reads the rest of the pipe. Call it after the group is killed, when no process writes any more.
    fn listen_to_the_rest(&mut self) {
        while self.pipe.is_some() && self.listen(Duration::ZERO) {}
    }

    fn contains(&self, words: &str) -> bool {
        self.text.windows(words.len()).any(|window| window == words.as_bytes())
    }

    fn pass_on(&self) {
        let _ = io::stderr().write_all(&self.text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_said_as_they_are_given() {
        let said = [0, 1023, 1024, 1025, 3 << 19, 2 << 30, 2 << 40].map(size);
        assert_eq!(said, ["0 bytes", "1023 bytes", "1 KiB", "1025 bytes", "1536 KiB", "2 GiB", "2048 GiB"]);
    }

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
