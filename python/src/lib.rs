//! The extension module of the Python package `a2store`: thin classes over the crate.
//!
//! Entry point: the module function `_a2store`. Invariant: long operations run without the interpreter's lock, and
//! Ctrl-C stops them within a fraction of a second.

// The shape that pyo3 asks for.
#![allow(clippy::needless_pass_by_value, clippy::too_many_arguments)]

mod archive;
mod batch;
mod cluster;
mod display;
mod error;
mod loader;
mod mix;
mod pack;
mod query;
mod query_call;
mod run;
mod selfplay;
mod shard;
mod sql;
mod support;
mod table;
mod view;

use crate::support::interpreter::detached;
use a2store::archive::{TableName, table_schema};
use pyo3::prelude::*;

/// The extension module; `python/a2store/__init__.py` re-exports it.
#[pymodule]
fn _a2store(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // A child that is forked while another thread builds these tables would wait for them forever.
    a2store::board::build_tables();
    TableName::ALL.into_iter().for_each(|table| drop(table_schema(table)));
    a2store::selfplay::build_tables();
    support::interpreter::wait_at_exit(module.py())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<archive::PyArchive>()?;
    module.add_class::<view::PyView>()?;
    module.add_class::<support::arrow::ArrowArray>()?;
    module.add_class::<support::arrow::ArrowBatch>()?;
    module.add_class::<support::arrow::ArrowSchema>()?;
    module.add_class::<batch::PyBatch>()?;
    module.add_class::<selfplay::env::PyVectorEnv>()?;
    module.add_class::<loader::PyBatchIterator>()?;
    module.add_class::<loader::PyLoader>()?;
    // `add_class` would export the private names.
    module.setattr("_Pack", module.py().get_type::<pack::PyPack>())?;
    module.setattr("_Position", module.py().get_type::<loader::PyPosition>())?;
    module.add_class::<pack::PyPackIterator>()?;
    module.add_class::<selfplay::play::PyPlayer>()?;
    module.add_class::<query_call::PyQuery>()?;
    module.add_class::<query::PyQueryBatches>()?;
    module.add_class::<run::PyRun>()?;
    module.add_class::<selfplay::recorder::PyGame>()?;
    module.add_class::<selfplay::recorder::PyRecorder>()?;
    module.add_class::<table::PyStepTable>()?;
    module.add_function(wrap_pyfunction!(sql::queries, module)?)?;
    module.add_function(wrap_pyfunction!(sql::sql_functions, module)?)?;
    module.add_function(wrap_pyfunction!(table::attach, module)?)?;
    module.add_function(wrap_pyfunction!(mix::mix, module)?)?;
    module.add_function(wrap_pyfunction!(pack::permutation, module)?)?;
    module.add_function(wrap_pyfunction!(pack::places_of_rows, module)?)?;
    module.add_function(wrap_pyfunction!(selfplay::play::play, module)?)?;
    module.add_function(wrap_pyfunction!(display::exponents, module)?)?;
    module.add_function(wrap_pyfunction!(display::svg, module)?)?;
    module.add_function(wrap_pyfunction!(display::write_page, module)?)?;
    module.add_function(wrap_pyfunction!(run::read_run, module)?)?;
    module.add_function(wrap_pyfunction!(selfplay::simulate::simulate, module)?)?;
    module.add_function(wrap_pyfunction!(archive::convert, module)?)?;
    module.add_function(wrap_pyfunction!(archive::open, module)?)?;
    module.add_function(wrap_pyfunction!(archive::verify, module)?)?;
    module.add_function(wrap_pyfunction!(archive::restore, module)?)?;
    module.add_function(wrap_pyfunction!(run_command, module)?)?;
    Ok(())
}

/// Run the command ``a2store`` or ``a2pack`` with these arguments and return its exit status.
///
/// The status is 0 for success, 1 for a problem in the data, and 2 for wrong usage.
///
/// - ``args``: the command's name, then its arguments.
#[pyfunction]
#[pyo3(name = "_run_command")]
fn run_command(py: Python<'_>, args: Vec<std::ffi::OsString>) -> u8 {
    detached(py, || match args.first().is_some_and(|name| name == "a2pack") {
        true => a2store_cli::a2pack(args),
        false => a2store_cli::a2store(args),
    })
}
