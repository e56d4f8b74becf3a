//! A list of garbage. One thread at a time has it: the list's own thread ([`Mine`]), or the collector, which holds the gate.
//!
//! The states of a list, and the pairs (A) to (F), are described at [`backlog`](super::backlog).

use super::header::{Header, finish};
use crate::machine::record::Records;
use crate::machine::{Clock, Machine, Native, Word};
use core::ops::Deref;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

/// How many objects, and how many bytes, in one word: 32 bits each, the objects in the lower half. The unit of the bytes is
/// 16. Beyond 64 GiB they are not counted: the bytes that are there may be more then, until nothing is there.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) struct Amount(pub(super) u64);

impl Amount {
    pub(super) fn of(object: &Header) -> Self {
        Amount((object.bytes().div_ceil(16) as u64) << 32 | 1)
    }

    pub(super) fn objects(self) -> u32 {
        self.0 as u32
    }

    pub(super) fn bytes(self) -> u64 {
        (self.0 >> 32) * 16
    }

    /// With the other.
    #[inline(always)]
    pub(super) fn plus(self, other: Self) -> Self {
        let most = || self.objects().wrapping_add(other.objects()) as u64 | u64::from(u32::MAX) << 32;
        Amount(self.0.checked_add(other.0).unwrap_or_else(most))
    }

    /// Without the other, which is a part of this. Bytes of it that were not counted are not subtracted.
    #[inline(always)]
    pub(super) fn minus(self, other: Self) -> Self {
        let least = || self.objects().wrapping_sub(other.objects()).into();
        Amount(self.0.checked_sub(other.0).unwrap_or_else(least))
    }
}

/// The objects of a chain of retired objects, which the calling thread has.
fn objects<'a>(first: *mut Header) -> impl Iterator<Item = &'a Header> {
    // SAFETY: retired objects are alive until they are reclaimed.
    let at = |header: *mut Header| unsafe { header.as_ref() };
    core::iter::successors(at(first), move |header| at(header.next()))
}

/// How much there is in such a chain.
pub(super) fn amount_of(first: *mut Header) -> Amount {
    objects(first).map(Amount::of).fold(Amount(0), Amount::plus)
}

/// State of an object: incoming (`push`) -> waiting (`take`, once for all that came in) -> reclaimed (`reclaim`, one by
/// one).
///
/// A thread that moves objects from list to list first takes them out of the one. So if a fork interrupts it, the child
/// leaks them, and does not reclaim them twice. Objects count before they come in, and until they are reclaimed. So in the child
/// of a fork more may count than there are, but never fewer; and that more is forgotten when the list is stolen from
/// ([`move_all`](List::move_all)), or counted anew ([`recount`](List::recount)).
#[repr(C, align(128))]
pub(super) struct List<M: Machine> {
    /// [`tag`] while the list's own thread has it, else 0 or the tag of another process.
    busy: M::U32,
    /// Not 0 while the collector has stopped the list.
    stopped: M::U32,
    /// Objects that have come in.
    count: M::U32,
    /// How often all waiting objects have been reclaimed.
    finished: M::U32,
    /// With how many incoming objects the thread looks whether it is time to reclaim.
    look: M::U32,
    incoming: M::Ptr<Header>,
    /// The amount of all objects that are here, or are being reclaimed. Other threads read it.
    amount: M::U64,
    /// When the oldest incoming object came in.
    since: M::U64,
    waiting: M::Ptr<Header>,
    /// When the oldest waiting object came in.
    oldest: M::U64,
    /// The ticket that the waiting objects wait for.
    pub(super) ticket: M::U64,
    /// Objects that a scan has found in use. (Where each scan has a ticket, they wait for that of the last one.)
    kept: M::Ptr<Header>,
}

/// The calling thread has its own list, until this is dropped.
pub(super) struct Mine<'a, M: Records> {
    list: &'a List<M>,
    /// What `busy` was before: the tag, if this is used by a destructor that the thread runs while it reclaims.
    before: u32,
}

/// The value of `busy` while a thread of this process has the list.
#[inline(always)]
fn tag<M: Records>() -> u32 {
    M::generation() << 1 | 1
}

