//! Walks over an [`RcuMap`].

use super::growing::Node;
use super::rcu_map::{RcuMap, Reading, Ref, Table};
use crate::machine::Native;
use crate::reclaim::rcu::RcuGuard;
use alloc::boxed::Box;
use alloc::vec::{self, Vec};
use core::hash::{BuildHasher, Hash};
use core::iter::FusedIterator;

/// Iterates over a map. See [`Reading::iter`].
///
/// ```
/// let map = latchwork::map::RcuMap::from([(1, "one")]);
/// for (number, name) in &map.read() {
///     println!("{number}: {name}");
/// }
/// ```
pub struct Iter<'g, K: Send + Sync + 'static, V: Send + Sync + 'static>(
    Box<dyn Iterator<Item = &'g Node<K, V>> + 'g>,
);

/// Iterates over the keys of a map. See [`Reading::keys`].
pub struct Keys<'g, K: Send + Sync + 'static, V: Send + Sync + 'static>(Iter<'g, K, V>);

/// Iterates over the values of a map. See [`Reading::values`].
pub struct Values<'g, K: Send + Sync + 'static, V: Send + Sync + 'static>(Iter<'g, K, V>);

impl<'g, K: Send + Sync + 'static, V: Send + Sync + 'static> Iter<'g, K, V> {
    pub(super) fn new(nodes: impl Iterator<Item = &'g Node<K, V>> + 'g) -> Self {
        Iter(Box::new(nodes))
    }
}

impl<'g, K: Send + Sync + 'static, V: Send + Sync + 'static> Iterator for Iter<'g, K, V> {
    type Item = (&'g K, &'g V);
    fn next(&mut self) -> Option<(&'g K, &'g V)> {
        self.0.next().map(|node| (&node.key, &node.value))
    }
}

impl<'g, K: Send + Sync + 'static, V: Send + Sync + 'static> Keys<'g, K, V> {
    pub(super) fn new(iter: Iter<'g, K, V>) -> Self {
        Keys(iter)
    }
}

impl<'g, K: Send + Sync + 'static, V: Send + Sync + 'static> Iterator for Keys<'g, K, V> {
    type Item = &'g K;
    fn next(&mut self) -> Option<&'g K> {
        self.0.next().map(|(key, _)| key)
    }
}

impl<'g, K: Send + Sync + 'static, V: Send + Sync + 'static> Values<'g, K, V> {
    pub(super) fn new(iter: Iter<'g, K, V>) -> Self {
        Values(iter)
    }
}

impl<'g, K: Send + Sync + 'static, V: Send + Sync + 'static> Iterator for Values<'g, K, V> {
    type Item = &'g V;
    fn next(&mut self) -> Option<&'g V> {
        self.0.next().map(|(_, value)| value)
    }
}

impl<'g, K: Send + Sync + 'static, V: Send + Sync + 'static, S> IntoIterator for &'g Reading<'_, K, V, S> {
    type Item = (&'g K, &'g V);
    type IntoIter = Iter<'g, K, V>;
    fn into_iter(self) -> Iter<'g, K, V> {
        self.iter()
    }
}

/// Iterates over a map; its items can be kept. See [`RcuMap::iter`].
pub struct Refs<'m, K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    table: &'m Table<K, V, S>,
    /// What is left of the current bucket: found in the section below.
    bucket: vec::IntoIter<*const Node<K, V>>,
    next: Option<u64>,
    /// Lasts for the whole walk.
    section: RcuGuard<'m, Native>,
}

impl<'m, K, V, S> Iterator for Refs<'m, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    type Item = Ref<'m, K, V>;

    fn next(&mut self) -> Option<Ref<'m, K, V>> {
        loop {
            if let Some(node) = self.bucket.next() {
                // The element was found in `self.section`, and this section begins before that ends.
                return Some(Ref::new(node, self.table.enter()));
            }
            let (bucket, next) = self.table.bucket(&self.section, self.next?);
            self.bucket = bucket.map(core::ptr::from_ref).collect::<Vec<_>>().into_iter();
            self.next = next;
        }
    }
}

impl<K, V, S> FusedIterator for Refs<'_, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
}

