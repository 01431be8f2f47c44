//! `array_agg` and `string_agg` with ORDER BY, as lists that are sorted after they are made.
//!
//! With ORDER BY, DataFusion keeps one object per value and per key. Without ORDER BY, it keeps arrays. So the aggregate
//! makes lists of structs, each of a value and its keys, and a projection above it sorts the lists.

use crate::query::engine::plan_function::PlanFunction;
use arrow::array::{Array, ArrayRef, AsArray, LargeStringArray, ListArray, UInt32Array};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{SortOptions, cast, take};
use arrow::datatypes::DataType;
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
        let Some((list, unsorted)) = Unsorted::of(expr, aggregate.input.schema())? else {
            aggr_expr.push(expr.clone());
            continue;
        };
        // DataFusion looks up columns by name across nodes, so the name must be unique.
        *num_lists += 1;
        let name = format!("a2store: list {num_lists}");
        let like = Arc::clone(field);
        let sort = move |arrays: &[ArrayRef]| unsorted.sort(arrays[0].as_list(), like.data_type());
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

/// Lists of structs, each of a value and its keys.
struct Unsorted {
    /// The order of the keys.
    options: Vec<SortOptions>,
    /// What stands between the texts of `string_agg`; `None` for `array_agg`.
    delimiter: Option<String>,
}

impl Unsorted {
    /// Returns an aggregate without ORDER BY, which makes the lists; `None` for other expressions than `array_agg` and
    /// `string_agg` with ORDER BY.
    fn of(expr: &Expr, input: &DFSchema) -> DataFusionResult<Option<(Expr, Unsorted)>> {
        let Expr::AggregateFunction(AggregateFunction { func, params }) = expr.clone().unalias() else {
            return Ok(None);
        };
        let skips_nulls = params.null_treatment == Some(NullTreatment::IgnoreNulls);
        let delimiter = match (func.name(), &params.args[..]) {
            _ if params.order_by.is_empty() || params.distinct || skips_nulls => return Ok(None),
            ("array_agg", _) => None,
            ("string_agg", [_, Expr::Literal(text, _)]) => Some(text.try_as_str().flatten().unwrap_or_default().into()),
            _ => return Ok(None),
        };
        let (mut values, mut options) = (vec![params.args[0].clone()], Vec::new());
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
        Ok(Some((list, Unsorted { options, delimiter })))
    }

