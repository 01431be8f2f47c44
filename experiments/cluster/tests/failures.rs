//! What happens if a client leaves, or if a worker ends or stops.

mod common;

use common::{Process, data, options, plan, rows, start, time_to_quiet};
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::SessionContext;
use datafusion_distributed::DistributedExt;
use futures::StreamExt;
use trial::client::{Channels, Cluster, Limits, Tls, as_is, distributed};
use trial::functions::Slow;
use trial::worker::WorkerOptions;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Twelve seconds of work: 2,400 batches of 100 rows, each 20 ms, on two workers with two partitions each.
const STREAMING: &str = "SELECT slow(run_id, 20), board FROM steps";
const BLOCKING: &str = "SELECT slow(run_id, 20) % 3 AS k, max(board) FROM steps GROUP BY k";

fn slow(context: SessionContext) -> SessionContext {
    context.register_udf(Slow::udf());
    let mut state = context.state();
    state.config_mut().set_distributed_shuffle_batch_size(100).unwrap();
    SessionContext::new_with_state(state)
}

fn two(folder: &Path, arguments: &[&str]) -> ([Process; 2], Cluster) {
    let workers = [Process::start(folder, arguments), Process::start(folder, arguments)];
    let cluster = Cluster(workers.iter().map(|worker| worker.url.clone()).collect());
    (workers, cluster)
}

