//! The table `annotations` of SQL: the stored columns, and each policy as one list of the four moves.

use crate::archive::{Archive, MOVE_NAMES, POLICIES, TableName};
use crate::error::Result;
use crate::query::engine::errors::query_error;
use crate::query::engine::plan_function::PlanFunction;
use crate::query::scan::archive_table::ArchiveTable;
use arrow::array::{Array, ArrayRef, AsArray, FixedSizeListBuilder, Float32Array, Float32Builder};
use arrow::datatypes::{DataType, Field};
use datafusion::common::{Column, Result as DataFusionResult, exec_err};
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::logical_expr::{Expr, LogicalPlanBuilder};
use std::sync::Arc;

/// Returns the table. A list is null if all its values are null.
pub(in crate::query) fn annotations(archive: &Archive) -> Result<ViewTable> {
    let stored = provider_as_source(ArchiveTable::new(archive, TableName::Annotations, None));
    let scan = LogicalPlanBuilder::scan("annotations", stored, None).map_err(query_error)?;
    let column = |name: String| Expr::Column(Column::new(Some("annotations"), name));
    let list = |policy: &str| {
        let values = MOVE_NAMES.map(|name| column(format!("{policy}_{name}")));
        let dtype = DataType::new_fixed_size_list(DataType::Float32, MOVE_NAMES.len() as i32, true);
        let field = Arc::new(Field::new("per_move", dtype, true));
        PlanFunction::of_arrays("per_move", String::new(), field, per_move).over(values.to_vec()).alias(policy)
    };
    let columns: Vec<Expr> = scan.schema().columns().into_iter().map(Expr::Column).collect();
    let columns = columns.into_iter().chain(POLICIES.map(list));
    let plan = scan.project(columns).and_then(LogicalPlanBuilder::build).map_err(query_error)?;
    Ok(ViewTable::new(plan, None))
}

/// Makes a list of four columns.
fn per_move(arrays: &[ArrayRef]) -> DataFusionResult<ArrayRef> {
    let columns: Option<Vec<&Float32Array>> = arrays.iter().map(|array| array.as_primitive_opt()).collect();
    let Some(columns) = columns else { return exec_err!("per_move: expected columns of Float32") };
    let num_rows = columns.first().map_or(0, |column| column.len());
    let values = Float32Builder::with_capacity(num_rows * columns.len());
    let mut lists = FixedSizeListBuilder::with_capacity(values, MOVE_NAMES.len() as i32, num_rows);
    for row in 0..num_rows {
        for column in &columns {
            lists.values().append_option(column.is_valid(row).then(|| column.value(row)));
        }
        lists.append(columns.iter().any(|column| column.is_valid(row)));
    }
    Ok(Arc::new(lists.finish()))
}
