//! The choice of the filters that run inside the Parquet reader.
//!
//! A filter inside the reader saves the decoding of the rows that it drops, if these rows are contiguous. For
//! example, all steps of an early phase precede those of a late one. A filter that drops scattered rows, such
//! as one on the move, saves nothing. The reader decompresses their pages anyway, and skipping single rows
//! costs more than decoding all of them.
//!
//! So each filter is evaluated on a sample. It goes into the reader if it drops many rows and its verdict
//! seldom changes from row to row. The other filters run on whole batches, above a node that keeps them there
//! ([`Hides::Input`](crate::query::rewrites::Hides)).

use crate::archive::TableName;
use crate::query::scan::run_index::verdicts;
use datafusion::common::{DFSchema, Result as DataFusionResult};
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::{ExecutionPlan, collect};
use std::sync::Arc;

/// The number of rows in the sample.
pub(in crate::query) const SAMPLE_ROWS: usize = 1 << 14;
/// The least average number of rows between two changes of the verdict, for a filter in the reader.
const ROWS_PER_CHANGE: usize = 512;

/// Columns of `steps` that change at most a few times per run.
const CLUSTERED_STEPS: [&str; 5] = ["max_exp", "phase", "has_evs", "step_index", "tile_65536_mask"];
/// The sort columns of `annotations`.
const CLUSTERED_ANNOTATIONS: [&str; 3] = ["model", "run_id", "step_index"];
/// The sort columns of `runs`.
const CLUSTERED_RUNS: [&str; 2] = ["run_id", "ingested_at"];

/// Returns whether a filter's verdict seldom changes; `None` if only a sample can tell. `runs` has few rows, so
/// sampling it would cost as much as it could save.
pub(in crate::query) fn is_clustered(table: TableName, filter: &Expr) -> Option<bool> {
    let only = |clustered: &[&str]| filter.column_refs().iter().all(|column| clustered.contains(&column.name()));
    match table {
        TableName::Runs => Some(only(&CLUSTERED_RUNS)),
        TableName::Steps => only(&CLUSTERED_STEPS).then_some(true),
        TableName::Annotations => only(&CLUSTERED_ANNOTATIONS).then_some(true),
    }
}

/// Returns whether a filter saves the reader nothing, by its verdicts on the rows of a sample.
pub(in crate::query) async fn saves_nothing(
    filter: &Expr,
    sample: Arc<dyn ExecutionPlan>,
    state: &dyn datafusion::catalog::Session,
) -> DataFusionResult<bool> {
    let schema = DFSchema::try_from(sample.schema())?;
    let filter = state.create_physical_expr(filter.clone(), &schema)?;
    let (mut num_rows, mut num_kept, mut changes, mut last) = (0, 0, 0, false);
    for batch in collect(sample, state.task_ctx()).await? {
        // An error here may also occur in the query, unless another filter drops the row.
        let Ok(verdicts) = verdicts(filter.as_ref(), &batch) else { return Ok(true) };
        num_kept += verdicts.count_set_bits();
        for keeps in &verdicts {
            changes += usize::from(keeps != last);
            last = keeps;
        }
        num_rows += batch.num_rows();
    }
    Ok(changes * ROWS_PER_CHANGE > num_rows || num_kept * 4 > num_rows * 3)
}
