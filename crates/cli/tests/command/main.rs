//! Tests of the command `latchwork`: they run it as a user would. One binary holds them all, because linking each file
//! for itself takes longer than running it.

#[path = "../../../console/tests/common/mod.rs"]
mod common;

mod compare;
mod daemons;
mod documents;
mod embedded;
mod list;
mod live;
mod observed;
mod obstacles;
mod profile;
mod record;
mod results;
mod run;
mod sanitizers;
mod server;
mod statistics;
mod streams;
mod stuck;
mod tune;
mod unfinished;
mod unloaded;
mod used;

/// A part of what commands say of a program that calls no pthread lock.
const UNSEEN: &str = "locks that are not pthread's (those of Rust's std and of Go,";

/// The command that was just built.
const COMMAND: &str = env!("CARGO_BIN_EXE_latchwork");
