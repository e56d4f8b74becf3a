//! An array of phase-fair locks (the "big reader lock").
//!
//! # Source
//!
//! The brlock of Linux 2.4 to 3.15; "Per-CPU" in Dice and Kogan, "BRAVO: Biased Locking for Reader-Writer Locks", USENIX ATC
//! 2019, section 5.
//!
//! # Idea
//!
//! There are many locks, each on a cache line of its own. A reader acquires the lock of its processor, a writer acquires all.
//! Readers on different processors do not meet. Writers pay for that, and so does memory.
//!
//! # States
//!
//! | word | meaning | which thread changes it |
//! |---|---|---|
//! | each shard's [`pf_q`](super::pf_q) lock | held by its readers, or by the writer | readers of its processor; writers, which take the shards in order and so queue at the first |
//! | each shard's `token` | the token of the writer's acquisition | the writer that holds the shard |
//! | `writing` | a writer has all shards, or still releases them | that writer: 1 when it has the last shard, 0 as its last access |
//!
//! A thread that gets its shard while the writer still releases the others waits until `writing` is 0: a thread that is inside
//! may be the last user and free the lock. (A) The writer stores that 0 with release, and such a thread loads it with acquire.
//!
//! # Where it differs from the source
//!
//! There are [`SHARDS`] locks in the array, on any machine, because they are part of the lock; further processors share them.
//! A parameter of the type sets another number.
//!
//! # Properties
//!
//! - Size: 2048 bytes; 64 per waiter; none per reading holder, 64 times [`SHARDS`] per writing holder.
//! - Atomic read-modify-writes per uncontended pair: read 2; write 5 times [`SHARDS`].
//! - Fairness: phase-fair at each shard; writers are FIFO.
//! - Suspension: a waiter that is suspended blocks others.
//! - Re-entry: a reader that read-locks again while a writer waits deadlocks with that writer.
//! - Timed forms poll, for the reason given in `pf_t`.

use super::pf_q::RawPfQ;
use super::{ConstNew, Index, Info, RawDowngrade, RawFair, RawRwLock, Suspension};
use crate::machine::{Machine, Native, QNode, Word};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

/// Locks in the array.
pub const SHARDS: usize = 31;

/// One of the locks, and the token of its writer.
#[repr(C, align(64))]
struct Shard<M: Machine> {
    lock: RawPfQ<M>,
    token: M::Ptr<QNode<M>>,
}

impl<M: Machine> Shard<M> {
    fn keep(&self, token: NonNull<QNode<M>>) {
        self.token.store(token.as_ptr(), Relaxed);
    }

    /// # Safety
    ///
    /// The caller holds the shard for writing.
    unsafe fn release(&self) {
        let token = NonNull::new(self.token.load(Relaxed)).expect("kept by the writer");
        // SAFETY: the token is from the acquisition that ends.
        unsafe { self.lock.unlock_write(token) };
    }
}

impl<M: Machine> Shard<M> {
    /// # Safety
    ///
    /// The caller holds the shard for writing; then it holds it for reading.
    unsafe fn downgrade(&self) {
        let token = NonNull::new(self.token.load(Relaxed)).expect("kept by the writer");
        // SAFETY: the token is from the acquisition that becomes a read acquisition.
        unsafe { self.lock.downgrade(token) };
    }
}

/// Array of phase-fair locks. See the [module documentation](self).
#[repr(C)]
pub struct RawPerCpu<M: Machine, const LOCKS: usize = SHARDS> {
    shards: [Shard<M>; LOCKS],
    writing: Padded<M::U32>,
}

/// On a cache line of its own.
#[repr(align(64))]
struct Padded<T>(T);

impl RawPerCpu<Native> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawPerCpu {
            shards: [const { Shard { lock: RawPfQ::new(), token: AtomicPtr::new(null_mut()) } }; SHARDS],
            writing: Padded(AtomicU32::new(0)),
        }
    }
}

const_new!(RawPerCpu<Native>);

impl<M: Machine, const LOCKS: usize> RawPerCpu<M, LOCKS> {
    /// The shards that are used: all, but two where every interleaving is explored.
    fn shards(&self) -> &[Shard<M>] {
        &self.shards[..M::patience(LOCKS as u32 - 1) as usize + 1]
    }

