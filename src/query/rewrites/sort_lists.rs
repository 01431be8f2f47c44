//! `array_agg(… ORDER BY …)` as lists that are sorted after they are made.
//!
//! With ORDER BY, DataFusion keeps each value and each key in an object of its own. Without, it keeps arrays. So the
//! aggregate makes lists of structs, each of a value and its keys, and a projection above it sorts the lists.

use crate::query::engine::plan_function::PlanFunction;
use arrow::array::{Array, ArrayRef, AsArray, ListArray, UInt32Array};
use arrow::compute::{SortOptions, take};
use arrow::datatypes::{DataType, FieldRef};
use arrow::row::{RowConverter, SortField};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result as DataFusionResult, internal_err};
use datafusion::functions::core::expr_fn::r#struct;
use datafusion::functions_aggregate::array_agg::array_agg;
use datafusion::logical_expr::expr::{AggregateFunction, NullTreatment};
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable, LogicalPlan, Projection};
use std::sync::Arc;

/// Rewrites the aggregates of a fully optimized plan.
pub(in crate::query) fn sort_lists(plan: LogicalPlan) -> DataFusionResult<LogicalPlan> {
    let mut num_lists = 0;
    let rewritten = plan.transform_down_with_subqueries(|plan| match plan {
        LogicalPlan::Aggregate(aggregate) => rewrite(aggregate, &mut num_lists),
        plan => Ok(Transformed::no(plan)),
    })?;
    Ok(rewritten.data)
}

