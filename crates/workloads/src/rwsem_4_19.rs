//! The kernel's reader-writer semaphore of Linux 4.19 and 4.20, which the papers measured: a yardstick beside the library's
//! `rwsem`, which is a later kernel's.
//!
//! Source: Linux 4.19, `kernel/locking/rwsem.c`, `rwsem-xadd.c` and `include/linux/rwsem.h`.
//!
//! One counter holds the threads inside and a large negative bias while threads wait. A reader adds itself; if the counter is
//! negative, it goes to sleep at once: readers do not spin. A writer whose addition finds another thread inside spins in a
//! queue while a writer has the semaphore (*optimistic spinning*), and then sleeps. A thread that leaves wakes the first
//! waiter: a writer, which then competes, or all readers in front of the first writer, which are inside when they wake.
//!
//! | `count` | meaning |
//! |---|---|
//! | 0 | free, no waiter |
//! | X > 0 | X readers, no waiter |
//! | WAITING | free, waiters |
//! | WAITING + 1 | one writer and no waiter, or one reader and waiters |
//! | WAITING + X | X readers inside, and waiters (or readers that are about to turn back) |
//! | 2 WAITING + 1 | one writer, and waiters |
//!
//! A writer adds WAITING + 1. `owner` is the writer's number, READERS, or 0. In Linux 4.19 a reader writes `owner` only if it
//! does not say READERS yet. In 4.20 each reader writes its own number there, which moves the line: BRAVO's authors found that
//! (section 4), and their "stock" is 4.20.
//!
//! (A) A release of `count` is acquired by the next holder. (L) The list's lock. (B) The wake of a reader that is inside; its
//! section comes after the release.
//!
//! Size: 48 bytes; 64 per waiter, on its stack; none per holder.
//! Fairness: writers steal; there is no handover.
//! Suspension: blocks.
//!
//! Where it differs from the kernel: a thread cannot know here whether the owner is running, so a spin ends after `SPINS`
//! looks at one owner.

use latchwork::locks::mutex::osq::{Osq, Spinner};
use latchwork::locks::rwlock::{Info, RawRwLock, Suspension};
use latchwork::machine::{Arith, Machine, Word};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::*;

/// A thread that is inside, or tries.
const ACTIVE: isize = 1;
/// Threads wait, or a writer is inside.
const WAITING: isize = -(1 << 32);
const WRITER: isize = WAITING + ACTIVE;
const ACTIVE_MASK: isize = (1 << 32) - 1;

/// The value of `owner` while readers are inside. No thread has this number.
const READERS: usize = usize::MAX;
/// In `owner`, beside the number of a reader of 4.20.
const BY_READER: usize = 1 << (usize::BITS - 1);

/// Looks of a spinner at one owner.
const SPINS: u32 = 1024;
/// Looks of a spinner that queues for its turn to spin.
const QUEUE_LOOKS: u32 = 1 << 14;

const ASLEEP: u32 = 0;
/// The writer competes; the reader is inside.
const WOKEN: u32 = 1;

/// A waiter, on its stack.
#[repr(C, align(64))]
struct Waiter<M: Machine> {
    next: M::Ptr<Waiter<M>>,
    before: M::Ptr<Waiter<M>>,
    status: M::U32,
    writes: bool,
}

/// The semaphore; `EACH`: each reader writes `owner`. See the [module documentation](self).
pub struct RwSem4<M: Machine, const EACH: bool> {
    /// An `isize`.
    count: M::Usize,
    owner: M::Usize,
    spinners: Osq<M>,
    list: M::U32,
    first: M::Ptr<Waiter<M>>,
    last: M::Ptr<Waiter<M>>,
}

impl<M: Machine, const EACH: bool> RwSem4<M, EACH> {
    fn count(&self) -> isize {
        self.count.load(Relaxed) as isize
    }

    /// Adds, with (A), and returns the new value.
    fn add(&self, delta: isize) -> isize {
        (self.count.fetch_add(delta as usize, AcqRel) as isize).wrapping_add(delta)
    }

    fn exchange(&self, from: isize, to: isize) -> bool {
        self.count.compare_exchange(from as usize, to as usize, Acquire, Relaxed).is_ok() // (A)
    }

    /// A reader is inside.
    fn note_reader(&self) {
        if EACH {
            self.owner.store(M::thread_id() | BY_READER, Relaxed);
        } else if self.owner.load(Relaxed) != READERS {
            self.owner.store(READERS, Relaxed);
        }
    }

    fn lock_list(&self) {
        // (L)
        while self.list.swap(1, Acquire) != 0 {
            M::spin_until(&self.list, Relaxed, |held| held == 0);
        }
    }

    fn unlock_list(&self) {
        self.list.store(0, Release); // (L)
    }

