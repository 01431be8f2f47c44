//! How large the filters of a plan get once names stand for what they name.
//!
//! The optimizer moves filters below the projections whose columns they use, and puts each column's expression in its
//! place. `x + x AS x`, over and over, doubles an expression each time, so a short statement may make one that no planner
//! gets to the end of.

use datafusion::common::Column;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result as DataFusionResult};
use datafusion::logical_expr::{Expr, LogicalPlan};

/// The largest filter of a plan, in expressions, columns written out.
pub(super) fn largest_filter(plan: &LogicalPlan) -> DataFusionResult<u64> {
    let mut largest = 0;
    plan.apply_with_subqueries(|node| {
        let filters: Vec<&Expr> = match node {
            LogicalPlan::Filter(filter) => vec![&filter.predicate],
            LogicalPlan::Join(join) => join.filter.iter().chain(join.on.iter().flat_map(|(l, r)| [l, r])).collect(),
            _ => return Ok(TreeNodeRecursion::Continue),
        };
        let inputs = Inputs::of(node)?;
        for filter in filters {
            largest = largest.max(inputs.size(filter)?);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(largest)
}

/// The columns that a node's expressions see, each with its size.
struct Inputs<'a>(Vec<(&'a DFSchema, Vec<u64>)>);

impl<'a> Inputs<'a> {
    fn of(node: &'a LogicalPlan) -> DataFusionResult<Inputs<'a>> {
        let sizes = |input: &'a LogicalPlan| Ok((input.schema().as_ref(), columns(input)?));
        Ok(Inputs(node.inputs().into_iter().map(sizes).collect::<DataFusionResult<_>>()?))
    }

    fn size(&self, expr: &Expr) -> DataFusionResult<u64> {
        let mut size = 0_u64;
        expr.apply(|part| {
            size = size.saturating_add(match part {
                Expr::Column(column) => self.column(column),
                _ => 1,
            });
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(size)
    }

    fn column(&self, column: &Column) -> u64 {
        let find = |(schema, sizes): &(&DFSchema, Vec<u64>)| {
            schema.maybe_index_of_column(column).and_then(|index| sizes.get(index).copied())
        };
        self.0.iter().find_map(find).unwrap_or(1)
    }
}

/// The size of each column of a node's result.
fn columns(plan: &LogicalPlan) -> DataFusionResult<Vec<u64>> {
    let of = |exprs: &[Expr]| {
        let inputs = Inputs::of(plan)?;
        exprs.iter().map(|expr| inputs.size(expr)).collect::<DataFusionResult<Vec<u64>>>()
    };
    Ok(match plan {
        LogicalPlan::Projection(projection) => of(&projection.expr)?,
        LogicalPlan::Aggregate(aggregate) => {
            let mut sizes = of(&aggregate.group_expr)?;
            sizes.resize(plan.schema().fields().len(), 1);
            sizes
        }
        LogicalPlan::Union(union) => {
            let mut largest = vec![1; plan.schema().fields().len()];
            for input in &union.inputs {
                largest.iter_mut().zip(columns(input)?).for_each(|(size, other)| *size = other.max(*size));
            }
            largest
        }
        LogicalPlan::Filter(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Distinct(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Join(_) => {
            let mut sizes = Vec::new();
            for input in plan.inputs() {
                sizes.extend(columns(input)?);
            }
            sizes.resize(plan.schema().fields().len(), 1);
            sizes
        }
        _ => vec![1; plan.schema().fields().len()],
    })
}
