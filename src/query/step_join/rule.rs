//! The optimizer rule that replaces hash joins by joins by run and step, or by run.

use super::exec::StepJoinExec;
use super::joined_rows::JoinedRows;
use super::keys::KeyColumns;
use super::sorted_scan::{SortedScan, index_of};
use crate::query::rewrites::NodeRule;
use datafusion::common::{JoinSide, JoinType, NullEquality, Result as DataFusionResult};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::add_offset_to_expr;
use datafusion::physical_expr::expressions::BinaryExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::joins::utils::{JoinFilter, build_join_schema};
use std::sync::Arc;

/// Replaces hash joins of sorted scans by run and step, or by run. Must run before the rule that distributes rows over
/// partitions.
pub(in crate::query) const JOIN_BY_STEPS: NodeRule = NodeRule {
    name: "join_by_steps",
    change: |plan, config| {
        let Some(join) = plan.downcast_ref::<HashJoinExec>() else { return Ok(None) };
        let join = by_keys(join, config.execution.target_partitions.max(1))?;
        Ok(join.map(|join| Arc::new(join) as Arc<dyn ExecutionPlan>))
    },
};

/// Returns the join that replaces a hash join; `None` if it is not on the keys of two sorted scans.
fn by_keys(join: &HashJoinExec, partitions: usize) -> DataFusionResult<Option<StepJoinExec>> {
    let (Some(left), Some(right)) = (SortedScan::below(join.left()), SortedScan::below(join.right())) else {
        return Ok(None);
    };
    // The other side must be cut at the runs of the probe side.
    let is_left = match join.join_type() {
        JoinType::Inner if left.is_of_runs() || right.is_of_runs() => right.is_of_runs(),
        JoinType::Inner if left.is_cut || right.is_cut => left.is_cut,
        JoinType::Inner => left.num_rows() >= right.num_rows(),
        JoinType::Left | JoinType::LeftSemi => true,
        JoinType::Right | JoinType::RightSemi => false,
        JoinType::LeftAnti if !join.null_aware => true,
        JoinType::RightAnti if !join.null_aware => false,
        _ => return Ok(None),
    };
    // A division for tasks has more partitions than this process has threads.
    let partitions = partitions.max(left.num_groups()).max(right.num_groups());
    let (probe, build) = if is_left { (left, right) } else { (right, left) };
    let may_replace = !probe.is_of_runs() && (!build.is_of_runs() || build.is_cheap(partitions, probe.num_rows()));
    if build.is_cut || join.fetch().is_some() || !may_replace {
        return Ok(None);
    }
    let (left_schema, right_schema) = (join.left().schema(), join.right().schema());
    let (both, both_columns) = build_join_schema(&left_schema, &right_schema, &JoinType::Inner);
    let both = Arc::new(both);
    // Unlike the kernels of arrow, these operators compare lists, and 0.0 equals -0.0.
    let equal = match join.null_equality() {
        NullEquality::NullEqualsNothing => Operator::Eq,
        NullEquality::NullEqualsNull => Operator::IsNotDistinctFrom,
    };
    let mut keys = [None; 2];
    let mut conditions = Vec::new();
    for (of_left, of_right) in join.on() {
        let (of_probe, of_build) = if is_left { (of_left, of_right) } else { (of_right, of_left) };
        let is_key = |name: &str| probe.is_column(of_probe, name) && build.is_column(of_build, name);
        match ["run_id", "step_index"].into_iter().position(is_key) {
            Some(key) if keys[key].is_none() => keys[key] = index_of(of_probe).zip(index_of(of_build)),
            _ => {
                let of_right = add_offset_to_expr(Arc::clone(of_right), left_schema.fields().len() as isize)?;
                let expr = Arc::new(BinaryExpr::new(Arc::clone(of_left), equal, of_right));
                conditions.push(JoinFilter::new(expr, both_columns.clone(), Arc::clone(&both)));
            }
        }
    }
    let [Some(run), step] = keys else { return Ok(None) };
    if step.is_none() && !build.is_of_runs() {
        return Ok(None);
    }
    let keys = [
        KeyColumns { run: run.0, step: step.map(|step| step.0), are_unique: step.is_some() },
        KeyColumns { run: run.1, step: step.map(|step| step.1), are_unique: true },
    ];
    conditions.extend(join.filter().cloned());
    let columns = build_join_schema(&left_schema, &right_schema, join.join_type()).1;
    let columns = match &join.projection {
        Some(chosen) => chosen.iter().map(|&i| columns[i].clone()).collect(),
        None => columns,
    };
    let (kind, probe_side) = match is_left {
        true => (*join.join_type(), JoinSide::Left),
        false => (join.join_type().swap(), JoinSide::Right),
    };
    let rows = JoinedRows { kind, probe_side, conditions, columns, schema: join.schema() };
    // For pairs, the probe side needs only the runs of the build side.
    let probe = probe.cut(partitions, rows.returns_pairs_only().then_some(&build))?;
    let build = build.cut_at(&probe.run_ids)?;
    StepJoinExec::try_new(probe.input, build, keys, Arc::new(rows)).map(Some)
}
