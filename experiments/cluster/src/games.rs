//! Test data: games of a hundred steps, in Parquet files of several row groups.

use crate::worker::Archive;
use arrow::array::{ArrayRef, DictionaryArray, RecordBatch, UInt32Array, UInt64Array};
use arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{Result, Statistics};
use datafusion::config::TableParquetOptions;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::{
    CachedParquetFileReaderFactory, ParquetAccessPlan, RowGroupAccess,
};
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use object_store::ObjectMeta;
use object_store::local::LocalFileSystem;
use object_store::path::Path as StorePath;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{RowSelection, RowSelector};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::FileReader;
use parquet::file::serialized_reader::SerializedFileReader;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// The URL of the archive's store.
pub const URL: &str = "trial://archive/";
pub const FILES: u32 = 6;
pub const ROW_GROUPS: u32 = 4;
pub const STEPS_PER_RUN: u32 = 100;
pub const RUNS_PER_ROW_GROUP: u32 = 100;
pub const ROWS: u32 = FILES * ROW_GROUPS * RUNS_PER_ROW_GROUP * STEPS_PER_RUN;

pub fn steps_schema() -> SchemaRef {
    let phase = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    Arc::new(Schema::new(vec![
        Field::new("run_id", DataType::UInt32, false),
        Field::new("step_index", DataType::UInt32, false),
        Field::new("board", DataType::UInt64, false),
        Field::new("phase", phase, false),
    ]))
}

pub fn runs_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("run_id", DataType::UInt32, false),
        Field::new("score", DataType::UInt32, false),
    ]))
}

/// Writes the files of `steps` and `runs`.
pub fn write(folder: &Path) -> Result<()> {
    for file in 0..FILES {
        let runs = file * ROW_GROUPS * RUNS_PER_ROW_GROUP..(file + 1) * ROW_GROUPS * RUNS_PER_ROW_GROUP;
        let steps = runs.clone().flat_map(|run| (0..STEPS_PER_RUN).map(move |step| (run, step)));
        let steps: Vec<(u32, u32)> = steps.collect();
        let phases = ["opening", "middle", "end"];
        let phase: DictionaryArray<Int32Type> =
            steps.iter().map(|&(run, step)| phases[(step / 40 + run % 2) as usize % 3]).collect();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(steps.iter().map(|step| step.0).collect::<UInt32Array>()),
            Arc::new(steps.iter().map(|step| step.1).collect::<UInt32Array>()),
            Arc::new(steps.iter().map(board).collect::<UInt64Array>()),
            Arc::new(phase),
        ];
        let rows = RUNS_PER_ROW_GROUP * STEPS_PER_RUN;
        write_file(
            &folder.join(format!("steps-{file}.parquet")),
            RecordBatch::try_new(steps_schema(), columns)?,
            rows,
        )?;
    }
    let runs = 0..FILES * ROW_GROUPS * RUNS_PER_ROW_GROUP;
    let columns: Vec<ArrayRef> = vec![
        Arc::new(runs.clone().collect::<UInt32Array>()),
        Arc::new(runs.map(|run| run * 7919 % 10_007).collect::<UInt32Array>()),
    ];
    write_file(&folder.join("runs-0.parquet"), RecordBatch::try_new(runs_schema(), columns)?, 600)
}

/// Boards use the highest bit, as real ones do.
fn board(&(run, step): &(u32, u32)) -> u64 {
    u64::from(run).wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(u64::from(step) << 32 | u64::from(step))
}

fn write_file(path: &Path, batch: RecordBatch, rows: u32) -> Result<()> {
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(rows as usize));
    let properties = properties.set_data_page_row_count_limit(1000).set_write_batch_size(500).build();
    let mut writer = ArrowWriter::try_new(File::create(path)?, batch.schema(), Some(properties))?;
    writer.write(&batch)?;
    writer.close()?;
    Ok(())
}

/// A table over some files of the archive.
#[derive(Debug)]
pub struct Games {
    schema: SchemaRef,
    archive: Arc<Archive>,
    parts: Vec<PartitionedFile>,
    /// The number of partitions of a scan; `None` = the session's.
    partitions: Option<usize>,
}

