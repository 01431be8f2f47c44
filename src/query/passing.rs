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

/// Returns its input unchanged. Its purpose says what the optimizer must not do across it.
#[derive(Debug)]
pub(super) struct Passing {
    input: Arc<dyn ExecutionPlan>,
    purpose: Purpose,
    /// The sort order that the node requires of its input, if any.
    order: Option<LexOrdering>,
    properties: Arc<PlanProperties>,
}

/// The optimization that a node blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Blocks filter pushdown: filters above the node stay there.
    KeepFilters,
    /// Hides that the rows of a GROUP BY are unique by their keys.
    ForgetKeys,
    /// Blocks filter pushdown where columns share a name, because DataFusion matches filters to columns by
    /// name.
    KeepNamedFilters,
    /// Blocks sort pushdown: sorts above the node stay there.
    KeepSorts,
    /// Requires a single, sorted partition, so that DataFusion keeps the sort below it.
    NeedOrder,
    /// Hides the sort order and the constant columns of its input.
    ForgetOrder,
}

impl Passing {
    pub(super) fn over(input: Arc<dyn ExecutionPlan>, purpose: Purpose) -> Arc<dyn ExecutionPlan> {
        let order = input.properties().output_ordering().filter(|_| purpose == Purpose::NeedOrder).cloned();
        Passing::with_order(input, purpose, order)
    }

    fn with_order(
        input: Arc<dyn ExecutionPlan>,
        purpose: Purpose,
        order: Option<LexOrdering>,
    ) -> Arc<dyn ExecutionPlan> {
        let properties = input.properties();
        let properties = match purpose {
            Purpose::KeepFilters | Purpose::KeepNamedFilters | Purpose::KeepSorts | Purpose::NeedOrder => {
                Arc::clone(properties)
            }
            Purpose::ForgetOrder => {
                let equivalences = EquivalenceProperties::new(input.schema());
                Arc::new(PlanProperties::clone(properties).with_eq_properties(equivalences))
            }
            Purpose::ForgetKeys => {
                let equivalences = properties.eq_properties.clone().with_constraints(Constraints::default());
                Arc::new(PlanProperties::clone(properties).with_eq_properties(equivalences))
            }
        };
        Arc::new(Passing { input, purpose, order, properties })
    }
}

/// Returns the input of `plan` if `plan` is a node with this purpose.
pub(super) fn below(plan: &Arc<dyn ExecutionPlan>, purpose: Purpose) -> Option<&Arc<dyn ExecutionPlan>> {
    let passing = plan.downcast_ref::<Passing>().filter(|passing| passing.purpose == purpose)?;
    Some(&passing.input)
}

impl DisplayAs for Passing {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl ExecutionPlan for Passing {
    fn name(&self) -> &'static str {
        match self.purpose {
            Purpose::KeepFilters => "KeepFilters",
            Purpose::ForgetKeys => "ForgetKeys",
            Purpose::KeepNamedFilters => "KeepNamedFilters",
            Purpose::KeepSorts => "KeepSorts",
            Purpose::NeedOrder => "NeedOrder",
            Purpose::ForgetOrder => "ForgetOrder",
        }
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        vec![self.order.clone().map(OrderingRequirements::from)]
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![match self.purpose {
            Purpose::NeedOrder => Distribution::SinglePartition,
            _ => Distribution::UnspecifiedDistribution,
        }])
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![!matches!(self.purpose, Purpose::KeepSorts | Purpose::ForgetOrder)]
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
        let children: Result<[_; 1], _> = children.try_into();
        match children {
            Ok([input]) => Ok(Passing::with_order(input, self.purpose, self.order.clone())),
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
        self.purpose == Purpose::ForgetKeys
    }

    fn gather_filters_for_pushdown(
        &self,
        _: FilterPushdownPhase,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        _: &ConfigOptions,
    ) -> DataFusionResult<FilterDescription> {
        match self.purpose {
            Purpose::KeepFilters | Purpose::KeepNamedFilters => {
                Ok(FilterDescription::all_unsupported(&filters, &self.children()))
            }
            Purpose::ForgetKeys | Purpose::ForgetOrder | Purpose::KeepSorts | Purpose::NeedOrder => {
                FilterDescription::from_children(filters, &self.children())
            }
        }
    }
}
