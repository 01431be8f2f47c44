//! The report of an archive: tables, and one HTML page that shows them.
//!
//! The entry point is [`Report::of`]. Each table is the result of a named query, so that
//! users can run the same queries.
//!
//! Invariant: the page needs no other file and no network. The page treats text of the archive as data, never
//! as markup.
//!
//! | file | owns |
//! | --- | --- |
//! | `options.rs` | the runs of a report, and their groups |
//! | `plan.rs` | the named queries of a report, and their parameters |
//! | `report.rs` | running the queries; the report |
//! | `page.rs` | the page: the template with the report's data |

mod options;
mod page;
mod plan;
#[allow(clippy::module_inception)] // The file of the type that the module is about.
mod report;

pub(crate) use options::check_condition;
pub use options::{ReportGroups, ReportOptions};
pub(crate) use page::{page_policy, with_data};
pub use report::{Report, ReportTable};
