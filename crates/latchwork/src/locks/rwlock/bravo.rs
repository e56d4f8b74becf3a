//! BRAVO: biased locking for readers, over any reader-writer lock.
//!
//! Source: Dice and Kogan, "BRAVO: Biased Locking for Reader-Writer Locks", USENIX ATC 2019,
//! section 3 and listing 1; the one-word encoding of bias and inhibition is from the notes of the
//! extended version on arXiv.
//!
//! While the lock is *biased*, a reader does not touch it: it writes the lock's address into a slot
//! that writers know of, and looks at the bias once more. A writer takes the underlying lock, and
//! if that is biased, *revokes*: it clears the bias, scans the slots, and waits for each reader that
//! it finds there. Readers that find no bias, or no slot, use the underlying lock; one that does may
//! set the bias, unless a revocation was recent.
//!
//! The parts are parameters, each a small type:
//!
//! | what | types | the paper's (a default) | the crate's `RwLock` |
//! |---|---|---|---|
//! | where a reader publishes | [`Hashed`], and that with two probes ([`Twice`](table::Twice)) or a sector per NUMA node ([`Sector`](table::Sector)); [`Columns`](table::Columns), a row per processor; [`Owned`], a row per thread | [`Hashed`] | [`Owned`]: a fast read has no atomic read-modify-write |
//! | when the lock is biased | [`Guard`], [`Bernoulli`](bias::Bernoulli), [`Adaptive`] | [`Guard`] | [`Adaptive`] |
//! | how a writer revokes | [`Holding`] the underlying lock, or readers [`Passing`] meanwhile | [`Holding`] | [`Passing`] |
//! | how it waits for a reader | [`Spins`](revoke::Spins), [`Naps`](revoke::Naps) | | [`Naps`](revoke::Naps) |
//! | statistics | [`Uncounted`], [`Counted`] | [`Uncounted`] | [`Uncounted`] |
//!
//! How slots are looked through is the publishing type's affair: all of the table, a cache line at a time
//! ([`Machine::find`]); one column of it; the threads' rows.
//!
//! Where it differs from the paper:
//! - A lock starts unbiased and gets its first bias after some slow reads, not one: see [`bias`].
//! - `try_write` never waits for a reader. The paper's revokes like `write`, and would wait in the
//!   table for a reader that a try must not wait for; here it clears the bias, scans, and gives up
//!   at the first reader that it meets. A timed write gives up at its deadline. Both then put the
//!   bias back before they release the underlying lock: the next writer must scan again.
//! - A thread with a row remembers the lock that it last found unbiased, and goes straight to the
//!   underlying lock the next time: a look at the bias first makes the lock's cache line move twice.
//! - A revoking writer spins briefly and then sleeps in naps; see [`Naps`](revoke::Naps).
//!
//! Size: the underlying lock and 8 bytes: 24 over `pf-t`, 32 over `pf-q` and `shfl-rw`. Per process 4096
//! slots, 32 KiB, or 128 bytes per thread: the rows grow with the number of threads by construction. A
//! holder has its slot, or what the underlying lock has. Atomics per uncontended pair:
//! fast read 1 (compare-and-exchange; leaving is a store), [`Owned`] 0; slow read as the underlying
//! lock's; write likewise, one more if it revokes.
//! Fairness and progress: those of the underlying lock among those who use it; in addition a
//! revoking writer waits for the readers in their slots, which none can enter any more.
//! Suspension: a writer that revokes [`Holding`] the underlying lock blocks the others if it is suspended. A writer
//! that revokes [`Passing`] blocks them for ten milliseconds or so; then the lock is as the one below, and stays unbiased
//! until that writer runs again. There are two exceptions of a few instructions. A writer that is suspended between the
//! acquisition of the underlying lock and the change of the bias counts as the holder. A reader that is
//! suspended between filling its slot and looking at the bias is inside for that time.
//! Re-entry: a thread that reads again may have to use the underlying lock; with a writer waiting
//! that blocks as the underlying lock does, and for ever if the writer has that lock already and waits for
//! this thread's slot, which a writer that revokes [`Passing`] does not.
//! Forgotten guards: the lock stays read-locked, and no other lock does. A lock that is dropped empties its slots;
//! one that was forgotten too, or moved, leaves its address in them, and a lock that comes to be there stays
//! unbiased. (Except one that was moved there when it was biased. Its writers wait for ever.)
//! Fork: a child finds the other threads' slots as they were; [`Native::forget_readers`].

use super::{
    ConstNew, Info, RawDowngrade, RawFair, RawRecursive, RawRwLock, RawUpgrade, Suspension, Timeout, Token,
};
use crate::machine::{Arith, Clock, Deadline, Machine, Native, Word};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, Ordering::*};

