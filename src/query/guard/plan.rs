//! Checks of a plan, before it is analyzed.

use super::super::errors::query_error;
use super::allowed_functions;
use super::statement::MAX_DEPTH;
use crate::error::{Error, Result};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result as DataFusionResult};
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, Subquery};
use datafusion::prelude::SQLOptions;

/// Checks a plan before it is analyzed.
pub(in crate::query) fn check(plan: &LogicalPlan) -> Result<()> {
    let read_only = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    read_only.verify_plan(plan).map_err(query_error)?;
    let mut deepest = 0;
    let mut refused = None;
    let visited = plan.apply_with_subqueries(|node| {
        for input in node.inputs() {
            // Other subqueries are expressions.
            if let LogicalPlan::Subquery(subquery) = input {
                refused = refused.take().or(correlated_lateral(subquery)?);
            }
        }
        let is_filter = matches!(node, LogicalPlan::Filter(_));
        node.apply_expressions(|expr| {
            deepest = deepest.max(depth_of(expr)?);
            expr.apply(|expr| {
                refused = refused.take().or_else(|| allowed_functions::rejection_of(expr));
                if !is_filter {
                    refused = refused.take().or_else(|| misplaced(expr));
                }
                if refused.is_none() {
                    let correlated = correlated_beyond_joins(expr)?.or(correlated_left_of_in(expr)?);
                    refused = correlated.or_else(|| correlated_over_levels(expr, node));
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    });
    visited.map_err(query_error)?;
    if deepest > MAX_DEPTH {
        let why = format!("expressions are nested {deepest} deep, expected at most {MAX_DEPTH}");
        return Err(Error::refused("the statement", why));
    }
    refused.map_or(Ok(()), Err)
}

/// Rejects IN and EXISTS with subqueries outside WHERE and HAVING, because DataFusion evaluates them only as joins.
/// Also rejects grouping sets over constants.
fn misplaced(expr: &Expr) -> Option<Error> {
    let what = match expr {
        Expr::InSubquery(_) => "IN (SELECT …)",
        Expr::Exists(_) => "EXISTS",
        // DataFusion treats such a key as constant and drops an ORDER BY on it. No upstream issue was found.
        Expr::GroupingSet(sets) if sets.distinct_expr().iter().any(|key| key.column_refs().is_empty()) => {
            let why = "each of their keys must have a column";
            return Some(Error::refused("GROUPING SETS, CUBE or ROLLUP over a constant", why));
        }
        _ => return None,
    };
    let why = "DataFusion evaluates it only there: use a join, or count rows in a scalar subquery";
    Some(Error::refused(format!("{what} outside WHERE and HAVING"), why))
}

/// Rejects correlated subqueries that DataFusion answers wrongly, because it rewrites them to joins
/// (apache/datafusion#25347 and related issues). A join is not enough: an aggregate returns a row even for no input, and
/// windows and limits apply to each outer row.
fn correlated_beyond_joins(expr: &Expr) -> DataFusionResult<Option<Error>> {
    let (what, subquery, is_scalar) = match expr {
        Expr::InSubquery(condition) => ("IN (SELECT …)", &condition.subquery, false),
        Expr::Exists(condition) => ("EXISTS (SELECT …)", &condition.subquery, false),
        Expr::ScalarSubquery(subquery) => ("a scalar subquery", subquery, true),
        _ => return Ok(None),
    };
    if subquery.outer_ref_columns.is_empty() {
        return Ok(None);
    }
    let mut beyond = None;
    subquery.subquery.apply(|node| {
        if !is_correlated(node)? {
            return Ok(TreeNodeRecursion::Jump);
        }
        let found = match node {
            LogicalPlan::Window(_) => Some("a window"),
            LogicalPlan::Limit(_) => Some("LIMIT or OFFSET"),
            LogicalPlan::Union(_) => Some("UNION"),
            LogicalPlan::Aggregate(aggregate) if has_grouping_sets(aggregate) => Some("GROUPING SETS, CUBE or ROLLUP"),
            LogicalPlan::Aggregate(aggregate) if !is_scalar && aggregate.group_expr.is_empty() => {
                Some("an aggregate without GROUP BY")
            }
            LogicalPlan::Aggregate(aggregate) if is_scalar && !aggregate.group_expr.is_empty() => Some("GROUP BY"),
            LogicalPlan::Filter(filter) if is_scalar && is_over_aggregate(&filter.input) => Some("HAVING"),
            _ => None,
        };
        beyond = beyond.or(found);
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(beyond.map(|beyond| {
        let why = "DataFusion answers it wrongly: join with the rows of the subquery instead";
        Error::refused(format!("{what} that refers to the outer query and has {beyond}"), why)
    }))
}

/// Rejects a LATERAL subquery that refers to the outer query outside its WHERE. Over this WHERE, only projections,
/// groups, DISTINCT and ORDER BY are allowed. DataFusion rewrites the subquery to a join. The join would apply a
/// window, HAVING or LIMIT to all outer rows together (apache/datafusion#25519), or the rewrite fails with an internal
/// error.
fn correlated_lateral(subquery: &Subquery) -> DataFusionResult<Option<Error>> {
    let mut node = subquery.subquery.as_ref();
    let mut beyond = None;
    while beyond.is_none() && is_correlated(node)? {
        let input = match node {
            LogicalPlan::Filter(filter) if !is_over_aggregate(&filter.input) => {
                beyond = is_correlated(&filter.input)?.then_some("an inner subquery or ON");
                break;
            }
            LogicalPlan::Filter(_) => Err("HAVING"),
            LogicalPlan::Aggregate(aggregate) if has_grouping_sets(aggregate) => Err("GROUPING SETS, CUBE or ROLLUP"),
            LogicalPlan::Window(_) => Err("a window"),
            LogicalPlan::Limit(_) => Err("LIMIT or OFFSET"),
            LogicalPlan::Union(_) => Err("UNION"),
            LogicalPlan::Projection(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::Distinct(_)
            | LogicalPlan::Sort(_) => Ok(node.inputs()[0]),
            _ => Err("an inner subquery, a set operation or ON"),
        };
        match input {
            Ok(_) if refers_to_outer(node)? => beyond = Some("an outer column outside WHERE"),
            Ok(input) => node = input,
            Err(what) => beyond = Some(what),
        }
    }
    Ok(beyond.map(|beyond| {
        let why = "DataFusion can only compare outer columns in its WHERE: compute it for all rows, and join with that";
        Error::refused(format!("a LATERAL subquery that refers to the outer query and has {beyond}"), why)
    }))
}

fn has_grouping_sets(aggregate: &Aggregate) -> bool {
    aggregate.group_expr.iter().any(|key| matches!(key, Expr::GroupingSet(_)))
}

/// Rejects a subquery of `node` that refers to a query further out, which DataFusion cannot plan (apache/datafusion#15558).
fn correlated_over_levels(expr: &Expr, node: &LogicalPlan) -> Option<Error> {
    let subquery = match expr {
        Expr::InSubquery(condition) => &condition.subquery,
        Expr::Exists(condition) => &condition.subquery,
        Expr::ScalarSubquery(subquery) => subquery,
        _ => return None,
    };
    let is_near = |column: &Column| node.inputs().iter().any(|input| input.schema().has_column(column));
    let far = subquery.outer_ref_columns.iter().find_map(|outer| match outer {
        Expr::OuterReferenceColumn(_, column) if !is_near(column) => Some(column),
        _ => None,
    })?;
    let why = "DataFusion supports one level: join that table in the enclosing query";
    Some(Error::refused(format!("a subquery that refers to {far} two or more levels out"), why))
}

/// Rejects a correlated scalar subquery left of `IN (SELECT …)`, which DataFusion cannot plan. No upstream issue was
/// found.
fn correlated_left_of_in(expr: &Expr) -> DataFusionResult<Option<Error>> {
    let Expr::InSubquery(condition) = expr else { return Ok(None) };
    let is_correlated = condition
        .expr
        .exists(|part| Ok(matches!(part, Expr::ScalarSubquery(subquery) if !subquery.outer_ref_columns.is_empty())))?;
    Ok(is_correlated.then(|| {
        let why = "DataFusion cannot plan it: compute the subquery's value in FROM, and compare that";
        Error::refused("a subquery that refers to the outer query, left of IN (SELECT …)", why)
    }))
}

fn is_correlated(plan: &LogicalPlan) -> DataFusionResult<bool> {
    plan.exists(refers_to_outer)
}

/// Returns whether the expressions of a node refer to an outer query.
fn refers_to_outer(node: &LogicalPlan) -> DataFusionResult<bool> {
    let mut found = false;
    node.apply_expressions(|expr| {
        found |= expr.exists(|part| Ok(matches!(part, Expr::OuterReferenceColumn(..))))?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

fn is_over_aggregate(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(_) => true,
        LogicalPlan::Projection(projection) => is_over_aggregate(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => is_over_aggregate(&alias.input),
        LogicalPlan::Filter(filter) => is_over_aggregate(&filter.input),
        _ => false,
    }
}

fn depth_of(expr: &Expr) -> DataFusionResult<usize> {
    let mut deepest = 0;
    expr.apply_children(|child| {
        deepest = deepest.max(depth_of(child)?);
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(deepest + 1)
}
