//! An identity node that blocks one kind of optimization across it.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Constraints, Result as DataFusionResult, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, LexOrdering, OrderingRequirements, PhysicalExpr};
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::filter_pushdown::{FilterDescription, FilterPushdownPhase};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, InputDistributionRequirements, PlanProperties,
};
use std::fmt;
use std::sync::Arc;

/// A node that returns its input unchanged. Its [`Purpose`] says what the optimizer must not do across it.
#[derive(Debug)]
pub(in crate::query) struct BarrierExec {
    input: Arc<dyn ExecutionPlan>,
    purpose: Purpose,
    /// The sort order that the node requires of its input, if any.
    order: Option<LexOrdering>,
    properties: Arc<PlanProperties>,
}

/// The optimization that a node blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::query) enum Purpose {
    /// Blocks filter pushdown: filters above the node stay there and run on whole batches.
    BlockFilters,
    /// Hides that the keys of a GROUP BY are unique, so that the optimizer keeps sorts above the node.
    HideUniqueness,
    /// Blocks filter pushdown where columns share a name, because DataFusion matches filters to columns by
    /// name.
    BlockNamedFilters,
    /// Blocks sort pushdown: sorts above the node stay there, instead of moving below a LIMIT with OFFSET.
    BlockSorts,
    /// Requires a single partition in the sort order of its input, so that the optimizer keeps the sort below.
    RequireOrder,
    /// Hides the sort order and the constant columns of its input, so that the optimizer keeps sorts above the node.
    HideOrder,
    /// Hides its input completely, so that a rule cannot match nodes on both sides of the barrier.
    HideInput,
}

impl BarrierExec {
    pub(in crate::query) fn over(input: Arc<dyn ExecutionPlan>, purpose: Purpose) -> Arc<dyn ExecutionPlan> {
        let order = input.properties().output_ordering().filter(|_| purpose == Purpose::RequireOrder).cloned();
        BarrierExec::with_order(input, purpose, order)
    }

    fn with_order(
        input: Arc<dyn ExecutionPlan>,
        purpose: Purpose,
        order: Option<LexOrdering>,
    ) -> Arc<dyn ExecutionPlan> {
        let properties = input.properties();
        let properties = match purpose {
            Purpose::BlockFilters
            | Purpose::BlockNamedFilters
            | Purpose::BlockSorts
            | Purpose::RequireOrder
            | Purpose::HideInput => Arc::clone(properties),
            Purpose::HideOrder => {
                let equivalences = EquivalenceProperties::new(input.schema());
                Arc::new(PlanProperties::clone(properties).with_eq_properties(equivalences))
            }
            Purpose::HideUniqueness => {
                let equivalences = properties.eq_properties.clone().with_constraints(Constraints::default());
                Arc::new(PlanProperties::clone(properties).with_eq_properties(equivalences))
            }
        };
        Arc::new(BarrierExec { input, purpose, order, properties })
    }
}

/// Returns the input of `plan` if `plan` is a node with this purpose.
pub(super) fn below(plan: &Arc<dyn ExecutionPlan>, purpose: Purpose) -> Option<&Arc<dyn ExecutionPlan>> {
    let barrier = plan.downcast_ref::<BarrierExec>().filter(|barrier| barrier.purpose == purpose)?;
    Some(&barrier.input)
}

impl DisplayAs for BarrierExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl ExecutionPlan for BarrierExec {
    fn name(&self) -> &'static str {
        match self.purpose {
            Purpose::BlockFilters => "BlockFilters",
            Purpose::HideUniqueness => "HideUniqueness",
            Purpose::BlockNamedFilters => "BlockNamedFilters",
            Purpose::BlockSorts => "BlockSorts",
            Purpose::RequireOrder => "RequireOrder",
            Purpose::HideOrder => "HideOrder",
            Purpose::HideInput => "HideInput",
        }
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        match self.purpose {
            Purpose::HideInput => Vec::new(),
            _ => vec![self.order.clone().map(OrderingRequirements::from)],
        }
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(match self.purpose {
            Purpose::HideInput => Vec::new(),
            Purpose::RequireOrder => vec![Distribution::SinglePartition],
            _ => vec![Distribution::UnspecifiedDistribution],
        })
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        match self.purpose {
            Purpose::HideInput => Vec::new(),
            purpose => vec![!matches!(purpose, Purpose::BlockSorts | Purpose::HideOrder)],
        }
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false; self.children().len()]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        match self.purpose {
            Purpose::HideInput => Vec::new(),
            _ => vec![&self.input],
        }
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
        if self.purpose == Purpose::HideInput && children.is_empty() {
            return Ok(self);
        }
        let children: Result<[_; 1], _> = children.try_into();
        match children {
            Ok([input]) => Ok(BarrierExec::with_order(input, self.purpose, self.order.clone())),
            Err(children) => datafusion::common::internal_err!("expected 1 input, found {}", children.len()),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> DataFusionResult<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition); self.children().len()]
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
        self.purpose == Purpose::HideUniqueness
    }

    fn gather_filters_for_pushdown(
        &self,
        _: FilterPushdownPhase,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        _: &ConfigOptions,
    ) -> DataFusionResult<FilterDescription> {
        match self.purpose {
            Purpose::BlockFilters | Purpose::BlockNamedFilters => {
                Ok(FilterDescription::all_unsupported(&filters, &self.children()))
            }
            Purpose::HideUniqueness
            | Purpose::HideOrder
            | Purpose::HideInput
            | Purpose::BlockSorts
            | Purpose::RequireOrder => FilterDescription::from_children(filters, &self.children()),
        }
    }
}