    /// Appends a waiter; whether it is the only one. The caller has the list.
    fn append(&self, waiter: &Waiter<M>) -> bool {
        let (this, last) = (std::ptr::from_ref(waiter).cast_mut(), self.last.load(Relaxed));
        waiter.before.store(last, Relaxed);
        // SAFETY: waiters keep their nodes while they are in the list, which the caller has.
        match unsafe { last.as_ref() } {
            Some(last) => last.next.store(this, Relaxed),
            None => self.first.store(this, Relaxed),
        }
        self.last.store(this, Relaxed);
        last.is_null()
    }

    /// Takes a waiter out. The caller has the list.
    fn remove(&self, waiter: &Waiter<M>) {
        let (before, next) = (waiter.before.load(Relaxed), waiter.next.load(Relaxed));
        // SAFETY: as for `append`.
        unsafe {
            match before.as_ref() {
                Some(before) => before.next.store(next, Relaxed),
                None => self.first.store(next, Relaxed),
            }
            match next.as_ref() {
                Some(next) => next.before.store(before, Relaxed),
                None => self.last.store(before, Relaxed),
            }
        }
    }

    /// `__rwsem_mark_wake`: chooses the first waiter if it writes and `any`, or lets the readers in front enter. The caller has
    /// the list, and wakes them when it has it no more.
    fn choose(&self, any: bool) -> Chosen<M> {
        // SAFETY: as for `append`.
        let Some(first) = (unsafe { self.first.load(Relaxed).as_ref() }) else { return Chosen::Nobody };
        if first.writes {
            if !any {
                return Chosen::Nobody;
            }
            // While the caller has the list, the writer cannot leave. Afterwards only the address is used.
            first.status.store(WOKEN, Release);
            return Chosen::Writer(&raw const first.status);
        }
        // A writer may be inside by stealing: then it wakes them when it leaves.
        while self.add(ACTIVE) - ACTIVE < WAITING {
            if self.add(-ACTIVE) < WAITING {
                return Chosen::Nobody;
            }
        }
        self.note_reader();
        let mut readers = 0;
        // SAFETY: as for `append`.
        while let Some(reader) = unsafe { self.first.load(Relaxed).as_ref() }.filter(|first| !first.writes) {
            self.remove(reader);
            readers += 1;
        }
        let bias = if self.first.load(Relaxed).is_null() { WAITING } else { 0 };
        let adjustment = ACTIVE * readers - ACTIVE - bias;
        if adjustment != 0 {
            self.add(adjustment);
        }
        Chosen::Readers(first, readers)
    }

    /// `rwsem_wake`.
    #[cold]
    fn wake(&self) {
        self.lock_list();
        let chosen = self.choose(true);
        self.unlock_list();
        chosen.wake();
    }

    #[cold]
    fn read_slow(&self) {
        let waiter = Waiter::<M>::new(false);
        self.lock_list();
        let only = self.append(&waiter);
        let count = self.add(if only { WAITING - ACTIVE } else { -ACTIVE });
        // No thread is inside, or only readers are and this is the first waiter: nobody else would wake it.
        let chosen =
            if count == WAITING || count > WAITING && only { self.choose(true) } else { Chosen::Nobody };
        self.unlock_list();
        chosen.wake();
        // (B) pairs with the store in `wake`.
        while waiter.status.load(Acquire) == ASLEEP {
            M::wait(&waiter.status, ASLEEP, None);
        }
    }

    /// `rwsem_try_write_lock_unqueued`.
    fn steal(&self) -> bool {
        loop {
            let count = self.count();
            if count != 0 && count != WAITING {
                return false;
            }
            if self.exchange(count, count + WRITER) {
                self.owner.store(M::thread_id(), Relaxed);
                return true;
            }
        }
    }

    /// `rwsem_optimistic_spin`: unless the last to enter were readers.
    fn spin(&self) -> bool {
        let by_readers = |owner: usize| owner & BY_READER != 0;
        if by_readers(self.owner.load(Relaxed)) {
            return false;
        }
        let node = Spinner(M::acquire_node());
        let mut taken = false;
        // SAFETY: the node was taken above.
        if unsafe { self.spinners.enter(node, M::patience(QUEUE_LOOKS)) } {
            // The looks at no owner: a writer is between its two steps, or has been preempted there.
            let mut looks = M::patience(SPINS);
            while looks > 0 {
                let owner = self.owner.load(Relaxed);
                if by_readers(owner) {
                    break;
                }
                if owner == 0 {
                    looks -= 1;
                } else {
                    let now = M::spin_for(&self.owner, Relaxed, M::patience(SPINS), |now| now != owner);
                    if now.is_none_or(by_readers) {
                        break;
                    }
                }
                if self.steal() {
                    taken = true;
                    break;
                }
                M::pause(1);
            }
            // SAFETY: the node is at the head: `enter` has said so.
            unsafe { self.spinners.leave(node) };
        }
        // SAFETY: taken above, and unlinked.
        unsafe { M::release_node(node.0) };
        taken
    }

