//! `trial worker FOLDER [--memory BYTES] [--tls FOLDER] [--one-runtime] [--endless]`: serves a worker and prints its port.

use datafusion::common::Result;
use trial::client::Tls;
use trial::functions::{AddAmount, SLOW_BATCHES, Slow, highest};
use trial::games;
use trial::tasks::Tasks;
use trial::worker::{Archives, WorkerOptions, serve, worker};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};

fn main() -> Result<()> {
    let (io, compute) = (runtime(1)?, runtime(2)?);
    let args: Vec<String> = std::env::args().collect();
    let handle = compute.handle().clone();
    match args.iter().any(|arg| arg == "--one-runtime") {
        true => compute.block_on(run(&args, None, None)),
        false => io.block_on(run(&args, Some(io.handle().clone()), Some(handle))),
    }
}

fn runtime(threads: usize) -> Result<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(threads).enable_all().build()?)
}

async fn run(args: &[String], io: Option<Handle>, compute: Option<Handle>) -> Result<()> {
    let (Some("worker"), Some(folder)) = (args.get(1).map(String::as_str), args.get(2)) else {
        eprintln!("usage: trial worker FOLDER [--memory BYTES] [--tls FOLDER] [--one-runtime] [--endless]");
        std::process::exit(2);
    };
    let option = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1));
    let tls = option("--tls").map(|folder| read_tls(Path::new(folder), "worker")).transpose()?;
    let options = WorkerOptions {
        archives: Archives::one(games::URL, games::open(Path::new(folder))?),
        // The amount differs from the client's on purpose.
        scalars: vec![Arc::new(Slow::udf()), Arc::new(AddAmount::udf(1000))],
        aggregates: vec![Arc::new(highest())],
        memory: option("--memory").and_then(|bytes| bytes.parse().ok()),
        message_bytes: None,
        tls,
        io,
        compute,
        tasks: (!args.iter().any(|arg| arg == "--endless")).then(Tasks::default),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("port {}", listener.local_addr()?.port());
    std::thread::spawn(report_batches);
    serve(worker(&options)?, &options, listener).await
}

/// Prints the number of slow batches whenever it changes.
fn report_batches() {
    let mut last = 0;
    loop {
        let now = SLOW_BATCHES.load(Ordering::Relaxed);
        if now != last {
            println!("batches {now}");
            let _ = std::io::stdout().flush();
            last = now;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn read_tls(folder: &Path, name: &str) -> Result<Tls> {
    Ok(Tls {
        authority: std::fs::read(folder.join("authority.pem"))?,
        certificate: std::fs::read(folder.join(format!("{name}.pem")))?,
        key: std::fs::read(folder.join(format!("{name}.key")))?,
    })
}
