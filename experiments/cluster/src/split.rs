//! How a scan is split over tasks.

use crate::scan::SelectionScan;
use async_trait::async_trait;
use datafusion::common::stats::Precision;
use datafusion::common::{Result, Statistics};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder};
use datafusion::physical_plan::ExecutionPlan;
use datafusion_distributed::{
    DesiredTaskCountEvent, DesiredTaskCountEventResponse, DesiredTaskCountHandler, DistributedLeafExec,
    ScaleUpLeafNodeEvent, ScaleUpLeafNodeEventResponse,
};
use std::sync::Arc;

/// Asks for one task per this number of rows.
pub struct RowsPerTask(pub usize);

#[async_trait]
impl DesiredTaskCountHandler for RowsPerTask {
    async fn handle(&self, event: DesiredTaskCountEvent<'_>) -> Option<Result<DesiredTaskCountEventResponse>> {
        let scan = event.plan.downcast_ref::<SelectionScan>()?;
        Some(tasks(scan, self.0))
    }
}

fn tasks(scan: &SelectionScan, rows_per_task: usize) -> Result<DesiredTaskCountEventResponse> {
    let config = scan.config()?;
    // A plan over a single partition has no node that merges partitions, so several tasks would each make a whole result.
    // A limit of the scan would apply in each task.
    if scan.properties().output_partitioning().partition_count() == 1 || config.limit.is_some() {
        return Ok(DesiredTaskCountEventResponse::maximum(1));
    }
    let rows: usize = config.file_groups.iter().flat_map(|group| group.files()).map(num_rows).sum();
    Ok(DesiredTaskCountEventResponse::desired(rows.div_ceil(rows_per_task).max(1)))
}

/// Splits a scan into one scan per task, each with neighbouring row groups.
pub fn split(event: ScaleUpLeafNodeEvent) -> Option<Result<ScaleUpLeafNodeEventResponse>> {
    let scan = event.plan.downcast_ref::<SelectionScan>()?;
    if event.task_count == 1 {
        return None;
    }
    Some(split_scan(event.plan, scan, event.task_count))
}

fn split_scan(
    plan: &Arc<dyn ExecutionPlan>,
    scan: &SelectionScan,
    tasks: usize,
) -> Result<ScaleUpLeafNodeEventResponse> {
    let config = scan.config()?;
    let partitions = scan.properties().output_partitioning().partition_count();
    let files: Vec<PartitionedFile> = config.file_groups.iter().flat_map(|group| group.files()).cloned().collect();
    let scans = cut(files, tasks).into_iter().map(|files| {
        let mut statistics = Statistics::new_unknown(config.file_schema());
        statistics.num_rows = Precision::Inexact(files.iter().map(num_rows).sum());
        // All tasks must have the same number of partitions.
        let groups = cut(files, partitions).into_iter().map(FileGroup::new).collect();
        let part = FileScanConfigBuilder::from(config.clone()).with_file_groups(groups).with_statistics(statistics);
        Arc::new(SelectionScan::new(part.build())) as Arc<dyn ExecutionPlan>
    });
    let leaf = DistributedLeafExec::try_new(Arc::clone(plan), scans)?;
    Ok(ScaleUpLeafNodeEventResponse::new(Arc::new(leaf)))
}

/// Cuts files into this number of groups of about equal numbers of rows. Keeps their order.
fn cut(files: Vec<PartitionedFile>, groups: usize) -> Vec<Vec<PartitionedFile>> {
    let total: usize = files.iter().map(num_rows).sum();
    let mut cut = vec![Vec::new(); groups];
    let mut before = 0;
    for file in files {
        let rows = num_rows(&file);
        let middle = before + rows / 2;
        before += rows;
        cut[(middle * groups / total.max(1)).min(groups - 1)].push(file);
    }
    cut
}

fn num_rows(file: &PartitionedFile) -> usize {
    let statistics = file.statistics.as_ref();
    statistics.and_then(|statistics| statistics.num_rows.get_value().copied()).unwrap_or(1)
}
