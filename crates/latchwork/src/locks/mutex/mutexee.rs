//! MUTEXEE: a futex mutex that avoids system calls.
//!
//! Source: Falsafi, Guerraoui, Picorel and Trigonakis, "Unlocking Energy", USENIX ATC 2016, section 5.
//!
//! A futex mutex pays two system calls and the time of a wakeup for each handover to a parked waiter. MUTEXEE spins for
//! longer before it parks, unparks no waiter while another waiter that runs is about to take the lock, and spins less where
//! spinning has mostly failed.
//!
//! | bit of the word | meaning | set by | cleared by |
//! |---|---|---|---|
//! | LOCKED | held | the thread that acquires, (A) acquire | the holder, (A) release |
//! | SPINNING | a waiter spins, and takes care of the parked ones | that waiter | the same waiter, when it acquires the lock or parks |
//! | SLEEPERS | some waiters may be parked | a waiter before it parks, or that was parked and acquires | the unlock that unparks one |
//!
//! Size: 8 bytes, none per waiter or holder.
//! Atomics per uncontended pair: 2 (compare-and-exchange).
//! Fairness: none. A waiter may be passed over for ever.
//! Suspension: blocks. A spinning waiter that is suspended keeps SPINNING set, so no unlock unparks a waiter.
//!
//! Where it differs from the paper:
//! - An unlock of MUTEXEE stays for some 384 cycles, to see whether another thread takes the lock, and unparks a waiter if
//!   not. It looks at a lock that may be gone by then. Here a waiter that spins says so beforehand.
//! - The paper counts over a period how many acquisitions have parked, and spins less above 30 per cent. Here it is a moving
//!   average over acquisitions that waited.

use super::{ConstNew, Info, RawMutex, Suspension};
use crate::machine::{Machine, Native, Word};
use core::sync::atomic::{AtomicU32, Ordering::*};

const LOCKED: u32 = 1;
const SPINNING: u32 = 2;
const SLEEPERS: u32 = 4;

/// Looks of a waiter before it parks, with a pause of [`PAUSE`] after each: about 8000 cycles, or 256 where waiters mostly
/// park in the end.
const LOOKS: (u32, u32) = (96, 4);
const PAUSE: u32 = 4;
/// Share of the waiters that park, in 1/1024, above which they spin less: 30 per cent, as in the paper.
const SLEEPY: u32 = 307;

/// MUTEXEE. See the [module documentation](self).
pub struct RawMutexee<M: Machine> {
    word: M::U32,
    /// The share of the waiters that have parked, in 1/1024. A hint, written by holders.
    slept: M::U32,
}

impl RawMutexee<Native> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawMutexee { word: AtomicU32::new(0), slept: AtomicU32::new(0) }
    }
}

const_new!(RawMutexee<Native>);

impl<M: Machine> RawMutexee<M> {
    /// Takes the lock if it is free in `word`, and clears and sets other bits with it.
    fn take(&self, word: u32, clear: u32, set: u32) -> bool {
        // (A) pairs with the exchange in `unlock`.
        word & LOCKED == 0
            && self.word.compare_exchange(word, word & !clear | set | LOCKED, Acquire, Relaxed).is_ok()
    }

    #[cold]
    fn lock_slow(&self) {
        let sleepy = self.slept.load(Relaxed) > SLEEPY;
        let slept = !self.spin(if sleepy { LOOKS.1 } else { LOOKS.0 });
        if slept {
            self.sleep();
        }
        let share = self.slept.load(Relaxed);
        self.slept.store(share - share / 8 + if slept { 128 } else { 0 }, Relaxed);
    }

    /// `true` with the lock, `false` without it and without the duty of SPINNING.
    fn spin(&self, looks: u32) -> bool {
        let mut mine = 0;
        for _ in 0..M::patience(looks) {
            let word = self.word.load(Relaxed);
            if self.take(word, mine, 0) {
                return true;
            }
            if mine == 0
                && word & (LOCKED | SPINNING) == LOCKED
                && self.word.compare_exchange(word, word | SPINNING, Relaxed, Relaxed).is_ok()
            {
                mine = SPINNING;
            }
            M::pause(PAUSE);
        }
        if mine != 0 {
            // The holder takes care of the parked waiters from here on. If there is no holder, the last one has left them
            // to the caller.
            loop {
                let word = self.word.load(Relaxed);
                if self.take(word, SPINNING, 0) {
                    return true;
                }
                if word & LOCKED != 0
                    && self.word.compare_exchange(word, word & !SPINNING, Relaxed, Relaxed).is_ok()
                {
                    break;
                }
            }
        }
        false
    }

