//! BRAVO: biased locking for readers, over any reader-writer lock.
//!
//! Source: Dice and Kogan, "BRAVO: Biased Locking for Reader-Writer Locks", USENIX ATC 2019,
//! section 3 and listing 1; the one-word encoding of bias and inhibition is from the notes of the
//! extended version on arXiv.
//!
//! While the lock is *biased*, a reader does not touch it: it writes the lock's address into one
//! slot of a process-wide table, chosen by a hash of lock and thread, and looks at the bias once
//! more. A writer takes the underlying lock, and if that is biased, *revokes*: it clears the bias,
//! scans the table, and waits for each reader that it finds there. Readers that find no bias, or
//! their slot taken, use the underlying lock; one that does may set the bias, unless a revocation
//! was recent: after a revocation that took time t, the bias stays off for N t, so that revoking
//! costs writers at most one part in N + 1.
//!
//! State of `bias`, one 32-bit word:
//!
//! | value | meaning | who leaves it |
//! |---|---|---|
//! | 0 to WARM_UP - 1 | off; so many slow reads since the lock was made | each slow reader, to the next; the last to BIASED |
//! | BIASED | on | a writer, to 0 and then to a time, holding the underlying lock for writing |
//! | a time T (28 bits, units of 4.096 microseconds) and a count (4 bits) | off until T | each slow reader, counting down; the one at 0 looks at the clock, and goes to BIASED after T, else starts the count again |
//!
//! Only a holder of the underlying read lock sets the bias, so no writer is past its revocation
//! when it appears. All slow readers change the word by compare-and-exchange: a plain store of the
//! next count could undo the bias that another has just set, with readers in the table already.
//! The count is there because the clock costs more than the rest of a slow read.
//!
//! Times wrap after 18 minutes: inhibition lasts 68 seconds at most, and a time farther ahead than
//! that has passed. (Should a lock go without slow reads until its T looks ahead again, it stays
//! unbiased for another 68 seconds at worst.)
//!
//! Where it differs from the paper:
//! - A lock starts unbiased and gets its first bias after WARM_UP slow reads, not one. Programs
//!   make locks that are read once or twice in their lives (OpenSSL, tens of thousands a second),
//!   and a first write that scans 4096 slots would undo the "primum non nocere".
//! - `try_write` never waits for a reader. The paper's revokes like `write`, and would wait in the
//!   table for a reader that a try must not wait for; here it clears the bias, scans, and gives up
//!   at the first reader that it meets. A timed write gives up at its deadline. Both then put the
//!   bias back before they release the underlying lock: the next writer must scan again.
//!
//! Size: the underlying lock and 4 bytes: 20 over `pf-t`, 28 used of 32 over `pf-q` (offset 28 to
//! 32 is padding that no operation writes). Per process 4096 slots, 32 KiB. A holder has its slot,
//! or what the underlying lock has. Atomics per uncontended pair: fast read 1 (compare-and-exchange;
//! leaving is a store); slow read one more than the underlying lock's while the bias is off; write
//! those of the underlying lock, one more if it revokes.
//! Fairness and progress: those of the underlying lock among those who use it; in addition a
//! revoking writer waits for the readers in the table, which none can enter any more.
//! Re-entry: a thread that reads again while it is in the table finds its own slot taken and uses
//! the underlying lock; with a writer waiting that blocks as the underlying lock does.

use super::{ConstNew, Info, RawRwLock, Token};
use crate::machine::{Clock, Deadline, Machine, Native, Word};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, Ordering::*};

/// The slow-down guard (listing 1, `N`).
const N: u64 = 9;
/// Slow reads before a new lock is biased for the first time (`tests/loom` does as many).
const WARM_UP: u32 = 16;
/// The bias is on.
const BIASED: u32 = WARM_UP;
/// Nanoseconds per unit of time, as a shift.
const TICK: u32 = 12;
/// The longest inhibition in units of time: 68 seconds.
const LONGEST: u32 = 1 << 24;
/// The bits below the time: slow reads until the next look at the clock.
const COUNT_BITS: u32 = 4;
/// All of them.
const COUNT: u32 = (1 << COUNT_BITS) - 1;

