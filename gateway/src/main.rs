//! The binary `sluice`.

use std::process::ExitCode;

fn main() -> ExitCode {
    sluice_gateway::cli::run(std::env::args_os())
}