    fn sleep(&self) {
        // The unlock that unparks the caller has cleared SLEEPERS and unparks no other waiter, so the caller sets the bit
        // for them again.
        loop {
            let word = self.word.load(Relaxed);
            if self.take(word, 0, SLEEPERS) {
                return;
            }
            let asleep = word | SLEEPERS;
            if word & LOCKED != 0
                && (word == asleep || self.word.compare_exchange(word, asleep, Relaxed, Relaxed).is_ok())
            {
                M::wait(&self.word, asleep, None);
            }
        }
    }
}

// SAFETY: only one exchange can take the word from not LOCKED to LOCKED; (A) orders the sections.
unsafe impl<M: Machine> RawMutex for RawMutexee<M> {
    type Machine = M;
    type Token = ();
    const INFO: Info = Info {
        name: "mutexee",
        summary: "futex mutex that spins longer, and wakes no sleeper while another waiter spins",
        atomics: 2,
        waiter_bytes: 0,
        holder_bytes: 0,
        fairness: "none",
        blocking: true,
        suspension: Suspension::Blocks,
        source: "Falsafi et al. 2016, section 5",
    };

    fn new_in() -> Self {
        RawMutexee { word: M::U32::new(0), slept: M::U32::new(0) }
    }

    #[inline]
    fn lock(&self) {
        if self.word.compare_exchange(0, LOCKED, Acquire, Relaxed).is_err() {
            self.lock_slow();
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<()> {
        loop {
            let word = self.word.load(Relaxed);
            if word & LOCKED != 0 {
                return None;
            }
            if self.take(word, 0, 0) {
                return Some(());
            }
        }
    }

    #[inline]
    unsafe fn unlock(&self, (): ()) {
        let address = &raw const self.word;
        // (A) the section happens before the next acquire.
        if self.word.compare_exchange(LOCKED, 0, Release, Relaxed).is_ok() {
            return;
        }
        loop {
            let word = self.word.load(Relaxed);
            let left = if word & SPINNING != 0 { word & !LOCKED } else { 0 };
            if self.word.compare_exchange(word, left, Release, Relaxed).is_ok() {
                if word & (SPINNING | SLEEPERS) == SLEEPERS {
                    // The lock may be gone by now: only its address is used.
                    M::wake(address, 1);
                }
                return;
            }
        }
    }

    fn is_locked(&self) -> bool {
        self.word.load(Relaxed) & LOCKED != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An unlock that wakes a sleeper leaves the others to it. Otherwise each unlock from then on would be a system call, and the lock
    /// would have no fast path any more.
    #[test]
    fn an_unlock_that_wakes_leaves_a_free_word() {
        for (held, left) in [(LOCKED | SLEEPERS, 0), (LOCKED | SLEEPERS | SPINNING, SLEEPERS | SPINNING)] {
            let lock = RawMutexee::<Native>::new();
            lock.word.store(held, Relaxed);
            // SAFETY: the lock is held, by no other thread.
            unsafe { lock.unlock(()) };
            assert_eq!(lock.word.load(Relaxed), left);
        }
    }

    /// The share of waiters that have slept rises with each that sleeps, and falls with each that does not.
    #[test]
    fn the_share_of_sleepers_follows_the_waiters() {
        let lock = &RawMutexee::<Native>::new();
        // SAFETY: acquired before.
        let unlock = || unsafe { lock.unlock(()) };
        for share in [128, 128 - 128 / 8 + 128] {
            lock.lock();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    lock.lock();
                    unlock();
                });
                while lock.word.load(Relaxed) != LOCKED | SLEEPERS {
                    std::thread::yield_now();
                }
                unlock();
            });
            assert_eq!(lock.slept.load(Relaxed), share);
        }
        lock.word.store(SLEEPERS, Relaxed); // free, but not on the fast path
        lock.lock();
        unlock();
        assert_eq!(lock.slept.load(Relaxed), 240 - 240 / 8);
    }
}
