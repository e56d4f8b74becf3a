//! How a writer revokes the bias: what it does with the underlying lock meanwhile, and how it waits for the readers that
//! it finds in slots. [`word`](super::word) has the states that the bias goes through.

use super::RawBravo;
use super::bias::When;
use super::count::{Count, Event};
use super::publish::Publish;
use super::word::Bias;
use crate::locks::Token;
use crate::locks::rwlock::{RawRwLock, Timeout};
use crate::machine::{Clock, Machine, Word};
use core::marker::PhantomData;
use core::sync::atomic::Ordering::*;

pub use crate::locks::rwlock::wait::{Await, Naps, Spins};

/// How a writer revokes.
pub trait Revoke: Send + Sync + 'static {
    /// Whether the writer releases the underlying lock while it waits for readers in slots, so that other readers can pass
    /// through that lock.
    const PASSING: bool;
    /// How the writer waits for a reader.
    type Await: Await;
}

/// The writer keeps the underlying lock (listing 1). Readers that come meanwhile wait until the writer has left. There is one
/// revocation for however many writers, and writers of a lock without bias pay nothing.
#[derive(Debug)]
pub struct Holding<A = Naps>(PhantomData<A>);

impl<A: Await> Revoke for Holding<A> {
    const PASSING: bool = false;
    type Await = A;
}

/// The writer keeps the underlying lock for a millisecond at most: the *brief hold*. Then it releases that lock, and readers
/// that come meanwhile pass through it. When the slots are empty, the writer acquires the underlying lock again; that
/// acquisition is the one that it writes with.
///
/// Section 7 of the paper has a mutex for revocations. Here several writers may revoke at once. Each looks through the
/// slots itself, so that none waits for a writer that is suspended. The bias counts them, and returns at the earliest when
/// the last of them has written or given up. This is for readers that must not wait for as long as another reader's
/// longest section, and for locks that are to stay available while a writer is suspended.
///
/// Without that millisecond, readers fill the underlying lock before the writer is back. In the simulator, with one write
/// in 10,000 reads, that costs half of the throughput with 18 threads and five sixths with 72.
#[derive(Debug)]
pub struct Passing<A = Naps>(PhantomData<A>);

impl<A: Await> Revoke for Passing<A> {
    const PASSING: bool = true;
    type Await = A;
}

/// Nanoseconds of a brief hold: longer than a look through all slots takes, and no longer than a nap of a writer that waits
/// for a reader.
pub(super) const HOLD_TIME: u64 = 1_000_000;
/// Units of about a millisecond after which a brief hold is overdue: then other threads end it for its writer. A
/// preempted writer runs again within two or three scheduler quanta, unless there are very many threads.
const OVERDUE_AFTER: u32 = 10;

