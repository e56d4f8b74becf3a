//! The standard library's traits for [`RcuMap`].

extern crate std;

use super::rcu_map::RcuMap;
use core::fmt;
use core::hash::{BuildHasher, Hash};

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S: Default> Default for RcuMap<K, V, S> {
    fn default() -> Self {
        Self::with_hasher(S::default())
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

/// A map with clones of the elements that a walk meets ([`Reading::iter`](super::Reading::iter)): while other threads
/// change the map, that is no state in which the map was at one moment.
impl<K, V, S> Clone for RcuMap<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone,
{
    fn clone(&self) -> Self {
        let new = Self::with_capacity_and_hasher(self.len(), self.hasher().clone());
        for (key, value) in self.iter_cloned() {
            new.insert(key, value);
        }
        new
    }
}

/// Whether both have the same keys with equal values. Each element is compared at a moment of its own.
impl<K, V, S, S2> PartialEq<RcuMap<K, V, S2>> for RcuMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: PartialEq + Send + Sync + 'static,
    S: BuildHasher,
    S2: BuildHasher,
{
    fn eq(&self, other: &RcuMap<K, V, S2>) -> bool {
        let (these, others) = (self.read(), other.read());
        self.len() == other.len() && these.iter().all(|(key, value)| others.get(key) == Some(value))
    }
}

impl<K, V, S> Eq for RcuMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Eq + Send + Sync + 'static,
    S: BuildHasher,
{
}

impl<K, V, S> Extend<(K, V)> for RcuMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, elements: I) {
        (&*self).extend(elements);
    }
}

/// A shared map can be extended as well: `(&map).extend(..)`. Each element is inserted by itself.
impl<K, V, S> Extend<(K, V)> for &RcuMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, elements: I) {
        let elements = elements.into_iter();
        // As in `std`: keys may be there already, so room is made for half of them.
        let (least, _) = elements.size_hint();
        let more = if self.is_empty() { least } else { least.div_ceil(2) };
        if self.len().saturating_add(more) > self.capacity() {
            self.reserve(more);
        }
        elements.for_each(|(key, value)| _ = self.insert(key, value));
    }
}

impl<'a, K, V, S> Extend<(&'a K, &'a V)> for RcuMap<K, V, S>
where
    K: Hash + Eq + Copy + Send + Sync + 'static,
    V: Copy + Send + Sync + 'static,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (&'a K, &'a V)>>(&mut self, elements: I) {
        self.extend(elements.into_iter().map(|(key, value)| (*key, *value)));
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

impl<K, V, S> From<std::collections::HashMap<K, V, S>> for RcuMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Clone,
{
    fn from(map: std::collections::HashMap<K, V, S>) -> Self {
        let mut new = RcuMap::with_capacity_and_hasher(map.len(), map.hasher().clone());
        new.extend(map);
        new
    }
}
