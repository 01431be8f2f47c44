//! The subcommands of `a2pack`.

use super::print::{error_json, inspect_json, print_run, print_stats, stats_json};
use super::{Extract, Inspect, Pack, Stats, ToJsonl, Validate};
use crate::cli::commands::progress;
use crate::cli::interrupt::Interrupt;
use crate::cli::output::{count, megabytes, text};
use crate::error::ErrorKind;
use crate::{Compression, JsonlOptions, PackOptions, PackReader, ValidateOptions, ValidateReport, pack_folder};
use anyhow::Result;
use serde_json::json;
use std::io::{self, Write};

pub(super) fn pack(args: &Pack, quiet: bool) -> Result<u8> {
    let compression: Compression = args.compress.parse()?;
    let options = PackOptions { align: args.align, compression, workers: args.workers };
    let report = pack_folder(&args.input, &args.output, &options, &Interrupt::new()?.watch(&*progress(quiet)))?;
    for error in &report.errors {
        eprintln!("a2pack: {error}");
    }
    if report.packed == 0 && !quiet {
        eprintln!("a2pack: {}: no run files, the pack is empty", args.input.display());
    }
    let mut out = io::stdout().lock();
    if args.json {
        let errors: Vec<_> = report.errors.iter().map(error_json).collect();
        let report = json!({
            "path": text(&args.output), "packed": report.packed, "rejected": report.rejected, "ignored": report.ignored,
            "num_steps": report.num_steps, "num_bytes": report.num_bytes, "errors": errors,
        });
        writeln!(out, "{report}")?;
    } else {
        write!(out, "{} runs packed, {} rejected", count(report.packed), count(report.rejected))?;
        if report.ignored > 0 {
            write!(out, ", {} other files ignored", count(report.ignored))?;
        }
        writeln!(out, "; {} steps in {}", count(report.num_steps), megabytes(report.num_bytes))?;
    }
    out.flush()?;
    Ok(u8::from(report.rejected > 0))
}

pub(super) fn validate(args: &Validate, quiet: bool) -> Result<u8> {
    let options = ValidateOptions { sample: args.sample, workers: args.workers };
    let report = match PackReader::open(&args.packfile) {
        Ok(reader) => reader.validate(&options, &Interrupt::new()?.watch(&*progress(quiet)))?,
        Err(error) if matches!(error.kind(), ErrorKind::Header { .. } | ErrorKind::Checksum { .. }) => {
            let mut report = ValidateReport::default();
            report.problems.push(error);
            report
        }
        Err(error) => return Err(error.into()),
    };
    let mut out = io::stdout().lock();
    if args.json {
        let problems: Vec<_> = report.problems.iter().map(error_json).collect();
        let report = json!({
            "path": text(&args.packfile), "sound": report.is_sound(), "num_runs": report.num_runs,
            "num_checked": report.num_checked, "num_tombstones": report.num_tombstones, "num_steps": report.num_steps,
            "num_bytes": report.num_bytes, "data_checked": report.data_checked, "stats_checked": report.stats_checked,
            "problems": problems,
        });
        writeln!(out, "{report}")?;
    } else {
        for problem in &report.problems {
            writeln!(out, "{problem}")?;
        }
        let verdict = match report.problems.len() {
            0 => "sound".to_owned(),
            1 => "1 problem".to_owned(),
            problems => format!("{} problems", count(problems as u64)),
        };
        let (checked, runs, steps) = (count(report.num_checked), count(report.num_runs), count(report.num_steps));
        let bytes = megabytes(report.num_bytes);
        writeln!(out, "{verdict}: {checked} of {runs} runs checked, {steps} steps in {bytes}")?;
    }
    out.flush()?;
    Ok(u8::from(!report.is_sound()))
}

pub(super) fn stats(args: &Stats, quiet: bool) -> Result<u8> {
    let reader = PackReader::open(&args.packfile)?;
    let stats = reader.stats(&Interrupt::new()?.watch(&*progress(quiet)))?;
    if stats.unreadable > 0 {
        eprintln!("a2pack: {}: {} runs cannot be read", args.packfile.display(), count(stats.unreadable));
    }
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{}", stats_json(&args.packfile, reader.num_bytes(), &stats))?;
    } else {
        print_stats(&mut out, &args.packfile, reader.num_bytes(), &stats)?;
    }
    out.flush()?;
    Ok(u8::from(stats.unreadable > 0))
}

pub(super) fn to_jsonl(args: &ToJsonl, quiet: bool) -> Result<u8> {
    let reader = PackReader::open(&args.packfile)?;
    let options = JsonlOptions {
        by_step: args.by_step,
        compact: args.compact,
        parallel: args.parallel || args.workers.is_some(),
        workers: args.workers,
    };
    let (interrupt, progress) = (Interrupt::new()?, progress(quiet || args.no_progress));
    let report = if args.output.as_os_str() == "-" {
        reader.write_jsonl(&mut io::stdout().lock(), &options, &interrupt.watch(&*progress))?
    } else {
        reader.to_jsonl(&args.output, &options, &interrupt.watch(&*progress))?
    };
    for error in &report.errors {
        eprintln!("a2pack: {error}");
    }
    if !quiet {
        let (runs, steps) = (count(report.num_runs), count(report.num_steps));
        eprintln!("{runs} runs, {steps} steps, {}", megabytes(report.num_bytes));
    }
    Ok(u8::from(!report.errors.is_empty()))
}

pub(super) fn extract(args: &Extract) -> Result<u8> {
    let paths = PackReader::open(&args.packfile)?.extract(args.indices.iter().copied(), &args.output)?;
    let mut out = io::stdout().lock();
    for path in paths {
        writeln!(out, "{}", path.display())?;
    }
    out.flush()?;
    Ok(0)
}

pub(super) fn inspect(args: &Inspect) -> Result<u8> {
    let reader = PackReader::open(&args.packfile)?;
    let slice = reader.get_slice(args.index)?;
    let run = reader.decode_auto_v2(args.index)?;
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{}", inspect_json(args, &slice, &run))?;
    } else {
        print_run(&mut out, args, &slice, &run)?;
    }
    out.flush()?;
    Ok(0)
}