/// BRAVO over the lock `R`. See the [module documentation](self).
#[repr(C)]
pub struct RawBravo<M: Machine, R: RawRwLock<Machine = M>> {
    lock: R,
    bias: M::U32,
}

impl<R: ConstNew> RawBravo<Native, R> {
    /// An unlocked lock, unbiased.
    pub const fn new() -> Self {
        RawBravo { lock: R::NEW, bias: AtomicU32::new(0) }
    }
}

impl<R: ConstNew> Default for RawBravo<Native, R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: ConstNew> ConstNew for RawBravo<Native, R> {
    #[allow(clippy::declare_interior_mutable_const)]
    const NEW: Self = Self::new();
}

/// The first time that is not another state, whatever its count.
const FIRST_TIME: u32 = (BIASED >> COUNT_BITS) + 1;

/// How a reader got in.
pub enum ReadToken<S: 'static, T> {
    /// Through the table: its slot.
    Fast(&'static S),
    /// Through the underlying lock: that lock's token.
    Slow(T),
}

impl<S, T: Copy> Clone for ReadToken<S, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S, T: Copy> Copy for ReadToken<S, T> {}

/// As a word: the slot's address with the lowest bit set, or the underlying token's word, whose
/// lowest bit must be clear (queue nodes are aligned, and a token without content is 0).
impl<S, T: Token> Token for ReadToken<S, T> {
    #[inline]
    fn into_word(self) -> usize {
        const { assert!(align_of::<S>() > 1) };
        match self {
            ReadToken::Fast(slot) => core::ptr::from_ref(slot).expose_provenance() | 1,
            ReadToken::Slow(token) => {
                let word = token.into_word();
                debug_assert!(word & 1 == 0, "an underlying token uses the lowest bit");
                word
            }
        }
    }

    #[inline]
    unsafe fn from_word(word: usize) -> Self {
        if word & 1 != 0 {
            // SAFETY: only `Fast` sets the bit; the rest is the address of a slot, which is static.
            ReadToken::Fast(unsafe { &*core::ptr::with_exposed_provenance(word & !1) })
        } else {
            // SAFETY: the word came from the underlying token.
            ReadToken::Slow(unsafe { T::from_word(word) })
        }
    }
}

/// Mix32 of Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014),
/// with the constants of its implementation in Java 8.
#[inline]
fn mix32(z: u64) -> u32 {
    let z = (z ^ (z >> 33)).wrapping_mul(0x62a9_d9ed_7997_05f5);
    ((z ^ (z >> 28)).wrapping_mul(0xcb24_d0a5_c88c_35b3) >> 32) as u32
}

/// The bias word for a revocation that began at `start` and ended `now` (nanoseconds).
fn inhibit(start: u64, now: u64) -> u32 {
    let nanos = now.saturating_sub(start).saturating_mul(N);
    let ticks = (nanos >> TICK).min(u64::from(LONGEST) - 1) as u32 + 1;
    let until = ((now >> TICK) as u32).wrapping_add(ticks) << COUNT_BITS | COUNT;
    // The lowest values have other meanings; a few microseconds more every 18 minutes.
    until.max(FIRST_TIME << COUNT_BITS | COUNT)
}

/// Whether the bias, off by `bias`, may be set at time `now`.
fn expired(bias: u32, now: u64) -> bool {
    let ahead = (bias & !COUNT).wrapping_sub(((now >> TICK) as u32) << COUNT_BITS) >> COUNT_BITS;
    ahead == 0 || ahead > LONGEST + FIRST_TIME
}

/// How long a revoking writer waits for readers in the table.
enum Patience {
    None,
    Until(Deadline),
    Endless,
}

impl<M: Machine, R: RawRwLock<Machine = M>> RawBravo<M, R> {
    /// Bytes of the lock that are ever written; what follows is padding.
    pub const USED_BYTES: usize = core::mem::offset_of!(Self, bias) + size_of::<M::U32>();

    /// An unlocked lock that is biased from the start: for a lock that is known to be mostly read.
    pub fn new_biased_in() -> Self {
        RawBravo { lock: R::new_in(), bias: M::U32::new(BIASED) }
    }

    /// Whether readers use the table, a moment ago.
    pub fn is_biased(&self) -> bool {
        self.bias.load(Relaxed) == BIASED
    }

