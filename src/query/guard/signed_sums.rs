//! The function `sum` with signed results.
//!
//! DataFusion's sum of unsigned integers is a uint64. So `sum(num_steps) - 1000` would wrap around below 0, as
//! arithmetic on boards does. DataFusion's sum also rejects booleans, as in `sum(verified)`.

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result as DataFusionResult;
use datafusion::common::types::{
    LogicalTypeRef, NativeType, logical_boolean, logical_float64, logical_int64, logical_uint64,
};
use datafusion::functions_aggregate::sum::Sum;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, Coercion, GroupsAccumulator, Signature, TypeSignature, TypeSignatureClass,
    Volatility,
};

/// Sums booleans and integers as int64, uint64 as uint64, and other numbers as DataFusion does.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::query) struct SignedSum {
    inner: Sum,
    signature: Signature,
}

impl SignedSum {
    pub(in crate::query) fn new() -> SignedSum {
        let native = |dtype: LogicalTypeRef| TypeSignatureClass::Native(dtype);
        let signed = vec![TypeSignatureClass::Integer, native(logical_boolean())];
        let coercions = [
            Coercion::new_exact(TypeSignatureClass::Decimal),
            Coercion::new_exact(native(logical_uint64())),
            Coercion::new_implicit(native(logical_int64()), signed, NativeType::Int64),
            Coercion::new_implicit(native(logical_float64()), vec![TypeSignatureClass::Float], NativeType::Float64),
            Coercion::new_exact(TypeSignatureClass::Duration),
            Coercion::new_exact(TypeSignatureClass::Interval),
        ];
        let coercions = coercions.map(|coercion| TypeSignature::Coercible(vec![coercion])).to_vec();
        SignedSum { inner: Sum::new(), signature: Signature::one_of(coercions, Volatility::Immutable) }
    }
}

impl AggregateUDFImpl for SignedSum {
    fn name(&self) -> &'static str {
        "sum"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> DataFusionResult<DataType> {
        self.inner.return_type(arg_types)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> DataFusionResult<Box<dyn Accumulator>> {
        self.inner.accumulator(args)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> DataFusionResult<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> DataFusionResult<Box<dyn GroupsAccumulator>> {
        self.inner.create_groups_accumulator(args)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> DataFusionResult<Box<dyn Accumulator>> {
        self.inner.create_sliding_accumulator(args)
    }
}
