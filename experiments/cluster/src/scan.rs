//! The plan node around a scan of parts of Parquet row groups.

use crate::tasks::Ended;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::datasource::physical_plan::{FileScanConfig, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr, PlanProperties};
use std::fmt;
use std::sync::Arc;

/// A Parquet scan as a leaf of the plan.
///
/// DataFusion's own encoding of a scan drops the extensions of its files, so a worker would read whole row groups. This
/// node hides the scan: `children()` is empty and it does not delegate downcasts, so only our codec encodes it.
#[derive(Clone, Debug)]
pub struct SelectionScan {
    scan: Arc<dyn ExecutionPlan>,
}

impl SelectionScan {
    /// Returns the node around a plan; `None` if the plan is not a Parquet scan.
    pub fn over(plan: &Arc<dyn ExecutionPlan>) -> Option<SelectionScan> {
        let config = plan.downcast_ref::<DataSourceExec>()?.data_source().downcast_ref::<FileScanConfig>()?;
        config.file_source().is::<ParquetSource>().then(|| SelectionScan { scan: Arc::clone(plan) })
    }

    pub fn new(config: FileScanConfig) -> SelectionScan {
        SelectionScan { scan: DataSourceExec::from_data_source(config) }
    }

    pub fn scan(&self) -> &Arc<dyn ExecutionPlan> {
        &self.scan
    }

    pub fn config(&self) -> Result<&FileScanConfig> {
        let scan = self.scan.downcast_ref::<DataSourceExec>();
        match scan.and_then(|scan| scan.data_source().downcast_ref::<FileScanConfig>()) {
            Some(config) => Ok(config),
            None => internal_err!("expected a scan of files"),
        }
    }
}

impl DisplayAs for SelectionScan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(config) = self.config() else { return f.write_str("SelectionScan") };
        let parts: Vec<usize> = config.file_groups.iter().map(|group| group.len()).collect();
        write!(f, "SelectionScan: row groups by partition={parts:?}")?;
        if let Some(filter) = config.file_source().filter() {
            write!(f, ", predicate={filter}")?;
        }
        match config.limit {
            Some(limit) => write!(f, ", limit={limit}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for SelectionScan {
    fn name(&self) -> &'static str {
        "SelectionScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.scan.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.scan.apply_expressions(visit)
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        match children.len() {
            0 => Ok(self),
            found => internal_err!("expected no inputs, found {found}"),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let ended = context.session_config().get_extension::<Ended>();
        let stream = self.scan.execute(partition, context)?;
        Ok(match ended {
            Some(ended) => ended.guard(stream),
            None => stream,
        })
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.scan.metrics()
    }

    fn statistics_from_inputs(&self, inputs: &[Arc<Statistics>], args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        self.scan.statistics_from_inputs(inputs, args)
    }

    fn fetch(&self) -> Option<usize> {
        self.scan.fetch()
    }
}

/// Wraps each Parquet scan. Runs after all other rules, so that they still see plain scans.
#[derive(Debug)]
pub struct WrapScans;

impl PhysicalOptimizerRule for WrapScans {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let wrapped = plan.transform_up(|plan| {
            Ok(match SelectionScan::over(&plan) {
                Some(scan) => Transformed::yes(Arc::new(scan) as Arc<dyn ExecutionPlan>),
                None => Transformed::no(plan),
            })
        })?;
        Ok(wrapped.data)
    }

    fn name(&self) -> &'static str {
        "wrap_scans"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
