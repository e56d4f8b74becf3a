//! Downgrade, upgradable reads, recursive reads and fair unlock.
//!
//! The upgradable reader has the bit UPGRADABLE of `readers`, which only one thread can set, and which counts as a reader for
//! writers. So readers enter beside it as fast as ever, and writers and other upgradable readers stay out. An upgradable reader
//! that waits at the head of the queue sets SHARED: it needs no reader to leave, so its claim keeps writers and other upgradable
//! readers out, and no plain reader.
//!
//! | operation | steps | atomic read-modify-writes if no other thread is there |
//! |---|---|---|
//! | upgradable read | set UPGRADABLE, look for a writer | 1, and 1 to leave |
//! | upgrade | set WRITER, wait until no other reader is inside, take UPGRADABLE away | 2 |
//! | downgrade | add a reader, or set UPGRADABLE; then leave as a writer | 1 |
//! | downgrade of an upgradable read | turn UPGRADABLE into a reader | 1 |
//! | recursive read | add a reader, look for a writer that is inside | 1, and 1 to leave |
//! | fair unlock | set CLAIMED and LEFT if there is a queue, then leave | as the unlock |
//!
//! An upgrade keeps UPGRADABLE until it is alone, so no other writer can come in between. WRITER keeps newcomers out
//! meanwhile, and the head of the queue sleeps behind WRITER as behind any writer. The upgrading thread is not in the queue,
//! so no thread wakes it: it spins and then sleeps in naps ([`Naps`]), and wakes up late by a quarter of its wait and by one
//! millisecond at most.
//!
//! A reader that reads again must not wait for an upgrade that waits for it. So the upgrading thread sets UPGRADING while it
//! waits: WRITER and UPGRADING together admit recursive readers.

use super::queue::WITHDRAWAL;
use super::words::*;
use super::{RawShflRw, unpark};
use crate::locks::bits::Bits;
use crate::locks::mutex::shuffle::Policy;
use crate::locks::rwlock::wait::{Await, Naps};
use crate::locks::rwlock::{RawDowngrade, RawFair, RawRecursive, RawRwLock, RawUpgrade, Timeout};
use crate::machine::{Arith, Machine, Word};
use core::sync::atomic::Ordering::*;

impl<M: Machine, P: Policy> RawShflRw<M, P> {
    /// An attempt to read past everything but a writer that is inside. `Err` says whether a reader is inside.
    fn enter_recursive(&self) -> Result<(), bool> {
        // (A), (E) as in `try_read_free`.
        let before = Bits(self.readers.fetch_add(READER, SeqCst));
        check(before);
        // (U) The upgradable reader that upgrades looks for readers again after it has taken UPGRADING back.
        if admits_recursive_reader(Bits(self.word.load(SeqCst))) {
            return Ok(());
        }
        self.withdraw(Side::Read);
        Err(before.has(ANY_READER))
    }

    /// The upgradable reader, which the caller is, becomes a writer unless the timeout passes first.
    fn becomes_writer(&self, timeout: Timeout) -> bool {
        let alone = |readers: u32| readers & ANY_READER == UPGRADABLE;
        if matches!(timeout, Timeout::Immediate) && !alone(self.readers.load(Relaxed)) {
            return false;
        }
        if !self.sets_writer(timeout) {
            return false;
        }
        // (B), (E) as in `try_as_head`.
        while M::spin_for(&self.readers, SeqCst, WITHDRAWAL, alone).is_none() {
            // Relaxed: the exchange that set WRITER orders readers that see this bit after the last writer.
            self.word.fetch_or(UPGRADING, Relaxed);
            let left = Naps::until::<M, _, _>(&self.readers, timeout, alone);
            // (U) Dekker pair with `enter_recursive`: a reader adds itself and then looks for UPGRADING, this thread takes
            // UPGRADING back and then looks for readers, all sequentially consistent, so one sees the other.
            self.word.fetch_and(!UPGRADING, SeqCst);
            if !left {
                return self.withdraw_writer();
            }
        }
        // The head may sleep until no reader is inside; now it must sleep until the writer leaves.
        self.leave_upgradable(Relaxed);
        true
    }

    /// Sets WRITER for the upgradable reader. A writer that has set it before finds the upgradable reader and takes WRITER
    /// back, so this waits for a few instructions, unless that writer is suspended between them.
    fn sets_writer(&self, timeout: Timeout) -> bool {
        let open = |word| !Bits(word).has(WRITER);
        loop {
            let state = self.state();
            if !open(state.0) {
                if M::spin_for(&self.word, Relaxed, WITHDRAWAL, open).is_none()
                    && !Naps::until::<M, _, _>(&self.word, timeout, open)
                {
                    return false;
                }
            } else if self
                .word
                // (A), (E) as in `try_write_free`. The hints stay: the head is as it was.
                .compare_exchange(state.0, state.0 & !OFFERED | WRITER, SeqCst, Relaxed)
                .is_ok()
            {
                return true;
            }
        }
    }

