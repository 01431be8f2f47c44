//! Scans of sorted row groups, and how they are cut.

use super::exec::StepJoinExec;
use crate::query::rewrites::OpaqueExec;
use crate::query::scan::parquet_scan::{SortedRows, balanced, num_rows, scan_of};
use arrow::datatypes::DataType;
use datafusion::common::stats::Precision;
use datafusion::common::{Result as DataFusionResult, ScalarValue, Statistics, internal_err};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{
    FileGroup, FileScanConfig, FileScanConfigBuilder, FileSource, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};
use datafusion::physical_expr::{PhysicalExpr, conjunction};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use std::sync::Arc;

/// The runs of some rows, from the first to the last.
type RunIds = (u32, u32);

/// An input of a join in partitions.
pub(super) struct PartitionedInput {
    pub(super) input: Arc<dyn ExecutionPlan>,
    /// The runs of each partition.
    pub(super) run_ids: Vec<Option<RunIds>>,
}

/// An input of a join: a scan of rows that are sorted by run and step, under nodes that keep their order.
pub(super) struct SortedScan<'a> {
    input: &'a Arc<dyn ExecutionPlan>,
    config: &'a FileScanConfig,
    /// The row groups by partition, with their runs.
    groups: Vec<Vec<(&'a PartitionedFile, RunIds)>>,
    /// Whether the scan is the probe side of another join of sorted rows. Its partitions must stay.
    pub(super) is_cut: bool,
    /// Whether a filter may drop rows.
    is_filtered: bool,
}

impl<'a> SortedScan<'a> {
    /// Returns the scan below a join's input; `None` if the input has other nodes or rows of several models.
    pub(super) fn below(input: &'a Arc<dyn ExecutionPlan>) -> Option<SortedScan<'a>> {
        let (mut node, mut is_cut, mut is_filtered) = (input, false, false);
        let config = loop {
            if let Some(config) = scan_of(node) {
                break config;
            }
            is_cut |= node.is::<StepJoinExec>();
            is_filtered |= node.is::<FilterExec>();
            node = below(node)?;
        };
        if config.limit.is_some() || !config.file_source().is::<ParquetSource>() {
            return None;
        }
        let (mut groups, mut table): (Vec<Vec<_>>, Option<&SortedRows>) = (Vec::new(), None);
        let mut last_run = 0;
        for group in &config.file_groups {
            let mut parts = Vec::new();
            for file in group.files() {
                let rows = file.extension::<SortedRows>()?;
                let is_next = table.is_none_or(|table| (table.table, &table.model) == (rows.table, &rows.model))
                    && last_run <= rows.run_ids.0;
                if !is_next {
                    return None;
                }
                (table, last_run) = (Some(rows), rows.run_ids.1);
                parts.push((file, rows.run_ids));
            }
            groups.push(parts);
        }
        is_filtered |= config.file_source().filter().is_some();
        Some(SortedScan { input, config, groups, is_cut, is_filtered })
    }

    /// Returns whether the table is `runs`.
    pub(super) fn is_of_runs(&self) -> bool {
        self.parts().next().and_then(|(file, _)| file.extension::<SortedRows>()).is_some_and(SortedRows::are_runs)
    }

    /// Returns whether each of these partitions of a probe side may read the scan again. If a filter drops runs, a hash
    /// join is faster, because it reads only the steps of the other runs.
    pub(super) fn is_cheap(&self, partitions: usize, num_probe_rows: usize) -> bool {
        let has_fixed_width =
            |kind: &DataType| kind.is_primitive() || matches!(kind, DataType::Boolean | DataType::Dictionary(..));
        let columns = self.input.schema();
        let is_narrow = columns.fields().iter().all(|field| has_fixed_width(field.data_type()));
        !self.is_filtered && is_narrow && 16 * partitions * self.num_rows() <= num_probe_rows
    }

    /// Returns the number of partitions.
    pub(super) fn num_groups(&self) -> usize {
        self.groups.len()
    }

    /// Returns whether a column of the input is this column of the table.
    pub(super) fn is_column(&self, expr: &Arc<dyn PhysicalExpr>, name: &str) -> bool {
        let Some(mut column) = index_of(expr) else { return false };
        let mut node = self.input;
        while !node.is::<DataSourceExec>() {
            let (Some(next), Some(input)) = (input_column(node, column), below(node)) else { return false };
            (column, node) = (next, input);
        }
        let stored = match self.config.file_source().projection() {
            Some(projection) => projection.as_ref().get(column).and_then(|projected| index_of(&projected.expr)),
            None => Some(column),
        };
        let field = stored.and_then(|stored| self.config.file_schema().fields().get(stored));
        field.is_some_and(|field| field.name() == name)
    }

    fn parts(&self) -> impl Iterator<Item = (&'a PartitionedFile, RunIds)> {
        self.groups.iter().flatten().copied()
    }

    /// Returns the number of rows to read.
    pub(super) fn num_rows(&self) -> usize {
        self.parts().filter_map(|(file, _)| num_rows(file)).sum()
    }

    /// Returns the input in this number of partitions of about equal numbers of rows. With `other`,
    /// leaves out row groups without runs of that scan.
    pub(super) fn cut(&self, partitions: usize, other: Option<&SortedScan<'_>>) -> DataFusionResult<PartitionedInput> {
        if self.is_cut {
            let run_ids = self.groups.iter().map(|parts| bounds(parts)).collect();
            return Ok(PartitionedInput { input: Arc::clone(self.input), run_ids });
        }
        let others: Option<Vec<RunIds>> = other.map(|other| other.parts().map(|(_, run_ids)| run_ids).collect());
        let is_needed = |&(_, run_ids): &(&PartitionedFile, RunIds)| {
            others.as_ref().is_none_or(|others| {
                let next = others.partition_point(|other| other.1 < run_ids.0);
                others.get(next).is_some_and(|&other| overlap(run_ids, other))
            })
        };
        let parts = self.parts().filter(is_needed).collect();
        let groups = balanced(parts, partitions, |(file, _)| num_rows(file).unwrap_or(1));
        let run_ids = groups.iter().map(|parts| bounds(parts)).collect();
        Ok(PartitionedInput { input: self.with_groups(&groups, None)?, run_ids })
    }

    /// Returns the input with one partition for each of the ranges of runs. It has all rows of these runs, and may have
    /// others.
    pub(super) fn cut_at(&self, run_ids: &[Option<RunIds>]) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let of_runs = |wanted: &Option<RunIds>| -> Vec<_> {
            let is_wanted = |&(_, found): &(_, RunIds)| wanted.is_some_and(|wanted| overlap(found, wanted));
            self.parts().filter(is_wanted).collect()
        };
        let groups: Vec<Vec<_>> = run_ids.iter().map(of_runs).collect();
        let both = |one: RunIds, other: RunIds| (one.0.min(other.0), one.1.max(other.1));
        let wanted = run_ids.iter().flatten().copied().reduce(both);
        let kept = groups.iter().filter_map(|parts| bounds(parts)).reduce(both);
        let num_runs = |(first, last): RunIds| u64::from(last - first) + 1;
        // A filter inside the reader pays if it drops most rows.
        let filter = wanted.filter(|&wanted| kept.is_some_and(|kept| 2 * num_runs(wanted) <= num_runs(kept)));
        self.with_groups(&groups, filter)
    }

