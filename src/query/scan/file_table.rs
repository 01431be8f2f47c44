//! A user's Parquet file as a table of DataFusion.

use crate::error::{Error, Result};
use crate::query::engine::errors::external;
use crate::query::rewrites::NodeRule;
use crate::query::scan::metadata_cache::METADATA_BYTES;
use crate::query::scan::parquet_scan::{ARCHIVE_URL, ParquetScan, immutable_file, scan_of};
use crate::query::user_tables::ParquetFile;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result as DataFusionResult;
use datafusion::common::tree_node::TreeNode;
use datafusion::datasource::physical_plan::{FileScanConfigBuilder, FileSource, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use datafusion::execution::cache::default_cache::DefaultCache;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{CastExpr, TryCastExpr};
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

/// Turns off the bounds of values for filters that would lose rows:
///
/// - by floats of a user's file, because the bounds leave out NaN, which is larger than all numbers here
///   (apache/datafusion#15812). Floats of the archive that may be NaN have no bounds.
/// - with a cast that changes the order of values, such as from a timestamp to the time of day.
///
/// Must run after the last rule that adds filters to scans.
pub(in crate::query) const IGNORE_WRONG_BOUNDS: NodeRule = NodeRule {
    name: "ignore_wrong_bounds",
    change: |plan, _| {
        let Some(scan) = scan_of(plan) else { return Ok(None) };
        let Some(source) = scan.file_source().downcast_ref::<ParquetSource>() else { return Ok(None) };
        let Some(filter) = source.filter() else { return Ok(None) };
        let schema = scan.file_schema();
        let is_users = !scan.object_store_url.as_str().starts_with(ARCHIVE_URL);
        let loses_rows = is_users && reads_floats(&filter, schema)? || filter.exists(|part| reorders(part, schema))?;
        if !loses_rows {
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

fn reads_floats(filter: &Arc<dyn PhysicalExpr>, schema: &Schema) -> DataFusionResult<bool> {
    let columns = collect_columns(filter);
    let fields = columns.iter().map(|column| schema.field_with_name(column.name()).cloned());
    let filtered = Schema::new(fields.collect::<DataFusionResult<Vec<_>, _>>()?);
    Ok(filtered.flattened_fields().iter().any(|field| plain(field.data_type()).is_floating()))
}

/// Returns whether an expression is a cast that may change the order of values.
fn reorders(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> DataFusionResult<bool> {
    let cast = expr.downcast_ref::<CastExpr>().map(|cast| (cast.expr(), cast.cast_type()));
    let tried = || expr.downcast_ref::<TryCastExpr>().map(|cast| (cast.expr(), cast.cast_type()));
    let Some((from, to)) = cast.or_else(tried) else { return Ok(false) };
    let from = from.data_type(schema)?;
    let (from, to) = (plain(&from), plain(to));
    let are = |is_of_kind: fn(&DataType) -> bool| is_of_kind(from) && is_of_kind(to);
    let is_date = |dtype: &DataType| matches!(dtype, DataType::Date32 | DataType::Date64 | DataType::Timestamp(..));
    Ok(from != to && !are(DataType::is_numeric) && !are(DataType::is_string) && !are(is_date))
}

/// Returns the type of the values of a dictionary, or the type itself.
fn plain(dtype: &DataType) -> &DataType {
    match dtype {
        DataType::Dictionary(_, values) => values,
        dtype => dtype,
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
        let scan = ParquetScan { url, schema, sorted_by: &[], footers };
        let footers = scan.footers_of(state, std::slice::from_ref(&file)).await?;
        let parts = footers.iter().flat_map(|footer| scan.parts_of(&file, footer, None, None)).collect();
        scan.plan(state, parts, projection, limit, None)
    }
}
