//! A condition in SQL on the rows of a table in memory.

use super::errors::query_error;
use super::options::QueryOptions;
use super::volatility::is_volatile;
use super::{guard, run_index, session};
use crate::archive::Phases;
use crate::cancellation::CancellationToken;
use crate::error::{Error, Result};
use crate::runtime::block_on_unless;
use arrow::array::RecordBatch;
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNode;
use datafusion::datasource::empty::EmptyTable;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::simplify_expressions::{ExprSimplifier, SimplifyContext};
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use datafusion::physical_plan::PhysicalExpr;
use datafusion::prelude::SessionContext;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A condition on the columns of a row, such as `phase = 'late' AND empty_cells(board) > 4`.
#[derive(Debug)]
pub(crate) struct RowCondition {
    condition: Arc<dyn PhysicalExpr>,
    schema: SchemaRef,
}

impl RowCondition {
    /// Plans a condition on rows with these columns. It may use the functions of queries, but no subqueries,
    /// parameters, aggregates, random numbers or the time.
    ///
    /// # Errors
    /// [`ErrorKind::Query`](crate::ErrorKind::Query) and
    /// [`ErrorKind::QueryRefused`](crate::ErrorKind::QueryRefused), as for queries.
    pub(crate) fn plan(
        text: &str,
        schema: &SchemaRef,
        phases: Phases,
        cancel: &CancellationToken,
    ) -> Result<RowCondition> {
        const TABLE: &str = "steps";
        guard::check_length(text)?;
        let state = SessionStateBuilder::new().with_config(session::config(&QueryOptions::default()));
        let context = SessionContext::new_with_state(guard::configure(state, phases).build());
        let rows = Arc::new(EmptyTable::new(Arc::clone(schema)));
        context.register_table(guard::quoted(TABLE), rows).map_err(query_error)?;
        let (text, state) = (text.to_owned(), context.state());
        let planning = async move {
            // The text must be one expression by itself: not `true) OR (true`, nor a condition and an ORDER BY.
            let dialect = state.config_options().sql_parser.dialect;
            state.sql_to_expr(&text, &dialect).map_err(query_error)?;
            let statement = format!("SELECT 1 FROM {TABLE} WHERE (\n{text}\n)");
            let plan = guard::planned(&statement, &[TABLE], &state).await?;
            let analyzer = state.analyzer();
            let plan = analyzer.execute_and_check(plan, state.config_options(), |_, _| {}).map_err(query_error)?;
            if is_volatile(&plan).map_err(query_error)? {
                return Err(Error::refused("a random number or the time", "a condition must depend only on the row"));
            }
            let filter = plan.inputs().into_iter().find_map(|plan| match plan {
                LogicalPlan::Filter(filter) if matches!(*filter.input, LogicalPlan::TableScan(_)) => Some(filter),
                _ => None,
            });
            let only_the_row = |part: &str| Error::refused(part, "a condition must depend only on the row");
            let filter = filter.ok_or_else(|| only_the_row("a subquery"))?;
            let has = |is_it: fn(&Expr) -> bool| filter.predicate.exists(|part| Ok(is_it(part))).map_err(query_error);
            if has(is_subquery)? {
                return Err(only_the_row("a subquery"));
            }
            if has(|part| matches!(part, Expr::WindowFunction(_)))? {
                return Err(only_the_row("a window function"));
            }
            let schema = filter.input.schema();
            // Some functions exist only until a plan is simplified.
            let context = SimplifyContext::builder().with_schema(Arc::clone(schema)).build();
            let predicate = ExprSimplifier::new(context).simplify(filter.predicate.clone()).map_err(query_error)?;
            state.create_physical_expr(predicate, schema).map_err(query_error)
        };
        let condition = block_on_unless(planning, || cancel.check())?;
        let used: BTreeSet<usize> = collect_columns(&condition).iter().map(|column| column.index()).collect();
        let schema =
            Arc::new(schema.project(&used.into_iter().collect::<Vec<_>>()).map_err(|e| query_error(e.into()))?);
        let condition = reassign_expr_columns(condition, &schema).map_err(query_error)?;
        Ok(RowCondition { condition, schema })
    }

    /// Returns the columns that the condition uses.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the rows of a batch of these columns for which the condition is true.
    ///
    /// # Errors
    /// [`ErrorKind::Query`](crate::ErrorKind::Query), for example for a cast that fails.
    pub(crate) fn rows(&self, batch: &RecordBatch) -> Result<BooleanBuffer> {
        run_index::verdicts(self.condition.as_ref(), batch).map_err(query_error)
    }
}

fn is_subquery(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_))
}
