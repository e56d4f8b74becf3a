//! Workloads to compare locks with: those of the papers, each written once, generic over the lock
//! and over the machine that it runs on.
//!
//! `latchwork-lab bench` runs them on threads of this machine ([`native`]), `latchwork-lab simulate` on a
//! simulated one: both are a [`stage::Stage`]. A workload is a type with parameters
//! ([`workload::Workload`]), one file under [`load`], one line in the [`registry`]. Each checks at its
//! end that its data are what they must be: a fast lock that loses an update is no lock.

pub mod candidate;
pub mod copies;
pub mod cst_rw;
pub mod data;
mod glibc_futex;
pub mod load;
pub mod lock;
pub mod measure;
mod memory_file;
pub mod native;
pub mod peers;
pub mod private;
pub mod registry;
pub mod rwsem_4_19;
pub mod shfl_paper;
pub mod stage;
pub mod tables;
pub mod thread;
pub mod topology;
pub mod workload;
pub mod zipf;
