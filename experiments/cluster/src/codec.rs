//! Plans as bytes.
//!
//! `datafusion-distributed` puts its own codec before the user's (`codec/distributed_codec.rs:42`). That codec accepts every
//! function without writing anything, so the user's codec is never asked about functions. An [`Envelope`] around a whole
//! stage avoids this: its contents are encoded by [`ScanCodec`] alone.

use crate::fragment::{Fragment, PairedRows};
use crate::functions::{AddAmount, added_amount};
use crate::scan::SelectionScan;
use crate::worker::Archives;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, exec_err, internal_err};
use datafusion::datasource::physical_plan::parquet::{
    CachedParquetFileReaderFactory, ParquetAccessPlan, RowGroupAccess,
};
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{AggregateUDF, ScalarUDF, WindowUDF};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr, PlanProperties};
use datafusion_distributed::DistributedCodec;
use datafusion_proto::physical_plan::{
    PhysicalExtensionCodec, PhysicalPlanDecodeContext, PhysicalProtoConverterExtension,
};
use datafusion_proto::protobuf::PhysicalPlanNode;
use parquet::arrow::arrow_reader::{RowSelection, RowSelector};
use prost::Message;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Encodes and decodes [`SelectionScan`], [`Envelope`], and functions with parameters.
#[derive(Debug)]
pub struct ScanCodec;

/// How often the codec was asked about functions.
pub static ASKED_ABOUT_FUNCTIONS: AtomicUsize = AtomicUsize::new(0);

#[derive(Clone, PartialEq, prost::Message)]
struct NodeProto {
    #[prost(oneof = "Node", tags = "1, 2, 3, 4")]
    node: Option<Node>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Node {
    #[prost(message, tag = "1")]
    Scan(ScanProto),
    /// A whole stage, or a fragment.
    #[prost(bytes, tag = "2")]
    Envelope(Vec<u8>),
    /// A node of `datafusion-distributed` inside an envelope.
    #[prost(bytes, tag = "3")]
    Distributed(Vec<u8>),
    #[prost(message, tag = "4")]
    PairedRows(PairedRowsProto),
}

#[derive(Clone, PartialEq, prost::Message)]
struct PairedRowsProto {}

#[derive(Clone, PartialEq, prost::Message)]
struct ScanProto {
    /// The scan, as DataFusion encodes it.
    #[prost(bytes, tag = "1")]
    scan: Vec<u8>,
    /// DataFusion's encoding drops this too. Without it, threads take row groups of other partitions.
    #[prost(bool, tag = "2")]
    preserve_order: bool,
    #[prost(message, repeated, tag = "3")]
    groups: Vec<GroupProto>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct GroupProto {
    #[prost(message, repeated, tag = "1")]
    parts: Vec<PartProto>,
}

/// What to read of one file.
#[derive(Clone, PartialEq, prost::Message)]
struct PartProto {
    /// The number of row groups of the file; `None` if the whole part is read.
    #[prost(uint32, optional, tag = "1")]
    num_row_groups: Option<u32>,
    #[prost(message, repeated, tag = "2")]
    row_groups: Vec<RowGroupProto>,
}

/// A row group that is read. Other row groups are skipped.
#[derive(Clone, PartialEq, prost::Message)]
struct RowGroupProto {
    #[prost(uint32, tag = "1")]
    index: u32,
    /// Numbers of rows to skip, to read, to skip and so on; empty if all rows are read.
    #[prost(uint64, repeated, tag = "2")]
    runs: Vec<u64>,
}

impl PartProto {
    fn of(access: Option<&ParquetAccessPlan>) -> PartProto {
        let Some(access) = access else { return PartProto::default() };
        let row_group = |(index, access): (usize, &RowGroupAccess)| {
            let runs = match access {
                RowGroupAccess::Skip => return None,
                RowGroupAccess::Scan => Vec::new(),
                RowGroupAccess::Selection(selection) => runs_of(selection),
            };
            Some(RowGroupProto { index: index as u32, runs })
        };
        PartProto {
            num_row_groups: Some(access.len() as u32),
            row_groups: access.inner().iter().enumerate().filter_map(row_group).collect(),
        }
    }

    fn access(&self) -> Result<Option<ParquetAccessPlan>> {
        let Some(count) = self.num_row_groups else { return Ok(None) };
        let mut access = ParquetAccessPlan::new_none(count as usize);
        for row_group in &self.row_groups {
            if row_group.index >= count {
                return exec_err!("a part reads row group {} of {count}", row_group.index);
            }
            access.set(
                row_group.index as usize,
                match row_group.runs.as_slice() {
                    [] => RowGroupAccess::Scan,
                    runs => RowGroupAccess::Selection(selection_of(runs)),
                },
            );
        }
        Ok(Some(access))
    }
}

fn runs_of(selection: &RowSelection) -> Vec<u64> {
    let mut runs = Vec::new();
    for selector in Vec::<RowSelector>::from(selection.clone()) {
        if runs.is_empty() && !selector.skip {
            runs.push(0);
        }
        runs.push(selector.row_count as u64);
    }
    runs
}

fn selection_of(runs: &[u64]) -> RowSelection {
    let selector = |(i, &len): (usize, &u64)| match i % 2 {
        0 => RowSelector::skip(len as usize),
        _ => RowSelector::select(len as usize),
    };
    RowSelection::from(runs.iter().enumerate().map(selector).collect::<Vec<_>>())
}

impl PhysicalExtensionCodec for ScanCodec {
    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        buf: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let node = if let Some(scan) = node.downcast_ref::<SelectionScan>() {
            let config = scan.config()?;
            let groups = config.file_groups.iter().map(|group| GroupProto {
                parts: group.files().iter().map(|file| PartProto::of(file.extension())).collect(),
            });
            Node::Scan(ScanProto {
                scan: converter.execution_plan_to_proto(scan.scan(), self)?.encode_to_vec(),
                preserve_order: config.preserve_order,
                groups: groups.collect(),
            })
        } else if let Some(envelope) = node.downcast_ref::<Envelope>() {
            Node::Envelope(converter.execution_plan_to_proto(&envelope.0, self)?.encode_to_vec())
        } else if let Some(fragment) = node.downcast_ref::<Fragment>() {
            Node::Envelope(converter.execution_plan_to_proto(&fragment.0, self)?.encode_to_vec())
        } else if node.is::<PairedRows>() {
            Node::PairedRows(PairedRowsProto {})
        } else {
            let mut bytes = Vec::new();
            DistributedCodec.try_encode(node, &mut bytes, converter)?;
            Node::Distributed(bytes)
        };
        NodeProto { node: Some(node) }.encode(buf).map_err(external)
    }

