//! Walks over an [`RcuTreeMap`].

use super::growing::Node;
use super::pages::Drain;
use super::rcu_map::Ref;
use super::tree::{Snapshot, Walk};
use super::tree_map::RcuTreeMap;
use super::tree_reading::TreeReading;
use alloc::vec::{self, Vec};
use core::iter::FusedIterator;
use core::ops::Bound;

/// Elements that [`TreeCloned`] copies in a section.
const COPIED: usize = 32;

/// Iterates over elements of a map, in ascending order. See [`TreeReading::iter`] and [`TreeReading::range`].
///
/// ```
/// let map = latchwork::map::RcuTreeMap::from([(1, "one")]);
/// for (number, name) in &map.read() {
///     println!("{number}: {name}");
/// }
/// ```
pub struct TreeRange<'g, K, V>(Walk<'g, K, V>);

/// Iterates over the keys of a map. See [`TreeReading::keys`].
pub struct TreeKeys<'g, K, V>(TreeRange<'g, K, V>);

/// Iterates over the values of a map. See [`TreeReading::values`].
pub struct TreeValues<'g, K, V>(TreeRange<'g, K, V>);

/// An iterator that takes its items from the one in its first field.
macro_rules! iterates {
    ($(<$($parameter:tt),*> $name:ty, $item:ty, $map:expr;)*) => {$(
        impl<$($parameter),*> Iterator for $name {
            type Item = $item;
            #[inline]
            fn next(&mut self) -> Option<Self::Item> {
                self.0.next().map($map)
            }
            fn nth(&mut self, skipped: usize) -> Option<Self::Item> {
                self.0.nth(skipped).map($map)
            }
            fn size_hint(&self) -> (usize, Option<usize>) {
                self.0.size_hint()
            }
        }
        impl<$($parameter),*> DoubleEndedIterator for $name {
            fn next_back(&mut self) -> Option<Self::Item> {
                self.0.next_back().map($map)
            }
        }
        impl<$($parameter),*> ExactSizeIterator for $name {}
        impl<$($parameter),*> FusedIterator for $name {}
        impl<$($parameter),*> Clone for $name {
            fn clone(&self) -> Self {
                Self(self.0.clone())
            }
        }
    )*};
}

iterates! {
    <'g, K, V> TreeRange<'g, K, V>, (&'g K, &'g V), |node| (&node.key, &node.value);
    <'g, K, V> TreeKeys<'g, K, V>, &'g K, |(key, _)| key;
    <'g, K, V> TreeValues<'g, K, V>, &'g V, |(_, value)| value;
}

impl<'g, K, V> TreeRange<'g, K, V> {
    pub(super) fn new(walk: Walk<'g, K, V>) -> Self {
        TreeRange(walk)
    }
}

impl<'g, K, V> TreeKeys<'g, K, V> {
    pub(super) fn new(range: TreeRange<'g, K, V>) -> Self {
        TreeKeys(range)
    }
}

impl<'g, K, V> TreeValues<'g, K, V> {
    pub(super) fn new(range: TreeRange<'g, K, V>) -> Self {
        TreeValues(range)
    }
}

impl<'g, K: Send + Sync + 'static, V: Send + Sync + 'static> IntoIterator for &'g TreeReading<'_, K, V> {
    type Item = (&'g K, &'g V);
    type IntoIter = TreeRange<'g, K, V>;
    fn into_iter(self) -> TreeRange<'g, K, V> {
        self.iter()
    }
}

/// Iterates over elements of a map; its items can be kept. See [`RcuTreeMap::iter`].
pub struct TreeRefs<'m, K: Send + Sync + 'static, V: Send + Sync + 'static> {
    map: &'m RcuTreeMap<K, V>,
    /// Of the reading's snapshot.
    walk: Walk<'m, K, V>,
    /// Lasts for the whole walk.
    _reading: TreeReading<'m, K, V>,
}

impl<'m, K: Send + Sync + 'static, V: Send + Sync + 'static> TreeRefs<'m, K, V> {
    pub(super) fn new(
        map: &'m RcuTreeMap<K, V>,
        walk: impl for<'g> FnOnce(Snapshot<'g, K, V>) -> Walk<'g, K, V>,
    ) -> Self {
        let reading = map.read();
        // SAFETY: the reading's section lasts for as long as this, and items get sections of their own (`item`).
        let walk =
            unsafe { core::mem::transmute::<Walk<'_, K, V>, Walk<'m, K, V>>(walk(reading.snapshot())) };
        TreeRefs { map, walk, _reading: reading }
    }

    /// The element was found in the section of the reading, and the item's section begins before that ends.
    fn item(&self, node: *const Node<K, V>) -> Ref<'m, K, V> {
        Ref::new(node, self.map.tree.enter())
    }
}

