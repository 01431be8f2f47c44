//! DataFusion's errors as errors of this crate, in plain words.

use crate::archive::io_kind;
use crate::error::{Error, ErrorKind};
use arrow::error::ArrowError;
use datafusion::common::utils::datafusion_strsim::normalized_levenshtein;
use datafusion::common::{DataFusionError, SchemaError};
use object_store::Error as StoreError;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Converts an error of DataFusion and removes the prefixes that its layers add.
#[allow(clippy::needless_pass_by_value)] // It stands in `map_err`.
pub(crate) fn query_error(error: DataFusionError) -> Error {
    let message = match error.find_root() {
        DataFusionError::ParquetError(inner) if inner.to_string().contains(IN_FILTER) => of_filter(&inner.to_string()),
        // Planning reads no data, so the error is about a file.
        DataFusionError::ParquetError(_) | DataFusionError::ObjectStore(_) => {
            if let Some(source) = system_error(error.find_root()) {
                // `Archive::blame` adds the path of the archive.
                return Error::io(PathBuf::new(), source);
            }
            let found = error.find_root().strip_backtrace();
            let found = found.lines().next().unwrap_or_default();
            // `Archive::blame` finds out later which file it is.
            return Error::damaged(PathBuf::new(), "data file", "a readable file", found);
        }
        DataFusionError::External(own) if own.is::<Error>() => match own.downcast_ref::<Error>().map(Error::kind) {
            Some(ErrorKind::QueryRefused { what, why }) => return Error::refused(what, why),
            Some(ErrorKind::Damaged { path, what, expected, found }) => {
                return Error::damaged(path, what, expected, found);
            }
            Some(&ErrorKind::VersionNotFound { ref path, version, oldest, newest }) => {
                return ErrorKind::VersionNotFound { path: path.clone(), version, oldest, newest }.into();
            }
            Some(ErrorKind::NotAnArchive { path }) => return ErrorKind::NotAnArchive { path: path.clone() }.into(),
            Some(ErrorKind::Io { path: Some(path), source }) => {
                return Error::io(path, std::io::Error::new(source.kind(), source.to_string()));
            }
            Some(&ErrorKind::Task { index, ref message, ref source }) => {
                return ErrorKind::Task { index, message: message.clone(), source: Arc::clone(source) }.into();
            }
            _ => own.to_string(),
        },
        DataFusionError::ResourcesExhausted(message) => return exhausted("memory", &plain(message)),
        DataFusionError::ArrowError(error, _) if exceeds_spill_limit(error) => {
            return exhausted("spill", &plain(&error.to_string()));
        }
        DataFusionError::SQL(error, _) => error.to_string(),
        DataFusionError::Plan(message)
        | DataFusionError::Execution(message)
        | DataFusionError::NotImplemented(message) => message.clone(),
        DataFusionError::SchemaError(error, _) => match **error {
            SchemaError::AmbiguousReference { .. } => {
                format!("{}: write the name of a table before it, as in runs.run_id", plain(&error.to_string()))
            }
            _ => error.to_string(),
        },
        other => other.strip_backtrace(),
    };
    Error::query(plain(&message))
}

/// Returns the error of the operating system or the object store that caused an error, unless it is a missing file.
fn system_error(error: &DataFusionError) -> Option<io::Error> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        match error.downcast_ref::<StoreError>() {
            // The cause of an error in a folder follows.
            None | Some(StoreError::NotFound { .. } | StoreError::Generic { store: "LocalFileSystem", .. }) => {}
            Some(error) => return Some(io::Error::new(io_kind(error), error.to_string())),
        }
        if let Some(code) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            let error = io::Error::from_raw_os_error(code);
            return (error.kind() != io::ErrorKind::NotFound).then_some(error);
        }
        cause = error.source();
    }
    None
}

/// Returns whether the writer of spill files made an error. It wraps an error of the system.
fn exceeds_spill_limit(error: &ArrowError) -> bool {
    let ArrowError::IoError(_, error) = error else { return false };
    let is_wrapped = error.get_ref().is_some_and(|inner| inner.is::<DataFusionError>());
    error.kind() == io::ErrorKind::Other && error.raw_os_error().is_none() && !is_wrapped
}

