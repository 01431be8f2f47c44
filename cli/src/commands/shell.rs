//! Completions of shells.

use anyhow::Result;
use clap::{Args, CommandFactory};
use clap_complete::aot::{self, Shell};
use std::io::Write;

#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

/// Prints the completion script of the command line `C`.
pub(crate) fn completions<C: CommandFactory>(args: &CompletionsArgs) -> Result<u8> {
    let mut command = C::command();
    let name = command.get_name().to_owned();
    // In memory, because a generator panics if its output cannot be written.
    let mut script = Vec::new();
    aot::generate(args.shell, &mut command, name, &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(0)
}
