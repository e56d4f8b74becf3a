//! Maps and sets with the crate `serde`: the feature `serde`.

use super::set::SetRef;
use super::{RcuMap, RcuSet, Ref};
use core::fmt;
use core::hash::{BuildHasher, Hash};
use core::marker::PhantomData;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Room that is made before elements arrive, whatever the input says of their number.
const CAUTIOUS: usize = 4096;

/// A map of those elements that a walk meets ([`Reading::iter`](super::Reading::iter)), in a section that stays open.
impl<K, V, S> Serialize for RcuMap<K, V, S>
where
    K: Serialize + Send + Sync + 'static,
    V: Serialize + Send + Sync + 'static,
{
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        // The number of elements may differ from that of the walk, so the elements are counted in the section first.
        let reading = self.read();
        let elements: alloc::vec::Vec<_> = reading.iter().collect();
        serializer.collect_map(elements)
    }
}

impl<'de, K, V, S> Deserialize<'de> for RcuMap<K, V, S>
where
    K: Deserialize<'de> + Hash + Eq + Send + Sync + 'static,
    V: Deserialize<'de> + Send + Sync + 'static,
    S: BuildHasher + Default,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Elements<K, V, S>(PhantomData<(K, V, S)>);
        impl<'de, K, V, S> Visitor<'de> for Elements<K, V, S>
        where
            K: Deserialize<'de> + Hash + Eq + Send + Sync + 'static,
            V: Deserialize<'de> + Send + Sync + 'static,
            S: BuildHasher + Default,
        {
            type Value = RcuMap<K, V, S>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
                let room = elements.size_hint().unwrap_or(0).min(CAUTIOUS);
                let map = RcuMap::with_capacity_and_hasher(room, S::default());
                while let Some((key, value)) = elements.next_entry()? {
                    map.insert(key, value);
                }
                Ok(map)
            }
        }
        deserializer.deserialize_map(Elements(PhantomData))
    }
}

/// A sequence of those elements that a walk meets.
impl<T: Serialize + Send + Sync + 'static, S> Serialize for RcuSet<T, S> {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        let reading = self.read();
        let elements: alloc::vec::Vec<_> = reading.iter().collect();
        serializer.collect_seq(elements)
    }
}

impl<'de, T, S> Deserialize<'de> for RcuSet<T, S>
where
    T: Deserialize<'de> + Hash + Eq + Send + Sync + 'static,
    S: BuildHasher + Default,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Elements<T, S>(PhantomData<(T, S)>);
        impl<'de, T, S> Visitor<'de> for Elements<T, S>
        where
            T: Deserialize<'de> + Hash + Eq + Send + Sync + 'static,
            S: BuildHasher + Default,
        {
            type Value = RcuSet<T, S>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sequence")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
                let room = elements.size_hint().unwrap_or(0).min(CAUTIOUS);
                let set = RcuSet::with_capacity_and_hasher(room, S::default());
                while let Some(element) = elements.next_element()? {
                    set.insert(element);
                }
                Ok(set)
            }
        }
        deserializer.deserialize_seq(Elements(PhantomData))
    }
}

/// Its value.
impl<K: Send + Sync + 'static, V: Serialize + Send + Sync + 'static> Serialize for Ref<'_, K, V> {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        (**self).serialize(serializer)
    }
}

/// The element.
impl<T: Serialize + Send + Sync + 'static> Serialize for SetRef<'_, T> {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        (**self).serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;

    #[test]
    fn maps_and_sets_survive_a_round_trip() {
        let map: RcuMap<String, u32> = (0..100).map(|i| (std::format!("{i}"), i)).collect();
        let text = serde_json::to_string(&map).unwrap();
        assert!(serde_json::from_str::<RcuMap<String, u32>>(&text).unwrap() == map);
        let set: RcuSet<u32> = (0..100).collect();
        let text = serde_json::to_string(&set).unwrap();
        assert!(serde_json::from_str::<RcuSet<u32>>(&text).unwrap() == set);
        assert_eq!(serde_json::to_string(&map.get("7").unwrap()).unwrap(), "7");
        assert_eq!(serde_json::to_string(&set.get(&7).unwrap()).unwrap(), "7");
        assert!(serde_json::from_str::<RcuMap<String, u32>>("[1]").is_err());
        assert!(serde_json::from_str::<RcuSet<u32>>("{\"1\": 1}").is_err());
    }
}
