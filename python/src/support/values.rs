//! Conversion of Python values to query parameters and paths.

use a2store::error::{Error, Result};
use a2store::query::{ParamValues, ScalarValue, no_params};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyMapping, PySet, PyString};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Returns the location of a file or a folder: a `pathlib.Path`, or a str for a URL, because a path would merge the two
/// slashes of a URL.
pub(crate) fn location<'py>(py: Python<'py>, path: &Path) -> PyResult<Bound<'py, PyAny>> {
    match path.to_str().filter(|text| text.contains("://")) {
        Some(url) => Ok(PyString::new(py, url).into_any()),
        None => path.into_pyobject(py),
    }
}

/// Converts a dict to `$name` parameters, and a sequence to `$1`, `$2`, ….
pub(crate) fn params(params: Option<&Bound<'_, PyAny>>) -> PyResult<ParamValues> {
    let Some(params) = params else {
        return Ok(no_params());
    };
    if let Ok(named) = params.cast::<PyMapping>() {
        let mut values = HashMap::new();
        for item in named.items()? {
            let (name, value): (String, Bound<'_, PyAny>) = item.extract()?;
            let value = scalar(&format!("params: {name}"), &value)?;
            values.insert(name.trim_start_matches('$').to_owned(), value);
        }
        return Ok(values.into());
    }
    // A set has no order, and a string is not meant as a sequence of letters.
    let is_text_or_set =
        params.is_instance_of::<PyString>() || params.is_instance_of::<PyBytes>() || params.is_instance_of::<PySet>();
    let values = match params.try_iter() {
        Err(error) if !error.is_instance_of::<PyTypeError>(params.py()) => return Err(error),
        Ok(values) if !is_text_or_set => values,
        _ => {
            let found = params.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "params: expected a dict or a sequence of values, found {found}"
            )));
        }
    };
    let values = values.map(|value| scalar("params", &value?)).collect::<PyResult<Vec<_>>>()?;
    Ok(values.into())
}

/// Converts the value of a parameter. `argument` names it in errors.
pub(crate) fn scalar(argument: &str, value: &Bound<'_, PyAny>) -> PyResult<ScalarValue> {
    if value.is_none() {
        return Ok(ScalarValue::Null);
    }
    if value.is_instance_of::<PyBool>() {
        return Ok(ScalarValue::from(value.extract::<bool>()?));
    }
    if value.is_instance_of::<PyInt>() {
        if let Ok(value) = value.extract::<i64>() {
            return Ok(ScalarValue::from(value));
        }
        let Ok(large) = value.extract::<u64>() else {
            let expected = format!("integers of {} to {}", i64::MIN, u64::MAX);
            return Err(PyValueError::new_err(format!("{argument}: expected {expected}, found {value}")));
        };
        return Ok(ScalarValue::from(large));
    }
    if value.is_instance_of::<PyFloat>() {
        return Ok(ScalarValue::from(value.extract::<f64>()?));
    }
    if value.is_instance_of::<PyString>() {
        return Ok(ScalarValue::from(value.extract::<String>()?.as_str()));
    }
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(ScalarValue::Binary(Some(bytes.as_bytes().to_vec())));
    }
    // NumPy's scalars are not instances of Python's types, but `item` converts them.
    if value.hasattr("item")? && value.hasattr("dtype")? {
        // `item` of `numpy.ma.masked` is 0.0.
        if value.get_type().name()? == "MaskedConstant" {
            return Ok(ScalarValue::Null);
        }
        let shape = value.getattr("shape")?;
        let several =
            |_| PyTypeError::new_err(format!("{argument}: expected one value, found an array of shape {shape}"));
        let own = value.call_method0("item").map_err(several)?;
        // For times that Python lacks, such as nanoseconds, `item` returns an int.
        let dtype = value.getattr("dtype")?.str()?.to_string();
        let is_time = ["datetime64", "timedelta64"].iter().any(|name| dtype.starts_with(name));
        if dtype == "datetime64[ns]" && !own.is_none() {
            return Ok(ScalarValue::TimestampNanosecond(Some(own.extract()?), None));
        }
        let is_ticks = is_time && own.is_instance_of::<PyInt>();
        if !own.get_type().is(value.get_type()) && !is_ticks {
            return scalar(argument, &own);
        }
    }
    if value.hasattr("isoformat")? {
        // Only `pandas.NaT` differs from itself.
        if value.ne(value)? {
            return Ok(ScalarValue::Null);
        }
        // The engine parses the text when it compares dates and times.
        return Ok(ScalarValue::from(value.call_method0("isoformat")?.extract::<String>()?.as_str()));
    }
    let name = value.get_type().name()?;
    let expected = "None, bool, int, float, str, bytes or a date";
    Err(PyTypeError::new_err(format!("{argument}: expected {expected}, found {name}")))
}

/// Converts a number of seconds.
pub(crate) fn seconds(argument: &'static str, secs: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(secs).map_err(|_| Error::argument(argument, "seconds, 0 or more", secs))
}

/// Returns whether a value is a path.
pub(crate) fn is_path(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(value.is_instance_of::<PyString>() || value.hasattr("__fspath__")?)
}

/// Extracts one name, or any iterable of names.
pub(crate) fn names_from(argument: &str, names: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    if let Ok(name) = names.extract::<String>() {
        return Ok(vec![name]);
    }
    let wrong = |found: &Bound<'_, PyAny>| {
        let found = found.get_type().name()?;
        let message = format!("{argument}: expected a name or an iterable of names, found {found}");
        Ok::<_, PyErr>(PyTypeError::new_err(message))
    };
    let Ok(items) = names.try_iter() else { return Err(wrong(names)?) };
    let name = |name: PyResult<Bound<'_, PyAny>>| {
        let name = name?;
        name.extract::<String>().or_else(|_| Err(wrong(&name)?))
    };
    items.map(name).collect()
}

/// Extracts one path, or any iterable of paths.
pub(crate) fn paths_from(paths: &Bound<'_, PyAny>) -> PyResult<Vec<PathBuf>> {
    if is_path(paths)? {
        return Ok(vec![paths.extract()?]);
    }
    if paths.is_instance_of::<PyBytes>() {
        return Err(PyTypeError::new_err("paths: expected a str or os.PathLike, found bytes"));
    }
    match paths.try_iter() {
        Ok(paths) => paths.map(|path| path?.extract()).collect(),
        Err(_) => Err(PyTypeError::new_err("paths: expected a path or an iterable of paths")),
    }
}
