//! Games for display: a run as a sequence of positions.
//!
//! The entry point is `Archive::game`. Terminals, pictures and pages show the same positions.
//!
//! | file | owns |
//! | --- | --- |
//! | `game.rs` | a game: its positions with values, scores and predictions |
//! | `marks.rs` | marks of interesting steps: blunders, hard moves, disagreements, new tiles |
//! | `page.rs` | the HTML page that replays a game |
//! | `replay.html` | the template of that page |
//! | `view/` | the explorer: a server for a browser on the same machine |
//! | `web/`, `assets/` | the sources of the explorer's page, and the files that `make page` builds from them |

mod game;
mod marks;
mod page;
mod view;

pub(crate) use game::{Game, Position, Prediction};
pub(crate) use marks::{Mark, Thresholds};
pub(crate) use page::replay_page;
#[cfg(feature = "python")]
pub(crate) use view::LivePolicy;
pub(crate) use view::{View, ViewOptions};