    /// What a reader writes into its slot. Never 0.
    #[inline]
    fn address(&self) -> usize {
        M::identity(core::ptr::from_ref(self).addr())
    }

    /// The caller's slot for this lock.
    #[inline]
    fn slot(&self) -> &'static M::Usize {
        let table = M::visible_readers();
        // Both are addresses with the same zero bits below and the same bits above; rotating one
        // keeps neighbouring locks and neighbouring threads from cancelling out.
        let key = (self.address() as u64).wrapping_add((M::thread_id() as u64).rotate_left(32));
        &table[mix32(key) as usize & (table.len() - 1)]
    }

    /// Listing 1, lines 12 to 22.
    #[inline]
    fn read_fast(&self) -> Option<&'static M::Usize> {
        if self.bias.load(Relaxed) != BIASED {
            return None;
        }
        let slot = self.slot();
        // (B) Dekker pair with `revoke`: we write the slot and then read the bias, the writer
        // writes the bias and then reads the slot, all four sequentially consistent, so at least
        // one sees the other. A compare-and-exchange is a full fence already on x86.
        // (D) Acquire: the slot's last user has left before us, see `leave`.
        if slot.compare_exchange(0, self.address(), SeqCst, Relaxed).is_err() {
            return None;
        }
        // (A) Acquire: pairs with the store in `after_slow_read`, which comes after the last writer.
        if self.bias.load(SeqCst) == BIASED {
            return Some(slot);
        }
        Self::leave(slot);
        None
    }

    #[inline]
    fn leave(slot: &M::Usize) {
        // (C) pairs with the scan in `revoke`: the section happens before the writer's.
        // (D) Release even when there was no section: a writer of *another* lock may read this
        // store where it would have read that of the slot's previous user.
        slot.store(0, Release);
    }

    #[inline(never)]
    fn read_slow(&self) -> R::Read {
        let token = self.lock.read();
        self.after_slow_read();
        token
    }

    /// Listing 1, lines 25 and 26; the caller holds the underlying lock for reading. Several
    /// readers may be here at once.
    #[inline]
    fn after_slow_read(&self) {
        // No writer is about: the value is the last writer's, or a reader's since.
        self.step(self.bias.load(Relaxed));
    }

    /// Takes the bias from `bias` one step on.
    #[inline]
    fn step(&self, bias: u32) {
        let next = if bias < WARM_UP {
            bias + 1
        } else if bias == BIASED {
            return;
        } else if bias & COUNT != 0 {
            bias - 1
        } else if expired(bias, M::now(Clock::Monotonic)) {
            BIASED
        } else {
            bias | COUNT
        };
        // (A) pairs with the second look in `read_fast`: fast readers come after the writers that
        // we came after. If it fails, another reader has gone a step.
        let _ = self.bias.compare_exchange(bias, next, Release, Relaxed);
    }

    /// Listing 1, lines 37 to 49; the caller holds the underlying lock for writing. Returns whether
    /// no reader is in the table.
    #[inline]
    fn revoke(&self, patience: Patience) -> bool {
        // Nobody else writes the bias while we hold the lock, and unless it is on the table is empty.
        !self.is_biased() || self.scan(patience)
    }

    #[cold]
    #[inline(never)]
    fn scan(&self, patience: Patience) -> bool {
        let start = M::now(Clock::Monotonic);
        // (B) Dekker pair with `read_fast`: the bias is written before the slots are read.
        self.bias.store(0, SeqCst);
        let empty = M::visible_readers().iter().all(|slot| self.await_slot(slot, &patience));
        let bias = if empty { inhibit(start, M::now(Clock::Monotonic)) } else { BIASED };
        // (A) Release matters when the bias is put back: fast readers come after the writers that
        // we came after.
        self.bias.store(bias, Release);
        empty
    }

    /// Waits until `slot` does not hold this lock. Returns whether it came to that.
    #[inline]
    fn await_slot(&self, slot: &M::Usize, patience: &Patience) -> bool {
        /// Looks at a slot between two looks at the clock.
        const LOOKS: u32 = 256;
        let me = self.address();
        // (B) as above; (C) Acquire: pairs with `leave`.
        if slot.load(SeqCst) != me {
            return true;
        }
        match *patience {
            Patience::None => false,
            Patience::Endless => {
                // (C) as above.
                M::spin_until(slot, Acquire, |reader| reader != me);
                true
            }
            Patience::Until(deadline) => loop {
                let late = deadline.passed::<M>();
                // (C) as above.
                if M::spin_for(slot, Acquire, LOOKS, |reader| reader != me).is_some() {
                    return true;
                }
                if late {
                    return false;
                }
                M::yield_now();
            },
        }
    }

    /// Ends a write acquisition whose revocation did not succeed.
    #[inline]
    fn settle(&self, token: R::Write, empty: bool) -> Option<R::Write> {
        if empty {
            return Some(token);
        }
        // SAFETY: the token is from the caller's acquisition, which ends here.
        unsafe { self.lock.unlock_write(token) };
        None
    }
}

