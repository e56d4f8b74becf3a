//! The reader-writer lock of the GNU C library (`pthread_rwlock_t`), of the default kind.
//!
//! # Source
//!
//! glibc 2.25 and later, `nptl/pthread_rwlock_common.c` (T. Riegel), written anew from the algorithm that its comments
//! describe. BRAVO over it is the BRAVO-pthread of Dice and Kogan, USENIX ATC 2019, section 5. This is the model for all
//! machines; in the preloaded library `bravo-glibc` and `bravo-2d-glibc` call the C library's own functions.
//!
//! # Idea
//!
//! The lock is in a *read phase* or a *write phase*, and stays in it when it becomes free. Every reader adds itself to the
//! count. In a read phase it is inside then, whether a writer waits or not: readers have preference, and may read again. A
//! writer first becomes the *primary* writer, one at a time. It starts a write phase if no reader is counted; otherwise the
//! last reader that leaves starts the write phase for it. A writer that leaves starts a read phase if readers are counted.
//!
//! No waiter spins. A waiter that the others know of (a counted reader, a primary writer) proceeds only when the thread that
//! has started its phase has also changed the word `phase`, the last word that this thread touches. So the waiter may
//! destroy the lock.
//!
//! # States
//!
//! | `readers` | state | which thread leaves it, and to where |
//! |---|---|---|
//! | 0 | free, read phase | a reader: one more reader; a writer: WRITER |
//! | n readers | n readers are inside | the same |
//! | WRITER | a writer is about to start a write phase | that writer: WRITER + WRITE_PHASE; a reader gets in before it |
//! | WRITER, n readers | n readers are inside and a writer waits | the last reader: WRITER + WRITE_PHASE; the writer, at its deadline: n readers |
//! | WRITE_PHASE | free, write phase | a reader: n readers; a writer: WRITER + WRITE_PHASE |
//! | WRITE_PHASE, n readers | n readers wait, and one of them is about to start a read phase | that reader: n readers |
//! | WRITER + WRITE_PHASE, n readers | a writer is inside, and n readers wait | the writer: n readers, or WRITE_PHASE if n is 0 |
//!
//! `phase` follows WRITE_PHASE: 1 in a write phase. `writers` is 1 while there is a primary writer. Both have SLEEPERS if
//! threads may sleep at them.
//!
//! # Orderings
//!
//! (A) The thread that ends a write phase, or gives up WRITER, releases `readers`; threads that enter acquire it. (B) A reader
//! leaves with release; the writer acquires. (C) The thread that changes `phase` for another one does that after its own section:
//! it releases the change, and the waiter, which may destroy the lock next, acquires it. No other access needs an order: a
//! thread that has seen its phase in `readers` reads `phase` once more, and then sees the change that belongs to that phase
//! or a later one.
//!
//! # Where it differs from glibc
//!
//! - The kinds that prefer writers are missing, with the word `__writers` by which writers hand over to one another; so is
//!   the detection of a writer that locks again. Too many readers end the process. (glibc's return EAGAIN.)
//! - `phase` is changed with release and read with acquire. (glibc's is relaxed, which does not order the change before the
//!   waiter's destruction of the lock in the C11 memory model. On x86-64 both are the same instructions.)
//! - A thread that finds a word between two of its changes spins for the other thread, and then offers its processor. (glibc's
//!   spins on, and livelocks if the other thread has a lower real-time priority.)
//! - A writer that finds a free lock in a read phase changes it with one compare-and-exchange. (glibc's first one fails,
//!   because it compares with the value before its own bit.)
//!
//! # Properties
//!
//! - Size: 12 bytes (glibc's: 56); none per waiter or holder.
//! - Atomic read-modify-writes per uncontended pair: 2 of a reader; 3 of a writer, and 1 more for the first of a write phase.
//! - Fairness: none between readers and writers: readers that overlap keep writers out for ever. Among writers, newcomers
//!   pass those that sleep.
//! - Suspension: a reader or writer that is suspended after its phase was started for it blocks the others.
//! - Re-entry: a reader may read again with [`read`](RawRwLock::read): it never waits for a writer that waits.

