//! From an address to its line.

use super::NONE;

/// From address (in lines) to number: open addressing with linear probing.
pub(super) struct Index {
    slots: Vec<(usize, u32)>,
    used: usize,
}

impl Index {
    pub(super) fn new() -> Self {
        Index { slots: vec![(0, NONE); 1024], used: 0 }
    }

    #[inline]
    fn start(&self, key: usize) -> usize {
        let bits = self.slots.len().trailing_zeros();
        ((key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - bits)) as usize
    }

    #[inline]
    pub(super) fn find(&self, key: usize) -> Option<u32> {
        let mut at = self.start(key);
        loop {
            let (found, number) = self.slots[at];
            if number == NONE {
                return None;
            }
            if found == key {
                return Some(number);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    pub(super) fn insert(&mut self, key: usize, number: u32) {
        if self.used * 2 >= self.slots.len() {
            let grown = vec![(0, NONE); self.slots.len() * 2];
            for (key, number) in std::mem::replace(&mut self.slots, grown) {
                if number != NONE {
                    self.put(key, number);
                }
            }
        }
        self.used += 1;
        self.put(key, number);
    }

    fn put(&mut self, key: usize, number: u32) {
        let mut at = self.start(key);
        while self.slots[at].1 != NONE {
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.slots[at] = (key, number);
    }
}
