//! What a statement can see: the tables `runs` and `steps`, and an object store that knows the archive alone.

use super::query_error;
use crate::archive::{Archive, DataFile, TableName, table_schema};
use crate::error::Result;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{
    ColumnStatistics, DataFusionError, Result as DataFusionResult, ScalarValue, Statistics, exec_err,
};
use datafusion::config::TableParquetOptions;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::CachedParquetFileReaderFactory;
use datafusion::datasource::physical_plan::parquet::metadata::DFParquetMetadata;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::object_store::{ObjectStoreRegistry, ObjectStoreUrl};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::expressions::col;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::prelude::{SessionConfig, SessionContext};
use object_store::{ObjectMeta, ObjectStore, path::Path as StorePath};
use parquet::file::metadata::ParquetMetaData;
use std::collections::HashMap;
use std::sync::Arc;
use url::Url;

/// The URL under which the archive's folder is known to DataFusion.
const STORE_URL: &str = "a2store://archive";

/// Asks scans for one partition per row group, in order; see [`super::order`].
pub(super) struct PartitionPerRowGroup;

/// A session whose tables are those of the archive.
pub(super) fn context(archive: &Archive) -> Result<SessionContext> {
    let runtime = RuntimeEnvBuilder::new()
        .with_object_store_registry(Arc::new(ArchiveOnly(archive.store()?)))
        .build_arc()
        .map_err(query_error)?;
    let mut config =
        SessionConfig::new().with_information_schema(false).with_default_catalog_and_schema("a2store", "v");
    let options = config.options_mut();
    options.execution.parquet.pushdown_filters = true;
    options.execution.parquet.reorder_filters = true;
    options.execution.collect_statistics = true;
    // Results go to every kind of reader, and not all know the string views that DataFusion prefers.
    options.sql_parser.map_string_types_to_utf8view = false;
    options.optimizer.expand_views_at_output = true;
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_default_features()
        .with_table_functions(HashMap::new())
        .build();
    let context = SessionContext::new_with_state(state);
    for table in TableName::ALL {
        let files = archive.snapshot().files(table).cloned().collect();
        context.register_table(table.name(), Arc::new(ArchiveTable { table, files })).map_err(query_error)?;
    }
    Ok(context)
}

/// A registry that knows the archive's folder and nothing else of the machine or the network.
#[derive(Debug)]
struct ArchiveOnly(Arc<dyn ObjectStore>);

impl ObjectStoreRegistry for ArchiveOnly {
    fn register_store(&self, _: &Url, store: Arc<dyn ObjectStore>) -> Option<Arc<dyn ObjectStore>> {
        // Handed back as if replaced: nothing else is ever served.
        Some(store)
    }

    fn get_store(&self, url: &Url) -> DataFusionResult<Arc<dyn ObjectStore>> {
        if url.as_str().trim_end_matches('/') == STORE_URL {
            return Ok(Arc::clone(&self.0));
        }
        exec_err!("{url}: a query reads the archive's tables only")
    }
}

/// A table of the archive, at its version.
#[derive(Debug)]
struct ArchiveTable {
    table: TableName,
    files: Vec<DataFile>,
}

impl ArchiveTable {
    fn partitioned_file(&self, file: &DataFile) -> DataFusionResult<PartitionedFile> {
        let location = StorePath::parse(&file.path).map_err(|error| DataFusionError::External(error.into()))?;
        let meta = ObjectMeta {
            location,
            // Data files never change, so their metadata may be cached under any fixed time.
            last_modified: chrono::DateTime::UNIX_EPOCH,
            size: file.num_bytes,
            e_tag: None,
            version: None,
        };
        Ok(PartitionedFile::new_from_meta(meta))
    }

    /// What the commit knows of a file, or of a part of it with so many rows.
    fn statistics(&self, file: &DataFile, num_rows: u64) -> Arc<Statistics> {
        let mut statistics = Statistics::new_unknown(&table_schema(self.table));
        statistics.num_rows = Precision::Exact(num_rows as usize);
        if let Some(run_id) = statistics.column_statistics.first_mut() {
            let bound = |id: u32| match num_rows == file.num_rows {
                true => Precision::Exact(ScalarValue::from(id)),
                false => Precision::Inexact(ScalarValue::from(id)),
            };
            *run_id = ColumnStatistics {
                min_value: bound(file.first_run_id),
                max_value: bound(file.last_run_id),
                null_count: Precision::Exact(0),
                ..ColumnStatistics::new_unknown()
            };
        }
        Arc::new(statistics)
    }

