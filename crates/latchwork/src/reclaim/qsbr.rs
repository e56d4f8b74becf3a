//! Quiescent-state-based RCU: sections cost nothing.
//!
//! Source: McKenney, Hart, Walpole, "Practical Concerns for Scalable Synchronization", 2005, section
//! 2.5; the "QSBR" flavour of Desnoyers et al., TPDS 2012, section 3.2.
//!
//! A thread that has a reader is *online*: it may be in a section at any time, and a grace period waits
//! until it says that it is not ([`Reader::quiescent`]), or goes offline. Neither the beginning nor the end
//! of a section compiles to anything. Guards borrow the reader, so that saying so while there is one is a
//! compile error; a second reader of the same thread, which may have guards of its own, keeps both online.
//!
//! State of a record's `online`: (time of the last quiescent state, whether it vouches for others, readers); 0 readers
//! is offline. Atomics per section: none, nor per quiescent state: that is two loads, and a store and a full fence if a
//! grace period has begun meanwhile, so that this one needs no heavy fence; then a look at up to four other threads, and
//! one more store ([`tree`]). An online thread that does not announce quiescent states holds up all reclamation.
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
use crate::machine::{Group, Machine, Word};
use core::marker::PhantomData;
use core::sync::atomic::Ordering::*;

/// The flavour. See the [module documentation](self).
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

// SAFETY: readers stamp the time when they go online and in quiescent states, with a full fence (`stamp`), and `Grace`
// looks at all stamps. A thread vouches for those below it after it has looked at each (`announce`).
unsafe impl Flavour for Qsbr {
    const INFO: Info = Info {
        name: "qsbr",
        summary: "quiescent-state-based RCU: sections cost nothing, threads announce quiescent states",
        reader: "nothing; a quiescent state now and then",
        atomics: 0,
        bound: "the limit, for who announces quiescent states",
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

/// A thread that is online. See [`Reclaim::reader`](super::Reclaim::reader).
pub struct QsbrReader<'d, M: Records> {
    domain: &'d QsbrDomain<M>,
    record: Kept<M>,
    /// The record's, in the tree.
    place: Option<(&'static Group<M, Record<M>>, usize)>,
}

/// A section.
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

    /// A quiescent state that has something to say: about this thread, or about those below it in the tree.
    #[cold]
    #[inline(never)]
    fn announce(&self) {
        let online = &self.record.get().online;
        let word = online.load(Relaxed);
        // Another reader of this thread may have guards: then this is nothing.
        if word & NESTING != 1 {
            return;
        }
        let now = record::clocks::<M>().grace.load(Acquire); // (B)
        if word != now {
            stamp::<M>(online, now);
        }
        if self.place.is_some_and(|(group, place)| tree::reached(group, place, now)) {
            // (E) pairs with who relies on it. What is not below it is below others.
            online.store(now | ALL, Release);
        }
    }
}

/// A thread, or one more reader of it, goes online.
fn go_online<M: Records>(online: &M::U64) {
    if !nest::<M>(online, "32767 readers of a thread: they are leaked") {
        stamp::<M>(online, record::clocks::<M>().grace.load(Acquire));
    }
}

/// The only reader of a thread has nothing from before `now`.
#[inline(always)]
fn stamp<M: Records>(online: &M::U64, now: u64) {
    // (B) pairs with the advance of time. (E) what was read before happens before who sees this.
    online.store(now, Release);
    // (C) pairs with the full fence after that: it sees this, or we see what was removed before.
    M::full_fence();
}

impl<M: Records> Drop for QsbrReader<'_, M> {
    fn drop(&mut self) {
        exit::<M>(&self.record.get().online);
    }
}

// SAFETY: an object that was retired is reclaimed when every thread that was online has been in a quiescent
// state, in which it has no guard (`grace`).
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
        // Nothing, where it has said so of this time, for itself and for those below it.
        if self.record.get().online.load(Relaxed) ^ record::clocks::<M>().grace.load(Relaxed) != ALL {
            self.announce();
        }
        if self.domain.is_pressed() {
            let domain = self.domain;
            self.offline(|| domain.relent());
        }
    }

    fn offline<R>(&mut self, work: impl FnOnce() -> R) -> R {
        struct Online<'a, M: Records>(&'a Record<M>);
        impl<M: Records> Drop for Online<'_, M> {
            fn drop(&mut self) {
                go_online::<M>(&self.0.online);
            }
        }
        let record = self.record.get();
        exit::<M>(&record.online);
        let _then = Online(record);
        work()
    }
}