pub mod bias;
pub mod count;
pub mod publish;
pub mod revoke;
pub mod table;

use bias::{Adaptive, BIASED, FIRST, Guard, HELD, HELD_TICK, REVOKED, REVOKING, WARM_UP, WRITERS, When};
use count::{Count, Counted, Event, Uncounted};
use publish::{Owned, Publish};
use revoke::{Await, Holding, Passing, Revoke};
use table::Hashed;

/// Nanoseconds for which a writer that revokes looks for readers with the underlying lock in its hands, if readers may
/// pass: longer than looking at all of them takes, and no longer than the naps of a writer that waits for one.
const HOLD: u64 = 1_000_000;
/// Units of time after which others give that lock back in its stead. A preempted writer runs again within two or three
/// quanta, unless there are very many threads.
const HOLD_BOUND: u32 = 10;

/// BRAVO with a row of slots per thread over `R`, biased when that has paid.
pub type Rows<M, R> = RawBravo<M, R, Owned, Adaptive, Passing>;

/// BRAVO with a row of slots per processor over `R`.
pub type Columns<M, R> = RawBravo<M, R, table::Columns>;

/// BRAVO over the lock `R`. See the [module documentation](self).
#[repr(C)]
pub struct RawBravo<
    M: Machine,
    R: RawRwLock<Machine = M>,
    P: Publish<M> = Hashed,
    W = Guard,
    V = Holding,
    C = Uncounted,
> {
    lock: R,
    bias: M::U32,
    /// The policy's; see [`bias`].
    memory: M::U32,
    parts: PhantomData<(P, W, V, C)>,
}

impl<R: ConstNew, P: Publish<Native>, W, V, C> RawBravo<Native, R, P, W, V, C> {
    /// An unlocked lock, unbiased.
    pub const fn new() -> Self {
        RawBravo { lock: R::NEW, bias: AtomicU32::new(0), memory: AtomicU32::new(0), parts: PhantomData }
    }
}

impl<R: ConstNew, P: Publish<Native>, W, V, C> Default for RawBravo<Native, R, P, W, V, C> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: ConstNew, P: Publish<Native>, W: When, V: Revoke, C: Count> ConstNew
    for RawBravo<Native, R, P, W, V, C>
{
    #[allow(clippy::declare_interior_mutable_const)]
    const NEW: Self = Self::new();
}

impl<M: Machine, R: RawRwLock<Machine = M>, P: Publish<M>, W, V, C> Drop for RawBravo<M, R, P, W, V, C> {
    /// Empties the slots of readers that have been forgotten (`mem::forget` of a guard): they hold an address that
    /// another lock may have next.
    #[inline]
    fn drop(&mut self) {
        if self.may_have_slots() {
            self.forget_readers();
        }
    }
}

impl<M: Machine, R: RawRwLock<Machine = M>, P: Publish<M>, W, V, C> RawBravo<M, R, P, W, V, C> {
    /// What a reader writes into its slot. Never 0.
    #[inline]
    fn address(&self) -> usize {
        M::identity(core::ptr::from_ref(self).addr())
    }

    /// Whether there can be readers of this lock in slots. If not, a slot that holds its address has one of two owners:
    /// a forgotten reader of another lock that was at this address before, or a thread that looks at the bias now.
    fn may_have_slots(&self) -> bool {
        // (A) Acquire: pairs with the store in `step`, for a caller that does not hold the lock.
        let bias = self.bias.load(Acquire);
        bias == BIASED || bias >= HELD
    }

    /// Whether there can be readers in slots that no writer has waited for.
    fn hides_readers(&self) -> bool {
        let bias = self.bias.load(Acquire); // (A) as above
        bias == BIASED || bias >= HELD && !(bias >= REVOKING && bias & REVOKED != 0)
    }

    /// Whether a slot holds the lock's address.
    fn is_in_a_slot(&self) -> bool {
        // SAFETY: the closure writes to no slot.
        !unsafe { P::all(self.address(), |_| false) }
    }

    /// Empties the slots that hold the lock's address, which is about to be another's.
    #[cold]
    #[inline(never)]
    fn forget_readers(&mut self) {
        // SAFETY: nobody else uses the lock, so that no slot is a reader's that will leave it.
        unsafe {
            P::all(self.address(), |slot| {
                Self::leave(slot);
                true
            })
        };
    }

    #[inline]
    fn leave(slot: &M::Usize) {
        // (C) pairs with the scan in `revoke`: the section happens before the writer's.
        // (D) Release even when there was no section: a writer of *another* lock may read this
        // store where it would have read that of the slot's previous user.
        slot.store(0, Release);
    }
}

/// How a reader got in.
pub enum ReadToken<S: 'static, T> {
    /// Through the table: its slot.
    Fast(Filled<S>),
    /// Through the underlying lock: that lock's token.
    Slow(T),
}

