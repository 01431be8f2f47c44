//! Finding named queries, and planning them.

use super::files::{FILES, parse};
use super::saved_query::SavedQuery;
use crate::archive::Archive;
use crate::error::{Error, ErrorKind, Result};
use crate::query::engine::errors::did_you_mean;
use crate::query::options::QueryOptions;
use crate::query::query::Query;
use crate::system::cancellation::CancellationToken;
use datafusion::scalar::ScalarValue;

impl SavedQuery {
    /// Returns all named queries, sorted by name.
    #[must_use]
    pub fn all() -> Vec<SavedQuery> {
        FILES.iter().filter_map(|(name, text)| parse(name, text)).collect()
    }

    /// Returns the query of this name.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) with the existing names if there is no such query.
    pub fn find(name: &str) -> Result<SavedQuery> {
        let queries = SavedQuery::all();
        if let Some(found) = queries.iter().find(|query| query.name == name) {
            return Ok(found.clone());
        }
        let names: Vec<&str> = queries.iter().map(|query| query.name.as_str()).collect();
        let found = format!("{name}{}", did_you_mean(name, names.iter().copied()));
        Err(Error::argument("query", format!("one of {}", names.join(", ")), found))
    }
}

impl Archive {
    /// Plans a named query. Parameters that are not given have their defaults.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let mut archive = a2store::Archive::create(folder.path().join("games.a2"), Default::default())?;
    /// # let runs = folder.path().join("runs");
    /// # let cancel = a2store::CancellationToken::new();
    /// # a2store::simulate(&runs, &a2store::SimulateOptions::default().with_runs(3), &(), &cancel)?;
    /// # archive.ingest([&runs], &Default::default(), &(), &cancel)?;
    /// let query = archive.query("high_score", [("min_score", 1_000_u64.into())])?;
    /// assert!(query.count(&cancel)? > 0);
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
        self.query_with(&SavedQuery::find(name)?, params, &QueryOptions::default(), CancellationToken::never())
    }

    /// Plans a named query with limits.
    ///
    /// # Errors
    /// The errors of [`query`](Archive::query) and [`sql_with`](Archive::sql_with).
    pub fn query_with<N: Into<String>>(
        &self,
        query: &SavedQuery,
        params: impl IntoIterator<Item = (N, ScalarValue)>,
        options: &QueryOptions,
        cancel: &CancellationToken,
    ) -> Result<Query> {
        let given = params.into_iter().map(|(name, value)| (name.into(), value)).collect();
        let planned = self.sql_with(&query.sql, query.bind(given)?, options, cancel);
        planned.map_err(|error| match error.into_kind() {
            ErrorKind::Query { message } => Error::query(format!("{}: {message}", query.name)),
            kind => kind.into(),
        })
    }
}
