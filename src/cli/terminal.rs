//! The width of the terminal, and colours.

use console::{Term, style};

/// How to print rows for people.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Look {
    /// The number of columns of the terminal; `None` = no limit.
    pub(super) width: Option<usize>,
    /// Whether to use colours and bold text.
    pub(super) colors: bool,
}

impl Look {
    /// Returns the look of standard output. The width has a limit only if it is a terminal.
    pub(super) fn of_stdout() -> Look {
        let width = Term::stdout().size_checked().map(|(_, columns)| usize::from(columns));
        Look { width, colors: console::colors_enabled() }
    }
}

/// Prints an error on standard error, after the name of the command.
pub(super) fn print_error(name: &str, error: impl std::fmt::Display) {
    eprintln!("{} {error}", style(format_args!("{name}:")).red().bold().for_stderr());
}

/// Prints a warning on standard error, after the name of the command.
pub(super) fn print_warning(name: &str, warning: &str) {
    eprintln!("{name}: {} {warning}", style("warning:").yellow().bold().for_stderr());
}
