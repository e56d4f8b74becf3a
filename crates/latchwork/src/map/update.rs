//! What changes an [`RcuMap`].

use super::entry::{Entry, OccupiedEntry, VacantEntry};
use super::rcu_map::{RcuMap, Ref, Table};
use super::{growing, rcu_map};
use crate::locks::mutex::shfl::RawShfl;
use crate::machine::Native;
use crate::reclaim::rcu::RcuGuard;
use core::fmt;
use core::hash::{BuildHasher, Hash};
use equivalent::Equivalent;

pub(super) type Slot<'m, K, V, S> = growing::Slot<'m, RawShfl<Native>, K, V, S>;

/// What [`RcuMap::compute`] is to do with an element.
///
/// ```
/// use latchwork::map::{Operation, RcuMap};
/// let map = RcuMap::from([(1, 1)]);
/// map.compute(1, |_| Operation::<_, ()>::Insert(2));
/// assert_eq!(map.get(&1).as_deref(), Some(&2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<V, T> {
    /// Set the value.
    Insert(V),
    /// Remove the element, if there is one.
    Remove,
    /// Leave everything as it is, and return this.
    Abort(T),
}

/// What [`RcuMap::compute`] has done.
#[derive(Debug)]
pub enum Compute<'m, K: Send + Sync + 'static, V: Send + Sync + 'static, T> {
    /// The key was not there, and is now.
    Inserted(Ref<'m, K, V>),
    /// The key was there, and has another value now.
    Updated {
        /// The element before.
        old: Ref<'m, K, V>,
        /// The element now.
        new: Ref<'m, K, V>,
    },
    /// The key is not there now. The element that was, if any.
    Removed(Option<Ref<'m, K, V>>),
    /// Nothing has changed.
    Aborted(T),
}

/// The key is there already: what [`RcuMap::try_insert`] returns then.
pub struct OccupiedError<'m, K: Send + Sync + 'static, V: Send + Sync + 'static> {
    /// The element that is there.
    pub current: Ref<'m, K, V>,
    /// The value that was not inserted.
    pub value: V,
}

impl<K, V> fmt::Debug for OccupiedError<'_, K, V>
where
    K: Send + Sync + fmt::Debug + 'static,
    V: Send + Sync + fmt::Debug + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("OccupiedError");
        debug.field("key", self.current.key()).field("current", self.current.value());
        debug.field("value", &self.value).finish()
    }
}

impl<K, V> fmt::Display for OccupiedError<'_, K, V>
where
    K: Send + Sync + fmt::Debug + 'static,
    V: Send + Sync + fmt::Debug + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, current) = (self.current.key(), self.current.value());
        write!(f, "key {key:?} is there already, with {current:?}: {:?} was not inserted", self.value)
    }
}

impl<K, V> core::error::Error for OccupiedError<'_, K, V>
where
    K: Send + Sync + fmt::Debug + 'static,
    V: Send + Sync + fmt::Debug + 'static,
{
}

/// The element of a slot, which stays valid after the slot has been dropped.
#[inline(always)]
pub(super) fn element<'m, K, V, S>(
    table: &'m Table<K, V, S>,
    slot: &Slot<'m, K, V, S>,
) -> Option<Ref<'m, K, V>>
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    let section: RcuGuard<'m, Native> = table.enter();
    let node: *const _ = slot.protected(&section)?;
    Some(rcu_map::Ref::new(node, section))
}

/// The element of a slot that has been set; the shard is unlocked.
pub(super) fn set<'m, K, V, S>(table: &'m Table<K, V, S>, slot: Slot<'m, K, V, S>) -> Ref<'m, K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    let set = element(table, &slot).expect("it was set");
    drop(slot);
    set
}

