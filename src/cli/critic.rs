//! The subcommand `critic`, which only the Python package has.

use super::args::CriticArgs;
use super::exit::UsageError;
use anyhow::{Result, bail};

/// Rejects the command. The package's `a2store` handles it before it calls this crate.
pub(super) fn critic(args: &CriticArgs) -> Result<u8> {
    let CriticArgs { command, arguments: _ } = args;
    bail!(UsageError(format!("critic {command}: needs the Python package: pip install a2store")))
}
