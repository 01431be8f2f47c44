//! Functions for the experiments.

use arrow::array::{ArrayRef, AsArray, Int64Array, UInt32Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, UInt32Type};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::{
    AggregateUDF, ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, create_udaf,
};
use datafusion::physical_plan::Accumulator;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The number of batches that [`Slow`] has seen in this process.
pub static SLOW_BATCHES: AtomicUsize = AtomicUsize::new(0);

/// Returns its first argument, after the number of milliseconds that is its second.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Slow(Signature);

impl Slow {
    #[must_use]
    pub fn udf() -> ScalarUDF {
        ScalarUDF::new_from_impl(Slow(Signature::any(2, Volatility::Volatile)))
    }
}

impl ScalarUDFImpl for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(ColumnarValue::Scalar(ScalarValue::Int64(Some(millis)))) = args.args.get(1) else {
            return exec_err!("slow: expected a number of milliseconds");
        };
        std::thread::sleep(Duration::from_millis(millis.unsigned_abs()));
        SLOW_BATCHES.fetch_add(1, Ordering::Relaxed);
        Ok(args.args.swap_remove(0))
    }
}

/// Adds an amount that is a part of the function, and not an argument.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct AddAmount {
    amount: i64,
    signature: Signature,
}

impl AddAmount {
    #[must_use]
    pub fn udf(amount: i64) -> ScalarUDF {
        let signature = Signature::exact(vec![DataType::Int64], Volatility::Immutable);
        ScalarUDF::new_from_impl(AddAmount { amount, signature })
    }
}

/// Returns the amount of an [`AddAmount`].
#[must_use]
pub fn added_amount(function: &ScalarUDF) -> Option<i64> {
    function.inner().downcast_ref::<AddAmount>().map(|add| add.amount)
}

impl ScalarUDFImpl for AddAmount {
    fn name(&self) -> &'static str {
        "add_amount"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let numbers = args.args[0].to_array(args.number_rows)?;
        let numbers = numbers.as_primitive::<Int64Type>();
        let sums: Int64Array = numbers.iter().map(|number| number.map(|number| number + self.amount)).collect();
        Ok(ColumnarValue::Array(Arc::new(sums)))
    }
}

/// An aggregate function that is not DataFusion's: the largest value.
#[must_use]
pub fn highest() -> AggregateUDF {
    let accumulator = Arc::new(|_: datafusion::logical_expr::function::AccumulatorArgs<'_>| {
        Ok(Box::new(Highest::default()) as Box<dyn Accumulator>)
    });
    let number = DataType::UInt32;
    create_udaf(
        "highest",
        vec![number.clone()],
        Arc::new(number.clone()),
        Volatility::Immutable,
        accumulator,
        Arc::new(vec![number]),
    )
}

#[derive(Debug, Default)]
struct Highest(Option<u32>);

impl Accumulator for Highest {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = cast(&values[0], &DataType::UInt32)?;
        let values: &UInt32Array = values.as_primitive::<UInt32Type>();
        self.0 = self.0.max(values.iter().flatten().max());
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::UInt32(self.0))
    }

    fn size(&self) -> usize {
        size_of::<Self>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::UInt32(self.0)])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }
}
