//! The statements that DataFusion 55.2 answers wrongly or cannot plan, and how to say them differently.
//!
//! [`REFUSED`] is the list. The tests have an example of each entry. They show that the example is refused, and that
//! DataFusion without this list answers it wrongly or fails. So a test fails when a new version of DataFusion answers it
//! rightly; then remove the entry.
//!
//! A statement of the list is recognized before it is planned ([`check_query`], [`check_select`], [`check_expr`]),
//! before types are resolved ([`check_plan`]), or afterwards ([`check_types`]).

use crate::error::{Error, Result};
use crate::query::engine::errors::external;
use crate::query::output::conform::is_encoding_of;
use crate::query::rewrites::input_schema;
use crate::query::user_tables::is_narrow;
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, ExprSchema, NullEquality, Result as DataFusionResult};
use datafusion::logical_expr::expr::{InSubquery, WindowFunction};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Case, Expr, ExprSchemable, JoinType, Limit, LogicalPlan, Operator, SkipType, Subquery,
};
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, GroupByExpr, JoinConstraint, JoinOperator, OrderByKind, SelectItem, SetExpr, SetOperator,
    SetQuantifier,
};

/// An entry of the list.
#[derive(Debug)]
struct Refusal {
    /// The kind of statement.
    what: &'static str,
    /// What to write instead.
    instead: &'static str,
    /// The issue of apache/datafusion; `None` if none was found.
    issue: Option<u32>,
}

impl Refusal {
    fn error(&self) -> Error {
        let issue = self.issue.map_or_else(String::new, |issue| format!(" (apache/datafusion#{issue})"));
        let why = format!("DataFusion answers it wrongly or cannot plan it{issue}: {}", self.instead);
        Error::refused(self.what, why)
    }
}

macro_rules! refusals {
    ($($name:ident: $what:expr, $issue:expr, $instead:expr;)*) => {
        $(static $name: Refusal = Refusal { what: $what, instead: $instead, issue: $issue };)*

        /// All entries.
        #[cfg(test)]
        static REFUSED: &[&Refusal] = &[$(&$name),*];
    };
}

refusals! {
    OUTSIDE_WHERE: "IN (SELECT …) or EXISTS outside WHERE and HAVING", Some(23_022),
        "join with the rows, or count them in a scalar subquery";
    CORRELATED_IN: "IN (SELECT …) that refers to the outer query", Some(25_347),
        "write EXISTS (SELECT 1 FROM … WHERE y = x AND …), or NOT EXISTS";
    NULL_OF_IN: "IN (SELECT …) inside another expression than AND, OR and CASE", Some(8241),
        "write EXISTS (SELECT 1 FROM … WHERE y = x)";
    NOT_IN: "NOT IN (SELECT …) beside OR, or with another left side than a column", Some(25_474),
        "write NOT EXISTS (SELECT 1 FROM … WHERE y = x)";
    TUPLE_IN: "(a, b) IN (SELECT …)", Some(4656),
        "write EXISTS (SELECT 1 FROM … WHERE x = a AND y = b), or a join";
    CORRELATED: "a subquery that refers to the outer query, beyond a comparison in its WHERE", Some(25_519),
        "join with the rows of the subquery. Otherwise leave aggregates, windows, ORDER BY, LIMIT and UNION out of EXISTS; give a scalar \
         subquery one aggregate without GROUP BY and HAVING, and compare outer columns with =";
    LATERAL: "a LATERAL subquery that refers to the outer query", Some(25_519),
        "compute it for all rows in FROM, and join with them";
    CORRELATED_KEY: "a scalar subquery with outer columns in GROUP BY, ORDER BY, an aggregate, or before IN (SELECT …)", None,
        "compute it as a column of a subquery in FROM";
    TWO_LEVELS: "a subquery that refers to a query two or more levels out", Some(15_558),
        "join that table in the enclosing query";
    MIXED_OUTER: "a subquery that refers to an outer column of mixed types", None,
        "cast the column to one type in the outer FROM";
    MULTISETS: "INTERSECT ALL or EXCEPT ALL", Some(12_956),
        "number equal rows with row_number(), and leave ALL out";
    MIXED_SETS: "INTERSECT or EXCEPT over columns of different types", None,
        "cast both sides to one type";
    USING_OUTER: "RIGHT JOIN or FULL JOIN with USING or NATURAL", Some(22_881),
        "write ON, and coalesce(a.key, b.key)";
    OFFSET: "OFFSET in a subquery", Some(23_534),
        "number the rows with row_number(), and compare the number";
    FILTER_OF_TOTAL: "an aggregate with FILTER over an aggregate without GROUP BY", None,
        "write CASE in its argument";
    ORDER_OF_CAST: "ORDER BY a result column that has the name of another column, which GROUP BY casts", None,
        "rename the result column";
    COMPARED_KEY: "a comparison with CASE or COALESCE as a key of ORDER BY or PARTITION BY", Some(20_194),
        "give the comparison a name in a subquery";
    NULL_STRUCT: "a field of a struct that CASE, COALESCE or NULLIF returns", Some(25_120),
        "choose between the fields";
    IS_DISTINCT: "IS DISTINCT FROM beside AND or OR", Some(23_692),
        "put it in parentheses";
    NARROW_DECIMAL: "arrow_cast to Decimal32 or Decimal64", Some(17_808),
        "write CAST(… AS DECIMAL(p, s))";
}

