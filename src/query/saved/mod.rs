//! Named queries: SQL files with a header that describes the purpose, the parameters and the columns.
//!
//! ```text
//! -- The best runs.
//! --
//! -- Parameters:
//! --   min_score uint64 = 20000: the least final score of a run
//! --
//! -- Columns:
//! --   run_id uint32: the run
//! SELECT run_id FROM runs WHERE max_score >= $min_score ORDER BY run_id
//! ```
//!
//! The queries in `queries/` are compiled into the crate. Any other folder of such files works too.

mod header;
mod shipped;

use super::{Query, QueryOptions};
use crate::archive::Archive;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;
use datafusion::common::ParamValues;
use datafusion::scalar::ScalarValue;
use std::collections::HashMap;
use std::path::Path;

/// A named query.
///
/// ```
/// let query = a2store::SavedQuery::find("high_score", None)?;
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
    /// The columns of the result.
    pub columns: Vec<SavedColumn>,
    /// The whole text of the file.
    pub sql: String,
}

/// A parameter of a [`SavedQuery`].
///
/// ```
/// let query = a2store::SavedQuery::find("score_histogram", None)?;
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
    /// The value if the caller gives none, possibly null. A parameter without a default is required.
    pub default: Option<ScalarValue>,
    /// The description.
    pub doc: String,
}

/// A column of a [`SavedQuery`]'s result.
///
/// ```
/// let query = a2store::SavedQuery::find("high_score", None)?;
/// assert!(query.columns.iter().any(|column| column.name == "max_score" && column.dtype == "uint64"));
/// # Ok::<(), a2store::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SavedColumn {
    /// The name.
    pub name: String,
    /// The type, by its Arrow name; `"string"` also for dictionaries of strings.
    pub dtype: String,
    /// The description.
    pub doc: String,
}

impl SavedQuery {
    /// Returns the queries of the crate, sorted by name.
    ///
    /// # Errors
    /// Only if a shipped file has an invalid header, which the tests exclude.
    pub fn shipped() -> Result<Vec<SavedQuery>> {
        shipped::FILES.iter().map(|(name, text)| header::parse(name, text, None)).collect()
    }

    /// Returns the queries in the `*.sql` files of a folder, sorted by name.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io), and [`ErrorKind::Header`](crate::ErrorKind::Header) with file
    /// and line for an invalid header.
    pub fn in_folder(folder: impl AsRef<Path>) -> Result<Vec<SavedQuery>> {
        let folder = folder.as_ref();
        let as_io = |source| Error::io(folder, source);
        let mut queries = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(as_io)? {
            let path = entry.map_err(as_io)?.path();
            let name = path.file_stem().and_then(|name| name.to_str());
            if let Some(name) = name.filter(|_| path.extension().is_some_and(|extension| extension == "sql")) {
                let bytes = std::fs::read(&path).map_err(|source| Error::io(&path, source))?;
                queries.push(header::parse(name, header::text(&bytes, &path)?, Some(&path))?);
            }
        }
        queries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(queries)
    }

    /// Returns the query of this name, from a folder if one is given, else from the crate.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) with the existing names if there is no such query,
    /// and the errors of [`in_folder`](SavedQuery::in_folder).
    pub fn find(name: &str, folder: Option<&Path>) -> Result<SavedQuery> {
        let queries = match folder {
            Some(folder) => SavedQuery::in_folder(folder)?,
            None => SavedQuery::shipped()?,
        };
        let names: Vec<String> = queries.iter().map(|query| query.name.clone()).collect();
        let found = queries.into_iter().find(|query| query.name == name);
        found.ok_or_else(|| Error::argument("query", format!("one of {}", names.join(", ")), name))
    }

