//! Checks of one data file: its bytes, its columns and the order of its rows.

use crate::archive::manifest::data_file::DataFile;
use crate::archive::parquet::reader::OpenDataFile;
use crate::archive::problem::Problem;
use crate::archive::schema::table_schema;
use crate::archive::storage::Storage;
use crate::archive::table_name::TableName;
use crate::error::Result;
use crate::system::cancellation::CancellationToken;
use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::UInt32Type;

/// The problems found in one file.
pub(in crate::archive) struct FileFindings<'a> {
    file: &'a DataFile,
    pub(in crate::archive) problems: Vec<Problem>,
}

impl FileFindings<'_> {
    pub(in crate::archive) fn add(&mut self, what: impl Into<String>, expected: impl ToString, found: impl ToString) {
        self.problems.push(Problem::new(&self.file.path, what, expected, found));
    }

    pub(in crate::archive) fn add_for_run(
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

/// Compares a file with its manifest. Passes each row group to `rows`, in the current schema.
///
/// Stops at a wrong length, checksum or column, because the rows of such a file mean nothing.
pub(in crate::archive) fn check_file(
    storage: &Storage,
    file: &DataFile,
    cancel: &CancellationToken,
    rows: &mut dyn FnMut(&RecordBatch, &mut FileFindings<'_>) -> Result<()>,
) -> Result<Vec<Problem>> {
    let mut findings = FileFindings { file, problems: Vec::new() };
    let opened = match OpenDataFile::sound(storage, file) {
        Ok(opened) => opened,
        Err(error) => return Ok(vec![Problem::of_error(&file.path, &error)]),
    };
    for field in table_schema(file.table).fields() {
        match opened.schema().field_with_name(field.name()) {
            Ok(found) if found.data_type() == field.data_type() => {}
            Ok(found) => {
                findings.add(format!("type of column {}", field.name()), field.data_type(), found.data_type());
            }
            Err(_) => findings.add("columns", field.name(), "no such column"),
        }
    }
    if !findings.problems.is_empty() {
        return Ok(findings.problems);
    }
    let mut row_groups = Vec::with_capacity(opened.num_row_groups());
    let mut first_run_id = None;
    let mut last_row: Option<(u32, u32)> = None;
    for index in 0..opened.num_row_groups() {
        cancel.check()?;
        let batch = match opened.read(index) {
            Ok(batch) => batch,
            Err(error) => {
                findings.add(format!("row group {index}"), "readable rows", error.message());
                continue;
            }
        };
        row_groups.push(batch.num_rows() as u64);
        first_run_id = first_run_id.or(batch.column(0).as_primitive::<UInt32Type>().values().first().copied());
        check_order(file.table, &batch, &mut last_row, &mut findings);
        rows(&batch, &mut findings)?;
    }
    let num_rows: u64 = row_groups.iter().sum();
    if num_rows != file.num_rows {
        findings.add("number of rows", file.num_rows, num_rows);
    } else if row_groups != file.row_groups {
        findings.add("rows of the row groups", format!("{:?}", file.row_groups), format!("{row_groups:?}"));
    }
    let found = first_run_id.zip(last_row.map(|(last, _)| last));
    if found != Some((file.first_run_id, file.last_run_id)) {
        let found = found.map_or("none".into(), |(first, last)| format!("{first}..={last}"));
        findings.add("run ids", format!("{}..={}", file.first_run_id, file.last_run_id), found);
    }
    Ok(findings.problems)
}

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
        if let Some((last_id, last_step)) = last_row.replace((run_id, step)) {
            // A row group holds whole runs, so no run continues in the next one.
            let continues = has_steps && run_id == last_id && step > last_step && row > 0;
            if !continues && run_id <= last_id {
                let expected = "ascending run ids, and whole runs with ascending steps";
                let found = format!("step {step} of run {run_id} after step {last_step} of run {last_id}");
                findings.add_for_run(run_id, "order of rows", expected, found);
            }
        }
    }
}
