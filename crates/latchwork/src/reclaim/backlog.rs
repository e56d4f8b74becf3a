//! The garbage: objects that were retired and are not reclaimed yet.
//!
//! Each thread that retires has a [list](super::list) of its own in the domain, found by the number of its record. It
//! retires, and reclaims what is due, with plain instructions, and objects stay in the cache of its processor. The
//! domain has one more list, the *central* one, for the thread that holds the [`Gate`] (the *collector*). The collector
//! moves objects of other threads there: those that it needs to have reclaimed (`barrier`), or that their threads have
//! left alone for a while.
//!
//! A thread takes its own list as one takes a biased lock. It marks the list as busy, with a store and a light fence, and
//! looks whether the list has been stopped. The collector that *steals* from a list stops it, issues the heavy fence, and
//! waits until the list is not busy; if it must not wait, it leaves a busy list alone. A thread whose list is stopped
//! does not wait. It pushes what it retires onto a shared stack, with atomic instructions, until the collector is done.
//!
//! Lists belong to the domain and end with it; threads have no pointers to them. When a thread exits, its list becomes
//! that of the next thread with the same record; what is in it is stolen after a millisecond, as from a thread that has
//! stopped retiring. In the child of a fork, the busy mark of a thread that is not there is known by the number of the
//! process that it holds. What such a thread was moving or reclaiming is lost there. It does not count any more once a thread of
//! the child has collected: the first one counts what is in the central list and on the shared stack ([`Backlog::settle`]).
//!
//! States of a list:
//!
//! | busy | stopped | state | the next state, and who changes it |
//! |---|---|---|---|
//! | no | no | free | busy (its thread); stopped (the collector) |
//! | yes | no | its thread uses it | free (its thread); busy and stopped (the collector) |
//! | yes | yes | its thread uses it, or has just seen that it is stopped | stopped (its thread) |
//! | no | yes | the collector uses it | free (the collector); busy and stopped, for a moment (its thread) |
//!
//! What pairs with what: (A) a thread marks its list busy, fences lightly and loads `stopped`; the collector stores
//! `stopped`, fences heavily and loads `busy`. (B) the thread's release of the list with the collector's load. (C) the
//! collector's `resume` with the thread's load of `stopped`. (D) the publication of a chunk of lists with its loads. (E)
//! the push onto the shared stack with the collector's exchange. (F) the last store of an amount with the load that finds
//! it 0. (G) the end of the count in the child of a fork with the loads of threads that collect, or push onto the stack.
//!
//! Size: 24 bytes per object, inside of it; 128 bytes per list. Atomics per retired object: none; 2 while the list is
//! stopped.

use super::due::{Due, SMALL, Soon};
use super::garbage::{Garbage, Limit};
use super::gate::{Gate, Held};
use super::header::Header;
use super::list::{Amount, List, Mine, amount_of, is_busy};
use crate::machine::record::{self, Records};
use crate::machine::{Clock, Deadline, Machine, Native, Word};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr::{null_mut, slice_from_raw_parts_mut};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, Ordering::*};

/// Nanoseconds after which a collector that must not wait may steal what has come in.
const LEFT_ALONE: u64 = 1 << 20;

/// Objects that a thread retires before it reclaims, if the limit allows that: enough to be worth a heavy fence, which
/// interrupts all other threads for longer than retiring a hundred objects takes.
const LARGEST_BATCH: u32 = 512;

/// Chunks of lists: the first has one, and each has twice as many as the one before. Enough for 67 million threads at a time.
const CHUNKS: usize = 26;

/// Objects that were retired while their thread's list was stopped.
struct Stack<M: Machine> {
    newest: M::Ptr<Header>,
    amount: M::U64,
}

impl<M: Machine> Stack<M> {
    /// Changes how much there is. Returns how much it was.
    fn change(&self, change: impl Fn(Amount) -> Amount, order: Ordering) -> Amount {
        let mut before = self.amount.load(Relaxed);
        while let Err(now) = self.amount.compare_exchange(before, change(Amount(before)).0, order, Relaxed) {
            before = now;
        }
        Amount(before)
    }
}

