//! [`RcuTreeSet`]: an ordered set over [`RcuTreeMap`].

use super::set::SetRef;
use super::tree_iter::{TreeIntoIter, TreeKeys, TreeRefs};
use super::tree_map::RcuTreeMap;
use super::tree_reading::TreeReading;
use core::fmt;
use core::iter::FusedIterator;
use core::ops::RangeBounds;
use equivalent::Comparable;

/// An ordered concurrent set. Its readers lock nothing; a walk or a range is of one moment; updates take turns. It is an
/// [`RcuTreeMap`] without values: what that page says of updates, sections and destructors holds here.
///
/// ```
/// use latchwork::map::RcuTreeSet;
///
/// let ports = RcuTreeSet::from([443, 80, 22]);
/// std::thread::scope(|scope| {
///     scope.spawn(|| ports.insert(8080));
/// });
/// assert_eq!(ports.read().range(80..).copied().collect::<Vec<_>>(), [80, 443, 8080]);
/// ```
pub struct RcuTreeSet<T: Send + Sync + 'static> {
    map: RcuTreeMap<T, ()>,
}

/// A read section, in which the set is as it was at one moment.
///
/// ```
/// let set = latchwork::map::RcuTreeSet::from([2, 1]);
/// let reading = set.read();
/// set.clear();
/// assert_eq!(reading.iter().copied().collect::<Vec<_>>(), [1, 2]);
/// ```
pub struct TreeSetReading<'s, T: Send + Sync + 'static>(pub(super) TreeReading<'s, T, ()>);

impl<T: Send + Sync + 'static> TreeSetReading<'_, T> {
    /// The element that is equal to `value`.
    ///
    /// ```
    /// let set = latchwork::map::RcuTreeSet::from([String::from("one")]);
    /// assert_eq!(set.read().get("one").map(String::len), Some(3));
    /// ```
    pub fn get<Q: Comparable<T> + ?Sized>(&self, value: &Q) -> Option<&T> {
        self.0.get_key_value(value).map(|(element, ())| element)
    }

    /// Whether `value` is there.
    ///
    /// ```
    /// assert!(latchwork::map::RcuTreeSet::from([1]).read().contains(&1));
    /// ```
    pub fn contains<Q: Comparable<T> + ?Sized>(&self, value: &Q) -> bool {
        self.0.contains_key(value)
    }

    /// How many elements there are.
    ///
    /// ```
    /// assert_eq!(latchwork::map::RcuTreeSet::from([1, 2]).read().len(), 2);
    /// ```
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the set is empty.
    ///
    /// ```
    /// assert!(!latchwork::map::RcuTreeSet::from([1, 2]).read().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The least element.
    ///
    /// ```
    /// assert_eq!(latchwork::map::RcuTreeSet::from([2, 1]).read().first(), Some(&1));
    /// ```
    pub fn first(&self) -> Option<&T> {
        self.0.first_key_value().map(|(element, ())| element)
    }

    /// The greatest element.
    ///
    /// ```
    /// assert_eq!(latchwork::map::RcuTreeSet::from([2, 1]).read().last(), Some(&2));
    /// ```
    pub fn last(&self) -> Option<&T> {
        self.0.last_key_value().map(|(element, ())| element)
    }

    /// Every element, in ascending order.
    ///
    /// ```
    /// assert_eq!(latchwork::map::RcuTreeSet::from([2, 1]).read().iter().next_back(), Some(&2));
    /// ```
    pub fn iter(&self) -> TreeKeys<'_, T, ()> {
        self.0.keys()
    }

    /// The elements of a range, in ascending order.
    ///
    /// ```
    /// assert_eq!(latchwork::map::RcuTreeSet::from([2, 1, 3]).read().range(2..).count(), 2);
    /// ```
    pub fn range<Q: Comparable<T> + ?Sized, R: RangeBounds<Q>>(&self, range: R) -> TreeKeys<'_, T, ()> {
        TreeKeys::new(self.0.range(range))
    }
}

