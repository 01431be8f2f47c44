//! Text dictionaries encoded as numbers that are valid for a whole plan.
//!
//! The keys of an Arrow dictionary are not enough, because they have another meaning in each row group.

use crate::query::engine::plan_function::PlanFunction;
use arrow::array::{Array, ArrayRef, AsArray, DictionaryArray, UInt32Array};
use arrow::datatypes::{DataType, Field, FieldRef, Int32Type};
use datafusion::common::{Result as DataFusionResult, exec_datafusion_err, exec_err};
use datafusion::logical_expr::Expr;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// The size of a number in bits.
pub(super) const NUMBER_BITS: u32 = i32::BITS - 1;

/// Returns the field of a text column's numbers.
pub(super) fn number_field(text: &Field) -> FieldRef {
    Arc::new(Field::new(text.name(), DataType::UInt32, text.is_nullable()))
}

/// A dictionary of the texts of a plan.
#[derive(Debug, Default)]
pub(in crate::query) struct TextDictionary(RwLock<DictionaryEntries>);

#[derive(Debug, Default)]
struct DictionaryEntries {
    numbers: HashMap<Arc<str>, u32>,
    texts: Vec<Arc<str>>,
}

impl TextDictionary {
    /// Encodes a text as a number. `name` is unique in the plan.
    pub(super) fn to_number(self: &Arc<TextDictionary>, text: Expr, like: &FieldRef, name: &str) -> Expr {
        let texts = Arc::clone(self);
        let encode = move |arrays: &[ArrayRef]| {
            let numbers = texts.numbers_of(arrays[0].as_dictionary())?;
            Ok(Arc::new(numbers) as ArrayRef)
        };
        let function = PlanFunction::of_arrays("number_of_text", name.to_owned(), number_field(like), encode);
        function.with_data(Arc::clone(self)).over(vec![text])
    }

    /// Decodes a number to a text, as a column like `like`. `name` is unique in the plan.
    pub(super) fn to_text(self: &Arc<TextDictionary>, number: Expr, like: &FieldRef, name: &str) -> Expr {
        let texts = Arc::clone(self);
        let decode = move |arrays: &[ArrayRef]| Ok(Arc::new(texts.texts_of(arrays[0].as_primitive())) as ArrayRef);
        PlanFunction::of_arrays("text_of_number", name.to_owned(), Arc::clone(like), decode).over(vec![number])
    }

    /// Returns all texts so far, in the order of their numbers.
    pub(in crate::query) fn texts(&self) -> Vec<String> {
        let guard = self.0.read().unwrap_or_else(PoisonError::into_inner);
        guard.texts.iter().map(|text| (**text).to_owned()).collect()
    }

    /// Returns the number of a text, and gives it the next one if it has none.
    pub(in crate::query) fn number_of(&self, text: &str) -> u32 {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner).numbers.get(text).copied();
        known.unwrap_or_else(|| {
            let mut guard = self.0.write().unwrap_or_else(PoisonError::into_inner);
            let DictionaryEntries { numbers, texts } = &mut *guard;
            let next = texts.len() as u32;
            *numbers.entry(text.into()).or_insert_with_key(|text| {
                texts.push(Arc::clone(text));
                next
            })
        })
    }

    /// Encodes the rows of a dictionary array. If the dictionary has more values than rows, looks up only the
    /// values that rows use.
    fn numbers_of(&self, rows: &DictionaryArray<Int32Type>) -> DataFusionResult<UInt32Array> {
        let values = rows
            .values()
            .as_string_opt::<i32>()
            .ok_or_else(|| exec_datafusion_err!("expected a dictionary of strings"))?;
        let num_texts = self.0.read().unwrap_or_else(PoisonError::into_inner).texts.len();
        if num_texts + values.len() > 1 << NUMBER_BITS {
            return exec_err!("GROUP BY: expected at most {} different texts, found {num_texts}", 1_u32 << NUMBER_BITS);
        }
        let number_of = |key: usize| if values.is_valid(key) { Some(self.number_of(values.value(key))) } else { None };
        let keys = rows.keys();
        if values.len() > keys.len() || values.null_count() > 0 {
            return Ok(keys.iter().map(|key| number_of(usize::try_from(key?).ok()?)).collect());
        }
        let numbers: Vec<u32> = (0..values.len()).map(|key| number_of(key).unwrap_or(0)).collect();
        // A null row may have any key, even one outside the dictionary.
        let number = |key: &i32| numbers.get(*key as usize).copied().unwrap_or(0);
        Ok(UInt32Array::new(keys.values().iter().map(number).collect(), keys.nulls().cloned()))
    }

    /// Decodes numbers. The dictionary has each text of the batch once.
    fn texts_of(&self, numbers: &UInt32Array) -> DictionaryArray<Int32Type> {
        let guard = self.0.read().unwrap_or_else(PoisonError::into_inner);
        numbers.iter().map(|number| guard.texts.get(number? as usize).map(|text| &**text)).collect()
    }
}
