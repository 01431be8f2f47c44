//! A user's Parquet file as a table of DataFusion.

use super::errors::external;
use super::scan::{ParquetScan, footers, immutable_file, parts_of};
use super::user_tables::{UserTable, UserTableSource};
use crate::error::{ErrorKind, Result};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result as DataFusionResult;
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use object_store::path::Path as StorePath;
use std::path::PathBuf;
use std::sync::Arc;

/// A user table in a Parquet file.
#[derive(Debug)]
pub(super) struct FileTable {
    pub(super) url: String,
    pub(super) schema: SchemaRef,
    pub(super) path: PathBuf,
    pub(super) location: StorePath,
    pub(super) num_bytes: u64,
    pub(super) modified: u128,
    pub(super) footers: Arc<FileMetadataCache>,
}

impl FileTable {
    /// Checks that the file has not changed since the query was made.
    fn check(&self) -> Result<()> {
        let now = UserTable::from_parquet(&self.path)?;
        match now.0 {
            UserTableSource::Parquet { num_bytes, modified, .. }
                if (num_bytes, modified) == (self.num_bytes, self.modified) =>
            {
                Ok(())
            }
            _ => {
                let expected = format!("the file of {} bytes that the query was planned with", self.num_bytes);
                let (path, found) = (self.path.clone(), "a file that was changed since then".to_owned());
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
