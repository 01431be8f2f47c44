//! A part of a plan whose partitions must stay together, such as a join of two scans partition by partition.

use crate::scan::SelectionScan;
use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::UInt32Type;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result, Statistics, internal_err};
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PhysicalExpr, PlanProperties,
};
use datafusion_distributed::{DistributedLeafExec, ScaleUpLeafNodeEvent, ScaleUpLeafNodeEventResponse};
use futures::{StreamExt, TryStreamExt};
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

/// A plan as a leaf. Each of its partitions depends only on the partitions of the same number of its scans, so a task gets
/// some partitions of all of them.
///
/// Left as inner nodes, the scans would be split independently, and partitions of the same number would no longer match.
#[derive(Debug)]
pub struct Fragment(pub Arc<dyn ExecutionPlan>);

impl Fragment {
    /// Returns the fragment with these partitions of each scan only, and with empty ones up to `count`.
    fn select(&self, partitions: std::ops::Range<usize>, count: usize) -> Result<Arc<dyn ExecutionPlan>> {
        let selected = Arc::clone(&self.0).transform_up(|node| {
            let Some(scan) = node.downcast_ref::<SelectionScan>() else { return Ok(Transformed::no(node)) };
            let config = scan.config()?;
            let mut groups = config.file_groups.get(partitions.clone()).unwrap_or_default().to_vec();
            groups.resize(count, FileGroup::new(Vec::new()));
            let config = FileScanConfigBuilder::from(config.clone())
                .with_file_groups(groups)
                .with_statistics(Statistics::new_unknown(config.file_schema()))
                // Otherwise threads would take files of other partitions.
                .with_preserve_order(true);
            Ok(Transformed::yes(Arc::new(SelectionScan::new(config.build())) as Arc<dyn ExecutionPlan>))
        })?;
        Ok(Arc::new(Fragment(selected.data)))
    }
}

/// Splits a fragment into ranges of partitions.
pub fn split_fragment(event: ScaleUpLeafNodeEvent) -> Option<Result<ScaleUpLeafNodeEventResponse>> {
    let fragment = event.plan.downcast_ref::<Fragment>()?;
    if event.task_count == 1 {
        return None;
    }
    let partitions = fragment.0.output_partitioning().partition_count();
    let count = partitions.div_ceil(event.task_count);
    let range = |task: usize| (task * count).min(partitions)..((task + 1) * count).min(partitions);
    let tasks = (0..event.task_count).map(|task| fragment.select(range(task), count)).collect::<Result<Vec<_>>>();
    let leaf = tasks.and_then(|tasks| DistributedLeafExec::try_new(Arc::clone(event.plan), tasks));
    Some(leaf.map(|leaf| ScaleUpLeafNodeEventResponse::new(Arc::new(leaf))))
}

impl DisplayAs for Fragment {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fragment: ")?;
        self.0.fmt_as(kind, f)?;
        for child in self.0.children() {
            f.write_str("; ")?;
            child.fmt_as(kind, f)?;
        }
        Ok(())
    }
}

impl ExecutionPlan for Fragment {
    fn name(&self) -> &'static str {
        "Fragment"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.0.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.0.execute(partition, context)
    }
}

/// The rows of partition `i` of the probe side whose run and step occur in partition `i` of the build side.
#[derive(Debug)]
pub struct PairedRows {
    probe: Arc<dyn ExecutionPlan>,
    build: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl PairedRows {
    pub fn try_new(probe: Arc<dyn ExecutionPlan>, build: Arc<dyn ExecutionPlan>) -> Result<PairedRows> {
        let partitions = probe.output_partitioning().partition_count();
        if build.output_partitioning().partition_count() != partitions {
            return internal_err!("expected {partitions} partitions on both sides");
        }
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(probe.schema()),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        Ok(PairedRows { probe, build, properties })
    }
}

fn keys(batch: &RecordBatch) -> impl Iterator<Item = (u32, u32)> {
    let runs = batch.column(0).as_primitive::<UInt32Type>();
    let steps = batch.column(1).as_primitive::<UInt32Type>();
    runs.values().iter().copied().zip(steps.values().iter().copied())
}

impl DisplayAs for PairedRows {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PairedRows")
    }
}

impl ExecutionPlan for PairedRows {
    fn name(&self) -> &'static str {
        "PairedRows"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.probe, &self.build]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false, false]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        match <[_; 2]>::try_from(children) {
            Ok([probe, build]) => Ok(Arc::new(PairedRows::try_new(probe, build)?)),
            Err(children) => internal_err!("expected 2 inputs, found {}", children.len()),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let probe = self.probe.execute(partition, Arc::clone(&context))?;
        let build = self.build.execute(partition, context)?;
        let schema = self.schema();
        let rows = async move {
            let build: Vec<RecordBatch> = build.try_collect().await?;
            let known: HashSet<(u32, u32)> = build.iter().flat_map(|batch| keys(batch).collect::<Vec<_>>()).collect();
            Ok::<_, DataFusionError>(probe.map(move |batch| {
                let batch: RecordBatch = batch?;
                let pairs: BooleanArray = keys(&batch).map(|key| Some(known.contains(&key))).collect();
                Ok(filter_record_batch(&batch, &pairs)?)
            }))
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, futures::stream::once(rows).try_flatten())))
    }
}