impl<T: Send + Sync + 'static> RcuTreeSet<T> {
    /// An empty set.
    ///
    /// ```
    /// assert!(latchwork::map::RcuTreeSet::<u32>::new().is_empty());
    /// ```
    pub fn new() -> Self {
        RcuTreeSet { map: RcuTreeMap::new() }
    }

    /// The map of which this is the set of keys.
    ///
    /// ```
    /// assert!(latchwork::map::RcuTreeSet::from([1]).as_map().contains_key(&1));
    /// ```
    pub fn as_map(&self) -> &RcuTreeMap<T, ()> {
        &self.map
    }

    /// How many elements there are.
    ///
    /// ```
    /// assert_eq!(latchwork::map::RcuTreeSet::from([1, 2]).len(), 2);
    /// ```
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether the set is empty.
    ///
    /// ```
    /// assert!(!latchwork::map::RcuTreeSet::from([1, 2]).is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Begins a read section, in which the set stays as it is now.
    ///
    /// ```
    /// assert!(latchwork::map::RcuTreeSet::from([1]).read().contains(&1));
    /// ```
    pub fn read(&self) -> TreeSetReading<'_, T> {
        TreeSetReading(self.map.read())
    }

    /// The element that is equal to `value`.
    ///
    /// ```
    /// let set = latchwork::map::RcuTreeSet::from([String::from("one")]);
    /// assert_eq!(set.get("one").as_deref(), Some(&String::from("one")));
    /// ```
    pub fn get<Q: Comparable<T> + ?Sized>(&self, value: &Q) -> Option<SetRef<'_, T>> {
        self.map.get(value).map(SetRef)
    }

    /// Whether `value` is there.
    ///
    /// ```
    /// assert!(latchwork::map::RcuTreeSet::from([1]).contains(&1));
    /// ```
    pub fn contains<Q: Comparable<T> + ?Sized>(&self, value: &Q) -> bool {
        self.map.contains_key(value)
    }

    /// The least element.
    ///
    /// ```
    /// assert_eq!(latchwork::map::RcuTreeSet::from([2, 1]).first().as_deref(), Some(&1));
    /// ```
    pub fn first(&self) -> Option<SetRef<'_, T>> {
        self.map.first().map(SetRef)
    }

    /// The greatest element.
    ///
    /// ```
    /// assert_eq!(latchwork::map::RcuTreeSet::from([2, 1]).last().as_deref(), Some(&2));
    /// ```
    pub fn last(&self) -> Option<SetRef<'_, T>> {
        self.map.last().map(SetRef)
    }

    /// Removes the least element, and returns it.
    ///
    /// ```
    /// assert_eq!(latchwork::map::RcuTreeSet::from([2, 1]).pop_first().as_deref(), Some(&1));
    /// ```
    pub fn pop_first(&self) -> Option<SetRef<'_, T>> {
        self.map.pop_first().map(SetRef)
    }

    /// Removes the greatest element, and returns it.
    ///
    /// ```
    /// assert_eq!(latchwork::map::RcuTreeSet::from([2, 1]).pop_last().as_deref(), Some(&2));
    /// ```
    pub fn pop_last(&self) -> Option<SetRef<'_, T>> {
        self.map.pop_last().map(SetRef)
    }

    /// Removes the element that is equal to `value`. Returns whether there was one.
    ///
    /// ```
    /// let set = latchwork::map::RcuTreeSet::from([1]);
    /// assert!(set.remove(&1) && !set.remove(&1));
    /// ```
    pub fn remove<Q: Comparable<T> + ?Sized>(&self, value: &Q) -> bool {
        self.map.remove(value)
    }

    /// Removes the element that is equal to `value`, and returns it.
    ///
    /// ```
    /// let set = latchwork::map::RcuTreeSet::from([1]);
    /// assert_eq!(set.take(&1).as_deref(), Some(&1));
    /// ```
    pub fn take<Q: Comparable<T> + ?Sized>(&self, value: &Q) -> Option<SetRef<'_, T>> {
        self.map.remove_entry(value).map(SetRef)
    }

    /// Removes all elements at once: [`RcuTreeMap::clear`].
    ///
    /// ```
    /// let set = latchwork::map::RcuTreeSet::from([1]);
    /// set.clear();
    /// assert!(set.is_empty());
    /// ```
    pub fn clear(&self) {
        self.map.clear();
    }

    /// Every element as it was at one moment, in ascending order; each can be kept, and a section stays open:
    /// [`RcuTreeMap::iter`].
    ///
    /// ```
    /// let set = latchwork::map::RcuTreeSet::from([2, 1]);
    /// assert_eq!(set.iter().map(|element| *element).collect::<Vec<_>>(), [1, 2]);
    /// ```
    pub fn iter(&self) -> TreeSetRefs<'_, T> {
        TreeSetRefs(self.map.iter())
    }

    /// The elements of a range, as [`iter`](Self::iter).
    ///
    /// ```
    /// let set = latchwork::map::RcuTreeSet::from([2, 1, 3]);
    /// assert_eq!(set.range(..=2).map(|element| *element).collect::<Vec<_>>(), [1, 2]);
    /// ```
    pub fn range<Q: Comparable<T> + ?Sized, R: RangeBounds<Q>>(&self, range: R) -> TreeSetRefs<'_, T> {
        TreeSetRefs(self.map.range(range))
    }
}

