//! Parquet scans: plans that read row groups or parts of them, in order or in parallel.

use crate::archive::{DataFile, TableName, group_run_ids};
use crate::query::scan::reader_filters::SAMPLE_ROWS;
use crate::query::tasks::Division;
use arrow::datatypes::SchemaRef;
use datafusion::catalog::Session;
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, DataFusionError, Result as DataFusionResult, ScalarValue, Statistics};
use datafusion::config::TableParquetOptions;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::metadata::DFParquetMetadata;
use datafusion::datasource::physical_plan::parquet::{
    CachedParquetFileReaderFactory, ParquetAccessPlan, RowGroupAccess,
};
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::physical_expr::expressions::col;
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use futures::{StreamExt, TryStreamExt};
use object_store::{ObjectMeta, path::Path as StorePath};
use parquet::arrow::arrow_reader::RowSelection;
use parquet::file::metadata::ParquetMetaData;
use std::ops::Range;
use std::sync::Arc;

/// The URL of the archive's object store.
pub(in crate::query) const ARCHIVE_URL: &str = "a2store://archive";

/// The position of `run_id` in every table of an archive.
const RUN_ID: usize = 0;

/// The number of footers that are read in parallel.
const FOOTERS_AT_ONCE: usize = 32;

/// Session extension that asks scans for one partition per row group, in order.
pub(in crate::query) struct PartitionPerRowGroup;

/// The options for reading the files of a table.
pub(in crate::query) struct ParquetScan {
    /// The URL of the files' object store.
    pub(in crate::query) url: String,
    pub(in crate::query) schema: SchemaRef,
    /// The sort columns of the rows, across files and row groups.
    pub(in crate::query) sorted_by: &'static [&'static str],
    /// The cache of footers.
    pub(in crate::query) footers: Arc<FileMetadataCache>,
}

/// The runs and the model of a part of an archive's table, an extension of its `PartitionedFile`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::query) struct SortedRows {
    pub(in crate::query) table: TableName,
    /// The model of a part of `annotations`.
    pub(in crate::query) model: Option<String>,
    /// The range of runs of the row group.
    pub(in crate::query) run_ids: (u32, u32),
}

impl SortedRows {
    /// Returns whether the table is `runs`.
    pub(in crate::query) fn are_runs(&self) -> bool {
        self.table == TableName::Runs
    }
}

/// A row group, or some of its rows.
pub(in crate::query) struct RowGroupPart {
    file: PartitionedFile,
    num_rows: usize,
    /// The row group's index in its file, the file's number of row groups, and the row group's number of rows.
    row_group: (usize, usize, usize),
}

impl RowGroupPart {
    /// Returns some rows from the middle of the row group.
    pub(in crate::query) fn sample(&self) -> RowGroupPart {
        let (index, count, len) = self.row_group;
        let num_rows = len.min(SAMPLE_ROWS);
        let before = (len - num_rows) / 2;
        let selection = RowSelection::from_consecutive_ranges(std::iter::once(before..before + num_rows), len);
        let mut plan = ParquetAccessPlan::new_none(count);
        plan.set(index, RowGroupAccess::Selection(selection));
        RowGroupPart { file: self.file.clone().with_extension(plan), num_rows, row_group: self.row_group }
    }
}