    fn with_groups(
        &self,
        groups: &[Vec<(&PartitionedFile, RunIds)>],
        filter: Option<RunIds>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let mut statistics = Statistics::new_unknown(self.config.file_schema());
        statistics.num_rows = Precision::Inexact(groups.iter().flatten().filter_map(|(file, _)| num_rows(file)).sum());
        let groups = groups.iter().map(|parts| FileGroup::new(parts.iter().map(|(file, _)| (*file).clone()).collect()));
        let mut config = FileScanConfigBuilder::from(self.config.clone())
            .with_file_groups(groups.collect())
            .with_statistics(statistics)
            // Otherwise threads would take row groups of other partitions.
            .with_preserve_order(true);
        if let (Some(run_ids), Some(source)) = (filter, self.config.file_source().downcast_ref::<ParquetSource>()) {
            let filters = source.filter().into_iter().chain(of_runs(self.config, run_ids)?);
            config = config.with_source(Arc::new(source.with_predicate(conjunction(filters))));
        }
        over(self.input, DataSourceExec::from_data_source(config.build()))
    }
}

/// Returns the runs of sorted row groups.
fn bounds(parts: &[(&PartitionedFile, RunIds)]) -> Option<RunIds> {
    parts.first().zip(parts.last()).map(|((_, first), (_, last))| (first.0, last.1))
}

fn overlap(a: RunIds, b: RunIds) -> bool {
    a.0 <= b.1 && b.0 <= a.1
}

/// Returns conditions on `run_id` that only these runs meet.
fn of_runs(config: &FileScanConfig, (first, last): RunIds) -> DataFusionResult<[Arc<dyn PhysicalExpr>; 2]> {
    let run_id = config.file_schema().index_of("run_id")?;
    let compare = |operator, value: u32| -> Arc<dyn PhysicalExpr> {
        let column = Arc::new(Column::new("run_id", run_id));
        Arc::new(BinaryExpr::new(column, operator, Arc::new(Literal::new(ScalarValue::from(value)))))
    };
    Ok([compare(Operator::GtEq, first), compare(Operator::LtEq, last)])
}

/// Returns the index of a column; `None` for other expressions.
pub(super) fn index_of(expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    expr.downcast_ref::<Column>().map(Column::index)
}

/// Returns the input of a node that keeps the order and the keys of rows: a filter, a projection, a barrier, or a join
/// by run and step.
fn below(node: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    if let Some(join) = node.downcast_ref::<StepJoinExec>() {
        return Some(&join.probe);
    }
    let keeps = node.is::<ProjectionExec>()
        || node.is::<OpaqueExec>()
        || node.downcast_ref::<FilterExec>().is_some_and(|filter| filter.fetch().is_none());
    node.children().first().copied().filter(|_| keeps)
}

/// Returns the column of a node's input that is this column of the node.
fn input_column(node: &Arc<dyn ExecutionPlan>, column: usize) -> Option<usize> {
    if let Some(join) = node.downcast_ref::<StepJoinExec>() {
        return join.probe_column(column);
    }
    if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        return index_of(&projection.expr().get(column)?.expr);
    }
    match node.downcast_ref::<FilterExec>().and_then(|filter| filter.projection().as_ref()) {
        Some(columns) => columns.get(column).copied(),
        None => Some(column),
    }
}

/// Replaces the scan below a join's input.
fn over(node: &Arc<dyn ExecutionPlan>, scan: Arc<dyn ExecutionPlan>) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
    if node.is::<DataSourceExec>() {
        return Ok(scan);
    }
    let Some(input) = below(node) else { return internal_err!("no scan below {}", node.name()) };
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    Arc::clone(node).replace_children(vec![over(input, scan)?], options)
}
