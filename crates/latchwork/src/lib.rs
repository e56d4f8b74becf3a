//! Scalable mutexes, reader-writer locks and condition variables for Linux.
//!
//! ```
//! use latchwork::{Mutex, RwLock};
//!
//! static JOBS: Mutex<Vec<u32>> = Mutex::new(Vec::new());
//! static LIMIT: RwLock<u32> = RwLock::new(100);
//!
//! let limit = *LIMIT.read();
//! JOBS.lock().push(limit);
//! assert_eq!(*JOBS.lock(), [100]);
//! ```
#![no_std]
// Small parts of the foundation serve only locks of the feature `all-locks`. With the feature, the compiler reports what
// nobody uses.
#![cfg_attr(not(feature = "all-locks"), allow(dead_code))]

#[cfg(not(target_os = "linux"))]
compile_error!("latchwork is for Linux only: it is built on futexes, membarrier and glibc's threads");

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod locks;
pub mod machine;
pub mod map;
pub mod reclaim;
pub mod registry;

mod sync;

pub use lock_api;
pub use sync::*;
