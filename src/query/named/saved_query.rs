//! A named query, and binding values to its parameters.

use crate::error::{Error, Result};
use crate::query::engine::errors::did_you_mean;
use datafusion::common::ParamValues;
use datafusion::scalar::ScalarValue;
use std::collections::HashMap;

/// A named query.
///
/// ```
/// let query = a2store::query::SavedQuery::find("high_score")?;
/// assert_eq!(query.parameters[0].name, "min_score");
/// println!("{}\n{}", query.purpose, query.sql);
/// # Ok::<(), a2store::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SavedQuery {
    /// The file's name without `.sql`.
    pub name: String,
    /// The purpose.
    pub purpose: String,
    /// The parameters.
    pub parameters: Vec<SavedParameter>,
    /// The whole text of the file. Its header also describes the columns of the result.
    pub sql: String,
}

/// A parameter of a [`SavedQuery`].
///
/// ```
/// let query = a2store::query::SavedQuery::find("score_histogram")?;
/// let parameter = &query.parameters[0];
/// println!("${}: {}, {:?} by default: {}", parameter.name, parameter.dtype, parameter.default, parameter.doc);
/// # Ok::<(), a2store::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SavedParameter {
    /// The name, without `$`.
    pub name: String,
    /// `"bool"`, `"int64"`, `"uint64"`, `"float64"` or `"string"`.
    pub dtype: &'static str,
    /// The value if the caller gives none, possibly null.
    pub default: ScalarValue,
    /// The description.
    pub doc: String,
}

impl SavedQuery {
    /// Returns values for all parameters: the given values in the types of the header, and defaults for the
    /// others.
    pub(super) fn bind(&self, mut given: HashMap<String, ScalarValue>) -> Result<ParamValues> {
        let mut values = HashMap::new();
        for parameter in &self.parameters {
            let SavedParameter { name, dtype, default, .. } = parameter;
            let value = match given.remove(name) {
                Some(value) => parameter
                    .typed(&value)
                    .map_err(|found| Error::query(format!("{}: {name}: expected {dtype}, found {found}", self.name)))?,
                None => default.clone(),
            };
            values.insert(name.clone(), value);
        }
        let mut unknown: Vec<String> = given.into_keys().collect();
        if unknown.is_empty() {
            return Ok(values.into());
        }
        unknown.sort();
        let names: Vec<&str> = self.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
        let there_are = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let hint = unknown.first().map(|name| did_you_mean(name, names)).unwrap_or_default();
        let unknown = unknown.join(", ");
        Err(Error::query(format!("{}: unknown parameters {unknown}: expected {there_are}{hint}", self.name)))
    }
}

impl SavedParameter {
    /// Converts a value to this parameter's type. The error is the value as text.
    fn typed(&self, value: &ScalarValue) -> Result<ScalarValue, String> {
        if value.is_null() {
            // Only a parameter whose default is null may be null.
            return if self.default.is_null() { Ok(self.default.clone()) } else { Err("null".to_owned()) };
        }
        let integer = match value {
            ScalarValue::Int64(Some(value)) => Some(i128::from(*value)),
            ScalarValue::UInt64(Some(value)) => Some(i128::from(*value)),
            // JavaScript and spreadsheets pass whole numbers as floats.
            ScalarValue::Float64(Some(value)) if value.fract() == 0.0 && value.abs() < 2_f64.powi(53) => {
                Some(*value as i128)
            }
            _ => None,
        };
        let typed = match (self.dtype, value, integer) {
            ("bool", ScalarValue::Boolean(_), _) | ("string", ScalarValue::Utf8(_), _) => Some(value.clone()),
            ("int64", _, Some(value)) => i64::try_from(value).ok().map(ScalarValue::from),
            ("uint64", _, Some(value)) => u64::try_from(value).ok().map(ScalarValue::from),
            ("float64", ScalarValue::Float64(_), _) => Some(value.clone()),
            ("float64", _, Some(value)) => Some(ScalarValue::from(value as f64)),
            _ => None,
        };
        typed.ok_or_else(|| match value {
            ScalarValue::Utf8(Some(text)) => format!("{text:?}"),
            other => other.to_string(),
        })
    }
}
