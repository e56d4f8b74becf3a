//! The file in which the preload library records how a program uses its locks.
//!
//! | module | what it has |
//! |---|---|
//! | [`control`] | how the recording of a live process is switched on and off |
//! | [`layout`] | the records of the file, as the recorder writes them and the reader finds them |
//! | [`histogram`] | the buckets of durations |
//! | [`trace`] | the raw trace of `latchwork record` |
//! | `trace_raw` | reads that raw trace (feature `trace-file`) |
//! | `trace_file` | the trace that users keep, which `latchwork predict` replays (feature `trace-file`) |
//! | `ends` | which thread a creation or a join is about |
//! | `edges` | what makes a waiting thread go on, in such a trace (feature `trace-file`) |
//! | [`reader`] | opens a file, checks it, and copies it into plain structs |
//!
//! The recorder maps the file, and each record is complete as soon as its section counts it. So a file is usable at any
//! moment: while the program runs, after it was killed, and after `_exit`.

pub mod control;
#[cfg(feature = "trace-file")]
pub mod edges;
#[cfg(feature = "trace-file")]
mod ends;
pub mod histogram;
pub mod layout;
pub mod reader;
pub mod trace;
#[cfg(feature = "trace-file")]
pub mod trace_file;
#[cfg(feature = "trace-file")]
pub mod trace_raw;
