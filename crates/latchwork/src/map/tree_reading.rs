//! [`TreeReading`]: an ordered map as it was at one moment.

use super::tree::Snapshot;
use super::tree_iter::{TreeKeys, TreeRange, TreeValues};
use super::tree_map::Table;
use crate::machine::Native;
use crate::reclaim::rcu::RcuGuard;
use core::mem::transmute;
use core::ops::RangeBounds;
use equivalent::Comparable;

/// The map as it was at one moment, for lookups and walks with plain references.
///
/// ```
/// let map = latchwork::map::RcuTreeMap::from([(1, "one"), (2, "two")]);
/// let reading = map.read();
/// map.clear();
/// assert_eq!((reading.len(), reading.get(&1)), (2, Some(&"one")));
/// ```
pub struct TreeReading<'m, K: Send + Sync + 'static, V: Send + Sync + 'static> {
    /// Taken in the section below, which protects it. It leaves this type with a shorter lifetime only.
    snapshot: Snapshot<'m, K, V>,
    section: RcuGuard<'m, Native>,
}

impl<'m, K: Send + Sync + 'static, V: Send + Sync + 'static> TreeReading<'m, K, V> {
    pub(super) fn new(tree: &'m Table<K, V>) -> Self {
        let section = tree.enter();
        // SAFETY: the snapshot is used while the section lasts, which the reading keeps beside it; see `snapshot`.
        let snapshot =
            unsafe { transmute::<Snapshot<'_, K, V>, Snapshot<'m, K, V>>(tree.snapshot(&section)) };
        TreeReading { snapshot, section }
    }

    pub(super) fn snapshot(&self) -> Snapshot<'_, K, V> {
        let _ = &self.section;
        self.snapshot
    }

    /// The value of `key`.
    ///
    /// ```
    /// let map = latchwork::map::RcuTreeMap::from([(1, "one")]);
    /// assert_eq!(map.read().get(&1), Some(&"one"));
    /// ```
    pub fn get<Q: Comparable<K> + ?Sized>(&self, key: &Q) -> Option<&V> {
        self.snapshot().find(key).map(|node| &node.value)
    }

    /// The key that is in the map, and its value.
    ///
    /// ```
    /// let map = latchwork::map::RcuTreeMap::from([(String::from("one"), 1)]);
    /// assert_eq!(map.read().get_key_value("one"), Some((&String::from("one"), &1)));
    /// ```
    pub fn get_key_value<Q: Comparable<K> + ?Sized>(&self, key: &Q) -> Option<(&K, &V)> {
        self.snapshot().find(key).map(|node| (&node.key, &node.value))
    }

    /// Whether `key` is there.
    ///
    /// ```
    /// let map = latchwork::map::RcuTreeMap::from([(1, "one")]);
    /// assert!(map.read().contains_key(&1));
    /// ```
    pub fn contains_key<Q: Comparable<K> + ?Sized>(&self, key: &Q) -> bool {
        self.get(key).is_some()
    }

    /// How many elements there are.
    ///
    /// ```
    /// assert_eq!(latchwork::map::RcuTreeMap::from([(1, "one")]).read().len(), 1);
    /// ```
    pub fn len(&self) -> usize {
        self.snapshot().count()
    }

    /// Whether there are none.
    ///
    /// ```
    /// assert!(latchwork::map::RcuTreeMap::<u32, u32>::new().read().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element with the smallest key.
    ///
    /// ```
    /// let map = latchwork::map::RcuTreeMap::from([(1, "one"), (2, "two")]);
    /// assert_eq!(map.read().first_key_value(), Some((&1, &"one")));
    /// ```
    pub fn first_key_value(&self) -> Option<(&K, &V)> {
        self.iter().next()
    }

    /// The element with the largest key.
    ///
    /// ```
    /// let map = latchwork::map::RcuTreeMap::from([(1, "one"), (2, "two")]);
    /// assert_eq!(map.read().last_key_value(), Some((&2, &"two")));
    /// ```
    pub fn last_key_value(&self) -> Option<(&K, &V)> {
        self.iter().next_back()
    }

    /// Every key with its value, in ascending order. To skip elements (`nth`) takes no longer than a lookup.
    ///
    /// ```
    /// let map: latchwork::map::RcuTreeMap<u32, u32> = (0..100).map(|i| (i, i)).collect();
    /// assert_eq!(map.read().iter().nth(50), Some((&50, &50)));
    /// assert_eq!(map.read().iter().rev().next(), Some((&99, &99)));
    /// ```
    pub fn iter(&self) -> TreeRange<'_, K, V> {
        TreeRange::new(self.snapshot().walk(0, usize::MAX))
    }

    /// The elements with keys in `range`, in ascending order. A range that ends before it begins is empty.
    ///
    /// ```
    /// let map: latchwork::map::RcuTreeMap<u32, u32> = (0..100).map(|i| (i, i)).collect();
    /// let reading = map.read();
    /// assert!(reading.range(10..=12).map(|(key, _)| *key).eq(10..13));
    /// assert_eq!(reading.range(90..).len(), 10);
    /// ```
    pub fn range<Q: Comparable<K> + ?Sized, R: RangeBounds<Q>>(&self, range: R) -> TreeRange<'_, K, V> {
        TreeRange::new(self.snapshot().range(&range))
    }

    /// Every key, in ascending order.
    ///
    /// ```
    /// let map = latchwork::map::RcuTreeMap::from([(2, "two"), (1, "one")]);
    /// assert!(map.read().keys().eq(&[1, 2]));
    /// ```
    pub fn keys(&self) -> TreeKeys<'_, K, V> {
        TreeKeys::new(self.iter())
    }

    /// Every value, in the order of the keys.
    ///
    /// ```
    /// let map = latchwork::map::RcuTreeMap::from([(2, "two"), (1, "one")]);
    /// assert!(map.read().values().eq(&["one", "two"]));
    /// ```
    pub fn values(&self) -> TreeValues<'_, K, V> {
        TreeValues::new(self.iter())
    }
}
