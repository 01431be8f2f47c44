//! A progress bar in a terminal, or plain lines in a log.

use super::lines::ProgressLines;
use super::{Progress, Unit};
use indicatif::{HumanCount, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::io::{IsTerminal, stderr};

/// Progress on standard error: a bar in a terminal, otherwise a plain line every few seconds. Both show the
/// rate and the time left, and print warnings.
///
/// The environment variable `A2STORE_PROGRESS_SECONDS` sets the time between two lines: a number of seconds, 5 by
/// default.
#[derive(Debug)]
pub struct ProgressBar(Drawn);

#[derive(Debug)]
enum Drawn {
    Bar(indicatif::ProgressBar),
    Lines(ProgressLines),
    Nothing,
}

impl ProgressBar {
    /// Returns a bar if standard error is a terminal, otherwise lines.
    #[must_use]
    pub fn for_stderr() -> Self {
        if !stderr().is_terminal() {
            return Self(Drawn::Lines(ProgressLines::from_env()));
        }
        let bar = indicatif::ProgressBar::hidden();
        bar.set_draw_target(ProgressDrawTarget::stderr());
        Self(Drawn::Bar(bar))
    }

    /// Returns a receiver that shows nothing.
    #[must_use]
    pub fn hidden() -> Self {
        Self(Drawn::Nothing)
    }
}

impl Progress for ProgressBar {
    fn begin(&self, what: &'static str, unit: Unit, total: u64) {
        match &self.0 {
            Drawn::Bar(bar) => begin(bar, what, unit, total),
            Drawn::Lines(lines) => lines.begin(what, unit, total),
            Drawn::Nothing => {}
        }
    }

    fn expect(&self, by: u64) {
        match &self.0 {
            Drawn::Bar(bar) => bar.inc_length(by),
            Drawn::Lines(lines) => lines.expect(by),
            Drawn::Nothing => {}
        }
    }

    fn advance(&self, by: u64) {
        match &self.0 {
            Drawn::Bar(bar) => bar.inc(by),
            Drawn::Lines(lines) => lines.advance(by),
            Drawn::Nothing => {}
        }
    }

    fn end(&self) {
        match &self.0 {
            Drawn::Bar(bar) => bar.finish_and_clear(),
            Drawn::Lines(lines) => lines.end(),
            Drawn::Nothing => {}
        }
    }

    fn warn(&self, text: &str) {
        match &self.0 {
            Drawn::Bar(bar) => bar.suspend(|| eprintln!("a2store: warning: {text}")),
            Drawn::Lines(_) => eprintln!("a2store: warning: {text}"),
            Drawn::Nothing => {}
        }
    }
}

fn begin(bar: &indicatif::ProgressBar, what: &'static str, unit: Unit, total: u64) {
    let template = match unit {
        Unit::Bytes => "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec}, {eta} left",
        Unit::Rows => "{msg} [{bar:30}] {human_pos}/{human_len} rows {rate}/s, {eta} left",
        Unit::Runs => "{msg} [{bar:30}] {human_pos}/{human_len} runs {rate}/s, {eta} left",
        Unit::Queries => "{msg} [{bar:30}] {human_pos}/{human_len} queries, {eta} left",
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        // The crate prints `per_sec` with four decimals.
        let rate = |state: &ProgressState, out: &mut dyn Write| {
            let _ = write!(out, "{}", HumanCount(state.per_sec() as u64));
        };
        bar.set_style(style.with_key("rate", rate).progress_chars("█▉▊▋▌▍▎▏ "));
    }
    bar.set_length(total);
    bar.set_message(what);
}
