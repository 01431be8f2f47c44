//! `x IN (…)` and scalar subqueries with SQL's rules for null, where DataFusion differs.
//!
//! # IN with a subquery
//!
//! If no `y` equals `x`, `x IN (SELECT y …)` is null instead of false in two cases. Either `x` is null and the
//! subquery has rows, or some `y` is null. DataFusion evaluates the condition as a join that returns only true
//! or false (apache/datafusion#8241, #25347). For NOT IN it derives the nullability from the columns in `x`,
//! not from the value of `x` (#25474, #25473). Where the difference is visible, the condition is rewritten:
//!
//! ```text
//! (x IN (SELECT y …)) IS TRUE  OR  (x IS NULL AND <there is a row>  OR  <some y is null>) AND NULL
//! ```
//!
//! A correlated NOT IN becomes `NOT (x IN (SELECT y …) IS TRUE)` even if neither `x` nor `y` can be null. Otherwise
//! DataFusion takes the columns of the correlation for `x` and `y`, and drops each row in which they are null (#25347).
//! The IS TRUE also keeps the optimizer from turning a CASE or a comparison into NOT IN.
//!
//! # IN with a list
//!
//! DataFusion treats a list as constant if it can be evaluated without a row, which is also true of a CASE. So
//! `x IN (a, b)` with columns in the list becomes `x = a OR x = b`. No upstream issue was found.
//!
//! # Scalar subqueries
//!
//! A scalar subquery without rows is null. DataFusion derives its nullability from the subquery's column. If `x` is
//! not nullable, it simplifies `(SELECT x … WHERE FALSE) IS NULL` to false (#24513). The column becomes `nullif(x,
//! NULL)`, which is nullable.

use super::columns::{input_schema, map_expressions};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result as DataFusionResult, ScalarValue};
use datafusion::functions::expr_fn::nullif;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::expr::{InList, InSubquery};
use datafusion::logical_expr::utils::disjunction;
use datafusion::logical_expr::{
    BinaryExpr, Case, Distinct, Expr, ExprSchemable, Filter, LogicalPlan, LogicalPlanBuilder, Operator, Projection,
    Subquery, exists, lit, not, scalar_subquery,
};
use datafusion::optimizer::AnalyzerRule;
use std::sync::Arc;

/// Rewrites IN conditions and scalar subqueries of a plan whose types are resolved.
#[derive(Debug)]
pub(in crate::query) struct RewriteIn;

impl AnalyzerRule for RewriteIn {
    fn name(&self) -> &'static str {
        "rewrite_in"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DataFusionResult<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|node| {
            let schema = input_schema(&node);
            let node = node.map_expressions(|expr| expr.transform_down(with_nullable_subquery))?.data;
            match node {
                LogicalPlan::Filter(filter) => {
                    let predicate = rewrite_condition(filter.predicate, Place::Condition, &schema)?;
                    let filter = Filter::try_new(predicate.data, filter.input)?;
                    Ok(Transformed::new_transformed(LogicalPlan::Filter(filter), predicate.transformed))
                }
                node => {
                    let is_join = matches!(node, LogicalPlan::Join(_));
                    let place = if is_join { Place::Condition } else { Place::Value };
                    map_expressions(node, |expr| rewrite_condition(expr, place, &schema))
                }
            }
        })?;
        Ok(rewritten.data)
    }
}

/// Makes the column of a scalar subquery nullable, unless the subquery always has a row.
fn with_nullable_subquery(expr: Expr) -> DataFusionResult<Transformed<Expr>> {
    let Expr::ScalarSubquery(subquery) = expr else { return Ok(Transformed::no(expr)) };
    let rows = &subquery.subquery;
    if rows.schema().field(0).is_nullable() || has_row_always(rows) {
        return Ok(Transformed::no(Expr::ScalarSubquery(subquery)));
    }
    let Some(value) = rows.schema().columns().into_iter().next() else {
        return Ok(Transformed::no(Expr::ScalarSubquery(subquery)));
    };
    let null = lit(ScalarValue::try_from(rows.schema().field(0).data_type())?);
    let nullable = nullif(Expr::Column(value), null).alias("value");
    let rows = LogicalPlanBuilder::from(rows.as_ref().clone()).project([nullable])?.build()?;
    Ok(Transformed::yes(Expr::ScalarSubquery(Subquery { subquery: Arc::new(rows), ..subquery })))
}

