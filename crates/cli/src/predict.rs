//! `latchwork predict`: becomes `latchwork-lab predict`.
//!
//! The simulator and its locks take longer to compile than all of this command, and only this one subcommand needs them. So they
//! stay in the laboratory's command, which lies beside this one or in the PATH.

use crate::run;
use clap::Args;
use latchwork_console::failure::{Failure, NOT_FOUND, Result};
use std::convert::Infallible;
use std::ffi::OsString;
use std::path::PathBuf;

/// Text below the options.
pub const HELP: &str = "\
This is `latchwork-lab predict`, which has the simulator: `latchwork predict --help` shows its options if latchwork-lab is beside
latchwork or in the PATH. No package has it: in a clone of latchwork's source, `cargo install --path crates/lab` installs it.

Examples:
  latchwork record -o trace.lw -- ./server --bench
  latchwork predict trace.lw --machine 8x24 --threads 1..192";

/// The command that predicts.
const LABORATORY: &str = "latchwork-lab";

/// Options of `latchwork predict`: those of `latchwork-lab predict`.
#[derive(Args)]
pub struct Options {
    /// The trace, and the options of latchwork-lab predict
    #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Replaces this process by the laboratory's command; returns only if that fails.
pub fn predict(options: &Options) -> Result<Infallible> {
    let beside = std::env::current_exe().ok().map(|path| path.with_file_name(LABORATORY));
    let program = beside.filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from(LABORATORY));
    let mut command = vec![program.into_os_string(), "predict".into()];
    command.extend(options.arguments.iter().cloned());
    run::execute(&command).map_err(|failure| match failure.status {
        NOT_FOUND => Failure {
            status: NOT_FOUND,
            message: format!(
                "predict needs {LABORATORY}, which has the simulator, beside latchwork or in the PATH: `cargo install --path \
                 crates/lab` in a clone of latchwork's source installs it"
            ),
        },
        _ => failure,
    })
}
