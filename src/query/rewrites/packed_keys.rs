//! Several small keys packed into one 64-bit number.
//!
//! ```text
//!  | 0 … | key n: is null, value | … | key 1: is null, value | key 0: is null, value |     the lowest bits are key 0's
//! ```
//!
//! A key takes the bits of its type, and one more if it is nullable. The value bits of a null are 0, so that
//! each group has exactly one number.

use crate::query::engine::plan_function::PlanFunction;
use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, UInt64Array};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, UInt8Type, UInt16Type, UInt32Type};
use datafusion::common::{Column, Result as DataFusionResult, exec_err};
use datafusion::logical_expr::Expr;
use std::sync::Arc;

/// The bits of each key in the number; `None` for keys that are not packed.
#[derive(Clone, Debug)]
pub(super) struct KeyLayout(Vec<Option<KeyBits>>);

/// The bits of one key in the number.
#[derive(Clone, Debug)]
pub(in crate::query) struct KeyBits {
    field: FieldRef,
    shift: u32,
    bits: u32,
}

impl KeyLayout {
    /// Assigns bits to as many keys as fit, in order; `None` if fewer than two fit. The iterator
    /// gives each key with its number of bits, or `None` if its type cannot be packed.
    pub(super) fn of(keys: impl Iterator<Item = (FieldRef, Option<u32>)>) -> Option<KeyLayout> {
        let mut end = 0;
        let place = |(field, bits): (FieldRef, Option<u32>)| {
            let (shift, bits) = (end, bits?);
            let next = shift + bits + u32::from(field.is_nullable());
            (next <= u64::BITS).then(|| {
                end = next;
                KeyBits { field, shift, bits }
            })
        };
        let keys: Vec<Option<KeyBits>> = keys.map(place).collect();
        (keys.iter().flatten().count() > 1).then_some(KeyLayout(keys))
    }

    /// Packs the keys, in their order, into a number with this name.
    pub(super) fn pack(&self, keys: Vec<Expr>, name: &str) -> Expr {
        let places: Vec<KeyBits> = self.0.iter().flatten().cloned().collect();
        let data = places.clone();
        let pack = move |keys: &[ArrayRef]| {
            let mut numbers = vec![0; keys.first().map_or(0, Array::len)];
            for (place, key) in places.iter().zip(keys) {
                place.add(key, &mut numbers)?;
            }
            Ok(Arc::new(UInt64Array::from(numbers)) as ArrayRef)
        };
        let field = Arc::new(Field::new(name, DataType::UInt64, false));
        let function = PlanFunction::of_arrays("number_of_keys", name.to_owned(), field, pack);
        function.with_data(Arc::new(data)).over(keys).alias(name)
    }

    /// Unpacks one key from the number with this name; `None` if it is not packed.
    pub(super) fn unpack(&self, key: usize, name: &str) -> Option<Expr> {
        let place = self.0.get(key)?.clone()?;
        let field = Arc::clone(&place.field);
        let unpack = move |numbers: &[ArrayRef]| place.take(numbers[0].as_primitive());
        let number = Expr::Column(Column::new_unqualified(name));
        Some(PlanFunction::of_arrays("key_of_number", format!("{name} {key}"), field, unpack).over(vec![number]))
    }
}

/// Returns the bits of a type that can be packed.
pub(super) fn width(data_type: &DataType) -> Option<u32> {
    match data_type {
        DataType::Boolean => Some(1),
        DataType::UInt8 => Some(8),
        DataType::UInt16 => Some(16),
        DataType::UInt32 => Some(32),
        _ => None,
    }
}

impl KeyBits {
    /// Returns the bit that marks a null; 0 if the key is not nullable.
    fn null_bit(&self) -> u64 {
        if self.field.is_nullable() { 1 << (self.shift + self.bits) } else { 0 }
    }

    /// Replaces the key of a packed number, unless it is null.
    pub(in crate::query) fn replaced<E>(&self, packed: u64, by: impl Fn(u64) -> Result<u64, E>) -> Result<u64, E> {
        if packed & self.null_bit() != 0 {
            return Ok(packed);
        }
        let mask = (1 << self.bits) - 1;
        let key = by(packed >> self.shift & mask)?;
        Ok(packed & !(mask << self.shift) | key << self.shift)
    }

    /// Packs a key into the numbers of the rows.
    fn add(&self, key: &dyn Array, numbers: &mut [u64]) -> DataFusionResult<()> {
        let (name, expected, found) = (self.field.name(), self.field.data_type(), key.data_type());
        if found != expected || key.len() != numbers.len() {
            let len = key.len();
            return exec_err!("{name}: expected {} rows of {expected}, found {len} rows of {found}", numbers.len());
        }
        if key.null_count() > 0 && !self.field.is_nullable() {
            return exec_err!("GROUP BY {name}: found a null in an expression that is not nullable in the plan");
        }
        match found {
            DataType::Boolean => {
                let values = key.as_boolean().values();
                self.add_values(values.iter().map(u64::from), key.nulls(), numbers);
            }
            DataType::UInt8 => self.add_primitive::<UInt8Type>(key, numbers),
            DataType::UInt16 => self.add_primitive::<UInt16Type>(key, numbers),
            DataType::UInt32 => self.add_primitive::<UInt32Type>(key, numbers),
            _ => return exec_err!("{name}: type {expected} cannot be packed"),
        }
        Ok(())
    }

