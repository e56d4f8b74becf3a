//! [`RcuMap`]: the map that programs use. Its updates are in `update`, and its iterators in `iter`.

extern crate std;

use super::growing::{Count, Growing, Node};
use super::iter::{Iter, Keys, Values};
use crate::locks::mutex::shfl::RawShfl;
use crate::machine::Native;
use crate::reclaim::rcu::{self, RcuGuard};
use core::fmt;
use core::hash::{BuildHasher, Hash};
use core::ops::Deref;
use core::panic::RefUnwindSafe;
use equivalent::Equivalent;
use std::hash::RandomState;
use std::sync::OnceLock;

pub(super) type Table<K, V, S> = Growing<RawShfl<Native>, K, V, S>;

/// How many shards a map has: one, and up to 16 for each processor if its updaters meet. Updates of different shards do not
/// wait for each other.
fn shards() -> Count {
    static MOST: OnceLock<usize> = OnceLock::new();
    let most = || 16 * std::thread::available_parallelism().map_or(16, usize::from);
    Count { first: 1, most: *MOST.get_or_init(|| most().next_power_of_two()) }
}

/// A concurrent hash map. Its readers lock nothing, and wait for no other thread, also while the map grows.
///
/// It is for tables that are read much more often than changed. A lookup is a handful of plain instructions more than that
/// of a map without synchronization. An update locks a part of the map, a *shard*, and waits for other updates of that
/// shard. An empty map has one shard and less than 1 KiB. A shard is split in two when its updaters have to wait, and when
/// it has many elements; there are at most 16 for each processor.
///
/// Values are not changed in place, because readers may have references to them: an update puts a new element in place of
/// the old one. The old element is dropped, when no reader has it any more, by a thread that retires or collects then
/// ([how soon](crate::reclaim::rcu::RcuDomain)).
/// Its memory then serves another element. The memory for elements is given back when the map is dropped.
///
/// # Which method?
///
/// | you want | method | a section stays open |
/// |---|---|---|
/// | a value | [`get`](Self::get), [`contains_key`](Self::contains_key) | while the [`Ref`] lives |
/// | many values | [`read`](Self::read) | while the [`Reading`] lives |
/// | to set, to remove | [`insert`](Self::insert), [`remove`](Self::remove) | no |
/// | the same, and the old value | [`replace`](Self::replace), [`remove_entry`](Self::remove_entry), [`remove_if`](Self::remove_if) | while the [`Ref`] lives |
/// | to set if it is not there | [`try_insert`](Self::try_insert), [`get_or_insert_with`](Self::get_or_insert_with) | while the [`Ref`] lives |
/// | a new value from the old one | [`update`](Self::update), [`alter`](Self::alter), [`insert_or_update`](Self::insert_or_update), [`compute`](Self::compute) | while the [`Ref`] lives |
/// | several steps on one key | [`entry`](Self::entry), which locks | no |
/// | every element | [`Reading::iter`], [`iter`](Self::iter) | for the walk |
/// | copies of every element | [`iter_cloned`](Self::iter_cloned) | no |
///
/// # What other threads see
///
/// - Each operation on one key is atomic, closures included: the closures of `update`, `alter`, `insert_or_update`, `compute`,
///   `get_or_insert_with` and `remove_if` run while the key's shard is locked, once, and the value that they got is the one
///   that they replace. **They must not update the map**, nor ask for its [`statistics`](Self::statistics), which lock the
///   shards as well: what needs the lock that the caller has panics. What needs another shard's lock does not, but two threads that
///   do so may wait for each other. Closures may read the map. The hasher, and `Hash`, `Eq` and `Clone` of keys, must not
///   update it either; where they do, the thread may wait for itself, for ever.
/// - A lookup finds the value that the key had at some moment during the lookup. What one thread has updated, it finds.
/// - An operation on many keys is not atomic. An iterator, and [`retain`](Self::retain), [`clear`](Self::clear),
///   [`len`](Self::len), `clone` and `==`, meet each element once that is there during the whole operation. They may meet an
///   element that comes or goes meanwhile, or miss it.
///
/// # A section that stays open
///
/// What a reader has ([`Ref`], [`Reading`]) stays valid until it is dropped, whatever becomes of the map's elements
/// meanwhile. A thread that keeps it for long holds up reclamation in the whole process: updates go on, and memory grows
/// ([`Garbage::overruns`](crate::reclaim::Garbage::overruns)).
///
/// # Limits
///
/// A map has at most 4,294,967,000 elements. Those count that were removed and wait for readers. An update that would make one more
/// panics.
///
/// # Destructors and locks
///
/// An update may drop keys and values that any thread has removed before, from this map or another
/// ([destructors and locks](crate::reclaim#destructors-and-locks)). So a caller must not hold a lock that their
/// destructors take. Elements with a destructor are retired one by one, and
/// [`barrier`](crate::reclaim::domain::Domain::barrier) waits for them. Elements without one are retired 21 at a time.
///
/// # Lookups
///
/// A key is looked up as any `Q: Hash + Equivalent<K>`, as in `papaya`, `scc` and `indexmap`. Everything that `K` can be
/// borrowed as is `Equivalent<K>` ([`Borrow`](core::borrow::Borrow)), as in `std` and `dashmap`. So is what implements
/// [`Equivalent`] and hashes as the key does: a pair of `&str` for a pair of `String`s, which cannot be borrowed so.
///
/// The algorithm: [`growing`](super::growing).
///
/// ```
/// use latchwork::map::RcuMap;
///
/// let routes = RcuMap::new();
/// std::thread::scope(|scope| {
///     scope.spawn(|| routes.insert("10.0.0.0/8", 1));
///     scope.spawn(|| routes.insert("192.168.0.0/16", 2));
/// });
/// assert_eq!(routes.get("10.0.0.0/8").as_deref(), Some(&1));
/// assert_eq!(routes.len(), 2);
/// ```
pub struct RcuMap<K: Send + Sync + 'static, V: Send + Sync + 'static, S = RandomState> {
    pub(super) table: Table<K, V, S>,
}

