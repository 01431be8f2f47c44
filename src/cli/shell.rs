//! Completions of shells.

use anyhow::Result;
use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::aot::{self, Generator};
use std::io::Write;

#[derive(Args, Debug)]
pub(super) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Prints the completion script of the command line `C`.
pub(super) fn completions<C: CommandFactory>(args: &CompletionsArgs) -> Result<u8> {
    let script = match args.shell {
        Shell::Bash => script::<C>(aot::Bash),
        Shell::Zsh => script::<C>(aot::Zsh),
        Shell::Fish => script::<C>(aot::Fish),
    };
    std::io::stdout().lock().write_all(&script)?;
    Ok(0)
}

fn script<C: CommandFactory>(shell: impl Generator) -> Vec<u8> {
    let mut command = C::command();
    let name = command.get_name().to_owned();
    // In memory, because a generator panics if its output cannot be written.
    let mut script = Vec::new();
    aot::generate(shell, &mut command, name, &mut script);
    script
}
