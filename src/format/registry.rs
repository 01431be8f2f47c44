//! The table of formats that can be read: one line per format.

use super::container::ContainerFormat;
use super::run_file::RunFormat;
use super::{dataset, macroxue, packdat, session};

/// Defines [`SourceFormat`] from the table below.
macro_rules! source_formats {
    ($($(#[$doc:meta])* $variant:ident => $format:expr,)*) => {
        /// The formats of runs that can be read.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum SourceFormat {
            /// A run file, alone or in an a2pack.
            File(RunFormat),
            $($(#[$doc])* $variant,)*
        }

        impl SourceFormat {
            /// Every format.
            pub const ALL: [SourceFormat; RunFormat::ALL.len() + [$($format.name),*].len()] = [
                SourceFormat::File(RunFormat::A2t1),
                SourceFormat::File(RunFormat::A2run2),
                $(SourceFormat::$variant,)*
            ];

            /// Returns the lower-case name, such as `"a2run2"` or `"packdat"`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    SourceFormat::File(format) => format.name(),
                    $(SourceFormat::$variant => $format.name,)*
                }
            }

            /// Returns the description of the format; `None` for run files.
            pub(super) fn container(self) -> Option<&'static ContainerFormat> {
                match self {
                    SourceFormat::File(_) => None,
                    $(SourceFormat::$variant => Some(const { &$format }),)*
                }
            }
        }
    };
}

source_formats! {
    /// pack.dat: all steps of many runs in one file.
    PackDat => packdat::FORMAT,
    /// A NumPy dataset: `steps.npy` and `metadata.db`.
    Npy => dataset::FORMAT,
    /// A self-play session.
    Session => session::FORMAT,
    /// A log or a pack of the Macroxue engine.
    Macroxue => macroxue::FORMAT,
}

impl SourceFormat {
    /// Returns whether runs of the format with this name may lack some steps.
    pub(crate) fn may_be_sampled(name: &str) -> bool {
        let found = SourceFormat::ALL.into_iter().find(|format| format.name() == name);
        found.and_then(SourceFormat::container).is_some_and(|format| format.may_be_sampled)
    }
}