// An update that panics, in a closure or in the program's functions, leaves the map as it was, or as it is afterwards.
impl<K: Send + Sync + RefUnwindSafe, V: Send + Sync + RefUnwindSafe, S: RefUnwindSafe> RefUnwindSafe
    for RcuMap<K, V, S>
{
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

impl<'m, K: Send + Sync + 'static, V: Send + Sync + 'static> Ref<'m, K, V> {
    /// An element that was found in this section.
    #[inline(always)]
    pub(super) fn new(node: *const Node<K, V>, section: RcuGuard<'m, Native>) -> Self {
        Ref { node, _section: section }
    }
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

    /// Its value, as by dereferencing.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::from([(1, "one")]);
    /// assert_eq!(map.get(&1).unwrap().value(), &"one");
    /// ```
    pub fn value(&self) -> &V {
        &self.node().value
    }

    /// Its key and value.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::from([(1, "one")]);
    /// assert_eq!(map.get(&1).unwrap().pair(), (&1, &"one"));
    /// ```
    pub fn pair(&self) -> (&K, &V) {
        (&self.node().key, &self.node().value)
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
    pub(super) map: &'m RcuMap<K, V, S>,
    pub(super) section: RcuGuard<'m, Native>,
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
    pub fn get<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<&V> {
        self.map.table.find(&self.section, key).map(|node| &node.value)
    }

    /// The key that is in the map, and its value.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::from([(String::from("one"), 1)]);
    /// assert_eq!(map.read().get_key_value("one"), Some((&String::from("one"), &1)));
    /// ```
    #[inline]
    pub fn get_key_value<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<(&K, &V)> {
        self.map.table.find(&self.section, key).map(|node| (&node.key, &node.value))
    }

    /// Whether `key` is there.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::from([(1, "one")]);
    /// assert!(map.read().contains_key(&1));
    /// ```
    pub fn contains_key<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
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
        Iter::new(self.map.table.iter(&self.section))
    }

    /// Every key, as [`iter`](Reading::iter).
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::from([(1, "one"), (2, "two")]);
    /// assert_eq!(map.read().keys().sum::<i32>(), 3);
    /// ```
    pub fn keys(&self) -> Keys<'_, K, V> {
        Keys::new(self.iter())
    }

    /// Every value, as [`iter`](Reading::iter).
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::from([("one", 1), ("two", 2)]);
    /// assert_eq!(map.read().values().sum::<i32>(), 3);
    /// ```
    pub fn values(&self) -> Values<'_, K, V> {
        Values::new(self.iter())
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
    /// let map = latchwork::map::RcuMap::<u32, u32>::with_hasher(RandomState::new());
    /// assert!(map.is_empty());
    /// ```
    pub fn with_hasher(hasher: S) -> Self {
        Self::with_capacity_and_hasher(0, hasher)
    }

    /// An empty map with a hasher of one's own that holds `capacity` elements without growing, if they spread evenly.
    ///
    /// # Panics
    ///
    /// If `capacity` elements are more than addresses can tell apart. (Fewer that memory has no room for end the process.)
    ///
    /// ```
    /// use std::hash::RandomState;
    /// let map = latchwork::map::RcuMap::<u32, u32>::with_capacity_and_hasher(10, RandomState::new());
    /// assert!(map.is_empty());
    /// ```
    pub fn with_capacity_and_hasher(capacity: usize, hasher: S) -> Self {
        RcuMap { table: Growing::new(rcu::global(), shards(), capacity, hasher) }
    }

    /// Its hasher.
    ///
    /// ```
    /// use std::hash::BuildHasher;
    /// let map = latchwork::map::RcuMap::from([(1, "one")]);
    /// assert_eq!(map.hasher().hash_one(7), map.hasher().hash_one(7));
    /// ```
    pub fn hasher(&self) -> &S {
        self.table.hasher()
    }

    /// What the map consists of now. This locks each shard for a moment, as updates do. So a closure of an update must not call it,
    /// nor a thread that has an [`Entry`](super::Entry) of the map: it would panic.
    ///
    /// ```
    /// let map: latchwork::map::RcuMap<u64, u64> = (0..1000).map(|i| (i, i)).collect();
    /// let statistics = map.statistics();
    /// assert!(statistics.elements == 1000 && statistics.shards >= 1);
    /// assert!(statistics.bytes > 16_000 && statistics.bytes < 100_000);
    /// assert!(latchwork::map::RcuMap::<u64, u64>::new().statistics().bytes < 1024);
    /// ```
    pub fn statistics(&self) -> Statistics {
        let parts = self.table.parts_list();
        Statistics {
            elements: self.len(),
            capacity: self.capacity(),
            shards: parts.shards,
            buckets: parts.buckets,
            overflowed: parts.spare,
            fullest_shard: parts.fullest,
            bytes: size_of::<Self>() + parts.bytes,
        }
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
    pub fn get<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<Ref<'_, K, V>> {
        let section = self.table.enter();
        let node: *const _ = self.table.find(&section, key)?;
        Some(Ref { node, _section: section })
    }

    /// The value of `key`, which the caller alone has: it may be changed in place.
    ///
    /// ```
    /// let mut map = latchwork::map::RcuMap::from([(1, 10)]);
    /// *map.get_mut(&1).unwrap() += 1;
    /// assert_eq!(map.get(&1).as_deref(), Some(&11));
    /// ```
    pub fn get_mut<Q: Hash + Equivalent<K> + ?Sized>(&mut self, key: &Q) -> Option<&mut V> {
        let node = self.table.lock(key).as_ptr()?;
        // SAFETY: the caller has the map alone, so no thread has a reference into it, or removes the element.
        Some(unsafe { &mut (*node.as_ptr()).value })
    }

    /// Whether `key` is there.
    ///
    /// ```
    /// assert!(latchwork::map::RcuMap::from([(1, "one")]).contains_key(&1));
    /// ```
    #[inline]
    pub fn contains_key<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
        self.table.find(&self.table.enter(), key).is_some()
    }
}

/// What a map consists of. See [`RcuMap::statistics`].
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Elements.
    pub elements: usize,
    /// Elements that there is room for, if they spread evenly.
    pub capacity: usize,
    /// Shards, each of which has a lock for its updates.
    pub shards: usize,
    /// Buckets of 12 elements, 64 bytes each.
    pub buckets: usize,
    /// Spare buckets that are in use, because a bucket had more than 12 elements. Many of them mean a bad hasher.
    pub overflowed: usize,
    /// Elements of the fullest shard.
    pub fullest_shard: usize,
    /// Bytes of the map: without what keys and values own, and without elements that were removed and wait for readers.
    pub bytes: usize,
}
