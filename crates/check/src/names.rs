//! Names of locks, which the program gives (`lw_name` of `latchwork.h`). They have a table of their own: a lock is often named
//! before it is first used.

use latchwork::locks::mutex::{RawMutex, ttas::RawTtas};
use latchwork::machine::Native;
use std::cell::UnsafeCell;

/// Locks that can have a name at the same time.
const NAMES: usize = 4096;
/// Bytes of a name.
const BYTES: usize = 39;

#[derive(Copy, Clone)]
struct Named {
    /// 0: the entry is free.
    lock: usize,
    length: u8,
    name: [u8; BYTES],
}

struct Table {
    lock: RawTtas<Native>,
    entries: UnsafeCell<[Named; NAMES]>,
}

// SAFETY: `entries` is used with the lock held.
unsafe impl Sync for Table {}

static TABLE: Table = Table {
    lock: RawTtas::new(),
    entries: UnsafeCell::new([Named { lock: 0, length: 0, name: [0; BYTES] }; NAMES]),
};

/// Runs `work` with the table.
fn with<R>(work: impl FnOnce(&mut [Named; NAMES]) -> R) -> R {
    TABLE.lock.lock();
    // SAFETY: the lock is held, and `work` does not come back here.
    let result = work(unsafe { &mut *TABLE.entries.get() });
    // SAFETY: acquired above.
    unsafe { TABLE.lock.unlock(()) };
    result
}

/// Gives the lock a name, of which the first 39 bytes count; an empty one takes the name away. If 4096 locks have names, others get
/// none.
pub fn set(lock: usize, name: &[u8]) {
    let kept = &name[..name.len().min(BYTES)];
    with(|entries| {
        let of_lock = entries.iter().position(|entry| entry.lock == lock);
        let place = of_lock.or_else(|| entries.iter().position(|entry| entry.lock == 0));
        let Some(entry) = place.map(|at| &mut entries[at]) else { return };
        entry.lock = if kept.is_empty() { 0 } else { lock };
        entry.length = kept.len() as u8;
        entry.name[..kept.len()].copy_from_slice(kept);
    });
}

/// What a report calls a lock: its address, and the name if it has one.
pub(crate) fn shown(lock: usize) -> String {
    let named = with(|entries| entries.iter().find(|entry| entry.lock == lock).copied());
    match named {
        Some(Named { length, name, .. }) => {
            format!("{lock:#x} \"{}\"", String::from_utf8_lossy(&name[..length.into()]).escape_debug())
        }
        None => format!("{lock:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_until_it_is_taken_away() {
        set(0x1000, b"routes");
        set(0x2000, &[b'x'; 50]);
        assert_eq!(shown(0x1000), "0x1000 \"routes\"");
        assert_eq!(shown(0x2000), format!("0x2000 \"{}\"", "x".repeat(39)));
        set(0x1000, b"tables");
        assert_eq!(shown(0x1000), "0x1000 \"tables\"");
        set(0x1000, b"");
        assert_eq!(shown(0x1000), "0x1000");
    }
}
