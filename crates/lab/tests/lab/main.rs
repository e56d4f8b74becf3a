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

/// The command that was just built.
const COMMAND: &str = env!("CARGO_BIN_EXE_latchwork-lab");