/// Whether the list's own thread has it. If that is the calling thread, it is in the middle of reclaiming.
pub(super) fn is_busy<M: Records>(list: &List<M>) -> bool {
    list.busy.load(Relaxed) == tag::<M>()
}

impl<'a, M: Records> Mine<'a, M> {
    #[inline(always)]
    pub(super) fn new(list: &'a List<M>) -> Option<Self> {
        let before = list.busy.load(Relaxed);
        list.busy.store(tag::<M>(), Relaxed);
        let mine = Mine { list, before };
        // (A) pairs with the heavy fence in `steal`: the collector sees that the list is busy, or this thread sees that
        // it is stopped.
        M::light_fence();
        // (C) pairs with `resume`: this thread sees what the collector has left.
        if list.stopped.load(Acquire) != 0 { None } else { Some(mine) }
    }
}

impl<M: Records> Deref for Mine<'_, M> {
    type Target = List<M>;
    #[inline(always)]
    fn deref(&self) -> &List<M> {
        self.list
    }
}

impl<M: Records> Drop for Mine<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        // (B) pairs with `wait_until_free`: the collector sees what was done to the list.
        self.list.busy.store(self.before, Release);
    }
}

impl List<Native> {
    pub(super) const fn native() -> Self {
        List {
            busy: AtomicU32::new(0),
            stopped: AtomicU32::new(0),
            count: AtomicU32::new(0),
            finished: AtomicU32::new(0),
            look: AtomicU32::new(0),
            incoming: AtomicPtr::new(null_mut()),
            amount: AtomicU64::new(0),
            since: AtomicU64::new(0),
            waiting: AtomicPtr::new(null_mut()),
            oldest: AtomicU64::new(0),
            ticket: AtomicU64::new(0),
            kept: AtomicPtr::new(null_mut()),
        }
    }
}

/// What threads do that do not have the list.
impl<M: Records> List<M> {
    pub(super) fn new() -> Self {
        List {
            busy: M::U32::new(0),
            stopped: M::U32::new(0),
            count: M::U32::new(0),
            finished: M::U32::new(0),
            look: M::U32::new(0),
            incoming: M::Ptr::new(null_mut()),
            amount: M::U64::new(0),
            since: M::U64::new(0),
            waiting: M::Ptr::new(null_mut()),
            oldest: M::U64::new(0),
            ticket: M::U64::new(0),
            kept: M::Ptr::new(null_mut()),
        }
    }

    pub(super) fn amount(&self) -> Amount {
        Amount(self.amount.load(Relaxed))
    }

    /// Whether everything that has come in has been reclaimed.
    pub(super) fn is_empty(&self) -> bool {
        // (F) pairs with the store in `Gone`.
        self.amount.load(Acquire) == 0
    }

    /// Whether the list's thread has begun no batch since `then`.
    pub(super) fn is_left_alone_since(&self, then: u64) -> bool {
        self.since.load(Relaxed) < then
    }

    /// When the oldest object came in.
    pub(super) fn oldest(&self) -> Option<u64> {
        let incoming = self.count.load(Relaxed) != 0;
        let waiting = self.amount().objects() > self.count.load(Relaxed);
        let times = [(waiting, &self.oldest), (incoming, &self.since)];
        times.into_iter().filter(|(any, _)| *any).map(|(_, since)| since.load(Relaxed)).min()
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed) != 0
    }

    /// Keeps the list's thread from taking it. For the collector, as what follows.
    pub(super) fn stop(&self) {
        self.stopped.store(1, Relaxed);
    }

    /// After the heavy fence: whether the list's thread does not have the list, and will not until `resume`. Waits for that
    /// if `wait` says so.
    pub(super) fn wait_until_free(&self, wait: bool) -> bool {
        // In the child of a fork, the mark of another process is that of a thread which is not there.
        let free = |busy| busy != tag::<M>();
        // (B) One look is enough: a thread that marks the list busy after it sees that the list is stopped.
        if free(self.busy.load(Acquire)) {
            return true;
        }
        if wait {
            M::spin_until(&self.busy, Acquire, free);
        }
        wait
    }

    /// The list's thread may have it again.
    pub(super) fn resume(&self) {
        // (C) pairs with the load in `Mine::new`.
        self.stopped.store(0, Release);
    }
}

