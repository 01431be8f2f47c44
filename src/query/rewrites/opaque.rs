//! A node that returns its input unchanged, and hides something of it from the optimizer.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Constraints, Result as DataFusionResult, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::filter_pushdown::{FilterDescription, FilterPushdownPhase};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use std::fmt;
use std::sync::Arc;

/// A node that hides something of its input from the optimizer.
#[derive(Debug)]
pub(in crate::query) struct OpaqueExec {
    pub(super) input: Arc<dyn ExecutionPlan>,
    pub(super) hides: Hides,
    properties: Arc<PlanProperties>,
}

/// The property of its input that a node hides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::query) enum Hides {
    /// The input itself from filters: filters above the node stay there and run on whole batches.
    Input,
    /// That the keys of groups are unique.
    Uniqueness,
    /// The sort order and the constant columns.
    Order,
}

impl OpaqueExec {
    pub(in crate::query) fn over(input: Arc<dyn ExecutionPlan>, hides: Hides) -> Arc<dyn ExecutionPlan> {
        let properties = input.properties();
        let equivalences = match hides {
            Hides::Input => properties.eq_properties.clone(),
            Hides::Uniqueness => properties.eq_properties.clone().with_constraints(Constraints::default()),
            Hides::Order => EquivalenceProperties::new(input.schema()),
        };
        let properties = Arc::new(PlanProperties::clone(properties).with_eq_properties(equivalences));
        Arc::new(OpaqueExec { input, hides, properties })
    }
}

impl DisplayAs for OpaqueExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: hides={:?}", self.name(), self.hides)
    }
}

impl ExecutionPlan for OpaqueExec {
    fn name(&self) -> &'static str {
        "OpaqueExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![self.hides != Hides::Order]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DataFusionResult<TreeNodeRecursion>,
    ) -> DataFusionResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        match <[_; 1]>::try_from(children) {
            Ok([input]) => Ok(OpaqueExec::over(input, self.hides)),
            Err(children) => datafusion::common::internal_err!("expected 1 input, found {}", children.len()),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> DataFusionResult<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        input_stats: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> DataFusionResult<Arc<Statistics>> {
        Ok(input_stats.first().map_or_else(|| Arc::new(Statistics::new_unknown(&self.schema())), Arc::clone))
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }

    fn supports_limit_pushdown(&self) -> bool {
        self.hides == Hides::Uniqueness
    }

    fn gather_filters_for_pushdown(
        &self,
        _: FilterPushdownPhase,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        _: &ConfigOptions,
    ) -> DataFusionResult<FilterDescription> {
        match self.hides {
            Hides::Input => Ok(FilterDescription::all_unsupported(&filters, &self.children())),
            Hides::Uniqueness | Hides::Order => FilterDescription::from_children(filters, &self.children()),
        }
    }
}
