//! The report of an archive.

use super::arrow::ArrowBatch;
use super::interrupt::interruptible;
use super::position::frame;
use super::progress::ProgressOption;
use crate::archive::Archive;
use crate::report::{Report, ReportOptions};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;

/// A report on an archive: the results of named queries, and a page that shows them.
///
/// A notebook shows the page below the cell.
///
/// >>> report = archive.report()
/// >>> report.save("report.html")
/// >>> sorted(report.data)[:4]
/// ['archive_summary', 'blunder_rate', 'blunders', 'corner_occupancy']
#[pyclass(frozen, name = "Report", module = "a2store")]
pub(super) struct PyReport(Report);

/// Runs the queries of a report.
pub(super) fn report(
    py: Python<'_>,
    archive: &Archive,
    options: &ReportOptions,
    progress: Option<ProgressOption>,
) -> PyResult<PyReport> {
    Ok(PyReport(interruptible(py, progress, |progress, cancel| archive.report(options, progress, cancel))?))
}

#[pymethods]
impl PyReport {
    /// The tables behind the page: a dict of ``ArrowBatch`` by the name of the query.
    ///
    /// ``pyarrow.record_batch(...)`` and ``polars.DataFrame(...)`` accept them. A table is absent if its query exceeded
    /// a limit; ``errors`` has the reason.
    ///
    /// >>> import pyarrow
    /// >>> reach = pyarrow.record_batch(archive.report().data["tile_reach"])
    /// >>> reach.schema.names[:4]
    /// ['engine', 'tile', 'num_runs', 'num_reached']
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let data = PyDict::new(py);
        for table in &self.0.tables {
            if let Ok(batch) = &table.rows {
                data.set_item(table.query, ArrowBatch { batch: batch.clone() })?;
            }
        }
        Ok(data)
    }

    /// The reasons why tables are absent: a dict of texts.
    ///
    /// >>> archive.report().errors
    /// {}
    #[getter]
    fn errors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let errors = PyDict::new(py);
        for table in &self.0.tables {
            if let Err(reason) = &table.rows {
                errors.set_item(table.query, reason)?;
            }
        }
        Ok(errors)
    }

    /// The version of the archive that the report describes.
    ///
    /// >>> archive.report().version == archive.version
    /// True
    #[getter]
    fn version(&self) -> u64 {
        self.0.version
    }

    /// Write the page to a file.
    ///
    /// - ``path``: the file. An existing file is replaced.
    ///
    /// Raises ``OSError`` if the file cannot be written.
    ///
    /// >>> archive.report().save("report.html")
    #[allow(clippy::needless_pass_by_value)] // The shape that pyo3 asks for.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        Ok(py.detach(|| self.0.save(&path))?)
    }

    /// Return the page: HTML that needs no other file and no network.
    ///
    /// Raises ``QueryError`` for rows that JSON cannot hold. Named queries have no such rows.
    ///
    /// >>> archive.report().to_html().startswith("<!doctype html>")
    /// True
    fn to_html(&self, py: Python<'_>) -> PyResult<String> {
        Ok(py.detach(|| self.0.to_html())?)
    }

    fn __repr__(&self) -> String {
        let Report { archive, version, tables, .. } = &self.0;
        format!("Report({archive}, version {version}: {} tables)", tables.len())
    }

    /// Return the page in a frame, which separates its styles and scripts from those of the notebook.
    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        Ok(frame(&self.to_html(py)?, "80vh"))
    }
}
