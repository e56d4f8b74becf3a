//! CST's reader-writer lock: a yardstick of the kernel's micro-benchmarks (figures 9b and 9c of ShflLock).
//!
//! Source: Kashyap, Min and Kim, "Scalable NUMA-aware Blocking Synchronization Primitives", USENIX ATC 2017, as
//! Kashyap et al., SOSP 2019, describe it (sections 2 and 6.1): a hierarchical blocking lock with a reader indicator per
//! socket, which is allocated when the socket's first reader comes.
//!
//! Writers take the mutex, close the gate and wait until no socket has readers inside. A reader counts itself in
//! on its socket and then looks at the gate; if that is closed, it counts itself out, spins a little, and at last
//! queues for the mutex like a writer, but leaves the gate open.
//!
//! Difference from the paper: there the readers of a socket sleep together, here one by one in the mutex. In the figures all
//! threads read, or all write.
//!
//! | word | written by |
//! |---|---|
//! | `gate`: OPEN, CLOSED | the holder of the mutex |
//! | an indicator's `readers`: readers inside, and in bit 31 whether a writer sleeps until there are none | readers of the socket; the writer |

use crate::data::Line;
use latchwork::locks::mutex::cst::RawCst;
use latchwork::locks::mutex::{Info, RawMutex, Suspension};
use latchwork::locks::rwlock::RawRwLock;
use latchwork::machine::{Arith, Machine, QNode, Word, node_view};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::Ordering::*;

const SOCKETS: usize = 8;
const OPEN: u32 = 0;
const CLOSED: u32 = 1;
/// In an indicator: the writer sleeps.
const ASLEEP: u32 = 1 << 31;
/// Looks at one word before a writer sleeps, or a reader queues.
const LOOKS: u32 = 1024;

/// The lock. See the [module documentation](self).
pub struct CstRw<M: Machine> {
    mutex: RawCst<M>,
    gate: Line<M::U32>,
    indicators: Line<[M::Ptr<QNode<M>>; SOCKETS]>,
}

node_view! {
    /// The read indicator of a socket, in a node of the pool.
    struct Indicator {
        /// Readers inside, and ASLEEP if a writer sleeps until there are none.
        readers: words[0],
    }
}

impl<M: Machine> Drop for CstRw<M> {
    fn drop(&mut self) {
        for indicator in &*self.indicators {
            let indicator = indicator.load(Relaxed);
            if !indicator.is_null() {
                // SAFETY: taken in `indicator`, and nobody uses the lock any more.
                unsafe { M::release_node(&*indicator) };
            }
        }
    }
}

impl<M: Machine> CstRw<M> {
    /// That of the calling thread's socket.
    fn indicator(&self) -> Indicator<'static, M> {
        let slot = &self.indicators[M::numa_node() as usize % SOCKETS];
        let mut found = slot.load(Acquire);
        if found.is_null() {
            let new = Indicator(M::acquire_node());
            new.readers().store(0, Relaxed);
            // (B) sequentially consistent too: a writer that does not see the indicator is seen at the gate.
            found = match slot.compare_exchange(null_mut(), new.as_ptr(), SeqCst, Acquire) {
                Ok(_) => new.as_ptr(),
                Err(other) => {
                    // SAFETY: taken above and never published.
                    unsafe { M::release_node(new.0) };
                    other
                }
            };
        }
        // SAFETY: it stays until the lock is dropped.
        unsafe { Indicator::at(found) }
    }

    /// The indicators that there are.
    fn indicators(&self) -> impl Iterator<Item = &M::U32> {
        // (B), acquire: initialised.
        let found = self.indicators.iter().map(|indicator| indicator.load(SeqCst));
        // SAFETY: it stays until the lock is dropped.
        found
            .filter(|indicator| !indicator.is_null())
            .map(|indicator| unsafe { Indicator::at(indicator) }.readers())
    }

    fn depart(count: &M::U32) {
        // (C) pairs with the writer's looks. The lock may be gone when the wake comes, which uses the
        // address only; the indicator is from type-stable memory.
        if count.fetch_sub(1, Release) == ASLEEP | 1 {
            M::wake(count, 1);
        }
    }

    /// Counts the caller in, unless a writer has the gate.
    fn enter(&self, count: &M::U32) -> bool {
        // (B) Dekker pair with `write`: a reader counts itself in and then looks at the gate, a writer closes
        // the gate and then looks at the counts, so one sees the other. Acquire: the last writer's section.
        count.fetch_add(1, SeqCst);
        if self.gate.load(SeqCst) == OPEN {
            return true;
        }
        Self::depart(count);
        false
    }

    #[cold]
    fn read_slow(&self, count: &M::U32) {
        // (D) pairs with the store in `unlock_write`.
        if M::spin_for(&self.gate.0, Acquire, LOOKS, |gate| gate == OPEN).is_some() && self.enter(count) {
            return;
        }
        let token = self.mutex.lock();
        // Only the holder of the mutex closes the gate; the next holder sees this reader counted, through the mutex.
        count.fetch_add(1, Relaxed);
        // SAFETY: the token is from above.
        unsafe { self.mutex.unlock(token) };
    }

    fn await_readers(count: &M::U32) {
        // (B), (C)
        if count.load(SeqCst) == 0 || M::spin_for(count, Acquire, LOOKS, |readers| readers == 0).is_some() {
            return;
        }
        count.fetch_or(ASLEEP, Relaxed);
        loop {
            match count.load(Acquire) {
                ASLEEP => break, // (C)
                readers => M::wait(count, readers, None),
            };
        }
        count.fetch_and(!ASLEEP, Relaxed);
    }
}

