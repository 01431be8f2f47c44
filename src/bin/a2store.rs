//! The command `a2store`.

use std::process::ExitCode;

fn main() -> ExitCode {
    a2store::cli::main(std::env::args_os())
}
