//! [`RcuSet`]: a set over [`RcuMap`].

extern crate std;

use super::iter::{self, Keys};
use super::rcu_map::{RcuMap, Reading, Ref, Statistics};
use core::fmt;
use core::hash::{BuildHasher, Hash};
use core::iter::FusedIterator;
use core::ops::Deref;
use equivalent::Equivalent;
use std::hash::RandomState;

/// A concurrent hash set. Its readers lock nothing, and wait for no other thread. It is an [`RcuMap`] without values: what
/// that page says of atomicity, walks, sections and destructors holds here.
///
/// ```
/// use latchwork::map::RcuSet;
///
/// let banned = RcuSet::from(["10.0.0.7"]);
/// std::thread::scope(|scope| {
///     scope.spawn(|| banned.insert("10.0.0.8"));
/// });
/// assert!(banned.contains("10.0.0.8") && banned.len() == 2);
/// ```
pub struct RcuSet<T: Send + Sync + 'static, S = RandomState> {
    map: RcuMap<T, (), S>,
}

/// An element of a set. It stays valid until this is dropped.
///
/// ```
/// let set = latchwork::map::RcuSet::from([String::from("one")]);
/// let element = set.get("one").unwrap();
/// set.remove("one");
/// assert_eq!(*element, "one");
/// ```
pub struct SetRef<'s, T: Send + Sync + 'static>(pub(super) Ref<'s, T, ()>);

impl<T: Send + Sync + 'static> Deref for SetRef<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.key()
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for SetRef<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A read section: several lookups at the price of one section, and plain references.
///
/// ```
/// let set = latchwork::map::RcuSet::from([1, 2]);
/// let reading = set.read();
/// assert_eq!(reading.iter().sum::<i32>(), 3);
/// ```
pub struct SetReading<'s, T: Send + Sync + 'static, S = RandomState>(pub(super) Reading<'s, T, (), S>);

impl<T, S> SetReading<'_, T, S>
where
    T: Hash + Eq + Send + Sync + 'static,
    S: BuildHasher,
{
    /// The element that is equal to `value`.
    ///
    /// ```
    /// let set = latchwork::map::RcuSet::from([String::from("one")]);
    /// assert_eq!(set.read().get("one").map(String::len), Some(3));
    /// ```
    pub fn get<Q: Hash + Equivalent<T> + ?Sized>(&self, value: &Q) -> Option<&T> {
        self.0.get_key_value(value).map(|(element, ())| element)
    }

    /// Whether `value` is there.
    ///
    /// ```
    /// assert!(latchwork::map::RcuSet::from([1]).read().contains(&1));
    /// ```
    pub fn contains<Q: Hash + Equivalent<T> + ?Sized>(&self, value: &Q) -> bool {
        self.0.contains_key(value)
    }
}

impl<T: Send + Sync + 'static, S> SetReading<'_, T, S> {
    /// Every element, as [`Reading::iter`].
    ///
    /// ```
    /// assert_eq!(latchwork::map::RcuSet::from([1, 2]).read().iter().sum::<i32>(), 3);
    /// ```
    pub fn iter(&self) -> Keys<'_, T, ()> {
        self.0.keys()
    }
}

impl<T: Send + Sync + 'static> RcuSet<T> {
    /// An empty set.
    ///
    /// ```
    /// assert!(latchwork::map::RcuSet::<u32>::new().is_empty());
    /// ```
    pub fn new() -> Self {
        RcuSet { map: RcuMap::new() }
    }

    /// An empty set that holds `capacity` elements without growing, if they spread evenly.
    ///
    /// ```
    /// assert!(latchwork::map::RcuSet::<u32>::with_capacity(1000).capacity() >= 1000);
    /// ```
    pub fn with_capacity(capacity: usize) -> Self {
        RcuSet { map: RcuMap::with_capacity(capacity) }
    }
}

