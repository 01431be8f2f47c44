//! The width of the terminal, and colours.

use console::{Term, style, truncate_str};

/// Cuts each line at the width of the terminal. Returns the whole text if standard output is no terminal.
pub(crate) fn fitted(text: &str) -> String {
    let width = Term::stdout().size_checked().map_or(usize::MAX, |(_, columns)| usize::from(columns));
    text.lines().map(|line| truncate_str(line, width, "…")).collect::<Vec<_>>().join("\n")
}

/// Prints an error on standard error, after the name of the command.
pub(crate) fn print_error(name: &str, error: impl std::fmt::Display) {
    eprintln!("{} {error}", style(format_args!("{name}:")).red().bold().for_stderr());
}

/// Prints a warning on standard error, after the name of the command.
pub(crate) fn print_warning(name: &str, warning: &str) {
    eprintln!("{name}: {} {warning}", style("warning:").yellow().bold().for_stderr());
}