/// Refuses a query of a statement's syntax tree.
pub(in crate::query) fn check_query(query: &ast::Query) -> Result<()> {
    match query {
        query if has_multisets(&query.body) => Err(MULTISETS.error()),
        query if orders_by_cast(query) => Err(ORDER_OF_CAST.error()),
        _ => Ok(()),
    }
}

/// Refuses the joins of a FROM.
pub(in crate::query) fn check_joins<'a>(joins: impl IntoIterator<Item = &'a ast::Join>) -> Result<()> {
    let is_wrong = |join: &ast::Join| match &join.join_operator {
        JoinOperator::Right(keys) | JoinOperator::RightOuter(keys) | JoinOperator::FullOuter(keys) => {
            matches!(keys, JoinConstraint::Using(_) | JoinConstraint::Natural)
        }
        _ => false,
    };
    if joins.into_iter().any(is_wrong) { Err(USING_OUTER.error()) } else { Ok(()) }
}

/// Refuses an expression of a statement's syntax tree.
pub(in crate::query) fn check_expr(expr: &ast::Expr) -> Result<()> {
    let is_and_or =
        |expr: &ast::Expr| matches!(expr, ast::Expr::BinaryOp { op: BinaryOperator::And | BinaryOperator::Or, .. });
    match expr {
        // The parser takes everything that follows as the right operand.
        ast::Expr::IsDistinctFrom(_, right) | ast::Expr::IsNotDistinctFrom(_, right) if is_and_or(right) => {
            Err(IS_DISTINCT.error())
        }
        ast::Expr::InSubquery { expr, .. } if matches!(expr.as_ref(), ast::Expr::Tuple(_)) => Err(TUPLE_IN.error()),
        _ => Ok(()),
    }
}

fn has_multisets(body: &SetExpr) -> bool {
    let SetExpr::SetOperation { op, set_quantifier, left, right } = body else { return false };
    let keeps_equal_rows = matches!(set_quantifier, SetQuantifier::All | SetQuantifier::AllByName);
    keeps_equal_rows && *op != SetOperator::Union || has_multisets(left) || has_multisets(right)
}

