//! [`RcuTreeMap`]: the ordered map that programs use. What a reader sees is in `tree_reading`, and walks are in `tree_iter`.

use super::growing::Node;
use super::rcu_map::Ref;
use super::tree::{Slot, Snapshot, Tree};
use super::tree_iter::{TreeCloned, TreeRefs};
use super::tree_reading::TreeReading;
use super::update::OccupiedError;
use crate::locks::mutex::shfl::RawShfl;
use crate::machine::Native;
use crate::reclaim::rcu;
use alloc::boxed::Box;
use core::ops::RangeBounds;
use core::panic::{RefUnwindSafe, UnwindSafe};
use equivalent::Comparable;

pub(super) type Table<K, V> = Tree<RawShfl<Native>, K, V>;
type NativeSlot<'m, K, V> = Slot<'m, RawShfl<Native>, K, V, { super::pages::MOST }>;

/// A concurrent ordered map. Its readers lock nothing, wait for no other thread, and see the map as it was at one moment.
///
/// It is for ordered tables that are read much more often than changed. A lookup, and each step of a walk, executes no atomic
/// instruction but loads. An update copies a page of each height of the tree (a hundred thousand elements: four of them, less
/// than 2 KiB), and **updates of a map take turns**, whatever their keys are: if many threads update, take another map
/// (`crossbeam-skiplist`, or an [`RcuMap`](super::RcuMap) if there is no need for an order).
///
/// Values are not changed in place, because readers may have references to them: an update puts a new element in place of
/// the old one. The old element is dropped, when no reader has it any more, by a thread that retires or collects then
/// ([how soon](crate::reclaim::rcu::RcuDomain)).
///
/// # Which method?
///
/// | you want | method | a section stays open |
/// |---|---|---|
/// | a value | [`get`](Self::get), [`contains_key`](Self::contains_key), [`first`](Self::first), [`last`](Self::last) | while the [`Ref`] lives |
/// | many values, or the map at one moment | [`read`](Self::read) | while the [`TreeReading`] lives |
/// | to set, to remove | [`insert`](Self::insert), [`remove`](Self::remove) | no |
/// | the same, and the old element | [`replace`](Self::replace), [`remove_entry`](Self::remove_entry), [`remove_if`](Self::remove_if), [`pop_first`](Self::pop_first), [`pop_last`](Self::pop_last) | while the [`Ref`] lives |
/// | to set if it is not there | [`try_insert`](Self::try_insert), [`get_or_insert_with`](Self::get_or_insert_with) | while the [`Ref`] lives |
/// | a new value from the old one | [`update`](Self::update) | while the [`Ref`] lives |
/// | elements in order | [`TreeReading::range`], [`TreeReading::iter`], [`range`](Self::range), [`iter`](Self::iter) | for the walk |
/// | copies of elements in order | [`iter_cloned`](Self::iter_cloned) | no |
///
/// # What other threads see
///
/// - Each operation on one key is atomic, closures included: the closures of `update`, `get_or_insert_with` and `remove_if`
///   run while the map is locked for updates, once. **They must not update the map**, nor may comparisons of keys: such an
///   update panics. They may read the map.
/// - A [`TreeReading`], a walk, a range, [`len`](Self::len), `==`, `Debug` and `clone` see the map as it was at one moment:
///   each element that was there then, once, in ascending order, and no other. [`clear`](Self::clear) is one update.
/// - [`retain`](Self::retain), [`iter_cloned`](Self::iter_cloned) and `extend` are not atomic: they meet each element that is
///   there during the whole operation once, and may meet or miss one that comes or goes meanwhile.
///
/// # A section that stays open, destructors and locks
///
/// As with [`RcuMap`](super::RcuMap#a-section-that-stays-open): what a reader has stays valid until it is dropped, and a
/// thread that keeps it for long holds up reclamation in the whole process. An update may drop keys and values that any
/// thread has removed before, so a caller must not hold a lock that their destructors take.
///
/// # Lookups
///
/// A key is looked up as any `Q: Comparable<K>`: everything that `K` can be borrowed as, and what implements [`Comparable`]
/// and compares as the key does. If comparisons contradict each other, lookups and walks may miss elements, and
/// [`iter_cloned`](Self::iter_cloned) may meet some again before it ends; nothing worse happens.
///
/// The algorithm: [`tree`](super::tree).
///
/// ```
/// use latchwork::map::RcuTreeMap;
///
/// let ports = RcuTreeMap::new();
/// std::thread::scope(|scope| {
///     scope.spawn(|| ports.insert(443, "https"));
///     scope.spawn(|| ports.insert(22, "ssh"));
/// });
/// assert_eq!(ports.get(&22).as_deref(), Some(&"ssh"));
/// let reading = ports.read();
/// assert_eq!(reading.range(..1024).map(|(port, _)| *port).collect::<Vec<u16>>(), [22, 443]);
/// ```
pub struct RcuTreeMap<K: Send + Sync + 'static, V: Send + Sync + 'static> {
    pub(super) tree: Table<K, V>,
}

