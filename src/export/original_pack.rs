//! The check that an exported Macroxue pack equals the original.

use super::session_plan::SessionPlan;
use crate::archive::Archive;
use crate::cancellation::CancellationToken;
use crate::error::{Error, Result};
use crate::query::{QueryOptions, ScalarValue};
use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use serde_json::Value;

/// The indices in their source of all runs that came from a pack.
const RUNS: &str =
    "SELECT source_index FROM runs WHERE source = $source AND session_info = $info ORDER BY source_index";

/// Returns an error if the archive lacks a run of the pack, and the export selects all runs that it has. Without that
/// run, the copy would silently differ from the pack. A selection of some runs is intended.
pub(super) fn check_whole(
    archive: &Archive,
    plan: &SessionPlan,
    pack: &Value,
    num_selected: usize,
    cancel: &CancellationToken,
) -> Result<()> {
    // The layout in an older archive lacks the number.
    let (Some(num_runs), Some(origin)) = (pack.get("num_runs").and_then(Value::as_u64), &plan.origin) else {
        return Ok(());
    };
    let params = vec![("source", ScalarValue::from(&*origin.source)), ("info", ScalarValue::from(&*origin.info))];
    let query = archive.sql_unless_cancelled(RUNS, params.into(), &QueryOptions::default(), cancel)?;
    let (mut stream, mut known, mut missing) = (query.stream_unless_cancelled(cancel)?, 0, None);
    while let Some(batch) = stream.next_unless_cancelled(cancel)? {
        for index in batch.column(0).as_primitive::<Int64Type>().iter().flatten().map(i64::unsigned_abs) {
            missing = missing.or((index != known).then_some(known));
            known += 1;
        }
    }
    if known >= num_runs || num_selected as u64 != known {
        return Ok(());
    }
    let expected = format!("for original, all {num_runs} runs of {}", origin.source);
    let found = format!(
        "no run {} of the pack in the archive, which holds each game once and no damaged run; the format macroxue \
         writes the others",
        missing.unwrap_or(known)
    );
    Err(Error::argument("format", expected, found))
}
