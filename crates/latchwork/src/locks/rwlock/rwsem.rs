//! The reader-writer semaphore of the Linux kernel: a counter, a queue, and optimistic spinning.
//!
//! # Source
//!
//! `kernel/locking/rwsem.c` of Linux 5.x. The reader-owned field is as in Dice and Kogan, "BRAVO: Biased Locking for
//! Reader-Writer Locks", USENIX ATC 2019, section 4.
//!
//! # Idea
//!
//! One word counts readers, and says whether there is a writer and whether threads wait. A reader adds itself, and takes
//! that back if there is a writer or a waiter. A writer takes the word whenever no thread is inside, past the waiters
//! (*stealing*). Before a writer queues, it spins while another writer is inside (*optimistic spinning on the owner*). Behind
//! that is a queue of sleepers.
//!
//! # States
//!
//! | `word` | meaning | set by | cleared by |
//! |---|---|---|---|
//! | WRITER (bit 0) | held for writing | the writer | the writer |
//! | WAITERS (bit 1) | there is a queue: readers queue, and attempts to read fail | the head of the queue | the head, when it enters or gives up |
//! | HANDOFF (bit 2) | the head has waited for too long: writers queue too, and attempts to write fail | the head | the head, likewise |
//! | bits 3 to 31 | readers inside, or about to turn back | each reader adds one | and subtracts it |
//!
//! `owner` is the number of the writing thread, or READERS. A reader writes it only if it does not say READERS yet. (In the
//! kernel, before BRAVO's authors mended it, each reader wrote it and moved the cache line for nothing.)
//!
//! # Orderings
//!
//! (A) A writer leaves, or becomes a reader, with release; the threads that enter next acquire. (B) A reader leaves with release;
//! the writer that enters next acquires.
//!
//! # Where it differs from the kernel
//!
//! - *The queue is a lock.* The kernel has a list of waiters under a spin lock. Here waiters queue for the blocking mutex
//!   [`shfl`](crate::locks::mutex::shfl). Its holder is the head, and sleeps at the word. So readers enter one after the
//!   other, not all at once. A release touches no list: it wakes an address.
//! - A thread cannot know here whether the owner is running, so the spin is bounded: by 1024 looks at one owner, and by 4 ms or the
//!   deadline while owners change.
//! - A lock that many readers hold is closed to optimistic spinners until the readers are gone, not for ever.
//!
//! # Properties
//!
//! - Size: 32 bytes; 64 per waiter, as `shfl`; none per holder.
//! - Atomic read-modify-writes per uncontended pair: 2.
//! - Fairness: writers pass all other threads for 4 ms at most; readers pass none. A recursive read passes all waiters.
//! - Suspension: a waiter that is suspended blocks others.
//! - Re-entry: a reader that reads again with [`read`](RawRwLock::read) while a thread waits deadlocks with that thread; it
//!   must use [`RawRecursive`].

use super::{
    ConstNew, Info, MOST_READERS, RawDowngrade, RawRecursive, RawRwLock, Suspension, Timeout,
    too_many_readers,
};
use crate::locks::mutex::RawMutex;
use crate::locks::mutex::shfl::RawShfl;
use crate::machine::{Arith, Clock, Deadline, Machine, Native, Word};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering, Ordering::*};

const WRITER: u32 = 1;
const WAITERS: u32 = 1 << 1;
const HANDOFF: u32 = 1 << 2;
const READER: u32 = 1 << 3;
const COUNT: u32 = !(READER - 1);
/// More readers than there can be.
const TOO_MANY: u32 = MOST_READERS * READER;

/// The value of `owner` while readers are inside. No thread has this number.
const READERS: usize = usize::MAX;

/// Looks of an optimistic spinner at the owner: a bound, as it cannot know whether the owner runs.
const SPINS: u32 = 1024;
/// Looks of the head at the word before it sleeps: some microseconds.
const LOOKS: u32 = 256;
/// Nanoseconds after which the head is not passed any more (`RWSEM_WAIT_TIMEOUT`), and a spinner queues.
const WAIT_TIMEOUT: u64 = 4_000_000;

/// Reader-writer semaphore. See the [module documentation](self).
#[repr(C)]
pub struct RawRwSem<M: Machine> {
    word: M::U32,
    owner: M::Usize,
    queue: RawShfl<M>,
}

