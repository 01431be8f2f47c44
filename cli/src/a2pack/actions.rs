//! The subcommands of `a2pack`.

use super::args::{ExtractArgs, InspectArgs, PackArgs, StatsArgs, ToJsonlArgs, ValidateArgs};
use super::print::{print_run, print_stats};
use crate::exit::status_after;
use crate::output::{count, megabytes, print_error, print_on_stderr, print_report};
use crate::progress::{interrupt, progress};
use a2store::error::ErrorKind;
use a2store::format::{JsonlOptions, PackOptions, PackReader, ValidateOptions, ValidateReport, pack_folder};
use anyhow::Result;
use serde_json::json;
use std::io::{self, Write};

/// The exit status of `validate` for an invalid pack, as in the older tool of this name.
const INVALID: u8 = 2;

pub(super) fn pack(args: &PackArgs, quiet: bool) -> Result<u8> {
    let mut options = PackOptions::default();
    options.align = args.align;
    options.compression = args.compress.parse()?;
    options.workers = args.work.workers;
    let report = pack_folder(&args.input, &args.output, &options, &*progress(quiet), &interrupt()?)?;
    for error in &report.errors {
        print_error("a2pack", error);
    }
    if report.packed == 0 {
        let (input, output) = (args.input.display(), args.output.display());
        print_error("a2pack", format_args!("{input}: no run was packed, so {output} was not written"));
    }
    let mut text = format!("{} runs packed, {} rejected", count(report.packed), count(report.rejected));
    if report.ignored > 0 {
        text += &format!(", {} other files ignored", count(report.ignored));
    }
    text += &format!("; {} steps in {}", count(report.num_steps), megabytes(report.num_bytes));
    let printed = print_report(args.work.json, &report, [("path", json!(args.output.to_string_lossy()))], &text);
    status_after(printed, u8::from(report.rejected > 0))
}

pub(super) fn validate(args: &ValidateArgs, quiet: bool) -> Result<u8> {
    let mut options = ValidateOptions::default();
    options.sample = args.sample;
    options.workers = args.work.workers;
    let report = match PackReader::open(&args.packfile) {
        Ok(reader) => reader.validate(&options, &*progress(quiet), &interrupt()?)?,
        Err(error) if matches!(error.kind(), ErrorKind::Header { .. } | ErrorKind::Checksum { .. }) => {
            let mut report = ValidateReport::default();
            report.problems.push(error);
            report
        }
        Err(error) => return Err(error.into()),
    };
    let mut text: String = report.problems.iter().map(|problem| format!("{problem}\n")).collect();
    match report.problems.len() {
        0 => text += "sound",
        1 => text += "1 problem",
        problems => text += &format!("{} problems", count(problems as u64)),
    }
    let (checked, runs, steps) = (count(report.num_checked), count(report.num_runs), count(report.num_steps));
    text += &format!(": {checked} of {runs} runs checked, {steps} steps in {}", megabytes(report.num_bytes));
    let extra = [("path", json!(args.packfile.to_string_lossy())), ("sound", json!(report.is_sound()))];
    let printed = print_report(args.work.json, &report, extra, &text);
    status_after(printed, if report.is_sound() { 0 } else { INVALID })
}

pub(super) fn stats(args: &StatsArgs, quiet: bool) -> Result<u8> {
    let reader = PackReader::open(&args.packfile)?;
    let stats = reader.stats(&*progress(quiet), &interrupt()?)?;
    if stats.unreadable > 0 {
        let (path, unreadable) = (args.packfile.display(), count(stats.unreadable));
        print_error("a2pack", format_args!("{path}: {unreadable} runs cannot be read"));
    }
    status_after(print_stats(args, reader.num_bytes(), &stats), u8::from(stats.unreadable > 0))
}

pub(super) fn to_jsonl(args: &ToJsonlArgs, quiet: bool) -> Result<u8> {
    let reader = PackReader::open(&args.packfile)?;
    let mut options = JsonlOptions::default();
    options.by_step = args.by_step;
    options.compact = args.compact;
    options.workers = if args.parallel { args.workers } else { args.workers.or(Some(1)) };
    let (cancel, progress) = (interrupt()?, progress(quiet || args.no_progress));
    let report = if args.output.as_os_str() == "-" {
        reader.write_jsonl(&mut io::stdout().lock(), &options, &*progress, &cancel)?
    } else {
        reader.to_jsonl(&args.output, &options, &*progress, &cancel)?
    };
    for error in &report.errors {
        print_error("a2pack", error);
    }
    if !quiet {
        let (runs, steps) = (count(report.num_runs), count(report.num_steps));
        print_on_stderr(format_args!("{runs} runs, {steps} steps, {}", megabytes(report.num_bytes)));
    }
    Ok(u8::from(!report.errors.is_empty()))
}

pub(super) fn extract(args: &ExtractArgs) -> Result<u8> {
    let indices = args.indices.iter().flatten().copied();
    let report = PackReader::open(&args.packfile)?.extract(indices, &args.output)?;
    for error in &report.errors {
        print_error("a2pack", error);
    }
    let mut out = io::stdout().lock();
    let printed = report.paths.iter().try_for_each(|path| writeln!(out, "{}", path.display()));
    status_after(printed.map(|()| 0).map_err(Into::into), u8::from(!report.errors.is_empty()))
}

pub(super) fn inspect(args: &InspectArgs) -> Result<u8> {
    let reader = PackReader::open(&args.packfile)?;
    let slice = reader.get_slice(args.index)?;
    print_run(args, &slice, &reader.decode(args.index)?)
}
