//! Selections of rows: what an encoded scan loses, and what our node keeps.

mod common;

use common::{data, options, plan, rows, rows_of, sorted, start};
use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::physical_plan::{FileScanConfig, FileScanConfigBuilder};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::bytes::{
    physical_plan_from_bytes_with_extension_codec, physical_plan_to_bytes_with_extension_codec,
};
use datafusion_proto::physical_plan::{DefaultPhysicalExtensionCodec, PhysicalExtensionCodec};
use trial::client::{Channels, Limits, as_is, distributed, local};
use trial::codec::ScanCodec;
use trial::games;
use trial::scan::{SelectionScan, WrapScans};
use std::sync::Arc;
use std::time::Instant;

const COUNT: &str = "SELECT count(*), count(DISTINCT run_id), sum(step_index) FROM chosen";

fn round_trip(
    plan: &Arc<dyn ExecutionPlan>,
    codec: &dyn PhysicalExtensionCodec,
    context: &TaskContext,
) -> Result<Arc<dyn ExecutionPlan>> {
    let bytes = physical_plan_to_bytes_with_extension_codec(Arc::clone(plan), codec)?;
    physical_plan_from_bytes_with_extension_codec(&bytes, context, codec)
}

fn scan_of(plan: &Arc<dyn ExecutionPlan>) -> FileScanConfig {
    let mut found = None;
    plan.apply(|node| {
        let node = match node.downcast_ref::<SelectionScan>() {
            Some(scan) => scan.scan(),
            None => node,
        };
        if let Some(scan) = node.downcast_ref::<DataSourceExec>() {
            found = scan.data_source().downcast_ref::<FileScanConfig>().cloned();
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .unwrap();
    found.unwrap()
}

#[tokio::test]
async fn its_own_encoding_loses_selections() {
    let folder = data();
    let context = local(folder.path()).unwrap();
    let made = plan(&context, COUNT).await.unwrap();
    let expected = rows_of(Arc::clone(&made), &context).await.unwrap();
    let decoded = round_trip(&made, &DefaultPhysicalExtensionCodec {}, &context.task_ctx()).unwrap();
    let found = rows_of(decoded, &context).await.unwrap();
    println!("rows, runs, sum of steps: in memory {expected:?}, after DataFusion's encoding {found:?}");
    assert_ne!(expected, found);

    let wrapped =
        datafusion::physical_optimizer::PhysicalOptimizerRule::optimize(&WrapScans, made, &Default::default()).unwrap();
    let decoded = round_trip(&wrapped, &ScanCodec, &context.task_ctx()).unwrap();
    let found = rows_of(decoded, &context).await.unwrap();
    println!("after our node's encoding {found:?}");
    assert_eq!(expected, found);
}

#[tokio::test]
async fn other_things_that_the_encoding_of_a_scan_loses() {
    let folder = data();
    let context = local(folder.path()).unwrap();
    let made = plan(&context, "SELECT run_id FROM steps").await.unwrap();
    let config = scan_of(&made);
    let limit = (1_usize << 32) + 5;
    let config = FileScanConfigBuilder::from(config).with_preserve_order(true).with_limit(Some(limit)).build();
    let scan = DataSourceExec::from_data_source(config) as Arc<dyn ExecutionPlan>;
    let decoded = scan_of(&round_trip(&scan, &DefaultPhysicalExtensionCodec {}, &context.task_ctx()).unwrap());
    println!("preserve_order: true, then {}; limit: {limit}, then {:?}", decoded.preserve_order, decoded.limit);
    let wrapped = Arc::new(SelectionScan::over(&scan).unwrap()) as Arc<dyn ExecutionPlan>;
    let decoded = scan_of(&round_trip(&wrapped, &ScanCodec, &context.task_ctx()).unwrap());
    println!("with our node: preserve_order {}", decoded.preserve_order);
    assert!(decoded.preserve_order);
}

#[tokio::test]
async fn bytes_of_a_scan() {
    let folder = data();
    let context = local(folder.path()).unwrap();
    let made = plan(&context, "SELECT run_id FROM chosen").await.unwrap();
    let wrapped = Arc::new(SelectionScan::over(&made).unwrap()) as Arc<dyn ExecutionPlan>;
    let plain = physical_plan_to_bytes_with_extension_codec(made, &DefaultPhysicalExtensionCodec {}).unwrap().len();
    let ours = physical_plan_to_bytes_with_extension_codec(Arc::clone(&wrapped), &ScanCodec).unwrap();
    let parts = (games::FILES * games::ROW_GROUPS) as usize;
    println!("{parts} parts of 4 columns, 67 selectors each: {plain} bytes plain, {} bytes with our node", ours.len());

    // The same scan with as many parts as an archive of 1e10 steps.
    let config = SelectionScan::over(&wrapped).map_or_else(|| scan_of(&wrapped), |scan| scan.config().unwrap().clone());
    let many: Vec<_> = config
        .file_groups
        .iter()
        .map(|group| {
            let files = group.files().iter().cycle().take(6000).cloned().collect();
            datafusion::datasource::physical_plan::FileGroup::new(files)
        })
        .collect();
    let config = FileScanConfigBuilder::from(config).with_file_groups(many).build();
    let scan = Arc::new(SelectionScan::new(config)) as Arc<dyn ExecutionPlan>;
    let started = Instant::now();
    let bytes = physical_plan_to_bytes_with_extension_codec(Arc::clone(&scan), &ScanCodec).unwrap();
    let encoded = started.elapsed();
    let started = Instant::now();
    physical_plan_from_bytes_with_extension_codec(&bytes, &context.task_ctx(), &ScanCodec).unwrap();
    println!("12,000 parts: {} bytes, encoded in {encoded:?}, decoded in {:?}", bytes.len(), started.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn workers_read_the_chosen_rows() {
    let folder = data();
    let cluster = start(&options(folder.path()), 2).await;
    let alone = local(folder.path()).unwrap();
    let expected = sorted(rows(&alone, COUNT).await.unwrap());

    let default = as_is(folder.path(), cluster.clone(), 16 << 20).unwrap();
    let made = plan(&default, COUNT).await.unwrap();
    println!("with the default 16 MiB per partition, the plan is a {}", made.name());

    let wrong = as_is(folder.path(), cluster.clone(), 1).unwrap();
    let made = plan(&wrong, COUNT).await.unwrap();
    println!("{}", datafusion_distributed::display_plan_ascii(made.as_ref(), false));
    let found = sorted(rows_of(made, &wrong).await.unwrap());
    println!("local {expected:?}, distributed as is {found:?}");
    assert_ne!(expected, found);

    let right = distributed(folder.path(), cluster, Channels::new(Limits::default(), None)).unwrap();
    let made = plan(&right, COUNT).await.unwrap();
    println!("{}", datafusion_distributed::display_plan_ascii(made.as_ref(), false));
    let found = sorted(rows_of(made, &right).await.unwrap());
    println!("distributed with our node {found:?}");
    assert_eq!(expected, found);
}
