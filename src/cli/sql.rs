//! The commands `sql`, `query`, `queries` and `functions`. With `--sandbox`, `sql` runs the query in a confined
//! process.

use super::commands::{is_url, open};
use super::{Functions, NamedQuery, Queries, RunQuery, Sql, Usage, output};
use crate::{Archive, Query, QueryOptions, SavedQuery, ScalarValue, UserTable};
use anyhow::{Result, bail};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Runs a query.
///
/// `program` is the command line that starts `a2store` again. `None` means that this executable is `a2store`.
pub(super) fn sql(args: &Sql, program: Option<&[OsString]>, quiet: bool) -> Result<u8> {
    let mut options = options(&args.run)?;
    if args.sandboxed.is_some() {
        let limits = within::confine(args, quiet)?;
        // The engine accounts for about half of the memory of its process. The parent enforces the time limit.
        options.memory_limit = Some((limits.0 / 2).max(QueryOptions::MIN_MEMORY_BYTES));
        (options.spill_limit, options.time_limit) = (Some(limits.1), None);
    } else if args.sandbox {
        return within::supervise(args, program, quiet);
    }
    let archive = open(&args.archive, args.run.version, args.run.checksums)?;
    let query = archive.sql_with(&args.query, params(&args.run.param)?, &options)?;
    give(&archive, &query, &args.run)
}

/// Runs a named query.
pub(super) fn named(args: &NamedQuery) -> Result<u8> {
    let archive = open(&args.archive, args.run.version, args.run.checksums)?;
    let saved = SavedQuery::find(&args.name, args.folder.as_deref())?;
    let query = archive.query_with(&saved, pairs(&args.run.param)?, &options(&args.run)?)?;
    give(&archive, &query, &args.run)
}