/// `"bravo-"` and the name of the lock below, as constants.
struct Described<R>(PhantomData<R>);

impl<R: RawRwLock> Described<R> {
    const NAME: &'static str = text(&Self::NAME_BYTES, 6 + R::INFO.name.len());
    const NAME_BYTES: [u8; TEXT] = join("bravo-", R::INFO.name);
    const SUMMARY: &'static str = text(&Self::SUMMARY_BYTES, 32 + R::INFO.summary.len());
    const SUMMARY_BYTES: [u8; TEXT] = join("biased locking for readers over ", R::INFO.summary);
}

/// Room for the longest composed text.
const TEXT: usize = 128;

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
unsafe impl<M: Machine, R: RawRwLock<Machine = M>> RawRwLock for RawBravo<M, R> {
    type Machine = M;
    type Read = ReadToken<M::Usize, R::Read>;
    type Write = R::Write;
    const INFO: Info = Info {
        name: Described::<R>::NAME,
        summary: Described::<R>::SUMMARY,
        atomics: 1,
        waiter_bytes: R::INFO.waiter_bytes,
        holder_bytes: R::INFO.holder_bytes,
        fairness: "as the lock below; a writer also waits for the readers in the table",
        blocking: R::INFO.blocking,
        source: "Dice and Kogan 2019, listing 1",
    };

    fn new_in() -> Self {
        RawBravo { lock: R::new_in(), bias: M::U32::new(0) }
    }

    #[inline]
    fn read(&self) -> Self::Read {
        match self.read_fast() {
            Some(slot) => ReadToken::Fast(slot),
            None => ReadToken::Slow(self.read_slow()),
        }
    }

    #[inline]
    fn try_read(&self) -> Option<Self::Read> {
        if let Some(slot) = self.read_fast() {
            return Some(ReadToken::Fast(slot));
        }
        let token = self.lock.try_read()?;
        self.after_slow_read();
        Some(ReadToken::Slow(token))
    }

    fn read_until(&self, deadline: Deadline) -> Option<Self::Read> {
        if let Some(slot) = self.read_fast() {
            return Some(ReadToken::Fast(slot));
        }
        let token = self.lock.read_until(deadline)?;
        self.after_slow_read();
        Some(ReadToken::Slow(token))
    }

    #[inline]
    unsafe fn unlock_read(&self, token: Self::Read) {
        match token {
            ReadToken::Fast(slot) => Self::leave(slot),
            // SAFETY: the token is the underlying acquisition's.
            ReadToken::Slow(token) => unsafe { self.lock.unlock_read(token) },
        }
    }

    #[inline]
    fn write(&self) -> Self::Write {
        let token = self.lock.write();
        self.revoke(Patience::Endless);
        token
    }

    #[inline]
    fn try_write(&self) -> Option<Self::Write> {
        let token = self.lock.try_write()?;
        self.settle(token, self.revoke(Patience::None))
    }

    fn write_until(&self, deadline: Deadline) -> Option<Self::Write> {
        let token = self.lock.write_until(deadline)?;
        self.settle(token, self.revoke(Patience::Until(deadline)))
    }

    #[inline]
    unsafe fn unlock_write(&self, token: Self::Write) {
        // SAFETY: the token is the underlying acquisition's.
        unsafe { self.lock.unlock_write(token) }
    }