    /// Leaves the lock to the head of the queue, if there is one: newcomers do not pass the head, unless it is suspended.
    fn leave_to_head(&self) {
        if !self.is_queue_empty() && !self.state().has(LAPSED) {
            self.word.fetch_or(CLAIMED | LEFT, Relaxed);
            unpark::<M>(&raw const self.word); // (N)
        }
    }
}

// SAFETY: the caller has added itself to the readers before it takes WRITER back, and a writer that sets WRITER afterwards
// sees it: (A) orders the addition before.
unsafe impl<M: Machine, P: Policy> RawDowngrade for RawShflRw<M, P> {
    #[inline]
    unsafe fn downgrade(&self, (): ()) {
        self.readers.fetch_add(READER, Relaxed);
        // SAFETY: the caller holds the lock for writing.
        unsafe { self.unlock_write(()) };
    }
}

// SAFETY: UPGRADABLE counts as a reader for writers, and only one thread has it. That thread sets WRITER while it has
// UPGRADABLE, so no other writer comes in between, and is a writer when no other reader is left (E), (U).
unsafe impl<M: Machine, P: Policy> RawUpgrade for RawShflRw<M, P> {
    type Upgradable = ();

    #[inline]
    fn upgradable_within(&self, timeout: Timeout, watch: &dyn Fn()) -> Option<()> {
        let taken = self.try_upgradable_free()
            || match timeout {
                Timeout::Immediate => self.steal(Side::Upgradable),
                Timeout::At(deadline) => self.wait_for_lock(Side::Upgradable, Some(deadline), watch),
                Timeout::Never => self.wait_for_lock(Side::Upgradable, None, watch),
            };
        taken.then_some(())
    }

    #[inline]
    unsafe fn unlock_upgradable(&self, (): ()) {
        self.leave_upgradable(Release); // (B)
    }

    #[inline]
    unsafe fn unlock_upgradable_fair(&self, (): ()) {
        self.leave_to_head();
        self.leave_upgradable(Release); // (B)
    }

    #[inline]
    unsafe fn upgrade_within(&self, (): (), timeout: Timeout) -> Result<(), ()> {
        if self.becomes_writer(timeout) { Ok(()) } else { Err(()) }
    }

    #[inline]
    unsafe fn downgrade_upgradable(&self, (): ()) {
        // Another upgradable reader may wait at the head. Release: it comes after the caller's upgradable section. (No writer needs that:
        // the caller is still a reader, and (B) is its departure.)
        let before = Bits(self.readers.fetch_sub(UPGRADABLE - READER, Release));
        check(before);
        if before.has(PARKED) {
            unpark::<M>(&raw const self.readers);
        }
    }

    #[inline]
    unsafe fn downgrade_to_upgradable(&self, (): ()) {
        // A newcomer that has announced itself finds the writer, and takes that back.
        while self.readers.fetch_or(UPGRADABLE, Relaxed) & UPGRADABLE != 0 {
            let gone = |readers: u32| !Bits(readers).has(UPGRADABLE);
            Naps::until::<M, _, _>(&self.readers, Timeout::Never, gone);
        }
        // SAFETY: the caller holds the lock for writing.
        unsafe { self.unlock_write(()) };
    }
}

// SAFETY: a recursive reader enters as a reader does, or beside an upgradable reader that does not write yet (U).
unsafe impl<M: Machine, P: Policy> RawRecursive for RawShflRw<M, P> {
    #[inline]
    fn read_recursive_within(&self, timeout: Timeout, watch: &dyn Fn()) -> Option<()> {
        loop {
            let Err(read) = self.enter_recursive() else { return Some(()) };
            if !read {
                // A writer is inside, and no reader: the caller waits like any other.
                return match timeout {
                    Timeout::Immediate => None,
                    Timeout::At(deadline) => self.read_watching(Some(deadline), watch),
                    Timeout::Never => self.read_watching(None, watch),
                };
            }
            // The writer, or the reader, is about to withdraw, so the caller must not wait in the queue.
            let open = |word| admits_recursive_reader(Bits(word));
            if M::spin_for(&self.word, Relaxed, WITHDRAWAL, open).is_none() {
                watch();
                if !Naps::until::<M, _, _>(&self.word, timeout, open) {
                    return None;
                }
            }
        }
    }
}

// SAFETY: CLAIMED is a hint, and the release is that of `RawRwLock`.
unsafe impl<M: Machine, P: Policy> RawFair for RawShflRw<M, P> {
    #[inline]
    fn is_awaited(&self) -> bool {
        !self.is_queue_empty()
    }

    #[inline]
    unsafe fn unlock_read_fair(&self, (): ()) {
        self.leave_to_head();
        // SAFETY: the caller holds the lock for reading.
        unsafe { self.unlock_read(()) };
    }

    #[inline]
    unsafe fn unlock_write_fair(&self, (): ()) {
        self.leave_to_head();
        // SAFETY: the caller holds the lock for writing.
        unsafe { self.unlock_write(()) };
    }
}
