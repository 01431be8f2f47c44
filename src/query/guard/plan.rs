//! Checks of a plan: it only reads, and no expression is much larger than the statement's text.

use crate::error::{Error, Result};
use crate::query::engine::errors::external;
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result as DataFusionResult};
use datafusion::logical_expr::expr::{Cast, TryCast};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::prelude::SQLOptions;

/// Checks a plan before it is analyzed.
pub(in crate::query) fn check(plan: &LogicalPlan) -> DataFusionResult<()> {
    let read_only = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    read_only.verify_plan(plan)?;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|part| check_part(part).map_err(external).map(|()| TreeNodeRecursion::Continue))
        })
    })?;
    Ok(())
}

fn check_part(part: &Expr) -> Result<()> {
    match part {
        Expr::Cast(Cast { field, .. }) | Expr::TryCast(TryCast { field, .. }) if is_large_fixed(field.data_type()) => {
            let why = format!("expected at most {MAX_FIXED} values in a fixed-size list");
            Err(Error::refused(format!("the type {}", field.data_type()), why))
        }
        Expr::AggregateFunction(call)
            if matches!(
                (call.func.name(), call.params.args.len()),
                ("approx_percentile_cont", 3..) | ("approx_percentile_cont_with_weight", 4..)
            ) =>
        {
            Err(Error::refused(format!("the function {}", call.func.name()), "leave out the number of centroids"))
        }
        Expr::WindowFunction(window) if ["array_agg", "string_agg"].contains(&window.fun.name()) => {
            let what = format!("the function {} over a window", window.fun.name());
            Err(Error::refused(what, "each row would hold all rows before it"))
        }
        _ => Ok(()),
    }
}

/// The maximum number of values of a fixed-size list or bytes of a fixed-size binary. Even each null takes this
/// space.
const MAX_FIXED: i32 = 1024;

fn is_large_fixed(dtype: &DataType) -> bool {
    match dtype {
        DataType::FixedSizeBinary(len) => *len > MAX_FIXED,
        DataType::FixedSizeList(field, len) => *len > MAX_FIXED || is_large_fixed(field.data_type()),
        DataType::List(field) | DataType::LargeList(field) => is_large_fixed(field.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| is_large_fixed(field.data_type())),
        _ => false,
    }
}

/// The maximum number of parts that inlining may add to a filter. Planning a filter of this size takes a second.
const MAX_FILTER: u64 = 1 << 14;

/// Rejects a plan with a filter that is too large after the optimizer has inlined the expressions of its columns.
///
/// The optimizer pushes filters below projections and replaces each column by its expression. A chain of `x + x AS x`
/// doubles the expression each time. So a short statement can produce a filter that is too large to plan.
pub(in crate::query) fn check_filters(plan: &LogicalPlan) -> DataFusionResult<()> {
    let size = largest_filter(plan)?;
    if size <= MAX_FILTER {
        return Ok(());
    }
    let why = format!("the expressions of its columns have {size} parts, expected at most {MAX_FILTER}");
    Err(external(Error::refused("a filter", why)))
}

/// Returns the largest number of parts that inlining adds to a filter of a plan.
fn largest_filter(plan: &LogicalPlan) -> DataFusionResult<u64> {
    let (mut largest, mut largest_column, mut is_correlated) = (0, 0, false);
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            is_correlated |= expr.contains_outer();
            Ok(TreeNodeRecursion::Continue)
        })?;
        largest_column = columns(node)?.into_iter().fold(largest_column, u64::max);
        let filters: Vec<&Expr> = match node {
            LogicalPlan::Filter(filter) => vec![&filter.predicate],
            LogicalPlan::Join(join) => join.filter.iter().chain(join.on.iter().flat_map(|(l, r)| [l, r])).collect(),
            _ => return Ok(TreeNodeRecursion::Continue),
        };
        let inputs = Inputs::of(node)?;
        for filter in filters {
            // The text limits the parts that are written in the filter itself, such as a long list.
            let written = Inputs(Vec::new()).size(filter)?;
            largest = largest.max(inputs.size(filter)?.saturating_sub(written));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    // A reference to the outer query may be to any of these columns.
    Ok(if is_correlated { largest.max(largest_column) } else { largest })
}

/// The input columns of a node, each with the size of its expression after inlining.
struct Inputs<'a>(Vec<(&'a DFSchema, Vec<u64>)>);

impl<'a> Inputs<'a> {
    fn of(node: &'a LogicalPlan) -> DataFusionResult<Inputs<'a>> {
        let sizes = |input: &'a LogicalPlan| Ok((input.schema().as_ref(), columns(input)?));
        Ok(Inputs(node.inputs().into_iter().map(sizes).collect::<DataFusionResult<_>>()?))
    }

    fn size(&self, expr: &Expr) -> DataFusionResult<u64> {
        let mut size = 0_u64;
        expr.apply(|part| {
            let column = part.try_as_col().and_then(|column| {
                self.0.iter().find_map(|(schema, sizes)| sizes.get(schema.maybe_index_of_column(column)?).copied())
            });
            size = size.saturating_add(column.unwrap_or(1));
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(size)
    }
}

/// Returns the size of each column of a node's result.
fn columns(plan: &LogicalPlan) -> DataFusionResult<Vec<u64>> {
    let (inputs, num_columns) = (Inputs::of(plan)?, plan.schema().fields().len());
    let of = |exprs: &[Expr]| exprs.iter().map(|expr| inputs.size(expr)).collect::<DataFusionResult<Vec<u64>>>();
    let below = inputs.0.iter().flat_map(|(_, sizes)| sizes).copied();
    let mut sizes = match plan {
        LogicalPlan::Projection(projection) => of(&projection.expr)?,
        LogicalPlan::Aggregate(aggregate) => of(&aggregate.group_expr)?,
        // The origin of each column is not known here, so take the largest size.
        LogicalPlan::Union(_) | LogicalPlan::Unnest(_) => vec![below.max().unwrap_or(1); num_columns],
        _ => below.collect(),
    };
    sizes.resize(num_columns, 1);
    Ok(sizes)
}
