//! The tables of an archive as tables of DataFusion.
//!
//! A scan of `steps` evaluates run-level filters once per run and reads only the rows of the matching runs. A scan of
//! `annotations` evaluates filters on the model once per file, because a file has one model. Both pass other filters
//! to the reader if that saves decoding.

use crate::archive::{Archive, DataFile, TableName, table_schema};
use crate::error::{Error, Result};
use crate::query::engine::errors::{external, query_error};
use crate::query::rewrites::{Hides, OpaqueExec};
use crate::query::scan::metadata_cache::MetadataCache;
use crate::query::scan::parquet_scan::{ARCHIVE_URL, ParquetScan, RowGroupPart, archive_file, scan_of};
use crate::query::scan::reader_filters::{is_clustered, saves_nothing};
use crate::query::scan::run_index::{RunIndex, is_about_runs, step_range, verdicts};
use crate::query::tasks::Division;
use crate::system::workers;
use arrow::array::{RecordBatch, StringArray};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DataFusionError, Result as DataFusionResult};
use datafusion::datasource::physical_plan::FileGroup;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::{ExecutionPlan, collect};
use futures::StreamExt;
use rayon::prelude::*;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::thread::available_parallelism;
use tokio::task::spawn_blocking;

/// The column of `annotations` that has one value in each file.
const MODEL: &str = "model";

/// A table at the version of an archive.
#[derive(Debug)]
pub(in crate::query) struct ArchiveTable {
    table: TableName,
    archive: Archive,
    /// The table `runs`, if this is `steps`.
    runs: Option<Arc<ArchiveTable>>,
}

impl ArchiveTable {
    /// `runs` is the table `runs`, if this is `steps`.
    pub(in crate::query) fn new(
        archive: &Archive,
        table: TableName,
        runs: Option<Arc<ArchiveTable>>,
    ) -> Arc<ArchiveTable> {
        Arc::new(ArchiveTable { table, archive: archive.clone(), runs })
    }

    fn cache(&self) -> DataFusionResult<&'static MetadataCache> {
        MetadataCache::of_archive(&self.archive).map_err(external)
    }

    fn files(&self) -> impl Iterator<Item = &DataFile> {
        self.archive.manifest().files(self.table)
    }

    /// Compares files with their commits, several files in parallel.
    async fn check(&self, files: &[&DataFile]) -> DataFusionResult<()> {
        let unchecked = self.archive.unchecked(files.iter().copied()).map_err(external)?;
        let check = |file: &DataFile| {
            let (archive, file) = (self.archive.clone(), file.clone());
            spawn_blocking(move || archive.check_file(&file))
        };
        let at_once = available_parallelism().map_or(1, usize::from);
        let mut checks = futures::stream::iter(unchecked.into_iter().map(check)).buffered(at_once);
        while let Some(checked) = checks.next().await {
            checked.map_err(|error| DataFusionError::External(error.into()))?.map_err(external)?;
        }
        Ok(())
    }

    /// Returns the run index of this version of `runs`, from the cache if possible.
    async fn run_index(&self, state: &dyn Session) -> DataFusionResult<Arc<RunIndex>> {
        let cache = self.cache()?;
        if let Some(index) = cache.run_index(&self.archive) {
            return Ok(index);
        }
        let plan = self.scan(state, Some(&RunIndex::columns()?), &[], None).await?;
        let batches = collect(Arc::clone(&plan), state.task_ctx()).await?;
        let index = Arc::new(RunIndex::new(&concat_batches(&plan.schema(), &batches)?)?);
        cache.keep_run_index(&self.archive, &index);
        Ok(index)
    }

    fn parquet_scan(&self) -> DataFusionResult<ParquetScan> {
        let footers = self.cache()?.footers();
        let sorted_by: &[&str] = match self.table {
            TableName::Runs => &["run_id"],
            TableName::Steps => &["run_id", "step_index"],
            TableName::Annotations => &["model", "run_id", "step_index"],
        };
        let (url, schema) = (ARCHIVE_URL.to_owned(), table_schema(self.table));
        Ok(ParquetScan { url, schema, sorted_by, footers })
    }

    /// Returns, for each file, the rows of the runs, steps and models that pass the filters.
    async fn choose_rows(&self, state: &dyn Session, filters: &[Expr]) -> DataFusionResult<Vec<RowsOfFile>> {
        if self.table == TableName::Annotations {
            return self.files_of_models(state, filters);
        }
        let decided: Vec<&Expr> = filters.iter().filter(|filter| self.is_decided(filter)).collect();
        let steps = step_range(filters);
        let Some(runs) = &self.runs else { return Ok(self.every_row()) };
        if decided.is_empty() && steps == (0..u64::MAX) {
            return Ok(self.every_row());
        }
        let index = runs.run_index(state).await?;
        let matching = index.matching(&decided, state)?;
        let rows = |file: &DataFile| match index.rows_of(file, &matching, &steps) {
            Some(rows) => Ok(Some(rows)),
            None => {
                let (path, found) = (self.archive.path().join(&file.path), format!("{} rows", file.num_rows));
                Err(external(Error::damaged(path, "data file", "the steps of its runs", found)))
            }
        };
        self.files().map(rows).collect()
    }

    /// Returns all rows of the files whose model passes the filters.
    fn files_of_models(&self, state: &dyn Session, filters: &[Expr]) -> DataFusionResult<Vec<RowsOfFile>> {
        let Some(filter) = conjunction(filters.iter().filter(|filter| self.is_decided(filter)).cloned()) else {
            return Ok(self.every_row());
        };
        let field = table_schema(self.table).field_with_name(MODEL)?.clone();
        let models = StringArray::from_iter(self.files().map(|file| file.model.as_deref()));
        let models = cast(&models, field.data_type())?;
        let files = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![models])?;
        let filter = state.create_physical_expr(filter, &DFSchema::try_from(files.schema())?)?;
        let verdicts = verdicts(filter.as_ref(), &files)?;
        Ok(verdicts.iter().map(|passes| if passes { None } else { Some(Vec::new()) }).collect())
    }

    fn every_row(&self) -> Vec<RowsOfFile> {
        self.files().map(|_| None).collect()
    }

    /// Returns the filters for the reader if other filters must stay above it; `None` if the reader may have
    /// all.
    async fn filters_for_reader(
        &self,
        state: &dyn Session,
        parts: &[RowGroupPart],
        filters: &[Expr],
    ) -> DataFusionResult<Option<Option<Arc<dyn PhysicalExpr>>>> {
        let Some(middle) = parts.get(parts.len() / 2) else { return Ok(None) };
        let schema = table_schema(self.table);
        let df_schema = DFSchema::try_from(Arc::clone(&schema))?;
        let (mut inside, mut outside) = (Vec::new(), false);
        for filter in filters.iter().filter(|filter| !self.is_decided(filter)) {
            let mut columns = Vec::new();
            for column in filter.column_refs() {
                columns.push(schema.index_of(column.name())?);
            }
            let stays_outside = match is_clustered(self.table, filter) {
                Some(is_clustered) => !is_clustered,
                None => {
                    let sample = self.parquet_scan()?.plan(state, vec![middle.sample()], Some(&columns), None, None)?;
                    saves_nothing(filter, sample, state).await?
                }
            };
            if stays_outside {
                outside = true;
            } else {
                inside.push(filter.clone());
            }
        }
        if !outside {
            return Ok(None);
        }
        let inside = conjunction(inside).map(|filter| state.create_physical_expr(filter, &df_schema)).transpose()?;
        Ok(Some(inside))
    }

    /// Returns whether a filter is evaluated once per run, or once per model.
    fn is_decided(&self, filter: &Expr) -> bool {
        match self.table {
            TableName::Runs => false,
            TableName::Steps => is_about_runs(filter),
            TableName::Annotations => filter.column_refs().iter().all(|column| column.name() == MODEL),
        }
    }

    /// Returns the row groups that have any of these rows.
    async fn parts(&self, state: &dyn Session, rows: &[RowsOfFile]) -> DataFusionResult<Vec<RowGroupPart>> {
        let is_needed = |rows: &RowsOfFile| rows.as_ref().is_none_or(|ranges| !ranges.is_empty());
        let needed: Vec<(&DataFile, &RowsOfFile)> =
            self.files().zip(rows).filter(|(_, rows)| is_needed(rows)).collect();
        // A task checks only the files that it reads, before it reads them.
        if self.table == TableName::Runs || state.config().get_extension::<Division>().is_none() {
            self.check(&needed.iter().map(|(file, _)| *file).collect::<Vec<_>>()).await?;
        }
        let files = needed.iter().map(|(file, _)| archive_file(file)).collect::<DataFusionResult<Vec<_>>>()?;
        let scan = self.parquet_scan()?;
        let footers = scan.footers_of(state, &files).await?;
        let mut parts = Vec::new();
        for (((data, rows), file), footer) in needed.into_iter().zip(&files).zip(&footers) {
            parts.extend(scan.parts_of(file, footer, rows.as_deref(), Some(data)));
        }
        Ok(parts)
    }
}

