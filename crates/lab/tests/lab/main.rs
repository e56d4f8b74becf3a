//! The tests of the command `latchwork-lab`, one module for each of its commands. They are one program, because each
//! test program of its own would have to be linked.

mod ablate;
mod architecture;
mod bench;
mod calibrate;
#[path = "../../../console/tests/common/mod.rs"]
mod common;
mod count;
mod documents;
mod predict;
mod reproduce;
mod simulate;
mod torture;

use latchwork_workloads::topology;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The command that was just built.
const COMMAND: &str = env!("CARGO_BIN_EXE_latchwork-lab");

/// The command with one processor.
fn on_one_cpu() -> Command {
    let cpu = topology::allowed()[0];
    let mut command = common::latchwork();
    let bind = move || {
        topology::pin(cpu);
        Ok(())
    };
    // SAFETY: between fork and exec, `pin` makes one system call and nothing else.
    unsafe { command.pre_exec(bind) };
    command
}