/// Returns whether a plan is an aggregate without groups, which has one row even for empty input.
fn has_row_always(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::Projection(projection) => has_row_always(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_row_always(&alias.input),
        _ => false,
    }
}

/// The place of an expression, which says whether null and false have the same effect there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A condition of WHERE, or below IS TRUE: null and false have the same effect.
    Condition,
    /// The condition of a CASE: the same, but the optimizer may turn the CASE into the negated condition.
    When,
    /// Anywhere else.
    Value,
}

/// Rewrites an expression.
fn rewrite_condition(expr: Expr, place: Place, schema: &DFSchema) -> DataFusionResult<Transformed<Expr>> {
    let boxed = |expr: Box<Expr>, place| -> DataFusionResult<Transformed<Box<Expr>>> {
        Ok(rewrite_condition(*expr, place, schema)?.update_data(Box::new))
    };
    match expr {
        Expr::InSubquery(condition) => {
            let InSubquery { expr, subquery, negated } = condition;
            let inner = boxed(expr, Place::Value)?;
            let subquery = with_own_name(subquery)?;
            let condition = InSubquery { expr: inner.data, subquery, negated };
            if place == Place::Condition && !negated {
                return Ok(Transformed::yes(Expr::InSubquery(condition)));
            }
            let is_correlated = !condition.subquery.outer_ref_columns.is_empty();
            match unknown(&condition, schema)? {
                None if !is_correlated => Ok(Transformed::yes(Expr::InSubquery(condition))),
                None => {
                    let is_in = Expr::InSubquery(InSubquery { negated: false, ..condition }).is_true();
                    Ok(Transformed::yes(if negated { not(is_in) } else { is_in }))
                }
                Some(unknown) => {
                    let is_in = Expr::InSubquery(InSubquery { negated: false, ..condition }).is_true();
                    let is_in = is_in.or(unknown.and(lit(ScalarValue::Boolean(None))));
                    Ok(Transformed::yes(if negated { not(is_in) } else { is_in }))
                }
            }
        }
        Expr::InList(InList { expr, list, negated }) if has_columns(&list)? && !expr.is_volatile() => {
            let equal = list.into_iter().map(|value| expr.as_ref().clone().eq(value));
            let is_in = disjunction(equal).unwrap_or_else(|| lit(false));
            let is_in = rewrite_condition(is_in, Place::Value, schema)?.data;
            Ok(Transformed::yes(if negated { not(is_in) } else { is_in }))
        }
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
            let (left, right) = (boxed(left, place)?, boxed(right, place)?);
            let changed = left.transformed || right.transformed;
            let expr = Expr::BinaryExpr(BinaryExpr { left: left.data, op, right: right.data });
            Ok(Transformed::new_transformed(expr, changed))
        }
        Expr::IsTrue(inner) => Ok(boxed(inner, Place::Condition)?.update_data(Expr::IsTrue)),
        Expr::IsNotTrue(inner) => Ok(boxed(inner, Place::Condition)?.update_data(Expr::IsNotTrue)),
        Expr::Alias(mut alias) => {
            let inner = boxed(alias.expr, place)?;
            alias.expr = inner.data;
            Ok(Transformed::new_transformed(Expr::Alias(alias), inner.transformed))
        }
        Expr::Case(Case { expr: None, when_then_expr, else_expr }) => {
            let mut changed = false;
            let mut take = |part: Box<Expr>, place| -> DataFusionResult<Box<Expr>> {
                let part = boxed(part, place)?;
                changed |= part.transformed;
                Ok(part.data)
            };
            let mut branches = Vec::with_capacity(when_then_expr.len());
            for (when, then) in when_then_expr {
                branches.push((take(when, Place::When)?, take(then, place)?));
            }
            let else_expr = else_expr.map(|otherwise| take(otherwise, place)).transpose()?;
            let when_then_expr = branches;
            Ok(Transformed::new_transformed(Expr::Case(Case { expr: None, when_then_expr, else_expr }), changed))
        }
        other => other.map_children(|child| rewrite_condition(child, Place::Value, schema)),
    }
}

