//! One writer at a time: the writers of a rwlock that have waited for long sleep here, but for one, which takes turns with the
//! readers ([`preference`](super::preference)). They exclude each other in any case. Without this, each of a thousand waiting
//! writers would nap and look by itself, and they would keep the processors busy.
//!
//! A rwlock has no bytes left for this. So there is a table of gates; one serves a rwlock as long as a writer of that rwlock uses
//! it. Two rwlocks never share a gate: a writer would wait for a writer of another object, which may wait for the first one. A
//! writer that finds no gate takes turns without one.

use core::sync::atomic::{AtomicU64, Ordering::*};
use latchwork::locks::mutex::RawMutex;
use latchwork::locks::mutex::shfl::RawShfl;
use latchwork::machine::{Deadline, Native};

/// How many rwlocks can have such writers at a time, at least until two of them meet in all of [`PROBES`].
const GATES: usize = 64;
/// At how many gates a writer looks.
const PROBES: usize = 4;

/// A word of a gate: 0, or the address of the rwlock above, and how many writers use the gate below.
const USERS: u64 = 0xffff;
/// Addresses of rwlocks are multiples of 8, and what is left of them has 48 bits.
const ADDRESS_BITS: u32 = 51;

struct Gate {
    word: AtomicU64,
    lock: RawShfl<Native>,
}

static TABLE: [Gate; GATES] = [const { Gate { word: AtomicU64::new(0), lock: RawShfl::new() } }; GATES];

/// A writer's use of a gate.
pub(super) struct Use(&'static Gate);

/// Begins to use the gate of the rwlock at `address`.
pub(super) fn of(address: usize) -> Option<Use> {
    if address >> ADDRESS_BITS != 0 {
        return None;
    }
    let key = (address as u64 >> 3) << 16;
    // Fibonacci hashing: the multiplier is 2^64 divided by the golden ratio, and the upper bits are the best.
    let first = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
    (first..first + PROBES).map(|index| &TABLE[index % GATES]).find(|gate| gate.join(key)).map(Use)
}

impl Gate {
    /// Counts the caller in, if the gate is free or serves the rwlock of `key`. (Another gate may serve it as well; then two
    /// writers take turns.)
    fn join(&self, key: u64) -> bool {
        // Acquire pairs with `drop`: the lock is as the last user of another rwlock has left it.
        let joins =
            |word| (word == 0 || (word & !USERS == key && word & USERS < USERS)).then_some((word | key) + 1);
        self.word.fetch_update(Acquire, Relaxed, joins).is_ok()
    }
}

impl Use {
    /// Calls `wait` as the only writer of the rwlock. `None`: the deadline passed first.
    pub(super) fn alone<R>(&self, deadline: Deadline, wait: impl FnOnce() -> R) -> Option<R> {
        let lock = &self.0.lock;
        lock.lock_until(deadline)?;
        let result = wait();
        // SAFETY: acquired above.
        unsafe { lock.unlock(()) };
        Some(result)
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        // Zero: the caller has forked in a signal handler.
        let leaves = |word| Some(if word & USERS <= 1 { 0 } else { word - 1 });
        let _ = self.0.word.fetch_update(Release, Relaxed, leaves);
    }
}

/// In the child of a fork: the users are threads that it does not have.
pub(crate) fn after_fork() {
    for gate in &TABLE {
        // SAFETY: the child has one thread, which is in no gate. All-zero bytes are a free lock.
        unsafe { (&raw const gate.lock).cast_mut().write_bytes(0, 1) };
        gate.word.store(0, Relaxed);
    }
}