/// Iterates over copies of a map's elements, without a section between them. See [`RcuMap::iter_cloned`].
pub struct Cloned<'m, K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    table: &'m Table<K, V, S>,
    /// What is left of the current bucket.
    bucket: vec::IntoIter<(K, V)>,
    next: Option<u64>,
}

impl<K, V, S> Iterator for Cloned<'_, K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        loop {
            if let Some(element) = self.bucket.next() {
                return Some(element);
            }
            let section = self.table.enter();
            let (bucket, next) = self.table.bucket(&section, self.next?);
            self.bucket =
                bucket.map(|node| (node.key.clone(), node.value.clone())).collect::<Vec<_>>().into_iter();
            self.next = next;
        }
    }
}

impl<K, V, S> FusedIterator for Cloned<'_, K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
}

impl<K, V, S> RcuMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Every element, in no order: each that is there the whole time, once, and some of those that come or go meanwhile. A
    /// section stays open until the iterator and all its items are dropped. [`Reading::iter`] is faster, and gives plain
    /// references; these can be kept.
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::from([(1, "one"), (2, "two")]);
    /// let largest = map.iter().max_by_key(|element| *element.key()).unwrap();
    /// assert_eq!(*largest, "two");
    /// ```
    ///
    /// # Panics
    ///
    /// If a thread keeps more than 32,000 items at once: each keeps a section open, and sections nest up to 32,767 deep.
    pub fn iter(&self) -> Refs<'_, K, V, S> {
        let (table, bucket) = (&self.table, Vec::new().into_iter());
        Refs { table, bucket, next: Some(0), section: table.enter() }
    }

    /// A copy of every element, in no order, as [`iter`](RcuMap::iter). No section stays open between the items, so a walk
    /// may take long: it holds nothing up. Elements are copied a bucket at a time (about 12).
    ///
    /// ```
    /// let map = latchwork::map::RcuMap::from([(1, "one"), (2, "two")]);
    /// for (number, name) in map.iter_cloned() {
    ///     map.insert(-number, name);
    /// }
    /// assert!(map.contains_key(&-2));
    /// ```
    pub fn iter_cloned(&self) -> Cloned<'_, K, V, S>
    where
        K: Clone,
        V: Clone,
    {
        Cloned { table: &self.table, bucket: Vec::new().into_iter(), next: Some(0) }
    }
}

impl<'m, K, V, S> IntoIterator for &'m RcuMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    type Item = Ref<'m, K, V>;
    type IntoIter = Refs<'m, K, V, S>;
    fn into_iter(self) -> Refs<'m, K, V, S> {
        self.iter()
    }
}

/// The elements of a map that has ended: `for (key, value) in map`. It has a list of the elements' numbers, 4 bytes each.
///
/// ```
/// let map = latchwork::map::RcuMap::from([(1, String::from("one"))]);
/// let names: Vec<String> = map.into_iter().map(|(_, name)| name).collect();
/// assert_eq!(names, ["one"]);
/// ```
pub struct IntoIter<K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    table: Table<K, V, S>,
    left: Vec<u32>,
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> IntoIterator for RcuMap<K, V, S> {
    type Item = (K, V);
    type IntoIter = IntoIter<K, V, S>;
    fn into_iter(self) -> IntoIter<K, V, S> {
        let mut table = self.table;
        let left = table.detach();
        IntoIter { table, left }
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Iterator for IntoIter<K, V, S> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        let number = self.left.pop()?;
        // SAFETY: `detach` returned the number, and it is used once.
        let Node { key, value } = unsafe { self.table.take(number) };
        Some((key, value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left.len(), Some(self.left.len()))
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> ExactSizeIterator for IntoIter<K, V, S> {}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> FusedIterator for IntoIter<K, V, S> {}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Drop for IntoIter<K, V, S> {
    /// Goes on if a destructor of an element panics. (A second panic ends the process.)
    fn drop(&mut self) {
        struct Rest<'a, K: Send + Sync + 'static, V: Send + Sync + 'static, S>(&'a mut IntoIter<K, V, S>);
        impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Drop for Rest<'_, K, V, S> {
            fn drop(&mut self) {
                self.0.for_each(drop);
            }
        }
        Rest(self).0.for_each(drop);
    }
}