fn rewrite(aggregate: Aggregate, num_lists: &mut usize) -> DataFusionResult<Transformed<LogicalPlan>> {
    let num_keys = aggregate.schema.fields().len() - aggregate.aggr_expr.len();
    let (mut aggr_expr, mut columns, mut is_changed) = (Vec::new(), Vec::new(), false);
    for (at, (relation, field)) in aggregate.schema.iter().enumerate() {
        columns.push(Expr::Column(Column::new(relation.cloned(), field.name())));
        let Some(expr) = at.checked_sub(num_keys).map(|at| &aggregate.aggr_expr[at]) else { continue };
        let Some((list, options)) = unsorted(expr, aggregate.input.schema())? else {
            aggr_expr.push(expr.clone());
            continue;
        };
        // DataFusion looks up columns by name across nodes, so the name must be unique.
        *num_lists += 1;
        let name = format!("a2store: list {num_lists}");
        let like = Arc::clone(field);
        let sort = move |arrays: &[ArrayRef]| sorted(arrays[0].as_list(), &options, &like);
        let function = PlanFunction::of_arrays("sort_list", name.clone(), Arc::clone(field), sort);
        let column = function.over(vec![Expr::Column(Column::new_unqualified(&name))]);
        columns[at] = column.alias_qualified(relation.cloned(), field.name());
        aggr_expr.push(list.alias(name));
        is_changed = true;
    }
    if !is_changed {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let aggregate = Aggregate::try_new(aggregate.input, aggregate.group_expr, aggr_expr)?;
    let projection = Projection::try_new(columns, Arc::new(LogicalPlan::Aggregate(aggregate)))?;
    Ok(Transformed::yes(LogicalPlan::Projection(projection)))
}

/// Returns an `array_agg` with ORDER BY as lists of structs, and how to sort them; `None` for other expressions.
fn unsorted(expr: &Expr, input: &DFSchema) -> DataFusionResult<Option<(Expr, Vec<SortOptions>)>> {
    let Expr::AggregateFunction(AggregateFunction { func, params }) = expr.clone().unalias() else { return Ok(None) };
    let skips_nulls = params.null_treatment == Some(NullTreatment::IgnoreNulls);
    if func.name() != "array_agg" || params.order_by.is_empty() || params.distinct || skips_nulls {
        return Ok(None);
    }
    let (mut values, mut options) = (params.args, Vec::new());
    for key in params.order_by {
        if key.expr.get_type(input)?.is_nested() {
            return Ok(None);
        }
        values.push(key.expr);
        options.push(SortOptions { descending: !key.asc, nulls_first: key.nulls_first });
    }
    let mut list = array_agg(r#struct(values));
    if let Expr::AggregateFunction(list) = &mut list {
        list.params.filter = params.filter;
    }
    Ok(Some((list, options)))
}

/// Sorts the structs of each list by all fields but the first. Returns lists of the first field.
fn sorted(lists: &ListArray, options: &[SortOptions], like: &FieldRef) -> DataFusionResult<ArrayRef> {
    let (DataType::List(item), Some((values, keys))) =
        (like.data_type(), lists.values().as_struct().columns().split_first())
    else {
        return internal_err!("sort_list: expected lists of structs");
    };
    let fields = keys.iter().zip(options);
    let fields = fields.map(|(key, options)| SortField::new_with_options(key.data_type().clone(), *options));
    let keys = RowConverter::new(fields.collect())?.convert_columns(keys)?;
    let mut order: Vec<u32> = (0..values.len() as u32).collect();
    for ends in lists.offsets().windows(2) {
        // This sort is fastest for the order of `steps`, in which rows usually come.
        order[ends[0] as usize..ends[1] as usize].sort_by(|&a, &b| keys.row(a as usize).cmp(&keys.row(b as usize)));
    }
    let values = take(values, &UInt32Array::from(order), None)?;
    Ok(Arc::new(ListArray::try_new(Arc::clone(item), lists.offsets().clone(), values, lists.nulls().cloned())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::QueryOptions;
    use crate::query::engine::errors::query_error;
    use crate::query::engine::session;
    use crate::system::runtime::block_on;
    use crate::{Archive, CancellationToken, Phases, SimulateOptions};
    use arrow::util::pretty::pretty_format_batches;
    use datafusion::physical_plan::collect;
    use futures::TryFutureExt;

    #[test]
    fn lists_equal_those_that_datafusion_sorts_itself() {
        let (folder, cancel) = (tempfile::tempdir().unwrap(), CancellationToken::never());
        let runs = folder.path().join("runs");
        crate::simulate(&runs, &SimulateOptions::default().with_runs(4).with_depth(1), &(), cancel).unwrap();
        let mut archive = Archive::create(folder.path().join("games.a2"), Phases::default()).unwrap();
        archive.ingest([&runs], &Default::default(), &(), cancel).unwrap();
        let nulls =
            "(SELECT *, CASE WHEN move < 2 THEN ev_up END AS x, nullif(step_index % 7, 3) AS k FROM steps) AS s";
        for text in [
            "SELECT run_id, array_agg(board ORDER BY step_index) FROM steps GROUP BY run_id ORDER BY 1".to_owned(),
            "SELECT run_id, array_agg(move ORDER BY step_index DESC), array_agg(move + 1 ORDER BY board, step_index) AS b, \
             count(*) FROM steps GROUP BY run_id ORDER BY 1"
                .to_owned(),
            format!("SELECT k, array_agg(x ORDER BY k NULLS LAST, x DESC, run_id, step_index) FROM {nulls} GROUP BY k ORDER BY 1"),
            format!("SELECT array_agg(x ORDER BY x NULLS FIRST, run_id DESC, step_index) FILTER (WHERE move <> 1) FROM {nulls}"),
            format!("SELECT run_id, array_agg(k ORDER BY step_index) FILTER (WHERE k > 9) FROM {nulls} GROUP BY run_id ORDER BY 1"),
            "SELECT engine, move, array_agg(engine ORDER BY run_id, step_index) FROM steps \
             GROUP BY ROLLUP (engine, move) ORDER BY 1, 2"
                .to_owned(),
            "SELECT array_agg(board ORDER BY step_index) FROM steps WHERE run_id = 99".to_owned(),
            "SELECT run_id, (SELECT array_agg(num_steps ORDER BY run_id DESC) FROM runs) AS n, (SELECT array_agg(move ORDER \
             BY run_id, step_index) FROM steps) AS m FROM runs ORDER BY 1"
                .to_owned(),
        ] {
            let state = session::state(&archive, &QueryOptions::default()).unwrap();
            let [theirs, ours] = [false, true].map(|is_ours| {
                let (state, text) = (Arc::clone(&state), text.clone());
                let rows = async move {
                    let plan = state.optimize(&state.create_logical_plan(&text).await?)?;
                    let plan = if is_ours { sort_lists(plan)? } else { plan };
                    assert_eq!(plan.display_indent().to_string().contains("sort_list"), is_ours, "{text}");
                    let plan = state.query_planner().create_physical_plan(&plan, &*state).await?;
                    collect(plan, state.task_ctx()).await
                };
                let rows = block_on(rows.map_err(query_error)).unwrap();
                (rows[0].schema(), pretty_format_batches(&rows).unwrap().to_string())
            });
            assert_eq!(theirs, ours, "{text}");
        }
    }
}