impl<T: Send + Sync + 'static, S> RcuSet<T, S> {
    /// An empty set with a hasher of one's own.
    ///
    /// ```
    /// use std::hash::RandomState;
    /// assert!(latchwork::map::RcuSet::<u32>::with_hasher(RandomState::new()).is_empty());
    /// ```
    pub fn with_hasher(hasher: S) -> Self {
        RcuSet { map: RcuMap::with_hasher(hasher) }
    }

    /// An empty set with a hasher of one's own that holds `capacity` elements without growing, if they spread evenly.
    ///
    /// # Panics
    ///
    /// If `capacity` elements are more than addresses can tell apart. (Fewer that memory has no room for end the process.)
    ///
    /// ```
    /// use std::hash::RandomState;
    /// let set = latchwork::map::RcuSet::<u32>::with_capacity_and_hasher(1000, RandomState::new());
    /// assert!(set.capacity() >= 1000);
    /// ```
    pub fn with_capacity_and_hasher(capacity: usize, hasher: S) -> Self {
        RcuSet { map: RcuMap::with_capacity_and_hasher(capacity, hasher) }
    }

    /// The map of which this is the set of keys. Its methods that the set lacks are there: `entry`, `reserve`, ...
    ///
    /// ```
    /// let set = latchwork::map::RcuSet::from([1]);
    /// set.as_map().reserve(1000);
    /// assert!(set.capacity() >= 1000);
    /// ```
    pub fn as_map(&self) -> &RcuMap<T, (), S> {
        &self.map
    }

    /// Its hasher.
    ///
    /// ```
    /// use std::hash::BuildHasher;
    /// let set = latchwork::map::RcuSet::from([1]);
    /// assert_eq!(set.hasher().hash_one(7), set.hasher().hash_one(7));
    /// ```
    pub fn hasher(&self) -> &S {
        self.map.hasher()
    }

    /// How many elements there are, or were a moment ago.
    ///
    /// ```
    /// assert_eq!(latchwork::map::RcuSet::from([1, 2]).len(), 2);
    /// ```
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether the set is empty.
    ///
    /// ```
    /// assert!(!latchwork::map::RcuSet::from([1, 2]).is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// How many elements the set holds before it grows, if they spread evenly.
    ///
    /// ```
    /// assert!(latchwork::map::RcuSet::<u32>::new().capacity() > 0);
    /// ```
    pub fn capacity(&self) -> usize {
        self.map.capacity()
    }

    /// What the set consists of now. See [`RcuMap::statistics`].
    ///
    /// ```
    /// assert_eq!(latchwork::map::RcuSet::from([1]).statistics().elements, 1);
    /// ```
    pub fn statistics(&self) -> Statistics {
        self.map.statistics()
    }

    /// Begins a read section.
    ///
    /// ```
    /// assert!(latchwork::map::RcuSet::from([1]).read().contains(&1));
    /// ```
    pub fn read(&self) -> SetReading<'_, T, S> {
        SetReading(self.map.read())
    }
}

