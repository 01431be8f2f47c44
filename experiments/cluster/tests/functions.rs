//! How functions reach workers.

mod common;

use common::{data, options, rows, start};
use datafusion::logical_expr::ScalarUDF;
use datafusion::prelude::SessionContext;
use trial::client::{Channels, Limits, distributed};
use trial::codec::ASKED_ABOUT_FUNCTIONS;
use trial::functions::{AddAmount, highest};
use trial::worker::WorkerOptions;
use std::sync::atomic::Ordering;

const ADD: &str = "SELECT sum(add_amount(arrow_cast(step_index, 'Int64'))) - sum(step_index), count(*)
                   FROM steps WHERE run_id < 2200 AND step_index = 3";

fn with_functions(context: SessionContext, functions: Vec<ScalarUDF>) -> SessionContext {
    for function in functions {
        context.register_udf(function);
    }
    context.register_udaf(highest());
    context
}

fn short(result: datafusion::common::Result<Vec<String>>) -> String {
    match result {
        Ok(rows) => format!("{rows:?}"),
        Err(error) => error.to_string().chars().take(300).collect(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn functions_are_found_by_name() {
    let folder = data();
    let knows = options(folder.path());
    let nothing = WorkerOptions { scalars: Vec::new(), aggregates: Vec::new(), ..knows.clone() };
    let channels = || Channels::new(Limits::default(), None);
    let session = |cluster, channels| {
        with_functions(distributed(folder.path(), cluster, channels).unwrap(), vec![AddAmount::udf(7)])
    };
    let highest = "SELECT highest(step_index) FROM steps";
    let asked = || ASKED_ABOUT_FUNCTIONS.swap(0, Ordering::Relaxed);

    // The client's function adds 7, and the workers' function of the same name adds 1,000.
    let plain = session(start(&knows, 2).await, channels().without_envelopes());
    asked();
    println!("as is, workers know the name: {}; our codec was asked {} times", short(rows(&plain, ADD).await), asked());
    println!("as is, aggregate: {}; asked {} times", short(rows(&plain, highest).await), asked());

    let plain = session(start(&nothing, 2).await, channels().without_envelopes());
    println!("as is, unknown name: {}; asked {} times", short(rows(&plain, ADD).await), asked());
    println!("as is, unknown aggregate: {}; asked {} times", short(rows(&plain, highest).await), asked());

    let enveloped = session(start(&nothing, 2).await, channels());
    let found = rows(&enveloped, ADD).await;
    println!("in envelopes, unknown name: {}; asked {} times", short(found), asked());
    let enveloped = session(start(&knows, 2).await, channels());
    let found = rows(&enveloped, ADD).await;
    println!("in envelopes, known name: {}; asked {} times", short(found), asked());

    // A function inside the scan is encoded by our codec in any case.
    let inside = "SELECT count(*) FROM steps WHERE add_amount(arrow_cast(step_index, 'Int64')) = 10";
    let plain = session(start(&nothing, 2).await, channels().without_envelopes());
    println!("as is, inside the scan: {}; asked {} times", short(rows(&plain, inside).await), asked());

    // A function in the keys of a hash partitioning.
    let hashed = "SELECT count(*) FROM (SELECT a.run_id FROM steps a JOIN steps b
                  ON add_amount(arrow_cast(a.run_id, 'Int64')) = add_amount(arrow_cast(b.run_id, 'Int64'))
                  AND a.step_index = b.step_index)";
    let enveloped = session(start(&nothing, 2).await, channels());
    println!("in envelopes, in a join key: {}; asked {} times", short(rows(&enveloped, hashed).await), asked());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn settings_do_not_travel() {
    let folder = data();
    let cluster = start(&options(folder.path()), 2).await;
    let context = distributed(folder.path(), cluster, Channels::new(Limits::default(), None)).unwrap();
    let zone = "Asia/Tokyo";
    context.sql(&format!("SET datafusion.execution.time_zone = '{zone}'")).await.unwrap().collect().await.unwrap();
    // The text of a time depends on the session's zone.
    let sql = "SELECT max(date_part('hour', to_timestamp(arrow_cast(step_index, 'Int64')))) FROM steps";
    let alone = trial::client::local(folder.path()).unwrap();
    alone.sql(&format!("SET datafusion.execution.time_zone = '{zone}'")).await.unwrap().collect().await.unwrap();
    println!("in {zone}: local {}, distributed {}", short(rows(&alone, sql).await), short(rows(&context, sql).await));
}
