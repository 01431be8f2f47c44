//! Many runs in one place: packs, datasets, sessions and logs behind one interface.

use crate::error::Result;
use crate::run::Run;
use std::borrow::Cow;
use std::fmt;

/// Many runs in one file or folder, each read on its own, by any number of threads.
pub(crate) trait RunSource: Send + Sync + fmt::Debug {
    /// How many there are, damaged ones included.
    fn num_runs(&self) -> usize;

    /// How many bytes a run takes, about, once it is decompressed; 0 beyond the last.
    fn num_bytes(&self, index: usize) -> u64;

    /// Where in the file it begins.
    fn offset(&self, index: usize) -> u64;

    /// Whether there is no run at this index, nor was one to be expected.
    fn is_absent(&self, index: usize) -> bool {
        let _ = index;
        false
    }

    /// What the source says of a run beside its content.
    fn facts(&self, index: usize) -> SourceFacts {
        let _ = index;
        SourceFacts::default()
    }

    /// A run. Errors name it (`Location::run`), and the offset in the file.
    fn read(&self, index: usize) -> Result<SourceRun<'_>>;
}

/// What a source says of a run that is no part of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SourceFacts {
    /// Its id, where the source gives ids of its own.
    pub(crate) id: Option<u64>,
    /// The steps of the whole game, some of which the source may lack.
    pub(crate) num_steps: Option<u32>,
}

/// A run as its source has it.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // One at a time, and taken apart at once.
pub(crate) enum SourceRun<'a> {
    /// The bytes of a run file.
    File(Cow<'a, [u8]>),
    /// Decoded, from a format that is not one file per run.
    Run(Run),
}
