//! The DataFusion session of a query: tables, object stores, settings and rules.
//!
//! A statement sees the tables `runs` and `steps` and the user's tables. The object stores reach only their
//! files.

use super::barrier::{is_clustered, saves_nothing};
use super::cache::{self, Cached, METADATA_BYTES};
use super::fallible::{can_fail, guarded_conjunction};
use super::fences::fenced_physical;
use super::grouping::ForgetKeysOfGroups;
use super::guard;
use super::options::QueryOptions;
use super::passing::{Passing, Purpose};
use super::query_error;
use super::run_index::{RunIndex, is_about_runs, step_range};
use super::scan::{ARCHIVE_URL, ParquetScan, Part, archive_file, footers, immutable_file, parts_of};
use super::tables::{Source, UserTable};
use super::udf::external;
use super::yielding::YieldAboveJoins;
use crate::archive::{Archive, DataFile, Snapshot, TableName, table_schema};
use crate::error::{ErrorKind, Result};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{MemTable, Session, TableProvider};
use datafusion::common::{DFSchema, DataFusionError, Result as DataFusionResult, exec_err};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::cache::cache_manager::{CacheManagerConfig, FileMetadataCache};
use datafusion::execution::cache::default_cache::DefaultCache;
use datafusion::execution::object_store::ObjectStoreRegistry;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt;
use object_store::local::LocalFileSystem;
use object_store::{ObjectStore, path::Path as StorePath};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::available_parallelism;
use tokio::task::spawn_blocking;
use url::Url;

/// Returns a session with the tables and limits of an archive and of options.
pub(super) fn context(archive: &Archive, options: &QueryOptions) -> Result<SessionContext> {
    let mut stores = KnownStores(vec![(ARCHIVE_URL.to_owned(), archive.store()?)]);
    let mut user_tables: Vec<(&str, Arc<dyn TableProvider>)> = Vec::new();
    for (i, (name, table)) in options.tables.iter().enumerate() {
        user_tables.push((name, provider(table, i, &mut stores)?));
    }
    let cached = cache::of_archive(archive)?;
    cached.open(archive.snapshot());
    let caches = CacheManagerConfig::default()
        .with_file_metadata_cache(Some(cached.metadata()))
        .with_metadata_cache_limit(METADATA_BYTES);
    let runtime = RuntimeEnvBuilder::new()
        .with_object_store_registry(Arc::new(stores))
        .with_cache_manager(caches)
        .with_memory_pool(options.memory_pool()?)
        .with_disk_manager_builder(options.disk_manager())
        .build_arc()
        .map_err(|error| options.spill_error(error))?;
    let state = SessionStateBuilder::new().with_config(config(options)).with_runtime_env(runtime);
    let context = SessionContext::new_with_state(
        guard::configure(state, archive.phases()).with_physical_optimizer_rules(physical_rules()).build(),
    );
    let runs = Arc::new(ArchiveTable { table: TableName::Runs, archive: archive.clone(), runs: None });
    let of_steps = Some(Arc::clone(&runs));
    let steps = Arc::new(ArchiveTable { table: TableName::Steps, archive: archive.clone(), runs: of_steps });
    context.register_table(guard::quoted("runs"), runs).map_err(query_error)?;
    context.register_table(guard::quoted("steps"), steps).map_err(query_error)?;
    for (name, table) in user_tables {
        context.register_table(guard::quoted(name), table).map_err(query_error)?;
    }
    Ok(context)
}

/// DataFusion's physical rules with fences, and two rules of this crate.
fn physical_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules = fenced_physical(PhysicalOptimizer::default().rules);
    // Before every rule that uses sort orders, but after the rule that expects a GROUP BY directly under a
    // limit.
    let at = rules.iter().position(|rule| rule.name() == "LimitedDistinctAggregation").map_or(0, |at| at + 1);
    rules.insert(at, Arc::new(ForgetKeysOfGroups));
    rules.push(Arc::new(YieldAboveJoins));
    rules
}

