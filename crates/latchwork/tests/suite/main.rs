//! The library's integration tests, as one program: each program links the whole library once more, which takes longer
//! than most of these tests run.
//!
//! Tests that need a process of their own stand beside this folder: `leaks` counts every allocation of the process,
//! `forgotten` stops reclamation in the process for good, and `grace` counts the grace periods of the process. What
//! loom explores is a package of its own, `latchwork-loom`, because it is compiled with optimisation and this is not.

mod alone;
mod coming_from;
mod contributing;
mod ends;
mod face;
mod fifo;
mod hostile;
mod memcheck;
mod optimised;
mod parking_lot_program;
mod platform;
mod symbols;
mod threads;
mod unload;
