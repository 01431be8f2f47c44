//! Restriction of a session to what statements may use.

use super::super::rewrites::{KEEP_VALUES, TYPE_LITERALS, TypeOperands, logical_rules};
use super::super::udf::board_udfs;
use super::plan::EXCLUDED;
use super::signed_sums::SignedSum;
use super::sizes::BOUND_SIZES;
use crate::archive::Phases;
use datafusion::common::TableReference;
use datafusion::execution::{SessionStateBuilder, SessionStateDefaults};
use datafusion::logical_expr::planner::ExprPlanner;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF};
use datafusion::optimizer::{Analyzer, AnalyzerRule, Optimizer};
use std::collections::HashMap;
use std::sync::Arc;

/// Returns a reference that always means one of our tables, for names in any case and with any characters.
pub(in crate::query) fn quoted(name: &str) -> TableReference {
    TableReference::bare(name.to_owned())
}

/// Restricts a session to what statements may use.
pub(in crate::query) fn configure(state: SessionStateBuilder, phases: Phases) -> SessionStateBuilder {
    let is_excluded = |function: &Arc<ScalarUDF>| EXCLUDED.contains(&function.name());
    let scalars = SessionStateDefaults::default_scalar_functions().into_iter().filter(|known| !is_excluded(known));
    let scalars = scalars.chain(board_udfs(phases)).collect();
    let sum = Arc::new(AggregateUDF::new_from_impl(SignedSum::new()));
    let aggregates = SessionStateDefaults::default_aggregate_functions().into_iter().chain([sum]).collect();
    let planners = std::iter::once(Arc::new(TypeOperands) as Arc<dyn ExprPlanner>);
    let planners = planners.chain(SessionStateDefaults::default_expr_planners()).collect();
    let first = std::iter::once(Arc::new(TYPE_LITERALS) as Arc<dyn AnalyzerRule + Send + Sync>);
    state
        .with_default_features()
        .with_analyzer_rules(first.chain(Analyzer::new().rules).collect())
        .with_optimizer_rules(logical_rules(Optimizer::new().rules))
        .with_table_functions(HashMap::new())
        .with_file_formats(Vec::new())
        .with_table_factories(HashMap::new())
        .with_higher_order_functions(Vec::new())
        .with_scalar_functions(scalars)
        .with_aggregate_functions(aggregates)
        .with_expr_planners(planners)
        .with_analyzer_rule(Arc::new(KEEP_VALUES))
        .with_analyzer_rule(Arc::new(BOUND_SIZES))
}
