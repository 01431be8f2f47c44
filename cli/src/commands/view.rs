//! The subcommand `view`.

use crate::open::ArchiveArgs;
use crate::progress::interrupt;
use crate::terminal::print_warning;
use a2store_explore::{View, ViewOptions};
use anyhow::Result;
use clap::Args;
use std::io::{Write, stdout};
use std::process::{Command, Stdio};

#[derive(Args, Debug)]
pub(crate) struct ViewArgs {
    #[command(flatten)]
    archive: ArchiveArgs,
    /// Port on this machine [default: any free one].
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// Print the address only.
    #[arg(long)]
    no_browser: bool,
}

/// Serves the explorer until Ctrl-C.
pub(crate) fn view(args: &ViewArgs, quiet: bool) -> Result<u8> {
    let archive = args.archive.open()?;
    let follows = args.archive.version.is_none();
    let options = ViewOptions { port: args.port, follows, ..ViewOptions::from_environment()? };
    let cancel = interrupt()?;
    let mut view = View::start(archive, options)?;
    let mut out = stdout().lock();
    if !quiet {
        writeln!(out, "serving {} at the following address until Ctrl-C", args.archive.archive.display())?;
    }
    writeln!(out, "{}", view.url())?;
    out.flush()?;
    if !args.no_browser && !open_browser(&view.url()) && !quiet {
        print_warning("a2store", "no browser was found: open the address in a browser on this machine");
    }
    view.wait(&cancel);
    view.close();
    Ok(0)
}

/// Opens an address in the user's browser. Returns false if there is no browser.
fn open_browser(url: &str) -> bool {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    // A terminal browser would take over this terminal.
    let has_display = cfg!(target_os = "macos")
        || ["DISPLAY", "WAYLAND_DISPLAY"]
            .iter()
            .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
    let mut command = Command::new(program);
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    has_display && command.spawn().is_ok()
}
