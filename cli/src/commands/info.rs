//! The subcommands `info`, `history` and `schema`.

use crate::args::ArchiveArgs;
use crate::output::{count, fitted, megabytes, print_json};
use a2store::archive::TableName;
use a2store::query::{Preview, QueryOptions, no_params, type_name};
use a2store::system::cancellation::CancellationToken;
use a2store_explore::{objects, read};
use anyhow::Result;
use clap::Args;
use serde_json::{Map, Value, json};
use std::io::Write;

#[derive(Args, Debug)]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    archive: ArchiveArgs,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct SchemaArgs {
    #[command(flatten)]
    archive: ArchiveArgs,
    /// The table [default: all].
    #[arg(value_parser = a2store::archive::TableName::ALL.map(a2store::archive::TableName::name))]
    table: Option<String>,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn info(args: &InfoArgs) -> Result<u8> {
    let archive = args.archive.open()?;
    let engines = "SELECT coalesce(engine, 'no engine') AS engine, count(*) AS runs, sum(num_steps) AS steps, \
                   max(max_score) AS best_score, max(highest_tile) AS best_tile \
                   FROM runs GROUP BY engine ORDER BY runs DESC, engine LIMIT 20";
    let engines = read(&archive, engines, &QueryOptions::default(), CancellationToken::never())?;
    let bytes = TableName::ALL.map(|table| archive.num_bytes(table));
    let (runs, steps) = (archive.num_runs(), archive.num_steps());
    if args.json {
        let files = TableName::ALL.map(|table| archive.files(table).len());
        let info = json!({
            "path": archive.path().to_string_lossy(), "version": archive.version(), "num_runs": runs, "num_steps": steps,
            "runs_bytes": bytes[0], "steps_bytes": bytes[1], "runs_files": files[0], "steps_files": files[1],
            "annotations": archive.annotations(), "annotations_bytes": bytes[2],
            "phases": archive.phases(), "engines": objects(&engines)?,
        });
        return print_json(&info, []);
    }
    let mut out = std::io::stdout().lock();
    let phases = archive.phases();
    writeln!(out, "archive   {}", args.archive.archive.display())?;
    writeln!(out, "version   {}", archive.version())?;
    writeln!(out, "runs      {}", count(runs))?;
    writeln!(out, "steps     {}", count(steps))?;
    for model in archive.annotations() {
        writeln!(out, "model     {}: {} annotated steps", model.model, count(model.num_rows))?;
    }
    write!(out, "on disk   {}", megabytes(bytes.iter().sum()))?;
    if steps > 0 {
        write!(out, ", {:.1} bytes a step", bytes[1] as f64 / steps as f64)?;
    }
    writeln!(out, "\nphases    mid from {}, late from {}", phases.mid, phases.late)?;
    if runs > 0 {
        let engines = Preview::of_batches(engines.schema(), [Ok(engines)], usize::MAX)?;
        writeln!(out, "{}", fitted(&engines.to_string()))?;
    }
    Ok(0)
}

pub(crate) fn history(args: &InfoArgs) -> Result<u8> {
    let history = args.archive.open()?.history()?;
    if args.json {
        return print_json(&history, []);
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "{:>7}  {:24}  {:9}  {:>12}  {:>15}", "version", "time", "operation", "runs", "steps")?;
    for commit in history {
        let operation = commit.operation.name();
        let (runs, steps) = (format!("+{}", count(commit.added_runs)), format!("+{}", count(commit.added_steps)));
        writeln!(out, "{:>7}  {:24}  {operation:9}  {runs:>12}  {steps:>15}", commit.version, commit.time)?;
    }
    Ok(0)
}

/// Lists the columns of tables, as SQL sees them.
pub(crate) fn schema(args: &SchemaArgs) -> Result<u8> {
    let archive = args.archive.open()?;
    let names = TableName::ALL.map(TableName::name).into_iter();
    let names: Vec<&str> = names.filter(|name| args.table.as_deref().is_none_or(|table| table == *name)).collect();
    let mut tables = Map::new();
    let mut out = std::io::stdout().lock();
    for (i, &name) in names.iter().enumerate() {
        let schema = archive.sql(&format!("SELECT * FROM {name}"), no_params())?.schema();
        if args.json {
            let columns = schema.fields().iter().map(
                |field| json!({"name": field.name(), "type": type_name(field.data_type()), "nullable": field.is_nullable()}),
            );
            tables.insert(name.to_owned(), columns.collect::<Vec<Value>>().into());
            continue;
        }
        if names.len() > 1 {
            writeln!(out, "{}{name}", if i > 0 { "\n" } else { "" })?;
        }
        let width = schema.fields().iter().map(|field| field.name().len()).max().unwrap_or_default();
        for field in schema.fields() {
            let (dtype, null) = (type_name(field.data_type()), if field.is_nullable() { "nullable" } else { "" });
            writeln!(out, "{}", format!("{:width$}  {dtype:22}  {null}", field.name()).trim_end())?;
        }
    }
    if args.json {
        print_json(&tables, [])?;
    }
    Ok(0)
}
