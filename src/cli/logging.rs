//! Log lines on standard error.

use super::exit::UsageError;
use super::progress::above_bar;
use anyhow::Result;
use clap::ValueEnum;
use std::io::{self, Write, stderr};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

/// The environment variable with a filter in the syntax of `tracing-subscriber`, such as `a2store::query=debug`.
const FILTER_VARIABLE: &str = "RUST_LOG";

/// The lowest level of the events to log.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum LogLevel {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// Starts logging the library's events at `level` and above, or by the filter in `RUST_LOG`. Without both, logs
/// nothing.
pub(super) fn log_to_stderr(level: Option<LogLevel>) -> Result<()> {
    let filter = match (level, std::env::var(FILTER_VARIABLE)) {
        (Some(level), _) => {
            let level = match level {
                LogLevel::Off => return Ok(()),
                LogLevel::Error => LevelFilter::ERROR,
                LogLevel::Warn => LevelFilter::WARN,
                LogLevel::Info => LevelFilter::INFO,
                LogLevel::Debug => LevelFilter::DEBUG,
                LogLevel::Trace => LevelFilter::TRACE,
            };
            EnvFilter::new(format!("off,a2store={level},object_store={level}"))
        }
        (None, Ok(filter)) if !filter.is_empty() => EnvFilter::try_new(&filter)
            .map_err(|error| UsageError(format!("{FILTER_VARIABLE}: {error}: {filter:?}")))?,
        (None, _) => return Ok(()),
    };
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(AboveBar);
    // Another program that runs this command may have a subscriber, which then receives the events.
    lines.with_ansi(console::colors_enabled_stderr()).try_init().ok();
    Ok(())
}

/// Standard error, with log lines above the progress bar.
struct AboveBar;

impl Write for AboveBar {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A log line that cannot be written must not stop the work.
        let _ = above_bar(|| stderr().write_all(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for AboveBar {
    type Writer = AboveBar;

    fn make_writer(&self) -> AboveBar {
        AboveBar
    }
}
