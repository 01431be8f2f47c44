//! Games for display: a run as a sequence of positions.
//!
//! The entry point is `Archive::game`. Terminals, pictures and pages show the same positions.
//!
//! | file | owns |
//! | --- | --- |
//! | `game.rs` | a game: its positions with values, scores and predictions |
//! | `marks.rs` | marks of interesting steps: blunders, hard moves, disagreements, new tiles |
//! | `data.rs`, `rows.rs` | a game as JSON; the rows of a statement as JSON |
//! | `page.rs` | the page that replays a game, in one file |
//! | `view/` | the explorer: a server for a browser on the same machine |
//! | `web/`, `assets/` | the sources of the explorer's pages, and the files that `make page` builds from them |

mod data;
mod game;
mod marks;
mod page;
mod rows;
mod view;

pub(crate) use game::{Game, Position};
pub(crate) use marks::{Mark, Thresholds};
pub(crate) use page::ReplayPage;
#[cfg(feature = "python")]
pub(crate) use view::LivePolicy;
pub(crate) use view::{View, ViewOptions};