/// The settings of a session. A memory limit allows one partition per
/// [`MIN_MEMORY_BYTES`](QueryOptions::MIN_MEMORY_BYTES), because parallel sorts compete for merge memory, and a
/// sort with too little memory fails.
fn config(options: &QueryOptions) -> SessionConfig {
    let mut config =
        SessionConfig::new().with_information_schema(false).with_default_catalog_and_schema("a2store", "v");
    if let Some(bytes) = options.memory_limit {
        let most = usize::try_from(bytes / QueryOptions::MIN_MEMORY_BYTES).unwrap_or(usize::MAX).max(1);
        config = config.with_target_partitions(SessionConfig::new().target_partitions().min(most));
    }
    let options = config.options_mut();
    options.execution.parquet.pushdown_filters = true;
    options.execution.parquet.reorder_filters = true;
    options.execution.collect_statistics = true;
    // DataFusion's check of the schema fails if a plan is less exact about nullability than the statement, as
    // in `DISTINCT (a > 1) IS TRUE`. No upstream issue was found.
    options.execution.skip_physical_aggregate_schema_check = true;
    options.execution.enable_recursive_ctes = false;
    // Some readers of the results do not support the string views that DataFusion prefers.
    options.sql_parser.map_string_types_to_utf8view = false;
    options.optimizer.expand_views_at_output = true;
    // Top-k filters cost more than they save: the reader evaluates the sort key again for every row, and prunes
    // few pages.
    options.optimizer.enable_topk_dynamic_filter_pushdown = false;
    // DataFusion makes this filter from each `min` and `max` of a plain column. It drops rows that other
    // aggregates of the same SELECT need: `SELECT max(move), max(step_index + 1)`. No upstream issue was found.
    options.optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    config
}

fn provider(table: &UserTable, index: usize, stores: &mut KnownStores) -> Result<Arc<dyn TableProvider>> {
    match &table.0 {
        Source::Batches { schema, batches } => {
            // One partition per thread, so that a join with the table runs in parallel.
            let count = SessionConfig::new().target_partitions().clamp(1, batches.len().max(1));
            let mut partitions = vec![Vec::new(); count];
            for (i, batch) in batches.iter().enumerate() {
                partitions[i * count / batches.len()].push(batch.clone());
            }
            Ok(Arc::new(MemTable::try_new(Arc::clone(schema), partitions).map_err(query_error)?))
        }
        Source::Parquet { schema, path, num_bytes, modified } => {
            let url = format!("a2store://table-{index}");
            let folder = path.parent().unwrap_or(Path::new("/"));
            let store = LocalFileSystem::new_with_prefix(folder)
                .map_err(|error| crate::Error::io(folder, std::io::Error::other(error)))?;
            stores.0.push((url.clone(), Arc::new(store)));
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let location = StorePath::parse(&name)
                .map_err(|error| crate::Error::argument("table", "a file name that object stores can have", error))?;
            // A separate cache, because the archive's cache identifies files by their names only.
            let footers = Arc::new(DefaultCache::new(METADATA_BYTES));
            let (schema, path) = (Arc::clone(schema), path.clone());
            Ok(Arc::new(FileTable { url, schema, path, location, num_bytes: *num_bytes, modified: *modified, footers }))
        }
    }
}

/// A registry with a fixed set of object stores.
#[derive(Debug)]
struct KnownStores(Vec<(String, Arc<dyn ObjectStore>)>);

impl ObjectStoreRegistry for KnownStores {
    fn register_store(&self, _: &Url, store: Arc<dyn ObjectStore>) -> Option<Arc<dyn ObjectStore>> {
        // Returns the store as if it had been replaced. The registry never serves it.
        Some(store)
    }

