//! The guard, which limits what a statement may do: read the given tables and compute on them.
//!
//! It has three layers:
//!
//! 1. The text must be one statement of a few kinds, of bounded size, over known tables (`statement.rs`).
//! 2. The session offers nothing dangerous: no function that reads files, reveals the host or makes large
//!    results from
//! small ones, no table function, no catalog, and only the stores of the tables (`functions.rs`, `catalog.rs`).
//! 3. Resources are bounded: results of functions that enlarge their input (`enlarging.rs`), memory, temporary
//!    files,
//! rows, bytes and time (`options.rs`).
//!
//! It protects from mistakes and casual misuse. Against malicious statements, run a separate process, as
//! `a2store sql --sandbox` does. docs/sql.md lists the guarantees.

mod enlarging;
mod functions;
mod inlining;
mod statement;

pub(super) use inlining::{has_large_filter, without_pushdown};
pub(super) use statement::{check as check_statement, check_length, parse};

use super::fallible::FallibleLast;
use super::fences::fenced_logical;
use super::membership::WriteOutIn;
use super::udf::board_udfs;
use crate::archive::Phases;
use crate::error::{Error, Result};
use datafusion::common::Result as DataFusionResult;
use datafusion::common::TableReference;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::Optimizer;
use datafusion::prelude::SQLOptions;
use std::collections::HashMap;
use std::sync::Arc;

/// The longest statement in bytes. Long lists of values belong in a table.
pub(super) const MAX_SQL_BYTES: usize = 64 << 10;
/// The deepest nesting of expressions. Dropping deeper ones would overflow the stack of their thread.
const MAX_DEPTH: usize = 500;

/// Returns a reference that always means one of our tables, for names in any case and with any characters.
pub(super) fn quoted(name: &str) -> TableReference {
    TableReference::bare(name.to_owned())
}

/// Restricts a session to what statements may use.
pub(super) fn configure(state: SessionStateBuilder, phases: Phases) -> SessionStateBuilder {
    let scalars = functions::scalar().into_iter().chain(board_udfs(phases)).collect();
    state
        .with_default_features()
        .with_optimizer_rules(fenced_logical(Optimizer::new().rules))
        .with_table_functions(HashMap::new())
        .with_file_formats(Vec::new())
        .with_table_factories(HashMap::new())
        .with_higher_order_functions(Vec::new())
        .with_scalar_functions(scalars)
        .with_analyzer_rule(Arc::new(WriteOutIn))
        .with_analyzer_rule(Arc::new(FallibleLast))
        .with_analyzer_rule(Arc::new(enlarging::BoundEnlarging))
}

/// Checks a plan before it is analyzed.
pub(super) fn check_plan(plan: &LogicalPlan) -> Result<()> {
    let read_only = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    read_only.verify_plan(plan).map_err(super::query_error)?;
    let mut deepest = 0;
    let mut refused = None;
    let visited = plan.apply_with_subqueries(|node| {
        let is_filter = matches!(node, LogicalPlan::Filter(_));
        node.apply_expressions(|expr| {
            deepest = deepest.max(depth_of(expr)?);
            expr.apply(|expr| {
                refused = refused.take().or_else(|| functions::refusal_of(expr));
                if !is_filter {
                    refused = refused.take().or_else(|| misplaced(expr));
                }
                if refused.is_none() {
                    refused = correlated_beyond_joins(expr)?;
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    });
    visited.map_err(super::query_error)?;
    if deepest > MAX_DEPTH {
        let why = format!("expressions are nested {deepest} deep, expected at most {MAX_DEPTH}");
        return Err(Error::refused("the statement", why));
    }
    refused.map_or(Ok(()), Err)
}

/// Rejects conditions outside WHERE and HAVING that DataFusion evaluates only as joins there, and grouping by
/// constants.
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
    let why = "the engine evaluates it there only: join with the rows instead, or count them in a scalar subquery";
    Some(Error::refused(format!("{what} outside WHERE and HAVING"), why))
}

/// Rejects correlated subqueries that DataFusion answers wrongly. It rewrites each of them to a join. But an
/// aggregate returns a row even for no input, and windows and limits apply to each outer row
/// (apache/datafusion#25347 and related issues).
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
        let why = "the engine answers it wrongly: join with the rows of the subquery instead";
        Error::refused(format!("{what} that refers to the outer query and has {beyond}"), why)
    }))
}

fn is_correlated(plan: &LogicalPlan) -> DataFusionResult<bool> {
    let mut found = false;
    plan.apply(|node| {
        node.apply_expressions(|expr| {
            found |= expr.exists(|part| Ok(matches!(part, Expr::OuterReferenceColumn(..))))?;
            Ok(TreeNodeRecursion::Continue)
        })
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