use super::{ConstNew, Info, MOST_READERS, RawRwLock, Suspension, too_many_readers};
use crate::machine::{Arith, Deadline, Machine, Native, Offers, Wait, Word};
use core::sync::atomic::{AtomicU32, Ordering::*};

// In `readers`.
const WRITE_PHASE: u32 = 1;
const WRITER: u32 = 1 << 1;
const READER: u32 = 1 << 3;
/// More readers than there can be.
const TOO_MANY: u32 = MOST_READERS * READER;

/// In `phase` and `writers`: threads may sleep at the word.
const SLEEPERS: u32 = 1 << 1;

/// The rwlock of glibc. See the [module documentation](self).
#[repr(C)]
pub struct RawGlibcRw<M: Machine> {
    readers: M::U32,
    phase: M::U32,
    writers: M::U32,
}

impl RawGlibcRw<Native> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawGlibcRw { readers: AtomicU32::new(0), phase: AtomicU32::new(0), writers: AtomicU32::new(0) }
    }
}

const_new!(RawGlibcRw<Native>);

impl<M: Machine> RawGlibcRw<M> {
    // Readers.

    #[inline]
    fn read_within(&self, deadline: Option<Deadline>) -> bool {
        let readers = self.readers.fetch_add(READER, Acquire); // (A)
        readers & (WRITE_PHASE | TOO_MANY) == 0 || self.read_slow(readers.wrapping_add(READER), deadline)
    }

    /// A counted reader has found a write phase.
    #[cold]
    #[inline(never)]
    fn read_slow(&self, mut readers: u32, deadline: Option<Deadline>) -> bool {
        if readers & TOO_MANY != 0 {
            too_many_readers();
        }
        while readers & (WRITE_PHASE | WRITER) == WRITE_PHASE {
            // (A)
            match self.readers.compare_exchange(readers, readers ^ WRITE_PHASE, Acquire, Relaxed) {
                Ok(_) => {
                    self.open(0);
                    return true;
                }
                Err(now) => readers = now,
            }
        }
        let in_read_phase = |readers| readers & WRITE_PHASE == 0;
        self.wait_for_phase(0, in_read_phase, deadline, || self.give_up_read())
    }

    /// Takes a counted reader back, unless the read phase has begun.
    fn give_up_read(&self) -> bool {
        let mut readers = self.readers.load(Acquire); // (A)
        while readers & WRITE_PHASE != 0 {
            match self.readers.compare_exchange(readers, readers - READER, Relaxed, Acquire) {
                Ok(_) => return true,
                Err(now) => readers = now,
            }
        }
        false
    }

    // Writers.

    fn write_within(&self, deadline: Option<Deadline>) -> bool {
        let mut readers = self.readers.fetch_or(WRITER, Acquire); // (A), (B)
        let mut sleepers = 0;
        if readers & WRITER != 0 {
            match self.become_primary(readers, deadline) {
                Some(primary) => (readers, sleepers) = primary,
                None => return false,
            }
        }
        self.writers.store(1 | sleepers, Relaxed);
        if readers & WRITE_PHASE != 0 {
            return true;
        }
        readers |= WRITER;
        while readers & WRITE_PHASE == 0 && readers < READER {
            // (A), (B)
            match self.readers.compare_exchange(readers, readers | WRITE_PHASE, Acquire, Relaxed) {
                Ok(_) => {
                    self.phase.store(1, Relaxed);
                    return true;
                }
                Err(now) => readers = now,
            }
        }
        self.wait_for_phase(1, |readers| readers & WRITE_PHASE != 0, deadline, || self.give_up_write())
    }