/// A slot that a reader has filled. It may be another reader's later, so that safe code must not write to it.
pub struct Filled<S: 'static>(&'static S);

impl<S> Clone for Filled<S> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S> Copy for Filled<S> {}

impl<S> Filled<S> {
    /// This slot.
    pub fn new(slot: &'static S) -> Self {
        Filled(slot)
    }

    /// The slot.
    ///
    /// # Safety
    ///
    /// The caller writes to it only to end the acquisition that it stands for.
    pub unsafe fn slot(self) -> &'static S {
        self.0
    }
}

impl<S, T: Copy> Clone for ReadToken<S, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S, T: Copy> Copy for ReadToken<S, T> {}

/// As a word: the slot's address with the lowest bit set, or the underlying token's word, whose
/// lowest bit is free.
impl<S, T: Token> Token for ReadToken<S, T> {
    const HAS_FREE_BIT: bool = false;

    #[inline]
    fn into_word(self) -> usize {
        const { assert!(align_of::<S>() > 1 && T::HAS_FREE_BIT) };
        match self {
            ReadToken::Fast(Filled(slot)) => core::ptr::from_ref(slot).expose_provenance() | 1,
            ReadToken::Slow(token) => token.into_word(),
        }
    }

    #[inline]
    unsafe fn from_word(word: usize) -> Self {
        if word & 1 != 0 {
            // SAFETY: only `Fast` sets the bit; the rest is the address of a slot, which is static.
            ReadToken::Fast(Filled(unsafe { &*core::ptr::with_exposed_provenance(word & !1) }))
        } else {
            // SAFETY: the word came from the underlying token.
            ReadToken::Slow(unsafe { T::from_word(word) })
        }
    }
}

