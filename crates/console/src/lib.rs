//! What the commands `latchwork` and `latchwork-lab` share: errors with their exit status, lock names, files that
//! results are written to, signals, statistics of a few runs, tables, and what this machine is.

pub mod ending;
pub mod failure;
pub mod fold;
pub mod help;
pub mod machine;
pub mod names;
pub mod output;
mod replace;
pub mod signals;
pub mod stats;
pub mod table;
