//! The subcommands of `a2pack`.

use super::args::{ExtractArgs, InspectArgs, PackArgs, StatsArgs, ToJsonlArgs, ValidateArgs};
use crate::cli::print::{count, megabytes, path_text, print_json};
use crate::cli::progress::{Interrupt, progress};
use crate::cli::terminal::print_error;
use crate::error::ErrorKind;
use crate::{Compression, JsonlOptions, PackOptions, PackReader, ValidateOptions, ValidateReport, pack_folder};
use anyhow::Result;
use serde_json::{Value, json};
use std::io::{self, Write};

pub(super) fn pack(args: &PackArgs, quiet: bool) -> Result<u8> {
    let compression: Compression = args.compress.parse()?;
    let options = PackOptions { align: args.align, compression, workers: args.workers };
    let report = pack_folder(&args.input, &args.output, &options, &*progress(quiet), Interrupt::new()?.token())?;
    for error in &report.errors {
        print_error("a2pack", error);
    }
    if report.packed == 0 {
        eprintln!("a2pack: {}: no run was packed, so {} was not written", args.input.display(), args.output.display());
    }
    if args.json {
        print_json(&report, [("path", json!(path_text(&args.output)))])?;
    } else {
        let mut out = io::stdout().lock();
        write!(out, "{} runs packed, {} rejected", count(report.packed), count(report.rejected))?;
        if report.ignored > 0 {
            write!(out, ", {} other files ignored", count(report.ignored))?;
        }
        writeln!(out, "; {} steps in {}", count(report.num_steps), megabytes(report.num_bytes))?;
    }
    Ok(u8::from(report.rejected > 0))
}

pub(super) fn validate(args: &ValidateArgs, quiet: bool) -> Result<u8> {
    let options = ValidateOptions { sample: args.sample, workers: args.workers };
    let report = match PackReader::open(&args.packfile) {
        Ok(reader) => reader.validate(&options, &*progress(quiet), Interrupt::new()?.token())?,
        Err(error) if matches!(error.kind(), ErrorKind::Header { .. } | ErrorKind::Checksum { .. }) => {
            let mut report = ValidateReport::default();
            report.problems.push(error);
            report
        }
        Err(error) => return Err(error.into()),
    };
    if args.json {
        print_json(&report, [("path", json!(path_text(&args.packfile))), ("sound", json!(report.is_sound()))])?;
    } else {
        let mut out = io::stdout().lock();
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
    Ok(u8::from(!report.is_sound()))
}

pub(super) fn stats(args: &StatsArgs, quiet: bool) -> Result<u8> {
    let reader = PackReader::open(&args.packfile)?;
    let stats = reader.stats(&*progress(quiet), Interrupt::new()?.token())?;
    if stats.unreadable > 0 {
        eprintln!("a2pack: {}: {} runs cannot be read", args.packfile.display(), count(stats.unreadable));
    }
    let tiles: Vec<Value> =
        stats.highest_tiles.iter().map(|(tile, runs)| json!({"highest_tile": tile, "runs": runs})).collect();
    let engines: Vec<Value> =
        stats.engines.iter().map(|(engine, runs)| json!({"engine": engine, "runs": runs})).collect();
    let mut shown = serde_json::to_value(&stats)?;
    shown["path"] = path_text(&args.packfile).into();
    shown["num_bytes"] = reader.num_bytes().into();
    shown["highest_tiles"] = tiles.into();
    shown["engines"] = engines.into();
    print_fields(&shown, args.json)?;
    Ok(u8::from(stats.unreadable > 0))
}

pub(super) fn to_jsonl(args: &ToJsonlArgs, quiet: bool) -> Result<u8> {
    let reader = PackReader::open(&args.packfile)?;
    let options = JsonlOptions { by_step: args.by_step, compact: args.compact, parallel: true, workers: args.workers };
    let (interrupt, progress) = (Interrupt::new()?, progress(quiet));
    let report = if args.output.as_os_str() == "-" {
        reader.write_jsonl(&mut io::stdout().lock(), &options, &*progress, interrupt.token())?
    } else {
        reader.to_jsonl(&args.output, &options, &*progress, interrupt.token())?
    };
    for error in &report.errors {
        print_error("a2pack", error);
    }
    if !quiet {
        let (runs, steps) = (count(report.num_runs), count(report.num_steps));
        eprintln!("{runs} runs, {steps} steps, {}", megabytes(report.num_bytes));
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
    for path in report.paths {
        writeln!(out, "{}", path.display())?;
    }
    Ok(u8::from(!report.errors.is_empty()))
}

pub(super) fn inspect(args: &InspectArgs) -> Result<u8> {
    let reader = PackReader::open(&args.packfile)?;
    let slice = reader.get_slice(args.index)?;
    let run = reader.decode_auto_v2(args.index)?;
    let meta = run.meta();
    // Convert through text, because `f64::from` would print 0.1 as 0.10000000149011612.
    let elapsed_s: Option<f64> = meta.elapsed_s.to_string().parse().ok();
    let shown = json!({
        "path": path_text(&args.packfile), "index": args.index, "kind": slice.kind.name(), "offset": slice.offset,
        "num_bytes": slice.bytes.len(), "stored_bytes": slice.stored_len, "compression": slice.compression.name(),
        "crc32c": slice.crc32c, "num_steps": run.num_steps(), "engine": meta.engine, "start_unix_s": meta.start_unix_s,
        "elapsed_s": elapsed_s, "max_score": meta.max_score, "highest_tile": meta.highest_tile,
        "steps_with_branches": run.has_evs().iter().filter(|&&has| has).count(),
        "final_board": run.final_board().map(|board| board.board().0),
        "violation": run.verify().err().map(|violation| violation.to_string()),
    });
    print_fields(&shown, args.json)?;
    if let (Some(board), false) = (run.final_board(), args.json) {
        writeln!(io::stdout().lock(), "\n{board:#}")?;
    }
    Ok(0)
}

/// Prints the fields of an object, as JSON or one in a line. Text in a line has its control characters escaped, so that
/// it cannot send commands to the terminal.
fn print_fields(object: &Value, as_json: bool) -> Result<()> {
    if as_json {
        return print_json(object, []);
    }
    let mut out = io::stdout().lock();
    for (name, value) in object.as_object().into_iter().flatten() {
        writeln!(out, "{name}: {value}")?;
    }
    Ok(())
}