// An update that panics leaves the map as it was, or as it is afterwards.
impl<K: Send + Sync + RefUnwindSafe, V: Send + Sync + RefUnwindSafe> UnwindSafe for RcuTreeMap<K, V> {}

/// An element of a slot, which stays valid after the slot has been dropped.
fn element<'m, K: Send + Sync + 'static, V: Send + Sync + 'static>(
    tree: &'m Table<K, V>,
    slot: &NativeSlot<'m, K, V>,
) -> Option<Ref<'m, K, V>> {
    let section = tree.enter();
    let node: *const _ = slot.protected(&section)?;
    Some(Ref::new(node, section))
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> RcuTreeMap<K, V> {
    /// An empty map.
    ///
    /// ```
    /// assert!(latchwork::map::RcuTreeMap::<u32, u32>::new().is_empty());
    /// ```
    pub fn new() -> Self {
        RcuTreeMap { tree: Tree::new(rcu::global()) }
    }

    /// How many elements there are.
    ///
    /// ```
    /// assert_eq!(latchwork::map::RcuTreeMap::from([(1, "one")]).len(), 1);
    /// ```
    pub fn len(&self) -> usize {
        self.tree.snapshot(&self.tree.enter()).count()
    }

    /// Whether the map is empty.
    ///
    /// ```
    /// assert!(!latchwork::map::RcuTreeMap::from([(1, "one")]).is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The map as it is now. What this thread updates after that, the reading does not show.
    ///
    /// ```
    /// let map = latchwork::map::RcuTreeMap::from([(1, "one")]);
    /// let reading = map.read();
    /// assert!(map.remove(&1) && reading.contains_key(&1) && !map.contains_key(&1));
    /// ```
    pub fn read(&self) -> TreeReading<'_, K, V> {
        TreeReading::new(&self.tree)
    }

    /// An element that `find` finds.
    fn found<'m>(
        &'m self,
        find: impl FnOnce(Snapshot<'_, K, V>) -> Option<*const Node<K, V>>,
    ) -> Option<Ref<'m, K, V>> {
        let section = self.tree.enter();
        let node = find(self.tree.snapshot(&section))?;
        Some(Ref::new(node, section))
    }

    /// The value of `key`.
    ///
    /// ```
    /// let map = latchwork::map::RcuTreeMap::from([(String::from("one"), 1)]);
    /// assert_eq!(map.get("one").as_deref(), Some(&1));
    /// ```
    pub fn get<Q: Comparable<K> + ?Sized>(&self, key: &Q) -> Option<Ref<'_, K, V>> {
        self.found(|snapshot| snapshot.find(key).map(core::ptr::from_ref))
    }

    /// Whether `key` is there.
    ///
    /// ```
    /// assert!(latchwork::map::RcuTreeMap::from([(1, "one")]).contains_key(&1));
    /// ```
    pub fn contains_key<Q: Comparable<K> + ?Sized>(&self, key: &Q) -> bool {
        self.tree.snapshot(&self.tree.enter()).find(key).is_some()
    }

    /// The element with the smallest key.
    ///
    /// ```
    /// let map = latchwork::map::RcuTreeMap::from([(1, "one"), (2, "two")]);
    /// assert_eq!(map.first().unwrap().pair(), (&1, &"one"));
    /// ```
    pub fn first(&self) -> Option<Ref<'_, K, V>> {
        self.found(|snapshot| snapshot.at(0).map(core::ptr::from_ref))
    }

    /// The element with the largest key.
    ///
    /// ```
    /// let map = latchwork::map::RcuTreeMap::from([(1, "one"), (2, "two")]);
    /// assert_eq!(map.last().unwrap().pair(), (&2, &"two"));
    /// ```
    pub fn last(&self) -> Option<Ref<'_, K, V>> {
        self.found(|snapshot| snapshot.at(snapshot.count().checked_sub(1)?).map(core::ptr::from_ref))
    }

    /// Every element of the map as it is now, in ascending order. A section stays open until the iterator and all its items
    /// are dropped. [`TreeReading::iter`] is faster, and gives plain references; these can be kept.
    ///
    /// ```
    /// let map = latchwork::map::RcuTreeMap::from([(1, "one"), (2, "two")]);
    /// let all: Vec<_> = map.iter().collect();
    /// map.clear();
    /// assert_eq!(*all[1], "two");
    /// ```
    ///
    /// # Panics
    ///
    /// If a thread keeps more than 32,000 items at once: each keeps a section open, and sections nest up to 32,767 deep.
    pub fn iter(&self) -> TreeRefs<'_, K, V> {
        TreeRefs::new(self, |snapshot| snapshot.walk(0, usize::MAX))
    }

    /// The elements with keys in `range`, as [`iter`](Self::iter).
    ///
    /// ```
    /// let map: latchwork::map::RcuTreeMap<u32, u32> = (0..100).map(|i| (i, i)).collect();
    /// assert_eq!(map.range(10..20).map(|element| *element).sum::<u32>(), 145);
    /// ```
    pub fn range<Q: Comparable<K> + ?Sized, R: RangeBounds<Q>>(&self, range: R) -> TreeRefs<'_, K, V> {
        let found = TreeRefs::new(self, |snapshot| snapshot.range(&range));
        drop(range);
        found
    }

    /// A copy of every element, in ascending order; each that is there the whole time is met once. No section stays open
    /// between the items, so a walk may take long: it holds nothing up. Elements are copied 32 at a time.
    ///
    /// ```
    /// let map = latchwork::map::RcuTreeMap::from([(1, "one"), (2, "two")]);
    /// for (number, name) in map.iter_cloned() {
    ///     map.insert(-number, name);
    /// }
    /// assert!(map.contains_key(&-2));
    /// ```
    pub fn iter_cloned(&self) -> TreeCloned<'_, K, V>
    where
        K: Ord + Clone,
        V: Clone,
    {
        TreeCloned::new(self)
    }

    /// Removes all elements with one update.
    ///
    /// ```
    /// let map = latchwork::map::RcuTreeMap::from([(1, "one")]);
    /// map.clear();
    /// assert!(map.is_empty());
    /// ```
    pub fn clear(&self) {
        self.tree.clear();
    }

    fn pop(&self, last: bool) -> Option<Ref<'_, K, V>> {
        self.tree.throttle();
        let slot = self.tree.lock_end(last);
        let removed = element(&self.tree, &slot);
        slot.remove();
        removed
    }

    /// Removes the element with the smallest key.
    ///
    /// ```
    /// let map = latchwork::map::RcuTreeMap::from([(1, "one"), (2, "two")]);
    /// assert_eq!(map.pop_first().as_deref(), Some(&"one"));
    /// assert_eq!(map.len(), 1);
    /// ```
    pub fn pop_first(&self) -> Option<Ref<'_, K, V>> {
        self.pop(false)
    }

    /// Removes the element with the largest key.
    ///
    /// ```
    /// let map = latchwork::map::RcuTreeMap::from([(1, "one"), (2, "two")]);
    /// assert_eq!(map.pop_last().as_deref(), Some(&"two"));
    /// ```
    pub fn pop_last(&self) -> Option<Ref<'_, K, V>> {
        self.pop(true)
    }

    /// Removes `key`. Returns whether it was there. To have the value: [`remove_entry`](Self::remove_entry).
    ///
    /// ```
    /// let map = latchwork::map::RcuTreeMap::from([(1, "one")]);
    /// assert!(map.remove(&1) && !map.remove(&1));
    /// ```
    pub fn remove<Q: Comparable<K> + ?Sized>(&self, key: &Q) -> bool {
        let slot = self.tree.lock(key);
        let there = slot.node().is_some();
        slot.remove();
        there
    }

    /// Removes `key`. Returns the element that was there.
    ///
    /// ```
    /// let map = latchwork::map::RcuTreeMap::from([(1, "one")]);
    /// assert_eq!(map.remove_entry(&1).unwrap().pair(), (&1, &"one"));
    /// ```
    pub fn remove_entry<Q: Comparable<K> + ?Sized>(&self, key: &Q) -> Option<Ref<'_, K, V>> {
        self.remove_if(key, |_, _| true)
    }

    /// Removes `key` if `condition` returns `true`. Returns the element that was removed. `condition` runs at most once,
    /// while the map is locked for updates, and must not update it.
    ///
    /// ```
    /// let map = latchwork::map::RcuTreeMap::from([(1, "one")]);
    /// assert!(map.remove_if(&1, |_, value| value.is_empty()).is_none());
    /// assert!(map.remove_if(&1, |_, value| value.len() == 3).is_some());
    /// ```
    pub fn remove_if<Q: Comparable<K> + ?Sized>(
        &self,
        key: &Q,
        condition: impl FnOnce(&K, &V) -> bool,
    ) -> Option<Ref<'_, K, V>> {
        self.tree.throttle();
        let slot = self.tree.lock(key);
        let node = slot.node()?;
        if !condition(&node.key, &node.value) {
            return None;
        }
        let removed = element(&self.tree, &slot);
        slot.remove();
        removed
    }
}

