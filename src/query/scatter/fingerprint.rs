//! Fingerprints of cuts: two processes must cut the same subtrees, or their partitions would not fit together.

use super::cut::{Cut, Plan};
use crate::query::scan::parquet_scan::scan_of;
use datafusion::common::Result as DataFusionResult;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::physical_plan::parquet::ParquetAccessPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::{DisplayFormatType, ExecutionPlanProperties};
use std::fmt::{self, Write};

/// Returns a hash of all that the tasks of these cuts must have in common.
pub(super) fn fingerprint(cuts: &[Cut]) -> DataFusionResult<String> {
    let mut text = String::new();
    for cut in cuts {
        let _ = writeln!(text, "cut: max_rows={:?}", cut.max_rows);
        describe(&cut.plan, &mut text)?;
    }
    Ok(blake3::hash(text.as_bytes()).to_string())
}

fn describe(plan: &Plan, text: &mut String) -> DataFusionResult<()> {
    let num_partitions = plan.output_partitioning().partition_count();
    let order = plan.output_ordering().map(ToString::to_string);
    let node = fmt::from_fn(|f| plan.fmt_as(DisplayFormatType::Verbose, f));
    let _ = writeln!(text, "{node} partitions={num_partitions} order={order:?}");
    for field in plan.schema().fields() {
        let _ = writeln!(text, "  {} {} {}", field.name(), field.data_type(), field.is_nullable());
    }
    // The displays of nodes omit the arguments of aggregates, and the keys of some joins.
    plan.apply_expressions(&mut |expr| {
        let _ = writeln!(text, "  {expr}");
        Ok(TreeNodeRecursion::Continue)
    })?;
    for aggregate in plan.downcast_ref::<AggregateExec>().into_iter().flat_map(AggregateExec::aggr_expr) {
        let (is_distinct, ignores_nulls) = (aggregate.is_distinct(), aggregate.ignore_nulls());
        let _ = writeln!(text, "  {} distinct={is_distinct} ignore_nulls={ignores_nulls}", aggregate.name());
    }
    for (i, group) in scan_of(plan).into_iter().flat_map(|config| config.file_groups.iter()).enumerate() {
        for file in group.files() {
            let rows = file.extension::<ParquetAccessPlan>();
            let _ = writeln!(text, "  {i} {} {:?} {rows:?}", file.object_meta.location, file.range);
        }
    }
    plan.children().into_iter().try_for_each(|child| describe(child, text))
}
