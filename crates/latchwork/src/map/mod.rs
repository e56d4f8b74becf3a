//! [`RcuMap`]: a concurrent hash map whose readers lock nothing and wait for no other thread, also while it grows; and
//! [`RcuSet`]. [`RcuTreeMap`] and [`RcuTreeSet`]: an ordered map and set, in which a walk or a range sees what was there at one moment.
//!
//! | file | what it holds |
//! |---|---|
//! | `rcu_map` | the type that programs use, [`RcuMap`]: making it, and looking keys up |
//! | `update` | what changes it |
//! | `entry` | a key that is locked for several steps |
//! | `iter` | walks over it |
//! | `convert`, `with_serde`, `with_rayon` | the traits of the standard library and of the crates `serde` and `rayon` |
//! | [`set`] | [`RcuSet`] |
//! | [`growing`] | the algorithm, over any machine: lookups and updates of a table that grows |
//! | `shards` | the shards, each with a lock for its updaters, and the directory that names them |
//! | `lines` | buckets that are cache lines of element numbers and tags |
//! | `tags` | the comparison of the tags of a line |
//! | `elements` | the memory of keys and values, by number |
//! | `tree_map` | the ordered map that programs use, [`RcuTreeMap`] |
//! | `tree_reading`, `tree_iter`, `tree_traits` | what a reader sees, walks over it, and the traits of the standard library and of `serde` |
//! | `tree_set` | an ordered set, [`RcuTreeSet`] |
//! | [`tree`] | the algorithm, over any machine: a balanced tree that is copied where it changes |
//! | `pages` | the pages of that tree |
//! | `array` | an array whose first element is at the beginning of a cache line |

use crate::locks::mutex::RawMutex;

#[doc(hidden)]
pub mod array;
mod convert;
mod elements;
mod entry;
pub mod growing;
mod iter;
mod lines;
mod pages;
mod rcu_map;
pub mod set;
mod shards;
mod tags;
pub mod tree;
mod tree_iter;
mod tree_map;
mod tree_reading;
mod tree_set;
mod tree_traits;
mod update;
#[cfg(feature = "rayon")]
mod with_rayon;
#[cfg(feature = "serde")]
mod with_serde;

pub use entry::{Entry, OccupiedEntry, VacantEntry};
pub use equivalent::{Comparable, Equivalent};
pub use iter::{Cloned, IntoIter, Iter, Keys, Refs, Values};
pub use rcu_map::{RcuMap, Reading, Ref, Statistics};
pub use set::RcuSet;
pub use tree_iter::{TreeCloned, TreeIntoIter, TreeKeys, TreeRange, TreeRefs, TreeValues};
pub use tree_map::RcuTreeMap;
pub use tree_reading::TreeReading;
pub use tree_set::{RcuTreeSet, TreeSetIntoIter, TreeSetReading, TreeSetRefs};
pub use update::{Compute, OccupiedError, Operation};

/// Runs `section` while the calling thread holds `lock`; releases it also if `section` panics.
#[inline(always)]
fn under<L: RawMutex, T>(lock: &L, section: impl FnOnce() -> T) -> T {
    struct Held<'a, L: RawMutex>(&'a L, L::Token);
    impl<L: RawMutex> Drop for Held<'_, L> {
        #[inline(always)]
        fn drop(&mut self) {
            // SAFETY: the token is that of the acquisition below, and this is dropped once.
            unsafe { self.0.unlock(self.1) }
        }
    }
    let _held = Held(lock, lock.lock());
    section()
}

/// A shared map takes and gives elements of one type, so none of another type is put where its elements live longer:
///
/// ```compile_fail,E0308
/// # use latchwork::map::RcuMap;
/// fn of_longer(map: &RcuMap<u8, for<'a> fn(&'a u8)>) -> &RcuMap<u8, fn(&'static u8)> {
///     map
/// }
/// ```
///
/// ```compile_fail,E0308
/// # use latchwork::map::RcuTreeMap;
/// fn of_longer(map: &RcuTreeMap<u8, for<'a> fn(&'a u8)>) -> &RcuTreeMap<u8, fn(&'static u8)> {
///     map
/// }
/// ```
#[cfg(doctest)]
struct Invariant;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod panic_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tree_tests;
