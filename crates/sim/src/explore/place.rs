//! Where a word is: what the engine knows of it, whatever the type of its value.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// In the memory of a word that is alive. Anything else means that the memory is used for something else.
pub(super) const ALIVE: u32 = 0x5a11_e0b5;
/// In the memory of a word that was dropped.
pub(super) const DEAD: u32 = 0xdead_beef;

/// What a store buffer has to know of a word.
#[derive(Copy, Clone)]
pub(super) struct Place {
    /// The value.
    pub address: usize,
    /// Bytes of the value.
    size: u8,
    alive: *const AtomicU32,
}

impl Place {
    pub(super) const NOWHERE: Place = Place { address: 0, size: 0, alive: std::ptr::null() };

    pub(super) fn new(address: usize, size: u8, alive: *const AtomicU32) -> Place {
        Place { address, size, alive }
    }

    /// What is left of a value in this many bytes.
    pub(super) fn truncate(self, value: u64) -> u64 {
        match self.size {
            1 => u64::from(value as u8),
            4 => u64::from(value as u32),
            _ => value,
        }
    }

    /// Whether the word is still there.
    pub(super) fn is_alive(self) -> bool {
        // SAFETY: the memory of a word stays mapped: it lies in the arena, on the stack of a coroutine or in a
        // leaked allocation, all of which outlive the schedule.
        unsafe { &*self.alive }.load(Relaxed) == ALIVE
    }

    /// The value in memory.
    pub(super) fn value(self) -> u64 {
        // SAFETY: the word's memory stays mapped (see `is_alive`), and the value in it has this size and alignment.
        unsafe {
            match self.size {
                1 => u64::from((*(self.address as *const AtomicU8)).load(Relaxed)),
                4 => u64::from((*(self.address as *const AtomicU32)).load(Relaxed)),
                _ => (*(self.address as *const AtomicU64)).load(Relaxed),
            }
        }
    }

    /// Replaces the value in memory.
    pub(super) fn set(self, value: u64) {
        debug_assert!(self.is_alive());
        // SAFETY: the word's memory stays mapped, the value in it has this size and alignment, and the caller has seen that
        // the word is alive, so the memory is not used for something else.
        unsafe {
            match self.size {
                1 => (*(self.address as *const AtomicU8)).store(value as u8, Relaxed),
                4 => (*(self.address as *const AtomicU32)).store(value as u32, Relaxed),
                _ => (*(self.address as *const AtomicU64)).store(value, Relaxed),
            }
        }
    }
}