/// What the collector writes to.
#[repr(align(128))]
struct Central<M: Machine> {
    gate: Gate<M>,
    list: List<M>,
}

/// The garbage of a domain. See the [module documentation](self).
pub(super) struct Backlog<M: Machine> {
    chunks: [M::Ptr<List<M>>; CHUNKS],
    /// See [`Limit`]: objects, and bytes.
    limit: [M::U64; 2],
    /// See [`batch`] and [`adapt`](Self::adapt).
    pub(super) batch: M::U32,
    /// When a thread may reclaim a batch next that is not full ([`due`](super::due)).
    pub(super) soon: Soon<M>,
    stack: Stack<M>,
    /// Twice the number of the process ([`Records::generation`]) in which the amounts of the central list and the shared stack
    /// were right last; with the lowest bit, a thread is counting them.
    settled: M::U32,
    central: Central<M>,
}

/// The collector: it holds the gate, and with it the central list, until this is dropped.
pub(super) struct Collecting<'a, M: Records> {
    backlog: &'a Backlog<M>,
    _held: Held<'a, M>,
}

/// Which lists are stolen.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) enum Steal {
    /// All; the collector waits until each is free.
    All,
    /// All that are not busy; the collector waits for none.
    Free,
    /// All, without a fence: for a domain that no other thread uses any more.
    Last,
    /// Those that have been left alone and are not busy; the collector waits for none.
    Old,
}

/// The chunk of a record's number, and the index there. A record without a number (0) gets a chunk that there is not.
#[inline(always)]
fn locate(number: u32) -> (usize, usize) {
    let chunk = number.checked_ilog2().map_or(CHUNKS, |chunk| chunk as usize);
    (chunk, (number ^ (1 << chunk)) as usize)
}

/// Lists in a chunk.
fn length(chunk: usize) -> usize {
    1 << chunk
}

/// Objects in a batch, with such a limit on objects, while so many lists have garbage. A list has up to two batches: one that
/// comes in, and one that waits. So the lists stay below the limit together. With more than 16 lists, a batch is a 32nd of the
/// limit: a batch for each of some tens of lists stays below it. Else the threads would wait for each other's garbage all
/// the time.
const fn batch(limit: u64, lists: u64) -> u32 {
    let shares = match 2 * lists {
        0 => 2,
        shares @ 1..32 => shares,
        _ => 32,
    };
    match limit / shares {
        0..16 => 16,
        share if share < LARGEST_BATCH as u64 => 1 << share.ilog2(),
        _ => LARGEST_BATCH,
    }
}

impl Backlog<Native> {
    pub(super) const fn native() -> Self {
        let limit = Limit::DEFAULT;
        Backlog {
            chunks: [const { AtomicPtr::new(null_mut()) }; CHUNKS],
            limit: [AtomicU64::new(limit.objects), AtomicU64::new(limit.bytes)],
            batch: AtomicU32::new(batch(limit.objects, 1)),
            soon: Soon::native(),
            stack: Stack { newest: AtomicPtr::new(null_mut()), amount: AtomicU64::new(0) },
            settled: AtomicU32::new(0),
            central: Central { gate: Gate::native(), list: List::native() },
        }
    }
}

impl<M: Records> Backlog<M> {
    pub(super) fn new() -> Self {
        let limit = Limit::default();
        Backlog {
            chunks: core::array::from_fn(|_| M::Ptr::new(null_mut())),
            limit: [M::U64::new(limit.objects), M::U64::new(limit.bytes)],
            batch: M::U32::new(batch(limit.objects, 1)),
            soon: Soon::new(),
            stack: Stack { newest: M::Ptr::new(null_mut()), amount: M::U64::new(0) },
            settled: M::U32::new(0),
            central: Central { gate: Gate::new(), list: List::new() },
        }
    }

