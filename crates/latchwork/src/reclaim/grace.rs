//! Grace periods of RCU: how a thread waits until every section is over that may have seen something.
//!
//! Source: McKenney, Hart, Walpole, "Practical Concerns for Scalable Synchronization", 2005, section 2.5; Desnoyers,
//! McKenney, Stern, Dagenais, Walpole, "User-Level Implementations of Read-Copy Update", TPDS 2012, section 3.4. The
//! counter of the latter is 64 bits wide here, so that one phase is enough.
//!
//! # The idea
//!
//! A reader stamps its section with the clock ([`Clocks::grace`]; see [`rcu`](super::rcu)). A thread that wants to wait
//! takes a *ticket*. One of the waiting threads becomes the *leader*, by taking the gate. The leader opens a grace period
//! for all tickets that were given out so far:
//!
//! 1. it lets the clock advance;
//! 2. it issues a full fence, and looks at each thread: if all [rest](super::rcu), or have the new stamp, the period is over;
//! 3. else the leader issues the heavy fence (not for QSBR, whose readers issue full fences), and looks at each thread until that thread
//!    is outside of any section, or in one with the new stamp.
//!
//! The other threads sleep meanwhile. Each grace period serves all of them, and each thread waits for at most two: one
//! that was open when it took its ticket, and the next. Leaders of different domains share what they find: when one
//! leader has seen all threads reach a time, that time is reached for all domains (F).
//!
//! The leader looks at one word per 31 threads, and at one line per thread among them that has not exited. It does not
//! look again at a group of threads that is through. Where readers announce quiescent states, they vouch for each other
//! (`tree`), and the leader looks at one line per 31 threads that do. Readers of general-purpose RCU cannot vouch: it
//! would cost instructions in their sections (`docs/reclamation.md` has figures).
//!
//! A leader can stop halfway. Asking whether a ticket is due (`poll`) takes a grace period as far as it gets without
//! waiting, and the next leader goes on from there.
//!
//! # States
//!
//! | state | what the words hold | the next state, and who changes it |
//! |---|---|---|
//! | closed | `target` is 0 | open, when a leader finds a ticket above `completed` |
//! | open | `target` is the time that readers must have reached; `covers` the last ticket that this period is for; `at` the group at which the leader is | closed, when the leader has seen all threads: it sets `completed` to `covers`, and `target` to 0 |
//!
//! # What pairs with what
//!
//! - (A) `start` gives out a ticket (release) and the leader loads the tickets (acquire): what the caller has removed
//!   happens before the opening of the grace period that serves its ticket.
//! - (B), (C), (E): the leader and readers, see [`rcu`](super::rcu).
//! - (D) the leader stores `completed` (release) and a waiting thread loads it (acquire): all sections that the grace
//!   period has waited for happen before what that thread does next.
//! - (F) a leader stores the time that all threads have reached (release), and a leader of another domain loads it
//!   (acquire).
//!
//! Size: 104 bytes. Per grace period: 1 atomic read-modify-write on the clock that readers look at, 1 full fence, and 1 heavy fence
//! unless none is needed. A leader whose heavy fence is refused leaves the grace period open, and issues the fence at the next try.

use super::gate::Gate;
use super::pace::{Pace, Rest};
use super::section;
use super::tree;
use super::watch::Watch;
use crate::machine::record::{self, Clocks, NEEDS_FULL_FENCE, NESTING, Record, Records, STEP, Stall, TIME};
use crate::machine::{Arith, Deadline, Group, Machine, Native, Word};
use core::marker::PhantomData;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};

/// How the readers of a kind of RCU, or of epochs, say that they read: which word of a thread's record they stamp, and
/// with which time.
///
/// # Safety
///
/// - Sections are stamped, in [`word`](Stamps::word) of the thread's record, with [`clock`](Stamps::clock), and followed
///   by a fence that pairs with that of the [`Periods`] which wait for them.
/// - [`FULL_FENCES`](Stamps::FULL_FENCES), [`TREE`](Stamps::TREE) and [`reached`](Stamps::reached) are true of these
///   readers.
pub unsafe trait Stamps: Send + Sync + Sized + 'static {
    /// Whether the readers issue full fences, so that a thread that waits for them needs no heavy one.
    const FULL_FENCES: bool = false;
    /// Whether the readers vouch for each other (`tree`).
    const TREE: bool = false;
    /// Which word of a thread's record says when its section began.
    fn word<M: Machine>(record: &Record<M>) -> &M::U64;
    /// The time that the word is stamped with.
    fn clock<M: Machine>(clocks: &Clocks<M>) -> &M::U64;
    /// The time that all readers are known to have reached, where grace periods are [`Grace`].
    fn reached<M: Machine>(clocks: &Clocks<M>) -> Option<&M::U64> {
        let _ = clocks;
        None
    }
}

