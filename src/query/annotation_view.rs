//! The table `annotations` of SQL: the stored columns, and each policy as one list of the four moves.

use super::archive_table::ArchiveTable;
use super::errors::query_error;
use crate::archive::{Archive, MOVE_NAMES, POLICIES};
use crate::error::Result;
use arrow::array::{Array, ArrayRef, AsArray, FixedSizeListArray, Float32Builder, PrimitiveArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, FieldRef, Float32Type};
use datafusion::common::{Column, Result as DataFusionResult, exec_err};
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlanBuilder, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

/// The name of the function that makes a list of the four moves. Plans show it, and statements cannot call it.
pub(super) const PER_MOVE: &str = "per_move";

/// Returns the table. A list is null if all its values are null.
pub(super) fn annotations(archive: &Archive) -> Result<ViewTable> {
    let per_move = Arc::new(ScalarUDF::new_from_impl(PerMove::default()));
    let stored = provider_as_source(Arc::new(ArchiveTable::annotations(archive)));
    let scan = LogicalPlanBuilder::scan("annotations", stored, None).map_err(query_error)?;
    let column = |name: String| Expr::Column(Column::new(Some("annotations"), name));
    let list = |policy: &str| {
        let values = MOVE_NAMES.map(|name| column(format!("{policy}_{name}")));
        per_move.call(values.to_vec()).alias(policy)
    };
    let columns: Vec<Expr> = scan.schema().columns().into_iter().map(Expr::Column).collect();
    let columns = columns.into_iter().chain(POLICIES.map(list));
    let plan = scan.project(columns).and_then(LogicalPlanBuilder::build).map_err(query_error)?;
    Ok(ViewTable::new(plan, None))
}

/// A function that makes a list of four columns.
#[derive(Debug, PartialEq, Eq, Hash)]
struct PerMove {
    signature: Signature,
}

impl Default for PerMove {
    fn default() -> PerMove {
        let types = vec![DataType::Float32; MOVE_NAMES.len()];
        PerMove { signature: Signature::exact(types, Volatility::Immutable) }
    }
}

fn item() -> FieldRef {
    Arc::new(Field::new_list_field(DataType::Float32, true))
}

impl ScalarUDFImpl for PerMove {
    fn name(&self) -> &str {
        PER_MOVE
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(DataType::FixedSizeList(item(), MOVE_NAMES.len() as i32))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let arrays: Vec<ArrayRef> =
            args.args.iter().map(|arg| arg.to_array(args.number_rows)).collect::<DataFusionResult<_>>()?;
        let columns: Option<Vec<&PrimitiveArray<Float32Type>>> =
            arrays.iter().map(|array| array.as_primitive_opt()).collect();
        let Some(columns) = columns else { return exec_err!("{PER_MOVE}: expected columns of Float32") };
        let mut values = Float32Builder::with_capacity(args.number_rows * columns.len());
        let mut is_valid = Vec::with_capacity(args.number_rows);
        for row in 0..args.number_rows {
            let mut any = false;
            for column in &columns {
                let value = column.is_valid(row).then(|| column.value(row));
                any |= value.is_some();
                values.append_option(value);
            }
            is_valid.push(any);
        }
        let nulls = Some(NullBuffer::from(is_valid)).filter(|nulls| nulls.null_count() > 0);
        let lists = FixedSizeListArray::try_new(item(), MOVE_NAMES.len() as i32, Arc::new(values.finish()), nulls)?;
        Ok(ColumnarValue::Array(Arc::new(lists)))
    }
}