    #[cold]
    fn write_slow(&self) {
        self.add(-WRITER);
        if self.spin() {
            return;
        }
        let waiter = Waiter::<M>::new(true);
        self.lock_list();
        if self.append(&waiter) {
            self.add(WAITING);
        } else if self.count() > WAITING {
            // No writer is inside: readers that wait may enter.
            let chosen = self.choose(false);
            self.unlock_list();
            chosen.wake();
            self.lock_list();
        }
        loop {
            // `rwsem_try_write_lock`: no thread is inside, and the list is not empty.
            let alone = self.first.load(Relaxed) == self.last.load(Relaxed);
            let new = if alone { WRITER } else { WRITER + WAITING };
            if self.count() == WAITING && self.exchange(WAITING, new) {
                break;
            }
            self.unlock_list();
            loop {
                // Acquire: the counter as the thread left it that has set WOKEN last.
                while waiter.status.swap(ASLEEP, Acquire) == ASLEEP {
                    M::wait(&waiter.status, ASLEEP, None);
                }
                if self.count() & ACTIVE_MASK == 0 {
                    break;
                }
            }
            self.lock_list();
        }
        self.owner.store(M::thread_id(), Relaxed);
        self.remove(&waiter);
        self.unlock_list();
    }
}

/// Waiters that are to be woken.
enum Chosen<M: Machine> {
    Nobody,
    /// Its status, which says so already.
    Writer(*const M::U32),
    /// The first of so many that are inside. Their `next` are as they were in the list.
    Readers(*const Waiter<M>, isize),
}

impl<M: Machine> Chosen<M> {
    fn wake(self) {
        match self {
            Chosen::Nobody => (),
            Chosen::Writer(status) => drop(M::wake(status, 1)),
            Chosen::Readers(mut reader, count) => {
                for _ in 0..count {
                    // SAFETY: a reader keeps its node until its status is set. Afterwards only the address is used.
                    unsafe {
                        let next = (*reader).next.load(Relaxed);
                        let status = &raw const (*reader).status;
                        (*status).store(WOKEN, Release); // (B)
                        M::wake(status, 1);
                        reader = next;
                    }
                }
            }
        }
    }
}

impl<M: Machine> Waiter<M> {
    fn new(writes: bool) -> Self {
        Waiter {
            next: M::Ptr::new(null_mut()),
            before: M::Ptr::new(null_mut()),
            status: M::U32::new(ASLEEP),
            writes,
        }
    }
}

// SAFETY: a writer enters by an exchange from a counter without a thread inside, and a reader whose addition finds a negative
// counter turns back; (A), (B) and (L) order the sections.
unsafe impl<M: Machine, const EACH: bool> RawRwLock for RwSem4<M, EACH> {
    type Machine = M;
    type Read = ();
    type Write = ();
    type Counted = Self;
    const INFO: Info = Info {
        name: if EACH { "rwsem-4.20" } else { "rwsem-4.19" },
        summary: "the rwsem of Linux 4.19 or 4.20: readers sleep at once, writers spin on a writer",
        atomics: 2,
        waiter_bytes: 64,
        holder_bytes: 0,
        fairness: "writers steal",
        blocking: true,
        suspension: Suspension::Blocks,
        source: "Linux 4.19 and 4.20, rwsem-xadd.c",
    };

    fn new_in() -> Self {
        RwSem4 {
            count: M::Usize::new(0),
            owner: M::Usize::new(0),
            spinners: Osq::new_in(),
            list: M::U32::new(0),
            first: M::Ptr::new(null_mut()),
            last: M::Ptr::new(null_mut()),
        }
    }
    fn read(&self) {
        if self.add(ACTIVE) <= 0 {
            self.read_slow();
        }
        self.note_reader();
    }
    fn try_read(&self) -> Option<()> {
        loop {
            let count = self.count();
            if count < 0 {
                return None;
            }
            if self.exchange(count, count + ACTIVE) {
                self.note_reader();
                return Some(());
            }
        }
    }
    unsafe fn unlock_read(&self, (): ()) {
        // (A). The last thread that leaves, with waiters.
        let count = self.add(-ACTIVE);
        if count < -1 && count & ACTIVE_MASK == 0 {
            self.wake();
        }
    }
    fn write(&self) {
        if self.add(WRITER) == WRITER {
            self.owner.store(M::thread_id(), Relaxed);
        } else {
            self.write_slow();
        }
    }
    fn try_write(&self) -> Option<()> {
        let taken = self.count() == 0 && self.exchange(0, WRITER);
        if taken {
            self.owner.store(M::thread_id(), Relaxed);
        }
        taken.then_some(())
    }
    unsafe fn unlock_write(&self, (): ()) {
        self.owner.store(0, Relaxed);
        // (A)
        if self.add(-WRITER) < 0 {
            self.wake();
        }
    }
    fn is_locked(&self) -> bool {
        self.count() & ACTIVE_MASK != 0
    }
    fn is_write_locked(&self) -> bool {
        let owner = self.owner.load(Relaxed);
        owner != 0 && owner & BY_READER == 0
    }
}
