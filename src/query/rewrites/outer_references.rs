//! The types of columns that a correlated subquery takes from the outer query.
//!
//! A reference to the outer query keeps the type that the column has before type coercion. Coercion changes the type of a
//! `UNION` or `CASE` whose parts have different types, but not that of the reference. The comparison in the subquery then
//! casts the outer column to a type that its values may not fit: `WHERE u.small = d.c` failed for the large values of `d.c`.
//! No upstream issue was found.

use datafusion::arrow::datatypes::Field;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ExprSchema, Result as DataFusionResult};
use datafusion::logical_expr::{Expr, LogicalPlan, Subquery};
use datafusion::optimizer::AnalyzerRule;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;
use std::sync::Arc;

/// Gives references to the outer query the types of the coerced plan. It runs before type coercion, so that expressions over
/// the references see the final types.
#[derive(Debug)]
pub(in crate::query) struct TypeOuterReferences;

impl AnalyzerRule for TypeOuterReferences {
    fn name(&self) -> &'static str {
        "type_outer_references"
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> DataFusionResult<LogicalPlan> {
        let mut found = false;
        plan.apply_with_subqueries(|node| {
            found |= matches!(node, LogicalPlan::Subquery(subquery) if !subquery.outer_ref_columns.is_empty());
            node.apply_subqueries(|subquery| {
                found |= matches!(subquery, LogicalPlan::Subquery(found) if !found.outer_ref_columns.is_empty());
                Ok(TreeNodeRecursion::Continue)
            })?;
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        if found { typed(plan, config) } else { Ok(plan) }
    }
}

fn typed(plan: LogicalPlan, config: &ConfigOptions) -> DataFusionResult<LogicalPlan> {
    let plan = plan.map_children(|input| typed(input, config).map(Transformed::yes))?.data;
    let mut schema = None;
    let of_inputs = |plan: &LogicalPlan| -> DataFusionResult<DFSchema> {
        plan.inputs().into_iter().try_fold(DFSchema::empty(), |schema, input| {
            schema.join(TypeCoercion::new().analyze(input.clone(), config)?.schema())
        })
    };
    let mut correlated = false;
    plan.apply_subqueries(|subquery| {
        correlated |= matches!(subquery, LogicalPlan::Subquery(found) if !found.outer_ref_columns.is_empty());
        Ok(TreeNodeRecursion::Continue)
    })?;
    if correlated {
        schema = Some(of_inputs(&plan)?);
    }
    let plan = plan.map_subqueries(|subquery| {
        let LogicalPlan::Subquery(Subquery { subquery: rows, outer_ref_columns, spans }) = subquery else {
            return Ok(Transformed::no(subquery));
        };
        let (mut rows, mut outer_ref_columns) = (Arc::unwrap_or_clone(rows), outer_ref_columns);
        if let Some(schema) = schema.as_ref().filter(|_| !outer_ref_columns.is_empty()) {
            rows = with_types(rows, schema)?;
            outer_ref_columns = outer_ref_columns.into_iter().map(|expr| with_type(expr, schema).data).collect();
        }
        // Then the references in subqueries of the subquery, which may name the same columns.
        let rows = Arc::new(typed(rows, config)?);
        Ok(Transformed::yes(LogicalPlan::Subquery(Subquery { subquery: rows, outer_ref_columns, spans })))
    })?;
    plan.data.recompute_schema()
}

/// Gives the references to columns of this schema their types in it.
fn with_types(rows: LogicalPlan, schema: &DFSchema) -> DataFusionResult<LogicalPlan> {
    let rows = rows.transform_up_with_subqueries(|node| {
        let node = node.map_expressions(|expr| expr.transform_up(|part| Ok(with_type(part, schema))))?;
        node.map_data(LogicalPlan::recompute_schema)
    })?;
    Ok(rows.data)
}

fn with_type(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expr {
        Expr::OuterReferenceColumn(field, column) => match schema.field_from_column(&column) {
            Ok(found) if found.data_type() != field.data_type() => {
                let field = Field::clone(&field).with_data_type(found.data_type().clone());
                Transformed::yes(Expr::OuterReferenceColumn(Arc::new(field), column))
            }
            _ => Transformed::no(Expr::OuterReferenceColumn(field, column)),
        },
        other => Transformed::no(other),
    }
}
