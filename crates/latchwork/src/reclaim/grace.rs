//! Grace periods: when all sections that may have seen something are over.
//!
//! Source: McKenney, Hart, Walpole, "Practical Concerns for Scalable Synchronization", 2005, section
//! 2.5; Desnoyers, McKenney, Stern, Dagenais, Walpole, "User-Level Implementations of Read-Copy Update",
//! TPDS 2012, section 3.4, whose counter this widens to 64 bits, so that one phase is enough.
//!
//! A reader stamps its section with the time when it begins ([`Clocks::grace`]). Who wants to wait takes
//! a *ticket*. A *leader* then opens a grace period for all tickets given out so far: it lets time
//! advance, issues the heavy fence (for QSBR, whose readers issue full ones, a full one), and looks at each thread until it is outside of any section, or in one
//! that began later. The others sleep: however many wait at once, each grace period is for all of them,
//! and each of them sees at most two. Leaders of different domains share what they find: a time that one of
//! them has seen everybody reach has been reached for all.
//!
//! The leader looks at one word per 31 threads, and at one line per thread among them that has not exited; a
//! group that is through is not looked at again. Where readers announce quiescent states, they vouch for each other
//! ([`tree`]), and it looks at one line per 31 threads that do. Readers of the general flavour have no place for that:
//! it would be in their sections (`docs/reclamation.md` has figures).
//! A leader can stop halfway: asking whether a ticket is due (`poll`) takes a grace period as far as it gets
//! without waiting.
//!
//! State: closed (`target` is 0) -> open (a leader; `target` is the time that readers must have reached)
//! -> closed, and `completed` has reached the tickets that it was for.
//! Size: 80 bytes. Per grace period: 1 atomic on the clock that readers look at, 1 heavy fence
//! (QSBR: a full one).

use super::gate::Gate;
use super::pace::{Pace, Rest};
use super::tree;
use super::watch::Watch;
use crate::machine::record::{self, Clocks, NESTING, Record, Records, STEP, Stall, TIME};
use crate::machine::{Arith, Deadline, Group, Machine, Word};
use core::marker::PhantomData;
use core::ptr::null_mut;
use core::sync::atomic::Ordering::*;

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
    /// Whether the readers vouch for each other ([`tree`]).
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

/// A way to wait until all sections that run now are over.
///
/// # Safety
///
/// A ticket is due only when every section of the flavour is over that may have begun before the ticket was given out;
/// what was done in these happens before what is done with the ticket.
pub unsafe trait Periods: Send + Sync + Sized + 'static {
    /// In a domain that begins.
    fn new() -> Self;
    /// A ticket, which is due when everybody has left the section that they may be in now.
    fn start(&self) -> u64;
    /// Whether the ticket is due.
    fn is_over(&self, ticket: u64) -> bool;
    /// Whether the ticket is due; does for it what can be done without waiting.
    fn poll(&self, ticket: u64) -> bool;
    /// Waits until the ticket is due, or the deadline has passed. Whether the ticket is due. The caller is in no
    /// section.
    fn wait(&self, ticket: u64, pace: Pace, deadline: Option<Deadline>) -> bool;
    /// Which thread holds up the others now.
    fn stall(&self) -> Option<Stall>;
    /// Sets after how many nanoseconds that is reported.
    fn set_patience(&self, nanos: u64);
}

/// Looks at a thread that is in the way, before the leader rests.
const LOOKS: u32 = 64;

/// Grace periods of RCU. See the [module documentation](self).
pub struct Grace<M: Machine, F> {
    tickets: M::U64,
    completed: M::U64,
    gate: Gate<M>,
    /// The open grace period: the tickets it is for, the time, the next group to be looked at, and who was in
    /// the way there. Under the gate.
    covers: M::U64,
    target: M::U64,
    at: M::Ptr<Group<M, Record<M>>>,
    obstacle: M::Ptr<Record<M>>,
    /// For how long it has been open.
    open: Watch<M>,
    /// Whether somebody is in a hurry.
    hurry: M::U32,
    flavour: PhantomData<F>,
}

/// Why a grace period is not over.
enum Obstacle<M: Machine> {
    /// This thread is in a section.
    Reader(&'static Record<M>),
    /// The operating system refuses the heavy fence.
    Fence,
}

fn reached(word: u64, target: u64) -> bool {
    word & NESTING == 0 || word & TIME >= target & TIME
}

// SAFETY: a grace period that ends was opened after its tickets were given out, and has seen each thread outside of
// sections, or in one that began later (`look`).
unsafe impl<M: Records, F: Stamps> Periods for Grace<M, F> {
    fn new() -> Self {
        Grace {
            tickets: M::U64::new(0),
            completed: M::U64::new(0),
            gate: Gate::new(),
            covers: M::U64::new(0),
            target: M::U64::new(0),
            at: M::Ptr::new(null_mut()),
            obstacle: M::Ptr::new(null_mut()),
            open: Watch::new(),
            hurry: M::U32::new(0),
            flavour: PhantomData,
        }
    }

    fn start(&self) -> u64 {
        // (A) what the caller has removed happens before the opening that sees this ticket.
        self.tickets.fetch_add(1, AcqRel) + 1
    }

    fn is_over(&self, ticket: u64) -> bool {
        // (D) pairs with the end of the grace period.
        self.completed.load(Acquire) >= ticket
    }

