//! Scalable mutexes, reader-writer locks and condition variables for Linux.
//!
//! ```
//! use latchwork::{RwLock, ShflMutex};
//!
//! static JOBS: ShflMutex<Vec<u32>> = ShflMutex::new(Vec::new());
//! static LIMIT: RwLock<u32> = RwLock::new(100);
//!
//! let limit = *LIMIT.read();
//! JOBS.lock().push(limit);
//! assert_eq!(*JOBS.lock(), [100]);
//! ```
//!
//! The types are aliases over [`lock_api`] 0.5, whose guards carry what an algorithm must remember
//! from acquire to release. Each algorithm is one file under [`locks::mutex`] or [`locks::rwlock`], written once
//! over the [`machine::Machine`] trait, so that the code that runs in production is the code that
//! the model checker and the simulator run. [`registry`] lists them all.
//!
//! [`reclaim`] is for readers that take no lock at all: RCU, epochs and hazard pointers, and the safe
//! [`reclaim::Rcu`] cell over them.
//!
//! Which one? [`ShflMutex`] and [`RwLock`] unless you measured something else; the others are
//! the field's reference points, to compare with.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod locks;
pub mod machine;
pub mod map;
pub mod reclaim;
pub mod registry;

pub use locks::aliases::*;
pub use locks::semaphore::Semaphore;
