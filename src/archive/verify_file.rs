//! Checks of one data file: its bytes, its footer and its rows.

use super::data_file::{DataFile, checksum};
use super::parquet_input::{SharedFile, guarded};
use super::parquet_reader::{conform, open, read_row_group};
use super::problem::Problem;
use super::schema::table_schema;
use super::storage::Storage;
use super::table_name::TableName;
use crate::cancellation::CancellationToken;
use crate::error::Result;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, Scalar};
use arrow::compute::kernels::cmp::{gt, lt};
use arrow::datatypes::{DataType, UInt32Type};
use arrow::error::ArrowError;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::file::metadata::PageIndexPolicy;
use std::fs::File;

/// The problems found in one file.
pub(super) struct FileFindings<'a> {
    file: &'a DataFile,
    pub(super) problems: Vec<Problem>,
}

impl FileFindings<'_> {
    pub(super) fn add(&mut self, what: impl Into<String>, expected: impl ToString, found: impl ToString) {
        self.problems.push(Problem::new(&self.file.path, what, expected, found));
    }

    pub(super) fn add_for_run(
        &mut self,
        run_id: u32,
        what: impl Into<String>,
        expected: impl ToString,
        found: impl ToString,
    ) {
        let problem = Problem::new(&self.file.path, what, expected, found);
        self.problems.push(Problem { run_id: Some(run_id), ..problem });
    }
}

