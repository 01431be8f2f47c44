//! Log lines on standard error.

use super::exit::UsageError;
use anyhow::Result;
use tracing_subscriber::EnvFilter;

/// The environment variable with a filter in the syntax of `tracing-subscriber`, such as `a2store::query=debug`.
const FILTER_VARIABLE: &str = "RUST_LOG";

/// Logs the library's events by the filter in `RUST_LOG`. Without a filter, logs nothing.
pub(crate) fn log_to_stderr() -> Result<()> {
    let Some(filter) = std::env::var(FILTER_VARIABLE).ok().filter(|filter| !filter.is_empty()) else { return Ok(()) };
    let filter =
        EnvFilter::try_new(&filter).map_err(|error| UsageError(format!("{FILTER_VARIABLE}: {error}: {filter:?}")))?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A log line that cannot be written must not stop the work.
    let lines = lines.log_internal_errors(false);
    // Another program that runs this command may have a subscriber, which then receives the events.
    lines.with_ansi(console::colors_enabled_stderr()).try_init().ok();
    Ok(())
}
