//! What belongs to threads, in groups that say which of it has an owner: [`Group`].

use super::{Arith, Machine, Word};
use core::ptr::{from_ref, null_mut};
use core::sync::atomic::Ordering::*;

/// Entries in a group, at most: one bit each.
pub const GROUP: usize = 32;

/// Entries that threads own one each, side by side, and a word with a bit for each that is taken. Who looks
/// at all threads looks at one word for all those that have exited, and the lines of the others are not
/// found through each other, so that they can be fetched at the same time.
///
/// Groups are linked when they are made, and stay.
#[repr(C, align(128))]
pub struct Group<M: Machine, T: Send + Sync + 'static> {
    taken: M::U32,
    next: M::Ptr<Group<M, T>>,
    entries: &'static [T],
}

impl<M: Machine, T: Send + Sync + 'static> Group<M, T> {
    /// A group of `entries`, of which those in `taken` have an owner, linked before `next`.
    pub fn new(entries: &'static [T], taken: u32, next: Option<&'static Self>) -> Self {
        assert!((1..=GROUP).contains(&entries.len()), "a bit for each");
        Group { taken: M::U32::new(taken), next: M::Ptr::new(next.map_or(null_mut(), Self::as_ptr)), entries }
    }

    /// All entries, whether they have an owner or not.
    pub fn entries(&self) -> &'static [T] {
        self.entries
    }

    /// The group's address, as it is stored in links.
    pub fn as_ptr(&self) -> *mut Self {
        from_ref(self).cast_mut()
    }

    /// Sets which group was linked before this one; before this one is linked.
    pub fn link(&self, next: Option<&'static Self>) {
        self.next.store(next.map_or(null_mut(), Self::as_ptr), Relaxed);
    }

    /// This group and those linked behind it.
    #[inline]
    pub fn groups(&'static self) -> impl Iterator<Item = &'static Self> {
        core::iter::successors(Some(self), |group| {
            // Acquire: pairs with the machine's linking. SAFETY: only groups that live for ever are linked (`link`).
            unsafe { group.next.load(Acquire).as_ref() }
        })
    }

    /// A bit for each entry that has an owner.
    #[inline]
    pub fn owners(&self) -> u32 {
        // (B) what an owner did happens before who sees that it has given its entry back.
        self.taken.load(Acquire)
    }

    /// Which one of this group it is.
    pub fn index_of(&self, entry: *const T) -> Option<usize> {
        self.entries.iter().position(|one| core::ptr::eq(one, entry))
    }

    /// Those of this group that have an owner. One that somebody takes meanwhile need not be among them: who
    /// looks for what owners do has issued the heavy fence before, so that this owner begins after it.
    #[inline]
    pub fn taken(&'static self) -> impl Iterator<Item = &'static T> {
        let mut taken = self.owners();
        core::iter::from_fn(move || {
            let index = taken.trailing_zeros() as usize;
            taken &= taken.wrapping_sub(1);
            self.entries.get(index)
        })
    }

    /// Those of this group, and of those linked behind it, that have an owner.
    #[inline]
    pub fn owned(&'static self) -> impl Iterator<Item = &'static T> {
        self.groups().flat_map(Group::taken)
    }

    /// One that had no owner, if there is any: the caller's from now on.
    pub fn take(&'static self) -> Option<&'static T> {
        loop {
            let index = self.taken.load(Relaxed).trailing_ones() as usize;
            let entry = self.entries.get(index)?;
            if self.claim(index) {
                return Some(entry);
            }
        }
    }

    /// Gives an entry an owner; `false` if it has one.
    pub fn claim(&self, index: usize) -> bool {
        // (B) its owner comes after the one before.
        self.taken.fetch_or(1 << index, Acquire) & 1 << index == 0
    }

    /// The owner's: it is nobody's any more.
    pub fn give_back(&self, entry: &T) {
        let index = self.index_of(entry).expect("of this group");
        // (B) as above.
        self.taken.fetch_and(!(1 << index), Release);
    }

    /// Takes all from their owners, except for `kept` (or null), if there is nobody else.
    pub fn forget(&self, kept: *const T) {
        let index = self.index_of(kept);
        self.taken.store(index.map_or(0, |index| 1 << index), Relaxed);
    }
}
