//! Data files: writing and reading Parquet, and the runs in its rows.
//!
//! | file | owns |
//! | --- | --- |
//! | `writer.rs`, `writer_thread.rs` | encodings and row groups; the thread that writes files |
//! | `reader.rs`, `input.rs` | reading columns, row groups and footers |
//! | `checked_files.rs` | the comparison of data files with their manifest before their first use |
//! | `run_rows.rs`, `row_views.rs` | rows of `runs`; columns of the tables, and runs from rows of `steps` |
//! | `read_runs.rs` | whole runs with their original files |

pub(in crate::archive) mod checked_files;
pub(in crate::archive) mod input;
pub(in crate::archive) mod read_runs;
pub(in crate::archive) mod reader;
pub(in crate::archive) mod row_views;
pub(in crate::archive) mod run_rows;
pub(in crate::archive) mod writer;
pub(in crate::archive) mod writer_thread;