    /// Waits until no other thread is the primary writer, and becomes it. Returns `readers` at that time, and the bit for
    /// `writers` that says whether other threads may sleep there. `None`: the deadline has passed.
    #[cold]
    #[inline(never)]
    fn become_primary(&self, mut readers: u32, deadline: Option<Deadline>) -> Option<(u32, u32)> {
        let (mut sleepers, mut offers) = (0, Offers::new());
        loop {
            if readers & WRITER == 0 {
                // (A), (B)
                match self.readers.compare_exchange(readers, readers | WRITER, Acquire, Relaxed) {
                    Ok(_) => return Some((readers, sleepers)),
                    Err(now) => readers = now,
                }
                continue;
            }
            if self.may_sleep(&self.writers, 1) {
                // Other threads rely on the bit too, so it stays in the word when this thread is the primary writer.
                sleepers = SLEEPERS;
                if M::wait(&self.writers, 1 | SLEEPERS, deadline) == Wait::TimedOut {
                    return None;
                }
            } else {
                offers.pause::<M>();
            }
            readers = self.readers.load(Relaxed);
        }
    }

    /// Gives up being the primary writer, unless the write phase has begun.
    fn give_up_write(&self) -> bool {
        let mut readers = self.readers.load(Acquire); // (B)
        if readers & WRITE_PHASE != 0 {
            return false;
        }
        let writers = self.writers.swap(0, Relaxed);
        while readers & WRITE_PHASE == 0 {
            // (A) The next primary writer sees the change of `writers`.
            match self.readers.compare_exchange(readers, readers ^ WRITER, Release, Acquire) {
                Ok(_) => {
                    if writers & SLEEPERS != 0 {
                        M::wake(&raw const self.writers, 1);
                    }
                    return true;
                }
                Err(now) => readers = now,
            }
        }
        self.writers.store(writers, Relaxed);
        false
    }

    // Phases.

    /// Changes `phase`, after the thread has changed the phase in `readers`. The threads that wait for it proceed.
    fn open(&self, phase: u32) {
        let address = &raw const self.phase;
        if self.phase.swap(phase, Release) & SLEEPERS != 0 {
            // (C)
            M::wake(address, u32::MAX);
        }
    }

    /// Waits until the phase in `readers` is the wanted one, and `phase` says so. `false`: the deadline has passed and
    /// `give_up` has succeeded.
    #[cold]
    #[inline(never)]
    fn wait_for_phase(
        &self,
        wanted: u32,
        is_in: impl Fn(u32) -> bool,
        deadline: Option<Deadline>,
        give_up: impl Fn() -> bool,
    ) -> bool {
        let (mut seen, mut offers) = (false, Offers::new());
        loop {
            while self.phase.load(Acquire) & !SLEEPERS != wanted {
                // (C)
                if self.may_sleep(&self.phase, 1 - wanted)
                    && M::wait(&self.phase, (1 - wanted) | SLEEPERS, deadline) == Wait::TimedOut
                {
                    if give_up() {
                        return false;
                    }
                    M::spin_until(&self.phase, Acquire, |phase| phase & !SLEEPERS == wanted); // (C)
                    return true;
                }
            }
            if seen {
                return true;
            }
            // (A), (B) `phase` may be that of an earlier phase of the same kind. Once the wanted phase is seen here, `phase`
            // is at least as new as that phase's predecessor.
            seen = is_in(self.readers.load(Acquire));
            if !seen {
                offers.pause::<M>();
            }
        }
    }

    /// Sets SLEEPERS in a word that has the value `closed`. `false`: it has another one.
    fn may_sleep(&self, word: &M::U32, closed: u32) -> bool {
        let now = word.load(Relaxed);
        now == closed | SLEEPERS
            || now == closed && word.compare_exchange(closed, closed | SLEEPERS, Relaxed, Relaxed).is_ok()
    }
}

