//! The subcommands `queries` and `functions`: listings of named queries and of SQL functions.

use crate::SavedQuery;
use anyhow::Result;
use clap::Args;
use std::io::Write;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(super) struct QueriesArgs {
    /// Show this query in full: its parameters, its columns and its SQL.
    name: Option<String>,
    /// Folder with your own queries. Replaces the queries that come with a2store.
    #[arg(long)]
    folder: Option<PathBuf>,
}

/// Lists named queries, or shows one.
pub(super) fn queries(args: &QueriesArgs) -> Result<u8> {
    let found = match (&args.name, &args.folder) {
        (Some(name), folder) => vec![SavedQuery::find(name, folder.as_deref())?],
        (None, Some(folder)) => SavedQuery::in_folder(folder)?,
        (None, None) => SavedQuery::shipped()?,
    };
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

/// Lists the SQL functions over boards, moves and values.
pub(super) fn functions() -> Result<u8> {
    let mut out = std::io::stdout().lock();
    for function in crate::functions() {
        let (call, value) = function.example;
        writeln!(out, "{} -> {}", function.signature(), function.return_type())?;
        writeln!(out, "    {}\n    {call} = {value}", function.doc)?;
    }
    Ok(0)
}
