//! Common types for the columns of `INTERSECT` and `EXCEPT`.
//!
//! DataFusion makes a join of such a statement. The join compares the values of both sides in their common type, but
//! returns those of the left side in their own type. So `SELECT 3 INTERSECT SELECT 3.0` returned an integer, which
//! changes the meaning of `/ 2`. Integers that are equal as floating-point numbers were returned more than once. SQL
//! converts both sides to the common type first, as `UNION` does. No upstream issue was found.

use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{DFSchema, NullEquality, Result as DataFusionResult};
use datafusion::logical_expr::type_coercion::binary::type_union_coercion;
use datafusion::logical_expr::{Distinct, Expr, Join, JoinType, LogicalPlan, LogicalPlanBuilder, cast};
use datafusion::optimizer::AnalyzerRule;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;
use std::sync::Arc;

/// Casts both sides of `INTERSECT` and `EXCEPT` to common types. It runs before type coercion, so that expressions over the
/// result see its final types.
#[derive(Debug)]
pub(in crate::query) struct CoerceSetOperations;

impl AnalyzerRule for CoerceSetOperations {
    fn name(&self) -> &'static str {
        "coerce_set_operations"
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> DataFusionResult<LogicalPlan> {
        let mut found = false;
        plan.apply_with_subqueries(|node| {
            found |= matches!(node, LogicalPlan::Join(join) if is_set_operation(join));
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        if !found {
            return Ok(plan);
        }
        let plan = plan.transform_up_with_subqueries(|node| match node.recompute_schema()? {
            LogicalPlan::Join(join) if is_set_operation(&join) => coerced(join, config).map(Transformed::yes),
            node => Ok(Transformed::yes(node)),
        })?;
        Ok(plan.data)
    }
}

/// Returns whether the planner made this join of a set operation: only there nulls are equal to each other.
fn is_set_operation(join: &Join) -> bool {
    join.null_equality == NullEquality::NullEqualsNull
        && matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
}

fn coerced(join: Join, config: &ConfigOptions) -> DataFusionResult<LogicalPlan> {
    let types = |side: &LogicalPlan| -> DataFusionResult<DFSchema> {
        Ok(TypeCoercion::new().analyze(side.clone(), config)?.schema().as_ref().clone())
    };
    let (left, right) = (types(&join.left)?, types(&join.right)?);
    let common = |(left, right): (&FieldRef, &FieldRef)| {
        let is_same = left.data_type().equals_datatype(right.data_type());
        if is_same { None } else { type_union_coercion(left.data_type(), right.data_type()) }
    };
    let common: Vec<_> = left.fields().iter().zip(right.fields()).map(common).collect();
    if common.iter().all(Option::is_none) {
        return Ok(LogicalPlan::Join(join));
    }
    let project = |side: LogicalPlan| -> DataFusionResult<LogicalPlan> {
        let columns = side.schema().columns().into_iter().zip(&common).map(|(column, common)| match common {
            None => Expr::Column(column),
            Some(common) => {
                let (relation, name) = (column.relation.clone(), column.name.clone());
                cast(Expr::Column(column), common.clone()).alias_qualified(relation, name)
            }
        });
        let columns: Vec<Expr> = columns.collect();
        LogicalPlanBuilder::from(side).project(columns)?.build()
    };
    // Equal rows are counted once after the cast, because different values may become equal.
    let left = match Arc::unwrap_or_clone(join.left) {
        LogicalPlan::Distinct(Distinct::All(rows)) => {
            LogicalPlan::Distinct(Distinct::All(Arc::new(project(Arc::unwrap_or_clone(rows))?)))
        }
        rows => project(rows)?,
    };
    let right = project(Arc::unwrap_or_clone(join.right))?;
    LogicalPlan::Join(Join { left: Arc::new(left), right: Arc::new(right), ..join }).recompute_schema()
}
