//! Cells with the crate `serde`: the feature `serde`. A cell is serialized as its value.
//!
//! ([`RcuArc`](super::RcuArc) needs serde's feature `rc`, as each `Arc` does.)

use super::{Rcu, RcuOption};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The value at one moment, in a section that stays open meanwhile.
impl<T: Serialize + Send + Sync + 'static> Serialize for Rcu<T> {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        (*self.get()).serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de> + Send + Sync + 'static> Deserialize<'de> for Rcu<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::new)
    }
}

/// The value or its absence at one moment, as an `Option`.
impl<T: Serialize + Send + Sync + 'static> Serialize for RcuOption<T> {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        self.get().as_deref().serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de> + Send + Sync + 'static> Deserialize<'de> for RcuOption<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::<T>::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;
    use std::vec::Vec;

    #[test]
    fn cells_are_written_and_read_as_their_values() {
        let cell = Rcu::new(std::vec![1_u32, 2, 3]);
        cell.update(|numbers| numbers.iter().map(|number| number * 10).collect());
        let text = serde_json::to_string(&cell).unwrap();
        assert_eq!(text, "[10,20,30]");
        assert_eq!(*serde_json::from_str::<Rcu<Vec<u32>>>(&text).unwrap().get(), [10, 20, 30]);
        assert!(serde_json::from_str::<Rcu<Vec<u32>>>("7").is_err());

        let option = RcuOption::<String>::none();
        assert_eq!(serde_json::to_string(&option).unwrap(), "null");
        assert!(serde_json::from_str::<RcuOption<String>>("null").unwrap().is_none());
        option.replace(Some("here".into()));
        let text = serde_json::to_string(&option).unwrap();
        assert_eq!(text, "\"here\"");
        assert_eq!(*serde_json::from_str::<RcuOption<String>>(&text).unwrap().get().unwrap(), "here");
    }
}
