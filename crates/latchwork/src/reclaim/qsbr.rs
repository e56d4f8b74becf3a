//! Quiescent-state-based RCU: sections cost nothing.
//!
//! Source: McKenney, Hart, Walpole, "Practical Concerns for Scalable Synchronization", 2005, section
//! 2.5; the "QSBR" flavour of Desnoyers et al., TPDS 2012, section 3.2.
//!
//! A thread that has a reader is *online*: it may be in a section at any time. A grace period waits until the thread
//! announces a quiescent state ([`Reader::quiescent`]), or goes offline ([`Reader::offline`]). Neither the beginning nor
//! the end of a section compiles to anything. Guards borrow the reader, so announcing a quiescent state while there is a
//! guard is a compile error. A thread may have a second reader, with guards of its own; then its quiescent states count
//! for nothing until one of the readers is dropped.
//!
//! State of a record's `online`: (time of the last quiescent state, whether the thread vouches for others, readers);
//! 0 readers is offline. Only the thread itself writes the word:
//!
//! | state | the next state |
//! |---|---|
//! | offline | online, stamped with the clock, when the thread makes a reader or comes back online |
//! | online at a time | online at a later time, in a quiescent state after the clock has advanced; offline, when the last reader is dropped or goes offline |
//! | online, vouching for a time | online at a later time, as above |
//!
//! A quiescent state is two loads if no grace period has begun since the last one. Else it is a store and a full fence;
//! therefore the grace period needs no heavy one. Then it is a look at up to four other threads, and one more store, if
//! the thread can vouch for them (`tree`). Atomic read-modify-writes: none.
//!
//! What pairs with what: (B) the advance of the clock with the load in `announce` and `go_online`; (C) the full fence of
//! `stamp` with that of the leader; (E) the stores of the word with the leader's load, and with that of a thread above in
//! the tree.
//!
//! An online thread that announces no quiescent state holds up all reclamation.
//!
//! ```compile_fail,E0502
//! use latchwork::machine::Native;
//! use latchwork::reclaim::{Reader, Reclaim, qsbr::QsbrDomain};
//!
//! let domain = QsbrDomain::<Native>::new_in();
//! let mut reader = domain.reader();
//! let guard = reader.enter();
//! reader.quiescent(); // what the guard protects may be reclaimed now
//! drop(guard);
//! ```

use super::domain::{Domain, Flavour};
use super::grace::{Grace, Stamps};
use super::section::{exit, nest};
use super::strategy::{Guard, Info, Reader};
use super::tree::{self, ALL};
use crate::machine::record::{self, Clocks, Kept, NESTING, Record, Records};
use crate::machine::{Group, Machine, Native, Word, or_abort};
use core::marker::PhantomData;
use core::sync::atomic::Ordering::*;

/// QSBR as a flavour of [`Domain`]. See the [module documentation](self).
#[derive(Copy, Clone, Debug)]
pub struct Qsbr;

// SAFETY: readers stamp `online` with `grace`, and issue a full fence after that (`stamp`). A thread vouches for those
// below it after it has looked at each (`announce`).
unsafe impl Stamps for Qsbr {
    const FULL_FENCES: bool = true;
    const TREE: bool = true;

    #[inline(always)]
    fn word<M: Machine>(record: &Record<M>) -> &M::U64 {
        &record.online
    }

    #[inline(always)]
    fn clock<M: Machine>(clocks: &Clocks<M>) -> &M::U64 {
        &clocks.grace
    }

    fn reached<M: Machine>(clocks: &Clocks<M>) -> Option<&M::U64> {
        Some(&clocks.reached[1])
    }
}

// SAFETY: a `QsbrReader` keeps its thread online, with a stamp; `Grace` looks at the stamps of all threads.
unsafe impl Flavour for Qsbr {
    const INFO: Info = Info {
        name: "qsbr",
        summary: "quiescent-state-based RCU: sections cost nothing, threads announce quiescent states",
        reader: "nothing; a quiescent state now and then",
        atomics: 0,
        bound: "the limit, for threads that announce quiescent states",
        source: "McKenney et al. 2005, section 2.5",
    };
    type Periods<M: Records> = Grace<M, Self>;
    type Reader<'d, M: Records> = QsbrReader<'d, M>;

    fn reader<M: Records>(domain: &Domain<M, Self>) -> QsbrReader<'_, M> {
        QsbrReader::new(domain)
    }
}