    /// The list of the record with this number, if the list has been made.
    #[inline(always)]
    fn made(&self, number: u32) -> Option<&List<M>> {
        let (chunk, at) = locate(number);
        // (D) pairs with the exchange in `make`.
        let first = self.chunks.get(chunk)?.load(Acquire);
        // SAFETY: `locate` gives an index within the chunk. Chunks are freed with the domain.
        (!first.is_null()).then(|| unsafe { &*first.add(at) })
    }

    /// The list of the record with this number.
    #[inline(always)]
    fn list(&self, number: u32) -> Option<&List<M>> {
        self.made(number).or_else(|| {
            let (chunk, at) = locate(number);
            // SAFETY: as in `made`.
            (chunk < CHUNKS).then(|| unsafe { &*self.make(chunk).add(at) })
        })
    }

    /// Makes a chunk, and before that the chunks before it.
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
        // (D) a thread that sees the chunk sees its lists, and the chunks before.
        match self.chunks[chunk].compare_exchange(null_mut(), new.cast(), AcqRel, Acquire) {
            Ok(_) => new.cast(),
            Err(first) => {
                // SAFETY: made above as a box, and no other thread has it.
                drop(unsafe { Box::from_raw(new) });
                first
            }
        }
    }

    /// The lists of all threads.
    fn lists(&self) -> impl Iterator<Item = &List<M>> {
        // (D) pairs with the exchange in `make`.
        let chunks = self.chunks.iter().map(|first| first.load(Acquire)).take_while(|first| !first.is_null());
        chunks.enumerate().flat_map(|(chunk, first)| {
            // SAFETY: the index is within the chunk, which is freed with the domain.
            (0..length(chunk)).map(move |at| unsafe { &*first.add(at) })
        })
    }

    /// The calling thread's list, which is the caller's until the guard is dropped. `None`: the collector steals from it.
    #[inline(always)]
    pub(super) fn mine(&self) -> Option<Mine<'_, M>> {
        Mine::new(self.list(record::own::<M>().number.load(Relaxed))?)
    }

    /// Whether the caller is a destructor that the calling thread runs while it reclaims for this domain.
    pub(super) fn is_reclaiming(&self) -> bool {
        self.central.gate.is_mine() || self.made(record::own::<M>().number.load(Relaxed)).is_some_and(is_busy)
    }

    /// Makes batches as large as the limit and the number of lists with garbage allow; `new` lists more are about to have some.
    pub(super) fn adapt(&self, new: u64) {
        let limit = self.limit[0].load(Relaxed).min(self.limit[1].load(Relaxed) / SMALL as u64);
        // Where the limit allows the largest batch for any number of lists, this looks at none.
        let with_garbage = || self.lists().filter(|list| list.amount().objects() > 0).count() as u64;
        let lists = if limit / 32 < LARGEST_BATCH as u64 { new + with_garbage() } else { 1 };
        let batch = batch(limit, lists);
        // All threads that retire read the word: it is written only if it changes.
        if self.batch.load(Relaxed) != batch {
            self.batch.store(batch, Relaxed);
        }
    }

    /// Adds a retired object. Returns whether it is time to reclaim: with each batch, of at most `most` objects, a power of two; with each
    /// 32nd of the limit on bytes; or after some milliseconds.
    #[inline(always)]
    pub(super) fn push(&self, object: *mut Header, most: u32) -> Due {
        // SAFETY: a retired object is alive, and this thread's alone until it is pushed.
        let header = unsafe { &*object };
        // Here, because the compiler mostly knows it where the object is retired.
        if header.bytes() <= SMALL {
            self.push_small(object, Amount::of(header), most)
        } else {
            self.push_slowly(object, most)
        }
    }

    /// [`push`](Self::push) for a small object. Whatever needs a call is one call at the end, to which all is given in registers: else
    /// the compiler would keep registers on the stack for calls that are hardly ever made.
    #[inline]
    fn push_small(&self, object: *mut Header, amount: Amount, most: u32) -> Due {
        if let Some(list) = record::own_if_any::<M>().and_then(|own| self.made(own.number.load(Relaxed)))
            && let Some(mine) = Mine::new(list)
            && let Some(looks) = mine.push(object, amount)
        {
            return if looks { self.look(mine, most) } else { Due::No };
        }
        self.push_slowly(object, most)
    }

    /// [`push`](Self::push) for a thread without a record or a list, for one whose list is stopped, for the first object of
    /// a batch, and for a large one.
    #[cold]
    #[inline(never)]
    fn push_slowly(&self, object: *mut Header, most: u32) -> Due {
        let Some(mine) = self.mine() else {
            let is_full = self.push_shared(object).is_multiple_of(self.batch.load(Relaxed).min(most));
            return if is_full { Due::Full } else { Due::No };
        };
        // The least that has a meaning: a batch of 16 small objects.
        let share = (self.limit[1].load(Relaxed) / 32).max(16 * SMALL as u64);
        let before = mine.amount().bytes() / share;
        mine.push_first(object, || self.adapt(1));
        let has_a_share = mine.amount().bytes() / share != before;
        match self.look(mine, most) {
            Due::No | Due::Soon if has_a_share => Due::Full,
            due => due,
        }
    }

    /// Adds an object to the shared stack. Returns how many are there with it.
    #[cold]
    #[inline(never)]
    fn push_shared(&self, object: *mut Header) -> u32 {
        self.settle();
        let stack = &self.stack;
        // SAFETY: a retired object is alive, and this thread's alone until it is pushed.
        let header = unsafe { &*object };
        // Before the push: the collector subtracts this when it takes the object.
        let before = stack.change(|amount| amount.plus(Amount::of(header)), Relaxed);
        let mut newest = stack.newest.load(Relaxed);
        loop {
            header.set_next(newest);
            // (E) pairs with the exchange in `steal`: publishes the header, and the object's removal.
            match stack.newest.compare_exchange(newest, object, Release, Relaxed) {
                Ok(_) => break,
                Err(now) => newest = now,
            }
        }
        before.objects() + 1
    }

    /// How many objects are on the shared stack.
    pub(super) fn stacked(&self) -> u32 {
        Amount(self.stack.amount.load(Relaxed)).objects()
    }

    /// Becomes the collector; waits as long as it takes.
    pub(super) fn lock(&self) -> Collecting<'_, M> {
        self.lock_until(None).expect("without a deadline, the gate is waited for")
    }

    /// Becomes the collector. `None`: the deadline has passed, and another thread is still collecting.
    pub(super) fn lock_until(&self, deadline: Option<Deadline>) -> Option<Collecting<'_, M>> {
        self.settle();
        Some(Collecting { backlog: self, _held: self.central.gate.lock(deadline)? })
    }

    /// Becomes the collector, unless another thread is.
    pub(super) fn try_lock(&self) -> Option<Collecting<'_, M>> {
        self.settle();
        Some(Collecting { backlog: self, _held: self.central.gate.try_lock()? })
    }

    /// In the child of a fork, before a thread collects or pushes onto the shared stack: the first such thread counts what is
    /// in the central list and on the stack. The others wait, so that nothing changes meanwhile.
    fn settle(&self) {
        let settled = M::generation() << 1;
        // (G) pairs with the store at the end.
        while self.settled.load(Acquire) != settled {
            self.recount(settled);
        }
    }

    #[cold]
    fn recount(&self, settled: u32) {
        let (word, counting) = (self.settled.load(Relaxed), settled | 1);
        if word == counting {
            M::spin_until(&self.settled, Relaxed, |word| word != counting);
        } else if word != settled && self.settled.compare_exchange(word, counting, Relaxed, Relaxed).is_ok() {
            self.central.list.recount();
            let stack = &self.stack;
            // (E) pairs with the exchange in `push_shared`.
            stack.amount.store(amount_of(stack.newest.load(Acquire)).0, Relaxed);
            // (G) the count happens before what other threads do with the amounts.
            self.settled.store(settled, Release);
        }
    }

    /// How much there is in each place.
    fn amounts(&self) -> impl Iterator<Item = Amount> {
        let lists = self.lists().chain([&self.central.list]).map(List::amount);
        lists.chain([Amount(self.stack.amount.load(Relaxed))])
    }

    /// Whether there is more garbage than the limit.
    pub(super) fn is_over_limit(&self) -> bool {
        let (objects, bytes) = self
            .amounts()
            .fold((0, 0), |(objects, bytes), a| (objects + u64::from(a.objects()), bytes + a.bytes()));
        objects > self.limit[0].load(Relaxed) || bytes > self.limit[1].load(Relaxed)
    }

    /// Whether there is no garbage. What was done with all that was retired before happens before the return.
    pub(super) fn is_clean(&self) -> bool {
        // (F), and for the stack the subtraction in `steal`, after which the objects are in the central list.
        self.stack.amount.load(Acquire) == 0
            && self.lists().all(List::is_empty)
            && self.central.list.is_empty()
    }

    pub(super) fn set_limit(&self, limit: Limit) {
        self.limit[0].store(limit.objects, Relaxed);
        self.limit[1].store(limit.bytes, Relaxed);
        self.adapt(0);
    }

    /// Whether anything is retired that no collector has taken.
    pub(super) fn has_incoming(&self) -> bool {
        self.stacked() > 0 || !self.lists().all(List::is_empty)
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
    /// The central list.
    pub(super) fn list(&self) -> &List<M> {
        &self.backlog.central.list
    }

    /// Moves what other threads have retired to the central list. `false`: the operating system refuses the heavy fence,
    /// so that it stays where it is.
    pub(super) fn steal(&self, which: Steal) -> bool {
        let then = M::now(Clock::Monotonic).saturating_sub(LEFT_ALONE);
        let waits = matches!(which, Steal::All | Steal::Last);
        let (mut stolen, all) = (0, || self.backlog.lists());
        for list in all() {
            // (F) `is_empty` pairs with the last store to the amount: then all that was in the list is reclaimed. A list
            // that is stopped already was stopped by a thread that a fork has not taken along; it is set free below.
            let is_old = which != Steal::Old || list.is_left_alone_since(then);
            // A busy list that is not waited for would be left alone after the fence as well. Its thread may be preempted while
            // it reclaims: then each batch of the other threads would cost a fence for nothing.
            let wanted = is_old && (waits || !is_busy(list));
            if list.is_stopped() || wanted && !list.is_empty() {
                list.stop();
                stolen += 1;
            }
        }
        // (A) pairs with the light fence in `Mine::new`.
        let fenced = stolen == 0 || which == Steal::Last || M::heavy_fence();
        for list in all().filter(|list| stolen > 0 && list.is_stopped()) {
            if fenced && list.wait_until_free(waits) {
                self.list().move_all(list);
            }
            list.resume();
        }
        if !self.backlog.stack.newest.load(Relaxed).is_null() {
            // (E) pairs with the exchange in `push_shared`.
            let first = self.backlog.stack.newest.swap(null_mut(), Acquire);
            let amount = self.list().put(first, M::now(Clock::Monotonic));
            // (F) as where a list's amount becomes 0: a thread that sees this sees the objects in the central list.
            self.backlog.stack.change(|all| all.minus(amount), Release);
        }
        fenced
    }
}

/// Reclaims for the last time. If a destructor panics, this goes on with the rest. (A second panic ends the process.)
pub(super) fn to_the_end(reclaim: impl Fn()) {
    struct Again<F: Fn()>(F);
    impl<F: Fn()> Drop for Again<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    let again = Again(reclaim);
    (again.0)();
    core::mem::forget(again);
}

impl<M: Machine> Drop for Backlog<M> {
    fn drop(&mut self) {
        for (chunk, first) in self.chunks.iter().enumerate() {
            let first = first.load(Acquire);
            if !first.is_null() {
                // SAFETY: `make` leaked a box of this length; the domain is dropped, so no thread uses it.
                drop(unsafe { Box::from_raw(slice_from_raw_parts_mut(first, length(chunk))) });
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
