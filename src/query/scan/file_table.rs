//! A user's Parquet file as a table of DataFusion.

use crate::error::{Error, Result};
use crate::query::engine::errors::external;
use crate::query::scan::metadata_cache::METADATA_BYTES;
use crate::query::scan::parquet_scan::{ParquetScan, immutable_file};
use crate::query::user_tables::ParquetFile;
use arrow::datatypes::{DataType, Field, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result as DataFusionResult;
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use datafusion::execution::cache::default_cache::DefaultCache;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
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
        // The bounds of floats leave NaN out, which is larger than all numbers here (apache/datafusion#15812).
        let is_float = |field: &&Field| match field.data_type() {
            DataType::Dictionary(_, values) => values.is_floating(),
            dtype => dtype.is_floating(),
        };
        let has_floats = schema.flattened_fields().iter().any(is_float);
        let scan = ParquetScan { url, schema, sorted_by: &[], footers, uses_bounds: !has_floats };
        let footers = scan.footers_of(state, std::slice::from_ref(&file)).await?;
        let parts = footers.iter().flat_map(|footer| scan.parts_of(&file, footer, None, None)).collect();
        scan.plan(state, parts, projection, limit, None)
    }
}
