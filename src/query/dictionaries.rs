//! Grouping by dictionaries of text as by numbers.
//!
//! The engine groups by numbers column by column, but by dictionaries row by row, at three times the cost. A dictionary's
//! own keys mean something else in each row group, so texts get numbers that hold for the whole plan, rows are grouped by those,
//! and the groups, of which there are few, are turned back.

use arrow::array::{Array, ArrayRef, AsArray, DictionaryArray, Int32Array, StringArray, UInt32Array};
use arrow::datatypes::{DataType, Int32Type, UInt32Type};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result as DataFusionResult, ScalarValue, exec_datafusion_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    Aggregate, ColumnarValue, Expr, LogicalPlan, Projection, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, PoisonError, RwLock};

/// Rewrites a plan that no other rule will see.
pub(super) fn group_by_numbers(plan: LogicalPlan) -> DataFusionResult<LogicalPlan> {
    Ok(plan.transform_up_with_subqueries(rewrite)?.data)
}

fn rewrite(plan: LogicalPlan) -> DataFusionResult<Transformed<LogicalPlan>> {
    let LogicalPlan::Aggregate(aggregate) = plan else { return Ok(Transformed::no(plan)) };
    let has_sets = aggregate.group_expr.iter().any(|expr| matches!(expr, Expr::GroupingSet(_)));
    let fields = aggregate.schema.fields().iter().take(aggregate.group_expr.len());
    let is_dictionary: Vec<bool> = fields.map(|field| *field.data_type() == text_dictionary()).collect();
    if has_sets || !is_dictionary.contains(&true) {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let Aggregate { input, group_expr, aggr_expr, schema, .. } = aggregate;
    let texts = Arc::new(Texts::default());
    let mut prefix = "number of key ".to_owned();
    while schema.fields().iter().any(|field| field.name().starts_with(&prefix)) {
        prefix.push('_');
    }
    let key_name = |index: usize| format!("{prefix}{index}");
    let keys = group_expr.into_iter().zip(&is_dictionary).enumerate().map(|(i, (expr, is_dictionary))| {
        if *is_dictionary { call(Direction::ToNumber, &texts, expr).alias(key_name(i)) } else { expr }
    });
    let grouped = LogicalPlan::Aggregate(Aggregate::try_new(input, keys.collect(), aggr_expr)?);
    let columns = schema.iter().enumerate().map(|(i, (relation, field))| {
        if is_dictionary.get(i) == Some(&true) {
            let key = Expr::Column(Column::new_unqualified(key_name(i)));
            call(Direction::ToText, &texts, key).alias_qualified(relation.cloned(), field.name())
        } else {
            Expr::Column(Column::new(relation.cloned(), field.name()))
        }
    });
    let columns: Vec<Expr> = columns.collect();
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(grouped))?)))
}

fn text_dictionary() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

fn call(direction: Direction, texts: &Arc<Texts>, argument: Expr) -> Expr {
    let signature = Signature::any(1, Volatility::Immutable);
    let function = Numbered { direction, texts: Arc::clone(texts), signature };
    let func = Arc::new(ScalarUDF::new_from_impl(function));
    Expr::ScalarFunction(ScalarFunction { func, args: vec![argument] })
}

/// The texts of a plan, by number.
#[derive(Debug, Default)]
struct Texts(RwLock<Numbering>);

#[derive(Debug, Default)]
struct Numbering {
    numbers: HashMap<Arc<str>, u32>,
    texts: Vec<Arc<str>>,
}

impl Texts {
    fn number_of(&self, text: &str) -> u32 {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner).numbers.get(text).copied();
        known.unwrap_or_else(|| {
            let mut guard = self.0.write().unwrap_or_else(PoisonError::into_inner);
            let Numbering { numbers, texts } = &mut *guard;
            let next = texts.len() as u32;
            *numbers.entry(text.into()).or_insert_with_key(|text| {
                texts.push(Arc::clone(text));
                next
            })
        })
    }

    /// The numbers of a dictionary's rows. Of a dictionary that is much larger than its rows, only what they use is
    /// looked up.
    fn to_numbers(&self, rows: &DictionaryArray<Int32Type>) -> DataFusionResult<UInt32Array> {
        let values = rows.values().as_string_opt::<i32>().ok_or_else(|| exec_datafusion_err!("not a text"))?;
        let number_of = |key: usize| if values.is_valid(key) { Some(self.number_of(values.value(key))) } else { None };
        let keys = rows.keys();
        if values.len() > keys.len() || values.null_count() > 0 {
            return Ok(keys.iter().map(|key| number_of(usize::try_from(key?).ok()?)).collect());
        }
        let numbers: Vec<u32> = (0..values.len()).map(|key| number_of(key).unwrap_or(0)).collect();
        // A null row may have any key.
        let number = |key: &i32| numbers.get(*key as usize).copied().unwrap_or(0);
        Ok(UInt32Array::new(keys.values().iter().map(number).collect(), keys.nulls().cloned()))
    }

    fn to_texts(&self, numbers: &UInt32Array) -> DataFusionResult<DictionaryArray<Int32Type>> {
        let guard = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if guard.texts.len() > numbers.len() {
            // A text for each row rather than all of them.
            let text =
                |number: Option<u32>| number.and_then(|number| guard.texts.get(number as usize)).map(|text| &**text);
            let values: StringArray = numbers.iter().map(text).collect();
            let keys = Int32Array::new((0..numbers.len() as i32).collect(), numbers.nulls().cloned());
            return Ok(DictionaryArray::try_new(keys, Arc::new(values))?);
        }
        let values = StringArray::from_iter_values(&guard.texts);
        let keys: Int32Array = numbers.iter().map(|number| number.map(|number| number as i32)).collect();
        Ok(DictionaryArray::try_new(keys, Arc::new(values))?)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Direction {
    ToNumber,
    ToText,
}

/// From a text to its number, or back.
#[derive(Debug)]
struct Numbered {
    direction: Direction,
    texts: Arc<Texts>,
    signature: Signature,
}

impl PartialEq for Numbered {
    fn eq(&self, other: &Numbered) -> bool {
        self.direction == other.direction && Arc::ptr_eq(&self.texts, &other.texts)
    }
}

impl Eq for Numbered {}

impl Hash for Numbered {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.direction.hash(state);
    }
}

impl ScalarUDFImpl for Numbered {
    fn name(&self) -> &'static str {
        match self.direction {
            Direction::ToNumber => "number_of_text",
            Direction::ToText => "text_of_number",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(match self.direction {
            Direction::ToNumber => DataType::UInt32,
            Direction::ToText => text_dictionary(),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let wrong = || exec_datafusion_err!("{}: not of its type", self.name());
        let array = arrays.first().ok_or_else(wrong)?;
        let result: ArrayRef = match self.direction {
            Direction::ToNumber => {
                Arc::new(self.texts.to_numbers(array.as_dictionary_opt::<Int32Type>().ok_or_else(wrong)?)?)
            }
            Direction::ToText => {
                Arc::new(self.texts.to_texts(array.as_primitive_opt::<UInt32Type>().ok_or_else(wrong)?)?)
            }
        };
        match args.args.first() {
            Some(ColumnarValue::Scalar(_)) => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?)),
            _ => Ok(ColumnarValue::Array(result)),
        }
    }
}