/// Returns whether a list has columns, or expressions that become columns.
fn has_columns(list: &[Expr]) -> DataFusionResult<bool> {
    let is_column =
        |expr: &Expr| matches!(expr, Expr::Column(_) | Expr::OuterReferenceColumn(..) | Expr::ScalarSubquery(_));
    for value in list {
        if value.exists(|expr| Ok(is_column(expr)))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Gives a subquery's column a unique name. DataFusion confuses a column without a relation, such as a column
/// of a DISTINCT, with a column of the join that it makes. It also names `CAST(y AS …)` like `y`.
fn with_own_name(subquery: Subquery) -> DataFusionResult<Subquery> {
    let Subquery { subquery: rows, outer_ref_columns, spans } = subquery;
    let has_relation = rows.schema().columns().first().is_some_and(|column| column.relation.is_some());
    let mut rows = Arc::unwrap_or_clone(rows);
    // Duplicates do not change whether a value is in a set.
    while let LogicalPlan::Distinct(Distinct::All(every)) = rows {
        rows = Arc::unwrap_or_clone(every);
    }
    let rows = match rows {
        LogicalPlan::Projection(projection) => match <[Expr; 1]>::try_from(projection.expr) {
            Ok([value @ (Expr::Column(Column { relation: Some(_), .. }) | Expr::Alias(_))]) => {
                LogicalPlan::Projection(Projection::try_new(vec![value], projection.input)?)
            }
            Ok([value]) => {
                LogicalPlan::Projection(Projection::try_new(vec![value.alias("value of IN")], projection.input)?)
            }
            Err(expr) => LogicalPlan::Projection(Projection::try_new(expr, projection.input)?),
        },
        rows if has_relation || !outer_ref_columns.is_empty() => rows,
        rows => {
            let rows = LogicalPlanBuilder::from(rows).alias("rows")?;
            let columns: Vec<Expr> = rows.schema().columns().into_iter().map(Expr::Column).collect();
            rows.project(columns)?.build()?
        }
    };
    Ok(Subquery { subquery: Arc::new(rows), outer_ref_columns, spans })
}

/// Returns the condition under which `x IN (SELECT y …)` is null although no `y` equals `x`; `None` = never.
fn unknown(condition: &InSubquery, schema: &DFSchema) -> DataFusionResult<Option<Expr>> {
    let InSubquery { expr, subquery, .. } = condition;
    let rows = &subquery.subquery;
    let mut reasons = Vec::new();
    if expr.nullable(schema)? {
        reasons.push(expr.as_ref().clone().is_null().and(has_rows(subquery, rows.as_ref().clone())?));
    }
    let value = rows.schema().columns().into_iter().next();
    if let Some(value) = value.filter(|_| rows.schema().field(0).is_nullable()) {
        let nulls = LogicalPlanBuilder::from(rows.as_ref().clone()).filter(Expr::Column(value).is_null())?.build()?;
        reasons.push(has_rows(subquery, nulls)?);
    }
    Ok(disjunction(reasons))
}

/// Returns an expression that is true if a plan of a subquery has rows.
fn has_rows(subquery: &Subquery, rows: LogicalPlan) -> DataFusionResult<Expr> {
    if !subquery.outer_ref_columns.is_empty() {
        let Expr::Exists(mut condition) = exists(Arc::new(rows)) else { return Ok(lit(true)) };
        condition.subquery.outer_ref_columns.clone_from(&subquery.outer_ref_columns);
        return Ok(Expr::Exists(condition));
    }
    // The count of one row is evaluated once. EXISTS would compare every pair of rows.
    let number = LogicalPlanBuilder::from(rows).limit(0, Some(1))?;
    let number = number.aggregate(Vec::<Expr>::new(), [count(lit(1_i64))])?.build()?;
    Ok(scalar_subquery(Arc::new(number)).gt(lit(0_i64)))
}
