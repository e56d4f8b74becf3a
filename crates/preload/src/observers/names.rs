//! The names of the locks that serve mutexes and rwlocks: a recorder's copy, for the files of forked children.

use core::sync::atomic::{AtomicU8, Ordering::*};

/// The longest name, in bytes. Files of recordings have as much room.
const LONGEST: usize = 48;

/// The name of the mutex and that of the rwlock.
pub(super) struct Names([[AtomicU8; LONGEST]; 2]);

impl Names {
    /// No names.
    pub(super) const fn new() -> Self {
        Names([const { [const { AtomicU8::new(0) }; LONGEST] }; 2])
    }

    /// While the process starts.
    pub(super) fn set(&self, names: [&[u8]; 2]) {
        for (copy, name) in self.0.iter().zip(names) {
            copy.iter().zip(name).for_each(|(to, byte)| to.store(*byte, Relaxed));
        }
    }

    /// The names, with zeros behind them.
    pub(super) fn get(&self) -> [[u8; LONGEST]; 2] {
        self.0.each_ref().map(|copy| core::array::from_fn(|index| copy[index].load(Relaxed)))
    }
}