impl<T: Ord + Send + Sync + 'static> RcuTreeSet<T> {
    /// Adds `value`, if no equal element is there. Returns whether it was added.
    ///
    /// ```
    /// let set = latchwork::map::RcuTreeSet::new();
    /// assert!(set.insert(1) && !set.insert(1));
    /// ```
    pub fn insert(&self, value: T) -> bool {
        self.map.try_insert(value, ()).is_ok()
    }

    /// Removes the elements of which `keep` returns `false`: [`RcuTreeMap::retain`].
    ///
    /// ```
    /// let set: latchwork::map::RcuTreeSet<u32> = (0..10).collect();
    /// set.retain(|element| element % 2 == 0);
    /// assert_eq!(set.len(), 5);
    /// ```
    pub fn retain(&self, mut keep: impl FnMut(&T) -> bool) {
        self.map.retain(|element, ()| keep(element));
    }
}

/// Iterates over a set; its items can be kept. See [`RcuTreeSet::iter`].
pub struct TreeSetRefs<'s, T: Send + Sync + 'static>(TreeRefs<'s, T, ()>);

impl<'s, T: Send + Sync + 'static> Iterator for TreeSetRefs<'s, T> {
    type Item = SetRef<'s, T>;
    fn next(&mut self) -> Option<SetRef<'s, T>> {
        self.0.next().map(SetRef)
    }
    fn nth(&mut self, skipped: usize) -> Option<SetRef<'s, T>> {
        self.0.nth(skipped).map(SetRef)
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<T: Send + Sync + 'static> DoubleEndedIterator for TreeSetRefs<'_, T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back().map(SetRef)
    }
}

impl<T: Send + Sync + 'static> ExactSizeIterator for TreeSetRefs<'_, T> {}
impl<T: Send + Sync + 'static> FusedIterator for TreeSetRefs<'_, T> {}

/// The elements of a set that has ended, in ascending order: `for element in set`.
///
/// ```
/// let set = latchwork::map::RcuTreeSet::from([String::from("one")]);
/// assert_eq!(set.into_iter().collect::<Vec<String>>(), ["one"]);
/// ```
pub struct TreeSetIntoIter<T>(TreeIntoIter<T, ()>);

impl<T> Iterator for TreeSetIntoIter<T> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        self.0.next().map(|(element, ())| element)
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<T> ExactSizeIterator for TreeSetIntoIter<T> {}
impl<T> FusedIterator for TreeSetIntoIter<T> {}

impl<T: Send + Sync + 'static> IntoIterator for RcuTreeSet<T> {
    type Item = T;
    type IntoIter = TreeSetIntoIter<T>;
    fn into_iter(self) -> TreeSetIntoIter<T> {
        TreeSetIntoIter(self.map.into_iter())
    }
}

impl<'s, T: Send + Sync + 'static> IntoIterator for &'s RcuTreeSet<T> {
    type Item = SetRef<'s, T>;
    type IntoIter = TreeSetRefs<'s, T>;
    fn into_iter(self) -> TreeSetRefs<'s, T> {
        self.iter()
    }
}

impl<T: Send + Sync + 'static> Default for RcuTreeSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for RcuTreeSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.read().iter()).finish()
    }
}

impl<T: Ord + Clone + Send + Sync + 'static> Clone for RcuTreeSet<T> {
    fn clone(&self) -> Self {
        RcuTreeSet { map: self.map.clone() }
    }
}

impl<T: Ord + Send + Sync + 'static> PartialEq for RcuTreeSet<T> {
    fn eq(&self, other: &Self) -> bool {
        self.map == other.map
    }
}

impl<T: Ord + Send + Sync + 'static> Eq for RcuTreeSet<T> {}

impl<T: Ord + Send + Sync + 'static> Extend<T> for RcuTreeSet<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, elements: I) {
        elements.into_iter().for_each(|element| _ = self.insert(element));
    }
}

impl<T: Ord + Send + Sync + 'static> FromIterator<T> for RcuTreeSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        RcuTreeSet { map: elements.into_iter().map(|element| (element, ())).collect() }
    }
}

impl<T: Ord + Send + Sync + 'static, const N: usize> From<[T; N]> for RcuTreeSet<T> {
    fn from(elements: [T; N]) -> Self {
        elements.into_iter().collect()
    }
}