impl ParquetScan {
    /// Returns a plan that reads these parts and drops the rows that fail the filter.
    ///
    /// With [`PartitionPerRowGroup`], each part is a partition. Otherwise, threads take the parts from a common
    /// queue.
    pub(in crate::query) fn plan(
        &self,
        state: &dyn Session,
        parts: Vec<RowGroupPart>,
        projection: Option<&Vec<usize>>,
        limit: Option<usize>,
        filter: Option<Arc<dyn PhysicalExpr>>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        if parts.is_empty() {
            let schema = match projection {
                Some(columns) => Arc::new(self.schema.project(columns)?),
                None => Arc::clone(&self.schema),
            };
            return Ok(Arc::new(EmptyExec::new(schema)));
        }
        let url = ObjectStoreUrl::parse(&self.url)?;
        let store = state.runtime_env().object_store(&url)?;
        let cache = Arc::clone(&self.footers);
        let parquet = TableParquetOptions {
            global: state.config_options().execution.parquet.clone(),
            ..TableParquetOptions::default()
        };
        let mut source = ParquetSource::new(Arc::clone(&self.schema))
            .with_table_parquet_options(parquet)
            .with_parquet_file_reader_factory(Arc::new(CachedParquetFileReaderFactory::new(store, cache)));
        if let Some(filter) = filter {
            source = source.with_predicate(filter);
        }

        let mut statistics = Statistics::new_unknown(&self.schema);
        statistics.num_rows = Precision::Exact(parts.iter().map(|part| part.num_rows).sum());
        let mut scan = FileScanConfigBuilder::new(url, Arc::new(source))
            .with_projection_indices(projection.cloned())?
            .with_limit(limit)
            .with_statistics(statistics);
        let files: Vec<PartitionedFile> = parts.into_iter().map(|part| part.file).collect();
        if state.config().get_extension::<PartitionPerRowGroup>().is_some() {
            scan = scan.with_file_groups(files.into_iter().map(|file| FileGroup::new(vec![file])).collect());
            let ascending =
                |name: &&str| Ok(PhysicalSortExpr::new_default(col(name, &self.schema)?).asc().nulls_last());
            let order = self.sorted_by.iter().map(ascending).collect::<DataFusionResult<Vec<_>>>()?;
            scan = scan.with_output_ordering(LexOrdering::new(order).into_iter().collect());
        } else {
            let rows = files.first().and_then(|file| file.extension::<SortedRows>());
            let division = state.config().get_extension::<Division>();
            let division = division.filter(|_| rows.is_some_and(|rows| !rows.are_runs()));
            let count = division.map_or(state.config().target_partitions(), |division| division.partitions);
            let count = count.clamp(1, files.len());
            let groups = balanced(files, count, |file| num_rows(file).unwrap_or(1)).into_iter();
            scan = scan.with_file_groups(groups.filter(|group| !group.is_empty()).map(FileGroup::new).collect());
        }
        Ok(DataSourceExec::from_data_source(scan.build()))
    }

    /// Reads the footers of files in parallel, from the cache if possible.
    pub(in crate::query) async fn footers_of(
        &self,
        state: &dyn Session,
        files: &[PartitionedFile],
    ) -> DataFusionResult<Vec<Arc<ParquetMetaData>>> {
        let store = state.runtime_env().object_store(ObjectStoreUrl::parse(&self.url)?)?;
        let footer = |file: &PartitionedFile| {
            let (store, cache, file) = (Arc::clone(&store), Arc::clone(&self.footers), file.object_meta.clone());
            async move { DFParquetMetadata::new(&store, &file).with_file_metadata_cache(Some(cache)).fetch_metadata().await }
        };
        let footers: Vec<_> = files.iter().map(footer).collect();
        futures::stream::iter(footers).buffered(FOOTERS_AT_ONCE).try_collect().await
    }

    /// Returns the row groups of a file, which is `data` if it belongs to an archive. With `ranges` (ascending and
    /// disjoint), returns only the rows in these ranges.
    pub(in crate::query) fn parts_of(
        &self,
        file: &PartitionedFile,
        footer: &ParquetMetaData,
        ranges: Option<&[Range<usize>]>,
        data: Option<&DataFile>,
    ) -> Vec<RowGroupPart> {
        let row_groups = footer.row_groups();
        let mut parts = Vec::new();
        let mut first_row = 0;
        for (i, row_group) in row_groups.iter().enumerate() {
            let len = usize::try_from(row_group.num_rows()).unwrap_or(0);
            let rows = first_row..first_row + len;
            first_row = rows.end;
            let (access, num_rows) = match ranges {
                None => (RowGroupAccess::Scan, len),
                Some(ranges) => access_to(ranges, rows),
            };
            if num_rows == 0 {
                continue;
            }
            let mut part = file.clone();
            if !matches!(access, RowGroupAccess::Scan) {
                let mut plan = ParquetAccessPlan::new_none(row_groups.len());
                plan.set(i, access);
                part = part.with_extension(plan);
            }
            // The reader takes the row groups that begin in its byte range.
            let column = row_group.column(0);
            let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
            let run_ids = data.map(|data| group_run_ids(row_group).unwrap_or((data.first_run_id, data.last_run_id)));
            if let (Some(data), Some(run_ids)) = (data, run_ids) {
                part = part.with_extension(SortedRows { table: data.table, model: data.model.clone(), run_ids });
            }
            let statistics = statistics(&self.schema, num_rows, run_ids);
            let file = part.with_range(start, start + 1).with_statistics(Arc::new(statistics));
            parts.push(RowGroupPart { file, num_rows, row_group: (i, row_groups.len(), len) });
        }
        parts
    }
}