impl<M: Machine, R: RawRwLock<Machine = M>, P: Publish<M>, W: When, V: Revoke, C: Count>
    RawBravo<M, R, P, W, V, C>
{
    /// Bytes of the lock that are ever written; what follows is padding.
    pub const USED_BYTES: usize = core::mem::offset_of!(Self, memory) + size_of::<M::U32>();

    /// Where the bias is, and the value of it with which readers use the table, for fast paths that are not written
    /// in Rust.
    pub const BIAS: usize = core::mem::offset_of!(Self, bias);
    /// See [`BIAS`](Self::BIAS).
    pub const BIASED: u32 = BIASED;

    /// An unlocked lock that is biased from the start: for a lock that is known to be mostly read.
    pub fn new_biased_in() -> Self {
        let bias = if P::prepare() { BIASED } else { 0 };
        RawBravo { lock: R::new_in(), bias: M::U32::new(bias), memory: M::U32::new(0), parts: PhantomData }
    }

    /// Whether readers use the table, a moment ago.
    pub fn is_biased(&self) -> bool {
        self.bias.load(Relaxed) == BIASED
    }

    /// Listing 1, lines 12 to 22, of which `published` has done the first half.
    #[inline(always)]
    fn read_fast(&self, published: Option<&'static M::Usize>) -> Option<&'static M::Usize> {
        let slot = published?; // (B)
        // (A) Acquire: pairs with the store in `step`, which comes after the last writer.
        if self.bias.load(SeqCst) == BIASED {
            C::add::<M>(Event::Fast, 1);
            return Some(slot);
        }
        C::add::<M>(Event::InVain, 1);
        Self::leave(slot);
        None
    }

    #[inline(always)]
    fn read_first(&self) -> Option<&'static M::Usize> {
        // SAFETY: the slot is emptied by `leave`, unless the lock is biased and this thread reads it.
        self.read_fast(unsafe { P::publish(self.address(), || self.is_biased()) })
    }

    fn read_elsewhere(&self) -> Option<&'static M::Usize> {
        // SAFETY: as in `read_first`.
        self.read_fast(unsafe { P::publish_elsewhere(self.address(), || self.is_biased()) })
    }

    /// With the underlying lock, unless there is another slot to be had.
    #[inline(never)]
    fn read_slow(&self) -> ReadToken<M::Usize, R::Read> {
        if let Some(slot) = self.read_elsewhere() {
            return ReadToken::Fast(Filled(slot));
        }
        let biased = C::ON && self.is_biased();
        let token = if V::PASSING {
            let Some(token) = self.lock.read_watching(None, &|| _ = self.end_hold()) else {
                unreachable!("without a deadline")
            };
            token
        } else {
            self.lock.read()
        };
        self.after_slow_read(biased);
        ReadToken::Slow(token)
    }

    #[inline(never)]
    fn try_read_slow(&self) -> Option<ReadToken<M::Usize, R::Read>> {
        if let Some(slot) = self.read_elsewhere() {
            return Some(ReadToken::Fast(Filled(slot)));
        }
        let biased = C::ON && self.is_biased();
        let token = match self.lock.try_read() {
            None if self.end_hold() => self.lock.try_read(),
            token => token,
        }?;
        self.after_slow_read(biased);
        Some(ReadToken::Slow(token))
    }

    /// Listing 1, lines 25 and 26; the caller holds the underlying lock for reading. Several
    /// readers may be here at once. `was_biased` is for the statistics: whether it was for want of a slot.
    #[inline]
    fn after_slow_read(&self, was_biased: bool) {
        C::add::<M>(if was_biased { Event::Collision } else { Event::Unbiased }, 1);
        // No writer is about: the value is the last writer's, or a reader's since.
        let bias = self.bias.load(Relaxed);
        P::note_unbiased(self.address(), bias != BIASED);
        if bias < WARM_UP || bias != BIASED && bias::sampled::<M>() {
            self.step(bias);
        }
    }

    /// Before the bias is set: whether no slot holds the lock's address. Writers would wait for one that does as for a
    /// reader, so the lock does without bias until it is gone.
    #[cold]
    fn is_unnamed(&self) -> bool {
        let me = self.address();
        // SAFETY: the lock is not biased, so that no reader of it has a slot.
        while let Some(slot) = unsafe { P::own(me) } {
            Self::leave(slot);
        }
        !self.is_in_a_slot()
    }

    /// Takes the bias from `bias` one step on.
    #[cold]
    fn step(&self, bias: u32) {
        let next = if bias < WARM_UP - 1 {
            bias + 1
        } else if bias == BIASED || bias >= HELD || bias > BIASED && !self.may_return(bias) || !P::prepare() {
            return;
        } else if self.is_unnamed() {
            BIASED
        } else {
            0 // as many slow reads before the next look
        };
        // (A) pairs with the second look in `read_fast`: fast readers come after the writers that
        // we came after. If it fails, another reader has gone a step.
        let gone = self.bias.compare_exchange(bias, next, Release, Relaxed).is_ok();
        if gone && next == BIASED {
            self.memory.store(W::returning::<M>(self.memory.load(Relaxed)), Relaxed);
        }
    }

    /// Whether the policy, which hears of this slow read, says that the bias may be set again.
    fn may_return(&self, bias: u32) -> bool {
        let sampled = W::sampled(self.memory.load(Relaxed));
        if sampled != 0 {
            self.memory.fetch_add(sampled, Relaxed);
        }
        W::may_return::<M>(bias)
    }

    /// Listing 1, lines 37 to 49, by a writer that holds the underlying lock: afterwards no reader is in the table, and
    /// that stays so for as long as the writer holds the lock. `None`: there was one, and the lock is released.
    #[inline]
    fn revoke(&self, token: R::Write, timeout: Timeout) -> Option<R::Write> {
        // Relaxed: unless it is on, or readers pass, the last writer has seen the table empty, or there was no
        // bias since; the underlying lock orders us behind that writer.
        let bias = self.bias.load(Relaxed);
        if bias == BIASED || V::PASSING && bias >= REVOKING {
            return self.revoke_slow(token, timeout);
        }
        Some(token)
    }

    #[cold]
    #[inline(never)]
    fn revoke_slow(&self, token: R::Write, timeout: Timeout) -> Option<R::Write> {
        let start = M::now(Clock::Monotonic);
        if V::PASSING {
            return self.revoke_passing(token, timeout, start);
        }
        // (B) Dekker pair with `read_fast`: the bias is written before the slots are read.
        self.bias.swap(REVOKING, SeqCst);
        let empty = self.scan(timeout);
        let bias = if empty { self.revoked(start) } else { BIASED };
        // (A) Release matters when the bias is put back: fast readers come after the writers that
        // we came after.
        self.bias.store(bias, Release);
        if empty {
            return Some(token);
        }
        // SAFETY: the token is from the caller's acquisition, which ends here.
        unsafe { self.lock.unlock_write(token) };
        None
    }

    /// The same for a writer that readers may pass. It looks for readers with the underlying lock in its hands at first,
    /// and that is over soon: otherwise it gives the lock back, or another thread does (`end_hold`). Then it waits
    /// for them without, as several writers may do at once. Any of them may be suspended: each looks through the table
    /// itself.
    fn revoke_passing(&self, token: R::Write, timeout: Timeout, start: u64) -> Option<R::Write> {
        let mut empty = false;
        if self.bias.load(Relaxed) == BIASED && Self::HOLDS {
            let held = HELD + (start >> HELD_TICK) as u32 % (REVOKING - HELD);
            // (B) as in `revoke_slow`.
            self.bias.swap(held, SeqCst);
            empty = self.scan(timeout.at_most(start + HOLD));
            let next = match timeout {
                _ if empty => self.revoked(start),
                Timeout::Immediate => BIASED,
                _ => REVOKING + 1,
            };
            // (A) as in `revoke_slow`. It fails if another thread has given the lock back; then we are counted.
            if self.bias.compare_exchange(held, next, Release, Relaxed).is_ok() {
                if empty {
                    return Some(token);
                }
                // SAFETY: the token is from the caller's acquisition; the caller gets another, or none.
                unsafe { self.lock.unlock_write(token) };
                if next == BIASED {
                    return None;
                }
            }
        } else {
            if !self.count_in() {
                return Some(token);
            }
            // SAFETY: the token is from the caller's acquisition; the caller gets another, or none.
            unsafe { self.lock.unlock_write(token) };
        }
        // As long as we are counted the bias does not return, so a table that was seen empty stays so.
        let empty = empty || self.scan(timeout);
        let value = self.revoked(start);
        let token = match timeout {
            _ if !empty => None,
            Timeout::Never => self.lock.write_watching(None, &|| _ = self.end_hold()),
            Timeout::At(deadline) => self.lock.write_watching(Some(deadline), &|| _ = self.end_hold()),
            Timeout::Immediate => self.lock.try_write(),
        };
        self.count_out(token.is_some(), value);
        token
    }

    /// Counts the caller among the threads that wait for the readers in their slots, unless there can be none. It holds the
    /// underlying lock for writing or as its upgradable reader.
    fn count_in(&self) -> bool {
        let mut bias = self.bias.load(Relaxed);
        loop {
            let next = match bias {
                BIASED => REVOKING + 1,
                bias if bias < REVOKING || bias & REVOKED != 0 => return false,
                bias => bias + 1,
            };
            // (B) as in `revoke_slow`. (The slots are read after this, by every writer.)
            match self.bias.compare_exchange(bias, next, SeqCst, Relaxed) {
                Ok(_) => return true,
                Err(now) => bias = now,
            }
        }
    }

    /// Ends that. `revoked`: the caller has seen that there are none, and holds the underlying lock for writing. Then the
    /// bias becomes a policy's value, that of the last such thread to count itself out.
    fn count_out(&self, revoked: bool, value: u32) {
        let seen = if revoked { REVOKED } else { 0 };
        let mut bias = self.bias.load(Relaxed);
        loop {
            let next = match (bias | seen) - 1 {
                next if next & WRITERS != 0 => next,
                next if next & REVOKED != 0 => value,
                // Nobody has written since: a writer that had would have left REVOKED.
                _ => BIASED,
            };
            // (A) as in `revoke_slow`.
            match self.bias.compare_exchange(bias, next, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => bias = now,
            }
        }
    }

    /// Whether a writer that readers may pass begins with the underlying lock in its hands: another thread must be able
    /// to give that back, which needs a token without content.
    const HOLDS: bool = size_of::<R::Write>() == 0;

    /// Gives the underlying lock back in the stead of a writer that revokes and has been suspended with it. Whether it
    /// did.
    #[cold]
    fn end_hold(&self) -> bool {
        let bias = self.bias.load(Relaxed);
        if !(V::PASSING && Self::HOLDS && (HELD..REVOKING).contains(&bias)) {
            return false;
        }
        let since = (M::now(Clock::Monotonic) >> HELD_TICK) as u32;
        if since.wrapping_sub(bias - HELD) % (REVOKING - HELD) <= HOLD_BOUND
            || self.bias.compare_exchange(bias, REVOKING + 1, Acquire, Relaxed).is_err()
        {
            return false;
        }
        // SAFETY: while the bias was HELD, the writer that set it held the lock and had not entered its section. The
        // exchange makes the lock ours: that writer's own exchange fails. The token has no content, so that
        // every word stands for it.
        unsafe { self.lock.unlock_write(R::Write::from_word(0)) };
        true
    }

    /// Waits for the readers in the table. Whether all have left.
    fn scan(&self, timeout: Timeout) -> bool {
        P::fence();
        let me = self.address();
        let leaves = |slot: &'static M::Usize| {
            // (B) as in `revoke_slow`; (C) Acquire: pairs with `leave`.
            V::Await::until::<M, _, _>(slot, timeout, |reader| reader != me)
        };
        // SAFETY: it only reads the slots.
        unsafe { P::all(me, leaves) }
    }

    /// The policy's value of the bias after a revocation that began at `start` and ends now.
    fn revoked(&self, start: u64) -> u32 {
        let (mut memory, end) = (self.memory.load(Relaxed), M::now(Clock::Monotonic));
        let bias = W::revoked::<M>(start, end, &mut memory).clamp(FIRST, HELD - 1);
        self.memory.store(memory, Relaxed);
        C::add::<M>(Event::Revocation, 1);
        C::add::<M>(Event::Revoking, end.saturating_sub(start));
        bias
    }
}

