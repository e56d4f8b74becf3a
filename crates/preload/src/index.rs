//! From an address to a value, for one thread: open addressing with linear probing.
//!
//! At most half of the slots are in use, so that a look-up takes a probe or two however many there are, and removing
//! leaves no marks behind: what follows in the run moves up. Memory comes from `mmap`, because `malloc` may be our
//! caller.

use crate::place;
use core::ptr::null_mut;

/// What a thread finds by address. Zero bytes are an empty one.
pub(crate) struct Index<V> {
    slots: *mut Slot<V>,
    /// Their number, a power of two, or 0.
    capacity: usize,
    used: usize,
}

#[derive(Copy, Clone)]
struct Slot<V> {
    /// 0: empty.
    key: usize,
    value: V,
}

/// Bytes of the smallest array of slots.
const SMALLEST: usize = 4096;

impl<V: Copy> Index<V> {
    /// One without anything in it.
    pub(crate) const EMPTY: Self = Index { slots: null_mut(), capacity: 0, used: 0 };

    /// The value for `key`, which is not 0.
    pub(crate) fn get(&self, key: usize) -> Option<V> {
        let position = self.find(key)?;
        let slot = self.slot(position);
        (slot.key == key).then_some(slot.value)
    }

    /// Adds a key, which is not 0, or gives it another value. Returns the value that it had.
    pub(crate) fn insert(&mut self, key: usize, value: V) -> Option<V> {
        if self.used * 2 >= self.capacity {
            self.grow();
        }
        let position = self.find(key)?; // there are slots
        let old = self.slot(position);
        self.set(position, Slot { key, value });
        if old.key == key {
            return Some(old.value);
        }
        self.used += 1;
        None
    }

    /// Takes a key out, if it is there.
    pub(crate) fn remove(&mut self, key: usize) {
        let Some(mut hole) = self.find(key).filter(|position| self.slot(*position).key == key) else {
            return;
        };
        let mut next = hole;
        loop {
            next = self.after(next);
            let slot = self.slot(next);
            if slot.key == 0 {
                break;
            }
            // A key whose run begins at the hole or before it, on the way round, would not be found: it moves there.
            let begin = self.begin(slot.key);
            if next.wrapping_sub(begin) & self.mask() >= next.wrapping_sub(hole) & self.mask() {
                self.set(hole, slot);
                hole = next;
            }
        }
        self.set(hole, Slot { key: 0, value: self.slot(hole).value });
        self.used -= 1;
    }

    /// All keys and values.
    pub(crate) fn each(&self, mut each: impl FnMut(usize, V)) {
        for slot in (0..self.capacity).map(|position| self.slot(position)).filter(|slot| slot.key != 0) {
            each(slot.key, slot.value);
        }
    }

    /// Gives the memory back.
    pub(crate) fn free(self) {
        if self.capacity != 0 {
            // SAFETY: mapped in `grow`, and not used any more; `errno` is restored because lock calls must not
            // disturb it.
            unsafe {
                let errno = *libc::__errno_location();
                libc::munmap(self.slots.cast(), self.capacity * size_of::<Slot<V>>());
                *libc::__errno_location() = errno;
            }
        }
    }

    /// Where `key` is, or the empty slot where it belongs.
    fn find(&self, key: usize) -> Option<usize> {
        if self.capacity == 0 {
            return None;
        }
        let mut position = self.begin(key);
        loop {
            #[cfg(test)]
            tests::PROBES.with(|probes| probes.set(probes.get() + 1));
            let slot = self.slot(position);
            if slot.key == key || slot.key == 0 {
                return Some(position);
            }
            position = self.after(position);
        }
    }

    /// The top bits of a product: addresses in an array differ in bits of their middle.
    fn begin(&self, key: usize) -> usize {
        let hash = (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> (u64::BITS - self.capacity.trailing_zeros())) as usize
    }

    fn mask(&self) -> usize {
        self.capacity - 1
    }

    fn after(&self, position: usize) -> usize {
        (position + 1) & self.mask()
    }

    fn slot(&self, position: usize) -> Slot<V> {
        debug_assert!(position < self.capacity);
        // SAFETY: there are as many slots as `capacity`, and positions are below it.
        unsafe { self.slots.add(position).read() }
    }

    fn set(&mut self, position: usize, slot: Slot<V>) {
        debug_assert!(position < self.capacity);
        // SAFETY: as in `slot`.
        unsafe { self.slots.add(position).write(slot) };
    }

    #[cold]
    fn grow(&mut self) {
        let capacity = match self.capacity {
            0 => (SMALLEST / size_of::<Slot<V>>() + 1).next_power_of_two() / 2,
            capacity => capacity * 2,
        };
        let slots: *mut Slot<V> = place::pages(capacity * size_of::<Slot<V>>()).cast();
        let old = core::mem::replace(self, Index { slots, capacity, used: 0 });
        old.each(|key, value| _ = self.insert(key, value));
        old.free();
    }
}

#[cfg(test)]
mod tests {
    //! `tests/index.rs` runs these.
    use super::*;
    use std::cell::Cell;
    use std::collections::HashMap;

    std::thread_local! {
        /// Slots that this thread has looked at.
        pub(super) static PROBES: Cell<u64> = const { Cell::new(0) };
    }

    /// Addresses of locks in an array, in pages of their own, and at random.
    fn addresses(kind: usize, count: usize) -> Vec<usize> {
        let mut random = 1u64;
        (0..count)
            .map(|i| match kind {
                0 => 0x7f00_1234_5000 + i * 56,
                1 => 0x5500_0000_0040 + i * 4096,
                _ => {
                    random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    (random >> 17) as usize & !7 | 8
                }
            })
            .collect()
    }

    /// However many locks a thread holds, finding one takes as many probes.
    #[test]
    fn probes_do_not_grow_with_the_number_of_locks() {
        for kind in 0..3 {
            for count in [20, 200, 5_000, 100_000] {
                let mut index = Index::EMPTY;
                let addresses = addresses(kind, count);
                PROBES.set(0);
                addresses.iter().for_each(|address| assert_eq!(index.insert(*address, *address), None));
                addresses.iter().for_each(|address| assert_eq!(index.get(*address), Some(*address)));
                assert_eq!(index.get(16), None);
                addresses.iter().rev().for_each(|address| index.remove(*address));
                // Growing is among them; a walk of a list would be thousands.
                let each = PROBES.get() as f64 / (3 * count) as f64;
                assert!(each < 8.0, "{each} probes for each of {count} locks of kind {kind}");
                assert_eq!(index.used, 0);
                index.free();
            }
        }
    }

    /// It contains what a map contains to which the same was done.
    #[test]
    fn what_is_in_it_is_found() {
        let (mut index, mut map) = (Index::EMPTY, HashMap::new());
        let mut random = 7u64;
        for step in 0..200_000usize {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let key = (random >> 33) as usize % 1_500 * 8 + 8;
            if step % 7 < 4 {
                assert_eq!(index.insert(key, step), map.insert(key, step));
            } else {
                map.remove(&key);
                index.remove(key);
            }
            let other = (random >> 20) as usize % 1_500 * 8 + 8;
            assert_eq!(index.get(other), map.get(&other).copied());
        }
        let mut count = 0;
        index.each(|key, value| {
            assert_eq!(map.get(&key), Some(&value));
            count += 1;
        });
        assert_eq!(count, map.len());
        index.free();
    }
}
