//! The functions `min` and `max` of floats, in groups.
//!
//! DataFusion compares floats in groups without regard to NaN, so that the result depends on the order of the rows
//! (apache/datafusion#24432, fixed in a version after 55). Without groups, NaN is larger than all numbers.

use arrow::array::{ArrowNativeTypeOp, ArrowPrimitiveType};
use arrow::datatypes::{DataType, Float16Type, Float32Type, Float64Type};
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature,
};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::prim_op::PrimitiveGroupsAccumulator;
use std::cmp::Ordering;
use std::sync::Arc;

/// `min` or `max`. Compares floats in groups by their total order, as DataFusion does without groups.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::query) struct Extreme(pub(in crate::query) Arc<AggregateUDF>);

impl AggregateUDFImpl for Extreme {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> DataFusionResult<DataType> {
        self.0.return_type(arg_types)
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        self.0.coerce_types(arg_types)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> DataFusionResult<Box<dyn Accumulator>> {
        self.0.accumulator(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.0.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> DataFusionResult<Box<dyn GroupsAccumulator>> {
        let is_max = self.name() == "max";
        match args.return_field.data_type() {
            DataType::Float16 => Ok(in_groups::<Float16Type>(is_max)),
            DataType::Float32 => Ok(in_groups::<Float32Type>(is_max)),
            DataType::Float64 => Ok(in_groups::<Float64Type>(is_max)),
            _ => self.0.create_groups_accumulator(args),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> DataFusionResult<Box<dyn Accumulator>> {
        self.0.create_sliding_accumulator(args)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.0.order_sensitivity()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.0.reverse_udf()
    }
}

fn in_groups<T: ArrowPrimitiveType + Send>(is_max: bool) -> Box<dyn GroupsAccumulator> {
    let (first, replaces) = match is_max {
        true => (T::Native::MIN_TOTAL_ORDER, Ordering::Greater),
        false => (T::Native::MAX_TOTAL_ORDER, Ordering::Less),
    };
    let update = move |extreme: &mut T::Native, value: T::Native| {
        if value.compare(*extreme) == replaces {
            *extreme = value;
        }
    };
    Box::new(PrimitiveGroupsAccumulator::<T, _>::new(&T::DATA_TYPE, update).with_starting_value(first))
}