/// Returns whether ORDER BY names a result column that has the name of another column, which GROUP BY casts. DataFusion
/// names `CAST(x AS …)` like `x`, and prefers that to a result column.
fn orders_by_cast(query: &ast::Query) -> bool {
    fn cast_columns(expr: &ast::Expr, in_cast: bool) -> Vec<String> {
        match expr {
            ast::Expr::Nested(inner) => cast_columns(inner, in_cast),
            ast::Expr::Cast { expr: inner, .. } => cast_columns(inner, true),
            ast::Expr::Identifier(name) if in_cast => vec![name_of(name)],
            ast::Expr::CompoundIdentifier(names) if in_cast => names.last().map(name_of).into_iter().collect(),
            ast::Expr::GroupingSets(sets) | ast::Expr::Cube(sets) | ast::Expr::Rollup(sets) => {
                sets.iter().flatten().flat_map(|key| cast_columns(key, false)).collect()
            }
            _ => Vec::new(),
        }
    }
    let (SetExpr::Select(select), Some(order)) = (query.body.as_ref(), &query.order_by) else { return false };
    let (GroupByExpr::Expressions(keys, _), OrderByKind::Expressions(order)) = (&select.group_by, &order.kind) else {
        return false;
    };
    let casts: Vec<String> = keys.iter().flat_map(|key| cast_columns(key, false)).collect();
    let is_sorted_by = |name: &str| {
        order.iter().any(|key| matches!(&key.expr, ast::Expr::Identifier(sorted) if name_of(sorted) == name))
    };
    select.projection.iter().any(|item| match item {
        SelectItem::ExprWithAlias { expr, alias } => {
            let name = name_of(alias);
            casts.contains(&name) && is_sorted_by(&name) && !cast_columns(expr, false).contains(&name)
        }
        _ => false,
    })
}

