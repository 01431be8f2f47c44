//! A task: the question, and a share of its partitions. It runs in another process.

use super::super::query_error;
use super::cut::{Cut, cuts, does, slice, whole};
use super::fingerprint::fingerprint;
use super::message::{self, Blocks};
use crate::error::Result;
use crate::query::engine::execution::{Execution, Rows};
use crate::query::engine::limits::QueryLimits;
use crate::query::output::result_files::OutputFiles;
use crate::query::query::Query;
use crate::query::scan::archive_table::check_files;
use crate::query::scan::partition::Partition;
use crate::query::tasks::{Change, Division, Engine};
use crate::system::cancellation::CancellationToken;
use arrow::array::{ArrayRef, RecordBatch};
use datafusion::common::{Result as DataFusionResult, ScalarValue, internal_datafusion_err};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::logical_expr::physical_planning_context::{ScalarSubqueryResults, SubqueryIndex};
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::joins::HashJoinExec;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// The number of times that a worker plans a query to get the same plan as the coordinator. DataFusion orders hidden
/// columns and the keys of some joins by random hashes.
const PLANS: usize = 16;

/// The header of a task's message. The block after it has the values of scalar subqueries.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TaskHeader {
    pub(super) changes: Vec<Change>,
    pub(super) division: Division,
    /// The cuts that the task runs, of all cuts of the plan.
    pub(super) cuts: Vec<usize>,
    /// The number of the task, and of all tasks.
    pub(super) index: usize,
    pub(super) num_tasks: usize,
    /// The number of threads of a task.
    pub(super) threads: usize,
    pub(super) fingerprint: String,
    /// The files that the tasks write. If there are any, the only cut is the whole plan.
    pub(super) files: Option<OutputFiles>,
}

/// A plan with its cuts, and what their tasks have in common.
pub(super) struct Divided {
    /// The query, run by this process.
    pub(super) query: Query,
    pub(super) engine: Arc<dyn Engine>,
    pub(super) execution: Execution,
    pub(super) cuts: Vec<Cut>,
    /// The header of the tasks, but for their cuts and their index.
    pub(super) header: TaskHeader,
    pub(super) limits: Arc<QueryLimits>,
}

/// The header of a result's message. Its blocks are the rows of the parts.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct ResultHeader {
    /// Whether the worker's plans had other cuts; then there are no parts.
    pub(super) is_other_plan: bool,
    /// The cut and the partition of each block.
    pub(super) parts: Vec<(usize, usize)>,
    /// The texts of each cut, in the order of their numbers.
    pub(super) texts: Vec<Vec<String>>,
    /// The number of rows in the file that the task wrote.
    pub(super) num_written: u64,
}

impl TaskHeader {
    /// Returns the cuts of a plan.
    pub(super) fn cuts_in(&self, execution: &Execution) -> Vec<Cut> {
        if self.files.is_some() { whole(execution).into_iter().collect() } else { cuts(execution) }
    }

    /// Returns the partitions of a cut that the task reads.
    pub(super) fn partitions(&self, cut: &Cut) -> Range<usize> {
        let count = cut.num_partitions();
        self.index * count / self.num_tasks..(self.index + 1) * count / self.num_tasks
    }

    /// Returns the cuts that the task runs, with their numbers.
    fn cuts_of<'a>(&self, cuts: &'a [Cut]) -> impl Iterator<Item = (usize, &'a Cut)> {
        self.cuts.iter().filter_map(|&cut| Some((cut, cuts.get(cut)?)))
    }

    /// Returns the results of the scalar subqueries that the task needs. All its cuts need the same.
    fn scalars_of<'a>(&self, cuts: &'a [Cut]) -> impl Iterator<Item = &'a (ScalarSubqueryResults, usize)> {
        self.cuts_of(cuts).next().into_iter().flat_map(|(_, cut)| &cut.scalars)
    }
}

impl Query {
    /// Runs a task that another process made of the same query, and returns the message with its result for the caller
    /// of [`Engine::start`](crate::query::Engine::start).
    ///
    /// # Errors
    /// Any error of planning and running the query here, and [`ErrorKind::Query`](crate::ErrorKind::Query) for other
    /// bytes.
    pub fn run_task(&self, task: &[u8], cancel: &CancellationToken) -> Result<Vec<u8>> {
        let (header, blocks): (TaskHeader, _) = message::parse(task)?;
        let query = self.changed(&header.changes)?;
        let limits = query.limits();
        for _ in 0..PLANS {
            let execution = query.planned(Some(header.division), &limits, cancel)?;
            let cuts = header.cuts_in(&execution);
            if fingerprint(&cuts).map_err(query_error)? != header.fingerprint {
                continue;
            }
            set_scalars(&cuts, &header, &blocks).map_err(query_error)?;
            let ran = query.run_cuts(&execution, &cuts, &header, false, &limits, cancel);
            return ran.map_err(|error| limits.explain(self.archive().blame(error)));
        }
        Blocks::default().with_header(&ResultHeader { is_other_plan: true, ..ResultHeader::default() })
    }

