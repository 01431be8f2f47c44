//! Games for display: a run as a sequence of positions.
//!
//! The entry point is `Archive::replay`. The command, pictures and pages show the same positions.
//!
//! | file | owns |
//! | --- | --- |
//! | `replay.rs` | a game: its positions with values, scores and predictions |
//! | `data.rs` | a game as JSON |
//! | `rows.rs` | the rows of a statement, as one batch and in JSON; the values of its parameters |
//! | `page.rs` | the page that replays a game, in one file |
//! | `view/` | the explorer: a server for a browser on the same machine |
//! | `web/`, `assets/` | the sources of the explorer's pages, and the files that `make page` builds from them |

mod data;
mod page;
mod replay;
mod rows;
mod view;

#[cfg(feature = "cli")]
pub(crate) use page::MIN_LOSS;
pub(crate) use page::ReplayPage;
pub(crate) use replay::{Position, Replay};
#[cfg(feature = "cli")]
pub(crate) use rows::{objects, read, scalar};
#[cfg(feature = "python")]
pub(crate) use view::LivePolicy;
pub(crate) use view::{View, ViewOptions};