/// A way to wait until all sections that run now are over: [`Grace`], or the epochs of [`epoch`](super::epoch).
///
/// # Safety
///
/// A ticket is due only when every section of the flavour is over that may have begun before the ticket was given out;
/// what was done in these happens before what is done with the ticket.
pub unsafe trait Periods: Send + Sync + Sized + 'static {
    /// For a new domain.
    fn new() -> Self;
    /// A ticket, which is due when every thread has left the section that it may be in now.
    fn start(&self) -> u64;
    /// Whether the ticket is due.
    fn is_over(&self, ticket: u64) -> bool;
    /// Whether the ticket is due. Takes the grace period as far as it gets without waiting. Calls `tell` when a grace
    /// period has been open for too long, without holding anything.
    fn poll(&self, ticket: u64, tell: &dyn Fn(&Stall)) -> bool;
    /// Waits until the ticket is due, or the deadline has passed. Whether the ticket is due. The caller is in no
    /// section. Calls `tell` as [`poll`](Self::poll) does.
    fn wait(&self, ticket: u64, pace: Pace, deadline: Option<Deadline>, tell: &dyn Fn(&Stall)) -> bool;
    /// Which thread holds up the grace period now.
    fn stall(&self) -> Option<Stall>;
    /// Sets after how many nanoseconds `tell` is called of a grace period that does not end, and again and again.
    fn set_patience(&self, nanos: u64);
    /// Has the calling thread's next section make up for the heavy fence of others, if it is in no section. It costs that section
    /// a fence.
    fn rest() {}
}

/// Looks that the leader takes at a thread in the way before it rests.
const LOOKS: u32 = 64;

/// Grace periods of RCU. See the [module documentation](self).
pub struct Grace<M: Machine, F> {
    /// Tickets that were given out.
    tickets: M::U64,
    /// The last ticket that is due.
    completed: M::U64,
    gate: Gate<M>,
    /// The last ticket that the open grace period is for. This and the next four words: for the holder of the gate.
    covers: M::U64,
    /// The time that readers must have reached for the grace period to end; 0: none is open.
    target: M::U64,
    /// The last target for which the leader has issued the heavy fence.
    fenced: M::U64,
    /// The next group of threads to be looked at.
    at: M::Ptr<Group<M, Record<M>>>,
    /// The thread that was in the way at the leader's last look.
    obstacle: M::Ptr<Record<M>>,
    /// For how long the grace period has been open.
    open: Watch<M>,
    /// The last ticket of a thread that is in a hurry ([`Pace::Expedited`]). Until this is due, each leader is in a hurry. It is
    /// a ticket and not a flag: a leader that is just ending may serve earlier tickets alone, and must not clear the request.
    hurry: M::U64,
    flavour: PhantomData<F>,
}

/// What keeps a grace period from ending.
enum Obstacle<M: Machine> {
    /// The owner of this record is in a section that began too early. A stall is to be told of now, or not.
    Reader(&'static Record<M>, Option<Stall>),
    /// The operating system refuses the heavy fence. A stall is to be told of now, or not.
    Fence(Option<Stall>),
}

impl<M: Machine> Obstacle<M> {
    /// The stall that is to be told of now.
    fn stall(self) -> Option<Stall> {
        match self {
            Obstacle::Reader(_, stall) | Obstacle::Fence(stall) => stall,
        }
    }
}

/// Whether the owner of this word is outside of any section, or in one that began at `target` or later.
fn has_reached(word: u64, target: u64) -> bool {
    word & NESTING == 0 || is_at_least(word, target)
}

/// Whether no heavy fence is needed for the owner of this word. Either it rests; or it has stamped a section, which may be over, with
/// `target` or a later time: then it had seen that time before that section and all later ones. (A time that is later than the clock
/// is an old one, from half of all times ago.)
fn rests_or_knows(word: u64, target: u64, clock: impl Fn() -> u64) -> bool {
    word & (NESTING | NEEDS_FULL_FENCE) == NEEDS_FULL_FENCE
        || is_at_least(word, target) && is_at_least(clock(), word)
}

/// Whether the first time is the second or a later one, of two that are less than 2^47 grace periods apart. Times wrap around:
/// after years if each grace period has a `membarrier`, but within months if the fence costs nothing and threads do nothing else.
pub(super) fn is_at_least(time: u64, other: u64) -> bool {
    (time & TIME).wrapping_sub(other & TIME) as i64 >= 0
}

impl<F> Grace<Native, F> {
    /// For a new domain, in a constant.
    pub(super) const fn native() -> Self {
        Grace {
            tickets: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            gate: Gate::native(),
            covers: AtomicU64::new(0),
            target: AtomicU64::new(0),
            fenced: AtomicU64::new(0),
            at: AtomicPtr::new(null_mut()),
            obstacle: AtomicPtr::new(null_mut()),
            open: Watch::native(),
            hurry: AtomicU64::new(0),
            flavour: PhantomData,
        }
    }
}

// SAFETY: a ticket is due when a grace period has ended that was opened after the ticket was given out. Its leader has
// seen each thread outside of any section, or in one that began after the opening (`look`); or the leader of another domain
// has, after it advanced the same clock further and fenced (F).
unsafe impl<M: Records, F: Stamps> Periods for Grace<M, F> {
    fn new() -> Self {
        Grace {
            tickets: M::U64::new(0),
            completed: M::U64::new(0),
            gate: Gate::new(),
            covers: M::U64::new(0),
            target: M::U64::new(0),
            fenced: M::U64::new(0),
            at: M::Ptr::new(null_mut()),
            obstacle: M::Ptr::new(null_mut()),
            open: Watch::new(),
            hurry: M::U64::new(0),
            flavour: PhantomData,
        }
    }

