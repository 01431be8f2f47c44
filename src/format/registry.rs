//! The formats of runs that can be read.

use crate::format::run_file::RunFormat;

/// The formats of runs that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SourceFormat {
    /// A run file, alone or in an a2pack.
    File(RunFormat),
    /// pack.dat: all steps of many runs in one file.
    PackDat,
    /// A NumPy dataset: `steps.npy` and `metadata.db`.
    Npy,
    /// A self-play session.
    Session,
    /// A log or a pack of the Macroxue engine.
    Macroxue,
}

impl SourceFormat {
    /// Every format.
    pub const ALL: [SourceFormat; 6] = [
        SourceFormat::File(RunFormat::A2t1),
        SourceFormat::File(RunFormat::A2run2),
        SourceFormat::PackDat,
        SourceFormat::Npy,
        SourceFormat::Session,
        SourceFormat::Macroxue,
    ];

    /// Returns the lower-case name, such as `"a2run2"` or `"packdat"`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            SourceFormat::File(format) => format.name(),
            SourceFormat::PackDat => "packdat",
            SourceFormat::Npy => "npy",
            SourceFormat::Session => "session",
            SourceFormat::Macroxue => "macroxue",
        }
    }

    /// Returns whether runs of the format with this name may lack some steps.
    pub(crate) fn may_be_sampled(name: &str) -> bool {
        name == SourceFormat::Session.name()
    }
}