    fn poll(&self, ticket: u64) -> bool {
        if !self.is_over(ticket)
            && let Some(_leading) = self.gate.try_lock()
        {
            // Twice: the one that is open may have begun before the ticket.
            let _ = self.advance().and_then(|()| self.advance());
        }
        self.is_over(ticket)
    }

    fn wait(&self, ticket: u64, pace: Pace, deadline: Option<Deadline>) -> bool {
        while !self.is_over(ticket) {
            if deadline.is_some_and(|deadline| deadline.passed::<M>()) {
                return false;
            }
            if pace == Pace::Expedited {
                self.hurry.store(1, Relaxed);
            }
            match self.gate.try_lock() {
                Some(_leading) if self.is_over(ticket) => return true,
                Some(_leading) => self.lead(deadline),
                None => self.gate.wait(deadline),
            }
        }
        true
    }

    fn stall(&self) -> Option<Stall> {
        let target = self.target.load(Relaxed);
        // SAFETY: records are never unmapped.
        let record = unsafe { self.obstacle.load(Relaxed).as_ref() }?;
        if target == 0 || reached(F::word(record).load(Relaxed), target) {
            return None;
        }
        Some(Stall { thread: record.thread.load(Relaxed), nanos: self.open.nanos() })
    }

    fn set_patience(&self, nanos: u64) {
        self.open.set_patience(nanos);
    }
}

impl<M: Records, F: Stamps> Grace<M, F> {
    /// Takes one grace period to its end, or leaves it to others when the deadline has passed.
    fn lead(&self, deadline: Option<Deadline>) {
        let mut rest = Rest::new();
        while let Err(obstacle) = self.advance() {
            if deadline.is_some_and(|deadline| deadline.passed::<M>()) {
                break;
            }
            let target = self.target.load(Relaxed);
            let left = match obstacle {
                Obstacle::Reader(record) => {
                    M::spin_for(F::word(record), Relaxed, LOOKS, |word| reached(word, target)).is_some()
                }
                Obstacle::Fence => false,
            };
            if !left {
                rest.take::<M>(self.hurry.load(Relaxed) != 0);
            }
        }
        self.hurry.store(0, Relaxed);
    }

    /// Opens a grace period if none is, and takes it as far as it gets. `Ok`: it has ended, or nobody
    /// waits for one. Under the gate.
    fn advance(&self) -> Result<(), Obstacle<M>> {
        if self.target.load(Relaxed) == 0 {
            // (A) pairs with `start`.
            let covers = self.tickets.load(Acquire);
            if covers == self.completed.load(Relaxed) {
                return Ok(());
            }
            // (B) pairs with the load in `enter`: who stamps a section with this has seen the removals.
            let target = F::clock(record::clocks::<M>()).fetch_add(STEP, AcqRel) + STEP;
            // (C) pairs with the light fence in `enter`, or the full one of QSBR: a section that we do not see
            // begins after it.
            if F::FULL_FENCES {
                M::full_fence();
            } else if !M::heavy_fence() {
                return Err(Obstacle::Fence);
            }
            self.open.begin();
            self.at.store(record::groups::<M>().map_or(null_mut(), Group::as_ptr), Relaxed);
            self.obstacle.store(null_mut(), Relaxed);
            self.covers.store(covers, Relaxed);
            self.target.store(target, Relaxed);
        }
        self.look(self.target.load(Relaxed))?;
        // (D) the sections of all happen before what is done with a ticket that is due.
        self.completed.store(self.covers.load(Relaxed), Release);
        self.target.store(0, Relaxed);
        Ok(())
    }

    /// Whether the first of a group vouches for all of it, soon.
    fn is_vouched_for(group: &'static Group<M, Record<M>>, target: u64) -> bool {
        let Some(first) = group.entries().first() else { return false };
        let known = |word| tree::vouches(word, target) || word & NESTING == 0;
        // (E) as below.
        M::spin_for(F::word(first), Acquire, LOOKS, known).is_some_and(|word| tree::vouches(word, target))
    }

    /// Looks at everybody who has not been seen to have reached `target`. Under the gate.
    fn look(&self, target: u64) -> Result<(), Obstacle<M>> {
        let known = F::reached(record::clocks::<M>());
        // (F) another leader advanced time further, and fenced, after this one: whoever it has seen outside, or
        // in a section that began later than its advance, is in none that this one waits for.
        let before = known.map_or(0, |known| known.load(Acquire));
        if before >= target {
            return Ok(());
        }
        // SAFETY: groups are never unmapped.
        let rest = unsafe { self.at.load(Relaxed).as_ref() };
        for group in rest.into_iter().flat_map(Group::groups) {
            if F::TREE && Self::is_vouched_for(group, target) {
                continue;
            }
            // (E) pairs with the stores in `enter` and `exit`: the section happens before what follows.
            let left = |record: &&Record<M>| reached(F::word(record).load(Acquire), target);
            if let Some(record) = group.taken().find(|record| !left(record)) {
                self.at.store(group.as_ptr(), Relaxed);
                self.obstacle.store(record.as_ptr(), Relaxed);
                if let Some(stall) = self.stall().filter(|_| self.open.is_due()) {
                    M::report_stall(stall);
                }
                return Err(Obstacle::Reader(record));
            }
        }
        if let Some(known) = known {
            // (F) If it fails, others have found as much, or look themselves.
            let _ = known.compare_exchange(before, target, AcqRel, Relaxed);
        }
        Ok(())
    }
}