    fn is_locked(&self) -> bool {
        let me = self.address();
        self.lock.is_locked() || M::visible_readers().iter().any(|slot| slot.load(Relaxed) == me)
    }

    fn is_write_locked(&self) -> bool {
        self.lock.is_write_locked()
    }
}

#[cfg(test)]
mod tests {
    use super::super::pf_t::RawPfT;
    use super::*;
    use core::sync::atomic::{AtomicBool, AtomicUsize};

    type Lock = RawBravo<Native, RawPfT<Native>>;
    type Read = <Lock as RawRwLock>::Read;

    const _: () = assert!(size_of::<Lock>() == 20 && Lock::USED_BYTES == 20);

    fn biased() -> Lock {
        let lock = Lock::new_biased_in();
        assert!(lock.is_biased());
        lock
    }

    /// Reads through the table. Another test's lock may have the slot for a moment.
    fn read_fast(lock: &Lock) -> (Read, &'static AtomicUsize) {
        loop {
            match lock.read() {
                token @ ReadToken::Fast(slot) => return (token, slot),
                // SAFETY: the token is from the acquisition above.
                token => unsafe { lock.unlock_read(token) },
            }
            assert!(lock.is_biased());
            std::thread::yield_now();
        }
    }

    #[test]
    fn readers_bias_a_new_lock_after_a_while() {
        let lock = Lock::new();
        for _ in 0..WARM_UP {
            assert!(!lock.is_biased());
            let token = lock.read();
            assert!(matches!(token, ReadToken::Slow(())));
            // SAFETY: the token is from the acquisition above.
            unsafe { lock.unlock_read(token) };
        }
        assert!(lock.is_biased());
    }

    #[test]
    fn a_reader_of_a_biased_lock_is_in_the_table_and_not_in_the_lock() {
        let lock = biased();
        let (token, slot) = read_fast(&lock);
        assert_eq!(slot.load(Relaxed), lock.address());
        assert!(core::ptr::eq(slot, lock.slot()));
        assert!(Native::visible_readers().iter().any(|entry| core::ptr::eq(entry, slot)));
        assert!(!lock.lock.is_locked() && lock.is_locked());
        // SAFETY: the token is from the acquisition above.
        unsafe { lock.unlock_read(token) };
        assert_ne!(slot.load(Relaxed), lock.address());
        assert!(!lock.is_locked());
    }

    #[test]
    fn a_reader_whose_slot_is_taken_uses_the_lock() {
        let lock = biased();
        let (first, slot) = read_fast(&lock);
        // The same thread hashes to the same slot.
        for again in [lock.read(), lock.try_read().unwrap()] {
            assert!(matches!(again, ReadToken::Slow(())));
            assert!(lock.lock.is_locked());
            // SAFETY: the token is from an acquisition above.
            unsafe { lock.unlock_read(again) };
        }
        assert_eq!(slot.load(Relaxed), lock.address(), "the wrong acquisition was released");
        assert!(!lock.lock.is_locked());
        // SAFETY: the token is from the acquisition above.
        unsafe { lock.unlock_read(first) };
    }