/// Compares a file with its commit and its footer with its rows. Passes each row group to `rows`, in the
/// current schema.
///
/// Stops at a wrong length or checksum, because the rows of such a file mean nothing.
pub(super) fn check_file(
    storage: &Storage,
    file: &DataFile,
    cancel: &CancellationToken,
    rows: &mut dyn FnMut(&RecordBatch, &mut FileFindings<'_>) -> Result<()>,
) -> Result<Vec<Problem>> {
    let mut findings = FileFindings { file, problems: Vec::new() };
    let opened = match open(storage, file) {
        Ok(opened) => opened,
        Err(error) => {
            findings.add("data file", format!("{} bytes", file.num_bytes), error.message());
            return Ok(findings.problems);
        }
    };
    match checksum(&opened) {
        Ok((_, num_bytes)) if num_bytes != file.num_bytes => {
            findings.add("length of the file", file.num_bytes, num_bytes);
        }
        Ok((crc, _)) if format!("{crc:08x}") != file.crc32c => {
            findings.add("CRC32C of the file", &file.crc32c, format!("{crc:08x}"));
        }
        Ok(_) => {}
        Err(error) => findings.add("data file", "bytes", error),
    }
    if findings.problems.is_empty() {
        match ParquetFooter::load(&opened) {
            Ok(footer) => footer.check(&opened, cancel, rows, &mut findings)?,
            Err(error) => findings.add("footer", "Parquet", error),
        }
    }
    Ok(findings.problems)
}

struct ParquetFooter {
    metadata: ArrowReaderMetadata,
}

impl ParquetFooter {
    fn load(file: &File) -> Result<ParquetFooter, ArrowError> {
        let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Required);
        Ok(ParquetFooter { metadata: guarded(|| Ok(ArrowReaderMetadata::load(file, options)?))? })
    }

    fn check(
        &self,
        opened: &File,
        cancel: &CancellationToken,
        rows: &mut dyn FnMut(&RecordBatch, &mut FileFindings<'_>) -> Result<()>,
        findings: &mut FileFindings<'_>,
    ) -> Result<()> {
        let file = findings.file;
        let schema = table_schema(file.table);
        for field in schema.fields() {
            match self.metadata.schema().field_with_name(field.name()) {
                Ok(found) if found.data_type() == field.data_type() => {}
                Ok(found) => {
                    findings.add(format!("type of column {}", field.name()), field.data_type(), found.data_type());
                }
                Err(_) => findings.add("columns", field.name(), "no such column"),
            }
        }
        let footer = self.metadata.metadata();
        let num_rows = footer.file_metadata().num_rows();
        if u64::try_from(num_rows) != Ok(file.num_rows) {
            findings.add("number of rows", file.num_rows, num_rows);
        }
        if !findings.problems.is_empty() {
            return Ok(());
        }
        let mut last_row: Option<(u32, u32)> = None;
        let mut first_run_id = None;
        for index in 0..footer.num_row_groups() {
            cancel.check()?;
            let batch = opened.try_clone().map(SharedFile::new).map_err(ArrowError::from).and_then(|opened| {
                let batch = guarded(|| read_row_group(opened, self.metadata.clone(), index))?;
                self.check_statistics(index, &batch, findings)?;
                conform(&batch, &schema)
            });
            let batch = match batch {
                Ok(batch) => batch,
                Err(error) => {
                    findings.add(format!("row group {index}"), "readable rows", error);
                    continue;
                }
            };
            let expected = footer.row_group(index).num_rows();
            if expected != batch.num_rows() as i64 {
                findings.add(format!("number of rows in row group {index}"), expected, batch.num_rows());
            }
            let ids = batch.column(0).as_primitive::<UInt32Type>().values();
            first_run_id = first_run_id.or(ids.first().copied());
            check_order(file.table, &batch, &mut last_row, findings);
            rows(&batch, findings)?;
        }
        let found = first_run_id.zip(last_row.map(|(last, _)| last));
        if found != Some((file.first_run_id, file.last_run_id)) {
            let found = found.map_or("none".into(), |(first, last)| format!("{first}..={last}"));
            findings.add("run ids", format!("{}..={}", file.first_run_id, file.last_run_id), found);
        }
        Ok(())
    }

    /// Checks the statistics of a row group and of its pages: the bounds enclose all values, and the counts of
    /// nulls are right.
    fn check_statistics(
        &self,
        index: usize,
        batch: &RecordBatch,
        findings: &mut FileFindings<'_>,
    ) -> Result<(), ArrowError> {
        let footer = self.metadata.metadata();
        let parquet_schema = footer.file_metadata().schema_descr();
        let group = footer.row_group(index);
        for (field, column) in self.metadata.schema().fields().iter().zip(batch.columns()) {
            // Bounds of floating-point columns are not usable, because NaN has no place in the order.
            if matches!(field.data_type(), DataType::Float32) {
                continue;
            }
            let converter = StatisticsConverter::try_new(field.name(), self.metadata.schema(), parquet_schema)?;
            let whole = Bounds {
                mins: converter.row_group_mins([group])?,
                maxes: converter.row_group_maxes([group])?,
                nulls: converter.row_group_null_counts([group])?,
                lens: vec![batch.num_rows()],
            };
            whole.check(&format!("row group {index}"), field.name(), column, findings)?;
            let (Some(column_index), Some(offset_index)) = (footer.column_index(), footer.offset_index()) else {
                findings.add("page index", "one", "none");
                continue;
            };
            let lens = converter.data_page_row_counts(offset_index, footer.row_groups(), [&index])?;
            let pages = Bounds {
                mins: converter.data_page_mins(column_index, offset_index, [&index])?,
                maxes: converter.data_page_maxes(column_index, offset_index, [&index])?,
                nulls: converter.data_page_null_counts(column_index, offset_index, [&index])?,
                lens: lens.iter().flat_map(|lens| lens.values().iter().map(|&len| len as usize)).collect(),
            };
            pages.check(&format!("a page of row group {index}"), field.name(), column, findings)?;
        }
        Ok(())
    }
}

/// The statistics of consecutive parts of a column.
struct Bounds {
    mins: ArrayRef,
    maxes: ArrayRef,
    nulls: arrow::array::UInt64Array,
    lens: Vec<usize>,
}

impl Bounds {
    fn check(
        &self,
        part: &str,
        name: &str,
        column: &ArrayRef,
        findings: &mut FileFindings<'_>,
    ) -> Result<(), ArrowError> {
        let total: usize = self.lens.iter().sum();
        if self.lens.len() > 1 && total != column.len() {
            findings.add(format!("rows of the pages of {name}"), column.len(), total);
            return Ok(());
        }
        let mut offset = 0;
        for (i, &len) in self.lens.iter().enumerate() {
            let values = column.slice(offset, len);
            offset += len;
            if i < self.nulls.len() && self.nulls.is_valid(i) && self.nulls.value(i) != values.null_count() as u64 {
                let what = format!("nulls of {name} in {part}");
                findings.add(what, self.nulls.value(i), values.null_count());
            }
            for (bounds, beyond, what) in [(&self.mins, lt as Compare, "minimum"), (&self.maxes, gt, "maximum")] {
                if i >= bounds.len() || bounds.is_null(i) {
                    continue;
                }
                let bound = Scalar::new(bounds.slice(i, 1));
                let values = match values.data_type() == bounds.data_type() {
                    true => values.clone(),
                    false => arrow::compute::cast(&values, bounds.data_type())?,
                };
                let outside = beyond(&values, &bound)?.true_count();
                if outside > 0 {
                    let found = format!("{outside} values beyond it");
                    findings.add(format!("{what} of {name} in {part}"), "a bound of all values", found);
                }
            }
        }
        Ok(())
    }
}

type Compare = fn(&dyn arrow::array::Datum, &dyn arrow::array::Datum) -> Result<arrow::array::BooleanArray, ArrowError>;

/// Checks that run ids ascend, and that the step indices of each run ascend. The check of each run finds
/// missing steps.
fn check_order(
    table: TableName,
    batch: &RecordBatch,
    last_row: &mut Option<(u32, u32)>,
    findings: &mut FileFindings<'_>,
) {
    let ids = batch.column(0).as_primitive::<UInt32Type>().values();
    let has_steps = table != TableName::Runs;
    let steps = has_steps.then(|| batch.column(1).as_primitive::<UInt32Type>().values());
    for (row, &run_id) in ids.iter().enumerate() {
        let step = steps.map_or(0, |steps| steps[row]);
        let follows = match *last_row {
            None => true,
            Some((last_id, last_step)) if has_steps && run_id == last_id => {
                // A row group holds whole runs, so no run continues in the next one.
                step > last_step && row > 0
            }
            Some((last_id, _)) => run_id > last_id,
        };
        if !follows {
            let found = match *last_row {
                Some((last_id, last_step)) => {
                    format!("step {step} of run {run_id} after step {last_step} of run {last_id}")
                }
                None => format!("step {step} of run {run_id} at the beginning"),
            };
            findings.add_for_run(
                run_id,
                "order of rows",
                "ascending run ids, and whole runs with ascending steps",
                found,
            );
        }
        *last_row = Some((run_id, step));
    }
}
