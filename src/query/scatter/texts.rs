//! Numbers of texts in group keys, which are valid in one process only.

use crate::query::engine::plan_function::PlanFunction;
use crate::query::rewrites::{KeyBits, OpaqueExec, TextDictionary};
use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{UInt32Type, UInt64Type};
use arrow::error::ArrowError;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use std::sync::Arc;

/// The columns of a partial aggregate that hold numbers of texts.
#[derive(Default)]
pub(super) struct TextKeys {
    dictionary: Option<Arc<TextDictionary>>,
    /// Each column, and its bits if the column packs several keys.
    columns: Vec<(usize, Option<KeyBits>)>,
}

impl TextKeys {
    /// Returns the numbers of texts that a subtree returns. Only the keys of an aggregate are numbers of texts, and all
    /// keys of an aggregate have the same dictionary.
    pub(super) fn of(mut plan: &Arc<dyn ExecutionPlan>) -> TextKeys {
        // Only nodes that return their input unchanged may be above the aggregate.
        while plan.is::<OpaqueExec>()
            && let Some(input) = plan.children().first().copied()
        {
            plan = input;
        }
        let mut keys = TextKeys::default();
        let aggregate = plan.downcast_ref::<AggregateExec>();
        for (i, (expr, _)) in aggregate.iter().flat_map(|node| node.group_expr().expr()).enumerate() {
            let bits = data::<Vec<KeyBits>>(expr).unwrap_or_default();
            let args = expr.downcast_ref::<ScalarFunctionExpr>().map(ScalarFunctionExpr::args).unwrap_or_default();
            let packed = bits.iter().cloned().map(Some).zip(args);
            for (bits, key) in std::iter::once((None, expr)).chain(packed) {
                if let Some(dictionary) = data::<TextDictionary>(key) {
                    keys.dictionary = Some(dictionary);
                    keys.columns.push((i, bits));
                }
            }
        }
        keys
    }

    /// Returns all texts so far, in the order of their numbers.
    pub(super) fn texts(&self) -> Vec<String> {
        self.dictionary.as_ref().map(|dictionary| dictionary.texts()).unwrap_or_default()
    }

    /// Replaces the numbers of another process, which has these texts, by the numbers of this process.
    pub(super) fn renumbered(&self, batch: &RecordBatch, texts: &[String]) -> Result<RecordBatch, ArrowError> {
        let Some(dictionary) = &self.dictionary else { return Ok(batch.clone()) };
        let numbers: Vec<u32> = texts.iter().map(|text| dictionary.number_of(text)).collect();
        let here = |there: u64| {
            let number = usize::try_from(there).ok().and_then(|there| numbers.get(there));
            number.copied().ok_or_else(|| ArrowError::ComputeError(format!("text {there} of {}", numbers.len())))
        };
        let mut columns = batch.columns().to_vec();
        for (column, bits) in &self.columns {
            let array = &columns[*column];
            let renumbered: ArrayRef = match bits {
                None => Arc::new(array.as_primitive::<UInt32Type>().try_unary::<_, UInt32Type, _>(|n| here(n.into()))?),
                Some(bits) => {
                    let renumber = |packed| bits.replaced(packed, |number| here(number).map(u64::from));
                    Arc::new(array.as_primitive::<UInt64Type>().try_unary::<_, UInt64Type, _>(renumber)?)
                }
            };
            columns[*column] = renumbered;
        }
        RecordBatch::try_new(batch.schema(), columns)
    }
}

/// Returns the data of a function that plans use, if an expression calls one with data of this type.
fn data<T: Send + Sync + 'static>(expr: &Arc<dyn PhysicalExpr>) -> Option<Arc<T>> {
    let call = expr.downcast_ref::<ScalarFunctionExpr>()?;
    call.fun().inner().downcast_ref::<PlanFunction>()?.data()
}
