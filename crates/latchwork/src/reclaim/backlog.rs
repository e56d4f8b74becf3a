//! The garbage: objects that were retired and are not reclaimed yet.
//!
//! Each thread that retires has a [list](super::list) of its own in the domain, by the number of its record: it
//! retires, and reclaims what is due, with plain instructions, and no object moves from one processor's cache to
//! another's. The domain has one more list, of who holds the [`Gate`]: there go the objects of others that somebody
//! needs to have reclaimed (`barrier`), or that their threads have left alone for a while.
//!
//! A thread has its list as in a biased lock. It marks the list as busy, with a store and a light fence, and looks
//! whether it has been stopped. Who takes from it (*steals*; only under the gate) stops it, issues the heavy fence,
//! and waits until it is not busy, or leaves it alone if it may not wait. A thread whose list is stopped does not
//! wait, but pushes what it retires onto a shared stack, with atomic instructions, until the theft is over.
//!
//! Lists belong to the domain and end with it; threads have nothing that points to them. The list of a thread that
//! exits is that of the next with its record, and what is in it is stolen after a millisecond, as that of a thread
//! that has stopped retiring. In the child of a fork, a busy mark of a thread that is not there says so by the
//! number of its process.
//!
//! States of a list: free (busy is 0) -> busy (its thread; (A), (B)) -> free; stopped (A) -> free and stopped ->
//! empty (C) -> free. Size: 24 bytes per object, inside of it; 128 bytes per list. Atomics per retired object: none;
//! 2 in a list that is stopped.

use super::garbage::{Garbage, Limit};
use super::gate::{Gate, Held};
use super::header::Header;
use super::list::{Amount, List, Mine, is_busy};
use crate::machine::record::{self, Records};
use crate::machine::{Arith, Clock, Deadline, Machine, Word};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr::{null_mut, slice_from_raw_parts_mut};
use core::sync::atomic::Ordering::*;

/// Nanoseconds after which what has come in may be stolen by who is not told to wait.
const LEFT_ALONE: u64 = 1 << 20;

/// Objects that a thread retires before it does something about them, where the limit allows it: enough to be worth a
/// heavy fence, which interrupts all other threads for longer than retiring a hundred objects takes.
const LARGEST_BATCH: u32 = 512;

/// Lists in the first chunk, a power of two; each chunk is twice as large as the one before.
const FIRST: u32 = 4;
const CHUNKS: usize = 24;

/// What was retired while its thread's list was stopped.
struct Stack<M: Machine> {
    newest: M::Ptr<Header>,
    amount: M::U64,
}

/// What who holds the gate writes to.
#[repr(align(128))]
struct Central<M: Machine> {
    gate: Gate<M>,
    list: List<M>,
}

pub(super) struct Backlog<M: Machine> {
    chunks: [M::Ptr<List<M>>; CHUNKS],
    limit: [M::U64; 2],
    /// See [`batch`](Self::batch).
    batch: M::U32,
    stack: Stack<M>,
    central: Central<M>,
}

/// Who holds the gate, and the list that belongs to it.
pub(super) struct Collecting<'a, M: Records> {
    backlog: &'a Backlog<M>,
    _held: Held<'a, M>,
}

/// Which lists are stolen.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) enum Steal {
    /// All; waits for who is busy.
    All,
    /// All lists that are not busy; the thread that steals waits for none.
    Free,
    /// All, of a domain that nobody else uses any more: without a fence.
    Last,
    /// Those that have been left alone; waits for nobody.
    Old,
}

/// The chunk of a record's number, and where in it. A record without a number (0) is in none.
#[inline(always)]
fn locate(number: u32) -> (usize, usize) {
    let at = number.wrapping_add(FIRST - 1);
    let chunk = at.checked_ilog2().unwrap_or(0);
    (chunk.wrapping_sub(FIRST.ilog2()) as usize, (at ^ (1 << chunk)) as usize)
}

fn length(chunk: usize) -> usize {
    (FIRST as usize) << chunk
}

/// Objects in a batch, with such a limit: few enough that some tens of threads with almost a batch each are below it, or
/// they would wait for each other's garbage all the time.
fn batch(limit: &Limit) -> u32 {
    let share = (limit.objects / 32).clamp(16, u64::from(LARGEST_BATCH)) as u32;
    1 << share.ilog2()
}