/// Lists named queries, or shows one.
pub(super) fn queries(args: &Queries) -> Result<u8> {
    let found = match (&args.name, &args.folder) {
        (Some(name), folder) => vec![SavedQuery::find(name, folder.as_deref())?],
        (None, Some(folder)) => SavedQuery::in_folder(folder)?,
        (None, None) => SavedQuery::shipped()?,
    };
    let mut out = std::io::stdout().lock();
    if args.json {
        let list: Vec<Value> = found.iter().map(as_json).collect();
        writeln!(out, "{}", Value::from(list))?;
    } else if let (Some(_), [query]) = (&args.name, found.as_slice()) {
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
    let default = |value: &ScalarValue| match value {
        ScalarValue::Boolean(Some(value)) => json!(value),
        ScalarValue::Int64(Some(value)) => json!(value),
        ScalarValue::UInt64(Some(value)) => json!(value),
        ScalarValue::Float64(Some(value)) => json!(value),
        ScalarValue::Utf8(Some(value)) => json!(value),
        _ => Value::Null,
    };
    let parameters: Vec<Value> = query
        .parameters
        .iter()
        .map(|parameter| {
            json!({
                "name": parameter.name, "type": parameter.dtype, "required": parameter.default.is_none(),
                "default": parameter.default.as_ref().map(default), "doc": parameter.doc,
            })
        })
        .collect();
    let columns: Vec<Value> = query
        .columns
        .iter()
        .map(|column| json!({"name": column.name, "type": column.dtype, "doc": column.doc}))
        .collect();
    json!({
        "name": query.name, "purpose": query.purpose, "parameters": parameters, "columns": columns, "sql": query.sql,
    })
}

/// Lists the SQL functions over boards, moves and values.
pub(super) fn functions(args: &Functions) -> Result<u8> {
    let mut out = std::io::stdout().lock();
    if args.json {
        let list = crate::functions().iter().map(|function| {
            let (call, value) = function.example;
            json!({
                "name": function.name, "signature": function.signature(),
                "returns": function.return_type().to_string(), "doc": function.doc,
                "example": {"call": call, "value": value},
            })
        });
        writeln!(out, "{}", Value::from(list.collect::<Vec<_>>()))?;
        return Ok(0);
    }
    for function in crate::functions() {
        let (call, value) = function.example;
        writeln!(out, "{} -> {}", function.signature(), function.return_type())?;
        writeln!(out, "    {}", function.doc)?;
        writeln!(out, "    {call} = {value}")?;
    }
    Ok(0)
}

/// Builds the query's limits and tables from the command line.
fn options(args: &RunQuery) -> Result<QueryOptions> {
    let mut options = QueryOptions::default();
    (options.memory_limit, options.spill_limit) = (args.memory_limit, args.spill_limit);
    (options.row_limit, options.byte_limit) = (args.row_limit, args.byte_limit);
    options.time_limit = args.time_limit;
    for (name, path) in tables(args)? {
        options = options.with_table(name, UserTable::from_parquet(path)?);
    }
    Ok(options)
}

/// Parses the `--table` arguments into names and paths.
fn tables(args: &RunQuery) -> Result<Vec<(&str, &Path)>> {
    args.table
        .iter()
        .map(|text| match text.split_once('=') {
            Some((name, path)) => Ok((name, Path::new(path))),
            None => bail!(Usage(format!("--table {text}: expected NAME=FILE"))),
        })
        .collect()
}

/// Prints or writes a query's rows, or its plan.
fn give(archive: &Archive, query: &Query, args: &RunQuery) -> Result<u8> {
    if args.explain {
        let mut out = std::io::stdout().lock();
        write!(out, "{}", query.explain(false)?)?;
        return Ok(0);
    }
    if let Some(path) = &args.output {
        check_outside(path, archive.path())?;
    }
    output::write(query.stream()?, args.format, args.output.as_deref(), args.max_rows)?;
    Ok(0)
}

/// Rejects an output path inside the archive's folder.
fn check_outside(path: &Path, archive: &Path) -> Result<()> {
    let Some(folder) = folder(archive) else { return Ok(()) };
    if std::path::absolute(path)?.starts_with(std::path::absolute(folder)?) {
        bail!(Usage(format!("-o {}: expected a file outside of the archive", path.display())));
    }
    Ok(())
}

/// Returns the folder of a local archive, or `None` for an archive on an object store.
fn folder(archive: &Path) -> Option<PathBuf> {
    if !is_url(archive) {
        return Some(archive.to_path_buf());
    }
    let url = url::Url::parse(archive.to_str()?).ok()?;
    if url.scheme() == "file" { url.to_file_path().ok() } else { None }
}

/// The parent's and the child's side of `sql --sandbox`.
#[cfg(unix)]
mod within {
    use super::super::interrupt::Interrupt;
    use super::super::sandbox::{self, Job, Limits};
    use super::super::{RunQuery, Sql, output};
    use super::{OsString, Result, check_outside, folder, tables};
    use clap::ValueEnum;
    use std::path::PathBuf;
    use std::process::Stdio;
    use std::time::Duration;

    /// The default limits: memory in bytes, time, and bytes of temporary files.
    const MEMORY: u64 = 2 << 30;
    const TIME: Duration = Duration::from_secs(60);
    const DISK: u64 = 8 << 30;

    /// Confines the child. Call it before the process starts a thread.
    ///
    /// Returns the limits of memory and of temporary files, in bytes.
    pub(super) fn confine(args: &Sql, quiet: bool) -> Result<(u64, u64)> {
        let limits = limits(&args.run);
        let Some(parent) = args.sandboxed else { return Ok((limits.memory, limits.disk)) };
        let readable: Option<Vec<PathBuf>> = match folder(&args.archive) {
            Some(folder) => {
                let tables = tables(&args.run)?.into_iter().map(|(_, path)| path.to_path_buf());
                Some(std::iter::once(folder).chain(tables).collect())
            }
            None => None,
        };
        let unrestricted = sandbox::confine(&limits, parent, readable.as_deref())?;
        if let Some(error) = unrestricted.filter(|_| !quiet) {
            eprintln!("a2store: --sandbox: the query's access to files is not restricted: {error}");
        }
        Ok((limits.memory, limits.disk))
    }

    /// Starts the child, enforces its limits, and returns its exit status.
    pub(super) fn supervise(args: &Sql, program: Option<&[OsString]>, quiet: bool) -> Result<u8> {
        let own;
        let program = match program {
            Some(program) => program,
            None => {
                own = [std::env::current_exe()?.into_os_string()];
                &own
            }
        };
        let interrupt = Interrupt::new()?;
        let (limits, child_args) = (limits(&args.run), child_args(args, quiet));
        let is_remote = folder(&args.archive).is_none();
        let job = Job { program, args: &child_args, is_remote, limits: &limits };
        match &args.run.output {
            Some(path) if !args.run.explain => {
                check_outside(path, &args.archive)?;
                output::into(path, |file| sandbox::supervise(&job, file.try_clone()?.into(), &interrupt))
            }
            _ => sandbox::supervise(&job, Stdio::inherit(), &interrupt),
        }
    }

    fn limits(args: &RunQuery) -> Limits {
        Limits {
            memory: args.memory_limit.unwrap_or(MEMORY),
            time: args.time_limit.unwrap_or(TIME),
            disk: args.spill_limit.unwrap_or(DISK),
        }
    }

    /// Builds the child's arguments from the parsed ones, because this process may be Python, with other arguments.
    ///
    /// `--output` is left out: the parent opens the file and passes it as standard output.
    pub(super) fn child_args(args: &Sql, quiet: bool) -> Vec<OsString> {
        let Sql { archive, query, run, sandbox: _, sandboxed: _ } = args;
        // This pattern names every option, so a new one fails to compile until it is handled here.
        let RunQuery {
            param,
            table,
            format,
            output: _,
            max_rows,
            explain,
            version,
            checksums,
            memory_limit: _,
            spill_limit: _,
            time_limit: _,
            row_limit,
            byte_limit,
        } = run;
        let Limits { memory, time, disk } = limits(run);
        let time = humantime::format_duration(time);
        let format = format.to_possible_value().map(|value| format!("--format={}", value.get_name()));
        let mut list = vec![
            "sql".to_owned(),
            "--sandbox".to_owned(),
            format!("--sandboxed={}", std::process::id()),
            format!("--memory-limit={memory}"),
            format!("--time-limit={time}"),
            format!("--spill-limit={disk}"),
            format!("--max-rows={max_rows}"),
        ];
        list.extend(row_limit.map(|rows| format!("--row-limit={rows}")));
        list.extend(byte_limit.map(|bytes| format!("--byte-limit={bytes}")));
        list.extend(table.iter().map(|table| format!("--table={table}")));
        list.extend(format);
        list.extend(param.iter().map(|param| format!("--param={param}")));
        list.extend(version.map(|version| format!("--version={version}")));
        list.extend(checksums.map(|checksums| format!("--checksums={checksums}")));
        list.extend(explain.then(|| "--explain".to_owned()));
        list.extend(quiet.then(|| "--quiet".to_owned()));
        let mut list: Vec<OsString> = list.into_iter().map(OsString::from).collect();
        // After `--`, an argument that begins with a dash is not an option.
        list.extend(["--".into(), archive.into(), query.into()]);
        list
    }
}

#[cfg(not(unix))]
mod within {
    use super::super::{Sql, Usage};
    use super::{OsString, Result, bail};

    pub(super) fn confine(_: &Sql, _: bool) -> Result<(u64, u64)> {
        bail!(Usage("--sandbox: expected Linux or another Unix".into()))
    }

    pub(super) fn supervise(_: &Sql, _: Option<&[OsString]>, _: bool) -> Result<u8> {
        bail!(Usage("--sandbox: expected Linux or another Unix".into()))
    }
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
        bail!(Usage(format!("-p: expected positions 1 to {}, each once", positions.len())));
    }
    Ok(positions.into_iter().map(|(_, value)| value).collect::<Vec<_>>().into())
}