    fn get_store(&self, url: &Url) -> DataFusionResult<Arc<dyn ObjectStore>> {
        let asked = url.as_str().trim_end_matches('/');
        match self.0.iter().find(|(known, _)| known == asked) {
            Some((_, store)) => Ok(Arc::clone(store)),
            None => exec_err!("{url}: a query reads the archive's tables only"),
        }
    }
}

/// `runs` or `steps` at the version of an archive.
#[derive(Debug)]
pub(super) struct ArchiveTable {
    table: TableName,
    archive: Archive,
    /// The table `runs`, if this is `steps`.
    runs: Option<Arc<ArchiveTable>>,
}

impl ArchiveTable {
    pub(super) fn cache(&self) -> DataFusionResult<Arc<Cached>> {
        cache::of_archive(&self.archive).map_err(external)
    }

    pub(super) fn snapshot(&self) -> &Arc<Snapshot> {
        self.archive.snapshot()
    }

    fn files(&self) -> impl Iterator<Item = &DataFile> {
        self.snapshot().files(self.table)
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

    /// Returns a plan that reads these columns of all rows.
    pub(super) async fn scan_all(
        &self,
        state: &dyn Session,
        columns: &[usize],
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        self.scan(state, Some(&columns.to_vec()), &[], None).await
    }

    fn parquet_scan(&self) -> DataFusionResult<ParquetScan> {
        let footers = self.cache()?.metadata();
        let sorted_by: &[&str] = match self.table {
            TableName::Runs => &["run_id"],
            TableName::Steps => &["run_id", "step_index"],
        };
        Ok(ParquetScan { url: ARCHIVE_URL.to_owned(), schema: table_schema(self.table), sorted_by, footers })
    }

    /// Returns, for each file, the rows of the runs and steps that pass the filters. Returns `None` if filters
    /// must be evaluated row by row, because the files have other runs than `runs`, or because a filter fails
    /// on a run.
    async fn choose_rows(&self, state: &dyn Session, filters: &[Expr]) -> DataFusionResult<Option<Vec<RowsOfFile>>> {
        let (decided, others): (Vec<&Expr>, Vec<&Expr>) = filters.iter().partition(|filter| self.is_decided(filter));
        let hints: Vec<&Expr> = others.into_iter().filter(|filter| is_about_runs(filter)).collect();
        let steps = step_range(filters);
        let Some(runs) = &self.runs else { return Ok(Some(self.every_row())) };
        if decided.is_empty() && hints.is_empty() && steps == (0..u64::MAX) {
            return Ok(Some(self.every_row()));
        }
        let index = RunIndex::of(runs, state).await?;
        let Some(matching) = index.matching(&decided, &hints, state)? else { return Ok(None) };
        Ok(self.files().map(|file| index.rows_of(file, &matching, &steps).map(Some)).collect())
    }

    fn every_row(&self) -> Vec<RowsOfFile> {
        self.files().map(|_| None).collect()
    }

    /// Returns the filters for the reader if other filters must stay above it; `None` if the reader may have
    /// all.
    async fn filters_for_reader(
        &self,
        state: &dyn Session,
        parts: &[Part],
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
                // Inside the scan, the filter would see rows that other conditions exclude.
                _ if can_fail(filter, &df_schema) => true,
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

    /// Returns whether a filter is evaluated once per run.
    fn is_decided(&self, filter: &Expr) -> bool {
        // A filter that can fail must see only rows that pass the other filters.
        let can_fail = || DFSchema::try_from(table_schema(self.table)).map_or(true, |schema| can_fail(filter, &schema));
        self.table == TableName::Steps && is_about_runs(filter) && !can_fail()
    }

    /// Returns the row groups that have any of these rows.
    async fn parts(&self, state: &dyn Session, rows: &[RowsOfFile]) -> DataFusionResult<Vec<Part>> {
        let is_needed = |rows: &RowsOfFile| rows.as_ref().is_none_or(|ranges| !ranges.is_empty());
        let needed: Vec<(&DataFile, &RowsOfFile)> =
            self.files().zip(rows).filter(|(_, rows)| is_needed(rows)).collect();
        self.check(&needed.iter().map(|(file, _)| *file).collect::<Vec<_>>()).await?;
        let files = needed.iter().map(|(file, _)| archive_file(file)).collect::<DataFusionResult<Vec<_>>>()?;
        let footers = footers(state, ARCHIVE_URL, &self.cache()?.metadata(), &files).await?;
        let schema = table_schema(self.table);
        let of_file = |(((data, rows), file), footer): (((&DataFile, &RowsOfFile), &PartitionedFile), _)| {
            parts_of(file, footer, rows.as_deref(), Some((data.first_run_id, data.last_run_id)), &schema)
        };
        Ok(needed.into_iter().zip(&files).zip(footers.iter().map(AsRef::as_ref)).flat_map(of_file).collect())
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
        if let Some(rows) = self.choose_rows(state, filters).await? {
            let parts = self.parts(state, &rows).await?;
            let scan = self.parquet_scan()?;
            let Some(inside) = self.filters_for_reader(state, &parts, filters).await? else {
                return scan.plan(state, parts, projection, limit, None);
            };
            let plan = scan.plan(state, parts, projection, limit, inside)?;
            return Ok(Passing::over(plan, Purpose::KeepFilters));
        }
        let every_row = self.parts(state, &self.every_row()).await?;
        let scan = self.parquet_scan()?.plan(state, every_row, None, None, None)?;
        let about_runs = filters.iter().filter(|filter| self.is_decided(filter)).cloned().collect();
        let schema = DFSchema::try_from(table_schema(self.table))?;
        let filter = state.create_physical_expr(guarded_conjunction(about_runs, &schema)?, &schema)?;
        let filtered: Arc<dyn ExecutionPlan> = Arc::new(FilterExec::try_new(filter, scan)?);
        let Some(columns) = projection else { return Ok(filtered) };
        let schema = filtered.schema();
        let column = |&i: &usize| {
            let name = schema.field(i).name();
            (Arc::new(Column::new(name, i)) as Arc<dyn PhysicalExpr>, name.clone())
        };
        Ok(Arc::new(ProjectionExec::try_new(columns.iter().map(column).collect::<Vec<_>>(), filtered)?))
    }
}

/// The rows of a file to read; `None` = all.
type RowsOfFile = Option<Vec<Range<usize>>>;

/// A user table in a Parquet file.
#[derive(Debug)]
struct FileTable {
    url: String,
    schema: SchemaRef,
    path: PathBuf,
    location: StorePath,
    num_bytes: u64,
    modified: u128,
    footers: Arc<FileMetadataCache>,
}

impl FileTable {
    /// Checks that the file has not changed since the query was made.
    fn check(&self) -> Result<()> {
        let now = UserTable::from_parquet(&self.path)?;
        match now.0 {
            Source::Parquet { num_bytes, modified, .. } if (num_bytes, modified) == (self.num_bytes, self.modified) => {
                Ok(())
            }
            _ => {
                let expected = format!("the {} bytes that the query was made over", self.num_bytes);
                let (path, found) = (self.path.clone(), "a file that was changed since".to_owned());
                Err(ErrorKind::Damaged { path, what: "table", expected, found }.into())
            }
        }
    }
}

#[async_trait]
impl TableProvider for FileTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DataFusionResult<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        self.check().map_err(external)?;
        let file = immutable_file(self.location.clone(), self.num_bytes);
        let footers = footers(state, &self.url, &self.footers, std::slice::from_ref(&file)).await?;
        let parts = footers.iter().flat_map(|footer| parts_of(&file, footer, None, None, &self.schema)).collect();
        let (url, footers) = (self.url.clone(), Arc::clone(&self.footers));
        let scan = ParquetScan { url, schema: Arc::clone(&self.schema), sorted_by: &[], footers };
        scan.plan(state, parts, projection, limit, None)
    }
}
