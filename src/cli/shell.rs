//! Completions of shells.

use anyhow::Result;
use clap::{Args, Command, CommandFactory, ValueEnum};
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
    let mut command = visible(&C::command());
    let name = command.get_name().to_owned();
    // In memory, because a generator panics if its output cannot be written.
    let mut script = Vec::new();
    aot::generate(shell, &mut command, name, &mut script);
    script
}

/// Returns a command without hidden arguments, which the generators would offer.
fn visible(command: &Command) -> Command {
    let args = command.get_arguments().filter(|arg| !arg.is_hide_set()).cloned();
    let shown =
        Command::new(command.get_name().to_owned()).args(args).subcommands(command.get_subcommands().map(visible));
    let shown = command.get_about().into_iter().fold(shown, |shown, about| shown.about(about.clone()));
    command.get_version().into_iter().fold(shown, |shown, version| shown.version(version.to_owned()))
}
