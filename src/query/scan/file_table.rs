//! A user's Parquet file as a table of DataFusion.

use crate::error::{Error, Result};
use crate::query::engine::errors::external;
use crate::query::scan::metadata_cache::METADATA_BYTES;
use crate::query::scan::parquet_scan::{ParquetScan, immutable_file};
use crate::query::user_tables::ParquetFile;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result as DataFusionResult;
use datafusion::datasource::physical_plan::parquet::CachedParquetMetaData;
use datafusion::execution::cache::cache_manager::{CachedFileMetadataEntry, FileMetadataCache};
use datafusion::execution::cache::default_cache::DefaultCache;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use object_store::path::Path as StorePath;
use parquet::basic::{LogicalType, Type};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
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
        let (url, footers) = (self.url.clone(), Arc::clone(&self.footers));
        let scan = ParquetScan { url, schema: Arc::clone(&self.file.schema), sorted_by: &[], footers };
        let footers = scan.footers_of(state, std::slice::from_ref(&file)).await?;
        let mut parts = Vec::new();
        for footer in footers {
            let footer = Arc::new(without_bounds_of_floats((*footer).clone())?);
            parts.extend(scan.parts_of(&file, &footer, None, None));
            // The reader takes the footer from the cache.
            let footer =
                CachedFileMetadataEntry::new(file.object_meta.clone(), Arc::new(CachedParquetMetaData::new(footer)));
            self.footers.put(&self.location, footer);
        }
        scan.plan(state, parts, projection, limit, None)
    }
}

/// Removes the statistics of floats. They leave out NaN, which is larger than all numbers here, but DataFusion skips row
/// groups and pages by them (apache/datafusion#15812).
fn without_bounds_of_floats(footer: ParquetMetaData) -> DataFusionResult<ParquetMetaData> {
    let is_float = |column: &ColumnChunkMetaData| {
        let is_float16 = column.column_descr().logical_type_ref() == Some(&LogicalType::Float16);
        is_float16 || matches!(column.column_type(), Type::FLOAT | Type::DOUBLE)
    };
    let mut footer = footer.into_builder();
    let (mut row_groups, mut indexes) = (footer.take_row_groups(), footer.take_column_index());
    for (i, row_group) in row_groups.iter_mut().enumerate() {
        for (j, column) in row_group.columns_mut().iter_mut().enumerate().filter(|(_, column)| is_float(column)) {
            *column = column.clone().into_builder().clear_statistics().build()?;
            if let Some(index) = indexes.as_mut().and_then(|indexes| indexes.get_mut(i)?.get_mut(j)) {
                *index = ColumnIndexMetaData::NONE;
            }
        }
    }
    Ok(footer.set_row_groups(row_groups).set_column_index(indexes).build())
}