impl<M: Records> Backlog<M> {
    pub(super) fn new() -> Self {
        let limit = Limit::default();
        Backlog {
            chunks: core::array::from_fn(|_| M::Ptr::new(null_mut())),
            limit: [M::U64::new(limit.objects), M::U64::new(limit.bytes)],
            batch: M::U32::new(batch(&limit)),
            stack: Stack { newest: M::Ptr::new(null_mut()), amount: M::U64::new(0) },
            central: Central { gate: Gate::new(), list: List::new() },
        }
    }

    /// The list of the record with this number.
    #[inline(always)]
    fn list(&self, number: u32) -> Option<&List<M>> {
        let (chunk, at) = locate(number);
        // (D) pairs with `make`.
        let mut first = self.chunks.get(chunk)?.load(Acquire);
        if first.is_null() {
            first = self.make(chunk);
        }
        // SAFETY: chunks are so long, and there as long as the domain.
        Some(unsafe { &*first.add(at) })
    }

    /// Makes a chunk, after those before it.
    #[cold]
    #[inline(never)]
    fn make(&self, chunk: usize) -> *mut List<M> {
        if let Some(before) = chunk.checked_sub(1)
            && self.chunks[before].load(Relaxed).is_null()
        {
            self.make(before);
        }
        let new: Vec<_> = (0..length(chunk)).map(|_| List::<M>::new()).collect();
        let new = Box::into_raw(new.into_boxed_slice());
        // (D) who sees the chunk sees its lists, and the chunks before.
        match self.chunks[chunk].compare_exchange(null_mut(), new.cast(), AcqRel, Acquire) {
            Ok(_) => new.cast(),
            Err(first) => {
                // SAFETY: made above and given to nobody.
                drop(unsafe { Box::from_raw(new) });
                first
            }
        }
    }

    fn lists(&self) -> impl Iterator<Item = &List<M>> {
        // (D)
        let chunks = self.chunks.iter().map(|first| first.load(Acquire)).take_while(|first| !first.is_null());
        chunks.enumerate().flat_map(|(chunk, first)| {
            // SAFETY: as in `list`.
            (0..length(chunk)).map(move |at| unsafe { &*first.add(at) })
        })
    }

