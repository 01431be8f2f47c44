//! The subcommands `sql` and `query`.

use super::exit::UsageError;
use super::open::{check_outside, check_overwrite, open};
use super::query_args::{NamedQueryArgs, QueryArgs, SqlArgs};
use super::rows;
use crate::{Archive, Query, QueryOptions, SavedParameter, SavedQuery, ScalarValue, UserTable};
use anyhow::{Result, bail};
use std::io::Write;

/// Runs a query.
pub(super) fn sql(args: &SqlArgs) -> Result<u8> {
    let archive = open(&args.archive, args.run.version, args.run.checksums)?;
    let query = archive.sql_with(&args.query, params(&args.run.param)?, &options(&args.run)?)?;
    print_rows(&archive, &query, &args.run)
}

/// Runs a named query.
pub(super) fn named(args: &NamedQueryArgs) -> Result<u8> {
    let archive = open(&args.archive, args.run.version, args.run.checksums)?;
    let saved = SavedQuery::find(&args.name, args.folder.as_deref())?;
    let params = pairs(&args.run.param)?;
    check_names(&saved, &params)?;
    let query = archive.query_with(&saved, params, &options(&args.run)?)?;
    print_rows(&archive, &query, &args.run)
}

/// Checks the names of parameters, so that an error shows parameters as options of the command.
fn check_names(query: &SavedQuery, given: &[(String, ScalarValue)]) -> Result<()> {
    let known = |name: &str| query.parameters.iter().any(|parameter| parameter.name == name);
    if let Some((unknown, _)) = given.iter().find(|(name, _)| !known(name)) {
        let written = |parameter: &SavedParameter| format!("-p {}={}", parameter.name, parameter.dtype.to_uppercase());
        let parameters: Vec<String> = query.parameters.iter().map(written).collect();
        let expected = if parameters.is_empty() { "no parameters".to_owned() } else { parameters.join(", ") };
        let hint =
            query.similar_parameter(unknown).map_or_else(String::new, |name| format!("did you mean -p {name}? "));
        bail!(UsageError(format!("{hint}{}: -p {unknown}: expected {expected}", query.name)));
    }
    let is_missing = |parameter: &&SavedParameter| {
        parameter.default.is_none() && given.iter().all(|(name, _)| *name != parameter.name)
    };
    if let Some(SavedParameter { name, dtype, doc, .. }) = query.parameters.iter().find(is_missing) {
        bail!(UsageError(format!("add -p {name}={}: {}: {doc}", dtype.to_uppercase(), query.name)));
    }
    Ok(())
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
        check_outside(path, archive.path())?;
        check_overwrite(path, args.overwrite)?;
    }
    let format = args.output_format()?;
    rows::write(query.stream()?, format, args.output.as_deref(), args.max_rows, &query.sort_columns())?;
    Ok(0)
}

/// Parses the `-p` arguments: positional if every name is a number from 1, otherwise named.
fn params(texts: &[String]) -> Result<crate::ParamValues> {
    let pairs = pairs(texts)?;
    let mut positions = Vec::new();
    for (name, value) in &pairs {
        if let Ok(position @ 1..) = name.parse::<usize>() {
            positions.push((position, value.clone()));
        }
    }
    if positions.is_empty() || positions.len() < pairs.len() {
        return Ok(pairs.into());
    }
    positions.sort_by_key(|(position, _)| *position);
    if positions.iter().map(|(position, _)| *position).ne(1..=positions.len()) {
        bail!(UsageError(format!("-p: expected positions 1 to {}, each once", positions.len())));
    }
    Ok(positions.into_iter().map(|(_, value)| value).collect::<Vec<_>>().into())
}

fn pairs(texts: &[String]) -> Result<Vec<(String, ScalarValue)>> {
    let pair = |text: &String| {
        let (name, value) =
            text.split_once('=').ok_or_else(|| UsageError(format!("-p {text}: expected NAME=VALUE")))?;
        Ok((name.trim_start_matches('$').to_owned(), scalar(value)))
    };
    texts.iter().map(pair).collect()
}

/// Parses a value as a JSON scalar, or takes it as text.
fn scalar(text: &str) -> ScalarValue {
    match serde_json::from_str(text) {
        Ok(serde_json::Value::Null) => ScalarValue::Null,
        Ok(serde_json::Value::Bool(value)) => value.into(),
        Ok(serde_json::Value::String(value)) => value.as_str().into(),
        Ok(serde_json::Value::Number(number)) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(value), _, _) => value.into(),
            (_, Some(value), _) => value.into(),
            (_, _, value) => ScalarValue::Float64(value),
        },
        _ => text.into(),
    }
}