async fn wait_for_work(workers: &[Process]) {
    while workers.iter().any(|worker| worker.num_batches() < 30) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Queries, and arguments of workers.
fn variants() -> [(&'static str, &'static [&'static str]); 5] {
    [
        (STREAMING, &[]),
        (BLOCKING, &[]),
        (STREAMING, &["--one-runtime", "--endless"]),
        (BLOCKING, &["--one-runtime"]),
        (BLOCKING, &["--endless"]),
    ]
}

fn first_lines(text: &str) -> String {
    text.chars().take(400).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn dropped_streams_stop_the_workers() {
    let folder = data();
    for (sql, arguments) in variants() {
        let (workers, cluster) = two(folder.path(), arguments);
        let context = slow(distributed(folder.path(), cluster, Channels::new(Limits::default(), None)).unwrap());
        let made = plan(&context, sql).await.unwrap();
        assert_eq!(made.name(), "DistributedExec");
        let mut stream = execute_stream(made, context.task_ctx()).unwrap();
        let work = async {
            match sql == STREAMING {
                true => drop(stream.next().await.unwrap().unwrap()),
                false => {
                    let _ = tokio::time::timeout(Duration::from_secs(3), stream.next()).await;
                }
            }
            stream
        };
        let stream = work.await;
        let before: Vec<usize> = workers.iter().map(Process::num_batches).collect();
        let dropped = Instant::now();
        drop(stream);
        let quiet = time_to_quiet(&workers, dropped).await;
        let after: Vec<usize> = workers.iter().map(Process::num_batches).collect();
        println!(
            "{sql} {arguments:?}\n  dropped at {before:?} batches; last batch {quiet:?} later, at {after:?} of 2,400"
        );
    }
}

/// Does another query end the tasks of a dropped one?
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_later_query_after_a_dropped_one() {
    let folder = data();
    let (workers, cluster) = two(folder.path(), &["--endless"]);
    let context = slow(distributed(folder.path(), cluster, Channels::new(Limits::default(), None)).unwrap());
    let mut stream = execute_stream(plan(&context, BLOCKING).await.unwrap(), context.task_ctx()).unwrap();
    let _ = tokio::time::timeout(Duration::from_secs(2), stream.next()).await;
    let dropped = Instant::now();
    drop(stream);
    tokio::time::sleep(Duration::from_secs(2)).await;
    println!("2 s after the drop: {:?} batches", workers.iter().map(Process::num_batches).collect::<Vec<_>>());
    rows(&context, "SELECT count(*) FROM steps").await.unwrap();
    let later = Instant::now();
    println!("another query ended {:?} after the drop", later - dropped);
    println!("the last batch was {:?} after that", time_to_quiet(&workers, later).await);
}

/// Runs a query in the background and returns how it ends.
async fn outcome_after(
    context: &SessionContext,
    sql: &str,
    workers: &[Process; 2],
    signal: i32,
    patience: Duration,
) -> String {
    let (context, sql) = (context.clone(), sql.to_owned());
    let query = tokio::spawn(async move { rows(&context, &sql).await.map(|rows| rows.len()) });
    wait_for_work(workers).await;
    workers[1].signal(signal);
    let since = Instant::now();
    let text = match tokio::time::timeout(patience, query).await {
        Err(_) => format!("still waiting after {patience:?}"),
        Ok(Ok(Ok(rows))) => format!("{rows} rows after {:?}", since.elapsed()),
        Ok(Ok(Err(error))) => format!("after {:?}: {}", since.elapsed(), first_lines(&error.to_string())),
        Ok(Err(panic)) => format!("after {:?}: panic {panic}", since.elapsed()),
    };
    workers[1].signal(libc::SIGCONT);
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_worker_is_killed() {
    let folder = data();
    for (sql, arguments) in variants() {
        let (workers, cluster) = two(folder.path(), arguments);
        let context = slow(distributed(folder.path(), cluster, Channels::new(Limits::default(), None)).unwrap());
        let text = outcome_after(&context, sql, &workers, libc::SIGKILL, Duration::from_secs(30)).await;
        println!("{sql} {arguments:?}: killed a worker: {text}");
        let quiet = time_to_quiet(&workers[..1], Instant::now()).await;
        println!("  the other worker's last batch: {quiet:?} after the error");
        // A new query with the dead worker still in the list.
        let started = Instant::now();
        let found = rows(&context, "SELECT count(*) FROM steps").await;
        println!("  the next query: {} after {:?}", first_lines(&format!("{found:?}")), started.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_worker_is_stopped() {
    let folder = data();
    for sql in [STREAMING, BLOCKING] {
        let (workers, cluster) = two(folder.path(), &[]);
        let context = slow(distributed(folder.path(), cluster, Channels::new(Limits::default(), None)).unwrap());
        let text = outcome_after(&context, sql, &workers, libc::SIGSTOP, Duration::from_secs(60)).await;
        println!("{sql}: stopped a worker, with pings each 2 s: {text}");
    }
    let (workers, cluster) = two(folder.path(), &[]);
    let context = slow(as_is(folder.path(), cluster, 1).unwrap());
    let text = outcome_after(&context, STREAMING, &workers, libc::SIGSTOP, Duration::from_secs(60)).await;
    println!("{STREAMING}: stopped a worker, default connections: {text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_worker_is_stopped_before_the_query() {
    let folder = data();
    let (workers, cluster) = two(folder.path(), &[]);
    workers[1].signal(libc::SIGSTOP);
    let context = distributed(folder.path(), cluster.clone(), Channels::new(Limits::default(), None)).unwrap();
    let started = Instant::now();
    let found = tokio::time::timeout(Duration::from_secs(40), rows(&context, "SELECT count(*) FROM steps")).await;
    println!("with our connections: {} after {:?}", first_lines(&format!("{found:?}")), started.elapsed());
    let context = as_is(folder.path(), cluster, 1).unwrap();
    let started = Instant::now();
    let found = tokio::time::timeout(Duration::from_secs(40), rows(&context, "SELECT count(*) FROM steps")).await;
    println!("with default connections: {} after {:?}", first_lines(&format!("{found:?}")), started.elapsed());
    workers[1].signal(libc::SIGCONT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory_is_limited() {
    let folder = data();
    let (_workers, cluster) = two(folder.path(), &["--memory", "1000000"]);
    let context = distributed(folder.path(), cluster, Channels::new(Limits::default(), None)).unwrap();
    let sql = "SELECT board, count(*) FROM steps GROUP BY board";
    let found = rows(&context, sql).await.map(|rows| rows.len());
    println!("1 MB per worker: {}", first_lines(&format!("{found:?}")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn messages_are_limited() {
    let folder = data();
    let options = WorkerOptions { message_bytes: Some(2000), ..options(folder.path()) };
    let cluster = start(&options, 2).await;
    let context = distributed(folder.path(), cluster, Channels::new(Limits::default(), None)).unwrap();
    let started = Instant::now();
    let found = rows(&context, "SELECT count(*) FROM chosen").await;
    println!("2,000 bytes per message: {} after {:?}", first_lines(&format!("{found:?}")), started.elapsed());
}

/// Makes an authority and certificates for `worker` and `client`.
fn certificates(folder: &Path) {
    let script = r#"
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=authority \
            -keyout authority.key -out authority.pem
        for name in worker client; do
            openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=$name -keyout $name.key -out $name.csr
            printf 'subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n' > $name.ext
            openssl x509 -req -in $name.csr -CA authority.pem -CAkey authority.key -CAcreateserial -days 2 \
                -extfile $name.ext -out $name.pem
        done"#;
    let made = Command::new("bash").args(["-ec", script]).current_dir(folder).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

fn tls(folder: &Path, name: &str) -> Tls {
    let read = |file: &str| std::fs::read(folder.join(file)).unwrap();
    Tls {
        authority: read("authority.pem"),
        certificate: read(&format!("{name}.pem")),
        key: read(&format!("{name}.key")),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn certificates_are_required() {
    let (folder, keys) = (data(), tempfile::tempdir().unwrap());
    certificates(keys.path());
    let options = WorkerOptions { tls: Some(tls(keys.path(), "worker")), ..options(folder.path()) };
    let cluster = start(&options, 2).await;
    let sql = "SELECT phase, count(*) FROM chosen GROUP BY phase ORDER BY phase";
    let known = Channels::new(Limits::default(), Some(tls(keys.path(), "client")));
    let context = distributed(folder.path(), cluster.clone(), known).unwrap();
    println!("with a certificate: {:?}", rows(&context, sql).await.unwrap());

    let other = tempfile::tempdir().unwrap();
    certificates(other.path());
    let mut stranger = tls(other.path(), "client");
    stranger.authority = tls(keys.path(), "client").authority;
    for (what, tls) in [("another authority's certificate", Some(stranger)), ("plain text", None)] {
        let context = distributed(folder.path(), cluster.clone(), Channels::new(Limits::default(), tls)).unwrap();
        let started = Instant::now();
        let found = rows(&context, sql).await;
        println!("with {what}: {} after {:?}", first_lines(&format!("{found:?}")), started.elapsed());
        assert!(found.is_err());
    }
}
