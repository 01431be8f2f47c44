//! Which filters go into the Parquet reader, and keeping the others above it.
//!
//! A filter inside the reader saves the decoding of rows that it drops, where these come in long runs: a phase is over once it is
//! over. Rows that fall out one by one (every fourth has this move) save nothing, since their pages are decompressed anyway,
//! and taking the others out of a page one by one costs more than decoding all of it. So a filter is tried on a sample, and
//! goes into the reader if it drops much and changes its mind seldom; the others are evaluated on whole batches, above a
//! node that keeps them there ([`Purpose::KeepFilters`](super::passing::Purpose)).

use crate::archive::TableName;
use arrow::array::{Array, AsArray};
use datafusion::common::{DFSchema, Result as DataFusionResult};
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::{ExecutionPlan, collect};
use std::sync::Arc;

/// Rows that filters are tried on.
pub(super) const SAMPLE_ROWS: usize = 1 << 14;
/// Rows between two changes, from which on a filter belongs in the reader.
const ROWS_PER_CHANGE: usize = 512;

/// Columns of `steps` that change a few times in a run at most.
const CLUSTERED_STEPS: [&str; 4] = ["max_exp", "phase", "has_evs", "step_index"];
/// Columns by which `runs` are in order.
const CLUSTERED_RUNS: [&str; 3] = ["run_id", "version", "ingested_at"];

/// Whether a filter changes its mind seldom, as far as that is known without a sample. `runs` has few rows, of which a sample would
/// cost what it could save.
pub(super) fn is_clustered(table: TableName, filter: &Expr) -> Option<bool> {
    let only = |clustered: &[&str]| filter.column_refs().iter().all(|column| clustered.contains(&column.name()));
    match table {
        TableName::Runs => Some(only(&CLUSTERED_RUNS)),
        TableName::Steps => only(&CLUSTERED_STEPS).then_some(true),
    }
}

/// Whether a filter saves the reader nothing, by its verdicts on the rows of a plan.
pub(super) async fn saves_nothing(
    filter: &Expr,
    sample: Arc<dyn ExecutionPlan>,
    state: &dyn datafusion::catalog::Session,
) -> DataFusionResult<bool> {
    let schema = DFSchema::try_from(sample.schema())?;
    let filter = state.create_physical_expr(filter.clone(), &schema)?;
    let (mut num_rows, mut num_kept, mut changes, mut last) = (0, 0, 0, false);
    for batch in collect(sample, state.task_ctx()).await? {
        // What fails here would fail in the query, if it comes to those rows.
        let Ok(verdicts) = filter.evaluate(&batch).and_then(|value| value.into_array(batch.num_rows())) else {
            return Ok(true);
        };
        let verdicts = verdicts.as_boolean();
        for row in 0..verdicts.len() {
            let keeps = verdicts.is_valid(row) && verdicts.value(row);
            num_kept += usize::from(keeps);
            changes += usize::from(keeps != last);
            last = keeps;
        }
        num_rows += batch.num_rows();
    }
    Ok(changes * ROWS_PER_CHANGE > num_rows || num_kept * 4 > num_rows * 3)
}
