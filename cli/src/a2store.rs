//! The command `a2store`: its entry point and its subcommands.

use super::args::{CompletionsArgs, completions};
use super::exit::{UsageError, conclude};
use crate::commands::{bench, explore, info, maintain, simulate, sql, transfer};
use anyhow::{Result, bail};
use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use tracing_subscriber::EnvFilter;

/// 2048 self-play games as a Parquet archive, SQL over it, and shuffled training batches at memory speed.
#[derive(Debug, Parser)]
#[command(name = "a2store", version, arg_required_else_help = true)]
struct StoreCli {
    #[command(subcommand)]
    command: StoreCommand,
    /// Hide progress, warnings and remarks.
    #[arg(long, short, global = true)]
    quiet: bool,
}

#[derive(Debug, Subcommand)]
enum StoreCommand {
    /// Play seeded games and write them as run files.
    Simulate(simulate::SimulateArgs),
    /// Add the runs of files and folders in any format to an archive. Creates the archive if it does not exist.
    Ingest(transfer::IngestArgs),
    /// Show the contents of an archive.
    Info(info::InfoArgs),
    /// List the versions of an archive, newest first.
    History(info::InfoArgs),
    /// Write an HTML report of an archive: one file that works offline.
    Report(explore::ReportArgs),
    /// Explore an archive in a browser: runs, replays, positions, SQL, and the report.
    View(explore::ViewArgs),
    /// Print one position of a game: the board, the engine's values, and the predictions of models.
    Show(explore::ShowArgs),
    /// Write a page that replays a game in any browser, without network.
    Replay(explore::ReplayArgs),
    /// List the columns of the tables `runs`, `steps` and `annotations`.
    Schema(info::SchemaArgs),
    /// Run a query over the tables `runs`, `steps` and `annotations`.
    Sql(sql::SqlArgs),
    /// Run a named query.
    Query(sql::NamedQueryArgs),
    /// List the named queries, or show one.
    Queries(sql::QueriesArgs),
    /// Write the runs of an archive to files in any format.
    Export(transfer::ExportArgs),
    /// Convert run files from any format to another, without an archive.
    Convert(transfer::ConvertArgs),
    /// Add the predictions of a model for the steps of an archive, list the annotated models, or drop one.
    Annotate(maintain::AnnotateArgs),
    /// Check an archive and list every problem.
    Verify(maintain::VerifyArgs),
    /// Make a new version with the files of an older one, also if the newest manifest is damaged.
    Restore(maintain::RestoreArgs),
    /// Name a version, so that it never expires; list the names, or remove one.
    Tag(maintain::TagArgs),
    /// Merge small data files into large ones.
    Compact(maintain::CompactArgs),
    /// Remove old versions, and the files that no remaining version references. Without --yes, only show what would be
    /// removed.
    Expire(maintain::ExpireArgs),
    /// Measure the rates of gather and loader over the steps of an archive on this machine, beside NumPy.
    Bench(bench::BenchArgs),
    /// Write embeddings of a session's steps, or train a critic on them. Needs the Python package.
    #[command(disable_help_flag = true)]
    Critic(CriticArgs),
    /// Print the completion script of a shell.
    Completions(CompletionsArgs),
}

#[derive(Args, Debug)]
struct CriticArgs {
    /// What to do.
    #[arg(value_parser = ["embed", "train"])]
    command: String,
    /// Arguments, as listed by `a2store critic embed --help`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Runs `a2store` with these arguments, and returns the exit status. The first argument is the command's name.
pub fn a2store(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> u8 {
    conclude("a2store", args, run_command)
}

fn run_command(cli: StoreCli) -> Result<u8> {
    log_to_stderr()?;
    let quiet = cli.quiet;
    match cli.command {
        StoreCommand::Simulate(args) => simulate::simulate(&args, quiet),
        StoreCommand::Ingest(args) => transfer::ingest(&args, quiet),
        StoreCommand::Info(args) => info::info(&args),
        StoreCommand::History(args) => info::history(&args),
        StoreCommand::View(args) => explore::view(&args, quiet),
        StoreCommand::Show(args) => explore::show(&args),
        StoreCommand::Replay(args) => explore::replay(&args, quiet),
        StoreCommand::Report(args) => explore::report(&args, quiet),
        StoreCommand::Schema(args) => info::schema(&args),
        StoreCommand::Sql(args) => sql::sql(&args),
        StoreCommand::Query(args) => sql::named(&args),
        StoreCommand::Queries(args) => sql::queries(&args),
        StoreCommand::Export(args) => transfer::export(&args, quiet),
        StoreCommand::Convert(args) => transfer::convert(&args, quiet),
        StoreCommand::Annotate(args) => maintain::annotate(&args, quiet),
        StoreCommand::Verify(args) => maintain::verify(&args, quiet),
        StoreCommand::Restore(args) => maintain::restore(&args),
        StoreCommand::Tag(args) => maintain::tag(&args),
        StoreCommand::Compact(args) => maintain::compact(&args, quiet),
        StoreCommand::Expire(args) => maintain::expire(&args),
        StoreCommand::Bench(args) => bench::bench(&args, quiet),
        StoreCommand::Completions(args) => completions::<StoreCli>(&args),
        // The Python package runs `critic` before it calls this crate.
        StoreCommand::Critic(CriticArgs { command, arguments: _ }) => {
            bail!(UsageError(format!("critic {command}: needs the Python package: pip install a2store")))
        }
    }
}

/// The environment variable with a filter in the syntax of `tracing-subscriber`, such as `a2store::query=debug`.
const FILTER_VARIABLE: &str = "RUST_LOG";

/// Logs the library's events by the filter in `RUST_LOG`. Without a filter, logs nothing.
fn log_to_stderr() -> Result<()> {
    let Some(filter) = std::env::var(FILTER_VARIABLE).ok().filter(|filter| !filter.is_empty()) else { return Ok(()) };
    let filter =
        EnvFilter::try_new(&filter).map_err(|error| UsageError(format!("{FILTER_VARIABLE}: {error}: {filter:?}")))?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A log line that cannot be written must not stop the work.
    let lines = lines.log_internal_errors(false);
    // Another program that runs this command may have a subscriber, which then receives the events.
    lines.with_ansi(console::colors_enabled_stderr()).try_init().ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_without_an_effect_are_rejected() {
        for (line, is_right) in [
            ("a2store sql games.a2 query --explain", true),
            ("a2store sql games.a2 query --explain -o plan.txt", false),
            ("a2store query games.a2 name --explain --format csv", false),
            ("a2store annotate games.a2 model folder --replace --partial", true),
            ("a2store annotate games.a2 --replace", false),
            ("a2store annotate games.a2 --partial", false),
        ] {
            assert_eq!(StoreCli::try_parse_from(line.split(' ')).is_ok(), is_right, "{line}");
        }
    }
}