/// A domain of quiescent-state-based RCU. In an online thread, waiting of any kind goes through
/// [`Reader::offline`].
pub type QsbrDomain<M> = Domain<M, Qsbr>;

impl QsbrDomain<Native> {
    /// A domain without garbage, in a constant.
    pub const fn new() -> Self {
        Self::with(Grace::native())
    }
}

/// A thread that is online. See [`Reclaim::reader`](super::Reclaim::reader).
pub struct QsbrReader<'d, M: Records> {
    domain: &'d QsbrDomain<M>,
    record: Kept<M>,
    /// The record's place in the tree: its group, and its index there.
    place: Option<(&'static Group<M, Record<M>>, usize)>,
}

/// A section. See the [module documentation](self).
pub struct QsbrGuard<'r, M> {
    reader: PhantomData<(&'r M, *mut ())>,
}

impl<'d, M: Records> QsbrReader<'d, M> {
    fn new(domain: &'d QsbrDomain<M>) -> Self {
        let record = Kept::new();
        go_online::<M>(&record.get().online);
        let place = M::place(record.get());
        QsbrReader { domain, record, place }
    }

    /// A quiescent state of which the thread's word does not tell yet: for this thread, or for those below it in the tree.
    #[cold]
    #[inline(never)]
    fn announce(&self) {
        let online = &self.record.get().online;
        let word = online.load(Relaxed);
        // With a second reader of this thread, which may have guards, this is no quiescent state.
        if word & NESTING != 1 {
            return;
        }
        let now = record::clocks::<M>().grace.load(Acquire); // (B)
        if word != now {
            stamp::<M>(online, now);
        }
        let clock = || record::clocks::<M>().grace.load(Relaxed);
        if self.place.is_some_and(|(group, place)| tree::reached(group, place, now, &clock)) {
            // (E) pairs with the loads of the leader, and of the thread above.
            online.store(now | ALL, Release);
        }
    }
}

/// Counts one more reader of the calling thread, which goes online if it was offline.
fn go_online<M: Records>(online: &M::U64) {
    if !nest::<M>(online, "32767 readers of a thread: they are leaked") {
        stamp::<M>(online, record::clocks::<M>().grace.load(Acquire));
    }
}

/// Says that the thread keeps no reference to anything it has read before `now`.
#[inline(always)]
fn stamp<M: Records>(online: &M::U64, now: u64) {
    // (E) what the thread has read before happens before what a thread does that sees this stamp.
    online.store(now, Release);
    // (C) pairs with the leader's full fence after the advance of the clock: the leader sees this stamp, or this thread
    // sees what was removed before the advance.
    M::full_fence();
}

impl<M: Records> Drop for QsbrReader<'_, M> {
    fn drop(&mut self) {
        exit::<M>(&self.record.get().online);
    }
}

// SAFETY: a retired object is reclaimed when every thread that was online has been in a quiescent state, in which the
// thread has no guard: `quiescent` and `offline` borrow the reader mutably (`Grace` waits for that).
unsafe impl<M: Records> Guard for QsbrGuard<'_, M> {
    type Machine = M;

    #[inline(always)]
    fn protect<T: Send + Sync + 'static>(&self, _: usize, from: &M::Ptr<T>) -> *mut T {
        from.load(Acquire)
    }
}

impl<M: Records> Reader for QsbrReader<'_, M> {
    type Machine = M;
    type Guard<'r>
        = QsbrGuard<'r, M>
    where
        Self: 'r;

    #[inline(always)]
    fn enter(&self) -> QsbrGuard<'_, M> {
        QsbrGuard { reader: PhantomData }
    }

    #[inline(always)]
    fn quiescent(&mut self) {
        // Nothing to do if the word says so of the current time already, for this thread and for those below it.
        if self.record.get().online.load(Relaxed) ^ record::clocks::<M>().grace.load(Relaxed) != ALL {
            self.announce();
        }
        if self.domain.is_pressed() {
            let domain = self.domain;
            self.offline(|| domain.throttle_outside());
        }
    }

    fn offline<R>(&mut self, work: impl FnOnce() -> R) -> R {
        struct Online<'a, M: Records>(&'a Record<M>);
        impl<M: Records> Drop for Online<'_, M> {
            fn drop(&mut self) {
                // The reader is still there, and has guards again from here on. If it cannot be counted, because the thread
                // has made too many others meanwhile, nothing would wait for them.
                or_abort(|| go_online::<M>(&self.0.online));
            }
        }
        let record = self.record.get();
        exit::<M>(&record.online);
        let _then = Online(record);
        work()
    }
}
