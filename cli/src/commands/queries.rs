//! The subcommand `queries`: a listing of named queries.

use a2store::query::{SavedQuery, json_scalar};
use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use std::io::Write;

#[derive(Args, Debug)]
pub(crate) struct QueriesArgs {
    /// Show this query in full: its parameters, its columns and its SQL.
    name: Option<String>,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// Lists named queries, or shows one.
pub(crate) fn queries(args: &QueriesArgs) -> Result<u8> {
    let found = match &args.name {
        Some(name) => vec![SavedQuery::find(name)?],
        None => SavedQuery::all(),
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
    let parameters: Vec<Value> = query
        .parameters
        .iter()
        .map(|parameter| {
            json!({
                "name": parameter.name, "type": parameter.dtype, "default": json_scalar(&parameter.default),
                "doc": parameter.doc,
            })
        })
        .collect();
    json!({ "name": query.name, "purpose": query.purpose, "parameters": parameters, "sql": query.sql })
}