// SAFETY: a writer is inside in a write phase with WRITER, which one thread at a time has set; a reader is inside in a read
// phase. A write phase begins only when no reader is counted, and ends when the writer leaves. (A) and (B) order the
// sections.
unsafe impl<M: Machine> RawRwLock for RawGlibcRw<M> {
    type Machine = M;
    type Read = ();
    type Write = ();
    type Counted = Self;
    const INFO: Info = Info {
        name: "glibc-rw-model",
        summary: "the rwlock of the C library: phases, reader preference, no spinning",
        atomics: 2,
        waiter_bytes: 0,
        holder_bytes: 0,
        fairness: "readers pass waiting writers, for ever if they overlap",
        blocking: true,
        suspension: Suspension::Blocks,
        source: "glibc 2.25, nptl/pthread_rwlock_common.c",
    };
    const PREFERS_READERS: bool = true;

    fn new_in() -> Self {
        RawGlibcRw { readers: M::U32::new(0), phase: M::U32::new(0), writers: M::U32::new(0) }
    }

    #[inline]
    fn read(&self) {
        self.read_within(None);
    }

    fn try_read(&self) -> Option<()> {
        let mut readers = self.readers.load(Relaxed);
        loop {
            if readers & (WRITE_PHASE | WRITER) == WRITE_PHASE | WRITER {
                return None;
            }
            if readers & TOO_MANY != 0 {
                too_many_readers();
            }
            let next = (readers + READER) & !WRITE_PHASE;
            match self.readers.compare_exchange(readers, next, Acquire, Relaxed) {
                Ok(_) => break, // (A)
                Err(now) => readers = now,
            }
        }
        if readers & WRITE_PHASE != 0 {
            self.open(0);
        }
        Some(())
    }

    fn read_until(&self, deadline: Deadline) -> Option<()> {
        self.read_within(Some(deadline)).then_some(())
    }

    #[inline]
    unsafe fn unlock_read(&self, (): ()) {
        let mut readers = self.readers.load(Relaxed);
        loop {
            let mut next = readers - READER;
            if next == WRITER {
                next |= WRITE_PHASE;
            }
            // (B) Acquire: the first reader's change of `phase` comes before this one.
            match self.readers.compare_exchange(readers, next, AcqRel, Relaxed) {
                Ok(_) if next & WRITE_PHASE != 0 => return self.open(1),
                Ok(_) => return,
                Err(now) => readers = now,
            }
        }
    }

    #[inline]
    fn write(&self) {
        self.write_within(None);
    }

    fn try_write(&self) -> Option<()> {
        let mut readers = self.readers.load(Relaxed);
        while readers & WRITER == 0 && readers < READER {
            // (A), (B)
            match self.readers.compare_exchange(readers, WRITE_PHASE | WRITER, Acquire, Relaxed) {
                Ok(_) => {
                    self.writers.store(1, Relaxed);
                    if readers & WRITE_PHASE == 0 {
                        self.phase.store(1, Relaxed);
                    }
                    return Some(());
                }
                Err(now) => readers = now,
            }
        }
        None
    }

    fn write_until(&self, deadline: Deadline) -> Option<()> {
        self.write_within(Some(deadline)).then_some(())
    }

    unsafe fn unlock_write(&self, (): ()) {
        let address = &raw const self.writers;
        let sleepers = self.writers.swap(0, Relaxed) & SLEEPERS != 0;
        let mut readers = self.readers.load(Relaxed);
        loop {
            let next = if readers < READER { WRITE_PHASE } else { readers & !(WRITE_PHASE | WRITER) };
            match self.readers.compare_exchange(readers, next, Release, Relaxed) {
                Ok(_) => break, // (A)
                Err(now) => readers = now,
            }
        }
        if readers >= READER {
            self.open(0);
        }
        if sleepers {
            M::wake(address, 1);
        }
    }

    fn is_locked(&self) -> bool {
        let readers = self.readers.load(Relaxed);
        readers & WRITE_PHASE == 0 && readers >= READER || self.is_write_locked()
    }

    fn is_write_locked(&self) -> bool {
        self.readers.load(Relaxed) & (WRITE_PHASE | WRITER) == WRITE_PHASE | WRITER
    }
}
