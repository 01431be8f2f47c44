//! `a2store bench`: gather and loader rates of this machine over the steps of an archive.

use crate::output::{count, megabytes, print_json, rate};
use crate::progress::progress;
use a2store::loader::Permutation;
use a2store::query::no_params;
use a2store::system::cancellation::CancellationToken;
use a2store::{Archive, LoaderOptions, MaterializeOptions};
use anyhow::{Result, bail};
use clap::Args;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// The archive.
    archive: PathBuf,
    /// Rows per batch.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    batch_size: u32,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// Measures and prints the rates.
pub(crate) fn bench(args: &BenchArgs, quiet: bool) -> Result<u8> {
    let archive = Archive::open(&args.archive)?;
    if archive.num_steps() == 0 {
        bail!("{}: nothing to measure: the archive has no steps", archive.path().display());
    }
    let start = Instant::now();
    let query = archive.sql("SELECT * FROM steps", no_params())?;
    let table = query.materialize(&MaterializeOptions::default(), &*progress(quiet), CancellationToken::never())?;
    let materialize_secs = start.elapsed().as_secs_f64();

    let batch_size = args.batch_size as usize;
    let shuffled = Permutation::new(table.num_rows(), 0, 0)?;
    let batches = (table.num_rows() / batch_size as u64).min(2000);
    let mut gather_us = Vec::new();
    let mut indices = vec![0; batch_size.min(table.num_rows() as usize)];
    for batch in 0..batches.max(1) {
        shuffled.fill(batch * indices.len() as u64, &mut indices);
        let start = Instant::now();
        std::hint::black_box(table.take(&indices)?);
        gather_us.push(start.elapsed().as_secs_f64() * 1e6);
    }
    gather_us.sort_by(f64::total_cmp);
    let gather_us = gather_us[gather_us.len() / 2];

    let loader = table.loader(LoaderOptions::default().with_batch_size(batch_size))?;
    let start = Instant::now();
    let served: u64 = loader.batches()?.map(|batch| batch.num_rows() as u64).sum();
    let loader_secs = start.elapsed().as_secs_f64();

    let (num_rows, num_bytes) = (table.num_rows(), table.num_bytes());
    if args.json {
        let report = json!({
            "num_rows": num_rows, "num_bytes": num_bytes, "batch_size": indices.len(),
            "materialize_secs": materialize_secs, "gather_us": gather_us, "loader_rows": served, "loader_secs": loader_secs,
        });
        return print_json(&report, []);
    }
    let mut out = std::io::stdout().lock();
    let n = count(indices.len() as u64);
    writeln!(out, "rows          {}, {}", count(num_rows), megabytes(num_bytes))?;
    writeln!(out, "materialize   {:.2} s: {} rows/s", materialize_secs, rate(num_rows, materialize_secs))?;
    writeln!(out, "gather        {gather_us:.0} µs for {n} random rows, all columns (median)")?;
    writeln!(out, "loader        {:.2} s per epoch, shuffled: {} rows/s", loader_secs, rate(served, loader_secs))?;
    Ok(0)
}
