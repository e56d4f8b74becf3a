//! An array of phase-fair locks (the "big reader lock").
//!
//! Source: the brlock of Linux 2.4 to 3.15; as "Per-CPU" in Dice and Kogan, "BRAVO: Biased Locking for
//! Reader-Writer Locks", USENIX ATC 2019, section 5.
//!
//! Many locks, each on a cache line of its own. A reader acquires one of them, a writer all. Readers that use
//! different ones do not meet; a writer pays for that, and so does memory.
//!
//! State: that of each [`pf_q`](super::pf_q); writers take them in order, so they queue up at the first. And
//! `writing`, which the writer sets when it has them all, and clears when it has released them all: that is
//! its last access, and who enters before waits for it, because whoever enters may free the lock.
//!
//! Where it differs from the paper: there are [`SHARDS`] locks in the array, whatever the machine, because they
//! lie in the lock; processors beyond share them. (A parameter, for whoever wants one for each of more.)
//!
//! Size: 2048 bytes; 64 per waiter; none per reading holder, 64 times [`SHARDS`] per writing one. Atomics per
//! uncontended pair: read 2; write 5 times [`SHARDS`].
//! Suspension: a waiter that is suspended blocks others.
//! Fairness: phase-fair at each lock; writers are FIFO.
//! Re-entry: a reader that read-locks again while a writer waits deadlocks with that writer.
//! Timed forms: they poll, for the reason given in `pf_t`.

use super::pf_q::RawPfQ;
use super::{ConstNew, Index, Info, RawDowngrade, RawFair, RawRwLock, Suspension};
use crate::machine::{Machine, Native, QNode, Word};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

/// Locks in the array.
pub const SHARDS: usize = 31;

/// One of the locks, and what its writer got from it.
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

impl Default for RawPerCpu<Native> {
    fn default() -> Self {
        Self::new()
    }
}

impl ConstNew for RawPerCpu<Native> {
    #[allow(clippy::declare_interior_mutable_const)]
    const NEW: Self = Self::new();
}

impl<M: Machine, const LOCKS: usize> RawPerCpu<M, LOCKS> {
    /// The locks that are used: two where every interleaving is explored.
    fn shards(&self) -> &[Shard<M>] {
        &self.shards[..M::patience(LOCKS as u32 - 1) as usize + 1]
    }

    /// The lock of the processor that the caller runs on. Should it go elsewhere, its token knows.
    #[inline]
    fn mine(&self) -> Index {
        Index(M::cpu() % self.shards().len() as u32)
    }

    /// Waits until the writer before us has released the other locks too.
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

// SAFETY: a reader holds one of the locks and a writer all of them.
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
        // SAFETY: acquired above.
        unsafe { self.shard(index).lock.unlock_read(()) };
        None
    }

    #[inline]
    unsafe fn unlock_read(&self, index: Index) {
        // SAFETY: the caller's acquisition is that lock's.
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
        // SAFETY: acquired in the loop.
        self.shards()[..have].iter().for_each(|shard| unsafe { shard.release() });
        None
    }

    unsafe fn unlock_write(&self, (): ()) {
        // SAFETY: the caller holds all of them for writing.
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