impl<'m, K: Send + Sync + 'static, V: Send + Sync + 'static> Iterator for TreeRefs<'m, K, V> {
    type Item = Ref<'m, K, V>;

    fn next(&mut self) -> Option<Ref<'m, K, V>> {
        let node: *const _ = self.walk.next()?;
        Some(self.item(node))
    }

    fn nth(&mut self, skipped: usize) -> Option<Ref<'m, K, V>> {
        let node: *const _ = self.walk.nth(skipped)?;
        Some(self.item(node))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.walk.size_hint()
    }
}

impl<'m, K: Send + Sync + 'static, V: Send + Sync + 'static> DoubleEndedIterator for TreeRefs<'m, K, V> {
    fn next_back(&mut self) -> Option<Ref<'m, K, V>> {
        let node: *const _ = self.walk.next_back()?;
        Some(self.item(node))
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> ExactSizeIterator for TreeRefs<'_, K, V> {}
impl<K: Send + Sync + 'static, V: Send + Sync + 'static> FusedIterator for TreeRefs<'_, K, V> {}

impl<'m, K: Send + Sync + 'static, V: Send + Sync + 'static> IntoIterator for &'m RcuTreeMap<K, V> {
    type Item = Ref<'m, K, V>;
    type IntoIter = TreeRefs<'m, K, V>;
    fn into_iter(self) -> TreeRefs<'m, K, V> {
        self.iter()
    }
}

/// Iterates over copies of a map's elements, without a section between them. See [`RcuTreeMap::iter_cloned`].
pub struct TreeCloned<'m, K: Send + Sync + 'static, V: Send + Sync + 'static> {
    map: &'m RcuTreeMap<K, V>,
    copied: vec::IntoIter<(K, V)>,
    /// The last key that was copied; `None` in the beginning, and at the end.
    last: Option<K>,
    /// With the map's updates added, how many more elements there can be: those of the beginning, and one for each update since.
    /// There are no more unless comparisons contradict each other, and lead the walk back.
    left: usize,
    ended: bool,
}

impl<'m, K: Send + Sync + 'static, V: Send + Sync + 'static> TreeCloned<'m, K, V> {
    pub(super) fn new(map: &'m RcuTreeMap<K, V>) -> Self {
        // One more, for an update that is counted already and comes now.
        let updates = map.tree.updates();
        let left = (map.len() + 1).wrapping_sub(updates);
        TreeCloned { map, copied: Vec::new().into_iter(), last: None, left, ended: false }
    }
}

impl<K, V> Iterator for TreeCloned<'_, K, V>
where
    K: Ord + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        if self.copied.len() == 0 && !self.ended {
            let reading = self.map.read();
            let begin = self.last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let range = reading.range::<K, _>((begin, Bound::Unbounded));
            let most = COPIED.min(self.left.wrapping_add(self.map.tree.updates()));
            let copied: Vec<_> = range.take(most).map(|(key, value)| (key.clone(), value.clone())).collect();
            self.left = self.left.wrapping_sub(copied.len());
            self.ended = copied.len() < COPIED;
            self.last = copied.last().map(|(key, _)| key.clone());
            self.copied = copied.into_iter();
        }
        self.copied.next()
    }
}

impl<K, V> FusedIterator for TreeCloned<'_, K, V>
where
    K: Ord + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
}

/// The elements of a map that has ended, in ascending order: `for (key, value) in map`.
///
/// ```
/// let map = latchwork::map::RcuTreeMap::from([(2, "two"), (1, "one")]);
/// assert!(map.into_iter().eq([(1, "one"), (2, "two")]));
/// ```
pub struct TreeIntoIter<K, V>(Drain<K, V>);

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> IntoIterator for RcuTreeMap<K, V> {
    type Item = (K, V);
    type IntoIter = TreeIntoIter<K, V>;
    fn into_iter(mut self) -> TreeIntoIter<K, V> {
        TreeIntoIter(self.tree.drain())
    }
}

impl<K, V> Iterator for TreeIntoIter<K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        self.0.next().map(|node| (node.key, node.value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0.len(), Some(self.0.len()))
    }
}

impl<K, V> ExactSizeIterator for TreeIntoIter<K, V> {}
impl<K, V> FusedIterator for TreeIntoIter<K, V> {}
