//! The explorer: a server for one browser on the same machine, and the page that it serves.
//!
//! The entry point is `View::start`. The server trusts nobody: each request needs the token of this start, the name of
//! this machine as its host, and no other site as its origin. It reads the archive, and writes nothing but the notes.
//! A request that is dropped cancels its work.
//!
//! | file | owns |
//! | --- | --- |
//! | `server.rs` | the socket, the connections, the end |
//! | `gate.rs` | who may ask: token, host, origin; the headers of all answers |
//! | `routes.rs` | which address has which answer |
//! | `request.rs`, `failure.rs` | bodies of requests, work that a dropped request cancels; refused and failed requests |
//! | `explorer.rs`, `lock.rs` | what all requests share: the archive, the limits of queries, what is kept |
//! | `assets.rs` | the files of the page, which `../web/` builds |
//! | `about.rs`, `news.rs` | what a page needs to know about the archive; new versions and changed notes |
//! | `runs.rs`, `run_list.rs` | the list of runs; the runs in RAM, and their orders |
//! | `game.rs`, `positions.rs` | a run with its positions; the places of a position |
//! | `statement.rs`, `sql.rs`, `rows.rs` | a statement or named query that is asked for; its rows |
//! | `catalog.rs` | what statements can name: tables, functions, named queries |
//! | `downloads.rs`, `waiting_files.rs` | results as files; files that wait for the request that gets them |
//! | `notes.rs`, `notes_file.rs` | the notes of the user; their Parquet file beside the archive |
//! | `overview.rs`, `reports.rs` | the report as a page; reports that are computed in the background |

mod about;
mod assets;
mod catalog;
mod downloads;
mod explorer;
mod failure;
mod game;
mod gate;
mod lock;
mod news;
mod notes;
mod notes_file;
mod overview;
mod positions;
mod reports;
mod request;
mod routes;
mod rows;
mod run_list;
mod runs;
mod server;
mod sql;
mod statement;
mod waiting_files;

#[cfg(feature = "python")]
pub(crate) use explorer::LivePolicy;
pub(crate) use server::{View, ViewOptions};
