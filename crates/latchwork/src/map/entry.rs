//! A key of an [`RcuMap`], locked for several steps.

use super::rcu_map::{RcuMap, Ref};
use super::update::{Slot, element, set};
use core::fmt;
use core::hash::{BuildHasher, Hash};

/// A key, there or not, whose shard is locked: [`RcuMap::entry`].
pub enum Entry<'m, K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    /// The key is there.
    Occupied(OccupiedEntry<'m, K, V, S>),
    /// The key is not there.
    Vacant(VacantEntry<'m, K, V, S>),
}

/// A key that is in the map. See [`Entry`].
pub struct OccupiedEntry<'m, K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    map: &'m RcuMap<K, V, S>,
    // Before `key`: the shard is unlocked when the slot is dropped, and the key's destructor may use the map.
    slot: Slot<'m, K, V, S>,
    key: K,
}

/// A key that is not in the map. See [`Entry`].
pub struct VacantEntry<'m, K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    map: &'m RcuMap<K, V, S>,
    // Before `key`: the shard is unlocked when the slot is dropped, and the key's destructor may use the map.
    slot: Slot<'m, K, V, S>,
    key: K,
}

impl<'m, K, V, S> Entry<'m, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// The key that was asked for.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::<_, u32>::new();
    /// assert_eq!(map.entry("one").key(), &"one");
    /// ```
    pub fn key(&self) -> &K {
        match self {
            Entry::Occupied(entry) => entry.key(),
            Entry::Vacant(entry) => entry.key(),
        }
    }

    /// The element. If there is none, inserts `value`.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::new();
    /// assert_eq!(*map.entry("one").or_insert(1), 1);
    /// ```
    pub fn or_insert(self, value: V) -> Ref<'m, K, V> {
        self.or_insert_with(|| value)
    }

    /// The element. If there is none, inserts what `make` returns. `make` must not update the map.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::new();
    /// assert_eq!(*map.entry("one").or_insert_with(|| 1), 1);
    /// ```
    pub fn or_insert_with(self, make: impl FnOnce() -> V) -> Ref<'m, K, V> {
        self.or_insert_with_key(|_| make())
    }

    /// The element. If there is none, inserts what `make` returns for the key. `make` must not update the map.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::new();
    /// assert_eq!(*map.entry("one").or_insert_with_key(|key| key.len()), 3);
    /// ```
    pub fn or_insert_with_key(self, make: impl FnOnce(&K) -> V) -> Ref<'m, K, V> {
        match self {
            Entry::Occupied(entry) => {
                let found = entry.get_ref();
                drop(make);
                found
            }
            Entry::Vacant(entry) => {
                let value = make(&entry.key);
                entry.insert(value)
            }
        }
    }

    /// The element. If there is none, inserts the default value.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::<_, u32>::new();
    /// assert_eq!(*map.entry("one").or_default(), 0);
    /// ```
    pub fn or_default(self) -> Ref<'m, K, V>
    where
        V: Default,
    {
        self.or_insert_with(V::default)
    }

    /// If the key is there, sets its value to what `make` makes of the previous one. (Values are not changed in place,
    /// because readers may have references to them.) `make` must not update the map.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::from([("one", 1)]);
    /// assert_eq!(*map.entry("one").and_modify(|value| value + 1).or_insert(1), 2);
    /// ```
    #[must_use]
    pub fn and_modify(self, make: impl FnOnce(&V) -> V) -> Self
    where
        K: Clone,
    {
        match self {
            Entry::Occupied(mut entry) => {
                let value = make(entry.get());
                entry.insert(value);
                Entry::Occupied(entry)
            }
            vacant => {
                drop(make);
                vacant
            }
        }
    }

    /// Sets the value, whether or not the key is there. Returns the new element.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::from([("one", 1)]);
    /// assert_eq!(*map.entry("one").insert_entry(2), 2);
    /// ```
    pub fn insert_entry(self, value: V) -> Ref<'m, K, V> {
        let (Entry::Occupied(OccupiedEntry { map, key, mut slot })
        | Entry::Vacant(VacantEntry { map, key, mut slot })) = self;
        slot.set(key, value);
        set(&map.table, slot)
    }
}

