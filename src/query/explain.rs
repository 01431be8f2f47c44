//! The physical plan of a query as text.

use crate::error::Result;
use crate::query::engine::errors::query_error;
use crate::query::query::Query;
use crate::query::scan::run_index;
use crate::system::cancellation::CancellationToken;
use datafusion::physical_plan::display::DisplayableExecutionPlan;

impl Query {
    /// Returns the physical plan as text.
    ///
    /// It shows the columns that are read and where filters run. `predicate` is a filter inside the Parquet
    /// reader, and `pruning_predicate` skips row groups and pages by their statistics. If a filter is evaluated
    /// once per run, the first line is `filters on runs`. The scan then reads only the rows of the matching
    /// runs.
    ///
    /// With `analyze`, runs the query and adds the metrics and times of each node.
    ///
    /// # Errors
    /// The errors of [`stream`](Query::stream).
    pub fn explain(&self, analyze: bool, cancel: &CancellationToken) -> Result<String> {
        let limits = self.limits();
        let (execution, why_here) = self.execution_or_why(&limits, cancel)?;
        let plan = std::sync::Arc::clone(&execution.plan);
        let by_run = run_index::describe(&self.optimized(&limits, cancel)?).map_err(query_error)?;
        let text = if analyze {
            let mut stream = self.stream_of(execution, limits);
            while stream.next_batch(cancel)?.is_some() {}
            DisplayableExecutionPlan::with_metrics(plan.as_ref()).indent(false).to_string()
        } else {
            DisplayableExecutionPlan::new(plan.as_ref()).indent(false).to_string()
        };
        let here = why_here.map(|why| format!("runs in this process: {why}\n")).unwrap_or_default();
        Ok(here + &by_run + &text)
    }
}
