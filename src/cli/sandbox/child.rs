//! The child process of a sandbox: its process group and the end of its standard error.

use crate::error::Error;
use anyhow::Result;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus};
use std::time::Duration;

/// Bytes of the child's standard error that the parent keeps. It keeps the end, which states the cause.
const TAIL_BYTES: usize = 16 << 10;

/// A child that leads a process group. Dropping it kills the group and reaps the child.
pub(super) struct ChildGroup {
    child: Child,
    is_reaped: bool,
}

impl ChildGroup {
    pub(super) fn spawn(command: &mut Command) -> io::Result<ChildGroup> {
        Ok(ChildGroup { child: command.spawn()?, is_reaped: false })
    }

    /// Kills the rest of the group. The group's number stays reserved until its leader is reaped.
    fn kill(&self) {
        if let Ok(leader) = libc::pid_t::try_from(self.child.id()) {
            // SAFETY: no memory is passed. `process_group(0)` made the group, and its leader is not reaped yet.
            unsafe { libc::kill(-leader, libc::SIGKILL) };
        }
    }

    /// Returns the exit status if the child has exited. It first kills the rest of the group, then reaps the child.
    pub(super) fn reap_if_exited(&mut self) -> io::Result<Option<ExitStatus>> {
        // `id_t` is wider than `u32` on some systems.
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
    pub(super) fn memory(&self) -> Result<u64> {
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
    pub(super) fn memory(&self) -> Result<u64> {
        Ok(0)
    }
}

impl Drop for ChildGroup {
    fn drop(&mut self) {
        if !self.is_reaped {
            self.kill();
            let _ = self.child.wait();
        }
    }
}

/// The end of the child's standard error, kept until the child has exited.
pub(super) struct StderrTail {
    pipe: Option<ChildStderr>,
    text: Vec<u8>,
}

impl StderrTail {
    pub(super) fn of(child: &mut ChildGroup) -> StderrTail {
        StderrTail { pipe: child.child.stderr.take(), text: Vec::new() }
    }

    /// Waits at most `period` for text or for the end of the pipe, which closes when the child exits.
    ///
    /// Returns whether either came.
    pub(super) fn poll(&mut self, period: Duration) -> bool {
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
        let surplus = self.text.len().saturating_sub(TAIL_BYTES);
        self.text.drain(..surplus);
        true
    }

    /// Reads the rest of the pipe. Call it after the group is killed, when no process writes any more.
    pub(super) fn drain(&mut self) {
        while self.pipe.is_some() && self.poll(Duration::ZERO) {}
    }

    pub(super) fn contains(&self, text: &str) -> bool {
        self.text.windows(text.len()).any(|window| window == text.as_bytes())
    }

    pub(super) fn print(&self) {
        let _ = io::stderr().write_all(&self.text);
    }
}
