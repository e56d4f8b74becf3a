//! [`RcuMap`]: the map that programs use.

extern crate std;

use super::growing::{Change, Growing, Node};
use crate::locks::mutex::shfl::RawShfl;
use crate::machine::Native;
use crate::reclaim::rcu::{self, RcuGuard};
use core::borrow::Borrow;
use core::fmt;
use core::hash::{BuildHasher, Hash};
use core::ops::Deref;
use std::hash::RandomState;
use std::sync::OnceLock;

type Table<K, V, S> = Growing<RawShfl<Native>, K, V, S>;

/// How many shards a map has: four for each processor, rounded up to a power of two. Updates of different shards do not
/// wait for each other.
fn shards() -> usize {
    static SHARDS: OnceLock<usize> = OnceLock::new();
    let count = || 4 * std::thread::available_parallelism().map_or(16, usize::from);
    *SHARDS.get_or_init(|| count().next_power_of_two())
}

/// A concurrent hash map. Its readers lock nothing, and wait for no other thread, also while the map grows.
///
/// It is for tables that are read much more often than changed. A lookup is a handful of plain instructions more than that
/// of a map without synchronization. An update locks one part of the map, of which there are four for each processor. It
/// retires the previous element ([`reclaim`](crate::reclaim)), whose memory then serves another one. Parts grow one by
/// one: growing a part makes updates of that part wait, and neither waits for readers nor disturbs them. Memory is given
/// back when the map is dropped.
///
/// Values are not changed in place, because readers may have references to them. [`update`](RcuMap::update) makes a new
/// value from the old one. What a reader has ([`Ref`], [`Reading`]) stays valid until it is dropped, whatever becomes of
/// the map's elements meanwhile. A thread that keeps it for long holds up reclamation in the whole process: updates go
/// on, and memory grows ([`Garbage::overruns`](crate::reclaim::Garbage::overruns)).
///
/// An update may drop keys and values that any thread has removed before, from this map or another
/// ([destructors and locks](crate::reclaim#destructors-and-locks)). So a caller must not hold a lock that their
/// destructors take.
///
/// The algorithm: [`growing`](super::growing).
///
/// ```
/// use latchwork::map::RcuMap;
///
/// let routes = RcuMap::new();
/// std::thread::scope(|scope| {
///     scope.spawn(|| drop(routes.insert("10.0.0.0/8", 1)));
///     scope.spawn(|| drop(routes.insert("192.168.0.0/16", 2)));
/// });
/// assert_eq!(routes.get("10.0.0.0/8").as_deref(), Some(&1));
/// assert_eq!(routes.len(), 2);
/// ```
pub struct RcuMap<K: Send + Sync + 'static, V: Send + Sync + 'static, S = RandomState> {
    table: Table<K, V, S>,
}

/// A value of a map. It stays valid until this is dropped.
///
/// ```
/// let map = latchwork::map::RcuMap::from([("one", String::from("eins"))]);
/// let value = map.get("one").unwrap();
/// map.remove("one");
/// assert_eq!(*value, "eins");
/// assert_eq!(value.key(), &"one");
/// ```
pub struct Ref<'m, K: Send + Sync + 'static, V: Send + Sync + 'static> {
    /// Found in the section below.
    node: *const Node<K, V>,
    _section: RcuGuard<'m, Native>,
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Ref<'_, K, V> {
    fn node(&self) -> &Node<K, V> {
        // SAFETY: found in the section that this holds, which protects it.
        unsafe { &*self.node }
    }

    /// Its key.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::from([(1, "one")]);
    /// assert_eq!(map.get(&1).unwrap().key(), &1);
    /// ```
    pub fn key(&self) -> &K {
        &self.node().key
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Deref for Ref<'_, K, V> {
    type Target = V;
    fn deref(&self) -> &V {
        &self.node().value
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + fmt::Debug + 'static> fmt::Debug for Ref<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A read section: several lookups at the price of one section, and plain references.
///
/// ```
/// let map = latchwork::map::RcuMap::from([(1, "one"), (2, "two")]);
/// let reading = map.read();
/// let (one, two) = (reading.get(&1), reading.get(&2));
/// assert_eq!((one, two), (Some(&"one"), Some(&"two")));
/// ```
pub struct Reading<'m, K: Send + Sync + 'static, V: Send + Sync + 'static, S = RandomState> {
    map: &'m RcuMap<K, V, S>,
    section: RcuGuard<'m, Native>,
}

impl<K, V, S> Reading<'_, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// The value of `key`.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::from([(1, "one")]);
    /// assert_eq!(map.read().get(&1), Some(&"one"));
    /// ```
    #[inline]
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.map.table.find(&self.section, key).map(|node| &node.value)
    }

    /// Whether `key` is there.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::from([(1, "one")]);
    /// assert!(map.read().contains_key(&1));
    /// ```
    pub fn contains_key<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Reading<'_, K, V, S> {
    /// Every key with its value, in no order: all that are there the whole time, and some of those that come or go
    /// meanwhile.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::from([(1, "one"), (2, "two")]);
    /// let reading = map.read();
    /// assert_eq!(reading.iter().map(|(number, _)| number).sum::<i32>(), 3);
    /// ```
    pub fn iter(&self) -> Iter<'_, K, V> {
        Iter(alloc::boxed::Box::new(self.map.table.iter(&self.section)))
    }
}