#[async_trait]
impl TableProvider for ArchiveTable {
    fn schema(&self) -> SchemaRef {
        table_schema(self.table)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DataFusionResult<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| match self.is_decided(filter) {
            true => TableProviderFilterPushDown::Exact,
            // The filter stays in the plan until the physical optimizer moves it into the reader, which may
            // reject parts of it.
            false => TableProviderFilterPushDown::Inexact,
        };
        Ok(filters.iter().map(support).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let rows = self.choose_rows(state, filters).await?;
        let parts = self.parts(state, &rows).await?;
        let scan = self.parquet_scan()?;
        let Some(inside) = self.filters_for_reader(state, &parts, filters).await? else {
            return scan.plan(state, parts, projection, limit, None);
        };
        let plan = scan.plan(state, parts, projection, limit, inside)?;
        Ok(OpaqueExec::over(plan, Hides::Input))
    }
}

/// Compares the files that a plan reads with their commits, several files in parallel. Nodes for which `is_done` is true,
/// and all below them, need no check.
pub(in crate::query) fn check_files(
    archive: &Archive,
    plan: &Arc<dyn ExecutionPlan>,
    is_done: &dyn Fn(&Arc<dyn ExecutionPlan>) -> bool,
) -> Result<()> {
    let mut paths: HashSet<&str> = HashSet::new();
    let visited = plan.apply(|node| {
        if is_done(node) {
            return Ok(TreeNodeRecursion::Jump);
        }
        let config = scan_of(node).filter(|config| config.object_store_url.as_str().starts_with(ARCHIVE_URL));
        for file in config.iter().flat_map(|config| &config.file_groups).flat_map(FileGroup::files) {
            paths.insert(file.object_meta.location.as_ref());
        }
        Ok(TreeNodeRecursion::Continue)
    });
    visited.map_err(query_error)?;
    let files = TableName::ALL.into_iter().flat_map(|table| archive.manifest().files(table));
    let files: Vec<&DataFile> = files.filter(|file| paths.contains(file.path.as_str())).collect();
    workers::shared()?.install(|| files.into_par_iter().try_for_each(|file| archive.check_file(file)))
}

/// The rows of a file to read; `None` = all.
type RowsOfFile = Option<Vec<Range<usize>>>;