/// Name and summary, from those of the parts, as constants.
struct Described<M, R, P>(PhantomData<(M, R, P)>);

impl<M: Machine, R: RawRwLock, P: Publish<M>> Described<M, R, P> {
    const NAME: &'static str = text(&Self::NAME_BYTES, P::PREFIX.len() + R::INFO.name.len());
    const NAME_BYTES: [u8; TEXT] = join(P::PREFIX, R::INFO.name);
    const SUMMARY: &'static str = text(&Self::SUMMARY_BYTES, P::SUMMARY.len() + R::INFO.summary.len());
    const SUMMARY_BYTES: [u8; TEXT] = join(P::SUMMARY, R::INFO.summary);
}

/// Room for the longest composed text.
const TEXT: usize = 160;

const fn join(first: &str, second: &str) -> [u8; TEXT] {
    let mut bytes = [0; TEXT];
    let (head, tail) = bytes.split_at_mut(first.len());
    head.copy_from_slice(first.as_bytes());
    tail.split_at_mut(second.len()).0.copy_from_slice(second.as_bytes());
    bytes
}

const fn text(bytes: &'static [u8; TEXT], length: usize) -> &'static str {
    match core::str::from_utf8(bytes.split_at(length).0) {
        Ok(text) => text,
        Err(_) => unreachable!(),
    }
}

// SAFETY: a reader holds the underlying lock, which excludes writers, or was in the table when a
// writer came and is waited for (B); if it came later it does not enter. (A) and (C) order the
// sections of fast readers and writers, the underlying lock all others.
unsafe impl<M: Machine, R: RawRwLock<Machine = M>, P: Publish<M>, W: When, V: Revoke, C: Count> RawRwLock
    for RawBravo<M, R, P, W, V, C>
{
    type Machine = M;
    type Read = ReadToken<M::Usize, R::Read>;
    type Write = R::Write;
    type Counted = RawBravo<M, R, P, W, V, Counted>;
    const INFO: Info = Info {
        name: Described::<M, R, P>::NAME,
        summary: Described::<M, R, P>::SUMMARY,
        atomics: P::ATOMICS,
        waiter_bytes: R::INFO.waiter_bytes,
        holder_bytes: R::INFO.holder_bytes,
        fairness: "as the lock below; a writer also waits for the readers in the table",
        blocking: R::INFO.blocking,
        suspension: if V::PASSING { R::INFO.suspension } else { Suspension::Blocks },
        source: P::SOURCE,
    };

    const SHARES: bool = R::SHARES;

    fn new_in() -> Self {
        RawBravo { lock: R::new_in(), bias: M::U32::new(0), memory: M::U32::new(0), parts: PhantomData }
    }

    #[inline]
    fn read(&self) -> Self::Read {
        match self.read_first() {
            Some(slot) => ReadToken::Fast(Filled(slot)),
            None => self.read_slow(),
        }
    }

    #[inline(always)]
    fn try_read(&self) -> Option<Self::Read> {
        match self.read_first() {
            Some(slot) => Some(ReadToken::Fast(Filled(slot))),
            None => self.try_read_slow(),
        }
    }

    #[inline(always)]
    fn try_read_weak(&self) -> Option<Self::Read> {
        if let Some(slot) = self.read_first() {
            return Some(ReadToken::Fast(Filled(slot)));
        }
        let biased = C::ON && self.is_biased();
        let token = self.lock.try_read_weak()?;
        self.after_slow_read(biased);
        Some(ReadToken::Slow(token))
    }

    #[inline(always)]
    fn remembers(token: &Self::Read) -> bool {
        P::OWNED && matches!(token, ReadToken::Fast(_))
    }

    #[inline(always)]
    fn reads_own(&self) -> bool {
        // SAFETY: it only reads it.
        self.may_have_slots() && unsafe { P::own(self.address()) }.is_some()
    }

    #[inline(always)]
    unsafe fn unlock_own(&self) -> bool {
        // SAFETY: the caller ends the acquisition that the slot stands for.
        unsafe { P::own(self.address()) }.map(Self::leave).is_some()
    }

    unsafe fn unlock_of_another(&self) -> bool {
        let me = self.address();
        // (C) as in `leave`; Acquire: the section was the other thread's. It fails at most if that
        // thread leaves as well, which the caller excludes.
        // SAFETY: the caller ends the acquisition that the slot stands for.
        self.is_remembered()
            && !unsafe { P::all(me, |slot| slot.compare_exchange(me, 0, AcqRel, Relaxed).is_err()) }
    }

    fn is_remembered(&self) -> bool {
        P::OWNED && self.may_have_slots() && self.is_in_a_slot()
    }

    unsafe fn remember_again(&self) {
        P::prepare();
        self.bias.store(BIASED, Relaxed);
    }

    fn read_until(&self, deadline: Deadline) -> Option<Self::Read> {
        let fast = self.read_first().or_else(|| self.read_elsewhere());
        if let Some(slot) = fast {
            return Some(ReadToken::Fast(Filled(slot)));
        }
        let biased = C::ON && self.is_biased();
        let token = self.lock.read_watching(Some(deadline), &|| _ = self.end_hold())?;
        self.after_slow_read(biased);
        Some(ReadToken::Slow(token))
    }

    #[inline]
    unsafe fn unlock_read(&self, token: Self::Read) {
        match token {
            ReadToken::Fast(Filled(slot)) => Self::leave(slot),
            // SAFETY: the token is the underlying acquisition's.
            ReadToken::Slow(token) => unsafe { self.lock.unlock_read(token) },
        }
    }

    #[inline]
    fn write(&self) -> Self::Write {
        let token = if V::PASSING {
            self.lock.write_watching(None, &|| _ = self.end_hold())
        } else {
            Some(self.lock.write())
        };
        let token = token.and_then(|token| self.revoke(token, Timeout::Never));
        let Some(token) = token else { unreachable!("without a deadline") };
        token
    }

    #[inline]
    fn try_write(&self) -> Option<Self::Write> {
        let token = match self.lock.try_write() {
            None if self.end_hold() => self.lock.try_write(),
            token => token,
        }?;
        self.revoke(token, Timeout::Immediate)
    }

    fn write_until(&self, deadline: Deadline) -> Option<Self::Write> {
        let token = self.lock.write_watching(Some(deadline), &|| _ = self.end_hold())?;
        self.revoke(token, Timeout::At(deadline))
    }

    #[inline]
    unsafe fn unlock_write(&self, token: Self::Write) {
        // SAFETY: the token is the underlying acquisition's.
        unsafe { self.lock.unlock_write(token) }
    }

    fn is_locked(&self) -> bool {
        self.lock.is_locked() || self.may_have_slots() && self.is_in_a_slot()
    }

    fn is_write_locked(&self) -> bool {
        self.lock.is_write_locked()
    }
}

// SAFETY: a writer has revoked the bias, so all readers are in the underlying lock, and a downgraded writer is one of them.
unsafe impl<M, R, P, W, V, C> RawDowngrade for RawBravo<M, R, P, W, V, C>
where
    M: Machine,
    R: RawDowngrade<Machine = M>,
    P: Publish<M>,
    W: When,
    V: Revoke,
    C: Count,
{
    #[inline]
    unsafe fn downgrade(&self, token: Self::Write) -> Self::Read {
        // SAFETY: the token is the underlying acquisition's.
        ReadToken::Slow(unsafe { self.lock.downgrade(token) })
    }
}

// SAFETY: the underlying lock keeps other writers and upgradable readers out. An upgrade holds it for writing when there
// is no reader in a slot: it has revoked the bias, and stayed counted, until it held the lock.
unsafe impl<M, R, P, W, V, C> RawUpgrade for RawBravo<M, R, P, W, V, C>
where
    M: Machine,
    R: RawUpgrade<Machine = M>,
    P: Publish<M>,
    W: When,
    V: Revoke,
    C: Count,
{
    type Upgradable = R::Upgradable;

    fn upgradable_within(&self, timeout: Timeout, watch: &dyn Fn()) -> Option<Self::Upgradable> {
        let watch = || {
            self.end_hold();
            watch();
        };
        match self.lock.upgradable_within(timeout, &watch) {
            None if matches!(timeout, Timeout::Immediate) && self.end_hold() => self.lock.try_upgradable(),
            token => token,
        }
    }

    #[inline]
    unsafe fn unlock_upgradable(&self, token: Self::Upgradable) {
        // SAFETY: the token is the underlying acquisition's.
        unsafe { self.lock.unlock_upgradable(token) }
    }

    #[inline]
    unsafe fn unlock_upgradable_fair(&self, token: Self::Upgradable) {
        // SAFETY: the token is the underlying acquisition's.
        unsafe { self.lock.unlock_upgradable_fair(token) }
    }

    /// The bias is revoked while the underlying lock is upgradable, so that readers pass: one of those that the upgrade
    /// waits for may read again. Then the underlying lock is upgraded. Only a reader of the underlying lock may set the
    /// bias, so it cannot return after that, but it may have before.
    unsafe fn upgrade_within(
        &self,
        mut token: Self::Upgradable,
        timeout: Timeout,
    ) -> Result<Self::Write, Self::Upgradable> {
        loop {
            let start = M::now(Clock::Monotonic);
            let counted = self.count_in();
            if counted && !self.scan(timeout) {
                self.count_out(false, self.revoked(start));
                return Err(token);
            }
            // SAFETY: the token is the underlying acquisition's.
            match unsafe { self.lock.upgrade_within(token, timeout) } {
                Ok(write) if counted => {
                    self.count_out(true, self.revoked(start));
                    return Ok(write);
                }
                Ok(write) if !self.hides_readers() => return Ok(write),
                // SAFETY: the token is the underlying acquisition's.
                Ok(write) => token = unsafe { self.lock.downgrade_to_upgradable(write) },
                Err(token) => {
                    if counted {
                        self.count_out(false, self.revoked(start));
                    }
                    return Err(token);
                }
            }
        }
    }

    #[inline]
    unsafe fn downgrade_upgradable(&self, token: Self::Upgradable) -> Self::Read {
        // SAFETY: the token is the underlying acquisition's.
        ReadToken::Slow(unsafe { self.lock.downgrade_upgradable(token) })
    }

    #[inline]
    unsafe fn downgrade_to_upgradable(&self, token: Self::Write) -> Self::Upgradable {
        // SAFETY: the token is the underlying acquisition's.
        unsafe { self.lock.downgrade_to_upgradable(token) }
    }
}

// SAFETY: a recursive reader reads through a slot, or through the underlying lock. A writer that waits for readers in their
// slots has given that lock back, or will within a bounded time, and the caller does not queue meanwhile.
unsafe impl<M, R, P, W, A, C> RawRecursive for RawBravo<M, R, P, W, Passing<A>, C>
where
    M: Machine,
    R: RawRecursive<Machine = M>,
    P: Publish<M>,
    W: When,
    A: Await,
    C: Count,
{
    #[inline]
    fn read_recursive_within(&self, timeout: Timeout, watch: &dyn Fn()) -> Option<Self::Read> {
        match self.read_first() {
            Some(slot) => Some(ReadToken::Fast(Filled(slot))),
            None => self.read_recursive_slow(timeout, watch),
        }
    }
}

impl<M, R, P, W, A, C> RawBravo<M, R, P, W, Passing<A>, C>
where
    M: Machine,
    R: RawRecursive<Machine = M>,
    P: Publish<M>,
    W: When,
    A: Await,
    C: Count,
{
    #[inline(never)]
    fn read_recursive_slow(
        &self,
        timeout: Timeout,
        watch: &dyn Fn(),
    ) -> Option<ReadToken<M::Usize, R::Read>> {
        loop {
            if let Some(slot) = self.read_elsewhere() {
                return Some(ReadToken::Fast(Filled(slot)));
            }
            let biased = C::ON && self.is_biased();
            // With a reader in a slot, perhaps the caller itself, the caller must not queue behind a writer.
            let timeout_below = if self.hides_readers() { Timeout::Immediate } else { timeout };
            let watch_below = || {
                self.end_hold();
                watch();
            };
            if let Some(token) = self.lock.read_recursive_within(timeout_below, &watch_below) {
                self.after_slow_read(biased);
                return Some(ReadToken::Slow(token));
            }
            if matches!(timeout_below, Timeout::Immediate) && !matches!(timeout, Timeout::Immediate) {
                // The writer that holds the underlying lock changes the bias soon: in a millisecond if it waits for readers.
                let bias = self.bias.load(Relaxed);
                watch_below();
                A::until::<M, _, _>(&self.bias, timeout.at_most(M::now(Clock::Monotonic) + HOLD), |now| {
                    now != bias
                });
                if !timeout.passed::<M>() {
                    continue;
                }
            }
            let ended = self.end_hold();
            return ended.then(|| self.lock.try_read_recursive()).flatten().map(ReadToken::Slow);
        }
    }
}

// SAFETY: the functions end the acquisitions as those of `RawRwLock` do.
unsafe impl<M, R, P, W, V, C> RawFair for RawBravo<M, R, P, W, V, C>
where
    M: Machine,
    R: RawFair<Machine = M>,
    P: Publish<M>,
    W: When,
    V: Revoke,
    C: Count,
{
    #[inline]
    fn is_awaited(&self) -> bool {
        self.bias.load(Relaxed) >= HELD || self.lock.is_awaited()
    }

    #[inline]
    unsafe fn unlock_read_fair(&self, token: Self::Read) {
        match token {
            ReadToken::Fast(Filled(slot)) => Self::leave(slot),
            // SAFETY: the token is the underlying acquisition's.
            ReadToken::Slow(token) => unsafe { self.lock.unlock_read_fair(token) },
        }
    }

    #[inline]
    unsafe fn unlock_write_fair(&self, token: Self::Write) {
        // SAFETY: the token is the underlying acquisition's.
        unsafe { self.lock.unlock_write_fair(token) }
    }
}

#[cfg(test)]
mod tests;