    /// Runs a task's slices of its cuts, `again` if the plan may have run before.
    pub(super) fn run_cuts(
        &self,
        execution: &Execution,
        cuts: &[Cut],
        header: &TaskHeader,
        again: bool,
        limits: &Arc<QueryLimits>,
        cancel: &CancellationToken,
    ) -> Result<Vec<u8>> {
        let arrow = |error: arrow::error::ArrowError| query_error(error.into());
        let (mut result, mut blocks) = (ResultHeader::default(), Blocks::default());
        let memory = MemoryConsumer::new("rows that a task returns").register(execution.context.memory_pool());
        for (i, cut) in header.cuts_of(cuts) {
            let range = header.partitions(cut);
            let plan = slice(&cut.plan, &range);
            let plan = if again { plan.and_then(reset_plan_states) } else { plan }.map_err(query_error)?;
            check_files(self.archive(), &plan, &|_| false)?;
            // The filter that a join makes from its small side waits for all partitions.
            let at_once = if does(&plan, |node| node.is::<HashJoinExec>()) { range.len() } else { header.threads };
            if let Some(files) = &header.files {
                let rows =
                    Rows::InOrder { skip: 0, fetch: None, max_rows: vec![usize::MAX; range.len()], is_exact: false };
                let slice = Execution { plan, context: Arc::clone(&execution.context), rows };
                let mut rows = self.stream_of(slice, Arc::clone(limits));
                rows.at_once = at_once;
                result.num_written = files.write(header.index, rows, &self.archive().storage_options(), cancel)?;
                continue;
            }
            let (mut waiting, mut running) = (0..range.len(), VecDeque::new());
            for partition in range {
                while running.len() < at_once
                    && let Some(at) = waiting.next()
                {
                    running.push_back(Partition::start(&plan, &execution.context, Some(at), Partition::AHEAD)?);
                }
                let Some(mut running) = running.pop_front() else { break };
                let mut rows = blocks.begin(&plan.schema()).map_err(arrow)?;
                let mut rest = cut.max_rows.unwrap_or(usize::MAX);
                while rest > 0
                    && let Some(batch) = running.next(|| limits.check(cancel))?
                {
                    let batch = batch.slice(0, batch.num_rows().min(rest));
                    rest -= batch.num_rows();
                    rows.write(&batch).map_err(arrow)?;
                    // The engine gets a copy.
                    memory.try_resize(2 * rows.get_ref().get_ref().len()).map_err(query_error)?;
                }
                result.parts.push((i, partition));
                blocks.end(rows).map_err(arrow)?;
            }
        }
        result.texts = cuts.iter().map(|cut| cut.texts.texts()).collect();
        blocks.with_header(&result)
    }
}

/// Returns the values of the scalar subqueries around the cuts, which have run, as a row.
pub(super) fn scalars_of(cuts: &[Cut], header: &TaskHeader) -> DataFusionResult<Option<RecordBatch>> {
    let mut columns: Vec<ArrayRef> = Vec::new();
    for (results, count) in header.scalars_of(cuts) {
        for i in 0..*count {
            let value = results.get(SubqueryIndex::new(i));
            let value = value.ok_or_else(|| internal_datafusion_err!("a scalar subquery has not run"))?;
            columns.push(value.to_array()?);
        }
    }
    if columns.is_empty() {
        return Ok(None);
    }
    let columns = columns.into_iter().map(|column| ("value", column, true));
    Ok(Some(RecordBatch::try_from_iter_with_nullable(columns)?))
}

/// Sets the values of the scalar subqueries around the cuts.
fn set_scalars(cuts: &[Cut], header: &TaskHeader, blocks: &[&[u8]]) -> DataFusionResult<()> {
    let rows = blocks.first().map(|block| message::read_rows(block.to_vec())).transpose()?;
    let rows = rows.into_iter().flatten().collect::<Result<Vec<_>, _>>()?;
    let mut values = rows.iter().flat_map(RecordBatch::columns);
    for (results, count) in header.scalars_of(cuts) {
        results.clear();
        for i in 0..*count {
            let value = values.next().ok_or_else(|| internal_datafusion_err!("too few values of subqueries"))?;
            results.set(SubqueryIndex::new(i), ScalarValue::try_from_array(value, 0)?)?;
        }
    }
    Ok(())
}
