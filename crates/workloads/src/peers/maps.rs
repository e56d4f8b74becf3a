//! Maps that a program would use, all with the standard library's hasher; and as tables, beside the table of fixed
//! size, which hashes nothing.

use crate::tables::{Info, Reclaimed, Shape, Table};
use latchwork::machine::Native;
use latchwork::map::RcuMap;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::RwLock;

/// What is asked of each.
pub trait Map: Send + Sync + 'static {
    /// What a thread has while it uses the map.
    type Joined;
    /// As it is called where it stands beside tables.
    const NAME: &'static str;
    /// An empty one.
    fn new() -> Self;
    /// The calling thread is going to use it.
    fn join() -> Self::Joined;
    /// It has no reference into it now.
    fn rest() {}
    /// A copy of the value.
    fn get(&self, key: u64) -> Option<u64>;
    /// Looks so many keys up, and shows what was found.
    fn get_many(&self, count: u64, mut key: impl FnMut() -> u64, found: impl Fn(u64, Option<u64>)) {
        for _ in 0..count {
            let key = key();
            found(key, self.get(key));
        }
    }
    /// Whether it was not there.
    fn insert(&self, key: u64, value: u64) -> bool;
    /// Whether it was there.
    fn remove(&self, key: u64) -> bool;
    /// Calls `each` with every key and value.
    fn each(&self, each: impl FnMut(u64, u64));
}

impl Map for RcuMap<u64, u64> {
    type Joined = ();
    const NAME: &'static str = "rcu-map";
    fn join() {}
    fn new() -> Self {
        RcuMap::new()
    }
    fn get(&self, key: u64) -> Option<u64> {
        RcuMap::get(self, &key).map(|value| *value)
    }
    fn insert(&self, key: u64, value: u64) -> bool {
        RcuMap::insert(self, key, value)
    }
    fn remove(&self, key: u64) -> bool {
        RcuMap::remove(self, &key)
    }
    fn each(&self, mut each: impl FnMut(u64, u64)) {
        self.read().iter().for_each(|(key, value)| each(*key, *value));
    }
}

/// An `RcuMap` with readers that look up many keys in a section.
pub struct Sections(RcuMap<u64, u64>);

impl Map for Sections {
    type Joined = ();
    const NAME: &'static str = "rcu-map-sections";
    fn join() {}
    fn new() -> Self {
        Sections(RcuMap::new())
    }
    fn get(&self, key: u64) -> Option<u64> {
        Map::get(&self.0, key)
    }
    fn get_many(&self, count: u64, mut key: impl FnMut() -> u64, found: impl Fn(u64, Option<u64>)) {
        let reading = self.0.read();
        for _ in 0..count {
            let key = key();
            found(key, reading.get(&key).copied());
        }
    }
    fn insert(&self, key: u64, value: u64) -> bool {
        Map::insert(&self.0, key, value)
    }
    fn remove(&self, key: u64) -> bool {
        Map::remove(&self.0, key)
    }
    fn each(&self, each: impl FnMut(u64, u64)) {
        Map::each(&self.0, each);
    }
}

impl<S: BuildHasher + Clone + Default + Send + Sync + 'static> Map for dashmap::DashMap<u64, u64, S> {
    type Joined = ();
    const NAME: &'static str = "dashmap";
    fn join() {}
    fn new() -> Self {
        Self::default()
    }
    fn get(&self, key: u64) -> Option<u64> {
        dashmap::DashMap::get(self, &key).map(|value| *value)
    }
    fn insert(&self, key: u64, value: u64) -> bool {
        dashmap::DashMap::insert(self, key, value).is_none()
    }
    fn remove(&self, key: u64) -> bool {
        dashmap::DashMap::remove(self, &key).is_some()
    }
    fn each(&self, mut each: impl FnMut(u64, u64)) {
        self.iter().for_each(|entry| each(*entry.key(), *entry.value()));
    }
}

impl Map for papaya::HashMap<u64, u64, RandomState> {
    type Joined = ();
    const NAME: &'static str = "papaya";
    fn join() {}
    fn new() -> Self {
        Self::default()
    }
    fn get(&self, key: u64) -> Option<u64> {
        self.pin().get(&key).copied()
    }
    fn insert(&self, key: u64, value: u64) -> bool {
        self.pin().insert(key, value).is_none()
    }
    fn remove(&self, key: u64) -> bool {
        self.pin().remove(&key).is_some()
    }
    fn each(&self, mut each: impl FnMut(u64, u64)) {
        self.pin().iter().for_each(|(key, value)| each(*key, *value));
    }
}

impl Map for scc::HashMap<u64, u64, RandomState> {
    type Joined = ();
    const NAME: &'static str = "scc";
    fn join() {}
    fn new() -> Self {
        Self::default()
    }
    fn get(&self, key: u64) -> Option<u64> {
        self.read_sync(&key, |_, value| *value)
    }
    fn insert(&self, key: u64, value: u64) -> bool {
        self.upsert_sync(key, value).is_none()
    }
    fn remove(&self, key: u64) -> bool {
        self.remove_sync(&key).is_some()
    }
    fn each(&self, mut each: impl FnMut(u64, u64)) {
        self.iter_sync(|key, value| {
            each(*key, *value);
            true
        });
    }
}

impl Map for RwLock<HashMap<u64, u64>> {
    type Joined = ();
    const NAME: &'static str = "rwlock-hashmap";
    fn join() {}
    fn new() -> Self {
        Self::default()
    }
    fn get(&self, key: u64) -> Option<u64> {
        self.read().expect("nobody panics with it").get(&key).copied()
    }
    fn insert(&self, key: u64, value: u64) -> bool {
        self.write().expect("nobody panics with it").insert(key, value).is_none()
    }
    fn remove(&self, key: u64) -> bool {
        self.write().expect("nobody panics with it").remove(&key).is_some()
    }
    fn each(&self, mut each: impl FnMut(u64, u64)) {
        let map = self.read().expect("nobody panics with it");
        map.iter().for_each(|(key, value)| each(*key, *value));
    }
}

/// A map as a table. It grows from nothing, and reclaims when it likes.
pub struct Whole<M>(M);

// SAFETY: it has a pool of its own.
unsafe impl<M: Map> Table for Whole<M> {
    type Machine = Native;
    type Handle<'a> = M::Joined;
    const INFO: Info = Info {
        name: M::NAME,
        summary: "a whole map, which hashes and grows",
        source: "the library",
        concurrent: true,
        blocking: true,
    };

    fn new(_: &Shape) -> Self {
        Whole(M::new())
    }
    fn join(&self, _: usize) -> M::Joined {
        M::join()
    }
    #[inline(always)]
    unsafe fn get(&self, _: &mut M::Joined, key: u64) -> Result<Option<u64>, Reclaimed> {
        Ok(self.0.get(key))
    }
    fn insert(&self, _: &mut M::Joined, key: u64, value: u64) -> Result<bool, Reclaimed> {
        Ok(self.0.insert(key, value))
    }
    fn remove(&self, _: &mut M::Joined, key: u64) -> Result<bool, Reclaimed> {
        Ok(self.0.remove(key))
    }
    fn quiescent(&self, _: &mut M::Joined) {
        M::rest();
    }
    fn each(&mut self, each: impl FnMut(u64, u64)) {
        self.0.each(each);
    }
}
