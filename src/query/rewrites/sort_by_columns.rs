//! Sorting by columns instead of by expressions.
//!
//! DataFusion's final plan check rejects some of DataFusion's own plans, as in apache/datafusion#20194. Their sort keys
//! are certain expressions, such as comparisons of a CASE: `ORDER BY coalesce(move, 2) > 2` and
//! `PARTITION BY CASE … END < x`. So a projection first turns the keys into columns.

use super::columns::UniqueNames;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result as DataFusionResult};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Projection, Sort, SortExpr, Window};
use std::sync::Arc;

/// Rewrites the sorts and windows of a fully optimized plan.
pub(in crate::query) fn sort_by_columns(plan: LogicalPlan) -> DataFusionResult<LogicalPlan> {
    let mut names = UniqueNames::unlike(&plan, "sort key ")?;
    let rewritten = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Sort(Sort { expr, input, fetch }) if expr.iter().any(|key| !is_column(&key.expr)) => {
            let columns = columns_of(&input);
            let mut keys = SortKeyColumns::new(&mut names);
            let expr = keys.of_sort(expr);
            let sorted = LogicalPlan::Sort(Sort { expr, input: Arc::new(keys.under(input)?), fetch });
            Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(sorted))?)))
        }
        LogicalPlan::Window(Window { input, window_expr, schema }) if window_expr.iter().any(has_expressions) => {
            let columns = schema.columns().into_iter().map(Expr::Column).collect();
            let mut keys = SortKeyColumns::new(&mut names);
            let window_expr: Vec<Expr> = window_expr.into_iter().map(|window| keys.of_window(window)).collect();
            let windows = LogicalPlanBuilder::from(keys.under(input)?).window(window_expr)?.build()?;
            Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(windows))?)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(rewritten.data)
}

fn is_column(expr: &Expr) -> bool {
    matches!(expr, Expr::Column(_))
}

fn columns_of(plan: &LogicalPlan) -> Vec<Expr> {
    plan.schema().columns().into_iter().map(Expr::Column).collect()
}

fn window_of(expr: &Expr) -> Option<&WindowFunction> {
    match expr {
        Expr::WindowFunction(window) => Some(window),
        Expr::Alias(alias) => window_of(&alias.expr),
        _ => None,
    }
}

fn has_expressions(window: &Expr) -> bool {
    window_of(window).is_some_and(|window| {
        let params = &window.params;
        !params.partition_by.iter().chain(params.order_by.iter().map(|key| &key.expr)).all(is_column)
    })
}

/// The sort keys of a node, as additional columns of its input.
struct SortKeyColumns<'a> {
    names: &'a mut UniqueNames,
    columns: Vec<Expr>,
}

impl SortKeyColumns<'_> {
    fn new(names: &mut UniqueNames) -> SortKeyColumns<'_> {
        SortKeyColumns { names, columns: Vec::new() }
    }

    fn of(&mut self, key: Expr) -> Expr {
        if is_column(&key) {
            return key;
        }
        let name = self.names.next();
        self.columns.push(key.alias(&name));
        Expr::Column(Column::new_unqualified(name))
    }

    fn of_sort(&mut self, keys: Vec<SortExpr>) -> Vec<SortExpr> {
        keys.into_iter().map(|key| SortExpr { expr: self.of(key.expr), ..key }).collect()
    }

    /// Returns a window over columns under its original name.
    fn of_window(&mut self, window: Expr) -> Expr {
        let name = window.schema_name().to_string();
        match window {
            Expr::Alias(alias) => match *alias.expr {
                Expr::WindowFunction(window) => self.over_columns(window).alias_qualified(alias.relation, alias.name),
                other => other.alias_qualified(alias.relation, alias.name),
            },
            Expr::WindowFunction(window) => self.over_columns(window).alias(name),
            other => other,
        }
    }

    fn over_columns(&mut self, mut window: Box<WindowFunction>) -> Expr {
        let params = &mut window.params;
        params.partition_by = std::mem::take(&mut params.partition_by).into_iter().map(|key| self.of(key)).collect();
        params.order_by = self.of_sort(std::mem::take(&mut params.order_by));
        Expr::WindowFunction(window)
    }

    /// Returns the input with the keys as additional columns.
    fn under(self, input: Arc<LogicalPlan>) -> DataFusionResult<LogicalPlan> {
        let columns = columns_of(&input).into_iter().chain(self.columns).collect();
        Ok(LogicalPlan::Projection(Projection::try_new(columns, input)?))
    }
}
