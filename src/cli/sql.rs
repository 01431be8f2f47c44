//! The subcommands `sql` and `query`.

use super::exit::UsageError;
use super::open::check_output;
use super::query_args::{NamedQueryArgs, QueryArgs, SqlArgs};
use super::rows;
use crate::explore::scalar;
use crate::{Archive, Query, QueryOptions, SavedQuery, ScalarValue, UserTable};
use anyhow::Result;
use std::io::Write;

/// Runs a query.
pub(super) fn sql(args: &SqlArgs) -> Result<u8> {
    let archive = args.archive.open()?;
    let query = archive.sql_with(&args.query, params(&args.run.param)?, &options(&args.run)?)?;
    print_rows(&archive, &query, &args.run)
}

/// Runs a named query.
pub(super) fn named(args: &NamedQueryArgs) -> Result<u8> {
    let archive = args.archive.open()?;
    let saved = SavedQuery::find(&args.name, args.folder.as_deref())?;
    let query = archive.query_with(&saved, params(&args.run.param)?, &options(&args.run)?)?;
    print_rows(&archive, &query, &args.run)
}

/// Builds the query's limits and tables from the command line.
fn options(args: &QueryArgs) -> Result<QueryOptions> {
    let mut options = QueryOptions::default();
    (options.memory_limit, options.spill_limit) = (args.memory_limit, args.spill_limit);
    (options.row_limit, options.byte_limit) = (args.row_limit, args.byte_limit);
    options.time_limit = args.time_limit;
    for (name, path) in args.tables()? {
        options = options.with_table(name, UserTable::from_parquet(path)?);
    }
    Ok(options)
}

/// Prints or writes a query's rows, or its plan.
fn print_rows(archive: &Archive, query: &Query, args: &QueryArgs) -> Result<u8> {
    if args.explain {
        let mut out = std::io::stdout().lock();
        write!(out, "{}", query.explain(false)?)?;
        return Ok(0);
    }
    if let Some(path) = &args.output {
        check_output(path, args.overwrite, archive)?;
    }
    let format = args.output_format()?;
    rows::write(query.stream()?, format, args.output.as_deref(), args.max_rows)?;
    Ok(0)
}

/// Parses the `-p` arguments.
fn params(texts: &[String]) -> Result<Vec<(String, ScalarValue)>> {
    let pair = |text: &String| {
        let (name, value) =
            text.split_once('=').ok_or_else(|| UsageError(format!("-p {text}: expected NAME=VALUE")))?;
        // A value that is not a JSON scalar is text.
        let parsed = serde_json::from_str(value).ok().and_then(|value| scalar(&value));
        Ok((name.trim_start_matches('$').to_owned(), parsed.unwrap_or_else(|| value.into())))
    };
    texts.iter().map(pair).collect()
}