impl<'m, K, V, S> OccupiedEntry<'m, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    pub(super) fn new(map: &'m RcuMap<K, V, S>, key: K, slot: Slot<'m, K, V, S>) -> Self {
        OccupiedEntry { map, key, slot }
    }

    fn element(&self) -> (&K, &V) {
        let node = self.slot.node().expect("an occupied entry has an element");
        (&node.key, &node.value)
    }

    /// The key that is in the map.
    ///
    /// ```
    /// use latchwork::map::{Entry, RcuMap};
    /// let map = RcuMap::from([("one", 1)]);
    /// let Entry::Occupied(entry) = map.entry("one") else { panic!() };
    /// assert_eq!((entry.key(), entry.get()), (&"one", &1));
    /// ```
    pub fn key(&self) -> &K {
        self.element().0
    }

    /// The value.
    ///
    /// ```
    /// use latchwork::map::{Entry, RcuMap};
    /// let map = RcuMap::from([("one", 1)]);
    /// let Entry::Occupied(entry) = map.entry("one") else { panic!() };
    /// assert_eq!(entry.get(), &1);
    /// ```
    pub fn get(&self) -> &V {
        self.element().1
    }

    /// The element, and the lock is released. A section stays open while the reference lives.
    ///
    /// ```
    /// use latchwork::map::{Entry, RcuMap};
    /// let map = RcuMap::from([("one", 1)]);
    /// let Entry::Occupied(entry) = map.entry("one") else { panic!() };
    /// assert_eq!(*entry.get_ref(), 1);
    /// ```
    pub fn get_ref(self) -> Ref<'m, K, V> {
        let OccupiedEntry { map, slot, key } = self;
        let found = element(&map.table, &slot).expect("an occupied entry has an element");
        drop(slot);
        drop(key);
        found
    }

    /// Sets the value. The new element gets a clone of the key.
    ///
    /// ```
    /// use latchwork::map::{Entry, RcuMap};
    /// let map = RcuMap::from([("one", 1)]);
    /// let Entry::Occupied(mut entry) = map.entry("one") else { panic!() };
    /// entry.insert(2);
    /// assert_eq!(entry.get(), &2);
    /// ```
    pub fn insert(&mut self, value: V)
    where
        K: Clone,
    {
        let key = self.key().clone();
        self.slot.set(key, value);
    }

    /// Removes the element.
    ///
    /// ```
    /// use latchwork::map::{Entry, RcuMap};
    /// let map = RcuMap::from([("one", 1)]);
    /// let Entry::Occupied(entry) = map.entry("one") else { panic!() };
    /// entry.remove();
    /// assert!(map.is_empty());
    /// ```
    pub fn remove(mut self) {
        self.slot.remove();
    }

    /// Removes the element, and returns it. A section stays open while the reference lives.
    ///
    /// ```
    /// use latchwork::map::{Entry, RcuMap};
    /// let map = RcuMap::from([("one", 1)]);
    /// let Entry::Occupied(entry) = map.entry("one") else { panic!() };
    /// assert_eq!(entry.remove_entry().pair(), (&"one", &1));
    /// ```
    pub fn remove_entry(self) -> Ref<'m, K, V> {
        let OccupiedEntry { map, mut slot, key } = self;
        let removed = element(&map.table, &slot).expect("an occupied entry has an element");
        slot.remove();
        drop(slot);
        drop(key);
        removed
    }
}

impl<'m, K, V, S> VacantEntry<'m, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    pub(super) fn new(map: &'m RcuMap<K, V, S>, key: K, slot: Slot<'m, K, V, S>) -> Self {
        VacantEntry { map, key, slot }
    }

    /// The key.
    ///
    /// ```
    /// use latchwork::map::{Entry, RcuMap};
    /// let map = RcuMap::<_, u32>::new();
    /// let Entry::Vacant(entry) = map.entry("one") else { panic!() };
    /// assert_eq!(entry.key(), &"one");
    /// ```
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Gives the key back.
    ///
    /// ```
    /// use latchwork::map::{Entry, RcuMap};
    /// let map = RcuMap::<_, u32>::new();
    /// let Entry::Vacant(entry) = map.entry("one") else { panic!() };
    /// assert_eq!(entry.into_key(), "one");
    /// ```
    pub fn into_key(self) -> K {
        let VacantEntry { slot, key, .. } = self;
        drop(slot);
        key
    }

    /// Inserts the value, and the lock is released. A section stays open while the reference lives.
    ///
    /// ```
    /// use latchwork::map::{Entry, RcuMap};
    /// let map = RcuMap::new();
    /// let Entry::Vacant(entry) = map.entry("one") else { panic!() };
    /// assert_eq!(*entry.insert(1), 1);
    /// ```
    pub fn insert(self, value: V) -> Ref<'m, K, V> {
        let VacantEntry { map, mut slot, key } = self;
        slot.set(key, value);
        set(&map.table, slot)
    }
}

impl<K, V, S> fmt::Debug for Entry<'_, K, V, S>
where
    K: Send + Sync + fmt::Debug + 'static,
    V: Send + Sync + fmt::Debug + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entry::Occupied(entry) => f
                .debug_tuple("Occupied")
                .field(&entry.slot.node().map(|node| (&node.key, &node.value)))
                .finish(),
            Entry::Vacant(entry) => f.debug_tuple("Vacant").field(&entry.key).finish(),
        }
    }
}