    /// Returns values for all parameters: the given values in the types of the header, and defaults for the
    /// others.
    fn bind(&self, mut given: HashMap<String, ScalarValue>) -> Result<ParamValues> {
        let mut values = HashMap::new();
        for parameter in &self.parameters {
            let value = match (given.remove(&parameter.name), &parameter.default) {
                (Some(value), _) => parameter.typed(&value).map_err(|found| {
                    Error::query(format!(
                        "{}: {}: expected {}, found {found}",
                        self.name, parameter.name, parameter.dtype
                    ))
                })?,
                (None, Some(default)) => default.clone(),
                (None, None) => {
                    return Err(Error::query(format!("{}: no value for the parameter {}", self.name, parameter.name)));
                }
            };
            values.insert(parameter.name.clone(), value);
        }
        let mut unknown: Vec<String> = given.into_keys().collect();
        if unknown.is_empty() {
            return Ok(values.into());
        }
        unknown.sort();
        let names: Vec<&str> = self.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
        let there_are = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        Err(Error::query(format!("{}: no parameter {}; there are: {there_are}", self.name, unknown.join(", "))))
    }
}

impl SavedParameter {
    /// Converts a value to this parameter's type. The error is the value as text.
    fn typed(&self, value: &ScalarValue) -> Result<ScalarValue, String> {
        let nullable = self.default.as_ref().is_some_and(ScalarValue::is_null);
        let found = || match value {
            ScalarValue::Utf8(Some(text)) => format!("{text:?}"),
            other if other.is_null() => "null".to_owned(),
            other => other.to_string(),
        };
        if value.is_null() {
            return match &self.default {
                Some(default) if nullable => Ok(default.clone()),
                _ => Err(found()),
            };
        }
        let integer = match value {
            ScalarValue::Int64(Some(value)) => Some(i128::from(*value)),
            ScalarValue::UInt64(Some(value)) => Some(i128::from(*value)),
            // A whole number, as JavaScript and spreadsheets write it.
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
        typed.ok_or_else(found)
    }
}

impl Archive {
    /// Plans a query of the crate by its name. Parameters that are not given have their defaults.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let mut archive = a2store::Archive::create(folder.path().join("games.a2"), Default::default())?;
    /// # let runs = folder.path().join("runs");
    /// # a2store::simulate(&runs, &a2store::SimulateOptions { runs: 3, ..Default::default() }, &())?;
    /// # archive.ingest([&runs], &Default::default(), &())?;
    /// let query = archive.query("high_score", [("min_score", 1_000_u64.into())])?;
    /// assert!(query.count()? > 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) for an unknown name, and
    /// [`ErrorKind::Query`](crate::ErrorKind::Query) for a parameter that is missing, unknown or of another
    /// type.
    pub fn query<N: Into<String>>(
        &self,
        name: &str,
        params: impl IntoIterator<Item = (N, ScalarValue)>,
    ) -> Result<Query> {
        self.query_with(&SavedQuery::find(name, None)?, params, &QueryOptions::default())
    }

    /// Plans any named query, with the user's tables and limits.
    ///
    /// # Errors
    /// As [`query`](Archive::query) and [`sql_with`](Archive::sql_with).
    pub fn query_with<N: Into<String>>(
        &self,
        query: &SavedQuery,
        params: impl IntoIterator<Item = (N, ScalarValue)>,
        options: &QueryOptions,
    ) -> Result<Query> {
        let given = params.into_iter().map(|(name, value)| (name.into(), value)).collect();
        self.query_unless_cancelled(query, given, options, &())
    }

    pub(crate) fn query_unless_cancelled(
        &self,
        query: &SavedQuery,
        params: HashMap<String, ScalarValue>,
        options: &QueryOptions,
        progress: &dyn Progress,
    ) -> Result<Query> {
        let planned = self.sql_unless_cancelled(&query.sql, query.bind(params)?, options, progress);
        planned.map_err(|error| match error.into_kind() {
            ErrorKind::Query { message } => Error::query(format!("{}: {message}", query.name)),
            kind => kind.into(),
        })
    }
}
