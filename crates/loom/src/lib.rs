//! The machine on which loom explores the locks, the reclamation and the tables: [`machine`] says what stands for what.
//!
//! The clients are `tests/clients`. They are a crate of their own, because only here the library has to be compiled with
//! optimisation: its own tests take a third of the time without.

pub mod machine;
mod records;
mod report;
mod words;

pub use report::report;