impl<K: Ord + Send + Sync + 'static, V: Send + Sync + 'static> RcuTreeMap<K, V> {
    /// Puts a new element into a slot; it stays valid after that.
    fn put<'m>(&'m self, slot: NativeSlot<'m, K, V>, key: K, value: V) -> Ref<'m, K, V> {
        let (node, section) = (Box::into_raw(Box::new(Node { key, value })), self.tree.enter());
        // SAFETY: just made by a box. The section begins before other threads find the element, so it protects it.
        slot.set(unsafe { Box::from_raw(node) });
        Ref::new(node, section)
    }

    /// Sets the value of `key`. Returns whether the key is new. To have the previous value: [`replace`](Self::replace).
    ///
    /// If the key was there, the map has the given `key` in its place afterwards.
    ///
    /// ```
    /// let map = latchwork::map::RcuTreeMap::new();
    /// assert!(map.insert(1, "one") && !map.insert(1, "uno"));
    /// assert_eq!(map.get(&1).as_deref(), Some(&"uno"));
    /// ```
    pub fn insert(&self, key: K, value: V) -> bool {
        let node = Box::new(Node { key, value });
        let slot = self.tree.lock(&node.key);
        let new = slot.node().is_none();
        slot.set(node);
        new
    }

    /// Sets the value of `key`. Returns the previous element.
    ///
    /// ```
    /// let map = latchwork::map::RcuTreeMap::new();
    /// assert!(map.replace(1, "one").is_none());
    /// assert_eq!(map.replace(1, "uno").as_deref(), Some(&"one"));
    /// ```
    pub fn replace(&self, key: K, value: V) -> Option<Ref<'_, K, V>> {
        self.tree.throttle();
        let node = Box::new(Node { key, value });
        let slot = self.tree.lock(&node.key);
        let before = element(&self.tree, &slot);
        slot.set(node);
        before
    }

    /// Inserts `key` if it is not there.
    ///
    /// # Errors
    ///
    /// The key is there: the element that is there, and the value that was not inserted.
    ///
    /// ```
    /// let map = latchwork::map::RcuTreeMap::new();
    /// assert_eq!(*map.try_insert(1, "one").unwrap(), "one");
    /// let error = map.try_insert(1, "uno").unwrap_err();
    /// assert_eq!((*error.current, error.value), ("one", "uno"));
    /// ```
    pub fn try_insert(&self, key: K, value: V) -> Result<Ref<'_, K, V>, OccupiedError<'_, K, V>> {
        self.tree.throttle();
        let slot = self.tree.lock(&key);
        match element(&self.tree, &slot) {
            Some(current) => {
                drop(slot);
                drop(key);
                Err(OccupiedError { current, value })
            }
            None => Ok(self.put(slot, key, value)),
        }
    }

    /// The value of `key`. If there is none, sets it to `value`.
    ///
    /// ```
    /// let map = latchwork::map::RcuTreeMap::new();
    /// assert_eq!(*map.get_or_insert(1, "one"), "one");
    /// assert_eq!(*map.get_or_insert(1, "uno"), "one");
    /// ```
    pub fn get_or_insert(&self, key: K, value: V) -> Ref<'_, K, V> {
        self.get_or_insert_with(key, || value)
    }

    /// The value of `key`. If there is none, sets it to what `make` returns. `make` runs at most once, while the map is locked
    /// for updates, and must not update it. If it panics, nothing changes.
    ///
    /// ```
    /// let map = latchwork::map::RcuTreeMap::new();
    /// assert_eq!(*map.get_or_insert_with(1, || "one"), "one");
    /// assert_eq!(*map.get_or_insert_with(1, || "uno"), "one");
    /// ```
    pub fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> V) -> Ref<'_, K, V> {
        // As in `RcuMap`: what is not used is dropped before something is returned.
        if let Some(found) = self.get(&key) {
            drop((key, make));
            return found;
        }
        self.tree.throttle();
        let slot = self.tree.lock(&key);
        match element(&self.tree, &slot) {
            Some(found) => {
                drop(slot);
                drop((key, make));
                found
            }
            None => {
                let value = make();
                self.put(slot, key, value)
            }
        }
    }

    /// Sets the value of `key` to what `make` makes of the previous one, if any. If `make` returns `None`, removes the key.
    /// `make` runs once, while the map is locked for updates, and must not update it. Returns the new value.
    ///
    /// ```
    /// let words = latchwork::map::RcuTreeMap::new();
    /// for word in ["a", "rose", "is", "a", "rose"] {
    ///     words.update(word, |count| Some(count.unwrap_or(&0) + 1));
    /// }
    /// assert_eq!(words.get("rose").as_deref(), Some(&2));
    /// words.update("is", |_| None);
    /// assert!(!words.contains_key("is"));
    /// ```
    pub fn update(&self, key: K, make: impl FnOnce(Option<&V>) -> Option<V>) -> Option<Ref<'_, K, V>> {
        self.tree.throttle();
        let slot = self.tree.lock(&key);
        match make(slot.node().map(|node| &node.value)) {
            Some(value) => Some(self.put(slot, key, value)),
            None => {
                slot.remove();
                None
            }
        }
    }

    /// Removes the elements of which `keep` returns `false`. The walk is of the map as it is now, and no lock is held while
    /// `keep` runs, so it may use the map. An element that is replaced meanwhile stays. A section stays open for the walk.
    ///
    /// ```
    /// let map: latchwork::map::RcuTreeMap<u32, u32> = (0..10).map(|i| (i, i)).collect();
    /// map.retain(|key, _| key % 2 == 0);
    /// assert_eq!(map.len(), 5);
    /// ```
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) {
        self.tree.throttle();
        let section = self.tree.enter();
        for node in self.tree.snapshot(&section).walk(0, usize::MAX) {
            if !keep(&node.key, &node.value) {
                self.tree.remove_found(&section, node);
            }
        }
    }
}
