//! Query plans as text, without file names.

use super::{Query, query_error, run_index};
use crate::error::Result;
use crate::progress::Progress;
use crate::runtime::block_on_unless;
use datafusion::physical_plan::display::DisplayableExecutionPlan;

impl Query {
    /// Returns the physical plan as text.
    ///
    /// It shows the columns that are read and where filters run. `predicate` is a filter inside the Parquet
    /// reader, and `pruning_predicate` skips row groups and pages by their statistics. The first line, `filters
    /// on runs`, appears if a filter is evaluated once per run. The scan then reads only the rows of the
    /// matching runs.
    ///
    /// With `analyze`, runs the query and adds the metrics and times of each node.
    ///
    /// # Errors
    /// As [`stream`](Query::stream).
    pub fn explain(&self, analyze: bool) -> Result<String> {
        self.explain_unless_cancelled(analyze, &())
    }

    pub(crate) fn explain_unless_cancelled(&self, analyze: bool, progress: &dyn Progress) -> Result<String> {
        let limits = self.limits();
        let execution = self.execution(false, &limits, progress)?;
        let plan = std::sync::Arc::clone(execution.plan());
        let (logical, context) = (self.plan.clone(), self.context()?);
        let planning = async move { context.state().optimize(&logical).map_err(query_error) };
        let logical = block_on_unless(planning, || limits.check(progress))?;
        let by_run = run_index::describe(&logical).map_err(query_error)?;
        let text = if analyze {
            let mut stream = self.stream_of(execution, limits);
            while stream.next_unless_cancelled(progress)?.is_some() {}
            DisplayableExecutionPlan::with_metrics(plan.as_ref()).indent(false).to_string()
        } else {
            DisplayableExecutionPlan::new(plan.as_ref()).indent(false).to_string()
        };
        Ok(by_run + &without_files(&text))
    }
}

/// Replaces the file list of each scan by its number of partitions.
pub(super) fn without_files(plan: &str) -> String {
    // This marker comes from the engine: text of the statement never precedes it in a line.
    const FILES: &str = "DataSourceExec: file_groups={";
    let mut text = String::with_capacity(plan.len());
    let mut rest = plan;
    while let Some(at) = rest.find(FILES) {
        let (before, list) = rest.split_at(at + FILES.len());
        text.push_str(before);
        // Example of a list: "3 groups: [[steps/a.parquet:0..1, …], …]}"
        let count = list.split(':').next().unwrap_or_default();
        let end = list.find("]]}").map_or_else(|| list.find('}').map_or(list.len(), |end| end + 1), |end| end + 3);
        text.push_str(count.split('}').next().unwrap_or_default());
        text.push('}');
        rest = &list[end..];
    }
    text.push_str(rest);
    without_names(&text)
}

/// Removes the file name from each metric.
fn without_names(plan: &str) -> String {
    const NAME: &str = "filename=";
    let mut parts = plan.split(NAME);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str(NAME);
        text.push('…');
        text.push_str(part.find(['}', ',', ']', '\n']).map_or("", |end| &part[end..]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::without_files;

    #[test]
    fn a_plan_names_no_files() {
        let plan = "DataSourceExec: file_groups={2 groups: [[steps/ab.parquet:4..5, steps/cd.parquet], [x]]}, projection=[a]\n\
                    DataSourceExec: file_groups={1 group: [[y.parquet]]}, b=file_groups={c}";
        assert_eq!(
            without_files(plan),
            "DataSourceExec: file_groups={2 groups}, projection=[a]\nDataSourceExec: file_groups={1 group}, b=file_groups={c}"
        );
        let metric = "x{partition=0, filename=steps/ab.parquet:4..5}=7, y{filename=c.parquet}=8";
        assert_eq!(without_files(metric), "x{partition=0, filename=…}=7, y{filename=…}=8");
        assert_eq!(without_files("nothing"), "nothing");
        assert_eq!(without_files("DataSourceExec: file_groups={"), "DataSourceExec: file_groups={}");
    }
}
