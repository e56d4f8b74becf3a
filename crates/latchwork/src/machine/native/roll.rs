//! Entries of which each thread has one, in memory that stays mapped: [`Roll`]. Rows of readers and records are such.
//!
//! A thread finds its entry through a thread-local word. Entries come from the kernel, a page at a time, and are linked before
//! any thread uses them. Nothing here allocates.
//!
//! State of an entry: free -> owned (`take`) -> free (`give_back`, if the entry is idle), or left behind (`give_back`, if
//! it is still in use) -> owned by the first thread that looks for an entry and finds this one idle (`take`).
//!
//! What pairs with what: (A) the linking of a page with loads of the newest one. (C) `give_back` with the adoption of an
//! entry that was left behind. ((B) is in [`Group`].)

use super::super::group::Group;
use super::{Native, memory};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

/// An entry of a [`Roll`].
///
/// # Safety
///
/// Zero bytes are an idle entry that is not left behind. An idle entry stays idle until it has an owner.
pub(super) unsafe trait Entry: Send + Sync + Sized + 'static {
    /// Whether the owner has exited and left the entry behind: 0 or 1.
    fn left(&self) -> &AtomicU32;

    /// Whether the entry is not in use. Acquire: what was done with it happens before the next owner gets it.
    fn is_idle(&'static self) -> bool;

    /// Links an entry to the one before it, before any thread sees the entry. For entries with links of their own.
    fn link(&self, next: *mut Self) {
        let _ = next;
    }
}

/// Entries in a page, which is one group.
const ENTRIES: usize = 31;

#[repr(C)]
struct Page<T: Entry> {
    group: Group<Native, T>,
    entries: [T; ENTRIES],
}

/// All entries of one kind.
pub(super) struct Roll<T: Entry>(AtomicPtr<Group<Native, T>>);

impl<T: Entry> Roll<T> {
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
        let groups = || self.newest().into_iter().flat_map(Group::groups);
        // (C) pairs with the store in `give_back`. `is_idle` is asked twice, because another thread may have adopted the
        // entry after the first time, and have left it behind again, in use.
        let adopt = |entry: &&'static T| {
            entry.left().load(Relaxed) != 0
                && entry.is_idle()
                && entry.left().compare_exchange(1, 0, Acquire, Relaxed).is_ok()
                && (entry.is_idle() || {
                    entry.left().store(1, Release); // (C) for the thread that adopts it next
                    false
                })
        };
        let free = groups().find_map(Group::take).or_else(|| groups().flat_map(Group::taken).find(adopt));
        free.unwrap_or_else(|| self.map())
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
        for pair in entries.windows(2) {
            pair[1].link(core::ptr::from_ref(&pair[0]).cast_mut());
        }
        let mut newest = self.0.load(Acquire); // (A) pairs with the exchange below
        loop {
            // SAFETY: null, or in a page, and pages are never unmapped.
            let before = unsafe { newest.as_ref() };
            group.link(before);
            let last = before.and_then(|before| before.entries().last());
            entries[0].link(last.map_or(null_mut(), |last| core::ptr::from_ref(last).cast_mut()));
            // (A) publishes that the entries are idle and linked, before their owners use them. So a thread that looks at
            // all entries after a heavy fence, and does not find one, need not know what its owner does.
            match self.0.compare_exchange(newest, group.as_ptr(), AcqRel, Acquire) {
                Ok(_) => return &entries[0],
                Err(now) => newest = now,
            }
        }
    }

    /// Ends the ownership of an entry, whose owner exits.
    pub(super) fn give_back(&self, entry: &'static T) {
        let address = core::ptr::from_ref(entry).addr();
        let is_in = |group: &&'static Group<Native, T>| {
            let range = group.entries().as_ptr_range();
            (range.start.addr()..range.end.addr()).contains(&address)
        };
        if !entry.is_idle() {
            // (C) what this owner did happens before what the next one does.
            entry.left().store(1, Release);
        } else if let Some(group) = self.newest().and_then(|newest| newest.groups().find(is_in)) {
            group.give_back(entry);
        }
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

    /// An entry that another thread adopts, uses and leaves behind right after the first look at it.
    struct Contended {
        left: AtomicU32,
        used: AtomicU32,
        looks: AtomicU32,
    }

    // SAFETY: zero bytes are not used and not left behind; only the test makes one used.
    unsafe impl Entry for Contended {
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