/// Refuses a plan before its types are resolved.
pub(in crate::query) fn check_plan(plan: &LogicalPlan) -> DataFusionResult<()> {
    let last_limit = last_limit(plan);
    plan.apply_with_subqueries(|node| {
        for input in node.inputs() {
            // Other subqueries are expressions.
            if let LogicalPlan::Subquery(subquery) = input {
                refuse_if(!subquery.outer_ref_columns.is_empty(), &LATERAL)?;
            }
        }
        match node {
            LogicalPlan::Limit(limit) => {
                let is_last = last_limit.is_some_and(|last| std::ptr::eq(last, limit));
                refuse_if(!is_last && !matches!(limit.get_skip_type()?, SkipType::Literal(0)), &OFFSET)?;
            }
            LogicalPlan::Filter(filter) => {
                for condition in split_conjunction(&filter.predicate) {
                    check_in(condition, Place::Conjunct)?;
                }
            }
            _ => {}
        }
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                check_part(part, node)?;
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(())
}

/// Refuses a plan whose types are resolved.
pub(in crate::query) fn check_types(plan: &LogicalPlan) -> DataFusionResult<()> {
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Join(join) = node
            && join.null_equality == NullEquality::NullEqualsNull
            && matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        {
            let differ = |left: &DataType, right: &DataType| !is_encoding_of(left, right) && *right != DataType::Null;
            let mut types = join.left.schema().fields().iter().zip(join.right.schema().fields());
            refuse_if(types.any(|(left, right)| differ(left.data_type(), right.data_type())), &MIXED_SETS)?;
        }
        let schema = input_schema(node);
        node.apply_expressions(|expr| {
            refuse_if(matches!(node, LogicalPlan::Sort(_)) && compares_choices(expr)?, &COMPARED_KEY)?;
            expr.apply(|part| {
                let outer = subquery_of(part).map_or(&[][..], |subquery| &subquery.outer_ref_columns);
                for reference in outer {
                    if let Expr::OuterReferenceColumn(field, column) = reference {
                        let found = schema.field_from_column(column).ok();
                        refuse_if(found.is_some_and(|found| found.data_type() != field.data_type()), &MIXED_OUTER)?;
                    }
                }
                if let Expr::ScalarFunction(call) = part
                    && ["arrow_cast", "arrow_try_cast"].contains(&call.name())
                {
                    refuse_if(is_narrow(&part.get_type(&schema)?), &NARROW_DECIMAL)?;
                }
                if let Expr::ScalarFunction(call) = part
                    && call.name() == "get_field"
                {
                    let is_nullif = |base: &Expr| matches!(base, Expr::ScalarFunction(call) if call.name() == "nullif");
                    refuse_if(call.args.first().is_some_and(|base| is_choice(base) || is_nullif(base)), &NULL_STRUCT)?;
                }
                if let Expr::WindowFunction(window) = part {
                    let WindowFunction { params, .. } = window.as_ref();
                    let keys = params.partition_by.iter().chain(params.order_by.iter().map(|key| &key.expr));
                    for key in keys {
                        refuse_if(compares_choices(key)?, &COMPARED_KEY)?;
                    }
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(())
}

fn refuse_if(is_refused: bool, refusal: &Refusal) -> DataFusionResult<()> {
    if is_refused { Err(external(refusal.error())) } else { Ok(()) }
}

/// Returns the LIMIT at the end of a statement.
fn last_limit(plan: &LogicalPlan) -> Option<&Limit> {
    match plan {
        LogicalPlan::Limit(limit) => Some(limit),
        LogicalPlan::Projection(projection) => last_limit(&projection.input),
        _ => None,
    }
}

/// Returns whether a plan is an aggregate without GROUP BY.
fn is_over_total(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::Projection(projection) => is_over_total(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => is_over_total(&alias.input),
        _ => false,
    }
}

/// Returns a name as DataFusion compares it.
pub(in crate::query) fn name_of(name: &ast::Ident) -> String {
    if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() }
}

fn is_choice(expr: &Expr) -> bool {
    match expr {
        Expr::Case(_) => true,
        Expr::ScalarFunction(call) => ["coalesce", "nvl", "nvl2"].contains(&call.name()),
        _ => false,
    }
}

/// Returns whether an expression is a comparison over a CASE or COALESCE.
fn compares_choices(key: &Expr) -> DataFusionResult<bool> {
    key.exists(|part| match part {
        Expr::BinaryExpr(BinaryExpr { op: Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq, .. }) => {
            part.exists(|part| Ok(is_choice(part)))
        }
        _ => Ok(false),
    })
}

/// The place of an IN condition.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A condition of WHERE or HAVING, or one of several joined with AND.
    Conjunct,
    /// A place where null and false have the same effect.
    Condition,
    /// Anywhere else.
    Value,
}

/// Refuses IN conditions whose null DataFusion confuses with false. It evaluates them as joins that return true or
/// false, except NOT IN as a whole condition.
fn check_in(expr: &Expr, place: Place) -> DataFusionResult<()> {
    match expr {
        Expr::InSubquery(InSubquery { expr: value, negated, .. }) => {
            let is_column = matches!(value.as_ref(), Expr::Column(_));
            refuse_if(*negated && (place != Place::Conjunct || !is_column), &NOT_IN)?;
            refuse_if(place == Place::Value, &NULL_OF_IN)?;
            let is_correlated =
                |part: &Expr| subquery_of(part).is_some_and(|inner| !inner.outer_ref_columns.is_empty());
            refuse_if(value.exists(|part| Ok(is_correlated(part)))?, &CORRELATED_KEY)?;
            check_in(value, Place::Value)
        }
        Expr::Not(inner) if place == Place::Conjunct && matches!(inner.as_ref(), Expr::InSubquery(_)) => {
            let Expr::InSubquery(condition) = inner.as_ref() else { return Ok(()) };
            let negated = !condition.negated;
            check_in(&Expr::InSubquery(InSubquery { negated, ..condition.clone() }), place)
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And | Operator::Or, right }) => {
            let place = if place == Place::Value { place } else { Place::Condition };
            check_in(left, place)?;
            check_in(right, place)
        }
        Expr::Case(Case { expr: None, when_then_expr, else_expr }) => {
            let place = if place == Place::Value { place } else { Place::Condition };
            for (when, then) in when_then_expr {
                check_in(when, Place::Condition)?;
                check_in(then, place)?;
            }
            else_expr.as_ref().map_or(Ok(()), |otherwise| check_in(otherwise, place))
        }
        other => {
            other.apply_children(|child| {
                check_in(child, Place::Value)?;
                Ok(TreeNodeRecursion::Continue)
            })?;
            Ok(())
        }
    }
}

fn subquery_of(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::InSubquery(condition) => Some(&condition.subquery),
        Expr::Exists(condition) => Some(&condition.subquery),
        Expr::ScalarSubquery(subquery) => Some(subquery),
        _ => None,
    }
}

/// Refuses a part of an expression of `node`.
fn check_part(part: &Expr, node: &LogicalPlan) -> DataFusionResult<()> {
    if let (LogicalPlan::Aggregate(Aggregate { input, group_expr, .. }), Expr::AggregateFunction(function)) =
        (node, part)
    {
        let is_of_total = group_expr.is_empty() && is_over_total(input);
        refuse_if(is_of_total && function.params.filter.is_some(), &FILTER_OF_TOTAL)?;
    }
    let Some(subquery) = subquery_of(part) else { return Ok(()) };
    let is_scalar = matches!(part, Expr::ScalarSubquery(_));
    refuse_if(!is_scalar && !matches!(node, LogicalPlan::Filter(_)), &OUTSIDE_WHERE)?;
    if subquery.outer_ref_columns.is_empty() {
        return Ok(());
    }
    refuse_if(matches!(part, Expr::InSubquery(_)), &CORRELATED_IN)?;
    refuse_if(matches!(node, LogicalPlan::Sort(_) | LogicalPlan::Aggregate(_)), &CORRELATED_KEY)?;
    let is_near = |column: &Column| node.inputs().iter().any(|input| input.schema().has_column(column));
    let is_far = |outer: &Expr| matches!(outer, Expr::OuterReferenceColumn(_, column) if !is_near(column));
    refuse_if(subquery.outer_ref_columns.iter().any(is_far), &TWO_LEVELS)?;
    refuse_if(!is_join(&subquery.subquery, is_scalar)?, &CORRELATED)
}

/// Returns whether DataFusion rewrites a correlated subquery to a join that gives the same rows. A join is not enough
/// for an aggregate, which returns a row even for no input, and for windows and limits, which apply to each outer row.
fn is_join(plan: &LogicalPlan, is_scalar: bool) -> DataFusionResult<bool> {
    let mut num_totals = 0;
    let mut is_join = true;
    plan.apply(|node| {
        if !node.exists(|node| Ok(refers_to_outer(node)))? {
            return Ok(TreeNodeRecursion::Jump);
        }
        is_join &= match node {
            LogicalPlan::Aggregate(Aggregate { group_expr, .. }) => {
                num_totals += 1;
                is_scalar && group_expr.is_empty() && num_totals == 1 && !refers_to_outer(node)
            }
            LogicalPlan::Filter(filter) if is_scalar => {
                num_totals == 1 && split_conjunction(&filter.predicate).into_iter().all(is_comparison)
            }
            LogicalPlan::Filter(_) => true,
            LogicalPlan::Projection(_) | LogicalPlan::Join(_) => !is_scalar || !refers_to_outer(node),
            LogicalPlan::SubqueryAlias(_) => !is_scalar,
            LogicalPlan::Distinct(_) => true,
            _ => false,
        };
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(is_join && (!is_scalar || num_totals == 1))
}

/// Returns whether a condition has no outer column, or compares outer columns with = only.
fn is_comparison(condition: &Expr) -> bool {
    let is_outer = |expr: &Expr| expr.column_refs().is_empty();
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            !condition.contains_outer() || is_outer(left) != is_outer(right)
        }
        other => !other.contains_outer(),
    }
}

/// Returns whether the expressions of a node refer to an outer query.
fn refers_to_outer(node: &LogicalPlan) -> bool {
    node.expressions().iter().any(Expr::contains_outer)
}

#[cfg(test)]
mod tests;
