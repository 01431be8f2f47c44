//! One interface to files and folders of many runs: packs, datasets, sessions and logs.

use crate::error::{Error, Result};
use crate::run::Run;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// A file or folder of many runs. Any number of threads may read its runs independently.
pub trait RunSource: Send + Sync + fmt::Debug {
    /// Returns the number of runs, including damaged ones.
    fn num_runs(&self) -> usize;

    /// Returns the approximate size of a run in bytes, decompressed. Returns 0 past the last run.
    fn num_bytes(&self, index: usize) -> u64;

    /// Adds the run, and its offset in the file if that is known, to an error about the bytes of the run.
    fn locate(&self, index: usize, error: Error) -> Error {
        error.located(|location| (location.run, location.offset) = (Some(index as u64), None))
    }

    /// Returns whether the index is deliberately empty, as a deleted entry of a pack is.
    fn is_absent(&self, _: usize) -> bool {
        false
    }

    /// Returns the facts that the source has about a run, in addition to the run itself.
    fn facts(&self, _: usize) -> SourceFacts {
        SourceFacts::default()
    }

    /// Returns the name of the session, if the runs come from a session or a Macroxue pack.
    fn session(&self) -> Option<Arc<str>> {
        None
    }

    /// Returns a problem of the source that does not affect its runs, with the file's path.
    fn warning(&self) -> Option<String> {
        None
    }

    /// Reads a run.
    ///
    /// # Errors
    /// Those of the format. They name the run (`Location::run`) and the offset in the file.
    fn read(&self, index: usize) -> Result<SourceRun<'_>>;
}

/// Facts about a run that the run itself does not hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceFacts {
    /// The run's id in the source, if the source assigns ids.
    pub(crate) id: Option<u64>,
    /// The number of steps of the whole game. The source may hold fewer.
    pub(crate) num_steps: Option<u32>,
}

/// A run in the form of its source.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // Only one exists at a time, and its consumer unpacks it immediately.
pub enum SourceRun<'a> {
    /// The bytes of a run file.
    File(Cow<'a, [u8]>),
    /// A decoded run, from a format other than run files.
    Run(Run),
}
