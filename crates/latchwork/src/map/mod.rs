//! [`RcuMap`]: a concurrent hash map whose readers lock nothing and wait for no other thread, also while it grows.
//!
//! | file | what it holds |
//! |---|---|
//! | `rcu_map` | the type that programs use: [`RcuMap`], with its guards and iterators |
//! | [`growing`] | the algorithm, over any machine: shards, each with a lock for its updaters and a table that is replaced when it grows |
//! | `lines` | a table: buckets that are cache lines of element numbers and tags |
//! | `elements` | the memory of keys and values, by number |
//! | `array` | an array whose first element is at the beginning of a cache line |

#[doc(hidden)]
pub mod array;
mod elements;
pub mod growing;
mod lines;
mod rcu_map;

pub use rcu_map::{Iter, RcuMap, Reading, Ref};

#[cfg(test)]
mod tests;
