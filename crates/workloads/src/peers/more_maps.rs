//! Maps that are compared with lookups in mind: flurry, evmap, and a `HashMap` under left-right. The feature `map-peers`
//! adds them.
//!
//! evmap and left-right have two maps each, of which readers use one, and one writer that exchanges them. Here the writer is
//! under a mutex, and each update is published at once, as the other maps do. A reader needs a handle of its own, which the
//! thread keeps in a thread-local variable.

use super::maps::Map;
use left_right::Absorb;
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::RandomState;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::LocalKey;

impl Map for flurry::HashMap<u64, u64, RandomState> {
    type Joined = ();
    const NAME: &'static str = "flurry";
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

/// The number of a map, by which a thread knows that its handle is of this map.
fn number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Relaxed)
}

/// evmap.
pub struct Evmap {
    number: u64,
    writer: Mutex<evmap::WriteHandle<u64, u64>>,
    readers: evmap::ReadHandleFactory<u64, u64>,
}

/// A thread's handle, and the number of the map that it is of.
type Kept<R> = RefCell<Option<(u64, R)>>;

std::thread_local! {
    /// The calling thread's handle of an evmap.
    static EVMAP: Kept<evmap::ReadHandle<u64, u64>> = const { RefCell::new(None) };
    /// Its handle of a map under left-right.
    static LEFT_RIGHT: Kept<left_right::ReadHandle<HashMap<u64, u64>>> = const { RefCell::new(None) };
}

/// Reads with the thread's handle of the map `number`. If the thread has kept none of that map, it makes one.
fn with_handle<R, T>(
    kept: &'static LocalKey<Kept<R>>,
    number: u64,
    make: impl FnOnce() -> R,
    read: impl FnOnce(&R) -> T,
) -> T {
    kept.with_borrow_mut(|kept| match kept {
        Some((of, reader)) if *of == number => read(reader),
        _ => read(&kept.insert((number, make())).1),
    })
}

impl Map for Evmap {
    type Joined = ();
    const NAME: &'static str = "evmap";
    fn join() {}
    fn new() -> Self {
        let (reader, mut writer) = evmap::new();
        writer.refresh();
        Evmap { number: number(), readers: reader.factory(), writer: Mutex::new(writer) }
    }
    fn get(&self, key: u64) -> Option<u64> {
        let look = |reader: &evmap::ReadHandle<_, _>| reader.get_one(&key).map(|value| *value);
        with_handle(&EVMAP, self.number, || self.readers.handle(), look)
    }
    fn insert(&self, key: u64, value: u64) -> bool {
        let mut writer = self.writer.lock().expect("no thread panics with it");
        writer.update(key, value).refresh();
        true
    }
    fn remove(&self, key: u64) -> bool {
        let mut writer = self.writer.lock().expect("no thread panics with it");
        writer.empty(key).refresh();
        true
    }
    fn each(&self, mut each: impl FnMut(u64, u64)) {
        if let Some(map) = self.readers.handle().read() {
            map.iter().for_each(|(key, values)| values.iter().for_each(|value| each(*key, *value)));
        }
    }
}

/// An update of the map under left-right: the new value, or none.
pub struct Update(u64, Option<u64>);

impl Absorb<Update> for HashMap<u64, u64> {
    fn absorb_first(&mut self, update: &mut Update, _: &Self) {
        match update {
            Update(key, Some(value)) => self.insert(*key, *value),
            Update(key, None) => self.remove(key),
        };
    }
    fn sync_with(&mut self, first: &Self) {
        self.clone_from(first);
    }
}

/// std's `HashMap` under left-right.
pub struct LeftRight {
    number: u64,
    writer: Mutex<left_right::WriteHandle<HashMap<u64, u64>, Update>>,
    readers: left_right::ReadHandleFactory<HashMap<u64, u64>>,
}

impl LeftRight {
    fn update(&self, update: Update) {
        self.writer.lock().expect("no thread panics with it").append(update).publish();
    }
}

impl Map for LeftRight {
    type Joined = ();
    const NAME: &'static str = "left-right";
    fn join() {}
    fn new() -> Self {
        let (writer, reader) = left_right::new();
        LeftRight { number: number(), readers: reader.factory(), writer: Mutex::new(writer) }
    }
    fn get(&self, key: u64) -> Option<u64> {
        let look = |reader: &left_right::ReadHandle<HashMap<_, _>>| reader.enter()?.get(&key).copied();
        with_handle(&LEFT_RIGHT, self.number, || self.readers.handle(), look)
    }
    fn insert(&self, key: u64, value: u64) -> bool {
        self.update(Update(key, Some(value)));
        true
    }
    fn remove(&self, key: u64) -> bool {
        self.update(Update(key, None));
        true
    }
    fn each(&self, mut each: impl FnMut(u64, u64)) {
        if let Some(map) = self.readers.handle().enter() {
            map.iter().for_each(|(key, value)| each(*key, *value));
        }
    }
}