impl Games {
    /// Makes a table of files whose names begin with `prefix`. With `chosen`, every third run only: row groups have
    /// selections of rows, and no filter remains that would repeat the choice.
    pub fn new(folder: &Path, prefix: &str, schema: SchemaRef, archive: Arc<Archive>, chosen: bool) -> Result<Games> {
        let mut names: Vec<String> =
            std::fs::read_dir(folder)?.flatten().map(|file| file.file_name().to_string_lossy().into_owned()).collect();
        names.retain(|name| name.starts_with(prefix));
        names.sort();
        let mut parts = Vec::new();
        for name in names {
            let path = folder.join(&name);
            let size = std::fs::metadata(&path)?.len();
            let footer = SerializedFileReader::new(File::open(path)?)?.metadata().clone();
            // A fixed time makes footers cacheable, as in an archive.
            let last_modified = std::time::UNIX_EPOCH.into();
            let location = StorePath::parse(&name).map_err(object_store::Error::from)?;
            let file = ObjectMeta { location, last_modified, size, e_tag: None, version: None };
            for (i, row_group) in footer.row_groups().iter().enumerate() {
                let mut part = PartitionedFile::new_from_meta(file.clone());
                let mut rows = row_group.num_rows() as usize;
                if chosen {
                    let selection = every_third_run(rows);
                    rows = selection.row_count();
                    let mut access = ParquetAccessPlan::new_none(footer.num_row_groups());
                    access.set(i, RowGroupAccess::Selection(selection));
                    part = part.with_extension(access);
                }
                let column = row_group.column(0);
                let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
                let mut statistics = Statistics::new_unknown(&schema);
                statistics.num_rows = Precision::Exact(rows);
                parts.push(part.with_range(start, start + 1).with_statistics(Arc::new(statistics)));
            }
        }
        Ok(Games { schema, archive, parts, partitions: None })
    }

    /// Makes scans of the table a single partition.
    #[must_use]
    pub fn in_one_partition(self) -> Games {
        Games { partitions: Some(1), ..self }
    }
}

fn every_third_run(rows: usize) -> RowSelection {
    let run = STEPS_PER_RUN as usize;
    let selectors = (0..rows / run).map(|i| match i % 3 {
        0 => RowSelector::select(run),
        _ => RowSelector::skip(run),
    });
    RowSelection::from(selectors.collect::<Vec<_>>())
}

#[async_trait]
impl TableProvider for Games {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let parquet = TableParquetOptions {
            global: state.config_options().execution.parquet.clone(),
            ..TableParquetOptions::default()
        };
        let readers =
            CachedParquetFileReaderFactory::new(Arc::clone(&self.archive.store), Arc::clone(&self.archive.footers));
        let source = ParquetSource::new(Arc::clone(&self.schema))
            .with_table_parquet_options(parquet)
            .with_parquet_file_reader_factory(Arc::new(readers));
        let partitions = self.partitions.unwrap_or_else(|| state.config().target_partitions()).max(1);
        let in_each = self.parts.len().div_ceil(partitions);
        let scan = FileScanConfigBuilder::new(ObjectStoreUrl::parse(URL)?, Arc::new(source))
            .with_projection_indices(projection.cloned())?
            .with_limit(limit)
            .with_file_groups(self.parts.chunks(in_each).map(|parts| FileGroup::new(parts.to_vec())).collect());
        Ok(DataSourceExec::from_data_source(scan.build()))
    }
}

/// Registers `steps`, `chosen` (every third run of `steps`), `single` (`steps` in one partition) and `runs`.
pub fn register(context: &SessionContext, folder: &Path) -> Result<()> {
    let archive = Arc::new(open(folder)?);
    let table = |prefix, schema, chosen| {
        Games::new(folder, prefix, schema, Arc::clone(&archive), chosen).map(|table| Arc::new(table) as Arc<_>)
    };
    context.register_table("steps", table("steps", steps_schema(), false)?)?;
    context.register_table("chosen", table("steps", steps_schema(), true)?)?;
    context.register_table("runs", table("runs", runs_schema(), false)?)?;
    let single = Games::new(folder, "steps", steps_schema(), Arc::clone(&archive), false)?.in_one_partition();
    context.register_table("single", Arc::new(single))?;
    Ok(())
}

/// Opens the archive in a folder.
pub fn open(folder: &Path) -> Result<Archive> {
    Ok(Archive::new(Arc::new(LocalFileSystem::new_with_prefix(folder)?)))
}
