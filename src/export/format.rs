//! The export formats: their names, what they need, and what they can do.

use crate::system::names::text_form;

/// The format of exported runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExportFormat {
    /// Copies of the original run files, each in its format.
    #[default]
    Original,
    /// A2T1 run files, without values.
    A2t1,
    /// a2run2 run files.
    A2run2,
    /// One a2pack. It holds the original run files; other runs are encoded as a2run2.
    A2pack,
    /// One pack.dat, without final boards and with 16-bit values.
    PackDat,
    /// A folder with `steps.npy`, `metadata.db` and `manifest.json`, without final boards.
    Npy,
    /// A self-play session: a folder with `steps.npy` and `metadata.db`, without final boards and values.
    Session,
    /// A Macroxue pack: a folder with `steps.npy`, `metadata.db` and `valuation_types.json`, without final boards.
    Macroxue,
    /// One file of JSON Lines.
    Jsonl,
}

/// What a format needs of every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    /// All steps and moves, and a final board that is known or determined by the score.
    WholeGame,
    /// A run file that the run came from.
    RunFile,
}

impl ExportFormat {
    /// Every format.
    pub const ALL: [ExportFormat; 9] = [
        ExportFormat::Original,
        ExportFormat::A2t1,
        ExportFormat::A2run2,
        ExportFormat::A2pack,
        ExportFormat::PackDat,
        ExportFormat::Npy,
        ExportFormat::Session,
        ExportFormat::Macroxue,
        ExportFormat::Jsonl,
    ];

    /// Returns the lower-case name, such as `"original"` or `"packdat"`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ExportFormat::Original => "original",
            ExportFormat::A2t1 => "a2t1",
            ExportFormat::A2run2 => "a2run2",
            ExportFormat::A2pack => "a2pack",
            ExportFormat::PackDat => "packdat",
            ExportFormat::Npy => "npy",
            ExportFormat::Session => "session",
            ExportFormat::Macroxue => "macroxue",
            ExportFormat::Jsonl => "jsonl",
        }
    }

    /// Returns whether a conversion without an archive writes this format.
    #[must_use]
    pub fn is_of_conversions(self) -> bool {
        self != ExportFormat::Original
    }

    /// Returns whether the output is a folder with one file per run.
    pub(super) fn is_run_files(self) -> bool {
        matches!(self, ExportFormat::Original | ExportFormat::A2t1 | ExportFormat::A2run2)
    }

    /// Returns whether the run file that a run came from is written, if it has the right format.
    pub(super) fn uses_run_file(self) -> bool {
        self.is_run_files() || matches!(self, ExportFormat::A2pack | ExportFormat::Jsonl)
    }
}

text_form!(ExportFormat, "format", ExportFormat::ALL.map(ExportFormat::name).join(", "));
