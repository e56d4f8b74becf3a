//! Names of locks, which the program gives (`lw_name` of `latchwork.h`). They have a table of their own: a lock is often named
//! before it is first used.

use crate::cancel::Uncancelled;
use crate::owned::OwnedLock;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::*, fence};

/// Locks that can have a name at the same time.
const NAMES: usize = 4096;
/// Bytes of a name.
pub const BYTES: usize = 39;

struct Named {
    /// 0: the entry is free.
    lock: AtomicUsize,
    /// With zeros behind it.
    name: [AtomicU8; BYTES],
}

/// The thread that changes names holds this. Threads that look for a name do not wait: one may have interrupted the other.
pub(crate) static CHANGING: OwnedLock = OwnedLock::new();
static TABLE: [Named; NAMES] =
    [const { Named { lock: AtomicUsize::new(0), name: [const { AtomicU8::new(0) }; BYTES] } }; NAMES];
/// No entry from this one on has been used.
static END: AtomicUsize = AtomicUsize::new(0);

fn used() -> &'static [Named] {
    &TABLE[..END.load(Acquire)]
}

/// Gives the lock a name, of which the first 39 bytes count; an empty one takes the name away. If 4096 locks have names, others get
/// none, nor do they in a signal handler that has interrupted this function.
pub fn set(lock: usize, name: &[u8]) {
    let _uncancelled = Uncancelled::new();
    if !CHANGING.acquire() {
        return;
    }
    let entries = used();
    let at = |wanted| entries.iter().position(|entry| entry.lock.load(Relaxed) == wanted);
    let index = at(lock).or_else(|| at(0)).unwrap_or(entries.len());
    if let Some(entry) = TABLE.get(index) {
        entry.lock.store(0, Relaxed);
        // (A) pairs with the fence in `of`: a thread that reads a byte of the new name sees that the entry has changed.
        fence(Release);
        for (to, byte) in entry.name.iter().zip(name.iter().chain([0; BYTES].iter())) {
            to.store(*byte, Relaxed);
        }
        // (B) pairs with the load in `of`: the whole name is there.
        entry.lock.store(if name.is_empty() { 0 } else { lock }, Release);
        END.fetch_max(index + 1, Release);
    }
    // SAFETY: acquired above.
    unsafe { CHANGING.release() };
}

/// The lock's name, with zeros behind it. (If the lock gets its name a second time meanwhile, bytes of both may be in it.)
#[inline]
pub fn of(lock: usize) -> Option<[u8; BYTES]> {
    // Most programs name no lock.
    if END.load(Relaxed) == 0 { None } else { find(lock) }
}

fn find(lock: usize) -> Option<[u8; BYTES]> {
    let entry = used().iter().find(|entry| entry.lock.load(Acquire) == lock)?; // (B)
    let name = entry.name.each_ref().map(|byte| byte.load(Relaxed));
    fence(Acquire); // (A)
    (entry.lock.load(Relaxed) == lock).then_some(name)
}

/// The lock's name, as text.
pub(crate) fn text(lock: usize) -> Option<String> {
    let name = of(lock)?;
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Some(String::from_utf8_lossy(name).into_owned())
}

/// What a report calls a lock: its address, and the name if it has one.
pub(crate) fn shown(lock: usize) -> String {
    match text(lock) {
        Some(name) => format!("{lock:#x} \"{}\"", name.escape_debug()),
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

    #[test]
    fn a_signal_handler_interrupts_the_change_of_a_name() {
        assert!(CHANGING.acquire());
        crate::before_fork();
        crate::after_fork(false);
        set(0x3000, b"routes");
        // SAFETY: acquired above.
        unsafe { CHANGING.release() };
        assert_eq!(of(0x3000), None);
    }
}
