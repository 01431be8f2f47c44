//! The command `a2store`.

use std::process::ExitCode;

fn main() -> ExitCode {
    a2store_cli::a2store(std::env::args_os()).into()
}