// SAFETY: writers hold the mutex, and wait for readers (B); (C), (D) and the mutex order the sections.
unsafe impl<M: Machine> RawRwLock for CstRw<M> {
    type Machine = M;
    type Read = NonNull<QNode<M>>;
    type Write = <RawCst<M> as RawMutex>::Token;
    type Counted = Self;
    const INFO: Info = Info {
        name: "cst-rw",
        summary: "CST's reader-writer lock",
        atomics: 2,
        waiter_bytes: 64,
        holder_bytes: 0,
        fairness: "writers as in cst; a reader that has waited for a while queues with them",
        blocking: true,
        suspension: Suspension::Blocks,
        source: "Kashyap, Min and Kim 2017",
    };

    fn new_in() -> Self {
        let none = |_| M::Ptr::new(null_mut());
        CstRw {
            mutex: RawCst::new_in(),
            gate: Line(M::U32::new(OPEN)),
            indicators: Line(std::array::from_fn(none)),
        }
    }

    fn read(&self) -> Self::Read {
        let indicator = self.indicator();
        if !self.enter(indicator.readers()) {
            self.read_slow(indicator.readers());
        }
        NonNull::from(indicator.0)
    }

    fn try_read(&self) -> Option<Self::Read> {
        let indicator = self.indicator();
        self.enter(indicator.readers()).then_some(NonNull::from(indicator.0))
    }

    unsafe fn unlock_read(&self, indicator: Self::Read) {
        // SAFETY: it stays until the lock is dropped.
        Self::depart(unsafe { Indicator::at(indicator.as_ptr()) }.readers());
    }

    fn write(&self) -> Self::Write {
        let token = self.mutex.lock();
        self.gate.store(CLOSED, SeqCst); // (B)
        self.indicators().for_each(Self::await_readers);
        token
    }

    fn try_write(&self) -> Option<Self::Write> {
        let token = self.mutex.try_lock()?;
        self.gate.store(CLOSED, SeqCst); // (B)
        // (C)
        if self.indicators().all(|count| count.load(SeqCst) == 0) {
            return Some(token);
        }
        // SAFETY: as if we had written.
        unsafe { self.unlock_write(token) };
        None
    }

    unsafe fn unlock_write(&self, token: Self::Write) {
        self.gate.store(OPEN, Release); // (D)
        // SAFETY: the token is the mutex's.
        unsafe { self.mutex.unlock(token) };
    }

    fn is_locked(&self) -> bool {
        self.is_write_locked() || self.indicators().any(|count| count.load(Relaxed) != 0)
    }

    fn is_write_locked(&self) -> bool {
        self.gate.load(Relaxed) == CLOSED
    }
}
