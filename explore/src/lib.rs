//! The report, the explorer in the browser, and replays of an [a2store] archive.
//!
//! [`Report`] has tables, and one HTML page that shows them. [`Replay`] is a game as a sequence of positions. The
//! command, pictures and pages show the same positions. [`View`] serves the explorer.
//!
//! | file | owns |
//! | --- | --- |
//! | `report/` | what an archive holds, as tables and as one page |
//! | `replay.rs` | a game: its positions with values, scores and predictions |
//! | `rows.rs` | the rows of a statement, as one batch and in JSON; the values of its parameters |
//! | `page.rs` | a game as JSON; the page that replays it, in one file; writing pages |
//! | `view/` | the explorer: a server for a browser on the same machine |
//!
//! `web/` has the sources of the pages, and `assets/` the files that `make page` builds from them.

mod page;
mod replay;
mod report;
mod rows;
mod view;

pub use page::{MIN_LOSS, replay_page, write_page};
pub use replay::{Position, Prediction, Replay};
pub use report::{Report, ReportGroups, ReportOptions, ReportTable};
pub use rows::{objects, read, scalar};
pub use view::{LivePolicy, View, ViewOptions};
