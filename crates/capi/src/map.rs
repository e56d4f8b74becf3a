//! `lw_rcu_map`: [`RcuMap`] from pointers to pointers.
//!
//! Rust's map owns its elements. C's map holds pointers, and the program owns what they point to until the map reclaims it. So
//! the drop of a value calls the program's function, with the key that came with the value. The map replaces keys and values
//! together, so the two pointers of an element always belong together.
//!
//! The map's sections are those of `lw_rcu_read_lock`: sections of a flavour are the process's.

use crate::thread;
use latchwork::map::{Equivalent, RcuMap};
use latchwork::reclaim::rcu;
use libc::{EEXIST, EINVAL, ENOENT};
use std::ffi::{c_int, c_void};
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::mem::forget;
use std::ptr::null_mut;

type HashFn = unsafe extern "C" fn(*const c_void) -> u64;
type EqualFn = unsafe extern "C" fn(*const c_void, *const c_void) -> c_int;
type ReclaimFn = unsafe extern "C" fn(*mut c_void, *mut c_void);

/// What the program says about its keys. `None`: they are numbers.
#[derive(Copy, Clone)]
struct Functions {
    hash: HashFn,
    equal: EqualFn,
}

/// A key that is in the map, or that is looked up.
#[derive(Copy, Clone)]
struct Key {
    key: *mut c_void,
    functions: Option<Functions>,
}

/// A key that is looked up: it is compared with a [`Key`] in the same way, and is a type of its own because a lookup asks for
/// one.
#[derive(Hash)]
struct Sought(Key);

/// A value, which is reclaimed with its key when this is dropped.
struct Element {
    key: *mut c_void,
    value: *mut c_void,
    reclaim: Option<ReclaimFn>,
}

// SAFETY: the program's functions may be called by any thread: so the header says. The pointers are the program's.
unsafe impl Send for Key {}
// SAFETY: the program's functions may be called by several threads at the same time: so the header says.
unsafe impl Sync for Key {}
// SAFETY: any thread may call `reclaim`: so the header says. The pointers are the program's.
unsafe impl Send for Element {}
// SAFETY: a shared reference only allows to copy the pointers.
unsafe impl Sync for Element {}

/// Tells ThreadSanitizer that a key was read, for the thread that reclaims it. A lookup needs no such call, because the program's
/// section around it does that when it ends. An update has no section around it.
fn is_read() {
    thread::lw_tsan_release(thread::clocks().cast());
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(match self.functions {
            Some(functions) => {
                thread::lw_tsan_acquire(self.key.cast());
                // SAFETY: the program's function may be called with a key that it has put in, or looks up.
                let hash = unsafe { (functions.hash)(self.key) };
                is_read();
                hash
            }
            None => self.key.addr() as u64,
        });
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        match self.functions {
            Some(functions) => {
                for key in [self, other] {
                    thread::lw_tsan_acquire(key.key.cast());
                }
                // SAFETY: as in `hash`. A key that is in the map lives until it is reclaimed.
                let equal = unsafe { (functions.equal)(self.key, other.key) != 0 };
                is_read();
                equal
            }
            None => self.key == other.key,
        }
    }
}

impl Eq for Key {}

impl Equivalent<Key> for Sought {
    fn equivalent(&self, key: &Key) -> bool {
        self.0 == *key
    }
}

impl Drop for Element {
    fn drop(&mut self) {
        thread::lw_tsan_acquire(thread::clocks().cast());
        if let Some(reclaim) = self.reclaim {
            // SAFETY: the element is out of the map, every section is over that may have found it, and this is called once.
            thread::run_callback(|| unsafe { reclaim(self.key, self.value) });
        }
        // For the thread that waits for it in a barrier.
        thread::lw_tsan_release(thread::clocks().cast());
    }
}

/// Mixes the bits of the one number that a key gives it, because the program's function need not. Each map mixes them in another
/// way, with two random numbers: else keys could be chosen so that all are in one bucket, where each update looks at all of them.
#[derive(Copy, Clone)]
struct Mix([u64; 2]);

