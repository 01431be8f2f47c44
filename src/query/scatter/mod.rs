//! Queries on a cluster, by shipping the question.
//!
//! ```text
//!  coordinator: plan ─▶ cut ─▶ tasks ───────────────▶ rows of the cuts ─▶ the rest of the plan
//!  worker:                     │ plan, cut, slice, run ▲
//! ```
//!
//! A task is the question and a share of the partitions of its scans. The worker plans the same text, cuts the same
//! subtrees, and runs them on its partitions. Tasks return the rows of the cut, such as partial aggregates, so the result
//! does not depend on how the partitions are divided. Scheduling, retries, transport and authentication are the engine's.
//!
//! | file | owns |
//! | --- | --- |
//! | `cut.rs` | which subtrees are cut, and their slices |
//! | `fingerprint.rs` | whether two processes cut the same |
//! | `task.rs`, `message.rs` | a task, how a worker runs it, and the bytes that travel |
//! | `incoming.rs` | the rows of the tasks, in place of a cut |
//! | `texts.rs` | numbers of texts, which differ between processes |

mod cut;
mod fingerprint;
mod incoming;
mod message;
mod task;
mod texts;

use crate::error::Result;
use crate::query::engine::errors::query_error;
use crate::query::engine::execution::Execution;
use crate::query::engine::limits::QueryLimits;
use crate::query::output::result_files::OutputFiles;
use crate::query::query::Query;
use crate::query::scan::archive_table::check_files;
use crate::query::tasks::{Cluster, Division};
use crate::system::cancellation::CancellationToken;
use crate::system::runtime::block_on_unless;
use cut::{Cut, Plan, num_rows, whole};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use incoming::{TasksExec, TasksOfQuery};
use std::collections::HashMap;
use std::sync::Arc;
use task::{Divided, TaskHeader};

/// The least number of rows that a task reads, unless the caller chose the number of tasks. One core reads them in about
/// as much time as an engine on a network needs to start a task.
const MIN_TASK_ROWS: usize = 1 << 20;

impl Query {
    /// Makes the execution plan. If the query is on an engine but runs here, also returns the reason.
    pub(super) fn execution_or_why(
        &self,
        limits: &Arc<QueryLimits>,
        cancel: &CancellationToken,
    ) -> Result<(Execution, Option<String>)> {
        let why = match self.cluster.as_ref().map(|cluster| divided(self, cluster, None, limits, cancel)).transpose()? {
            Some(Ok(divided)) => return Ok((with_tasks(&divided)?, None)),
            Some(Err(why)) => Some(why),
            None => None,
        };
        Ok((self.planned(None, limits, cancel)?, why))
    }

    /// Writes the rows by tasks, a file for each, and returns their number. Returns `None` if the plan is not divided as a
    /// whole, or if limits must count all its rows in one process.
    pub(super) fn write_by_tasks(
        &self,
        files: &OutputFiles,
        limits: &Arc<QueryLimits>,
        cancel: &CancellationToken,
    ) -> Result<Option<u64>> {
        let Some(cluster) = self.cluster.as_ref().filter(|_| !limits.count_rows()) else { return Ok(None) };
        let Ok(divided) = divided(self, cluster, Some(files), limits, cancel)? else { return Ok(None) };
        let writing = TasksOfQuery::new(&divided, vec![0]).written();
        block_on_unless(writing, || limits.check(cancel)).map(Some)
    }
}

/// Plans a query in tasks, which write the files if there are some, or returns why it is not divided.
fn divided(
    query: &Query,
    cluster: &Cluster,
    files: Option<&OutputFiles>,
    limits: &Arc<QueryLimits>,
    cancel: &CancellationToken,
) -> Result<Result<Arc<Divided>, String>> {
    let here = |why: &str| Ok(Err(why.to_owned()));
    if query.is_volatile()? {
        return here("it uses random numbers or the time");
    }
    let most = cluster.num_tasks.unwrap_or(cluster.engine.num_workers().saturating_mul(4)).max(1);
    let threads = cluster.threads.max(1);
    let others = query.state()?.config().target_partitions();
    let division = Division { partitions: most.saturating_mul(threads), others };
    let mut header = TaskHeader {
        changes: cluster.changes.clone(),
        division,
        index: 0,
        num_tasks: 0,
        threads,
        cuts: Vec::new(),
        fingerprint: String::new(),
        files: files.cloned(),
    };
    let execution = query.planned(Some(division), limits, cancel)?;
    let cuts = header.cuts_in(&execution);
    let Some(num_partitions) = cuts.iter().map(Cut::num_partitions).max() else {
        let can_write = files.is_none() && !limits.count_rows() && whole(&execution).is_some();
        let writes = if can_write { "; tasks can write its rows to a folder of files" } else { "" };
        let why = "no part of its plan works on row groups one by one, and returns less than it reads";
        return here(&format!("{why}{writes}"));
    };
    let num_rows: usize = cuts.iter().map(|cut| num_rows(&cut.plan)).sum();
    let num_tasks = cluster.num_tasks.unwrap_or(most.min(num_rows / MIN_TASK_ROWS));
    if cluster.num_tasks.is_none() && num_tasks < 2 {
        return here(&format!("it reads too few rows to be worth tasks ({num_rows}); `tasks` forces them"));
    }
    let stops_early = |cut: &Cut| !cut.reduces() && cut.max_rows.is_some_and(|rows| rows < MIN_TASK_ROWS);
    if cluster.num_tasks.is_none() && cuts.iter().all(stops_early) {
        return here("its LIMIT stops it early; `tasks` forces them");
    }
    header.num_tasks = num_tasks.clamp(1, num_partitions);
    header.fingerprint = fingerprint::fingerprint(&cuts).map_err(query_error)?;
    let (query, engine, limits) = (query.here(), Arc::clone(&cluster.engine), Arc::clone(limits));
    Ok(Ok(Arc::new(Divided { query, engine, execution, cuts, header, limits })))
}

/// Puts the rows of tasks in place of the cuts.
fn with_tasks(divided: &Arc<Divided>) -> Result<Execution> {
    let Divided { query, execution, cuts, .. } = &**divided;
    let mut leaves: HashMap<usize, Plan> = HashMap::new();
    for (number, cut) in cuts.iter().enumerate() {
        if !leaves.contains_key(&number) {
            let together = (number..cuts.len()).filter(|&other| cuts[other].starts_with(cut)).collect();
            leaves.extend(TasksExec::of(TasksOfQuery::new(divided, together)));
        }
    }
    let replaced = Arc::clone(&execution.plan).transform_down(|node| {
        Ok(match cuts.iter().position(|cut| Arc::ptr_eq(&cut.plan, &node)) {
            Some(number) => Transformed::new(Arc::clone(&leaves[&number]), true, TreeNodeRecursion::Jump),
            None => Transformed::no(node),
        })
    });
    let plan = replaced.map_err(query_error)?.data;
    check_files(query.archive(), &plan, &|node| node.is::<TasksExec>())?;
    Ok(Execution { plan, ..execution.clone() })
}