    /// Returns the values of each list in the order of its keys, as a list or text of type `dtype`.
    fn sort(&self, lists: &ListArray, dtype: &DataType) -> DataFusionResult<ArrayRef> {
        // These may be some of many lists that share their values.
        let first = lists.offsets()[0];
        let offsets = OffsetBuffer::new(lists.offsets().iter().map(|offset| offset - first).collect());
        let structs = lists.values().slice(first as usize, offsets[lists.len()] as usize);
        let Some((values, keys)) = structs.as_struct().columns().split_first() else {
            return internal_err!("sort_list: a struct without fields");
        };
        let fields = keys.iter().zip(&self.options);
        let fields = fields.map(|(key, options)| SortField::new_with_options(key.data_type().clone(), *options));
        let keys = RowConverter::new(fields.collect())?.convert_columns(keys)?;
        let mut order: Vec<u32> = (0..values.len() as u32).collect();
        for ends in offsets.windows(2) {
            // This sort is fastest for the order of `steps`, in which rows usually come.
            order[ends[0] as usize..ends[1] as usize].sort_by(|&a, &b| keys.row(a as usize).cmp(&keys.row(b as usize)));
        }
        let values = take(values, &UInt32Array::from(order), None)?;
        match (&self.delimiter, dtype) {
            (None, DataType::List(item)) => {
                Ok(Arc::new(ListArray::try_new(Arc::clone(item), offsets, values, lists.nulls().cloned())?))
            }
            (None, dtype) => internal_err!("sort_list: expected the type of a list, found {dtype}"),
            (Some(delimiter), dtype) => {
                let texts = cast(&values, &DataType::LargeUtf8)?;
                let texts = texts.as_string::<i64>();
                let joined = offsets.windows(2).map(|ends| {
                    let places = (ends[0] as usize..ends[1] as usize).filter(|&at| texts.is_valid(at));
                    let of_list: Vec<&str> = places.map(|at| texts.value(at)).collect();
                    (!of_list.is_empty()).then(|| of_list.join(delimiter))
                });
                Ok(cast(&joined.collect::<LargeStringArray>(), dtype)?)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::QueryOptions;
    use crate::query::engine::errors::query_error;
    use crate::query::engine::session;
    use crate::system::runtime::block_on;
    use crate::{Archive, CancellationToken, Phases, SimulateOptions};
    use arrow::array::StructArray;
    use arrow::datatypes::{Field, UInt32Type};
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
        let with_nulls =
            "(SELECT *, CASE WHEN move < 2 THEN ev_up END AS x, nullif(step_index % 7, 3) AS k FROM steps) AS s";
        for text in [
            "SELECT run_id, array_agg(board ORDER BY step_index) FROM steps GROUP BY run_id ORDER BY 1",
            "SELECT run_id, array_agg(move ORDER BY step_index DESC), array_agg(move + 1 ORDER BY board, step_index) AS b, \
             count(*) FROM steps GROUP BY run_id ORDER BY 1",
            "SELECT k, array_agg(x ORDER BY k NULLS LAST, x DESC, run_id, step_index) FROM with_nulls GROUP BY k ORDER BY 1",
            "SELECT array_agg(x ORDER BY x NULLS FIRST, run_id DESC, step_index) FILTER (WHERE move <> 1) FROM with_nulls",
            "SELECT run_id, array_agg(k ORDER BY step_index) FILTER (WHERE k > 9) FROM with_nulls GROUP BY run_id ORDER BY 1",
            "SELECT engine, move, array_agg(engine ORDER BY run_id, step_index) FROM steps \
             GROUP BY ROLLUP (engine, move) ORDER BY 1, 2",
            "SELECT array_agg(board ORDER BY step_index) FROM steps WHERE run_id = 99",
            "SELECT run_id, step_index / 3, array_agg(board ORDER BY step_index DESC) FROM steps GROUP BY 1, 2 ORDER BY 1, 2",
            "SELECT run_id, string_agg(CAST(move AS VARCHAR), '' ORDER BY step_index) FROM steps GROUP BY run_id ORDER BY 1",
            "SELECT k, string_agg(CAST(x AS VARCHAR), ' · ' ORDER BY x DESC, run_id, step_index) FILTER (WHERE run_id <> 1) \
             FROM with_nulls GROUP BY k ORDER BY 1",
            "SELECT k, string_agg(engine, NULL ORDER BY run_id) FROM with_nulls GROUP BY k ORDER BY 1",
            "SELECT string_agg(CAST(CAST(t AS INT) AS VARCHAR), ',' ORDER BY step_index) FILTER (WHERE t <> '') FROM \
             (SELECT step_index, CASE WHEN move = 0 THEN '' ELSE '7' END AS t FROM steps WHERE run_id = 1) AS d",
            "SELECT string_agg(CAST(x AS VARCHAR), ',' ORDER BY run_id) FROM with_nulls WHERE x IS NULL GROUP BY run_id",
            "SELECT run_id, (SELECT array_agg(num_steps ORDER BY run_id DESC) FROM runs) AS n, (SELECT array_agg(move ORDER \
             BY run_id, step_index) FROM steps) AS m FROM runs ORDER BY 1",
        ] {
            let text = text.replace("with_nulls", with_nulls);
            // So lists come in several batches.
            let mut state = (*session::state(&archive, &QueryOptions::default()).unwrap()).clone();
            *state.config_mut() = state.config().clone().with_batch_size(100);
            let [theirs, ours] = [false, true].map(|is_ours| {
                let (state, text) = (state.clone(), text.clone());
                let rows = async move {
                    let plan = state.optimize(&state.create_logical_plan(&text).await?)?;
                    let plan = if is_ours { sort_lists(plan)? } else { plan };
                    assert_eq!(plan.display_indent().to_string().contains("sort_list"), is_ours, "{text}");
                    let plan = state.query_planner().create_physical_plan(&plan, &state).await?;
                    collect(plan, state.task_ctx()).await
                };
                let rows = block_on(rows.map_err(query_error)).unwrap();
                (rows[0].schema(), pretty_format_batches(&rows).unwrap().to_string())
            });
            assert_eq!(theirs, ours, "{text}");
        }
    }

    #[test]
    fn only_the_values_of_the_lists_are_kept() {
        let numbers: ArrayRef = Arc::new(UInt32Array::from_iter_values((0..100).rev()));
        let structs = StructArray::try_from(vec![("value", Arc::clone(&numbers)), ("key", numbers)]).unwrap();
        let item = Arc::new(Field::new_list_field(structs.data_type().clone(), true));
        let lists = ListArray::new(item, OffsetBuffer::from_repeated_length(10, 10), Arc::new(structs), None);
        let unsorted = Unsorted { options: vec![SortOptions::default()], delimiter: None };
        let dtype = DataType::new_list(DataType::UInt32, true);
        let sorted = unsorted.sort(&lists.slice(3, 2), &dtype).unwrap();
        let found = sorted.as_list::<i32>().values().as_primitive::<UInt32Type>().values();
        assert_eq!(found, &(60..70).chain(50..60).collect::<Vec<u32>>()[..]);
    }
}