/// Divides parts into `count` partitions of about the same number of rows, in order. A partition may be empty.
pub(in crate::query) fn balanced<T: Clone>(parts: Vec<T>, count: usize, num_rows: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let total = parts.iter().map(&num_rows).sum::<usize>().max(1);
    let (mut partitions, mut before) = (vec![Vec::new(); count], 0);
    for part in parts {
        let rows = num_rows(&part);
        partitions[((before + rows / 2) * count / total).min(count - 1)].push(part);
        before += rows;
    }
    partitions
}

/// Returns the number of rows of a part of a file, if its statistics have it.
pub(in crate::query) fn num_rows(part: &PartitionedFile) -> Option<usize> {
    part.statistics.as_ref()?.num_rows.get_value().copied()
}

/// Returns the scan that a node is; `None` for other nodes.
pub(in crate::query) fn scan_of(plan: &Arc<dyn ExecutionPlan>) -> Option<&FileScanConfig> {
    plan.downcast_ref::<DataSourceExec>()?.data_source().downcast_ref()
}

/// Returns an archive's file as DataFusion describes files.
pub(in crate::query) fn archive_file(file: &DataFile) -> DataFusionResult<PartitionedFile> {
    let location = StorePath::parse(&file.path).map_err(|error| DataFusionError::External(error.into()))?;
    Ok(immutable_file(location, file.num_bytes))
}

/// Describes a file that never changes. A fixed modification time makes its metadata cacheable.
pub(in crate::query) fn immutable_file(location: StorePath, num_bytes: u64) -> PartitionedFile {
    let last_modified = chrono::DateTime::UNIX_EPOCH;
    PartitionedFile::new_from_meta(ObjectMeta { location, last_modified, size: num_bytes, e_tag: None, version: None })
}

/// Returns the rows of a row group that lie in `ranges`, and their number.
fn access_to(ranges: &[Range<usize>], rows: Range<usize>) -> (RowGroupAccess, usize) {
    let first = ranges.partition_point(|range| range.end <= rows.start);
    let inside = ranges[first..].iter().take_while(|range| range.start < rows.end);
    let inside = inside.map(|range| range.start.max(rows.start) - rows.start..range.end.min(rows.end) - rows.start);
    let selection = RowSelection::from_consecutive_ranges(inside, rows.len());
    match selection.row_count() {
        all if all == rows.len() => (RowGroupAccess::Scan, all),
        selected => (RowGroupAccess::Selection(selection), selected),
    }
}

fn statistics(schema: &SchemaRef, num_rows: usize, run_ids: Option<(u32, u32)>) -> Statistics {
    let mut statistics = Statistics::new_unknown(schema);
    statistics.num_rows = Precision::Exact(num_rows);
    if let (Some((first, last)), Some(run_id)) = (run_ids, statistics.column_statistics.get_mut(RUN_ID)) {
        *run_id = ColumnStatistics {
            min_value: Precision::Inexact(ScalarValue::from(first)),
            max_value: Precision::Inexact(ScalarValue::from(last)),
            null_count: Precision::Exact(0),
            ..ColumnStatistics::new_unknown()
        };
    }
    statistics
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::arrow::arrow_reader::RowSelector;

    #[test]
    #[allow(clippy::single_range_in_vec_init)]
    fn rows_of_a_row_group() {
        let select = RowSelector::select;
        let skip = RowSelector::skip;
        let selection = |selectors: Vec<RowSelector>| RowGroupAccess::Selection(RowSelection::from(selectors));
        for (ranges, rows, expected) in [
            (vec![0..30], 10..20, (RowGroupAccess::Scan, 10)),
            (vec![10..15, 15..20], 10..20, (RowGroupAccess::Scan, 10)),
            (vec![0..10, 20..30], 10..20, (selection(vec![skip(10)]), 0)),
            (vec![], 10..20, (selection(vec![skip(10)]), 0)),
            (
                vec![5..12, 14..15, 19..40],
                10..20,
                (selection(vec![select(2), skip(2), select(1), skip(4), select(1)]), 4),
            ),
            (vec![11..12], 10..20, (selection(vec![skip(1), select(1), skip(8)]), 1)),
        ] {
            assert_eq!(access_to(&ranges, rows.clone()), expected, "{ranges:?} of {rows:?}");
        }
    }
}
