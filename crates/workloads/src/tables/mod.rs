//! Hash tables: the one that McKenney, Hart and Walpole measured, under each way to synchronize it.
//!
//! A table is a dense array of pointers, each to the chain of its bucket (McKenney, Hart and Walpole, "Practical
//! Concerns for Scalable Synchronization", 2005, section 3.3). The tables differ in which threads may be in a chain at
//! the same time, and in when the memory of a removed element is used again. Each way is a [`Table`], one file per
//! family:
//!
//! | file | tables |
//! |---|---|
//! | [`locked`] | one reader-writer lock (any of the library's; `percpu` is the brlock), one mutex per bucket, none at all ("ideal") |
//! | [`bucket_lock`] | updaters lock the bucket, readers lock nothing: RCU-L, HPBR-L, and the same over epochs |
//! | [`lock_place`] | where the lock of a bucket lies: in its head, or beside it |
//! | [`type_stable`] | updaters lock the bucket, removed elements are used again at once, and readers check whether any was |
//! | [`michael`] | no thread locks: RCU-NBS, HPBR-NBS, and the same over epochs |
//!
//! The tables are there to be compared; a program uses [`RcuMap`](latchwork::map::RcuMap). They check themselves: keys
//! are numbers, the number of elements is fixed, and a reader that meets an element after it was reclaimed returns an
//! error ([`Reclaimed`]).
//!
//! [`kinds`] names every table, [`workload`] is what a workload over tables is, and the [`registry`](crate::registry) runs
//! one over the table that the user names.

pub mod bucket_lock;
pub mod kinds;
pub mod lock_place;
pub mod locked;
pub mod michael;
mod node;
pub mod readers;
mod store;
mod table;
pub mod type_stable;
pub mod workload;

#[cfg(test)]
mod tests;

pub use kinds::{Visitor, visit};
pub use node::Node;
pub use table::{Info, Reclaimed, Shape, Table};
pub use workload::TableWorkload;
