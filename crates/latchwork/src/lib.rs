//! Scalable mutexes, reader-writer locks and condition variables for Linux, and reading without locks.
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
//!
//! # Which one?
//!
//! | you have | take | waiters |
//! |---|---|---|
//! | a value that one thread at a time uses | [`Mutex`] | sleep |
//! | a value that is mostly read | [`RwLock`] | sleep |
//! | a condition to wait for | [`Condvar`] | sleep |
//! | a number of things to hand out | [`Semaphore`] | sleep |
//! | a few words that are read all together and seldom written | [`SeqLock`] | readers do not wait |
//! | a function that locks what its caller has locked | [`ReentrantMutex`] | sleep |
//! | a value that is read all the time and replaced as a whole | [`reclaim::Rcu`] | readers do not wait |
//! | a hash table that is mostly read | [`map::RcuMap`] | readers do not wait |
//! | a set that is mostly read | [`map::RcuSet`] | readers do not wait |
//! | an ordered map that is mostly read, with ranges of one moment | [`map::RcuTreeMap`] | readers do not wait |
//! | an operation to do once, a barrier | [`std::sync`](https://doc.rust-lang.org/std/sync/) | |
//!
//! The page of each type says what it costs, which thread gets the lock next, and what happens on a panic, on `fork` and
//! in a signal handler. [`coming_from`] maps the types and methods of std, parking_lot, pthread, crossbeam-epoch,
//! arc-swap and dashmap to these.
//!
//! No lock is poisoned by a panic. No lock allocates for each acquisition: what waiters and readers need comes from
//! pools of the process. Each lock can be made in a `static`, and so can a [`reclaim::RcuOption`]. An [`Rcu`](reclaim::Rcu) or a map
//! in a `static` needs a [`LazyLock`](std::sync::LazyLock).
//!
//! The locks can be used before `main`, in every destructor of a thread that exits, and while the process exits. A guard that a thread
//! keeps in a `thread_local!` is dropped when the thread exits, as usual.
//!
//! # Async code
//!
//! These locks make the thread wait, not the task. A guard that a task keeps across an `.await` is held for as long as the task is
//! suspended: if another task of that thread wants the lock meanwhile, the thread waits for itself. No guard is [`Send`], neither of a
//! lock nor of RCU or a map. So a task that keeps one across an `.await` is not `Send` either, and an executor with several threads
//! does not take it:
//!
//! ```compile_fail
//! # use std::future::{Future, ready};
//! # fn spawn(task: impl Future<Output = ()> + Send + 'static) { drop(task) }
//! static JOBS: latchwork::Mutex<Vec<u32>> = latchwork::Mutex::new(Vec::new());
//! spawn(async {
//!     let jobs = JOBS.lock();
//!     ready(()).await;
//!     drop(jobs);
//! });
//! ```
//!
//! ```
//! # use std::future::{Future, ready};
//! # fn spawn(task: impl Future<Output = ()> + Send + 'static) { drop(task) }
//! static JOBS: latchwork::Mutex<Vec<u32>> = latchwork::Mutex::new(Vec::new());
//! spawn(async {
//!     let first = JOBS.lock().pop();
//!     ready(first).await;
//! });
//! ```
//!
//! An executor of one thread takes both. There clippy's `await_holding_lock`, which is on by default, reports guards of [`Mutex`] and
//! [`RwLock`]. For the others, `clippy.toml` names the types (the paths are those of private modules; it does not look into an `Option`):
//!
//! ```text
//! await-holding-invalid-types = [
//!     "latchwork::reclaim::cell::Ref", "latchwork::reclaim::section::SectionGuard",
//!     "latchwork::map::rcu_map::Ref", "latchwork::map::rcu_map::Reading",
//! ]
//! ```
//!
//! What can be kept across an `.await`: a [`snapshot`](reclaim::Rcu::snapshot), copies of a map's elements, and a
//! [`HazardPointer`](reclaim::hazard::HazardPointer). A lock that must be kept is one of the async runtime.
//!
//! # Miri and loom
//!
//! Miri does not run this crate: it stops at the assembly and at the system calls. Under `cfg(miri)`, a program takes its locks from
//! parking_lot, which has the same methods. It leaves out tests of RCU and of maps (`#[cfg_attr(miri, ignore)]`). loom does not see
//! these locks either.
//!
//! # How it is built
//!
//! The types are aliases over [`lock_api`] 0.5. A guard carries the state of its acquisition, such as a queue node, to the
//! release. Each algorithm is one file under [`locks::mutex`] or [`locks::rwlock`]. It is written once over the
//! [`machine::Machine`] trait, so the code that runs in production is the code that the model checker and the simulator
//! run. [`registry`] lists all algorithms.
//!
//! # What it needs
//!
//! Linux with glibc 2.34 or newer, and Linux 4.14 or newer for the fence (`membarrier`) that spares readers the atomic
//! instructions. On an older kernel, or where a filter forbids `membarrier`, readers of [`RwLock`] use the lock below the
//! bias, and readers of RCU execute a full fence. x86-64 is what is tested and measured.
//!
//! Some filters do not refuse a system call, but kill the process. A program with such a filter that does not allow `membarrier` calls
//! [`Native::init`](machine::Native::init) before it uses a lock, which finds that out, or
//! [`Native::avoid_membarrier`](machine::Native::avoid_membarrier) before it installs the filter.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `std` | yes | [`map`]; times as `Duration` and `Instant`: `try_lock_for`, `try_lock_until`, `wait_for`, ... |
//! | `all-locks` | no | every algorithm of the registry; without it, `shfl`, `mcs`, `ticket`, `pf-q`, `shfl-rw`, `bravo` over the last two, and `seqlock` |
//! | `section-origins` | no | a stall says where the reader's section began ([`reclaim::Stall::origin`]); a section costs a store more |
//! | `arc_lock` | no | guards that own the `Arc` of their lock: `lock_arc`, `ArcMutexGuard`, ... |
//! | `serde` | no | locks and cells are serialized as their value, maps and sets as maps and sequences |
//! | `rayon` | no | maps and sets are read and made by the threads of the crate `rayon` |
//! | `owning_ref` | no | guards work with the crate `owning_ref` |
//!
//! `arc_lock`, `serde` for locks, and `owning_ref` are `lock_api`'s. Without `std` the crate needs `alloc` and glibc, and on
//! x86-64 no standard library. (Elsewhere its thread-local words are the standard library's.)
#![no_std]
// The header of an algorithm names private constants of its file. `cargo doc --document-private-items` shows them.
#![allow(rustdoc::private_intra_doc_links)]
// Some parts of the foundation serve only locks of the feature `all-locks`. With the feature, the compiler reports what is
// not used.
#![cfg_attr(not(feature = "all-locks"), allow(dead_code))]

#[cfg(not(target_os = "linux"))]
compile_error!("latchwork is for Linux only: it is built on futexes, membarrier and glibc's threads");

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod locks;
pub mod machine;
#[cfg(feature = "std")]
pub mod map;
pub mod reclaim;
pub mod registry;

mod sync;

pub use lock_api;
pub use sync::*;

#[cfg(any(doc, doctest))]
#[doc = include_str!("../COMING-FROM.md")]
pub mod coming_from {}

/// The examples of the README are tests as well.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
