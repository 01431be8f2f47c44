//! Filters on columns that a consumer adds to a planned query.

use crate::error::Result;
use crate::query::engine::errors::query_error;
use crate::query::guard;
use crate::query::query::Query;
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use std::sync::Arc;

impl Query {
    /// Returns a query for the rows that meet a condition in SQL on columns of the result, in the same order. `None` if
    /// the plan has a LIMIT, or a sort by columns that are not in the result: a filter above them is no part of the
    /// scan.
    ///
    /// # Errors
    /// [`ErrorKind::Query`](crate::ErrorKind::Query) for a condition that is not valid on the result.
    pub fn filter(&self, condition: &str) -> Result<Option<Query>> {
        fn filtered(plan: LogicalPlan, expr: Expr) -> DataFusionResult<Option<LogicalPlan>> {
            Ok(match plan {
                LogicalPlan::Limit(_) => None,
                // The sort stays on top, because only there its order is the order of the result.
                LogicalPlan::Sort(mut sort) => match filtered(Arc::unwrap_or_clone(sort.input), expr)? {
                    Some(input) if sort.fetch.is_none() => {
                        sort.input = input.into();
                        Some(LogicalPlan::Sort(sort))
                    }
                    _ => None,
                },
                LogicalPlan::Projection(ref projection) if matches!(*projection.input, LogicalPlan::Sort(_)) => None,
                plan => Some(LogicalPlanBuilder::from(plan).filter(expr)?.build()?),
            })
        }
        let state = self.context()?.state();
        let expr = state.create_logical_expr(condition, self.plan().schema()).map_err(query_error)?;
        let plan = filtered(self.plan().clone(), expr).map_err(query_error)?;
        let query = plan.map(|plan| self.with_condition(plan, condition)).transpose()?;
        Ok(query.filter(|query| guard::check_filters(query.plan()).is_ok()))
    }
}