    fn start(&self) -> u64 {
        // (A) what the caller has removed happens before the opening of the grace period that serves this ticket.
        self.tickets.fetch_add(1, Release) + 1
    }

    fn is_over(&self, ticket: u64) -> bool {
        // (D) pairs with the end of the grace period in `advance`.
        self.completed.load(Acquire) >= ticket
    }

    fn poll(&self, ticket: u64, tell: &dyn Fn(&Stall)) -> bool {
        if !self.is_over(ticket)
            && let Some(leading) = self.gate.try_lock()
        {
            Self::rest();
            // Twice: the grace period that is open may have been opened before the ticket was given out.
            let result = self.advance().and_then(|()| self.advance());
            drop(leading);
            result.err().and_then(Obstacle::stall).inspect(tell);
        }
        self.is_over(ticket)
    }

    fn wait(&self, ticket: u64, pace: Pace, deadline: Option<Deadline>, tell: &dyn Fn(&Stall)) -> bool {
        Self::rest();
        while !self.is_over(ticket) {
            if deadline.is_some_and(|deadline| deadline.passed::<M>()) {
                return false;
            }
            if pace == Pace::Expedited {
                self.hurry_up(ticket);
            }
            let stall = match self.gate.try_lock() {
                Some(_leading) if self.is_over(ticket) => return true,
                Some(_leading) => self.lead(deadline),
                None => {
                    self.gate.wait(deadline);
                    None
                }
            };
            // The gate is free here: the hook may use the domain, and other threads lead meanwhile.
            stall.inspect(tell);
        }
        true
    }

    fn stall(&self) -> Option<Stall> {
        let target = self.target.load(Relaxed);
        // SAFETY: `obstacle` is null or a record, and records are never unmapped.
        let record = unsafe { self.obstacle.load(Relaxed).as_ref() }?;
        if target == 0 || has_reached(F::word(record).load(Relaxed), target) {
            return None;
        }
        Some(Stall::by(record, self.open.nanos()))
    }

    fn set_patience(&self, nanos: u64) {
        self.open.set_patience(nanos);
    }

    /// The calling thread [rests](section::rest). (A thread without a record will rest when it gets one.)
    fn rest() {
        if !F::FULL_FENCES
            && let Some(own) = record::own_if_any::<M>()
        {
            section::rest::<M>(F::word(own));
        }
    }
}

impl<M: Records, F: Stamps> Grace<M, F> {
    /// Takes one grace period to its end, or leaves it to the next leader when the deadline has passed, or when a stall is
    /// to be told of: then it returns that.
    fn lead(&self, deadline: Option<Deadline>) -> Option<Stall> {
        let (mut rest, mut due) = (Rest::new(), None);
        while let Err(obstacle) = self.advance() {
            if deadline.is_some_and(|deadline| deadline.passed::<M>()) {
                break;
            }
            let target = self.target.load(Relaxed);
            let left = match obstacle {
                Obstacle::Reader(record, None) => {
                    M::spin_for(F::word(record), Relaxed, LOOKS, |word| has_reached(word, target)).is_some()
                }
                Obstacle::Fence(None) => false,
                stalled => {
                    due = stalled.stall();
                    break;
                }
            };
            if !left {
                rest.take::<M>(self.is_hurried());
            }
        }
        due
    }

    /// Asks the leaders to be in a hurry until the ticket is due.
    fn hurry_up(&self, ticket: u64) {
        let mut latest = self.hurry.load(Relaxed);
        while latest < ticket
            && let Err(now) = self.hurry.compare_exchange(latest, ticket, Relaxed, Relaxed)
        {
            latest = now;
        }
    }

