//! Torture for locks: threads that use them as a bad day in production would.
//!
//! [`of_mutex`], [`of_rwlock`] and [`of_seqlock`] make the [`Scenario`]s of a lock, [`registered`] those of one of
//! the library's. [`torture`] runs them in turn, in short rounds, until the time is over or the lock has failed. Between
//! rounds every thread must be able to leave: a wakeup that was lost early, and hidden by later traffic, shows there.
//!
//! | scenario | what is checked |
//! |---|---|
//! | manners | what a lock promises a single thread |
//! | exclusion | plain data that only the lock keeps right: [`ledger`] |
//! | abandonment | the same, where almost every thread gives up waiting |
//! | both | writers become readers, and readers writers; holders leave the lock to a waiter: [`mod@modes`] |
//! | condition | the condition variable over a mutex: [`market`] |
//! | priorities | exclusion and condition, by threads of three real-time priorities on one processor: [`mod@priorities`] |
//! | reuse | a lock that is freed as soon as the last one has released it: [`reuse`] |
//! | copies | a sequence lock, whose readers hold nothing: [`mod@copies`] |
//! | reclaim | readers of a reclamation strategy, whose objects are replaced: [`mod@reclaim`] |
//!
//! Each scenario runs on the native machine, and on one that delays threads between any two steps ([`jitter`]). Meanwhile
//! threads exit and are replaced, are interrupted and moved between processors ([`chaos`]), and the process forks.
//!
//! A check that cannot fail is worth nothing: [`twins`] are locks that are broken on purpose, each of
//! which must be caught.
//!
//! The torture is a crate of its own, because it shares nothing with the workloads: a test of a lock builds without what
//! measuring needs.

pub mod access;
pub mod arena;
pub mod chaos;
pub mod copies;
pub mod jitter;
pub mod ledger;
pub mod lock;
pub mod manners;
pub mod market;
pub mod modes;
mod naps;
pub mod priorities;
pub mod random;
pub mod reclaim;
mod report;
pub mod reuse;
pub mod run;
mod scenario;
pub mod twins;
pub mod unit;
pub mod worker;

pub use report::{Failed, Progress, Report, Totals};
pub use run::{Bounds, Failure};
pub use scenario::{Scenario, Settings, of_mutex, of_rwlock, of_seqlock, of_upgradable, registered, torture};