    fn add_primitive<T: ArrowPrimitiveType<Native: Into<u64>>>(&self, key: &dyn Array, numbers: &mut [u64]) {
        let values = key.as_primitive::<T>().values();
        self.add_values(values.iter().map(|&value| value.into()), key.nulls(), numbers);
    }

    fn add_values(&self, values: impl Iterator<Item = u64>, nulls: Option<&NullBuffer>, numbers: &mut [u64]) {
        let (shift, null) = (self.shift, self.null_bit());
        let rows = numbers.iter_mut().zip(values);
        match nulls.filter(|nulls| nulls.null_count() > 0) {
            None => rows.for_each(|(number, value)| *number |= value << shift),
            Some(nulls) => rows
                .zip(nulls.inner())
                .for_each(|((number, value), is_valid)| *number |= if is_valid { value << shift } else { null }),
        }
    }

    /// Unpacks the key from each number.
    fn take(&self, numbers: &UInt64Array) -> DataFusionResult<ArrayRef> {
        let (shift, null) = (self.shift, self.null_bit());
        let mask = (1 << self.bits) - 1;
        let values = numbers.values().iter().map(|number| number >> shift & mask).collect();
        let is_valid = |row: usize| numbers.values()[row] & null == 0;
        let nulls = (null != 0).then(|| NullBuffer::new(BooleanBuffer::collect_bool(numbers.len(), is_valid)));
        // Each value fits its type, so the cast is exact.
        Ok(cast(&UInt64Array::new(values, nulls), self.field.data_type())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{BooleanArray, UInt8Array, UInt16Array, UInt32Array};

    fn field(data_type: DataType, nullable: bool) -> FieldRef {
        Arc::new(Field::new("key", data_type, nullable))
    }

    fn layout(keys: &[FieldRef]) -> Option<KeyLayout> {
        KeyLayout::of(keys.iter().map(|key| (Arc::clone(key), width(key.data_type()))))
    }

    #[test]
    fn keys_that_fit_are_packed() {
        let (byte, word) = (field(DataType::UInt8, true), field(DataType::UInt32, false));
        let wide = field(DataType::UInt64, false);
        let has =
            |keys: &[FieldRef]| layout(keys).map(|layout| layout.0.iter().map(Option::is_some).collect::<Vec<_>>());
        assert_eq!(has(&[word.clone(), byte.clone()]), Some(vec![true, true]));
        assert_eq!(has(&[word.clone(), word.clone(), byte.clone()]), Some(vec![true, true, false]));
        assert_eq!(has(&[word.clone(), field(DataType::UInt32, true), byte.clone()]), Some(vec![true, false, true]));
        assert_eq!(has(&[wide.clone(), byte.clone(), word]), Some(vec![false, true, true]));
        assert_eq!(has(&[wide, byte.clone()]), None);
        assert_eq!(has(&[byte]), None);
    }

    #[test]
    fn packed_keys_unpack_unchanged() {
        let keys: Vec<ArrayRef> = vec![
            Arc::new(UInt8Array::from(vec![Some(255), None, Some(0), Some(7)])),
            Arc::new(UInt16Array::from(vec![1, 256, 0, u16::MAX])),
            Arc::new(BooleanArray::from(vec![Some(true), Some(false), None, None])),
            Arc::new(UInt32Array::from(vec![u32::MAX, 0, 1, 1 << 31])),
        ];
        let fields: Vec<FieldRef> =
            keys.iter().map(|key| field(key.data_type().clone(), key.null_count() > 0)).collect();
        let layout = layout(&fields).expect("59 bits");
        let mut numbers = vec![0; 4];
        for (place, key) in layout.0.iter().flatten().zip(&keys) {
            place.add(key, &mut numbers).expect("a key of its type");
        }
        let numbers = UInt64Array::from(numbers);
        for (place, key) in layout.0.iter().flatten().zip(&keys) {
            assert_eq!(&place.take(&numbers).expect("a type that is packed"), key);
        }
    }

    #[test]
    fn values_under_nulls_have_no_effect() {
        let key = |values: Vec<u8>| UInt8Array::new(values.into(), Some(vec![true, false].into()));
        let layout = layout(&[field(DataType::UInt8, true), field(DataType::UInt8, false)]).expect("17 bits");
        let number = |values| {
            let mut numbers = vec![0; 2];
            let place = layout.0[0].as_ref().expect("the first key is packed");
            place.add(&key(values), &mut numbers).expect("a key of its type");
            numbers
        };
        assert_eq!(number(vec![3, 5]), number(vec![3, 9]));
    }
}