    /// Whether a thread that is in a hurry still waits.
    fn is_hurried(&self) -> bool {
        self.hurry.load(Relaxed) > self.completed.load(Relaxed)
    }

    /// Opens a grace period if none is open, and takes it as far as it gets. `Ok`: it has ended, or no ticket is left to
    /// be served. The caller holds the gate.
    fn advance(&self) -> Result<(), Obstacle<M>> {
        if self.target.load(Relaxed) == 0 {
            // (A) pairs with `start`.
            let covers = self.tickets.load(Acquire);
            if covers == self.completed.load(Relaxed) {
                return Ok(());
            }
            // (B) pairs with the load in `enter`: a thread that stamps a section with this time has seen the removals.
            let target = F::clock(record::clocks::<M>()).fetch_add(STEP, AcqRel).wrapping_add(STEP);
            // (C) pairs with the full fence of QSBR, of a thread that rests, and of a thread's first section: a section of these that
            // this thread does not see from now on begins after this fence.
            M::full_fence();
            self.open.begin();
            self.at.store(record::groups::<M>().map_or(null_mut(), Group::as_ptr), Relaxed);
            self.obstacle.store(null_mut(), Relaxed);
            self.covers.store(covers, Relaxed);
            // Release: in the child of a fork, whose next leader goes on with a period that is open, these words are the
            // period's as well. With an earlier `at`, that leader would not look at all threads.
            self.target.store(target, Release);
        }
        let target = self.target.load(Relaxed);
        let is_fenced = F::FULL_FENCES || self.fenced.load(Relaxed) == target;
        let needs_no_fence =
            |word, target| rests_or_knows(word, target, || F::clock(record::clocks::<M>()).load(Relaxed));
        if is_fenced || self.look(target, needs_no_fence).is_err() {
            // (C) pairs with the light fence in `enter`: a section that this thread does not see from now on begins after this fence.
            if !is_fenced && !M::heavy_fence() {
                let stall = || Stall { thread: 0, nanos: self.open.nanos(), origin: None };
                return Err(Obstacle::Fence(self.open.is_due().then(stall)));
            }
            self.fenced.store(target, Relaxed);
            if let Err(record) = self.look(target, has_reached) {
                return Err(Obstacle::Reader(record, self.stall().filter(|_| self.open.is_due())));
            }
        }
        // (D) all sections that were waited for happen before what is done with a ticket that is due.
        self.completed.store(self.covers.load(Relaxed), Release);
        self.target.store(0, Relaxed);
        Ok(())
    }

    /// Whether the first thread of a group vouches for all of the group, now or within a few looks.
    fn is_vouched_for(group: &'static Group<M, Record<M>>, target: u64) -> bool {
        let Some(first) = group.entries().first() else { return false };
        let clock = || F::clock(record::clocks::<M>()).load(Relaxed);
        let vouches = |word| tree::vouches(word, target, &clock);
        // (E) pairs with the store in `announce` of `qsbr`.
        M::spin_for(F::word(first), Acquire, LOOKS, |word| vouches(word) || word & NESTING == 0)
            .is_some_and(vouches)
    }

    /// Looks at each thread that has not been seen to be `through`. Returns the first that is not. The caller holds the gate.
    fn look(&self, target: u64, through: impl Fn(u64, u64) -> bool) -> Result<(), &'static Record<M>> {
        let known = F::reached(record::clocks::<M>());
        // (F) a leader of another domain has advanced the clock beyond `target`, and fenced, after this leader did. A
        // thread that it has seen outside, or with its own stamp, is in no section that this leader waits for.
        let before = known.map_or(0, |known| known.load(Acquire));
        // A time that is later than the clock is an old one, from half of all times ago: nobody has waited since.
        if is_at_least(before, target) && is_at_least(F::clock(record::clocks::<M>()).load(Relaxed), before) {
            return Ok(());
        }
        // SAFETY: `at` is null or a group, and groups are never unmapped.
        let rest = unsafe { self.at.load(Relaxed).as_ref() };
        for group in rest.into_iter().flat_map(Group::groups) {
            if F::TREE && Self::is_vouched_for(group, target) {
                continue;
            }
            // (E) pairs with the stores in `enter` and `exit`: the section happens before what this thread does next.
            let left = |record: &&Record<M>| through(F::word(record).load(Acquire), target);
            if let Some(record) = group.taken().find(|record| !left(record)) {
                self.at.store(group.as_ptr(), Relaxed);
                self.obstacle.store(record.as_ptr(), Relaxed);
                return Err(record);
            }
        }
        if let Some(known) = known {
            // (F) If this fails, another leader has stored a time meanwhile: each domain then relies on its own look.
            let _ = known.compare_exchange(before, target, AcqRel, Relaxed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