impl<T, S> RcuSet<T, S>
where
    T: Hash + Eq + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Whether `value` is there.
    ///
    /// ```
    /// assert!(latchwork::map::RcuSet::from([1]).contains(&1));
    /// ```
    #[inline]
    pub fn contains<Q: Hash + Equivalent<T> + ?Sized>(&self, value: &Q) -> bool {
        self.map.contains_key(value)
    }

    /// The element that is equal to `value`.
    ///
    /// ```
    /// let set = latchwork::map::RcuSet::from([String::from("one")]);
    /// assert_eq!(set.get("one").as_deref(), Some(&String::from("one")));
    /// ```
    #[inline]
    pub fn get<Q: Hash + Equivalent<T> + ?Sized>(&self, value: &Q) -> Option<SetRef<'_, T>> {
        self.map.get(value).map(SetRef)
    }

    /// Adds `value`, if no equal element is there. Returns whether it was added.
    ///
    /// ```
    /// let set = latchwork::map::RcuSet::new();
    /// assert!(set.insert(1) && !set.insert(1));
    /// ```
    #[inline]
    pub fn insert(&self, value: T) -> bool {
        let mut slot = self.map.table.lock(&value);
        let new = slot.node().is_none();
        if new {
            slot.set(value, ());
        }
        new
    }

    /// Removes the element that is equal to `value`. Returns whether there was one.
    ///
    /// ```
    /// let set = latchwork::map::RcuSet::from([1]);
    /// assert!(set.remove(&1) && !set.remove(&1));
    /// ```
    #[inline]
    pub fn remove<Q: Hash + Equivalent<T> + ?Sized>(&self, value: &Q) -> bool {
        self.map.remove(value)
    }

    /// Removes the element that is equal to `value`, and returns it.
    ///
    /// ```
    /// let set = latchwork::map::RcuSet::from([1]);
    /// assert_eq!(set.take(&1).as_deref(), Some(&1));
    /// ```
    pub fn take<Q: Hash + Equivalent<T> + ?Sized>(&self, value: &Q) -> Option<SetRef<'_, T>> {
        self.map.remove_entry(value).map(SetRef)
    }

    /// Removes the elements of which `keep` returns `false`: [`RcuMap::retain`].
    ///
    /// ```
    /// let set: latchwork::map::RcuSet<u32> = (0..10).collect();
    /// set.retain(|element| element % 2 == 0);
    /// assert_eq!(set.len(), 5);
    /// ```
    pub fn retain(&self, mut keep: impl FnMut(&T) -> bool) {
        self.map.retain(|element, ()| keep(element));
    }

    /// Removes all elements that are there now: [`RcuMap::clear`].
    ///
    /// ```
    /// let set = latchwork::map::RcuSet::from([1]);
    /// set.clear();
    /// assert!(set.is_empty());
    /// ```
    pub fn clear(&self) {
        self.map.clear();
    }

    /// Every element; each can be kept (32,000 at once), and a section stays open: [`RcuMap::iter`].
    ///
    /// ```
    /// let set = latchwork::map::RcuSet::from([1, 2]);
    /// assert_eq!(set.iter().map(|element| *element).max(), Some(2));
    /// ```
    pub fn iter(&self) -> Refs<'_, T, S> {
        Refs(self.map.iter())
    }

    /// A copy of every element, without a section between them: [`RcuMap::iter_cloned`].
    ///
    /// ```
    /// let set = latchwork::map::RcuSet::from([1, 2]);
    /// assert_eq!(set.iter_cloned().sum::<i32>(), 3);
    /// ```
    pub fn iter_cloned(&self) -> impl Iterator<Item = T> + use<'_, T, S>
    where
        T: Clone,
    {
        self.map.iter_cloned().map(|(element, ())| element)
    }

    /// Whether each element is in `other`. Each is looked for at a moment of its own; so it is for the next two.
    ///
    /// ```
    /// use latchwork::map::RcuSet;
    /// assert!(RcuSet::from([1]).is_subset(&RcuSet::from([1, 2])));
    /// ```
    pub fn is_subset<S2: BuildHasher>(&self, other: &RcuSet<T, S2>) -> bool {
        let others = other.read();
        self.read().iter().all(|element| others.contains(element))
    }

    /// Whether each element of `other` is here.
    ///
    /// ```
    /// use latchwork::map::RcuSet;
    /// assert!(RcuSet::from([1, 2]).is_superset(&RcuSet::from([1])));
    /// ```
    pub fn is_superset<S2: BuildHasher>(&self, other: &RcuSet<T, S2>) -> bool {
        other.is_subset(self)
    }

    /// Whether no element is in `other`.
    ///
    /// ```
    /// use latchwork::map::RcuSet;
    /// assert!(RcuSet::from([1]).is_disjoint(&RcuSet::from([2])));
    /// ```
    pub fn is_disjoint<S2: BuildHasher>(&self, other: &RcuSet<T, S2>) -> bool {
        let others = other.read();
        !self.read().iter().any(|element| others.contains(element))
    }
}