/// Iterates over a map. See [`Reading::iter`].
///
/// ```
/// let map = latchwork::map::RcuMap::from([(1, "one")]);
/// for (number, name) in &map.read() {
///     println!("{number}: {name}");
/// }
/// ```
pub struct Iter<'g, K: Send + Sync + 'static, V: Send + Sync + 'static>(
    alloc::boxed::Box<dyn Iterator<Item = &'g Node<K, V>> + 'g>,
);

impl<'g, K: Send + Sync + 'static, V: Send + Sync + 'static> Iterator for Iter<'g, K, V> {
    type Item = (&'g K, &'g V);
    fn next(&mut self) -> Option<(&'g K, &'g V)> {
        self.0.next().map(|node| (&node.key, &node.value))
    }
}

impl<'g, K: Send + Sync + 'static, V: Send + Sync + 'static, S> IntoIterator for &'g Reading<'_, K, V, S> {
    type Item = (&'g K, &'g V);
    type IntoIter = Iter<'g, K, V>;
    fn into_iter(self) -> Iter<'g, K, V> {
        self.iter()
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> RcuMap<K, V> {
    /// An empty map.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::<u32, u32>::new();
    /// assert!(map.is_empty());
    /// ```
    pub fn new() -> Self {
        Self::with_capacity(0)
    }

    /// An empty map that holds `capacity` elements without growing, if they spread evenly.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::<u32, u32>::with_capacity(1000);
    /// assert!(map.capacity() >= 1000);
    /// ```
    pub fn with_capacity(capacity: usize) -> Self {
        Self::with_capacity_and_hasher(capacity, RandomState::new())
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> RcuMap<K, V, S> {
    /// An empty map with a hasher of one's own.
    ///
    /// ```
    /// use std::hash::RandomState;
    /// let map = latchwork::map::RcuMap::<u32, u32>::with_capacity_and_hasher(10, RandomState::new());
    /// assert!(map.is_empty());
    /// ```
    pub fn with_capacity_and_hasher(capacity: usize, hasher: S) -> Self {
        RcuMap { table: Growing::new(rcu::global(), shards(), capacity, hasher) }
    }

    /// How many elements there are. While other threads change the map, it is how many there were a moment ago.
    ///
    /// ```
    /// assert_eq!(latchwork::map::RcuMap::from([(1, "one")]).len(), 1);
    /// ```
    pub fn len(&self) -> usize {
        self.table.count()
    }

    /// Whether the map is empty.
    ///
    /// ```
    /// assert!(!latchwork::map::RcuMap::from([(1, "one")]).is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many elements the map holds before it grows, if they spread evenly.
    ///
    /// ```
    /// assert!(latchwork::map::RcuMap::<u32, u32>::new().capacity() > 0);
    /// ```
    pub fn capacity(&self) -> usize {
        self.table.capacity()
    }

    /// Begins a read section.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::from([(1, "one")]);
    /// let reading = map.read();
    /// assert_eq!(reading.get(&1), Some(&"one"));
    /// ```
    #[inline]
    pub fn read(&self) -> Reading<'_, K, V, S> {
        Reading { map: self, section: self.table.enter() }
    }
}

impl<K, V, S> RcuMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// The value of `key`.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::from([(1, "one")]);
    /// assert_eq!(map.get(&1).as_deref(), Some(&"one"));
    /// assert!(map.get(&2).is_none());
    /// ```
    #[inline]
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Ref<'_, K, V>>
    where
        K: Borrow<Q>,
    {
        let section = self.table.enter();
        let node: *const _ = self.table.find(&section, key)?;
        Some(Ref { node, _section: section })
    }

    /// Whether `key` is there.
    ///
    /// ```
    /// assert!(latchwork::map::RcuMap::from([(1, "one")]).contains_key(&1));
    /// ```
    #[inline]
    pub fn contains_key<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.table.find(&self.table.enter(), key).is_some()
    }

    /// Changes the element of one key, under the lock of its shard. Returns the elements before and after.
    fn change(&self, key: K, change: impl FnOnce(Option<&V>) -> Change<V>) -> [Option<Ref<'_, K, V>>; 2] {
        self.table.throttle();
        let sections = [self.table.enter(), self.table.enter()];
        let changed = self.table.set(&sections[0], key, change);
        let [old, new] = [changed.before, changed.after].map(|node| node.map(core::ptr::from_ref));
        let [before, after] = sections;
        [old.map(|node| Ref { node, _section: before }), new.map(|node| Ref { node, _section: after })]
    }

    /// Sets the value of `key`. Returns the previous value.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::new();
    /// assert!(map.insert(1, "one").is_none());
    /// assert_eq!(map.insert(1, "uno").as_deref(), Some(&"one"));
    /// ```
    pub fn insert(&self, key: K, value: V) -> Option<Ref<'_, K, V>> {
        let [before, _] = self.change(key, |_| Change::Set(value));
        before
    }

    /// The value of `key`. If there is none, sets it to what `make` returns. `make` runs at most once, and must not use the
    /// map.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::new();
    /// assert_eq!(*map.get_or_insert_with(1, || "one"), "one");
    /// assert_eq!(*map.get_or_insert_with(1, || "uno"), "one");
    /// ```
    pub fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> V) -> Ref<'_, K, V> {
        if let Some(found) = self.get(&key) {
            return found;
        }
        let change = |found: Option<&V>| match found {
            Some(_) => Change::Keep,
            None => Change::Set(make()),
        };
        let [_, after] = self.change(key, change);
        after.expect("it was there, or was set")
    }

    /// Sets the value of `key` to what `make` makes of the previous one, if any. If `make` returns `None`, removes the key.
    /// No other thread changes the key meanwhile. `make` must not use the map. Returns the new value.
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
        let [_, after] = self.change(key, |found| match make(found) {
            Some(value) => Change::Set(value),
            None => Change::Remove,
        });
        after
    }

    /// Removes `key`. Returns the value that it had.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::from([(1, "one")]);
    /// assert_eq!(map.remove(&1).as_deref(), Some(&"one"));
    /// assert!(map.remove(&1).is_none());
    /// ```
    pub fn remove<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Ref<'_, K, V>>
    where
        K: Borrow<Q>,
    {
        self.table.throttle();
        let section = self.table.enter();
        let node: *const _ = self.table.remove(&section, key, |node| node.key.borrow() == key)?;
        Some(Ref { node, _section: section })
    }

    /// Removes the elements of which `keep` returns `false`. Other threads may change the map meanwhile. `keep` must not
    /// use the map.
    ///
    /// ```
    /// let map: latchwork::map::RcuMap<u32, u32> = (0..10).map(|i| (i, i)).collect();
    /// map.retain(|key, _| key % 2 == 0);
    /// assert_eq!(map.len(), 5);
    /// ```
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) {
        let section = self.table.enter();
        for node in self.table.iter(&section) {
            if !keep(&node.key, &node.value) {
                self.table.remove(&section, &node.key, |found| core::ptr::eq(found, node));
            }
        }
    }

    /// Removes all elements that are there now.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::from([(1, "one")]);
    /// map.clear();
    /// assert!(map.is_empty());
    /// ```
    pub fn clear(&self) {
        self.retain(|_, _| false);
    }

    /// Makes room for `more` more elements, if they spread evenly.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::<u32, u32>::new();
    /// map.reserve(1000);
    /// assert!(map.capacity() >= 1000);
    /// ```
    pub fn reserve(&self, more: usize) {
        self.table.fit(self.len() + more, false);
    }

    /// Gives back the room that the elements do not need.
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

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S: Default> Default for RcuMap<K, V, S> {
    fn default() -> Self {
        Self::with_capacity_and_hasher(0, S::default())
    }
}

impl<K, V, S> fmt::Debug for RcuMap<K, V, S>
where
    K: Send + Sync + fmt::Debug + 'static,
    V: Send + Sync + fmt::Debug + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.read().iter()).finish()
    }
}

impl<K, V, S> Extend<(K, V)> for RcuMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, elements: I) {
        elements.into_iter().for_each(|(key, value)| drop(self.insert(key, value)));
    }
}

impl<K, V, S> FromIterator<(K, V)> for RcuMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Default,
{
    fn from_iter<I: IntoIterator<Item = (K, V)>>(elements: I) -> Self {
        let mut map = Self::default();
        map.extend(elements);
        map
    }
}

impl<K, V, const N: usize> From<[(K, V); N]> for RcuMap<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    fn from(elements: [(K, V); N]) -> Self {
        elements.into_iter().collect()
    }
}
