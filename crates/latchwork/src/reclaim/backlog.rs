//! The garbage: objects that were retired and are not reclaimed yet.
//!
//! Who retires pushes onto one of a few stacks, chosen by thread; who reclaims takes all of them at once.
//! There is no single pop, and so no ABA problem, and nothing that belongs to a thread: one that exits
//! leaves nothing behind.
//!
//! State of an object: incoming (`push`) -> waiting (`take`, once for all that came in) -> reclaimed
//! (`next`, one by one). Incoming is anybody's; waiting belongs to who holds the [`Gate`].
//! Size: 24 bytes per object, inside of it. Atomics per retired object: 2.

use super::gate::Gate;
use super::header::Header;
use super::{Garbage, Limit};
use crate::machine::{Arith, Clock, Machine, Records, Word};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::*;

/// Stacks.
pub(super) const SHARDS: usize = 8;
/// Objects that come in on one stack before who retires them does something about it.
pub(super) const BATCH: u32 = 128;

/// How many objects, and how many bytes: in one word, 32 bits each. Bytes count in units of 16.
#[derive(Copy, Clone, PartialEq, Eq)]
struct Amount(u64);

impl Amount {
    fn of(object: &Header) -> Self {
        Amount(1 << 32 | object.bytes().div_ceil(16) as u64)
    }

    fn objects(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn bytes(self) -> u64 {
        (self.0 & 0xffff_ffff) * 16
    }
}

#[repr(C, align(128))]
struct Shard<M: Machine> {
    newest: M::Ptr<Header>,
    amount: M::U64,
    /// When the oldest came in.
    since: M::U64,
}

pub(super) struct Backlog<M: Machine> {
    shards: [Shard<M>; SHARDS],
    /// Held by who takes and reclaims.
    pub(super) gate: Gate<M>,
    waiting: M::Ptr<Header>,
    amount: M::U64,
    since: M::U64,
    limit: [M::U64; 2],
}

impl<M: Records> Backlog<M> {
    pub(super) fn new() -> Self {
        let limit = Limit::default();
        Backlog {
            shards: core::array::from_fn(|_| Shard {
                newest: M::Ptr::new(null_mut()),
                amount: M::U64::new(0),
                since: M::U64::new(0),
            }),
            gate: Gate::new(),
            waiting: M::Ptr::new(null_mut()),
            amount: M::U64::new(0),
            since: M::U64::new(0),
            limit: [M::U64::new(limit.objects), M::U64::new(limit.bytes)],
        }
    }

    /// Adds a retired object. Whether a batch is full with it.
    pub(super) fn push(&self, object: *mut Header) -> bool {
        // The threads' numbers may be addresses of large blocks: mix them.
        let mixed = (M::thread_id() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let shard = &self.shards[(mixed >> (64 - SHARDS.ilog2())) as usize];
        // SAFETY: the object is alive, and the caller's until it is pushed.
        let header = unsafe { &*object };
        // Before it is pushed: taking it subtracts this.
        let before = Amount(shard.amount.fetch_add(Amount::of(header).0, Relaxed));
        let mut newest = shard.newest.load(Relaxed);
        loop {
            if newest.is_null() {
                shard.since.store(M::now(Clock::Monotonic), Relaxed);
            }
            header.set_next(newest);
            // (A) pairs with the exchange in `take`: the header, and the object's removal.
            match shard.newest.compare_exchange(newest, object, Release, Relaxed) {
                Ok(_) => break,
                Err(now) => newest = now,
            }
        }
        (before.objects() + 1).is_multiple_of(BATCH)
    }

    /// Whether something has been taken and is not reclaimed.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.load(Relaxed).is_null()
    }

    /// Puts all that has come in, with a stamp, to what is waiting. Whether there is any. Under the gate.
    pub(super) fn take(&self, stamp: u32) -> bool {
        for shard in &self.shards {
            if shard.newest.load(Relaxed).is_null() {
                continue;
            }
            let since = shard.since.load(Relaxed);
            // (A)
            let first = shard.newest.swap(null_mut(), Acquire);
            let mut last = first;
            let mut amount = 0;
            loop {
                // SAFETY: the list is ours since the exchange, and its objects are alive.
                let header = unsafe { &*last };
                amount += Amount::of(header).0;
                header.set_stamp(stamp);
                match header.next() {
                    next if next.is_null() => break header.set_next(self.waiting.load(Relaxed)),
                    next => last = next,
                }
            }
            if !self.is_waiting() || since < self.since.load(Relaxed) {
                self.since.store(since, Relaxed);
            }
            // First here, then no longer there: a sum over all counts no object too few.
            self.amount.store(self.amount.load(Relaxed) + amount, Relaxed);
            shard.amount.fetch_sub(amount, Relaxed);
            self.waiting.store(first, Relaxed);
        }
        self.is_waiting()
    }

    /// Removes one of those that are waiting. Under the gate.
    pub(super) fn next(&self) -> Option<*mut Header> {
        let first = self.waiting.load(Relaxed);
        // SAFETY: what is in the list is alive.
        let header = unsafe { first.as_ref() }?;
        self.waiting.store(header.next(), Relaxed);
        // Written to under the gate only: no atomic instruction.
        self.amount.store(self.amount.load(Relaxed) - Amount::of(header).0, Relaxed);
        Some(first)
    }

    /// Removes all that are waiting, without forgetting that they are there. Under the gate.
    pub(super) fn detach(&self) -> *mut Header {
        let all = self.waiting.load(Relaxed);
        self.waiting.store(null_mut(), Relaxed);
        all
    }

    /// Puts back some of what was detached. Under the gate.
    pub(super) fn attach(&self, mut objects: *mut Header) {
        // SAFETY: what is in the list is alive.
        while let Some(header) = unsafe { objects.as_ref() } {
            let next = header.next();
            header.set_next(self.waiting.load(Relaxed));
            self.waiting.store(objects, Relaxed);
            objects = next;
        }
    }

    fn amounts(&self) -> impl Iterator<Item = Amount> {
        let shards = self.shards.iter().map(|shard| &shard.amount);
        shards.chain([&self.amount]).map(|amount| Amount(amount.load(Relaxed)))
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
    }

    pub(super) fn garbage(&self) -> Garbage {
        let mut garbage = Garbage::default();
        for amount in self.amounts() {
            garbage.objects += u64::from(amount.objects());
            garbage.bytes += amount.bytes();
        }
        let incoming = self.shards.iter().map(|shard| (&shard.newest, &shard.since));
        let oldest = incoming
            .chain([(&self.waiting, &self.since)])
            .filter(|(list, _)| !list.load(Relaxed).is_null())
            .map(|(_, since)| since.load(Relaxed))
            .min();
        garbage.oldest_nanos = oldest.map_or(0, |since| M::now(Clock::Monotonic).saturating_sub(since));
        garbage
    }
}