/// Returns the end of a message about an unknown name: a question about the most similar of the known names, or
/// nothing.
pub(in crate::query) fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    /// DataFusion suggests names of columns and functions from this similarity on.
    const SIMILAR: f64 = 0.5;
    let name = name.to_lowercase();
    let similarity = |other: &str| normalized_levenshtein(&name, &other.to_lowercase());
    let best = known.into_iter().max_by(|a, b| similarity(a).total_cmp(&similarity(b)));
    let similar = best.filter(|best| similarity(best) >= SIMILAR);
    similar.map(|similar| format!("; did you mean {similar}?")).unwrap_or_default()
}

/// Wraps an error of this crate for DataFusion; `query_error` unwraps it.
pub(in crate::query) fn external(error: Error) -> DataFusionError {
    DataFusionError::External(error.into())
}

/// Returns the error for exhausted memory or spill space. `QueryLimits::explain` adds the allowed number of
/// bytes.
fn exhausted(limit: &'static str, message: &str) -> Error {
    let found = message.lines().next().unwrap_or_default().trim().to_owned();
    ErrorKind::QueryLimit { limit, allowed: String::new(), found }.into()
}

/// The prefixes that DataFusion's layers add to a message.
const LAYERS: [&str; 6] = [
    "Arrow error: ",
    "Execution error: ",
    "External error: ",
    "Internal error: ",
    "Io error: ",
    "Error during planning: ",
];

/// Suffixes for developers of DataFusion.
const AFTERWORDS: [&str; 2] = ["\n\nbacktrace:", "\nThis issue was likely caused by a bug in DataFusion"];

/// Removes the prefixes of layers and the hints for developers from a message.
fn plain(message: &str) -> String {
    let message = match message.split_once("regex parse error:") {
        Some((_, shown)) => {
            shown.lines().find(|line| line.starts_with("error: ")).unwrap_or("invalid regular expression")
        }
        None => AFTERWORDS.iter().fold(message, |rest, word| rest.split_once(word).map_or(rest, |(before, _)| before)),
    };
    // Join all lines into one.
    let message = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    let mut rest = message.as_str();
    while let Some(inner) = LAYERS.iter().find_map(|layer| rest.strip_prefix(layer)) {
        rest = inner;
    }
    // Keep only the message of our own function, without the text that DataFusion puts around it.
    if let Some((_, own)) = rest.split_once("user-defined coercion failed with: Error during planning: ") {
        rest = own;
    }
    if let Some((_, first)) = rest.split_once("failed to match any signature, errors: Error during planning: ") {
        rest = first.split(",Error during planning: ").next().unwrap_or(first);
    }
    for hint in [" No function matches the given name", " Please try increasing the config"] {
        rest = rest.split_once(hint).map_or(rest, |(before, _)| before);
    }
    rest.trim_end_matches('.').to_owned()
}

/// The Parquet reader marks errors from the evaluation of a filter only by this text.
const IN_FILTER: &str = "Error evaluating filter predicate: ";

/// Returns the cause of a failed filter. The reader formats the error with `Debug`:
/// `ArrowError(ComputeError("…"), …)`.
fn of_filter(message: &str) -> String {
    let Some((_, error)) = message.split_once(IN_FILTER) else {
        return message.to_owned();
    };
    match (error.find("(\""), error.find("\")")) {
        (Some(from), Some(to)) if from + 2 <= to => error[from + 2..to].to_owned(),
        _ => error.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_not_the_spill_limit() {
        let exceeds = |error: io::Error| exceeds_spill_limit(&error.into());
        assert!(exceeds(io::Error::other("the limit")));
        assert!(!exceeds(io::Error::from(DataFusionError::IoError(io::ErrorKind::StorageFull.into()))));
        assert!(!exceeds(io::ErrorKind::UnexpectedEof.into()));
    }

    #[test]
    fn prefixes_of_layers_are_removed() {
        let layers = "Execution error: Function 'f' user-defined coercion failed with: Error during planning: f(x): no. \
                      No function matches the given name and argument types 'f(Utf8)'. Add casts.";
        assert_eq!(plain(layers), "f(x): no");
        let cast = "Cast error: 'a' is no number";
        assert_eq!(plain(&format!("Arrow error: {cast}\n\nbacktrace:    0: std::backtrace")), cast);
        assert_eq!(
            plain(
                "Internal error: Differences:\n  - a\n  - b.\nThis issue was likely caused by a bug in DataFusion's code."
            ),
            "Differences: - a - b"
        );
        assert_eq!(of_filter("x: Error evaluating filter predicate: Execution(\"too large\")"), "too large");
        assert_eq!(of_filter("Error evaluating filter predicate: Odd"), "Odd");
    }
}
