//! The command `a2pack`.

use std::process::ExitCode;

fn main() -> ExitCode {
    a2store_cli::a2pack(std::env::args_os()).into()
}
