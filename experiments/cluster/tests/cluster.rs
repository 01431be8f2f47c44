//! Queries over two workers give the results of one process.

mod common;

use common::{Process, data, options, plan, rows, rows_of, sorted, start};
use datafusion_distributed::display_plan_ascii;
use trial::client::{Channels, Cluster, Limits, as_is, distribute, distributed, local};
use trial::scan::WrapScans;

const QUERIES: &[(&str, &str)] = &[
    (
        "filter and projection",
        "SELECT run_id, step_index, board, phase FROM chosen WHERE step_index > 95 AND board % 7 = 1",
    ),
    ("GROUP BY", "SELECT phase, run_id % 10 AS k, count(*), sum(step_index), max(board) FROM chosen GROUP BY phase, k"),
    (
        "join",
        "SELECT r.score % 5 AS s, count(*), sum(c.step_index) FROM chosen c JOIN runs r USING (run_id) GROUP BY s",
    ),
    (
        "join of two large sides",
        "SELECT count(*), sum(a.board % 1000) FROM chosen a JOIN steps b
         ON a.run_id = b.run_id AND a.step_index = b.step_index",
    ),
    ("ORDER BY and LIMIT", "SELECT run_id, step_index, board FROM chosen ORDER BY board DESC, run_id LIMIT 10"),
    ("scalar subquery", "SELECT count(*) FROM chosen WHERE board > (SELECT avg(board) FROM steps)"),
    (
        "window",
        "SELECT run_id, max(n) FROM (SELECT run_id, row_number() OVER (PARTITION BY run_id ORDER BY step_index) AS n
         FROM chosen) GROUP BY run_id",
    ),
    ("UNION ALL", "SELECT count(*) FROM (SELECT run_id FROM chosen UNION ALL SELECT run_id FROM steps)"),
    ("LIMIT below an aggregate", "SELECT count(*) FROM (SELECT * FROM chosen LIMIT 1000)"),
    ("anti join", "SELECT count(*) FROM runs WHERE run_id NOT IN (SELECT run_id FROM chosen WHERE step_index = 3)"),
    ("one partition", "SELECT phase, max(n) FROM (SELECT phase, row_number() OVER () AS n FROM single) GROUP BY phase"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn results_are_those_of_one_process() {
    let folder = data();
    let workers = [Process::start(folder.path(), &[]), Process::start(folder.path(), &[])];
    let cluster = Cluster(workers.iter().map(|worker| worker.url.clone()).collect());
    let alone = local(folder.path()).unwrap();
    let spread = distributed(folder.path(), cluster, Channels::new(Limits::default(), None)).unwrap();
    for (name, sql) in QUERIES {
        let expected = rows(&alone, sql).await.unwrap();
        let made = plan(&spread, sql).await.unwrap();
        println!("\n{name}: a {}\n{}", made.name(), display_plan_ascii(made.as_ref(), false));
        let found = rows_of(made, &spread).await.unwrap();
        match sql.contains("ORDER BY board") {
            true => assert_eq!(expected, found, "{name}"),
            // The row numbers of a window without an order are any.
            false if *name == "one partition" => println!("expected {expected:?}, found {found:?}"),
            false => assert_eq!(sorted(expected), sorted(found), "{name}"),
        }
        println!("equal rows");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn finished_plans_are_split() {
    let folder = data();
    let cluster = start(&options(folder.path()), 2).await;
    let alone = local(folder.path()).unwrap();
    let spread = distributed(folder.path(), cluster, Channels::new(Limits::default(), None)).unwrap();
    for (name, sql) in QUERIES {
        // The plan of a session that knows nothing about workers.
        let finished = plan(&alone, sql).await.unwrap();
        let expected = rows(&alone, sql).await.unwrap();
        let wrapped =
            datafusion::physical_optimizer::PhysicalOptimizerRule::optimize(&WrapScans, finished, &Default::default());
        let found = match distribute(wrapped.unwrap(), &spread.state()).await {
            Ok(split) => {
                let name = split.name().to_owned();
                rows_of(split, &spread).await.map(|rows| (name, rows))
            }
            Err(error) => Err(error),
        };
        match found {
            Ok((node, found)) => println!("{name}: {node}, equal: {}", sorted(expected) == sorted(found)),
            Err(error) => println!("{name}: {}", error.to_string().lines().next().unwrap_or_default()),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn time_of_short_queries() {
    let folder = data();
    let workers = [Process::start(folder.path(), &[]), Process::start(folder.path(), &[])];
    let cluster = Cluster(workers.iter().map(|worker| worker.url.clone()).collect());
    let alone = local(folder.path()).unwrap();
    let spread = distributed(folder.path(), cluster, Channels::new(Limits::default(), None)).unwrap();
    for sql in ["SELECT count(*) FROM chosen WHERE step_index = 5", QUERIES[1].1, QUERIES[2].1] {
        let mut medians = Vec::new();
        for context in [&alone, &spread] {
            let mut times = Vec::new();
            for _ in 0..15 {
                let started = std::time::Instant::now();
                rows(context, sql).await.unwrap();
                times.push(started.elapsed());
            }
            times.sort();
            medians.push(times[7]);
        }
        println!(
            "local {:?}, two workers {:?}: {}",
            medians[0],
            medians[1],
            sql.split_whitespace().collect::<Vec<_>>().join(" ")
        );
    }
}

/// A stage over a scan in one partition has no node that merges partitions.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_scan_in_one_partition_must_not_be_split() {
    let folder = data();
    let cluster = start(&options(folder.path()), 2).await;
    let alone = local(folder.path()).unwrap();
    let careless = as_is(folder.path(), cluster.clone(), 1).unwrap();
    let careful = distributed(folder.path(), cluster, Channels::new(Limits::default(), None)).unwrap();
    for sql in [
        "SELECT max(n), count(*) FROM (SELECT run_id, row_number() OVER () AS n FROM single) GROUP BY run_id % 1",
        "SELECT run_id % 1, count(*) FROM (SELECT * FROM single LIMIT 5) GROUP BY run_id % 1",
        "SELECT count(*) FROM single",
    ] {
        let expected = rows(&alone, sql).await.unwrap();
        let made = plan(&careless, sql).await.unwrap();
        let node = made.name().to_owned();
        let found = rows_of(made, &careless).await;
        println!("{sql}\n  local {expected:?}, as is ({node}) {found:?}");
        let made = plan(&careful, sql).await.unwrap();
        let node = made.name().to_owned();
        let found = rows_of(made, &careful).await.unwrap();
        println!("  with our handlers ({node}) {found:?}");
        assert_eq!(expected, found);
    }
}
