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

/// Returns whether the reader of standard output closed the pipe, which counts as success.
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
