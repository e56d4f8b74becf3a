//! The standard library's traits for [`RcuTreeMap`]; and those of the crate `serde`, also for [`RcuTreeSet`].

use super::growing::Node;
use super::tree_map::RcuTreeMap;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Default for RcuTreeMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, V> fmt::Debug for RcuTreeMap<K, V>
where
    K: Send + Sync + fmt::Debug + 'static,
    V: Send + Sync + fmt::Debug + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.read().iter()).finish()
    }
}

/// A map with clones of the elements that were there at one moment.
impl<K, V> Clone for RcuTreeMap<K, V>
where
    K: Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    fn clone(&self) -> Self {
        let reading = self.read();
        let copy = |(key, value): (&K, &V)| Box::new(Node { key: key.clone(), value: value.clone() });
        let mut new = Self::new();
        new.tree.fill(reading.iter().map(copy).collect());
        new
    }
}

/// Whether both have the same keys with equal values, each map at a moment of its own.
impl<K, V> PartialEq for RcuTreeMap<K, V>
where
    K: PartialEq + Send + Sync + 'static,
    V: PartialEq + Send + Sync + 'static,
{
    fn eq(&self, other: &Self) -> bool {
        let (these, others) = (self.read(), other.read());
        these.len() == others.len() && these.iter().eq(others.iter())
    }
}

impl<K, V> Eq for RcuTreeMap<K, V>
where
    K: Eq + Send + Sync + 'static,
    V: Eq + Send + Sync + 'static,
{
}

impl<K, V> Extend<(K, V)> for RcuTreeMap<K, V>
where
    K: Ord + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, elements: I) {
        (&*self).extend(elements);
    }
}

/// A shared map can be extended as well: `(&map).extend(..)`. Each element is inserted by itself.
impl<K, V> Extend<(K, V)> for &RcuTreeMap<K, V>
where
    K: Ord + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, elements: I) {
        elements.into_iter().for_each(|(key, value)| _ = self.insert(key, value));
    }
}

impl<'a, K, V> Extend<(&'a K, &'a V)> for RcuTreeMap<K, V>
where
    K: Ord + Copy + Send + Sync + 'static,
    V: Copy + Send + Sync + 'static,
{
    fn extend<I: IntoIterator<Item = (&'a K, &'a V)>>(&mut self, elements: I) {
        self.extend(elements.into_iter().map(|(key, value)| (*key, *value)));
    }
}

/// Sorts the elements, and makes the tree of them at once. Of elements with the same key, the last one stays.
impl<K, V> FromIterator<(K, V)> for RcuTreeMap<K, V>
where
    K: Ord + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    fn from_iter<I: IntoIterator<Item = (K, V)>>(elements: I) -> Self {
        let make = |(key, value)| Box::new(Node { key, value });
        let mut nodes: Vec<Box<Node<K, V>>> = elements.into_iter().map(make).collect();
        nodes.sort_by(|one, other| one.key.cmp(&other.key));
        nodes.dedup_by(|next, kept| {
            let same = next.key == kept.key;
            if same {
                core::mem::swap(next, kept);
            }
            same
        });
        let mut map = Self::new();
        map.tree.fill(nodes);
        map
    }
}

impl<K, V, const N: usize> From<[(K, V); N]> for RcuTreeMap<K, V>
where
    K: Ord + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    fn from(elements: [(K, V); N]) -> Self {
        elements.into_iter().collect()
    }
}

impl<K, V> From<alloc::collections::BTreeMap<K, V>> for RcuTreeMap<K, V>
where
    K: Ord + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    fn from(map: alloc::collections::BTreeMap<K, V>) -> Self {
        map.into_iter().collect()
    }
}

#[cfg(feature = "serde")]
mod with_serde {
    use super::super::tree_set::RcuTreeSet;
    use super::*;
    use core::marker::PhantomData;
    use serde::de::{MapAccess, SeqAccess, Visitor};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// The map as it is at one moment, in ascending order.
    impl<K, V> Serialize for RcuTreeMap<K, V>
    where
        K: Serialize + Send + Sync + 'static,
        V: Serialize + Send + Sync + 'static,
    {
        fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
            serializer.collect_map(self.read().iter())
        }
    }

    impl<'de, K, V> Deserialize<'de> for RcuTreeMap<K, V>
    where
        K: Deserialize<'de> + Ord + Send + Sync + 'static,
        V: Deserialize<'de> + Send + Sync + 'static,
    {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Elements<K, V>(PhantomData<(K, V)>);
            impl<'de, K, V> Visitor<'de> for Elements<K, V>
            where
                K: Deserialize<'de> + Ord + Send + Sync + 'static,
                V: Deserialize<'de> + Send + Sync + 'static,
            {
                type Value = RcuTreeMap<K, V>;
                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("a map")
                }
                fn visit_map<A: MapAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
                    let next = core::iter::from_fn(|| elements.next_entry().transpose());
                    next.collect()
                }
            }
            deserializer.deserialize_map(Elements(PhantomData))
        }
    }

    /// The set as it is at one moment, in ascending order.
    impl<T: Serialize + Send + Sync + 'static> Serialize for RcuTreeSet<T> {
        fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
            serializer.collect_seq(self.read().iter())
        }
    }

    impl<'de, T: Deserialize<'de> + Ord + Send + Sync + 'static> Deserialize<'de> for RcuTreeSet<T> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Elements<T>(PhantomData<T>);
            impl<'de, T: Deserialize<'de> + Ord + Send + Sync + 'static> Visitor<'de> for Elements<T> {
                type Value = RcuTreeSet<T>;
                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("a sequence")
                }
                fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
                    let next = core::iter::from_fn(|| elements.next_element().transpose());
                    next.collect()
                }
            }
            deserializer.deserialize_seq(Elements(PhantomData))
        }
    }
}
