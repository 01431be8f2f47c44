//! The subcommands `sql`, `query` and `queries`.

use crate::args::{ArchiveArgs, bytes, check_output};
use crate::exit::UsageError;
use crate::output::{OutputFormat, print_json, write_rows};
use a2store::query::{QueryOptions, SavedParameter, SavedQuery, UserTable, json_scalar};
use a2store::system::cancellation::CancellationToken;
use a2store::{Archive, Query, ScalarValue};
use a2store_explore::scalar;
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use humantime::parse_duration;
use serde_json::{Value, json};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args, Debug)]
pub(crate) struct SqlArgs {
    #[command(flatten)]
    archive: ArchiveArgs,
    /// A single SELECT, WITH or VALUES statement.
    query: String,
    /// Parquet file to query as a table with this name.
    #[arg(long = "table", value_name = "NAME=FILE")]
    table: Vec<String>,
    #[command(flatten)]
    run: QueryArgs,
}

#[derive(Args, Debug)]
pub(crate) struct NamedQueryArgs {
    #[command(flatten)]
    archive: ArchiveArgs,
    /// Name of the query, as listed by `a2store queries`.
    name: String,
    #[command(flatten)]
    run: QueryArgs,
}

#[derive(Args, Debug)]
pub(crate) struct QueriesArgs {
    /// Show this query in full: its parameters, its columns and its SQL.
    name: Option<String>,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

// The options of a query: parameters, limits and output. A doc comment here would become help text.
#[derive(Args, Debug)]
struct QueryArgs {
    /// Query parameter: `-p min=20000` sets `$min`. A value that is not a JSON scalar is text.
    #[arg(short, long = "param", value_name = "NAME=VALUE")]
    param: Vec<String>,
    /// Output format: a table of the first rows, or all rows as CSV, as JSON (one object per line), as a Parquet file,
    /// or as Arrow IPC [default: by the ending of the output file, or a table].
    #[arg(long)]
    format: Option<OutputFormat>,
    /// Output file [default: standard output]. Its ending determines the format: .parquet, .csv, .json, .jsonl, .arrow
    /// (the Arrow IPC file format), .arrows (the stream format), or .txt for a table.
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Replace an existing output file.
    #[arg(long, requires = "output")]
    overwrite: bool,
    /// Maximum number of rows that a table shows.
    #[arg(long, default_value_t = 40)]
    max_rows: usize,
    /// Print the query plan instead of the rows, with the filters that run inside the Parquet reader.
    #[arg(long, conflicts_with_all = ["output", "format"])]
    explain: bool,
    /// Memory limit, such as 512MiB [default: half of the machine's memory]. Sorts and groupings spill to temporary
    /// files before they fail.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    memory_limit: Option<u64>,
    /// Limit for those temporary files [default: 64GiB].
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    spill_limit: Option<u64>,
    /// Time limit.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    time_limit: Option<Duration>,
    /// Maximum number of rows in the result.
    #[arg(long, value_name = "ROWS")]
    row_limit: Option<u64>,
    /// Maximum size of the result as Arrow arrays.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    byte_limit: Option<u64>,
}

impl QueryArgs {
    /// Returns the format of the rows: the given format, else the format of the output file's ending, else a table.
    fn output_format(&self) -> Result<OutputFormat> {
        let Some(path) = &self.output else {
            let format = self.format.unwrap_or(OutputFormat::Table);
            if matches!(format, OutputFormat::Parquet | OutputFormat::Arrow) && std::io::stdout().is_terminal() {
                bail!(UsageError("--format: expected -o FILE or a pipe for a binary format, found a terminal".into()));
            }
            return Ok(format);
        };
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let of_ending = OutputFormat::from_str(ending, true).ok();
        let shown = path.display();
        match (self.format, of_ending) {
            (Some(format), Some(of_ending)) if format != of_ending => {
                let found = format.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
                bail!(UsageError(format!("--format: expected the format of the ending of {shown}, found {found}")))
            }
            (Some(format), _) | (None, Some(format)) => Ok(format),
            (None, None) => bail!(UsageError(format!(
                "-o {shown}: expected the ending .parquet, .csv, .json, .jsonl, .arrow, .arrows or .txt, or --format"
            ))),
        }
    }
}

/// Runs a query.
pub(crate) fn sql(args: &SqlArgs) -> Result<u8> {
    let archive = args.archive.open()?;
    let mut options = options(&args.run);
    for text in &args.table {
        let (name, path) =
            text.split_once('=').ok_or_else(|| UsageError(format!("--table {text}: expected NAME=FILE")))?;
        options = options.with_table(name, UserTable::from_parquet(path)?);
    }
    let query = archive.sql_with(&args.query, params(&args.run.param)?, &options, CancellationToken::never())?;
    print_rows(&archive, &query, &args.run)
}

/// Runs a named query.
pub(crate) fn named(args: &NamedQueryArgs) -> Result<u8> {
    let archive = args.archive.open()?;
    let saved = SavedQuery::find(&args.name)?;
    let query =
        archive.query_with(&saved, params(&args.run.param)?, &options(&args.run), CancellationToken::never())?;
    print_rows(&archive, &query, &args.run)
}

/// Returns the query's limits.
fn options(args: &QueryArgs) -> QueryOptions {
    let mut options = QueryOptions::default();
    (options.memory_limit, options.spill_limit) = (args.memory_limit, args.spill_limit);
    (options.row_limit, options.byte_limit) = (args.row_limit, args.byte_limit);
    options.time_limit = args.time_limit;
    options
}

/// Prints or writes a query's rows, or its plan.
fn print_rows(archive: &Archive, query: &Query, args: &QueryArgs) -> Result<u8> {
    if args.explain {
        let mut out = std::io::stdout().lock();
        write!(out, "{}", query.explain(false, CancellationToken::never())?)?;
        return Ok(0);
    }
    if let Some(path) = &args.output {
        check_output(path, args.overwrite, archive)?;
    }
    let format = args.output_format()?;
    write_rows(query.stream(CancellationToken::never())?, format, args.output.as_deref(), args.max_rows)?;
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

/// Lists named queries, or shows one.
pub(crate) fn queries(args: &QueriesArgs) -> Result<u8> {
    let found = match &args.name {
        Some(name) => vec![SavedQuery::find(name)?],
        None => SavedQuery::all(),
    };
    if args.json {
        return print_json(&found.iter().map(as_json).collect::<Vec<_>>(), []);
    }
    let mut out = std::io::stdout().lock();
    if let (Some(_), [query]) = (&args.name, found.as_slice()) {
        writeln!(out, "{}", query.sql.trim_end())?;
    } else {
        let width = found.iter().map(|query| query.name.len()).max().unwrap_or(0);
        for query in found {
            let sentence = query.purpose.split_inclusive(". ").next().unwrap_or_default().trim();
            writeln!(out, "{:width$}  {sentence}", query.name)?;
        }
    }
    Ok(0)
}

fn as_json(query: &SavedQuery) -> Value {
    let parameter = |parameter: &SavedParameter| {
        let SavedParameter { name, dtype, default, doc, .. } = parameter;
        json!({ "name": name, "type": dtype, "default": json_scalar(default), "doc": doc })
    };
    let parameters: Vec<Value> = query.parameters.iter().map(parameter).collect();
    json!({ "name": query.name, "purpose": query.purpose, "parameters": parameters, "sql": query.sql })
}