    fn try_decode(
        &self,
        buf: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let decode = |bytes: &[u8]| {
            let node = PhysicalPlanNode::decode(bytes).map_err(external)?;
            converter.proto_to_execution_plan(&node, &PhysicalPlanDecodeContext::new(context, self))
        };
        match NodeProto::decode(buf).map_err(external)?.node {
            Some(Node::Scan(scan)) => restored(decode(&scan.scan)?, &scan, context),
            Some(Node::Envelope(stage)) => decode(&stage),
            Some(Node::Distributed(bytes)) => DistributedCodec.try_decode(&bytes, inputs, context, converter),
            Some(Node::PairedRows(_)) => match inputs {
                [probe, build] => Ok(Arc::new(PairedRows::try_new(Arc::clone(probe), Arc::clone(build))?)),
                inputs => internal_err!("expected 2 inputs, found {}", inputs.len()),
            },
            None => internal_err!("expected a plan node, found none"),
        }
    }

    fn try_encode_udf(&self, function: &ScalarUDF, buf: &mut Vec<u8>) -> Result<()> {
        ASKED_ABOUT_FUNCTIONS.fetch_add(1, Ordering::Relaxed);
        if let Some(amount) = added_amount(function) {
            buf.extend(amount.to_le_bytes());
        }
        Ok(())
    }

    fn try_decode_udf(&self, name: &str, buf: &[u8]) -> Result<Arc<ScalarUDF>> {
        ASKED_ABOUT_FUNCTIONS.fetch_add(1, Ordering::Relaxed);
        match buf.try_into() {
            Ok(bytes) => Ok(Arc::new(AddAmount::udf(i64::from_le_bytes(bytes)))),
            Err(_) => exec_err!("this worker has no function {name}"),
        }
    }

    fn try_encode_udaf(&self, _: &AggregateUDF, _: &mut Vec<u8>) -> Result<()> {
        ASKED_ABOUT_FUNCTIONS.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn try_encode_udwf(&self, _: &WindowUDF, _: &mut Vec<u8>) -> Result<()> {
        ASKED_ABOUT_FUNCTIONS.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Returns the scan with what its encoding dropped, read through the worker's own store and cache of footers.
fn restored(scan: Arc<dyn ExecutionPlan>, proto: &ScanProto, context: &TaskContext) -> Result<Arc<dyn ExecutionPlan>> {
    let Some(scan) = SelectionScan::over(&scan) else { return internal_err!("expected a Parquet scan") };
    let config = scan.config()?;
    let found: Vec<usize> = config.file_groups.iter().map(|group| group.len()).collect();
    if proto.groups.iter().map(|group| group.parts.len()).ne(found.iter().copied()) {
        return internal_err!("the parts do not match the files");
    }
    let mut groups = Vec::new();
    for (group, parts) in config.file_groups.iter().zip(&proto.groups) {
        let mut files = Vec::new();
        for (file, part) in group.files().iter().zip(&parts.parts) {
            files.push(match part.access()? {
                Some(access) => file.clone().with_extension(access),
                None => file.clone(),
            });
        }
        groups.push(FileGroup::new(files));
    }
    let mut builder =
        FileScanConfigBuilder::from(config.clone()).with_file_groups(groups).with_preserve_order(proto.preserve_order);
    if let Some(archives) = context.session_config().get_extension::<Archives>() {
        let Some(archive) = archives.get(config.object_store_url.as_str()) else {
            return exec_err!("this worker may not read {}", config.object_store_url);
        };
        let Some(source) = config.file_source().downcast_ref::<ParquetSource>() else {
            return internal_err!("expected a Parquet scan");
        };
        let readers = CachedParquetFileReaderFactory::new(Arc::clone(&archive.store), Arc::clone(&archive.footers));
        builder = builder.with_source(Arc::new(source.clone().with_parquet_file_reader_factory(Arc::new(readers))));
    }
    Ok(Arc::new(SelectionScan::new(builder.build())))
}

/// A stage on its way to a worker. Decoding returns the stage without the envelope.
#[derive(Debug)]
pub struct Envelope(pub Arc<dyn ExecutionPlan>);

impl DisplayAs for Envelope {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Envelope")
    }
}

impl ExecutionPlan for Envelope {
    fn name(&self) -> &'static str {
        "Envelope"
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

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        internal_err!("an envelope is only encoded")
    }
}

fn external(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
