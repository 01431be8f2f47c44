//! Workers and queries for tests.
#![allow(dead_code)]

use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::Result;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SessionContext;
use futures::TryStreamExt;
use trial::client::Cluster;
use trial::functions::{AddAmount, Slow, highest};
use trial::games;
use trial::tasks::Tasks;
use trial::worker::{Archives, WorkerOptions, serve, worker};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::net::TcpListener;
use url::Url;

/// Writes the test data.
pub fn data() -> TempDir {
    let folder = TempDir::new().unwrap();
    games::write(folder.path()).unwrap();
    folder
}

pub fn options(folder: &Path) -> WorkerOptions {
    WorkerOptions {
        archives: Archives::one(games::URL, games::open(folder).unwrap()),
        scalars: vec![Arc::new(Slow::udf()), Arc::new(AddAmount::udf(1000))],
        aggregates: vec![Arc::new(highest())],
        tasks: Some(Tasks::default()),
        ..WorkerOptions::default()
    }
}

/// Starts workers in this process, behind real sockets.
pub async fn start(options: &WorkerOptions, count: usize) -> Cluster {
    let mut urls = Vec::new();
    for _ in 0..count {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let scheme = if options.tls.is_some() { "https" } else { "http" };
        urls.push(url(scheme, listener.local_addr().unwrap().port()));
        let (worker, options) = (worker(options).unwrap(), options.clone());
        tokio::spawn(async move { serve(worker, &options, listener).await.unwrap() });
    }
    Cluster(urls)
}

pub fn url(scheme: &str, port: u16) -> Url {
    Url::parse(&format!("{scheme}://localhost:{port}")).unwrap()
}

/// A worker in a process of its own.
pub struct Process {
    pub child: Child,
    pub url: Url,
    /// The number of slow batches so far, and when it last changed.
    pub batches: Arc<Mutex<(usize, Instant)>>,
}

impl Process {
    pub fn start(folder: &Path, arguments: &[&str]) -> Process {
        let mut child = Command::new(env!("CARGO_BIN_EXE_trial"))
            .arg("worker")
            .arg(folder)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = lines.next().unwrap().unwrap().strip_prefix("port ").unwrap().parse().unwrap();
        let batches = Arc::new(Mutex::new((0, Instant::now())));
        let seen = Arc::clone(&batches);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::<_, std::io::Error>::ok) {
                if let Some(count) = line.strip_prefix("batches ").and_then(|count| count.parse().ok()) {
                    *seen.lock().unwrap() = (count, Instant::now());
                }
            }
        });
        Process { child, url: url("http", port), batches }
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: this process started the child and has not yet waited for it.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    pub fn num_batches(&self) -> usize {
        self.batches.lock().unwrap().0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the time after `since` until no worker has made a batch for a second.
pub async fn time_to_quiet(workers: &[Process], since: Instant) -> Duration {
    loop {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let last = workers.iter().map(|worker| worker.batches.lock().unwrap().1).max().unwrap();
        if last.elapsed() > Duration::from_secs(1) {
            return last.saturating_duration_since(since);
        }
    }
}

pub async fn plan(context: &SessionContext, sql: &str) -> Result<Arc<dyn ExecutionPlan>> {
    context.sql(sql).await?.create_physical_plan().await
}

pub async fn rows(context: &SessionContext, sql: &str) -> Result<Vec<String>> {
    rows_of(plan(context, sql).await?, context).await
}

/// Returns the rows of a plan as text.
pub async fn rows_of(plan: Arc<dyn ExecutionPlan>, context: &SessionContext) -> Result<Vec<String>> {
    let batches: Vec<_> = execute_stream(plan, context.task_ctx())?.try_collect().await?;
    let mut rows = Vec::new();
    for batch in batches {
        let options = FormatOptions::default().with_null("null");
        let columns = batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options));
        let columns = columns.collect::<std::result::Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows() {
            rows.push(columns.iter().map(|column| column.value(row).to_string()).collect::<Vec<_>>().join(" "));
        }
    }
    Ok(rows)
}

pub fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort();
    rows
}
