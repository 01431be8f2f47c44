//! Filters on columns that a consumer adds to a planned query.

use super::errors::query_error;
use super::planned::Query;
use crate::error::{Error, Result};
use datafusion::common::{DFSchema, Result as DataFusionResult};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Operator, binary_expr, lit};
use datafusion::scalar::ScalarValue;

/// A filter on a column of a result. Like a WHERE, it selects the rows for which it is true, not null.
#[derive(Clone, Debug)]
pub(crate) struct ResultFilter {
    pub(crate) column: String,
    pub(crate) operator: Operator,
    /// One value, or for an equality any of several.
    pub(crate) values: Vec<ScalarValue>,
}

impl ResultFilter {
    /// Returns the comparison with this sign.
    pub(crate) fn operator(sign: &str) -> Option<Operator> {
        Some(match sign {
            "=" => Operator::Eq,
            "<>" => Operator::NotEq,
            "<" => Operator::Lt,
            "<=" => Operator::LtEq,
            ">" => Operator::Gt,
            ">=" => Operator::GtEq,
            _ => return None,
        })
    }

    fn expr(&self, schema: &DFSchema) -> Result<Expr> {
        let place = schema.fields().iter().position(|field| *field.name() == self.column);
        let place = place.ok_or_else(|| Error::query(format!("the result has no column {}", self.column)))?;
        let column = Expr::Column(schema.qualified_field(place).into());
        let mut values: Vec<Expr> = self.values.iter().map(|value| Expr::Literal(value.clone(), None)).collect();
        Ok(match (values.len(), values.pop()) {
            (1, Some(value)) => binary_expr(column, self.operator, value),
            (_, last) => column.in_list(values.into_iter().chain(last).collect(), false),
        })
    }
}

impl Query {
    /// Returns a query for the rows that meet all conditions, in the same order. `None` if the plan has a LIMIT, or a sort
    /// by columns that are not in the result: a filter above them is no part of the scan.
    pub(crate) fn filter(&self, conditions: &[ResultFilter]) -> Result<Option<Query>> {
        fn filtered(plan: LogicalPlan, expr: Expr) -> DataFusionResult<Option<LogicalPlan>> {
            Ok(match plan {
                LogicalPlan::Limit(_) | LogicalPlan::Explain(_) | LogicalPlan::Analyze(_) => None,
                // The sort stays on top, because only there its order is the order of the result.
                LogicalPlan::Sort(mut sort) => {
                    let input = std::sync::Arc::unwrap_or_clone(sort.input);
                    match filtered(input, expr)? {
                        Some(input) if sort.fetch.is_none() => {
                            sort.input = input.into();
                            Some(LogicalPlan::Sort(sort))
                        }
                        _ => None,
                    }
                }
                LogicalPlan::Projection(ref projection) if matches!(*projection.input, LogicalPlan::Sort(_)) => None,
                plan => Some(LogicalPlanBuilder::from(plan).filter(expr)?.build()?),
            })
        }
        let exprs = conditions.iter().map(|condition| condition.expr(self.plan().schema()));
        let expr = conjunction(exprs.collect::<Result<Vec<_>>>()?).unwrap_or_else(|| lit(true));
        let plan = filtered(self.plan().clone(), expr).map_err(query_error)?;
        plan.map(|plan| self.with_plan(plan)).transpose()
    }
}
