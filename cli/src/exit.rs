//! Exit statuses and the printing of errors.

use super::output::print_error;
use super::progress::interrupted_status;
use a2store::error::{Error, ErrorKind};
use clap::Parser;
use std::ffi::OsString;
use std::io;

/// Parses a command line, calls `work`, prints its error, and returns the exit status.
pub(crate) fn conclude<C: Parser>(
    name: &str,
    args: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    work: impl FnOnce(C) -> anyhow::Result<u8>,
) -> u8 {
    let cli = match C::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(2);
        }
    };
    match work(cli) {
        Ok(status) => status,
        Err(error) if is_broken_pipe(&error) => 0,
        Err(error) => {
            print_error(name, format_args!("{error:#}"));
            exit_status(&error)
        }
    }
}

/// Returns the status that a command decided before it printed. A reader that closes the pipe does not change it.
pub(crate) fn status_after(printed: anyhow::Result<u8>, status: u8) -> anyhow::Result<u8> {
    match printed {
        Err(error) if !is_broken_pipe(&error) => Err(error),
        _ => Ok(status),
    }
}

/// Returns whether the reader of standard output closed the pipe, which is no error.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<io::Error>().or_else(|| match cause.downcast_ref::<Error>()?.kind() {
            ErrorKind::Io { source, .. } => Some(source),
            _ => None,
        });
        io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// Returns 2 for an error in the command line, 1 for a problem with the data, and the status of a signal after it.
fn exit_status(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<Error>().map(Error::kind) {
        Some(ErrorKind::Cancelled) => interrupted_status(),
        Some(
            ErrorKind::Argument { .. }
            | ErrorKind::Query { .. }
            | ErrorKind::QueryRefused { .. }
            | ErrorKind::NotAnArchive { .. }
            | ErrorKind::ArchiveExists { .. }
            | ErrorKind::IndexOutOfBounds { .. }
            | ErrorKind::VersionNotFound { .. },
        ) => 2,
        Some(ErrorKind::Io { source, .. }) => {
            use io::ErrorKind::{AlreadyExists, IsADirectory, NotADirectory, NotFound, NotSeekable};
            let another_path_helps =
                matches!(source.kind(), NotFound | AlreadyExists | IsADirectory | NotADirectory | NotSeekable);
            if another_path_helps { 2 } else { 1 }
        }
        None if error.is::<UsageError>() => 2,
        _ => 1,
    }
}

/// A usage error, which the user can correct in the command line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub(super) String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_does_not_change_the_status_that_a_command_decided() {
        let failed = |kind: io::ErrorKind| Err(io::Error::from(kind).into());
        assert_eq!(status_after(failed(io::ErrorKind::BrokenPipe), 2).ok(), Some(2));
        assert_eq!(status_after(failed(io::ErrorKind::StorageFull), 2).ok(), None);
        assert_eq!(status_after(Ok(0), 1).ok(), Some(1));
    }
}
