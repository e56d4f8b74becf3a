//! Workloads to compare locks with.
//!
//! [`kv`] is the program that `latchwork compare` measures when it is given none.

pub mod kv;
mod pthread;