/// What the thread does that has the list.
impl<M: Records> List<M> {
    /// Adds an object of this amount to those that have come in. Returns whether it is time for a look; `None`: it would be the first, and was
    /// not added.
    #[inline(always)]
    pub(super) fn push(&self, object: *mut Header, amount: Amount) -> Option<bool> {
        let newest = self.incoming.load(Relaxed);
        if newest.is_null() {
            return None;
        }
        Some(self.link(object, amount, newest) >= self.look.load(Relaxed))
    }

    /// See [`look_at`](Self::look_at).
    pub(super) fn next_look(&self) -> u32 {
        self.look.load(Relaxed)
    }

    /// The next look is when so many objects have come in.
    pub(super) fn look_at(&self, count: u32) {
        self.look.store(count, Relaxed);
    }

    /// Adds an object, which may be the first to come in. Calls `first` before that if the list is empty.
    pub(super) fn push_first(&self, object: *mut Header, first: impl FnOnce()) {
        let newest = self.incoming.load(Relaxed);
        if newest.is_null() {
            self.begin();
            if self.amount().objects() == 0 {
                first();
            }
        }
        // SAFETY: a retired object is alive, and this thread's alone until it is pushed.
        self.link(object, Amount::of(unsafe { &*object }), newest);
    }

    #[inline(always)]
    fn link(&self, object: *mut Header, amount: Amount, newest: *mut Header) -> u32 {
        // SAFETY: a retired object is alive, and this thread's alone until it is pushed.
        unsafe { &*object }.set_next(newest);
        // Before the amount: else another thread would take the object for one that waits ([`oldest`](Self::oldest)).
        let count = self.count.load(Relaxed) + 1;
        self.count.store(count, Relaxed);
        self.amount.store(self.amount().plus(amount).0, Relaxed);
        // Release: in the child of a fork, the object counts if it is here.
        self.incoming.store(object, Release);
        count
    }

    /// Notes the time at which the first object comes in.
    #[cold]
    fn begin(&self) {
        self.since.store(M::now(Clock::Monotonic), Relaxed);
    }

    /// Adds a chain of objects, the oldest of which came in at `since`. Returns how much it was.
    pub(super) fn put(&self, first: *mut Header, since: u64) -> Amount {
        let (mut amount, mut last) = (Amount(0), None);
        for header in objects(first) {
            amount = amount.plus(Amount::of(header));
            last = Some(header);
        }
        let Some(last) = last else { return amount };
        let since = if self.is_fresh() { since } else { since.min(self.since.load(Relaxed)) };
        self.since.store(since, Relaxed);
        self.count.store(self.count.load(Relaxed) + amount.objects(), Relaxed);
        self.amount.store(self.amount().plus(amount).0, Relaxed);
        last.set_next(self.incoming.load(Relaxed));
        // Release: in the child of a fork, the objects count if they are here, and are in no other list.
        self.incoming.store(first, Release);
        amount
    }

    /// Moves everything from another list, which the calling thread has too.
    pub(super) fn move_all(&self, other: &Self) {
        let since = other.oldest().unwrap_or(0);
        for chain in [&other.incoming, &other.waiting, &other.kept] {
            let first = chain.load(Relaxed);
            chain.store(null_mut(), Relaxed);
            self.put(first, since);
        }
        // After it was added here: a thread that sums up all lists may count an object twice, but misses none.
        other.count.store(0, Relaxed);
        other.amount.store(0, Release);
    }

    /// Counts the objects that are here: for the child of a fork, which has lost objects that another thread was moving or
    /// reclaiming.
    pub(super) fn recount(&self) {
        let [incoming, others @ ..] =
            [&self.incoming, &self.waiting, &self.kept].map(|chain| amount_of(chain.load(Relaxed)));
        self.count.store(incoming.objects(), Relaxed);
        self.amount.store(others.into_iter().fold(incoming, Amount::plus).0, Relaxed);
    }

    /// Objects that have come in.
    pub(super) fn count(&self) -> u32 {
        self.count.load(Relaxed)
    }

