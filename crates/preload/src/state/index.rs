//! A map from an address to a value, for one thread: open addressing with linear probing.
//!
//! At most half of the slots are in use, so a look-up takes one or two probes however many entries there are. `remove`
//! leaves no tombstone: the entries behind the removed one in its run move up.

use super::memory;
use core::ptr::null_mut;

/// A map from an address to a value. All-zero bytes are an empty map.
pub(crate) struct Index<V> {
    slots: *mut Slot<V>,
    /// The number of slots: a power of two, or 0.
    capacity: usize,
    used: usize,
}

#[derive(Copy, Clone)]
struct Slot<V> {
    /// 0: empty.
    key: usize,
    value: V,
}

/// Bytes of the smallest array of slots: one page, the least that the system gives.
const SMALLEST: usize = 4096;

impl<V: Copy> Index<V> {
    /// An empty map.
    pub(crate) const EMPTY: Self = Index { slots: null_mut(), capacity: 0, used: 0 };

    /// The value for `key`, which is not 0.
    pub(crate) fn get(&self, key: usize) -> Option<V> {
        let position = self.find(key)?;
        let slot = self.slot(position);
        (slot.key == key).then_some(slot.value)
    }

    /// Gives `key`, which is not 0, the value `value`. Returns the value that the key had before.
    pub(crate) fn insert(&mut self, key: usize, value: V) -> Option<V> {
        if self.used * 2 >= self.capacity {
            self.grow();
        }
        let position = self.find(key)?; // always `Some`: `grow` has made slots
        let old = self.slot(position);
        self.set(position, Slot { key, value });
        if old.key == key {
            return Some(old.value);
        }
        self.used += 1;
        None
    }

    /// Removes `key`, if it is there.
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
            // A look-up starts where the key's run begins and stops at an empty slot. If the run begins at the hole or
            // before it (the slots form a ring), the look-up would stop at the hole, so the entry moves there.
            let begin = self.begin(slot.key);
            if next.wrapping_sub(begin) & self.mask() >= next.wrapping_sub(hole) & self.mask() {
                self.set(hole, slot);
                hole = next;
            }
        }
        self.set(hole, Slot { key: 0, value: self.slot(hole).value });
        self.used -= 1;
    }

    /// Calls `each` with every key and its value.
    pub(crate) fn each(&self, mut each: impl FnMut(usize, V)) {
        for slot in (0..self.capacity).map(|position| self.slot(position)).filter(|slot| slot.key != 0) {
            each(slot.key, slot.value);
        }
    }

    /// Gives the memory back.
    pub(crate) fn free(self) {
        if self.capacity != 0 {
            // SAFETY: `grow` has mapped this many bytes, and `self` was their only user.
            unsafe { memory::unmap(self.slots, self.capacity * size_of::<Slot<V>>()) };
        }
    }

    /// The position of `key`, or of the empty slot where `insert` would put it. `None`: there are no slots.
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

    /// The position where a look-up of `key` starts: the top bits of a product, because the addresses of locks in an
    /// array differ in the middle of their bits.
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
        // SAFETY: there are `capacity` slots, all initialised (pages are zeroed), and every position is below that: `begin`
        // and `after` cut it down.
        unsafe { self.slots.add(position).read() }
    }

    fn set(&mut self, position: usize, slot: Slot<V>) {
        debug_assert!(position < self.capacity);
        // SAFETY: the position is below `capacity`, as `slot` says, and `self` is the only user of the slots.
        unsafe { self.slots.add(position).write(slot) };
    }

    #[cold]
    fn grow(&mut self) {
        let capacity = match self.capacity {
            0 => (SMALLEST / size_of::<Slot<V>>() + 1).next_power_of_two() / 2,
            capacity => capacity * 2,
        };
        let slots: *mut Slot<V> = memory::map(capacity * size_of::<Slot<V>>()).cast();
        let old = core::mem::replace(self, Index { slots, capacity, used: 0 });
        old.each(|key, value| _ = self.insert(key, value));
        old.free();
    }
}

#[cfg(test)]
mod tests {
    //! `tests/programs.rs` runs these: this crate has no test harness of its own.
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

    /// Finding a lock takes the same number of probes however many locks a thread holds.
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
                // The probes of `grow` are among them. A walk along a list would take thousands.
                let each = PROBES.get() as f64 / (3 * count) as f64;
                assert!(each < 8.0, "{each} probes for each of {count} locks of kind {kind}");
                assert_eq!(index.used, 0);
                index.free();
            }
        }
    }

    /// After the same operations the index and a `HashMap` have the same contents.
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