// Wherever a reference to an element is returned, or a closure's result, which may have one in it, the slot, and arguments that were not used, are dropped by hand before that. A
// slot's end retires objects, and so runs destructors of any kind. If one panics while a value is being returned, that value
// is leaked (rust-lang/rust issue 47949), and with it the reference's section. A variable is dropped.
//
// Destructors of arguments may update the map, so none runs while the shard is locked. Arguments and variables are dropped after the slot if
// they are declared before it. A closure that is moved into another one, as that of `map`, or a key that is moved into a call before `make` is
// called, would be dropped before.
impl<K, V, S> RcuMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Sets the value of `key`. Returns whether the key is new. To have the previous value: [`replace`](RcuMap::replace).
    ///
    /// If the key was there, the map has the given `key` in its place afterwards.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::new();
    /// assert!(map.insert(1, "one"));
    /// assert!(!map.insert(1, "uno"));
    /// assert_eq!(map.get(&1).as_deref(), Some(&"uno"));
    /// ```
    #[inline]
    pub fn insert(&self, key: K, value: V) -> bool {
        let mut slot = self.table.lock(&key);
        let new = slot.node().is_none();
        slot.set(key, value);
        new
    }

    /// Sets the value of `key`. Returns the previous element.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::new();
    /// assert!(map.replace(1, "one").is_none());
    /// assert_eq!(map.replace(1, "uno").as_deref(), Some(&"one"));
    /// ```
    pub fn replace(&self, key: K, value: V) -> Option<Ref<'_, K, V>> {
        self.table.throttle();
        let mut slot = self.table.lock(&key);
        let before = element(&self.table, &slot);
        slot.set(key, value);
        drop(slot);
        before
    }

    /// Inserts `key` if it is not there.
    ///
    /// # Errors
    ///
    /// The key is there: the element that is there, and the value that was not inserted.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::new();
    /// assert_eq!(*map.try_insert(1, "one").unwrap(), "one");
    /// let error = map.try_insert(1, "uno").unwrap_err();
    /// assert_eq!((*error.current, error.value), ("one", "uno"));
    /// ```
    pub fn try_insert(&self, key: K, value: V) -> Result<Ref<'_, K, V>, OccupiedError<'_, K, V>> {
        let mut slot = self.table.lock(&key);
        if let Some(current) = element(&self.table, &slot) {
            drop(slot);
            drop(key);
            return Err(OccupiedError { current, value });
        }
        slot.set(key, value);
        Ok(set(&self.table, slot))
    }

    /// The value of `key`. If there is none, sets it to `value`.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::new();
    /// assert_eq!(*map.get_or_insert(1, "one"), "one");
    /// assert_eq!(*map.get_or_insert(1, "uno"), "one");
    /// ```
    pub fn get_or_insert(&self, key: K, value: V) -> Ref<'_, K, V> {
        self.get_or_insert_with(key, || value)
    }

    /// The value of `key`. If there is none, sets it to what `make` returns. `make` runs at most once, while the key's shard
    /// is locked, and must not update the map. If it panics, nothing changes.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::new();
    /// assert_eq!(*map.get_or_insert_with(1, || "one"), "one");
    /// assert_eq!(*map.get_or_insert_with(1, || "uno"), "one");
    /// ```
    pub fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> V) -> Ref<'_, K, V> {
        if let Some(found) = self.get(&key) {
            drop((key, make));
            return found;
        }
        let mut slot = self.table.lock_around(&key);
        if let Some(found) = element(&self.table, &slot) {
            drop(slot);
            drop((key, make));
            return found;
        }
        let value = make();
        slot.set(key, value);
        set(&self.table, slot)
    }

    /// Sets the value of `key` to what `make` makes of the previous one, if any. If `make` returns `None`, removes the key.
    /// `make` runs once, while the key's shard is locked, and must not update the map. Returns the new value.
    ///
    /// ```
    /// let words = latchwork::map::RcuMap::new();
    /// for word in ["a", "rose", "is", "a", "rose"] {
    ///     words.update(word, |count| Some(count.unwrap_or(&0) + 1));
    /// }
    /// assert_eq!(words.get("rose").as_deref(), Some(&2));
    /// words.update("is", |_| None);
    /// assert!(!words.contains_key("is"));
    /// ```
    pub fn update(&self, key: K, make: impl FnOnce(Option<&V>) -> Option<V>) -> Option<Ref<'_, K, V>> {
        self.table.throttle();
        let mut slot = self.table.lock_around(&key);
        match make(slot.node().map(|node| &node.value)) {
            Some(value) => slot.set(key, value),
            None => slot.remove(),
        }
        let new = element(&self.table, &slot);
        drop(slot);
        new
    }

    /// Sets the value of `key`, if it is there, to what `make` makes of the previous one. `make` runs at most once, while
    /// the key's shard is locked, and must not update the map. Returns the new value. The new element gets a clone of the
    /// key.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::from([(String::from("one"), 1)]);
    /// assert_eq!(map.alter("one", |value| value + 1).as_deref(), Some(&2));
    /// assert!(map.alter("two", |value| value + 1).is_none());
    /// ```
    pub fn alter<Q>(&self, key: &Q, make: impl FnOnce(&V) -> V) -> Option<Ref<'_, K, V>>
    where
        K: Clone,
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.table.throttle();
        let (new, value);
        let mut slot = self.table.lock_around(key);
        let node = slot.node()?;
        value = make(&node.value);
        new = node.key.clone();
        slot.set(new, value);
        Some(set(&self.table, slot))
    }

    /// Sets the value of `key` to `value` if it is not there, and otherwise to what `make` makes of the previous one. `make`
    /// runs at most once, while the key's shard is locked, and must not update the map. Returns the new value.
    ///
    /// ```
    /// let words = latchwork::map::RcuMap::new();
    /// for word in ["a", "rose", "is", "a", "rose"] {
    ///     words.insert_or_update(word, 1, |count| count + 1);
    /// }
    /// assert_eq!(words.get("rose").as_deref(), Some(&2));
    /// ```
    pub fn insert_or_update(&self, key: K, value: V, make: impl FnOnce(&V) -> V) -> Ref<'_, K, V> {
        self.table.throttle();
        let mut slot = self.table.lock_around(&key);
        let (value, unused) = match slot.node() {
            Some(node) => (make(&node.value), (Some(value), None)),
            None => (value, (None, Some(make))),
        };
        slot.set(key, value);
        let new = set(&self.table, slot);
        drop(unused);
        new
    }

    /// Does with `key` what `operation` says of its element. `operation` runs once, while the key's shard is locked, and
    /// must not update the map. (That of `papaya` may run several times.)
    ///
    /// ```
    /// use latchwork::map::{Compute, Operation, RcuMap};
    ///
    /// let stock = RcuMap::from([("apples", 1)]);
    /// let take = || {
    ///     stock.compute("apples", |found| match found {
    ///         None => Operation::Abort("sold out"),
    ///         Some((_, 1)) => Operation::Remove,
    ///         Some((_, count)) => Operation::Insert(count - 1),
    ///     })
    /// };
    /// assert!(matches!(take(), Compute::Removed(_)));
    /// assert!(matches!(take(), Compute::Aborted("sold out")));
    /// ```
    pub fn compute<T>(
        &self,
        key: K,
        operation: impl FnOnce(Option<(&K, &V)>) -> Operation<V, T>,
    ) -> Compute<'_, K, V, T> {
        self.table.throttle();
        let mut slot = self.table.lock_around(&key);
        let value = match operation(slot.node().map(|node| (&node.key, &node.value))) {
            Operation::Insert(value) => Some(value),
            Operation::Remove => None,
            Operation::Abort(why) => {
                drop(slot);
                drop(key);
                return Compute::Aborted(why);
            }
        };
        let old = element(&self.table, &slot);
        let unused = match value {
            Some(value) => {
                slot.set(key, value);
                None
            }
            None => {
                slot.remove();
                Some(key)
            }
        };
        let new = element(&self.table, &slot);
        drop(slot);
        drop(unused);
        match (old, new) {
            (None, Some(new)) => Compute::Inserted(new),
            (Some(old), Some(new)) => Compute::Updated { old, new },
            (old, None) => Compute::Removed(old),
        }
    }

    /// Removes `key`. Returns whether it was there. To have the value: [`remove_entry`](RcuMap::remove_entry).
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::from([(1, "one")]);
    /// assert!(map.remove(&1));
    /// assert!(!map.remove(&1));
    /// ```
    #[inline]
    pub fn remove<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
        let mut slot = self.table.lock(key);
        let there = slot.node().is_some();
        slot.remove();
        there
    }

    /// Removes `key`. Returns the element that was there.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::from([(1, "one")]);
    /// assert_eq!(map.remove_entry(&1).unwrap().pair(), (&1, &"one"));
    /// assert!(map.remove_entry(&1).is_none());
    /// ```
    pub fn remove_entry<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<Ref<'_, K, V>> {
        self.remove_if(key, |_, _| true)
    }

    /// Removes `key` if `condition` returns `true`. Returns the element that was removed. `condition` runs at most once,
    /// while the key's shard is locked, and must not update the map.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::from([(1, "one")]);
    /// assert!(map.remove_if(&1, |_, value| value.is_empty()).is_none());
    /// assert!(map.remove_if(&1, |_, value| value.len() == 3).is_some());
    /// ```
    pub fn remove_if<Q: Hash + Equivalent<K> + ?Sized>(
        &self,
        key: &Q,
        condition: impl FnOnce(&K, &V) -> bool,
    ) -> Option<Ref<'_, K, V>> {
        self.table.throttle();
        let mut slot = self.table.lock_around(key);
        let node = slot.node()?;
        if !condition(&node.key, &node.value) {
            return None;
        }
        let removed = element(&self.table, &slot);
        slot.remove();
        drop(slot);
        removed
    }

    /// Locks the shard of `key`, for several steps: nobody else changes the key until the entry is dropped, and updates of
    /// the other keys of the shard wait as well. Readers do not.
    ///
    /// The calling thread must not update the map while it has the entry, nor ask for its [`statistics`](RcuMap::statistics), and
    /// not have two entries of a map: that panics, if both keys are in one shard.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::new();
    /// assert_eq!(*map.entry("one").or_insert(1), 1);
    /// assert_eq!(*map.entry("one").and_modify(|value| value + 1).or_insert(1), 2);
    /// ```
    pub fn entry(&self, key: K) -> Entry<'_, K, V, S> {
        self.table.throttle();
        let slot = self.table.lock_around(&key);
        match slot.node() {
            Some(_) => Entry::Occupied(OccupiedEntry::new(self, key, slot)),
            None => Entry::Vacant(VacantEntry::new(self, key, slot)),
        }
    }

    /// Removes the elements of which `keep` returns `false`. No lock is held while `keep` runs, so it may use the map. An
    /// element that is replaced meanwhile stays. What is removed is reclaimed as the walk goes on, if no reader holds it up.
    ///
    /// ```
    /// let map: latchwork::map::RcuMap<u32, u32> = (0..10).map(|i| (i, i)).collect();
    /// map.retain(|key, _| key % 2 == 0);
    /// assert_eq!(map.len(), 5);
    /// ```
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) {
        let mut at = Some(0);
        while let Some(begin) = at {
            self.table.throttle();
            let section = self.table.enter();
            let (bucket, next) = self.table.bucket(&section, begin);
            for node in bucket {
                if !keep(&node.key, &node.value) {
                    self.table.remove_found(&section, node);
                }
            }
            at = next;
        }
    }

    /// Removes all elements that are there now, shard by shard. What is removed is reclaimed as the walk goes on, if no
    /// reader holds it up. The room for elements stays: [`shrink_to_fit`](RcuMap::shrink_to_fit).
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::from([(1, "one")]);
    /// map.clear();
    /// assert!(map.is_empty());
    /// ```
    pub fn clear(&self) {
        self.table.clear();
    }

    /// Makes room for `more` more elements, if they spread evenly. Shards grow one by one.
    ///
    /// # Panics
    ///
    /// If there cannot be so many.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::<u32, u32>::new();
    /// map.reserve(1000);
    /// assert!(map.capacity() >= 1000);
    /// ```
    pub fn reserve(&self, more: usize) {
        self.table.fit(self.len().checked_add(more).expect("capacity overflow"), false);
    }

    /// Gives back the buckets that the elements do not need. The memory for elements themselves stays, to be used again,
    /// until the map is dropped; and so do shards.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::<u32, u32>::with_capacity(10_000);
    /// map.shrink_to_fit();
    /// assert!(map.capacity() < 10_000);
    /// ```
    pub fn shrink_to_fit(&self) {
        self.table.fit(self.len(), true);
    }
}