impl RawRwSem<Native> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawRwSem { word: AtomicU32::new(0), owner: AtomicUsize::new(0), queue: RawShfl::new() }
    }
}

const_new!(RawRwSem<Native>);

impl<M: Machine> RawRwSem<M> {
    /// Adds the calling reader, unless `word` has one of the bits `keeps_out`.
    #[inline]
    fn enter_read(&self, keeps_out: u32) -> bool {
        // (A) pairs with the release in `unlock_write`.
        let before = self.word.fetch_add(READER, Acquire);
        if before & (keeps_out | TOO_MANY) != 0 {
            if before & TOO_MANY != 0 {
                too_many_readers();
            }
            self.leave(READER, Relaxed);
            return false;
        }
        // All readers write the same value, so one of them is enough.
        if self.owner.load(Relaxed) != READERS {
            self.owner.store(READERS, Relaxed);
        }
        true
    }

    /// Takes the word for writing and clears the bits `drop`, unless a reader, a writer or one of the bits `keeps_out` is there.
    #[inline]
    fn enter_write(&self, keeps_out: u32, drop: u32) -> bool {
        let mut word = self.word.load(Relaxed);
        while word & (keeps_out | WRITER | COUNT) == 0 {
            // (A), and (B) pairs with the subtraction in `unlock_read`.
            match self.word.compare_exchange(word, (word | WRITER) & !drop, Acquire, Relaxed) {
                Ok(_) => {
                    self.owner.store(M::thread_id(), Relaxed);
                    return true;
                }
                Err(now) => word = now,
            }
        }
        false
    }

    /// Subtracts a reader or writer. Another thread may then free the lock, so the sleeping head is woken by the word's address.
    ///
    /// A writer wakes the head even beside readers. They may be about to turn back, and the head may be a reader, which sleeps only
    /// until the writer leaves. A head that writes sleeps again, until the last of them has left.
    #[inline]
    fn leave(&self, unit: u32, order: Ordering) {
        let address = &raw const self.word;
        let before = self.word.fetch_sub(unit, order);
        if before & WAITERS != 0 && (unit == WRITER || (before - unit) & (COUNT | WRITER) == 0) {
            M::wake(address, 1);
        }
    }

    /// Spins while writers are inside, and takes the word when it is free. Gives up if one writer stays for long, after
    /// [`WAIT_TIMEOUT`], and at the deadline.
    fn spin_on_owner(&self, deadline: Option<Deadline>) -> bool {
        let end = Deadline::after::<M>(WAIT_TIMEOUT);
        loop {
            if self.enter_write(HANDOFF, 0) {
                return true;
            }
            let owner = self.owner.load(Relaxed);
            if owner == READERS || self.word.load(Relaxed) & HANDOFF != 0 {
                return false;
            }
            if M::spin_for(&self.owner, Relaxed, SPINS, |now| now != owner).is_none()
                || end.passed::<M>()
                || deadline.is_some_and(|deadline| deadline.passed::<M>())
            {
                return false;
            }
        }
    }

    /// Waits to be the head of the queue. `false`: the deadline has passed.
    fn queue_up(&self, deadline: Option<Deadline>) -> bool {
        match deadline {
            None => {
                self.queue.lock();
                true
            }
            Some(deadline) => self.queue.lock_until(deadline).is_some(),
        }
    }

