//! The explorer: a server for one browser on the same machine, and the page that it serves.
//!
//! The entry point is `View::start`. The server checks each request: it needs the token of this start and a
//! host name of this machine, and its origin must not be another site. The server only reads the archive. A dropped
//! request cancels its work.
//!
//! | file | owns |
//! | --- | --- |
//! | `server.rs` | the socket, the connections, the shutdown |
//! | `access.rs` | access control: token, host, origin; the headers of all responses |
//! | `routes.rs` | the function that handles each address; the files of the page, which `../web/` builds |
//! | `request.rs`, `failure.rs` | bodies and cancellation of requests; rejected and failed requests |
//! | `explorer.rs` | shared state: the archive, and the limits of queries |
//! | `about.rs`, `events.rs` | the description of the archive; events of new versions |
//! | `runs.rs` | the list of runs |
//! | `game.rs`, `positions.rs` | a run with its positions; the places where a position occurs |
//! | `statement.rs`, `sql.rs` | the statement or named query of a request; its rows |
//! | `catalog.rs` | the names that statements can use: tables, functions, named queries |
//! | `downloads.rs` | results as files |
//! | `reports.rs` | the report as a page |

mod about;
mod access;
mod catalog;
mod downloads;
mod events;
mod explorer;
mod failure;
mod game;
mod positions;
mod reports;
mod request;
mod routes;
mod runs;
mod server;
mod sql;
mod statement;

#[cfg(feature = "python")]
pub(crate) use explorer::LivePolicy;
pub(crate) use server::{View, ViewOptions};
