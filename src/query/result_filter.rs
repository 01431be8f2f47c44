//! Filters on columns that a consumer adds to a planned query.

use super::errors::query_error;
use super::planned::Query;
use crate::error::{Error, Result};
use datafusion::common::{DFSchema, Result as DataFusionResult};
use datafusion::logical_expr::utils::{conjunction, disjunction};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Operator, binary_expr, lit};
use datafusion::scalar::ScalarValue;

/// A filter on columns of a result. Like a WHERE, it selects the rows for which it is true, not null.
#[derive(Clone, Debug)]
pub(crate) enum ResultFilter {
    All(Vec<ResultFilter>),
    Any(Vec<ResultFilter>),
    Not(Box<ResultFilter>),
    IsNull(String),
    Compare(String, Operator, ScalarValue),
    OneOf(String, Vec<ScalarValue>),
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
        let column = |name: &str| {
            let place = schema.fields().iter().position(|field| field.name() == name);
            let column = place.map(|place| Expr::Column(schema.qualified_field(place).into()));
            column.ok_or_else(|| Error::query(format!("the result has no column {name}")))
        };
        let all = |conditions: &[ResultFilter]| conditions.iter().map(|condition| condition.expr(schema)).collect();
        let exprs: Result<Vec<Expr>> = match self {
            ResultFilter::All(conditions) | ResultFilter::Any(conditions) => all(conditions),
            _ => Ok(Vec::new()),
        };
        Ok(match self {
            ResultFilter::All(_) => conjunction(exprs?).unwrap_or_else(|| lit(true)),
            ResultFilter::Any(_) => disjunction(exprs?).unwrap_or_else(|| lit(false)),
            ResultFilter::Not(condition) => Expr::Not(Box::new(condition.expr(schema)?)),
            ResultFilter::IsNull(name) => Expr::IsNull(Box::new(column(name)?)),
            ResultFilter::Compare(name, operator, value) => {
                binary_expr(column(name)?, *operator, Expr::Literal(value.clone(), None))
            }
            ResultFilter::OneOf(name, values) => {
                let values = values.iter().map(|value| Expr::Literal(value.clone(), None)).collect();
                column(name)?.in_list(values, false)
            }
        })
    }
}

impl Query {
    /// Returns a query for the rows that meet a condition, in the same order. `None` if the plan has a LIMIT, or a sort
    /// by columns that are not in the result: a filter above them is no part of the scan.
    pub(crate) fn filter(&self, condition: &ResultFilter) -> Result<Option<Query>> {
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
        let expr = condition.expr(self.plan().schema())?;
        let plan = filtered(self.plan().clone(), expr).map_err(query_error)?;
        plan.map(|plan| self.with_plan(plan)).transpose()
    }
}
