//! The plan node of a join by run and step.

use super::joined_rows::JoinedRows;
use super::keys::KeyColumns;
use super::stream::{JoinState, SortedInput};
use arrow::compute::SortOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result as DataFusionResult, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, LexOrdering, Partitioning, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::joins::utils::ColumnIndex;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties};
use futures::stream::try_unfold;
use std::fmt;
use std::sync::Arc;

/// A join of two inputs by run and step, or by run. Partition `i` joins partitions `i` of both inputs. Build partition
/// `i` has every build row whose key occurs in probe partition `i`.
#[derive(Debug)]
pub(in crate::query) struct StepJoinExec {
    pub(in crate::query) probe: Arc<dyn ExecutionPlan>,
    build: Arc<dyn ExecutionPlan>,
    /// The key columns of the probe side and of the build side.
    keys: [KeyColumns; 2],
    rows: Arc<JoinedRows>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl StepJoinExec {
    pub(super) fn try_new(
        probe: Arc<dyn ExecutionPlan>,
        build: Arc<dyn ExecutionPlan>,
        keys: [KeyColumns; 2],
        rows: Arc<JoinedRows>,
    ) -> DataFusionResult<StepJoinExec> {
        let partitions = probe.output_partitioning().partition_count();
        if build.output_partitioning().partition_count() != partitions {
            let found = build.output_partitioning().partition_count();
            return internal_err!("a join of sorted rows: expected {partitions} build partitions, found {found}");
        }
        let properties = PlanProperties::new(
            equivalences(&rows, keys[0]),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let metrics = ExecutionPlanMetricsSet::new();
        Ok(StepJoinExec { probe, build, keys, rows, properties: Arc::new(properties), metrics })
    }

    /// Returns the column of the probe side that a column of the result copies.
    pub(super) fn probe_column(&self, column: usize) -> Option<usize> {
        let column = self.rows.columns.get(column)?;
        (column.side == self.rows.probe_side).then_some(column.index)
    }
}

/// Returns the order of the result. A join by run hides its order, because DataFusion would group by run and another
/// column in a mode for sorted input, which takes twice as long.
fn equivalences(rows: &JoinedRows, keys: KeyColumns) -> EquivalenceProperties {
    let sort_key = |index: usize| {
        let key = ColumnIndex { index, side: rows.probe_side };
        let at = rows.columns.iter().position(|column| *column == key)?;
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(rows.schema.field(at).name(), at));
        Some(PhysicalSortExpr::new(column, SortOptions { descending: false, nulls_first: false }))
    };
    let mut equivalences = EquivalenceProperties::new(Arc::clone(&rows.schema));
    if let (Some(run), Some(step)) = (sort_key(keys.run), keys.step.and_then(sort_key)) {
        equivalences.add_orderings(LexOrdering::new([run, step]));
    }
    equivalences
}

impl DisplayAs for StepJoinExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StepJoinExec: kind={:?}", self.rows.kind)?;
        for condition in &self.rows.conditions {
            write!(f, ", {}", condition.expression())?;
        }
        Ok(())
    }
}

impl ExecutionPlan for StepJoinExec {
    fn name(&self) -> &'static str {
        "StepJoinExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        // The properties tell the order of the result. Otherwise, the optimizer would move sorts below the join, and find
        // their columns by position, as if the result began with all columns of the probe side.
        vec![false, false]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false, false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.probe, &self.build]
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DataFusionResult<TreeNodeRecursion>,
    ) -> DataFusionResult<TreeNodeRecursion> {
        let mut next = TreeNodeRecursion::Continue;
        for condition in &self.rows.conditions {
            next = next.visit_sibling(|| visit(condition.expression()))?;
        }
        Ok(next)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let children: Result<[_; 2], _> = children.try_into();
        match children {
            Ok([probe, build]) => Ok(Arc::new(StepJoinExec::try_new(probe, build, self.keys, Arc::clone(&self.rows))?)),
            Err(children) => internal_err!("expected 2 inputs, found {}", children.len()),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> DataFusionResult<SendableRecordBatchStream> {
        let probe = self.probe.execute(partition, Arc::clone(&context))?;
        let build = self.build.execute(partition, context)?;
        let state = JoinState {
            probe: SortedInput::new(probe, self.keys[0]),
            build: SortedInput::new(build, self.keys[1]),
            rows: Arc::clone(&self.rows),
            metrics: BaselineMetrics::new(&self.metrics, partition),
        };
        let batches = try_unfold(state, |mut state| async move { Ok(state.next().await?.map(|rows| (rows, state))) });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
