//! A user's Parquet file as a table of DataFusion.

use crate::error::{Error, Result};
use crate::query::engine::errors::external;
use crate::query::rewrites::NodeRule;
use crate::query::scan::metadata_cache::METADATA_BYTES;
use crate::query::scan::parquet_scan::{ARCHIVE_URL, ParquetScan, immutable_file, scan_of};
use crate::query::user_tables::ParquetFile;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result as DataFusionResult;
use datafusion::datasource::physical_plan::{FileScanConfig, FileScanConfigBuilder, FileSource, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use datafusion::execution::cache::default_cache::DefaultCache;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::ExecutionPlan;
use object_store::path::Path as StorePath;
use std::sync::Arc;

/// A user table in a Parquet file.
#[derive(Debug)]
pub(in crate::query) struct FileTable {
    file: ParquetFile,
    /// The URL of the object store whose root is the file's folder.
    url: String,
    location: StorePath,
    footers: Arc<FileMetadataCache>,
}

impl FileTable {
    pub(in crate::query) fn new(file: ParquetFile, url: String) -> Result<FileTable> {
        let location = StorePath::parse(file.path.file_name().unwrap_or_default().to_string_lossy())
            .map_err(|error| Error::argument("table", "a valid object name", error))?;
        // This cache is separate, because the archive's cache identifies files by their names only.
        let footers = Arc::new(DefaultCache::new(METADATA_BYTES));
        Ok(FileTable { file, url, location, footers })
    }
}

/// Skips no rows of a user's file by the bounds of floats: they leave out NaN, which is larger than all numbers here
/// (apache/datafusion#15812). Must run after the last rule that adds filters to scans.
pub(in crate::query) const IGNORE_FLOAT_BOUNDS: NodeRule = NodeRule {
    name: "ignore_float_bounds",
    change: |plan, _| {
        let is_users = |scan: &&FileScanConfig| !scan.object_store_url.as_str().starts_with(ARCHIVE_URL);
        let Some(scan) = scan_of(plan).filter(is_users) else { return Ok(None) };
        let Some(source) = scan.file_source().downcast_ref::<ParquetSource>() else { return Ok(None) };
        let columns = source.filter().map(|filter| collect_columns(&filter)).unwrap_or_default();
        let fields = columns.iter().map(|column| scan.file_schema().field_with_name(column.name()).cloned());
        let filtered = Schema::new(fields.collect::<DataFusionResult<Vec<_>, _>>()?);
        let is_float = |field: &&Field| match field.data_type() {
            DataType::Dictionary(_, values) => values.is_floating(),
            dtype => dtype.is_floating(),
        };
        if !filtered.flattened_fields().iter().any(is_float) {
            return Ok(None);
        }
        let mut parquet = source.table_parquet_options().clone();
        (parquet.global.pruning, parquet.global.enable_page_index) = (false, false);
        let source = Arc::new(source.clone().with_table_parquet_options(parquet));
        Ok(Some(DataSourceExec::from_data_source(
            FileScanConfigBuilder::from(scan.clone()).with_source(source).build(),
        )))
    },
};

#[async_trait]
impl TableProvider for FileTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.file.schema)
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
        self.file.check_unchanged().map_err(external)?;
        let file = immutable_file(self.location.clone(), self.file.num_bytes);
        let (url, schema, footers) = (self.url.clone(), Arc::clone(&self.file.schema), Arc::clone(&self.footers));
        let scan = ParquetScan { url, schema, sorted_by: &[], footers };
        let footers = scan.footers_of(state, std::slice::from_ref(&file)).await?;
        let parts = footers.iter().flat_map(|footer| scan.parts_of(&file, footer, None, None)).collect();
        scan.plan(state, parts, projection, limit, None)
    }
}