    /// Whether nothing has come in.
    fn is_fresh(&self) -> bool {
        self.incoming.load(Relaxed).is_null()
    }

    /// Whether something is waiting.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.load(Relaxed).is_null()
    }

    /// Makes all incoming objects the waiting ones, of which there were none. Returns whether there are any; then they wait
    /// for the ticket that `ticket` returns.
    pub(super) fn take(&self, ticket: impl FnOnce() -> u64) -> bool {
        let first = self.incoming.load(Relaxed);
        if first.is_null() {
            return false;
        }
        // Before the objects wait. In the child of a fork, objects that wait with the ticket before could be reclaimed while
        // the thread that forked is in a section in which it has found them.
        self.ticket.store(ticket(), Relaxed);
        self.incoming.store(null_mut(), Relaxed);
        self.oldest.store(self.since.load(Relaxed), Relaxed);
        self.count.store(0, Relaxed);
        // Release: in the child of a fork the objects are in neither chain, rather than in both; and if they wait, the ticket
        // is theirs.
        self.waiting.store(first, Release);
        true
    }

    /// How often all waiting objects have been reclaimed. It wraps around.
    pub(super) fn finished(&self) -> u32 {
        self.finished.load(Relaxed)
    }

    /// What [`finished`](Self::finished) is when everything is reclaimed that is here now. It may be reclaimed sooner.
    pub(super) fn goal(&self) -> u32 {
        self.finished().wrapping_add(u32::from(self.is_waiting()) + u32::from(!self.is_fresh()))
    }

    /// Whether nothing has come in or waits.
    pub(super) fn is_vacant(&self) -> bool {
        self.is_fresh() && !self.is_waiting()
    }

    /// Reclaims all waiting objects.
    ///
    /// # Safety
    ///
    /// No thread uses the waiting objects, and none will.
    pub(super) unsafe fn reclaim(&self) {
        // SAFETY: no thread uses the objects, says the caller.
        unsafe { self.reclaim_chain(&self.waiting) };
        self.finished.store(self.finished().wrapping_add(1), Relaxed);
    }

    /// Reclaims those objects for which `unused` is true.
    ///
    /// # Safety
    ///
    /// No thread uses them, and none will.
    pub(super) unsafe fn reclaim_if(&self, unused: impl Fn(&Header) -> bool) {
        for chain in [&self.waiting, &self.incoming] {
            let mut objects = chain.load(Relaxed);
            chain.store(null_mut(), Relaxed);
            // SAFETY: objects in a list are alive until they are reclaimed.
            while let Some(header) = unsafe { objects.as_ref() } {
                let object = objects;
                objects = header.next();
                let to = if unused(header) { &self.kept } else { chain };
                header.set_next(to.load(Relaxed));
                to.store(object, Release); // as in `put`
            }
        }
        self.count.store(self.chain(&self.incoming).count() as u32, Relaxed);
        struct Recall<'a, M: Records>(&'a List<M>);
        impl<M: Records> Drop for Recall<'_, M> {
            fn drop(&mut self) {
                self.0.recall();
            }
        }
        // If a destructor panics, the rest waits again.
        let _rest = Recall(self);
        // SAFETY: no thread uses the objects, says the caller. Nothing else keeps objects in a list where this is called.
        unsafe { self.reclaim_chain(&self.kept) };
    }

    /// Reclaims the objects of a chain.
    ///
    /// # Safety
    ///
    /// No thread uses them, and none will.
    unsafe fn reclaim_chain(&self, chain: &M::Ptr<Header>) {
        loop {
            let first = chain.load(Relaxed);
            // SAFETY: objects in a list are alive until they are reclaimed.
            let Some(header) = (unsafe { first.as_ref() }) else { return };
            chain.store(header.next(), Relaxed);
            // Subtracts the object even if its destructor panics; the rest stays in the chain then.
            let _gone = Gone(self, Amount::of(header));
            // SAFETY: no thread uses the object, says the caller. It is out of the list, so it is reclaimed once.
            unsafe { finish(first) };
        }
    }
}