    /// All files, as one group that DataFusion may split as it likes.
    fn whole_files(&self) -> DataFusionResult<Vec<FileGroup>> {
        let files = self
            .files
            .iter()
            .map(|file| Ok(self.partitioned_file(file)?.with_statistics(self.statistics(file, file.num_rows))));
        Ok(vec![FileGroup::new(files.collect::<DataFusionResult<_>>()?)])
    }

    /// A group per row group, in the order of the rows.
    async fn row_groups(&self, state: &dyn Session) -> DataFusionResult<Vec<FileGroup>> {
        let mut groups = Vec::new();
        for file in &self.files {
            let whole = self.partitioned_file(file)?;
            let metadata = footer(state, &whole.object_meta).await?;
            for row_group in metadata.row_groups() {
                // A reader takes the row groups that begin in its range.
                let column = row_group.column(0);
                let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
                let part = whole.clone().with_range(start, start + 1);
                let statistics = self.statistics(file, row_group.num_rows().unsigned_abs());
                groups.push(FileGroup::new(vec![part.with_statistics(statistics)]));
            }
        }
        Ok(groups)
    }

    /// The order that the writer keeps.
    fn natural_order(&self) -> DataFusionResult<Option<LexOrdering>> {
        let schema = table_schema(self.table);
        let columns: &[&str] = match self.table {
            TableName::Runs => &["run_id"],
            TableName::Steps => &["run_id", "step_index"],
        };
        let ascending = |name: &&str| Ok(PhysicalSortExpr::new_default(col(name, &schema)?).asc().nulls_last());
        Ok(LexOrdering::new(columns.iter().map(ascending).collect::<DataFusionResult<Vec<_>>>()?))
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
        // The filter stays in the plan until the physical optimizer moves it into the reader, which may refuse parts.
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let schema = table_schema(self.table);
        if self.files.is_empty() {
            let schema = match projection {
                Some(columns) => Arc::new(schema.project(columns)?),
                None => schema,
            };
            return Ok(Arc::new(EmptyExec::new(schema)));
        }
        let url = ObjectStoreUrl::parse(STORE_URL)?;
        let store = state.runtime_env().object_store(&url)?;
        let cache = state.runtime_env().cache_manager.get_file_metadata_cache();
        let parquet = TableParquetOptions {
            global: state.config_options().execution.parquet.clone(),
            ..TableParquetOptions::default()
        };
        let source = ParquetSource::new(Arc::clone(&schema))
            .with_table_parquet_options(parquet)
            .with_parquet_file_reader_factory(Arc::new(CachedParquetFileReaderFactory::new(store, cache)));

        let mut scan = FileScanConfigBuilder::new(url, Arc::new(source))
            .with_projection_indices(projection.cloned())?
            .with_limit(limit);
        if state.config().get_extension::<PartitionPerRowGroup>().is_some() {
            scan = scan.with_file_groups(self.row_groups(state).await?);
            scan = scan.with_output_ordering(self.natural_order()?.into_iter().collect());
        } else {
            scan = scan.with_file_groups(self.whole_files()?);
        }
        let mut statistics = Statistics::new_unknown(&schema);
        statistics.num_rows = Precision::Exact(self.files.iter().map(|file| file.num_rows as usize).sum());
        Ok(DataSourceExec::from_data_source(scan.with_statistics(statistics).build()))
    }
}

/// A file's footer, from the session's cache after the first time.
async fn footer(state: &dyn Session, meta: &ObjectMeta) -> DataFusionResult<Arc<ParquetMetaData>> {
    let store = state.runtime_env().object_store(ObjectStoreUrl::parse(STORE_URL)?)?;
    let cache = state.runtime_env().cache_manager.get_file_metadata_cache();
    DFParquetMetadata::new(store.as_ref(), meta).with_file_metadata_cache(Some(cache)).fetch_metadata().await
}