    #[test]
    fn a_writer_revokes_and_waits_for_readers_in_the_table() {
        let lock = &biased();
        let wrote = &AtomicBool::new(false);
        let (token, _) = read_fast(lock);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                lock.write();
                wrote.store(true, Relaxed);
                // SAFETY: acquired above.
                unsafe { lock.unlock_write(()) };
            });
            while lock.is_biased() {
                std::thread::yield_now();
            }
            // The bias is off, so newcomers queue up behind the writer in the underlying lock.
            assert!(lock.try_read().is_none());
            assert!(!wrote.load(Relaxed), "a writer did not wait for a reader in the table");
            // SAFETY: the token is from the acquisition above.
            unsafe { lock.unlock_read(token) };
        });
        assert!(wrote.load(Relaxed));
        assert!(!lock.is_biased());
        assert!(lock.bias.load(Relaxed) > BIASED, "no inhibition after a revocation");
        assert!(!lock.is_locked());
    }

    #[test]
    fn a_writer_that_gives_up_restores_the_bias() {
        let lock = biased();
        let (token, _) = read_fast(&lock);
        assert!(lock.try_write().is_none());
        assert!(lock.is_biased());
        assert!(lock.write_until(Deadline::after::<Native>(1_000_000)).is_none());
        assert!(lock.is_biased() && !lock.lock.is_locked());
        // SAFETY: the token is from the acquisition above.
        unsafe { lock.unlock_read(token) };
        assert!(lock.try_write().is_some());
        assert!(!lock.is_biased());
    }

    #[test]
    fn a_slow_reader_restores_the_bias_when_the_time_has_come() {
        let lock = Lock::new();
        let now = Native::now(Clock::Monotonic);
        // Enough that one of them looks at the clock.
        let read = || {
            for _ in 0..=COUNT {
                // SAFETY: the token is from the acquisition in the same expression.
                unsafe { lock.unlock_read(lock.read()) };
            }
            lock.is_biased()
        };
        lock.bias.store(inhibit(0, now), Relaxed);
        assert!(!read() && !read(), "set while inhibited");
        lock.bias.store(inhibit(now - 2_000_000, now - 1_900_000), Relaxed);
        assert!(read(), "not set after the inhibition");
    }

    /// A slow reader that is late with its count must not undo the bias: the next writer would not
    /// look for the readers in the table.
    #[test]
    fn late_counts_do_not_undo_the_bias() {
        let lock = Lock::new_biased_in();
        let now = Native::now(Clock::Monotonic);
        for late in [0, WARM_UP - 1, inhibit(0, now), inhibit(0, now) & !COUNT] {
            lock.step(late);
            assert!(lock.is_biased());
        }
    }

    #[test]
    fn inhibition_lasts_n_times_the_revocation() {
        let tick = 1 << TICK;
        for base in [1u64 << 45, (1 << 40) - 500_000, (1 << 40) - 1, (1 << 40) - 4 * tick, (1 << 40) + tick] {
            for took in [0, 3_000, 5_000_000] {
                let (end, inhibition) = (base + took, N * took);
                let until = inhibit(base, end);
                assert!(until & !COUNT > BIASED, "a time that means something else");
                assert!(!expired(until, end));
                assert!(!expired(until, (end + inhibition).saturating_sub(tick)));
                assert!(expired(until, end + inhibition + 4 * tick));
                assert!(!expired(until & !COUNT, end), "depends on the count");
            }
        }
        // An hour's revocation inhibits for 68 seconds; time far ahead is time past.
        let hour = 3_600_000_000_000;
        let until = inhibit(0, hour);
        assert!(!expired(until, hour + 60_000_000_000) && expired(until, hour + 70_000_000_000));
        assert!(expired(until, hour - 100_000_000_000));
    }

    #[test]
    fn tokens_survive_as_words() {
        let lock = biased();
        let (token, slot) = read_fast(&lock);
        let word = token.into_word();
        assert!(word & 1 == 1);
        // SAFETY: the word is a token's.
        let token = unsafe { Read::from_word(word) };
        assert!(matches!(token, ReadToken::Fast(back) if core::ptr::eq(back, slot)));
        // SAFETY: the token is from the acquisition above.
        unsafe { lock.unlock_read(token) };
        assert!(!lock.is_locked());
        // SAFETY: the word is a token's.
        assert!(matches!(unsafe { Read::from_word(Read::Slow(()).into_word()) }, ReadToken::Slow(())));
    }

    #[test]
    fn it_is_described_after_the_lock_below() {
        assert_eq!(Lock::INFO.name, "bravo-pf-t");
        assert!(Lock::INFO.summary.ends_with(RawPfT::<Native>::INFO.summary));
    }

    #[test]
    fn the_hash_spreads_neighbours() {
        let table = Native::visible_readers().len();
        let mut used = std::vec![false; table];
        // As many pairs as a quarter of the table: 16 threads, 64 locks in a row.
        for thread in 0..16u64 {
            for lock in 0..64u64 {
                let key = (0x7f00_1234_5000 + lock * 64)
                    .wrapping_add((0x7f00_8000_0000u64 + thread * 0x80_1000).rotate_left(32));
                used[mix32(key) as usize & (table - 1)] = true;
            }
        }
        // Random throws would fill 906 of 4096.
        let filled = used.iter().filter(|used| **used).count();
        assert!(filled > 850, "{filled}");
    }
}
