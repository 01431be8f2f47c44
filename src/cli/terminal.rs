//! The width of the terminal, and colours.

use clap::ColorChoice;
use console::{Term, measure_text_width, set_colors_enabled, set_colors_enabled_stderr, style};

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

/// Returns a paragraph after `head`, whose other lines begin after `indent` blanks. It is broken at blanks to fit `width`.
pub(super) fn paragraph(head: &str, text: &str, indent: usize, width: Option<usize>) -> String {
    let mut lines = vec![head.to_owned()];
    for word in text.split(' ') {
        if let Some(line) = lines.last_mut() {
            let used = measure_text_width(line);
            if used <= indent || width.is_none_or(|width| used + 1 + measure_text_width(word) <= width) {
                // The head and the indentation end where the text begins.
                line.push_str(if used <= indent { "" } else { " " });
                line.push_str(word);
                continue;
            }
        }
        lines.push(" ".repeat(indent) + word);
    }
    lines.join("\n")
}

/// Sets whether this process prints colours. `Auto` keeps the default: only terminals get colours, and `NO_COLOR` and
/// `CLICOLOR_FORCE` override this.
pub(super) fn choose_colors(choice: ColorChoice) {
    let colors = match choice {
        ColorChoice::Auto => return,
        ColorChoice::Always => true,
        ColorChoice::Never => false,
    };
    set_colors_enabled(colors);
    set_colors_enabled_stderr(colors);
}

/// Prints an error on standard error, after the name of the command.
pub(super) fn print_error(name: &str, error: impl std::fmt::Display) {
    eprintln!("{} {error}", style(format_args!("{name}:")).red().bold().for_stderr());
}

/// Prints a warning on standard error, after the name of the command.
pub(super) fn print_warning(name: &str, warning: &str) {
    eprintln!("{name}: {} {warning}", style("warning:").yellow().bold().for_stderr());
}
