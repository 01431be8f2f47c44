//! Readers and writers of run files, packs and datasets. Each format has one file or folder, with its byte
//! diagram on top.
//!
//! | file | owns |
//! | --- | --- |
//! | `files/` | access to bytes, NumPy files, databases and folders |
//! | `run_file`, `a2t1`, `a2run2` | run files: [`read_run`], [`decode_run`], [`encode_run`] |
//! | `pack` | many run files in one file: [`PackReader`], [`PackBuilder`] |
//! | `packdat`, `dataset`, `session`, `macroxue`, `macroxue_pack` | readers and writers of other formats, such as [`PackDat`] |
//! | `jsonl` | JSON Lines, write-only |
//! | `annotations` | predictions of a model for a pool of games |
//! | `registry`, `source` | [`SourceFormat`], and the interface to the runs of a file or folder |
//! | `detect`, `numpy_folder` | detection by content, and opening of files and folders |
//! | `inputs` | the runs in files and folders of any format |
//! | `rows` | the mapping between the steps of runs and rows |
//!
//! A format is detected from the content of a file, never from its name. Invariants: decoding a run file and encoding
//! its run in the same format returns the same bytes, if one of the original tools wrote the file. Other formats return
//! the same contents; docs/formats.md says what is normalized.

mod a2run2;
mod a2t1;
mod annotations;
mod dataset;
mod detect;
mod files;
pub(crate) mod inputs;
mod jsonl;
mod macroxue;
mod macroxue_pack;
mod numpy_folder;
mod pack;
mod packdat;
mod registry;
mod rows;
mod run_file;
mod session;
mod source;

pub(crate) use annotations::AnnotationFolder;
pub use dataset::{Dataset, DatasetWriter};
pub(crate) use detect::{Container, ContainerKind, Content, open_container};
pub(crate) use files::mapped::{header_error, map_file, open_file, open_regular, read_json};
pub(crate) use files::mapped_rows::{files_in as step_files_in, numbered_files};
pub(crate) use files::npy;
pub(crate) use files::ordered::fill_window;
pub(crate) use files::staged_folder::StagedFolder;
pub(crate) use files::walk::{FoundFile, files_in};
pub use files::walk::{is_archive, is_named_as_unfinished};
pub use inputs::Rejected;
pub(crate) use inputs::{ReadRun, RunInput, each_window, runs_of_pack};
pub use jsonl::JsonlOptions;
pub(crate) use jsonl::{BEST, lines_of};
pub use macroxue::Macroxue;
pub use macroxue_pack::{MacroxuePack, MacroxuePackWriter};
pub(crate) use numpy_folder::is_companion;
pub use pack::{
    Compression, ExtractReport, JsonlReport, PackBuilder, PackOptions, PackReader, PackReport, PackStats, RunSlice,
    ValidateOptions, ValidateReport, pack_folder,
};
pub use packdat::{PackDat, PackDatWriter};
pub use registry::SourceFormat;
pub(crate) use run_file::PREFIX_LEN;
pub use run_file::{RunFormat, decode_run, encode_run, read_run};
pub(crate) use session::SessionRun;
pub use session::{Session, SessionOptions, SessionWriter};
pub use source::{RunSource, SourceFacts, SourceRun};

#[cfg(test)]
pub(crate) mod tests;
