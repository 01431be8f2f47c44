//! Arguments of the subcommands `sql` and `query`.

use super::exit::UsageError;
use super::open::ArchiveArgs;
use super::values::{bytes, duration};
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Args, Debug)]
pub(super) struct SqlArgs {
    #[command(flatten)]
    pub(super) archive: ArchiveArgs,
    /// A single SELECT, WITH, VALUES or EXPLAIN statement.
    pub(super) query: String,
    #[command(flatten)]
    pub(super) run: QueryArgs,
}

#[derive(Args, Debug)]
pub(super) struct NamedQueryArgs {
    #[command(flatten)]
    pub(super) archive: ArchiveArgs,
    /// Name of the query, as listed by `a2store queries`.
    pub(super) name: String,
    /// Folder with your own queries. Replaces the queries that come with a2store.
    #[arg(long)]
    pub(super) folder: Option<PathBuf>,
    #[command(flatten)]
    pub(super) run: QueryArgs,
}

// The options of a query: parameters, tables, limits and output. A doc comment here would become help text.
#[derive(Args, Debug)]
pub(super) struct QueryArgs {
    /// Query parameter: `-p min=20000` sets `$min`. A value that is not a JSON scalar is text.
    #[arg(short, long = "param", value_name = "NAME=VALUE")]
    pub(super) param: Vec<String>,
    /// Parquet file to query as a table with this name.
    #[arg(long = "table", value_name = "NAME=FILE")]
    pub(super) table: Vec<String>,
    /// Output format: a table of the first rows, or all rows as CSV, as JSON (one object per line), as a Parquet file,
    /// or as Arrow IPC [default: by the ending of the output file, or a table].
    #[arg(long)]
    pub(super) format: Option<OutputFormat>,
    /// Output file [default: standard output]. Its ending determines the format: .parquet, .csv, .json, .jsonl, .arrow
    /// (the Arrow IPC file format), .arrows (the stream format), or .txt for a table.
    #[arg(short, long)]
    pub(super) output: Option<PathBuf>,
    /// Replace an existing output file.
    #[arg(long, requires = "output")]
    pub(super) overwrite: bool,
    /// Maximum number of rows that a table shows.
    #[arg(long, default_value_t = 40)]
    pub(super) max_rows: usize,
    /// Print the query plan instead of the rows, with the filters that run inside the Parquet reader.
    #[arg(long)]
    pub(super) explain: bool,
    /// Memory limit, such as 512MiB [default: half of the machine's memory]. Sorts and groupings spill to temporary
    /// files before they fail.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(super) memory_limit: Option<u64>,
    /// Limit for those temporary files [default: 64GiB].
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(super) spill_limit: Option<u64>,
    /// Time limit.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(super) time_limit: Option<Duration>,
    /// Maximum number of rows in the result.
    #[arg(long, value_name = "ROWS")]
    pub(super) row_limit: Option<u64>,
    /// Maximum size of the result as Arrow arrays.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(super) byte_limit: Option<u64>,
}

impl QueryArgs {
    /// Returns the format of the rows: the given format, else the format of the output file's ending, else a table.
    pub(super) fn output_format(&self) -> Result<OutputFormat> {
        let Some(path) = &self.output else {
            let format = self.format.unwrap_or(OutputFormat::Table);
            if matches!(format, OutputFormat::Parquet | OutputFormat::Arrow) && std::io::stdout().is_terminal() {
                bail!(UsageError("--format: expected -o FILE or a pipe for a binary format, found a terminal".into()));
            }
            return Ok(format);
        };
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_ascii_lowercase();
        let of_ending = match ending.as_str() {
            "parquet" => Some(OutputFormat::Parquet),
            "csv" => Some(OutputFormat::Csv),
            "json" | "jsonl" | "ndjson" => Some(OutputFormat::Json),
            "arrow" | "arrows" => Some(OutputFormat::Arrow),
            "txt" => Some(OutputFormat::Table),
            _ => None,
        };
        let shown = path.display();
        match (self.format, of_ending) {
            (Some(format), None) => Ok(format),
            (None, Some(format)) => Ok(format),
            (Some(format), Some(of_ending)) if format == of_ending => Ok(format),
            (Some(format), Some(_)) => {
                let found = format.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
                bail!(UsageError(format!("--format: expected the format of the ending of {shown}, found {found}")))
            }
            (None, None) => bail!(UsageError(format!(
                "-o {shown}: expected the ending .parquet, .csv, .json, .jsonl, .arrow, .arrows or .txt, or --format"
            ))),
        }
    }

    /// Parses the `--table` arguments into names and paths.
    pub(super) fn tables(&self) -> Result<Vec<(&str, &Path)>> {
        self.table
            .iter()
            .map(|text| match text.split_once('=') {
                Some((name, path)) => Ok((name, Path::new(path))),
                None => bail!(UsageError(format!("--table {text}: expected NAME=FILE"))),
            })
            .collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum OutputFormat {
    Table,
    Csv,
    Json,
    Parquet,
    Arrow,
}
