//! Entries that belong to threads, in groups that say which entries have an owner: [`Group`]. Records and rows of readers'
//! slots are such; a thread may leave those behind when it exits ([`Entry`]).

use super::{Arith, Machine, Word};
use core::ptr::{from_ref, null_mut};
use core::sync::atomic::Ordering::*;

/// Entries in a group, at most: one bit each.
pub const GROUP: usize = 32;

/// Entries side by side, each of which one thread owns, and a word with a bit for each entry that has an owner. A thread
/// that looks at all threads skips those that have exited by one look at that word. It does not find one entry through
/// another, so the processor fetches their cache lines at the same time.
///
/// Groups are linked when they are made, and stay linked.
///
/// State of an entry: free (its bit is 0) -> owned (`take`, `claim`) -> free (`give_back`, `forget`). (B): the release of
/// an entry pairs with the acquire of the next owner, and of a thread that looks who owns what.
#[repr(C, align(128))]
pub struct Group<M: Machine, T: Send + Sync + 'static> {
    taken: M::U32,
    next: M::Ptr<Group<M, T>>,
    entries: &'static [T],
}

impl<M: Machine, T: Send + Sync + 'static> Group<M, T> {
    /// A group of `entries`, linked before `next`. Those of which the bit is set in `taken` have an owner.
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

    /// Sets the group that was linked before this one. To be called before this one is linked.
    pub fn link(&self, next: Option<&'static Self>) {
        self.next.store(next.map_or(null_mut(), Self::as_ptr), Relaxed);
    }

    /// This group and those linked behind it.
    #[inline]
    pub fn groups(&'static self) -> impl Iterator<Item = &'static Self> {
        core::iter::successors(Some(self), |group| {
            // Acquire: pairs with the exchange by which the machine links a group.
            // SAFETY: only groups that live for ever are linked (`link` takes a `'static` reference).
            unsafe { group.next.load(Acquire).as_ref() }
        })
    }

    /// A bit for each entry that has an owner.
    #[inline]
    pub fn owners(&self) -> u32 {
        // (B) what an owner did happens before what a thread does that sees the entry given back.
        self.taken.load(Acquire)
    }

    /// The index of the entry in this group that the address lies in.
    pub fn index_of(&self, entry: *const T) -> Option<usize> {
        let bytes = entry.addr().wrapping_sub(self.entries.as_ptr().addr());
        (bytes < size_of_val(self.entries)).then(|| bytes / size_of::<T>())
    }

    /// The entries of this group that have an owner. One that a thread takes meanwhile need not be among them: the caller
    /// has issued the heavy fence before, so that what this owner does comes after the fence.
    #[inline]
    pub fn taken(&'static self) -> impl Iterator<Item = &'static T> {
        let mut taken = self.owners();
        core::iter::from_fn(move || {
            let index = taken.trailing_zeros() as usize;
            taken &= taken.wrapping_sub(1);
            self.entries.get(index)
        })
    }

    /// The entries of this group and of those linked behind it that have an owner.
    #[inline]
    pub fn owned(&'static self) -> impl Iterator<Item = &'static T> {
        self.groups().flat_map(Group::taken)
    }

    /// Makes the caller the owner of an entry that has none, if there is one.
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
        // (B) what the previous owner did happens before.
        self.taken.fetch_or(1 << index, Acquire) & 1 << index == 0
    }

    /// Ends the ownership of an entry. For its owner.
    pub fn give_back(&self, entry: &T) {
        let index = self.index_of(entry).expect("of this group");
        // (B) what this owner did happens before what the next one does.
        self.taken.fetch_and(!(1 << index), Release);
    }

    /// Takes all entries but `kept` (or null) from their owners. For a process in which no owner but that of `kept` is
    /// left.
    pub fn forget(&self, kept: *const T) {
        let index = self.index_of(kept);
        self.taken.store(index.map_or(0, |index| 1 << index), Relaxed);
    }
}

/// An entry that its owner may leave behind: when the owner exits, and the entry is still in use.
///
/// State: owned -> left behind, and still marked as owned ([`leave`](Group::leave)) -> owned by a thread that looks for an
/// entry and finds this one idle ([`take_idle`](Group::take_idle)). (C): the former pairs with the latter.
///
/// # Safety
///
/// An idle entry stays idle until it has an owner. On the native machine, zero bytes are an idle entry that is not left
/// behind.
pub unsafe trait Entry<M: Machine>: Send + Sync + Sized + 'static {
    /// Whether the owner has exited and left the entry behind: 0 or 1.
    fn left(&self) -> &M::U32;

    /// Whether the entry is not in use. Acquire: what was done with it happens before the next owner gets it.
    fn is_idle(&'static self) -> bool;
}

impl<M: Machine, T: Entry<M>> Group<M, T> {
    /// Makes the caller the owner of an idle entry of this group, or of those linked behind it, if there is one.
    pub fn take_idle(&'static self) -> Option<&'static T> {
        // (C) pairs with the store in `leave`. `is_idle` is asked twice, because another thread may have adopted the entry
        // after the first time, and have left it behind again, in use.
        let adopt = |entry: &&'static T| {
            entry.left().load(Relaxed) != 0
                && entry.is_idle()
                && entry.left().compare_exchange(1, 0, Acquire, Relaxed).is_ok()
                && (entry.is_idle() || {
                    entry.left().store(1, Release); // (C) for the thread that adopts it next
                    false
                })
        };
        self.groups().find_map(Group::take).or_else(|| self.owned().find(adopt))
    }

    /// Ends the ownership of an entry of this group, or of those linked behind it. For its owner, which exits.
    pub fn leave(&'static self, entry: &'static T) {
        if !entry.is_idle() {
            // (C) what this owner did happens before what the next one does.
            entry.left().store(1, Release);
        } else if let Some(group) = self.groups().find(|group| group.index_of(entry).is_some()) {
            group.give_back(entry);
        }
    }
}
