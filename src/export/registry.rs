//! The table of export formats: one line per format.

use super::target::TargetFormat;
use super::{a2pack, jsonl, macroxue, npy, packdat, run_files, session};
use crate::names::text_form;

/// Defines [`ExportFormat`] from the table below.
macro_rules! export_formats {
    ($($(#[$meta:meta])* $variant:ident => $target:expr,)*) => {
        /// The format of exported runs.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ExportFormat {
            $($(#[$meta])* $variant,)*
        }

        impl ExportFormat {
            /// Every format.
            pub const ALL: [ExportFormat; [$($target.name),*].len()] = [$(ExportFormat::$variant),*];

            /// Returns the lower-case name, such as `"original"` or `"packdat"`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(ExportFormat::$variant => $target.name,)*
                }
            }

            /// Returns whether a conversion without an archive writes this format.
            pub(crate) fn is_of_conversions(self) -> bool {
                self != ExportFormat::Original
            }

            /// Returns the description of the format.
            pub(super) fn target(self) -> &'static TargetFormat {
                match self {
                    $(ExportFormat::$variant => const { &$target },)*
                }
            }
        }
    };
}

export_formats! {
    /// Copies of the original run files, each in its format, or the Macroxue pack that all runs came from.
    #[default]
    Original => run_files::ORIGINAL,
    /// A2T1 run files, without values.
    A2t1 => run_files::A2T1,
    /// a2run2 run files.
    A2run2 => run_files::A2RUN2,
    /// One a2pack. It holds the original run files; other runs are encoded as a2run2.
    A2pack => a2pack::TARGET,
    /// One pack.dat, without final boards and with 16-bit values.
    PackDat => packdat::TARGET,
    /// A folder with `steps.npy`, `metadata.db` and `manifest.json`, without final boards.
    Npy => npy::TARGET,
    /// A self-play session: a folder with `steps.npy` and `metadata.db`, without final boards and values.
    Session => session::TARGET,
    /// A Macroxue pack: a folder with `steps.npy`, `metadata.db` and `valuation_types.json`, without final boards.
    Macroxue => macroxue::TARGET,
    /// One file of JSON Lines.
    Jsonl => jsonl::TARGET,
}

text_form!(ExportFormat, "format", ExportFormat::ALL.map(ExportFormat::name).join(", "));
