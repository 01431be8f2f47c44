//! The board functions as scalar functions of DataFusion.

use crate::archive::Phases;
use crate::query::engine::errors::external;
use crate::query::functions::{ArgumentKind, Function, functions};
use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion::common::{Result as DataFusionResult, plan_err};
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use std::sync::Arc;

/// Returns all board functions, for an archive with these phases.
pub(in crate::query) fn board_udfs(phases: Phases) -> impl Iterator<Item = Arc<ScalarUDF>> {
    (0..functions().len()).map(move |index| {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(BoardUdf { index, phases, signature }))
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct BoardUdf {
    /// The position in the list of functions.
    index: usize,
    phases: Phases,
    signature: Signature,
}

impl BoardUdf {
    fn function(&self) -> &'static Function {
        &functions()[self.index]
    }
}

impl ScalarUDFImpl for BoardUdf {
    fn name(&self) -> &str {
        self.function().name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(self.function().return_type())
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        let function = self.function();
        if let Some(message) = function.wrong_count(arg_types.len()) {
            return plan_err!("{message}");
        }
        let arguments = function.arguments.iter().chain(function.optional);
        let coerced = arg_types.iter().zip(arguments).map(|(found, argument)| {
            let best = argument.kind.data_type();
            let fits = match argument.kind {
                ArgumentKind::Ev => found.is_numeric(),
                ArgumentKind::Flag => matches!(found, DataType::Boolean),
                _ => found.is_integer(),
            };
            match found {
                // The planner does not know yet that `coalesce(board, 0)` is a uint64.
                DataType::Decimal128(_, 0) if argument.kind == ArgumentKind::Board => Ok(best),
                DataType::Null => Ok(best),
                // The function itself accepts every number and reports a number that is out of range.
                found if fits => Ok(found.clone()),
                found => {
                    plan_err!("{}: {}: expected {best}, found {found}", function.signature(), argument.name)
                }
            }
        });
        coerced.collect()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let call = |arrays: &[ArrayRef]| self.function().call(arrays, self.phases).map_err(external);
        make_scalar_function(call, Vec::new())(&args.args)
    }
}
