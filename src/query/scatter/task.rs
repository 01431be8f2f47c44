//! A task: the question, and a share of its partitions. It runs in another process.

use super::super::engine::{Change, Division};
use super::super::limits::QueryLimits;
use super::super::order::Execution;
use super::super::partition::Partition;
use super::super::planned::Query;
use super::super::query_error;
use super::cut::{Cut, cuts};
use super::fingerprint::fingerprint;
use super::message::{self, RowWriter};
use crate::cancellation::CancellationToken;
use crate::error::{Error, Result};
use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Field, Schema};
use datafusion::common::{Result as DataFusionResult, ScalarValue, internal_datafusion_err};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::physical_planning_context::{ScalarSubqueryResults, SubqueryIndex};
use datafusion::physical_plan::execution_plan::reset_plan_states;
use serde::{Deserialize, Serialize};
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
    pub(super) fingerprint: String,
}

/// The header of a result's message. The blocks after it are the rows of the parts.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ResultHeader {
    /// Whether the worker's plans had other cuts; then there are no parts.
    pub(super) is_other_plan: bool,
    /// The cut and the partition of each block.
    pub(super) parts: Vec<(usize, usize)>,
    /// The texts of each cut, in the order of their numbers.
    pub(super) texts: Vec<Vec<String>>,
}

impl TaskHeader {
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
    /// of [`Engine::start`](crate::Engine::start).
    ///
    /// # Errors
    /// Any error of planning and running the query here, and [`ErrorKind::Query`](crate::ErrorKind::Query) for other
    /// bytes.
    pub fn run_task(&self, task: &[u8], cancel: &CancellationToken) -> Result<Vec<u8>> {
        let (header, blocks): (TaskHeader, _) = message::decode(task)?;
        let query = self.changed(&header.changes)?;
        let limits = query.limits();
        for _ in 0..PLANS {
            let execution = query.planned(Some(header.division), &limits, cancel)?;
            let cuts = cuts(&execution);
            if fingerprint(&cuts).map_err(query_error)? != header.fingerprint {
                continue;
            }
            set_scalars(&cuts, &header, &blocks).map_err(query_error)?;
            let ran = run_cuts(&execution, &cuts, &header, false, &limits, cancel);
            return ran.map_err(|error| limits.explain(self.archive().blame(error)));
        }
        message::encode(&ResultHeader { is_other_plan: true, parts: Vec::new(), texts: Vec::new() }, &[])
    }

    fn changed(&self, changes: &[Change]) -> Result<Query> {
        changes.iter().try_fold(self.clone(), |query, change| match change {
            Change::Count => query.counted(),
            Change::Columns(columns) => query.select(columns),
            Change::Limit(num_rows) => query.limit(*num_rows),
            Change::Condition(condition) => {
                let filtered = query.filter(condition)?;
                filtered.ok_or_else(|| Error::query(format!("the condition {condition} does not fit the query")))
            }
        })
    }
}

/// Runs a task's slices of its cuts, `again` if the plan may have run before.
pub(super) fn run_cuts(
    execution: &Execution,
    cuts: &[Cut],
    header: &TaskHeader,
    again: bool,
    limits: &QueryLimits,
    cancel: &CancellationToken,
) -> Result<Vec<u8>> {
    let arrow = |error: arrow::error::ArrowError| query_error(error.into());
    let (mut parts, mut blocks) = (Vec::new(), Vec::new());
    for (i, cut) in header.cuts_of(cuts) {
        let range = header.partitions(cut);
        if range.is_empty() {
            continue;
        }
        let plan = cut.slice(&range);
        let plan = if again { plan.and_then(reset_plan_states) } else { plan }.map_err(query_error)?;
        // All partitions start at once: the filter that a join makes from its small side waits for all of them.
        let start = |at| Partition::start(&plan, execution.context(), Some(at), Partition::AHEAD);
        let running = (0..range.len()).map(start).collect::<Result<Vec<_>>>()?;
        for (partition, mut running) in range.zip(running) {
            let mut writer = RowWriter::new(&plan.schema()).map_err(arrow)?;
            let mut rest = cut.max_rows.unwrap_or(usize::MAX);
            while rest > 0
                && let Some(batch) = running.next(|| limits.check(cancel))?
            {
                let batch = batch.slice(0, batch.num_rows().min(rest));
                rest -= batch.num_rows();
                writer.write(&batch).map_err(arrow)?;
            }
            parts.push((i, partition));
            blocks.push(writer.finish().map_err(arrow)?);
        }
    }
    let texts = cuts.iter().map(|cut| cut.texts.texts()).collect();
    message::encode(&ResultHeader { is_other_plan: false, parts, texts }, &blocks)
}

/// Returns the values of the scalar subqueries around the cuts, which have run, as a block.
pub(super) fn scalars_of(cuts: &[Cut], header: &TaskHeader) -> DataFusionResult<Vec<u8>> {
    let mut columns: Vec<ArrayRef> = Vec::new();
    for (results, count) in header.scalars_of(cuts) {
        for i in 0..*count {
            let value = results.get(SubqueryIndex::new(i));
            let value = value.ok_or_else(|| internal_datafusion_err!("a scalar subquery has not run"))?;
            columns.push(value.to_array()?);
        }
    }
    let fields = columns.iter().map(|column| Field::new("value", column.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let mut writer = RowWriter::new(&schema)?;
    if !columns.is_empty() {
        writer.write(&RecordBatch::try_new(schema, columns)?)?;
    }
    Ok(writer.finish()?)
}

/// Sets the values of the scalar subqueries around the cuts.
fn set_scalars(cuts: &[Cut], header: &TaskHeader, blocks: &[Vec<u8>]) -> DataFusionResult<()> {
    let block = blocks.first().cloned().ok_or_else(|| internal_datafusion_err!("a task without values"))?;
    let rows = message::read_rows(block)?.collect::<Result<Vec<_>, _>>()?;
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

impl Execution {
    pub(super) fn context(&self) -> &Arc<TaskContext> {
        match self {
            Execution::InOrder { context, .. } | Execution::Merged { context, .. } => context,
        }
    }
}