/// Iterates over a set; its items can be kept. See [`RcuSet::iter`].
pub struct Refs<'s, T: Send + Sync + 'static, S>(iter::Refs<'s, T, (), S>);

impl<'s, T, S> Iterator for Refs<'s, T, S>
where
    T: Hash + Eq + Send + Sync + 'static,
    S: BuildHasher,
{
    type Item = SetRef<'s, T>;
    fn next(&mut self) -> Option<SetRef<'s, T>> {
        self.0.next().map(SetRef)
    }
}

/// The elements of a set that has ended: `for element in set`.
///
/// ```
/// let set = latchwork::map::RcuSet::from([String::from("one")]);
/// assert_eq!(set.into_iter().collect::<Vec<String>>(), ["one"]);
/// ```
pub struct IntoIter<T: Send + Sync + 'static, S>(iter::IntoIter<T, (), S>);

impl<T: Send + Sync + 'static, S> Iterator for IntoIter<T, S> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        self.0.next().map(|(element, ())| element)
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<T: Send + Sync + 'static, S> ExactSizeIterator for IntoIter<T, S> {}

impl<T: Send + Sync + 'static, S> FusedIterator for IntoIter<T, S> {}

impl<T: Send + Sync + 'static, S> IntoIterator for RcuSet<T, S> {
    type Item = T;
    type IntoIter = IntoIter<T, S>;
    fn into_iter(self) -> IntoIter<T, S> {
        IntoIter(self.map.into_iter())
    }
}

impl<'s, T, S> IntoIterator for &'s RcuSet<T, S>
where
    T: Hash + Eq + Send + Sync + 'static,
    S: BuildHasher,
{
    type Item = SetRef<'s, T>;
    type IntoIter = Refs<'s, T, S>;
    fn into_iter(self) -> Refs<'s, T, S> {
        self.iter()
    }
}

impl<T: Send + Sync + 'static, S: Default> Default for RcuSet<T, S> {
    fn default() -> Self {
        Self::with_hasher(S::default())
    }
}

impl<T: Send + Sync + fmt::Debug + 'static, S> fmt::Debug for RcuSet<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.read().iter()).finish()
    }
}

/// As the `clone` of [`RcuMap`]: a walk.
impl<T, S> Clone for RcuSet<T, S>
where
    T: Hash + Eq + Clone + Send + Sync + 'static,
    S: BuildHasher + Clone,
{
    fn clone(&self) -> Self {
        RcuSet { map: self.map.clone() }
    }
}

impl<T, S, S2> PartialEq<RcuSet<T, S2>> for RcuSet<T, S>
where
    T: Hash + Eq + Send + Sync + 'static,
    S: BuildHasher,
    S2: BuildHasher,
{
    fn eq(&self, other: &RcuSet<T, S2>) -> bool {
        self.map == other.map
    }
}

impl<T, S> Eq for RcuSet<T, S>
where
    T: Hash + Eq + Send + Sync + 'static,
    S: BuildHasher,
{
}

impl<T, S> Extend<T> for RcuSet<T, S>
where
    T: Hash + Eq + Send + Sync + 'static,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = T>>(&mut self, elements: I) {
        elements.into_iter().for_each(|element| _ = self.insert(element));
    }
}

impl<T, S> FromIterator<T> for RcuSet<T, S>
where
    T: Hash + Eq + Send + Sync + 'static,
    S: BuildHasher + Default,
{
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        let mut set = Self::default();
        set.extend(elements);
        set
    }
}

impl<T, const N: usize> From<[T; N]> for RcuSet<T>
where
    T: Hash + Eq + Send + Sync + 'static,
{
    fn from(elements: [T; N]) -> Self {
        elements.into_iter().collect()
    }
}
