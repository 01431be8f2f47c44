//! The addresses that the server answers.
//!
//! | file | owns |
//! | --- | --- |
//! | `about.rs`, `events.rs` | the description of the archive; events of new versions |
//! | `runs.rs` | the list of runs |
//! | `game.rs`, `positions.rs` | a run with its positions; the places where a position occurs |
//! | `statement.rs`, `sql.rs` | the statement or named query of a request; its rows |
//! | `catalog.rs` | the names that statements can use: tables, functions, named queries |
//! | `downloads.rs` | results as files |
//! | `reports.rs` | the report as a page |

pub(crate) mod about;
pub(crate) mod catalog;
pub(crate) mod downloads;
pub(crate) mod events;
pub(crate) mod game;
pub(crate) mod positions;
pub(crate) mod reports;
pub(crate) mod runs;
pub(crate) mod sql;
pub(crate) mod statement;