    /// The shard of the caller's processor. The caller keeps the number as its token: it may run elsewhere later.
    #[inline]
    fn mine(&self) -> Index {
        Index(M::cpu() % self.shards().len() as u32)
    }

    /// Waits until the writer before the caller has released the other shards too.
    #[inline]
    fn await_writer(&self) {
        // (A) pairs with the store in `unlock_write`.
        M::spin_until(&self.writing.0, Acquire, |writing| writing == 0);
    }

    #[inline]
    fn shard(&self, Index(index): Index) -> &Shard<M> {
        &self.shards[index as usize]
    }
}

const _: () = assert!(size_of::<RawPerCpu<Native>>() == 2048);

// SAFETY: a reader holds one of the shards and a writer all of them.
unsafe impl<M: Machine, const LOCKS: usize> RawRwLock for RawPerCpu<M, LOCKS> {
    type Machine = M;
    type Read = Index;
    type Write = ();
    type Counted = Self;
    const INFO: Info = Info {
        name: "percpu",
        summary: "array of pf-q: a reader takes one, a writer all (brlock)",
        atomics: 2,
        waiter_bytes: 64,
        holder_bytes: 0,
        fairness: "phase-fair at each lock of the array, writers are FIFO",
        blocking: false,
        suspension: Suspension::Blocks,
        source: "Linux brlock; Dice and Kogan 2019, section 5",
    };

    fn new_in() -> Self {
        RawPerCpu {
            shards: core::array::from_fn(|_| Shard {
                lock: RawPfQ::new_in(),
                token: M::Ptr::new(null_mut()),
            }),
            writing: Padded(M::U32::new(0)),
        }
    }

    #[inline]
    fn read(&self) -> Index {
        let index = self.mine();
        self.shard(index).lock.read();
        self.await_writer();
        index
    }

    #[inline]
    fn try_read(&self) -> Option<Index> {
        let index = self.mine();
        self.shard(index).lock.try_read()?;
        if self.writing.0.load(Acquire) == 0 {
            return Some(index);
        }
        // SAFETY: `try_read` acquired the shard a few lines above.
        unsafe { self.shard(index).lock.unlock_read(()) };
        None
    }

    #[inline]
    unsafe fn unlock_read(&self, index: Index) {
        // SAFETY: the token is the number of the shard that the caller holds for reading.
        unsafe { self.shard(index).lock.unlock_read(()) };
    }

    fn write(&self) {
        for shard in self.shards() {
            shard.keep(shard.lock.write());
        }
        self.await_writer();
        self.writing.0.store(1, Relaxed);
    }

    fn try_write(&self) -> Option<()> {
        let mut have = 0;
        for shard in self.shards() {
            let Some(token) = shard.lock.try_write() else { break };
            shard.keep(token);
            have += 1;
        }
        if have == self.shards().len() && self.writing.0.load(Acquire) == 0 {
            self.writing.0.store(1, Relaxed);
            return Some(());
        }
        // SAFETY: the loop acquired these shards for writing.
        self.shards()[..have].iter().for_each(|shard| unsafe { shard.release() });
        None
    }

    unsafe fn unlock_write(&self, (): ()) {
        // SAFETY: the caller holds all shards for writing.
        self.shards().iter().for_each(|shard| unsafe { shard.release() });
        // (A) the last access.
        self.writing.0.store(0, Release);
    }

    fn is_locked(&self) -> bool {
        self.shards().iter().any(|shard| shard.lock.is_locked())
    }

    fn is_write_locked(&self) -> bool {
        self.writing.0.load(Relaxed) != 0
    }
}

// SAFETY: the caller's own shard goes from its writer to its reader without another writer in between, and a writer needs
// every shard.
unsafe impl<M: Machine, const LOCKS: usize> RawDowngrade for RawPerCpu<M, LOCKS> {
    unsafe fn downgrade(&self, (): ()) -> Index {
        let index = self.mine();
        for (at, shard) in self.shards().iter().enumerate() {
            // SAFETY: the caller holds all shards for writing.
            unsafe { if at == index.0 as usize { shard.downgrade() } else { shard.release() } }
        }
        // (A) as in `unlock_write`.
        self.writing.0.store(0, Release);
        index
    }
}

// SAFETY: the functions are those of `RawRwLock`: each shard is phase-fair.
unsafe impl<M: Machine, const LOCKS: usize> RawFair for RawPerCpu<M, LOCKS> {}
