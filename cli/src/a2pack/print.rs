//! The output of `a2pack`, as text and as JSON.

use super::args::{InspectArgs, StatsArgs};
use crate::output::print_json;
use a2store::Run;
use a2store::format::{Compression, PackStats, RunSlice};
use anyhow::Result;
use serde_json::{Value, json};
use std::io::{self, Write};

pub(super) fn print_stats(args: &StatsArgs, num_bytes: u64, stats: &PackStats) -> Result<u8> {
    if args.json {
        let tiles = stats.highest_tiles.iter().map(|(tile, runs)| json!({ "highest_tile": tile, "runs": runs }));
        let engines = stats.engines.iter().map(|(engine, runs)| json!({ "engine": engine, "runs": runs }));
        let path = json!(args.packfile.to_string_lossy());
        let counted = [("highest_tiles", tiles.collect::<Value>()), ("engines", engines.collect())];
        return print_json(stats, [("path", path), ("num_bytes", json!(num_bytes))].into_iter().chain(counted));
    }
    let mut out = io::stdout().lock();
    writeln!(out, "packfile: {}", args.packfile.display())?;
    writeln!(out, "runs: {}", stats.count)?;
    writeln!(out, "total_steps: {}", stats.total_steps)?;
    writeln!(out, "min_len: {}", stats.min_len)?;
    writeln!(out, "max_len: {}", stats.max_len)?;
    writeln!(out, "mean_len: {:.3}", stats.mean_len)?;
    writeln!(out, "p50_len: {}", stats.p50)?;
    writeln!(out, "p90_len: {}", stats.p90)?;
    writeln!(out, "p99_len: {}", stats.p99)?;
    writeln!(out, "num_bytes: {num_bytes}")?;
    if stats.total_steps > 0 {
        writeln!(out, "bytes_per_step: {:.1}", num_bytes as f64 / stats.total_steps as f64)?;
    }
    Ok(0)
}

pub(super) fn print_run(args: &InspectArgs, slice: &RunSlice<'_>, run: &Run) -> Result<u8> {
    let meta = run.meta();
    let with_branches = run.has_evs().iter().filter(|&&has| has).count();
    if args.json {
        // Convert through text, because `f64::from` would print 0.1 as 0.10000000149011612.
        let elapsed_s: Option<f64> = meta.elapsed_s.to_string().parse().ok();
        let run = json!({
            "path": args.packfile.to_string_lossy(), "index": args.index, "kind": format!("v{}", slice.format.version()), "offset": slice.offset,
            "num_bytes": slice.bytes.len(), "stored_bytes": slice.stored_len, "compression": slice.compression.name(),
            "crc32c": slice.crc32c, "num_steps": run.num_steps(), "engine": meta.engine, "start_unix_s": meta.start_unix_s,
            "elapsed_s": elapsed_s, "max_score": meta.max_score, "highest_tile": meta.highest_tile,
            "steps_with_branches": with_branches,
            "final_board": run.final_board().map(|board| board.board().0),
            "violation": run.verify().err().map(|violation| violation.to_string()),
        });
        return print_json(&run, []);
    }
    let mut out = io::stdout().lock();
    writeln!(out, "packfile: {}", args.packfile.display())?;
    writeln!(out, "index: {}", args.index)?;
    writeln!(out, "steps: {}", run.num_steps())?;
    writeln!(out, "max_score: {}", meta.max_score)?;
    writeln!(out, "highest_tile: {}", meta.highest_tile)?;
    writeln!(out, "start_unix_s: {}", meta.start_unix_s)?;
    writeln!(out, "elapsed_s: {:.3}", meta.elapsed_s)?;
    if let Some(board) = run.final_board() {
        writeln!(out, "final_board: {:#018x}", board.board().0)?;
    }
    writeln!(out, "engine: {}", printable(meta.engine.as_deref()))?;
    writeln!(out, "kind: v{} ({})", slice.format.version(), slice.format)?;
    writeln!(out, "offset: {}", slice.offset)?;
    writeln!(out, "num_bytes: {}", slice.bytes.len())?;
    if slice.compression != Compression::None {
        writeln!(out, "stored_bytes: {} ({})", slice.stored_len, slice.compression)?;
    }
    match slice.crc32c {
        Some(crc32c) => writeln!(out, "crc32c: {crc32c:08x}")?,
        None => writeln!(out, "crc32c: omitted")?,
    }
    writeln!(out, "steps_with_branches: {with_branches}")?;
    match run.verify() {
        Ok(()) => writeln!(out, "rules: every step is legal")?,
        Err(violation) => writeln!(out, "rules: {violation}")?,
    }
    if let Some(board) = run.final_board() {
        writeln!(out, "\n{board:#}")?;
    }
    Ok(0)
}

/// Returns an engine's name with control characters escaped, so that it cannot send commands to the terminal.
fn printable(engine: Option<&str>) -> String {
    let safe = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    engine.map_or("no engine".to_owned(), |engine| engine.chars().map(safe).collect())
}
