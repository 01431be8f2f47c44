//! `x IN (SELECT …)` with nulls, by SQL's three-valued logic.
//!
//! `x IN (SELECT y …)` is null, and not false, if no `y` equals `x` and either `x` is null and there is a row, or some `y`
//! is null. The engine computes it as a join that knows true and false only (apache/datafusion#8241, #25347), and asks
//! whether a NOT IN can meet nulls by the columns in it, not by its value (#25474, #25473). So where the difference can be
//! seen, the condition is written out:
//!
//! ```text
//! (x IN (SELECT y …)) IS TRUE  OR  (x IS NULL AND <there is a row>  OR  <some y is null>) AND NULL
//! ```

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result as DataFusionResult, ScalarValue};
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::expr::InSubquery;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::disjunction;
use datafusion::logical_expr::{
    BinaryExpr, Case, Expr, ExprSchemable, Filter, LogicalPlan, LogicalPlanBuilder, Operator, Subquery, exists, lit,
    not, scalar_subquery,
};
use datafusion::optimizer::AnalyzerRule;
use std::sync::Arc;

/// Writes out the conditions of a plan whose types are settled.
#[derive(Debug)]
pub(super) struct ThreeValuedIn;

impl AnalyzerRule for ThreeValuedIn {
    fn name(&self) -> &'static str {
        "three_valued_in"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DataFusionResult<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|node| {
            let mut schema = DFSchema::empty();
            node.inputs().into_iter().for_each(|input| schema.merge(input.schema()));
            match node {
                LogicalPlan::Filter(filter) => {
                    let predicate = written_out(filter.predicate, true, &schema)?;
                    let filter = Filter::try_new(predicate.data, filter.input)?;
                    Ok(Transformed::new_transformed(LogicalPlan::Filter(filter), predicate.transformed))
                }
                node => {
                    let is_join = matches!(node, LogicalPlan::Join(_));
                    let names = NamePreserver::new(&node);
                    node.map_expressions(|expr| {
                        let name = names.save(&expr);
                        Ok(written_out(expr, is_join, &schema)?.update_data(|expr| name.restore(expr)))
                    })
                }
            }
        })?;
        Ok(rewritten.data)
    }
}

/// Rewrites an expression; `null_is_false` says that nobody can tell whether it is null or false.
fn written_out(expr: Expr, null_is_false: bool, schema: &DFSchema) -> DataFusionResult<Transformed<Expr>> {
    let boxed = |expr: Box<Expr>, null_is_false| -> DataFusionResult<Transformed<Box<Expr>>> {
        Ok(written_out(*expr, null_is_false, schema)?.update_data(Box::new))
    };
    match expr {
        Expr::InSubquery(condition) => {
            let InSubquery { expr, subquery, negated } = condition;
            let inner = boxed(expr, false)?;
            let condition = InSubquery { expr: inner.data, subquery, negated };
            if null_is_false && !negated {
                return Ok(Transformed::new_transformed(Expr::InSubquery(condition), inner.transformed));
            }
            match unknown(&condition, schema)? {
                None => Ok(Transformed::new_transformed(Expr::InSubquery(condition), inner.transformed)),
                Some(unknown) => {
                    let is_in = Expr::InSubquery(InSubquery { negated: false, ..condition }).is_true();
                    let is_in = is_in.or(unknown.and(lit(ScalarValue::Boolean(None))));
                    Ok(Transformed::yes(if negated { not(is_in) } else { is_in }))
                }
            }
        }
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
            let (left, right) = (boxed(left, null_is_false)?, boxed(right, null_is_false)?);
            let changed = left.transformed || right.transformed;
            let expr = Expr::BinaryExpr(BinaryExpr { left: left.data, op, right: right.data });
            Ok(Transformed::new_transformed(expr, changed))
        }
        Expr::IsTrue(inner) => Ok(boxed(inner, true)?.update_data(Expr::IsTrue)),
        Expr::IsNotTrue(inner) => Ok(boxed(inner, true)?.update_data(Expr::IsNotTrue)),
        Expr::Alias(mut alias) => {
            let inner = boxed(alias.expr, null_is_false)?;
            alias.expr = inner.data;
            Ok(Transformed::new_transformed(Expr::Alias(alias), inner.transformed))
        }
        Expr::Case(Case { expr: None, when_then_expr, else_expr }) => {
            let mut changed = false;
            let mut take = |part: Box<Expr>, null_is_false| -> DataFusionResult<Box<Expr>> {
                let part = boxed(part, null_is_false)?;
                changed |= part.transformed;
                Ok(part.data)
            };
            let mut branches = Vec::with_capacity(when_then_expr.len());
            for (when, then) in when_then_expr {
                branches.push((take(when, true)?, take(then, null_is_false)?));
            }
            let else_expr = else_expr.map(|otherwise| take(otherwise, null_is_false)).transpose()?;
            let when_then_expr = branches;
            Ok(Transformed::new_transformed(Expr::Case(Case { expr: None, when_then_expr, else_expr }), changed))
        }
        other => other.map_children(|child| written_out(child, false, schema)),
    }
}

/// When `x IN (SELECT y …)` is null although no `y` equals `x`; `None` = never.
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

/// Whether a plan that stems from a subquery has rows.
fn has_rows(subquery: &Subquery, rows: LogicalPlan) -> DataFusionResult<Expr> {
    if !subquery.outer_ref_columns.is_empty() {
        let Expr::Exists(mut condition) = exists(Arc::new(rows)) else { return Ok(lit(true)) };
        condition.subquery.outer_ref_columns.clone_from(&subquery.outer_ref_columns);
        return Ok(Expr::Exists(condition));
    }
    // One row is enough, and a number is computed once, where EXISTS would compare every pair of rows.
    let number = LogicalPlanBuilder::from(rows).limit(0, Some(1))?;
    let number = number.aggregate(Vec::<Expr>::new(), [count(lit(1_i64))])?.build()?;
    Ok(scalar_subquery(Arc::new(number)).gt(lit(0_i64)))
}
