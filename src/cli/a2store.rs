//! The entry points of the command `a2store`, and the choice of the subcommand.

use super::args::{StoreCli, StoreCommand};
use super::exit::{conclude, exit_status};
use super::logging::log_to_stderr;
use super::terminal::choose_colors;
use super::{
    annotate, bench, critic, info, ingest, maintain, queries, replay, report, shell, simulate, sql, transfer, view,
};
use anyhow::Result;
use std::ffi::OsString;
use std::process::ExitCode;

/// Runs `a2store` with these arguments; the first is the command's name.
pub fn main(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
    ExitCode::from(run(args))
}

/// Runs `a2store` like [`main`] and returns the exit status as a number.
pub(crate) fn run(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> u8 {
    conclude("a2store", args, run_command, exit_status)
}

fn run_command(cli: StoreCli) -> Result<u8> {
    choose_colors(cli.color);
    log_to_stderr(cli.log_level)?;
    let quiet = cli.quiet;
    match cli.command {
        StoreCommand::Simulate(args) => simulate::simulate(&args, quiet),
        StoreCommand::Ingest(args) => ingest::ingest(&args, quiet),
        StoreCommand::Info(args) => info::info(&args),
        StoreCommand::History(args) => info::history(&args),
        StoreCommand::View(args) => view::view(&args, quiet),
        StoreCommand::Show(args) => replay::show(&args),
        StoreCommand::Replay(args) => replay::replay(&args),
        StoreCommand::Report(args) => report::report(&args, quiet),
        StoreCommand::Schema(args) => info::schema(&args),
        StoreCommand::Sql(args) => sql::sql(&args),
        StoreCommand::Query(args) => sql::named(&args),
        StoreCommand::Queries(args) => queries::queries(&args),
        StoreCommand::Functions(args) => queries::functions(&args),
        StoreCommand::Export(args) => transfer::export(&args, quiet),
        StoreCommand::Convert(args) => transfer::convert(&args, quiet),
        StoreCommand::Annotate(args) => annotate::annotate(&args, quiet),
        StoreCommand::Verify(args) => maintain::verify(&args, quiet),
        StoreCommand::Repair(args) => maintain::repair(&args),
        StoreCommand::Compact(args) => maintain::compact(&args, quiet),
        StoreCommand::Expire(args) => maintain::expire(&args),
        StoreCommand::Bench(args) => bench::bench(&args, quiet),
        StoreCommand::Critic(args) => critic::critic(&args),
        StoreCommand::Completions(args) => shell::completions::<StoreCli>(&args),
        StoreCommand::Man(args) => shell::man::<StoreCli>(&args),
    }
}