    /// The head of the queue waits until the word is `open` and it can `enter`; `false` after the deadline.
    fn wait_as_head(
        &self,
        deadline: Option<Deadline>,
        open: fn(u32) -> bool,
        enter: impl Fn() -> bool,
    ) -> bool {
        let start = M::now(Clock::Monotonic);
        let mut handed_off = false;
        self.word.fetch_or(WAITERS, Relaxed);
        loop {
            if M::spin_for(&self.word, Relaxed, LOOKS, open).is_some() && enter() {
                return true;
            }
            if deadline.is_some_and(|deadline| deadline.passed::<M>()) {
                self.word.fetch_and(!(WAITERS | HANDOFF), Relaxed);
                return false;
            }
            if !handed_off && M::now(Clock::Monotonic).saturating_sub(start) > WAIT_TIMEOUT {
                handed_off = true;
                self.word.fetch_or(HANDOFF, Relaxed);
            }
            let word = self.word.load(Relaxed);
            if !open(word) {
                M::wait(&self.word, word, deadline);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn read_slow(&self, deadline: Option<Deadline>) -> bool {
        if !self.queue_up(deadline) {
            return false;
        }
        let entered = self.wait_as_head(deadline, |word| word & WRITER == 0, || self.enter_read(WRITER));
        if entered {
            self.word.fetch_and(!(WAITERS | HANDOFF), Relaxed);
        }
        // SAFETY: `queue_up` acquired the mutex.
        unsafe { self.queue.unlock(()) };
        entered
    }

    #[cold]
    #[inline(never)]
    fn write_slow(&self, deadline: Option<Deadline>) -> bool {
        if self.spin_on_owner(deadline) {
            return true;
        }
        if !self.queue_up(deadline) {
            return false;
        }
        let open = |word| word & (WRITER | COUNT) == 0;
        let entered = self.wait_as_head(deadline, open, || self.enter_write(0, WAITERS | HANDOFF));
        // SAFETY: `queue_up` acquired the mutex.
        unsafe { self.queue.unlock(()) };
        entered
    }
}

// SAFETY: WRITER is set from a word without readers or writer, and a reader that finds it turns back. (A) and (B) order the
// sections.
unsafe impl<M: Machine> RawRwLock for RawRwSem<M> {
    type Machine = M;
    type Read = ();
    type Write = ();
    type Counted = Self;
    const INFO: Info = Info {
        name: "rwsem",
        summary: "the kernel's reader-writer semaphore: counter, queue, spinning on the owner",
        atomics: 2,
        waiter_bytes: 64,
        holder_bytes: 0,
        fairness: "writers steal for at most 4 ms; readers wait behind any waiter",
        blocking: true,
        suspension: Suspension::Blocks,
        source: "Linux rwsem.c; Dice and Kogan 2019, section 4",
    };

    fn new_in() -> Self {
        RawRwSem { word: M::U32::new(0), owner: M::Usize::new(0), queue: RawShfl::new_in() }
    }

    #[inline]
    fn read(&self) {
        if !self.enter_read(WRITER | WAITERS) {
            self.read_slow(None);
        }
    }

    #[inline]
    fn try_read(&self) -> Option<()> {
        // An attempt that turns back may keep a waiter from seeing a free lock: look first.
        const KEEPS_OUT: u32 = WRITER | WAITERS;
        (self.word.load(Relaxed) & KEEPS_OUT == 0 && self.enter_read(KEEPS_OUT)).then_some(())
    }

    fn read_until(&self, deadline: Deadline) -> Option<()> {
        (self.enter_read(WRITER | WAITERS) || self.read_slow(Some(deadline))).then_some(())
    }

    #[inline]
    unsafe fn unlock_read(&self, (): ()) {
        self.leave(READER, Release); // (B)
    }

    #[inline]
    fn write(&self) {
        if !self.enter_write(WAITERS, 0) {
            self.write_slow(None);
        }
    }

    #[inline]
    fn try_write(&self) -> Option<()> {
        self.enter_write(HANDOFF, 0).then_some(())
    }

    fn write_until(&self, deadline: Deadline) -> Option<()> {
        (self.enter_write(WAITERS, 0) || self.write_slow(Some(deadline))).then_some(())
    }

    #[inline]
    unsafe fn unlock_write(&self, (): ()) {
        self.owner.store(0, Relaxed);
        self.leave(WRITER, Release); // (A)
    }

    fn is_locked(&self) -> bool {
        self.word.load(Relaxed) & (WRITER | COUNT) != 0
    }

    fn is_write_locked(&self) -> bool {
        self.word.load(Relaxed) & WRITER != 0
    }
}

// SAFETY: WRITER becomes a reader in one atomic step.
unsafe impl<M: Machine> RawDowngrade for RawRwSem<M> {
    unsafe fn downgrade(&self, (): ()) {
        self.owner.store(READERS, Relaxed);
        // (A) the section happens before the readers that enter now.
        if self.word.fetch_add(READER - WRITER, Release) & WAITERS != 0 {
            // The head may be a reader. A head that writes sleeps again.
            M::wake(&raw const self.word, 1);
        }
    }
}

// SAFETY: a recursive reader enters unless a writer is inside, and WRITER is set only when no reader is.
unsafe impl<M: Machine> RawRecursive for RawRwSem<M> {
    fn read_recursive_within(&self, timeout: Timeout, _watch: &dyn Fn()) -> Option<()> {
        let entered = self.enter_read(WRITER)
            || match timeout {
                Timeout::Immediate => false,
                // A writer is inside, so no reader is, and the caller waits like any other.
                Timeout::At(deadline) => self.read_slow(Some(deadline)),
                Timeout::Never => self.read_slow(None),
            };
        entered.then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    type Lock = RawRwSem<Native>;

    /// Waits until `condition` holds, which other threads bring about.
    fn until(condition: impl Fn() -> bool) {
        while !condition() {
            thread::yield_now();
        }
    }

    /// Attempts to read that overlap would keep a waiting writer out for ever.
    #[test]
    fn an_attempt_to_read_does_not_pass_a_waiter() {
        let lock = &Lock::new();
        lock.read();
        thread::scope(|scope| {
            scope.spawn(|| {
                lock.write();
                // SAFETY: acquired above.
                unsafe { lock.unlock_write(()) };
            });
            until(|| lock.word.load(Relaxed) & WAITERS != 0);
            let passed = lock.try_read().is_some();
            // The writer is let in before anything can fail here.
            // SAFETY: acquired above.
            unsafe {
                lock.unlock_read(());
                if passed {
                    lock.unlock_read(());
                }
            }
            assert!(!passed, "an attempt has passed a waiting writer");
        });
        assert_eq!(lock.word.load(Relaxed), 0);
        assert!(lock.try_read().is_some(), "nobody waits any more");
    }

    /// Writers may pass waiters, but not the head that was promised the lock.
    #[test]
    fn an_attempt_to_write_does_not_pass_the_promised_head() {
        let lock = Lock::new();
        lock.word.store(WAITERS, Relaxed);
        assert!(lock.try_write().is_some(), "a writer may pass a waiter");
        // SAFETY: acquired above.
        unsafe { lock.unlock_write(()) };
        lock.word.store(WAITERS | HANDOFF, Relaxed);
        assert!(lock.try_write().is_none() && lock.try_read().is_none(), "an attempt has passed the head");
        lock.queue.lock();
        assert!(lock.write_until(Deadline::after::<Native>(0)).is_none(), "a writer has passed the head");
        let passed = AtomicU32::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                lock.write();
                passed.store(1, Relaxed);
                // SAFETY: acquired above.
                unsafe { lock.unlock_write(()) };
            });
            // Long enough for a writer that passes.
            thread::sleep(core::time::Duration::from_millis(5));
            let passed = passed.load(Relaxed) != 0;
            // SAFETY: acquired above.
            unsafe { lock.queue.unlock(()) };
            assert!(!passed, "a writer has passed the head");
        });
        lock.word.store(WAITERS | HANDOFF, Relaxed);
        assert!(lock.write_until(Deadline::after::<Native>(0)).is_some(), "the head itself");
        // SAFETY: acquired above.
        unsafe { lock.unlock_write(()) };
        assert_eq!(lock.word.load(Relaxed), 0);
    }

    /// A head that has waited for long demands that no writer passes it any more.
    #[test]
    fn a_head_demands_the_lock_after_a_while() {
        let lock = &Lock::new();
        lock.read();
        thread::scope(|scope| {
            let head = scope.spawn(|| {
                let in_a_minute = Deadline::after::<Native>(60_000_000_000);
                // SAFETY: acquired in the same expression.
                lock.write_until(in_a_minute).map(|()| unsafe { lock.unlock_write(()) })
            });
            // It looks at the clock when it wakes up.
            until(|| {
                Native::wake(&lock.word, 1);
                lock.word.load(Relaxed) & HANDOFF != 0 || head.is_finished()
            });
            let demands = lock.word.load(Relaxed) & HANDOFF != 0;
            // SAFETY: acquired above.
            unsafe { lock.unlock_read(()) };
            assert!(demands, "the head has waited for a minute");
        });
        assert_eq!(lock.word.load(Relaxed), 0);
    }
}
