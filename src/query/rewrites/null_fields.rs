//! Fields of null structs.
//!
//! An Arrow array may store values in the fields of a null struct, and DataFusion returns these values
//! (apache/datafusion#25120, fixed in a version after 55). This rule makes such fields null.

use super::columns::{input_schema, map_expressions};
use crate::query::functions::functions;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result as DataFusionResult};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, when};
use datafusion::optimizer::AnalyzerRule;

/// Evaluates the field of a struct only where the struct is not null.
#[derive(Debug)]
pub(in crate::query) struct NullFields;

impl AnalyzerRule for NullFields {
    fn name(&self) -> &'static str {
        "null_fields"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DataFusionResult<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|node| {
            let schema = input_schema(&node);
            map_expressions(node, |expr| {
                expr.transform_up(|part| match base_of_field(&part, &schema) {
                    Some(base) => Ok(Transformed::yes(when(base.is_not_null(), part).end()?)),
                    None => Ok(Transformed::no(part)),
                })
            })
        })?;
        Ok(rewritten.data)
    }
}

/// Returns the struct of a field, if it may be null. The null structs of this crate's functions store no values.
fn base_of_field(expr: &Expr, schema: &DFSchema) -> Option<Expr> {
    let Expr::ScalarFunction(call) = expr else { return None };
    let base = call.args.first().filter(|_| call.name() == "get_field")?;
    let is_ours = matches!(base, Expr::ScalarFunction(call) if functions().iter().any(|own| own.name == call.name()));
    let is_struct = matches!(base.get_type(schema), Ok(DataType::Struct(_)));
    (is_struct && !is_ours && base.nullable(schema).unwrap_or(true)).then(|| base.clone())
}
