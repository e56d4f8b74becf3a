//! Entries of which each thread has one, in memory that stays mapped: [`Roll`]. Rows of readers and records are such.
//!
//! A thread finds its entry through a thread-local word. Entries come from the kernel, a page at a time, and are linked before
//! any thread uses them. Nothing here allocates.
//!
//! What pairs with what: (A) the linking of a page with loads of the newest one. ((B) and (C) are in [`group`].)
//!
//! [`group`]: super::super::group

use super::super::group::{Entry, Group};
use super::{Native, memory};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::*};

/// Entries in a page, which is one group.
const ENTRIES: usize = 31;

#[repr(C)]
struct Page<T: Entry<Native>> {
    group: Group<Native, T>,
    entries: [T; ENTRIES],
}

/// All entries of one kind.
pub(super) struct Roll<T: Entry<Native>>(AtomicPtr<Group<Native, T>>);

impl<T: Entry<Native>> Roll<T> {
    /// Without entries.
    pub(super) const fn new() -> Self {
        Roll(AtomicPtr::new(null_mut()))
    }

    /// The newest group; the others are linked behind it.
    #[inline]
    pub(super) fn newest(&self) -> Option<&'static Group<Native, T>> {
        // (A) pairs with the exchange in `map`. SAFETY: null, or in a page, and pages are never unmapped.
        unsafe { self.0.load(Acquire).as_ref() }
    }

    /// Makes the caller the owner of an idle entry.
    pub(super) fn take(&self) -> &'static T {
        self.newest().and_then(Group::take_idle).unwrap_or_else(|| self.map())
    }

    /// Maps a page of new entries, and makes the caller the owner of the first.
    fn map(&self) -> &'static T {
        const { assert!(size_of::<Page<T>>() <= if cfg!(feature = "section-origins") { 8192 } else { 4096 }) };
        let page: *mut Page<T> = memory::map(size_of::<Page<T>>());
        // SAFETY: the page was mapped above, is large enough, and no other thread knows it. Zero bytes are idle entries.
        let (group, entries): (&'static _, &'static [T; ENTRIES]) = unsafe {
            let entries = &(*page).entries;
            (&raw mut (*page).group).write(Group::new(entries, 1, None));
            (&(*page).group, entries)
        };
        let mut newest = self.0.load(Acquire); // (A) pairs with the exchange below
        loop {
            // SAFETY: null, or in a page, and pages are never unmapped.
            group.link(unsafe { newest.as_ref() });
            // (A) publishes that the entries are idle, before their owners use them. So a thread that looks at all entries
            // after a heavy fence, and does not find one, need not know what its owner does.
            match self.0.compare_exchange(newest, group.as_ptr(), AcqRel, Acquire) {
                Ok(_) => return &entries[0],
                Err(now) => newest = now,
            }
        }
    }

    /// Ends the ownership of an entry, whose owner exits.
    pub(super) fn give_back(&self, entry: &'static T) {
        self.newest().into_iter().for_each(|newest| newest.leave(entry));
    }

    /// In a forked child: takes the entries of all other threads from them. `reset` makes an entry idle.
    pub(super) fn forget_others(&self, mine: *const T, reset: impl Fn(&'static T)) {
        for group in self.newest().into_iter().flat_map(Group::groups) {
            for other in group.entries().iter().filter(|entry| !core::ptr::eq(*entry, mine)) {
                reset(other);
                other.left().store(0, Relaxed);
            }
            group.forget(mine);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU32;

    /// An entry that another thread adopts, uses and leaves behind right after the first look at it.
    struct Contended {
        left: AtomicU32,
        used: AtomicU32,
        looks: AtomicU32,
    }

    // SAFETY: zero bytes are not used and not left behind; only the test makes one used.
    unsafe impl Entry<Native> for Contended {
        fn left(&self) -> &AtomicU32 {
            &self.left
        }

        fn is_idle(&'static self) -> bool {
            let idle = self.used.load(Acquire) == 0;
            if self.left.load(Relaxed) == 1 && self.looks.fetch_add(1, Relaxed) == 0 {
                self.used.store(1, Relaxed);
            }
            idle
        }
    }

    #[test]
    fn an_entry_that_is_in_use_again_is_not_adopted() {
        static ROLL: Roll<Contended> = Roll::new();
        let first = ROLL.take();
        (1..ENTRIES).for_each(|_| {
            ROLL.take();
        });
        first.left.store(1, Relaxed);
        let other = ROLL.take();
        assert!(!core::ptr::eq(first, other), "an entry that is in use has a second owner");
        assert_eq!(first.left.load(Relaxed), 1, "no thread will find the entry when it is idle");
        first.used.store(0, Relaxed);
        (1..ENTRIES).for_each(|_| {
            ROLL.take();
        });
        assert!(core::ptr::eq(first, ROLL.take()));
    }
}