impl Mix {
    fn new() -> Self {
        let random = RandomState::new();
        Mix([random.hash_one(0), random.hash_one(1) | 1])
    }
}

/// The mixing of one number.
struct Mixing {
    seeds: [u64; 2],
    mixed: u64,
}

impl Hasher for Mixing {
    fn write(&mut self, _: &[u8]) {
        unreachable!("a key gives one number");
    }

    fn write_u64(&mut self, number: u64) {
        let [before, factor] = self.seeds;
        // The finaliser of MurmurHash3 (Appleby): every bit of the number changes half of the bits.
        let mut h = number ^ before;
        h = (h ^ h >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
        h = (h ^ h >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        // The finaliser is the same for all maps, so differences of numbers could be chosen for it. The product is another one in
        // each map, in its low half and in its high half.
        let product = u128::from(h ^ h >> 33) * u128::from(factor);
        self.mixed = product as u64 ^ (product >> 64) as u64;
    }

    fn finish(&self) -> u64 {
        self.mixed
    }
}

impl BuildHasher for Mix {
    type Hasher = Mixing;
    fn build_hasher(&self) -> Mixing {
        Mixing { seeds: self.0, mixed: 0 }
    }
}

/// `lw_rcu_map`.
pub(crate) struct Map {
    elements: RcuMap<Key, Element, Mix>,
    functions: Option<Functions>,
    reclaim: Option<ReclaimFn>,
}

impl Map {
    fn key(&self, key: *const c_void) -> Key {
        Key { key: key.cast_mut(), functions: self.functions }
    }

    fn element(&self, key: *mut c_void, value: *mut c_void) -> (Key, Element) {
        thread::record(); // before the domain asks for it: see there
        // What the program has done with the element happens before what a reader does, and before its reclamation.
        thread::lw_tsan_release(self.tag());
        thread::lw_tsan_release(thread::clocks().cast());
        if self.functions.is_some() {
            thread::lw_tsan_release(key.cast());
        }
        (self.key(key), Element { key, value, reclaim: self.reclaim })
    }

    /// Where ThreadSanitizer is told of updates.
    fn tag(&self) -> *mut () {
        core::ptr::from_ref(self).cast_mut().cast()
    }
}

#[unsafe(no_mangle)]
extern "C" fn lw_rcu_map_create(
    hash: Option<HashFn>,
    equal: Option<EqualFn>,
    reclaim: Option<ReclaimFn>,
) -> *mut Map {
    let functions = match (hash, equal) {
        (Some(hash), Some(equal)) => Some(Functions { hash, equal }),
        (None, None) => None,
        _ => return null_mut(),
    };
    Box::into_raw(Box::new(Map { elements: RcuMap::with_hasher(Mix::new()), functions, reclaim }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_rcu_map_destroy(map: *mut Map) {
    if !map.is_null() {
        thread::lw_tsan_acquire(map.cast());
        // SAFETY: `create` made the box, and no thread uses the map any more, says the program.
        drop(unsafe { Box::from_raw(map) });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_rcu_map_get(map: *const Map, key: *const c_void) -> *mut c_void {
    thread::record();
    // SAFETY: the program passes a live map.
    let map = unsafe { &*map };
    // The value is copied. What it points to is kept by the section of the caller, which began before this one.
    let found = map.elements.read().get(&Sought(map.key(key))).map_or(null_mut(), |element| element.value);
    thread::lw_tsan_acquire(map.tag());
    found
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_rcu_map_set(map: *const Map, key: *mut c_void, value: *mut c_void) -> c_int {
    if value.is_null() {
        return EINVAL;
    }
    // SAFETY: the program passes a live map.
    let map = unsafe { &*map };
    let (key, element) = map.element(key, value);
    map.elements.insert(key, element);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_rcu_map_insert(map: *const Map, key: *mut c_void, value: *mut c_void) -> c_int {
    if value.is_null() {
        return EINVAL;
    }
    // SAFETY: the program passes a live map.
    let map = unsafe { &*map };
    let (key, element) = map.element(key, value);
    match map.elements.try_insert(key, element) {
        Ok(_) => 0,
        Err(occupied) => {
            forget(occupied.value); // it stays the program's
            EEXIST
        }
    }
}

/// Removes the key if `matches` is true of its value.
///
/// # Safety
///
/// The map is live.
unsafe fn remove(map: *const Map, key: *const c_void, matches: impl FnOnce(*mut c_void) -> bool) -> c_int {
    thread::record();
    // SAFETY: the map is live, says the caller.
    let map = unsafe { &*map };
    thread::lw_tsan_release(map.tag());
    let removed = map.elements.remove_if(&Sought(map.key(key)), |_, element| matches(element.value));
    if removed.is_some() { 0 } else { ENOENT }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_rcu_map_remove(map: *const Map, key: *const c_void) -> c_int {
    // SAFETY: the program passes a live map.
    unsafe { remove(map, key, |_| true) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_rcu_map_remove_value(
    map: *const Map,
    key: *const c_void,
    value: *const c_void,
) -> c_int {
    // SAFETY: the program passes a live map.
    unsafe { remove(map, key, |now| now.cast_const() == value) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_rcu_map_count(map: *const Map) -> usize {
    // SAFETY: the program passes a live map.
    unsafe { &*map }.elements.len()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_rcu_map_each(
    map: *const Map,
    visit: unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void) -> c_int,
    context: *mut c_void,
) -> c_int {
    thread::record();
    // SAFETY: the program passes a live map.
    let map = unsafe { &*map };
    let reading = map.elements.read();
    for element in reading.values() {
        thread::lw_tsan_acquire(map.tag());
        // SAFETY: the program passes a function for the elements of its map.
        let answer = unsafe { visit(element.key, element.value, context) };
        if answer != 0 {
            thread::lw_tsan_release(thread::clocks().cast());
            return answer;
        }
    }
    thread::lw_tsan_release(thread::clocks().cast());
    0
}

#[unsafe(no_mangle)]
extern "C" fn lw_rcu_map_barrier() {
    rcu::global().barrier();
    thread::lw_tsan_acquire(thread::clocks().cast());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Undoes `h ^ h >> 33`, and the multiplication by an odd number.
    fn undo(mixed: u64, factor: u64) -> u64 {
        let inverse = (0..6).fold(1_u64, |x, _| x.wrapping_mul(2_u64.wrapping_sub(factor.wrapping_mul(x))));
        (mixed ^ mixed >> 33).wrapping_mul(inverse)
    }

    /// Numbers that the finaliser makes equal in all but the bits that a map looks at last, or that differ in a few bits.
    #[test]
    fn chosen_numbers_do_not_meet() {
        let finalised = |h: u64| {
            let h = undo(undo(h, 0xc4ce_b9fe_1a85_ec53), 0xff51_afd7_ed55_8ccd);
            h ^ h >> 33
        };
        let low: Vec<u64> = (0..4096).map(|i| finalised(i << 40)).collect();
        let high: Vec<u64> = (0..4096).map(finalised).collect();
        let plain: Vec<u64> = (0..4096).map(|i| i << 52).collect();
        let maps = [Mix::new(), Mix::new()];
        for numbers in [&low, &high, &plain] {
            for map in maps {
                for shift in [0, 24, 48] {
                    // Of 4096 balls in 65536 boxes, few meet.
                    let boxes: HashSet<u16> =
                        numbers.iter().map(|n| (hash(map, *n) >> shift) as u16).collect();
                    assert!(boxes.len() > 3500, "{} at {shift}", boxes.len());
                }
            }
            assert!(numbers.iter().all(|n| hash(maps[0], *n) != hash(maps[1], *n)));
        }
    }

    fn hash(map: Mix, number: u64) -> u64 {
        let mut mixing = map.build_hasher();
        mixing.write_u64(number);
        mixing.finish()
    }
}
