//! The runs of a report, and their groups.

use a2store::archive::Archive;
use a2store::error::{Error, ErrorKind, Result};
use a2store::query::{QueryOptions, no_params};
use a2store::system::cancellation::CancellationToken;
use a2store::system::names::text_form;

/// Options of [`Report::of`](crate::Report::of).
#[derive(Clone, Debug, Default)]
pub struct ReportOptions {
    /// An SQL condition on the columns of `runs`, such as `max_score >= 20000`; `None` = all runs.
    pub condition: Option<String>,
    /// The groups that the report compares.
    pub groups: ReportGroups,
    /// Two groups to compare. Runs of other groups are left out.
    pub compare: Option<[String; 2]>,
    /// The address of a running explorer that the page links to; `/` = the server of the page; `None` = no
    /// links.
    pub explorer: Option<String>,
}

/// The property of runs by which a report groups them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReportGroups {
    /// The engine. For recordings and sessions, this is the tag of the model, unless the recorder has another engine.
    #[default]
    Engine,
    /// The ingest that added the run, named by its time.
    Ingest,
    /// The format of the source.
    Format,
    /// The session.
    Session,
}

impl ReportGroups {
    /// All variants.
    pub const ALL: [ReportGroups; 4] =
        [ReportGroups::Engine, ReportGroups::Ingest, ReportGroups::Format, ReportGroups::Session];

    /// Returns the name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ReportGroups::Engine => "engine",
            ReportGroups::Ingest => "ingest",
            ReportGroups::Format => "format",
            ReportGroups::Session => "session",
        }
    }
}

text_form!(ReportGroups, "by", "\"engine\", \"ingest\", \"format\" or \"session\"");

impl ReportOptions {
    /// Returns the common table expressions that go before a named query. They replace `runs`, `steps` and
    /// `annotations`. The list is empty if the report has all runs, grouped by engine.
    ///
    /// # Errors
    /// [`ErrorKind::Query`] and [`ErrorKind::QueryRefused`] if the condition is not one condition on runs.
    pub(super) fn tables(&self, archive: &Archive) -> Result<Vec<String>> {
        let mut conditions = Vec::new();
        if let Some(condition) = &self.condition {
            check_condition(archive, condition, "a report", &QueryOptions::default())?;
            conditions.push(format!("(\n{condition}\n)"));
        }
        // If the groups are not engines, the column `engine` has the name of the group.
        let group = match self.groups {
            ReportGroups::Engine => "engine",
            ReportGroups::Ingest => "CAST(ingested_at AS VARCHAR)",
            ReportGroups::Format => "format",
            ReportGroups::Session => "session",
        };
        if let Some(compare) = &self.compare {
            let names = compare.each_ref().map(|name| format!("'{}'", name.replace('\'', "''")));
            conditions.push(format!("{group} IN ({})", names.join(", ")));
        }
        let has_groups = self.groups != ReportGroups::Engine;
        if conditions.is_empty() && !has_groups {
            return Ok(Vec::new());
        }
        let columns = if has_groups { format!("* REPLACE ({group} AS engine)") } else { "*".to_owned() };
        let filter = if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) };
        let steps = if has_groups {
            "SELECT s.* REPLACE (r.engine AS engine) FROM steps s JOIN runs r ON r.run_id = s.run_id"
        } else {
            "SELECT * FROM steps WHERE run_id IN (SELECT run_id FROM runs)"
        };
        let annotations = "SELECT * FROM annotations WHERE run_id IN (SELECT run_id FROM runs)";
        Ok(vec![
            format!("runs AS (SELECT {columns} FROM runs{filter})"),
            format!("steps AS ({steps})"),
            format!("annotations AS ({annotations})"),
        ])
    }
}

/// Checks that a text is one condition on the columns of `runs`. Errors name `of` as the owner of the
/// condition.
pub(crate) fn check_condition(archive: &Archive, condition: &str, of: &str, options: &QueryOptions) -> Result<()> {
    // Two statements, because a text such as `true) OR (true` is valid in only one of them.
    for statement in [
        format!("SELECT run_id FROM runs WHERE (\n{condition}\n)"),
        format!("SELECT run_id FROM runs WHERE\n{condition}\n"),
    ] {
        let query = archive.sql_with(&statement, no_params(), options, CancellationToken::never()).map_err(
            |error| match error.into_kind() {
                ErrorKind::Query { message } => Error::query(format!("where: {message}")),
                kind => kind.into(),
            },
        )?;
        if query.is_volatile()? {
            // Otherwise, each query would select different runs.
            let why = format!("the condition of {of} must depend only on the run");
            return Err(Error::refused("where: a random number or the time", why));
        }
    }
    Ok(())
}
