//! The statement or named query of a request, with the values of its parameters.

use crate::rows::scalar;
use crate::view::failure::Failure;
use a2store::archive::Archive;
use a2store::query::{ParamValues, Query, QueryOptions, SavedQuery, ScalarValue};
use a2store::system::cancellation::CancellationToken;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// A statement or the name of a query, with the values of its parameters.
#[derive(Deserialize)]
pub(crate) struct Statement {
    sql: Option<String>,
    name: Option<String>,
    #[serde(default)]
    params: Map<String, Value>,
}

impl Statement {
    /// Plans the statement, and returns it with its text.
    pub(crate) fn plan(
        &self,
        archive: &Archive,
        options: &QueryOptions,
        cancel: &CancellationToken,
    ) -> Result<(Query, String), Failure> {
        let params: HashMap<String, ScalarValue> = self
            .params
            .iter()
            .map(|(name, value)| {
                // A text of decimal digits stays a text; the type of the parameter decides later.
                let expected =
                    || Failure::bad_request(format!("params: {name}: expected a number, a text, a bool or null"));
                Ok((name.clone(), scalar(value).ok_or_else(expected)?))
            })
            .collect::<Result<_, Failure>>()?;
        match (&self.sql, &self.name) {
            (Some(sql), None) => {
                let query = archive.sql_with(sql, ParamValues::from(params), options, cancel)?;
                Ok((query, sql.clone()))
            }
            (None, Some(name)) => {
                let saved = SavedQuery::find(name)?;
                Ok((archive.query_with(&saved, params, options, cancel)?, saved.sql))
            }
            _ => Err(Failure::bad_request("expected either sql or name")),
        }
    }
}