    /// The calling thread's list, which is the caller's until the guard is dropped. `None`: somebody takes what is
    /// in it.
    #[inline(always)]
    pub(super) fn mine(&self) -> Option<Mine<'_, M>> {
        Mine::new(self.list(record::own::<M>().number.load(Relaxed))?)
    }

    /// Whether the caller is an object that is being reclaimed right now.
    pub(super) fn is_mine(&self) -> bool {
        let (chunk, at) = locate(record::own::<M>().number.load(Relaxed));
        // (D)
        let first = self.chunks.get(chunk).map(|first| first.load(Acquire)).filter(|first| !first.is_null());
        // SAFETY: as in `list`.
        self.central.gate.is_mine() || first.is_some_and(|first| is_busy(unsafe { &*first.add(at) }))
    }

    /// After how many objects of its own a thread does something about them: a power of two.
    #[inline(always)]
    pub(super) fn batch(&self) -> u32 {
        self.batch.load(Relaxed)
    }

    /// Adds a retired object. Whether a batch of so many, a power of two, is full with it.
    #[inline]
    pub(super) fn push(&self, object: *mut Header, batch: u32) -> bool {
        let count = match self.mine() {
            Some(mine) => mine.push(object),
            None => self.push_shared(object),
        };
        count & (batch - 1) == 0 // a variable, and division is slow
    }

    /// Adds an object to the stack. Returns how many are there with it.
    #[cold]
    #[inline(never)]
    fn push_shared(&self, object: *mut Header) -> u32 {
        let stack = &self.stack;
        // SAFETY: the object is alive, and the caller's until it is pushed.
        let header = unsafe { &*object };
        // Before it is pushed: taking it subtracts this.
        let before = Amount(stack.amount.fetch_add(Amount::of(header).0, Relaxed));
        let mut newest = stack.newest.load(Relaxed);
        loop {
            header.set_next(newest);
            // (E) pairs with the exchange in `steal`: the header, and the object's removal.
            match stack.newest.compare_exchange(newest, object, Release, Relaxed) {
                Ok(_) => break,
                Err(now) => newest = now,
            }
        }
        before.objects() + 1
    }

    /// How many objects were retired while lists were stopped, and lie there.
    pub(super) fn stacked(&self) -> u32 {
        Amount(self.stack.amount.load(Relaxed)).objects()
    }

    pub(super) fn lock(&self) -> Collecting<'_, M> {
        self.lock_until(None).expect("without a deadline, the gate is waited for")
    }

    /// `None`: the deadline has passed, and another thread is still collecting.
    pub(super) fn lock_until(&self, deadline: Option<Deadline>) -> Option<Collecting<'_, M>> {
        Some(Collecting { backlog: self, _held: self.central.gate.lock(deadline)? })
    }

    pub(super) fn try_lock(&self) -> Option<Collecting<'_, M>> {
        Some(Collecting { backlog: self, _held: self.central.gate.try_lock()? })
    }

    fn amounts(&self) -> impl Iterator<Item = Amount> {
        let lists = self.lists().chain([&self.central.list]).map(List::amount);
        lists.chain([Amount(self.stack.amount.load(Relaxed))])
    }

    /// Whether there is more than there may be.
    pub(super) fn is_over_limit(&self) -> bool {
        let (objects, bytes) = self
            .amounts()
            .fold((0, 0), |(objects, bytes), a| (objects + u64::from(a.objects()), bytes + a.bytes()));
        objects > self.limit[0].load(Relaxed) || bytes > self.limit[1].load(Relaxed)
    }

    pub(super) fn set_limit(&self, limit: Limit) {
        self.limit[0].store(limit.objects, Relaxed);
        self.limit[1].store(limit.bytes, Relaxed);
        self.batch.store(batch(&limit), Relaxed);
    }

    pub(super) fn garbage(&self) -> Garbage {
        let mut garbage = Garbage::default();
        for amount in self.amounts() {
            garbage.objects += u64::from(amount.objects());
            garbage.bytes += amount.bytes();
        }
        let oldest = self.lists().chain([&self.central.list]).filter_map(List::oldest).min();
        garbage.oldest_nanos = oldest.map_or(0, |since| M::now(Clock::Monotonic).saturating_sub(since));
        garbage
    }
}

impl<M: Records> Collecting<'_, M> {
    /// The list of who holds the gate.
    pub(super) fn list(&self) -> &List<M> {
        &self.backlog.central.list
    }

    /// Has what others have retired come in on the list of who holds the gate. `false`: the operating system
    /// refuses the heavy fence, so that it stays where it is.
    pub(super) fn steal(&self, which: Steal) -> bool {
        let then = M::now(Clock::Monotonic).saturating_sub(LEFT_ALONE);
        let (mut stolen, all) = (0, || self.backlog.lists());
        for list in all() {
            // (F) pairs with the stores to the amount: if it is 0, all that was in the list is reclaimed. What a
            // thread that a fork has not taken along had stopped is set free.
            let wanted = which != Steal::Old || list.is_left_alone_since(then);
            if list.is_stopped() || wanted && !list.is_empty() {
                list.stop();
                stolen += 1;
            }
        }
        // (A) pairs with the light fence in `Mine::new`.
        let fenced = stolen == 0 || which == Steal::Last || M::heavy_fence();
        for list in all().filter(|list| stolen > 0 && list.is_stopped()) {
            if fenced && list.wait_until_free(matches!(which, Steal::All | Steal::Last)) {
                self.list().put_all(list);
            }
            list.go_on();
        }
        if !self.backlog.stack.newest.load(Relaxed).is_null() {
            // (E)
            let first = self.backlog.stack.newest.swap(null_mut(), Acquire);
            let amount = self.list().put(first, M::now(Clock::Monotonic));
            self.backlog.stack.amount.fetch_sub(amount.0, Relaxed);
        }
        fenced
    }
}

impl<M: Machine> Drop for Backlog<M> {
    fn drop(&mut self) {
        for (chunk, first) in self.chunks.iter().enumerate() {
            let first = first.load(Acquire);
            if !first.is_null() {
                // SAFETY: from `make`, which made it so long; nobody uses the domain any more.
                drop(unsafe { Box::from_raw(slice_from_raw_parts_mut(first, length(chunk))) });
            }
        }
    }
}
