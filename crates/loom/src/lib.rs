//! The machine on which loom explores the locks, the reclamation and the tables: [`machine`] says what stands for what.
//!
//! The clients are `tests/clients`. They are a crate of their own, because they alone have to be compiled with optimisation.
//! Without it, the library's own tests are compiled in a third of the time.

pub mod machine;
mod records;
mod report;
mod words;

pub use report::report;