/// An object that is being reclaimed: it counts until this is dropped.
struct Gone<'a, M: Records>(&'a List<M>, Amount);

impl<M: Records> Drop for Gone<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        let Gone(list, amount) = self;
        let left = list.amount().minus(*amount).0;
        if left > 0 {
            list.amount.store(left, Relaxed);
        } else {
            // (F) a thread that sees the list empty sees what was done with all that was in it.
            list.amount.store(left, Release);
        }
    }
}

/// What the thread does that has the list, where a scan finds out which objects are in use (`sieve`).
impl<M: Records> List<M> {
    /// Stamps the incoming objects.
    pub(super) fn stamp(&self, stamp: u32) {
        self.chain(&self.incoming).for_each(|header| header.set_stamp(stamp));
    }

    /// Whether all objects in the chains count.
    #[cfg(test)]
    pub(super) fn is_counted(&self) -> bool {
        let objects = [&self.incoming, &self.waiting, &self.kept].map(|chain| self.chain(chain).count());
        objects.iter().sum::<usize>() <= self.amount().objects() as usize
    }

    /// The objects of a chain.
    fn chain(&self, first: &M::Ptr<Header>) -> impl Iterator<Item = &Header> {
        objects(first.load(Relaxed))
    }

    /// The objects that are kept or waiting.
    pub(super) fn in_use(&self) -> impl Iterator<Item = &Header> {
        self.chain(&self.kept).chain(self.chain(&self.waiting))
    }

    /// Makes all objects waiting ones, those that were kept included. Returns whether there are any.
    pub(super) fn gather(&self) -> bool {
        let oldest = self.oldest();
        for chain in [&self.kept, &self.waiting] {
            let objects = chain.load(Relaxed);
            chain.store(null_mut(), Relaxed);
            self.move_to(&self.incoming, objects);
        }
        let any = self.take(|| 0); // each scan looks at all objects, whatever their ticket
        self.oldest.store(oldest.unwrap_or(0), Relaxed);
        any
    }

    /// Makes the kept objects waiting ones.
    pub(super) fn recall(&self) {
        let objects = self.kept.load(Relaxed);
        self.kept.store(null_mut(), Relaxed);
        self.move_to(&self.waiting, objects);
    }

    /// Objects that have come in, and objects that were there before.
    pub(super) fn counts(&self) -> (u32, u32) {
        let new = self.count.load(Relaxed);
        (new, self.amount().objects().saturating_sub(new))
    }

    /// Sets when the oldest object came in, after [`take`](List::take) has noted that of the youngest; and that the list has
    /// not been left alone.
    pub(super) fn set_looked(&self, oldest: Option<u64>) {
        self.oldest.store(oldest.unwrap_or(0), Relaxed);
        self.begin();
    }

    /// Moves objects into a chain, one by one.
    fn move_to(&self, chain: &M::Ptr<Header>, mut objects: *mut Header) {
        // SAFETY: objects in a list are alive until they are reclaimed.
        while let Some(header) = unsafe { objects.as_ref() } {
            let object = objects;
            objects = header.next();
            header.set_next(chain.load(Relaxed));
            chain.store(object, Release); // as in `put`
        }
    }

    /// Takes the waiting objects out. They still count.
    pub(super) fn detach(&self) -> *mut Header {
        let all = self.waiting.load(Relaxed);
        self.waiting.store(null_mut(), Relaxed);
        all
    }

    /// Puts back what was detached.
    pub(super) fn attach(&self, objects: *mut Header) {
        self.move_to(&self.waiting, objects);
    }

    /// Keeps those of the detached `objects` that are in use, and returns the others.
    pub(super) fn keep(&self, mut objects: *mut Header, in_use: impl Fn(&Header) -> bool) -> *mut Header {
        let mut others = null_mut();
        // SAFETY: objects in a list are alive until they are reclaimed.
        while let Some(header) = unsafe { objects.as_ref() } {
            let object = objects;
            objects = header.next();
            if in_use(header) {
                header.set_next(self.kept.load(Relaxed));
                self.kept.store(object, Release); // as in `put`
            } else {
                header.set_next(others);
                others = object;
            }
        }
        others
    }
}
