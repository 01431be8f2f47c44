//! A join of two scans, partition by partition.

mod common;

use common::{data, options, plan, rows_of, sorted, start};
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use datafusion_distributed::{DistributedExt, display_plan_ascii};
use trial::client::{Channels, Limits, distribute, distributed, local};
use trial::fragment::{Fragment, PairedRows, split_fragment};
use trial::scan::SelectionScan;
use std::sync::Arc;

/// A scan in four partitions of six row groups each; without some row groups of the first partition.
async fn scan(context: &SessionContext, table: &str, in_first: usize) -> Arc<dyn ExecutionPlan> {
    let scan = plan(context, &format!("SELECT run_id, step_index FROM {table}")).await.unwrap();
    let config = SelectionScan::over(&scan).unwrap().config().unwrap().clone();
    let parts: Vec<_> = config.file_groups.iter().flat_map(|group| group.files()).cloned().collect();
    let mut groups: Vec<Vec<_>> = parts.chunks(6).map(<[_]>::to_vec).collect();
    groups[0].truncate(in_first);
    let groups = groups.into_iter().map(FileGroup::new).collect();
    let config = FileScanConfigBuilder::from(config).with_file_groups(groups).with_preserve_order(true).build();
    Arc::new(SelectionScan::new(config))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn partitions_of_both_sides_stay_together() {
    let folder = data();
    let cluster = start(&options(folder.path()), 2).await;
    let alone = local(folder.path()).unwrap();
    let spread = distributed(folder.path(), cluster, Channels::new(Limits::default(), None)).unwrap();
    let mut state = spread.state();
    state.config_mut().set_distributed_scale_up_leaf_node_handler(split_fragment);
    state.config_mut().set_distributed_desired_task_count_handler(2_usize);
    let spread = SessionContext::new_with_state(state.clone());
    let join = || async {
        let (probe, build) = (scan(&alone, "steps", 6).await, scan(&alone, "chosen", 1).await);
        Arc::new(PairedRows::try_new(probe, build).unwrap()) as Arc<dyn ExecutionPlan>
    };
    let merged = datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec::new(join().await);
    let expected = rows_of(Arc::new(merged), &alone).await.unwrap();

    let split = distribute(join().await, &state).await.unwrap();
    println!("{}", display_plan_ascii(split.as_ref(), false));
    let found = rows_of(split, &spread).await.unwrap();
    println!("local {} rows, with scans split independently {} rows", expected.len(), found.len());
    assert_ne!(expected.len(), found.len());

    let split = distribute(Arc::new(Fragment(join().await)), &state).await.unwrap();
    println!("{}", display_plan_ascii(split.as_ref(), false));
    let found = rows_of(split, &spread).await.unwrap();
    println!("local {} rows, with a fragment {} rows", expected.len(), found.len());
    assert_eq!(sorted(expected), sorted(found));
}