impl<M: Machine, R: RawRwLock<Machine = M>, P: Publish<M>, W: When, V: Revoke, S: Count>
    RawBravo<M, R, P, W, V, S>
{
    /// Listing 1, lines 37 to 49, by a writer that holds the underlying lock. `Some`: the slots are empty, and stay so for as
    /// long as the writer holds the lock. `None`: there was a reader in a slot until the timeout, and the lock is
    /// released.
    #[inline]
    pub(super) fn revoke(&self, token: R::Write, timeout: Timeout) -> Option<R::Write> {
        // Relaxed: the underlying lock orders this after the last writer. That writer has seen the slots empty, and there
        // has been no bias since, unless the word says otherwise.
        let bias = self.bias.load(Relaxed);
        if bias.is_on() || V::PASSING && bias.is_revoking() {
            return self.revoke_slow(token, timeout);
        }
        self.note_write();
        Some(token)
    }

    /// A writer that holds the underlying lock has found no bias: the slow reads before it are no longer in a row.
    #[inline(always)]
    pub(super) fn note_write(&self) {
        if W::COUNTS {
            self.in_a_row.store(0, Relaxed);
        }
    }

    #[cold]
    #[inline(never)]
    fn revoke_slow(&self, token: R::Write, timeout: Timeout) -> Option<R::Write> {
        // An attempt beside a reader costs no heavy fence, and leaves the bias as it is. A reader that this look misses is found below.
        if matches!(timeout, Timeout::Immediate) && self.is_in_a_slot() {
            // SAFETY: the token is from the caller's acquisition, which ends here.
            unsafe { self.lock.unlock_write(token) };
            return None;
        }
        let start = M::now(Clock::Monotonic);
        if V::PASSING {
            return self.revoke_passing(token, timeout, start);
        }
        // (B) Dekker pair with `read_fast`: the writer changes the bias before it looks at the slots.
        self.bias.swap(Bias::HOLDING, SeqCst);
        let empty = self.scan(timeout);
        let bias = if empty { self.revoked(start) } else { Bias::ON };
        // (A) Release matters when the bias is turned on again: fast readers come after the writers that this writer
        // came after.
        self.bias.store(bias, Release);
        if empty {
            return Some(token);
        }
        // SAFETY: the token is from the caller's acquisition, which ends here.
        unsafe { self.lock.unlock_write(token) };
        None
    }

    /// The same for a [`Passing`] writer. It begins with the brief hold: it waits for the readers in slots and keeps the
    /// underlying lock, for [`HOLD_TIME`] at most. If the writer is suspended meanwhile, another thread releases the lock for
    /// it ([`end_overdue_hold`](Self::end_overdue_hold)). After the brief hold it waits without the lock, as several writers
    /// may do at once. The token that it returns is that of its last acquisition.
    fn revoke_passing(&self, token: R::Write, timeout: Timeout, start: u64) -> Option<R::Write> {
        let mut empty = false;
        if self.bias.load(Relaxed).is_on() && Self::HOLDS_BRIEFLY {
            let held = Bias::brief_hold(start);
            // (B) as in `revoke_slow`.
            self.bias.swap(held, SeqCst);
            empty = self.scan(timeout.at_most(start + HOLD_TIME));
            let next = match timeout {
                _ if empty => self.revoked(start),
                Timeout::Immediate => Bias::ON,
                _ => Bias::REVOKING,
            };
            // (A) as in `revoke_slow`. The exchange fails if another thread has released the underlying lock; then the bias is
            // *revoking*, and this writer is counted.
            if self.bias.compare_exchange(held, next, Release).is_ok() {
                if empty {
                    return Some(token);
                }
                // SAFETY: the token is from the caller's acquisition. The caller gets another one, or none.
                unsafe { self.lock.unlock_write(token) };
                if next.is_on() {
                    return None;
                }
            }
        } else {
            if !self.join_revocation() {
                return Some(token);
            }
            // SAFETY: the token is from the caller's acquisition. The caller gets another one, or none.
            unsafe { self.lock.unlock_write(token) };
        }
        // The bias does not return while this writer is counted: slots that were seen empty stay empty, and no other writer is in its
        // brief hold, which this one would have to end.
        let empty = empty || self.scan(timeout);
        let off = self.revoked(start);
        let token = match timeout {
            _ if !empty => None,
            Timeout::Never => Some(self.lock.write()),
            Timeout::At(deadline) => self.lock.write_until(deadline),
            Timeout::Immediate => self.lock.try_write(),
        };
        self.leave_revocation(token.is_some(), off);
        token
    }

    /// Counts the caller among the revoking threads (*revoking n*). `false`: no reader can be in a slot. The caller holds
    /// the underlying lock for writing, or as its upgradable reader.
    pub(super) fn join_revocation(&self) -> bool {
        let mut bias = self.bias.load(Relaxed);
        while let Some(next) = bias.joined() {
            // (B) as in `revoke_slow`: every revoking thread looks at the slots itself, after this.
            match self.bias.compare_exchange(bias, next, SeqCst) {
                Ok(()) => return true,
                Err(now) => bias = now,
            }
        }
        false
    }

    /// Ends that. `wrote`: the caller has seen the slots empty and holds the underlying lock for writing. The last thread
    /// that leaves then turns the bias to its `off`, and otherwise on.
    pub(super) fn leave_revocation(&self, wrote: bool, off: Bias) {
        let mut bias = self.bias.load(Relaxed);
        // (A) as in `revoke_slow`.
        while let Err(now) = self.bias.compare_exchange(bias, bias.left(wrote, off), Release) {
            bias = now;
        }
    }

    /// Whether a [`Passing`] writer begins with a brief hold. Another thread must be able to release the underlying lock for
    /// it, so the token must have no content, and the lock must allow that.
    const HOLDS_BRIEFLY: bool = size_of::<R::Write>() == 0 && R::RELEASED_BY_ANY;

    /// Ends a brief hold that has lasted too long, because its writer is suspended: counts that writer among the revoking
    /// threads, and releases the underlying lock for it. Returns whether it did; then the caller may find that lock free.
    ///
    /// A thread that waits for the underlying lock calls this when its sleep ends by itself: it is the `watch` of
    /// [`write_watching`](RawRwLock::write_watching). An attempt that finds the underlying lock taken calls it too.
    #[cold]
    pub(super) fn end_overdue_hold(&self) -> bool {
        let bias = self.bias.load(Relaxed);
        if !(V::PASSING && Self::HOLDS_BRIEFLY && bias.is_brief_hold())
            || bias.hold_age(M::now(Clock::Monotonic)) <= OVERDUE_AFTER
            || self.bias.compare_exchange(bias, Bias::REVOKING, Acquire).is_err()
        {
            return false;
        }
        // SAFETY: during a brief hold, the writer that set the bias to it held the lock and had not entered its section. The
        // exchange makes the lock this thread's: that writer's own exchange fails. The token has no content, so any
        // word stands for it.
        unsafe { self.lock.unlock_write(R::Write::from_word(0)) };
        true
    }

    /// Waits for the readers in slots. Returns whether all of them have left.
    pub(super) fn scan(&self, timeout: Timeout) -> bool {
        P::fence();
        let me = self.address();
        let leaves = |slot: &'static M::Usize| {
            // (B) as in `revoke_slow`; (C) Acquire: pairs with `leave`.
            V::Await::until::<M, _, _>(slot, timeout, |reader| reader != me)
        };
        // SAFETY: the closure writes to no slot.
        unsafe { P::all_slots_of(me, leaves) }
    }

    /// The policy's state of the bias after a revocation that began at `start` and ends now.
    pub(super) fn revoked(&self, start: u64) -> Bias {
        let end = M::now(Clock::Monotonic);
        let bias = Bias::off(W::revoked::<M>(start, end));
        self.in_a_row.store(0, Relaxed);
        S::add::<M>(Event::Revocation, 1);
        S::add::<M>(Event::Revoking, end.saturating_sub(start));
        bias
    }
}