fn pairs(texts: &[String]) -> Result<Vec<(String, ScalarValue)>> {
    let pair = |text: &String| {
        let (name, value) = text.split_once('=').ok_or_else(|| Usage(format!("-p {text}: expected NAME=VALUE")))?;
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

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::{Cli, Command};
    use super::*;
    use clap::Parser;

    fn parse(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Sql {
        match Cli::try_parse_from(args).unwrap().command {
            Command::Sql(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_child_gets_the_same_arguments() {
        for text in [
            "a2store sql --sandbox --memory-limit 2GiB --time-limit 60s --spill-limit 8GiB games.a2 VALUES",
            "a2store sql --sandbox --memory-limit 3GiB --time-limit 90s --spill-limit 7 --row-limit 9 --byte-limit 8 \
             --table a=b.parquet --table c=d=e --format csv -o x --max-rows 3 \
             --explain --version 4 --checksums=false -p a==b -p b=--sandbox -- -games.a2 --explain",
        ] {
            let mut given = parse(text.split_whitespace());
            let child = within::child_args(&given, true);
            let again = parse([OsString::from("a2store")].into_iter().chain(child));
            // These two options differ on purpose.
            given.sandboxed = Some(std::process::id());
            given.run.output = None;
            assert_eq!(format!("{again:?}"), format!("{given:?}"));
        }
    }
}
