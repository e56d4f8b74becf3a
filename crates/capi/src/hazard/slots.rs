//! The slots of hazard pointers: `lw_hazard_make` and `lw_hazard_destroy`.
//!
//! A slot is free -> owned (`lw_hazard_make`) -> free (`lw_hazard_destroy`). Free slots are in a thread's [`Spare`] or in [`FREE`].
//! Slots are never unmapped, and a scan looks at all of them ([`each`]).
//!
//! The letters of the orderings are those of [`hazard`](super); (F) is the lock of the free slots.

use crate::{same_layout, thread};
use latchwork::machine::{Machine, Native, Records};
use std::alloc::{Layout, alloc_zeroed};
use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

/// Slots that are made at a time: with the link, a page.
const SLOTS: usize = 63;
/// Free slots that a thread keeps.
const KEPT: u32 = 8;
/// `lw_hazard`.
#[repr(C, align(64))]
pub(crate) struct Slot {
    /// 0, or the address of the head of the object that is protected.
    protected: AtomicUsize,
    /// 1 if the owner must issue full fences.
    fenced: AtomicU32,
    /// The next free slot, while this one is free.
    next: AtomicPtr<Slot>,
}

same_layout!(Slot, 64, 64);

#[repr(C, align(64))]
struct Block {
    next: AtomicPtr<Block>,
    slots: [Slot; SLOTS],
}

/// All blocks of slots, the newest first.
static BLOCKS: AtomicPtr<Block> = AtomicPtr::new(null_mut());
/// How many slots there are.
static MADE: AtomicU64 = AtomicU64::new(0);
/// Free slots that no thread keeps.
static FREE: Free = Free { holder: AtomicU32::new(0), chain: UnsafeCell::new(Chain(null_mut())) };

/// How many slots there are.
pub(super) fn made() -> u64 {
    MADE.load(Relaxed)
}

/// Calls `look` with the address that each slot holds, if it holds one. The caller has issued the heavy fence of (A).
pub(super) fn each(mut look: impl FnMut(usize)) {
    // (D) pairs with the exchange in `make_block`.
    let mut block = BLOCKS.load(Acquire);
    // SAFETY: null, or a block, and blocks are never freed.
    while let Some(this) = unsafe { block.as_ref() } {
        for slot in &this.slots {
            // (E) pairs with the owner's stores.
            let protected = slot.protected.load(Acquire);
            thread::lw_tsan_acquire(core::ptr::from_ref(slot).cast_mut().cast());
            if protected != 0 {
                look(protected);
            }
        }
        block = this.next.load(Acquire);
    }
}

/// Free slots, linked.
struct Chain(*mut Slot);

/// Free slots for all threads, and their lock.
///
/// A child that is forked while another thread has the lock does not have that thread. It knows by the [`mark`] of the process,
/// takes the lock all the same, and begins with an empty chain, because the thread may have been in the middle of a change. The
/// child does not use the slots that were in the chain.
struct Free {
    /// 0, or the [`mark`] of the process of the thread that has the lock.
    holder: AtomicU32,
    chain: UnsafeCell<Chain>,
}

// SAFETY: the chain is used with the lock held.
unsafe impl Sync for Free {}

/// A number of the process that is not 0, and another one in a child. The number that the kernel gives the process is not enough: in
/// namespaces of their own, parent and child are both 1. So above its 22 bits stands how many forks there were,
/// which the library counts once a thread has a record.
fn mark() -> u32 {
    // SAFETY: the call takes no arguments and touches no memory.
    let process = unsafe { libc::getpid() } as u32;
    process | Native::generation() << 22
}

impl Free {
    fn with<R>(&self, work: impl FnOnce(&mut Chain) -> R) -> R {
        let process = mark();
        let left_behind = loop {
            let holder = Native::spin_until(&self.holder, Relaxed, |holder| holder != process);
            // (F) pairs with the store below.
            if self.holder.compare_exchange(holder, process, Acquire, Relaxed).is_ok() {
                break holder != 0;
            }
        };
        // SAFETY: the chain is used with the lock held, and `work` does not come back here.
        let chain = unsafe { &mut *self.chain.get() };
        if left_behind {
            *chain = Chain(null_mut());
        }
        let result = work(chain);
        self.holder.store(0, Release); // (F)
        result
    }
}

impl Chain {
    fn push(&mut self, slot: &'static Slot) {
        slot.next.store(self.0, Relaxed);
        self.0 = core::ptr::from_ref(slot).cast_mut();
    }

    fn pop(&mut self) -> Option<&'static Slot> {
        // SAFETY: null, or a slot, and slots live for ever.
        let slot: &'static Slot = unsafe { self.0.as_ref() }?;
        self.0 = slot.next.load(Relaxed);
        Some(slot)
    }
}

/// Free slots that a thread keeps. Zero bytes are none.
#[repr(C)]
pub(crate) struct Spare {
    chain: Chain,
    length: u32,
}

impl Spare {
    fn pop(&mut self) -> Option<&'static Slot> {
        let slot = self.chain.pop()?;
        self.length -= 1;
        Some(slot)
    }

    /// Gives all slots to other threads.
    pub(crate) fn give_back(&mut self) {
        if self.length > 0 {
            FREE.with(|free| {
                while let Some(slot) = self.pop() {
                    free.push(slot);
                }
            });
        }
    }
}

/// Maps slots, of which the caller gets one. `None`: there is no memory.
#[cold]
fn make_block() -> Option<&'static Slot> {
    let fenced = u32::from(!Native::prepare_fences());
    // SAFETY: the layout is not empty. Zero bytes are free slots. Blocks are never freed.
    let block: &'static Block = unsafe { alloc_zeroed(Layout::new::<Block>()).cast::<Block>().as_ref()? };
    let (first, others) = block.slots.split_first().expect("a block has slots");
    for slot in &block.slots {
        slot.fenced.store(fenced, Relaxed);
        thread::lw_tsan_release(core::ptr::from_ref(slot).cast_mut().cast());
    }
    let mut newest = BLOCKS.load(Relaxed);
    loop {
        block.next.store(newest, Relaxed);
        // (D) A scan that does not find the block began before the block's slots had owners: it sees what they protect as
        // removed by then, or their owners see that (A).
        match BLOCKS.compare_exchange(newest, core::ptr::from_ref(block).cast_mut(), Release, Relaxed) {
            Ok(_) => break,
            Err(now) => newest = now,
        }
    }
    MADE.fetch_add(SLOTS as u64, Relaxed);
    FREE.with(|free| others.iter().for_each(|slot| free.push(slot)));
    Some(first)
}

#[unsafe(no_mangle)]
extern "C" fn lw_hazard_make() -> *const Slot {
    let own = thread::own();
    // SAFETY: the words are the thread's own.
    let spare = unsafe { &mut (*own).hazards };
    let shared = || {
        thread::record(); // for `mark`
        FREE.with(Chain::pop)
    };
    let slot = spare.pop().or_else(shared).or_else(make_block);
    let slot = slot.map_or(null_mut(), |slot| core::ptr::from_ref(slot).cast_mut());
    // What earlier owners did comes before what this one does: else ThreadSanitizer forgets them at the next store.
    thread::lw_tsan_acquire(slot.cast());
    slot
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_hazard_destroy(slot: *const Slot) {
    // SAFETY: the program passes a slot that it owns, or null; slots live for ever.
    let Some(slot) = (unsafe { slot.as_ref() }) else { return };
    thread::lw_tsan_release(core::ptr::from_ref(slot).cast_mut().cast());
    // (E) what the owner did with the object happens before its reclamation.
    slot.protected.store(0, Release);
    // SAFETY: the words are the thread's own.
    let spare = unsafe { &mut (*thread::own()).hazards };
    if spare.length == KEPT {
        return FREE.with(|free| free.push(slot));
    }
    if spare.length == 0 {
        thread::notice_exit();
    }
    spare.chain.push(slot);
    spare.length += 1;
}

/// Does something while no other thread gets past the lock of the free slots.
#[cfg(test)]
pub(crate) fn while_locked<R>(work: impl FnOnce() -> R) -> R {
    FREE.with(|_| work())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Forks. The child makes more hazard pointers than a block has, and exits with 0. Returns its status.
    fn fork_and_make() -> i32 {
        let mut status = -1;
        // SAFETY: the child makes hazard pointers, which a forked child may do, and exits. It is ours, and `status` is valid.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::alarm(300); // ends a child that waits for ever
                let all = (0..SLOTS + 1).all(|_| !lw_hazard_make().is_null());
                libc::_exit(i32::from(!all));
            }
            libc::waitpid(child, &mut status, 0);
        }
        status
    }

    /// Not even if the kernel gives it the same number.
    #[test]
    fn a_child_has_another_mark() {
        thread::record();
        let bits = mark() >> 22;
        let mut status = -1;
        // SAFETY: the child only compares, and exits. It is ours, and `status` is valid.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit(i32::from(mark() >> 22 == bits));
            }
            libc::waitpid(child, &mut status, 0);
        }
        assert_eq!(status, 0);
    }

    #[test]
    fn a_child_does_not_wait_for_a_thread_that_it_does_not_have() {
        let status = while_locked(|| std::thread::spawn(fork_and_make).join().unwrap());
        assert_eq!(status, 0);
        let slots = [(); SLOTS + 1].map(|()| lw_hazard_make());
        assert!(slots.iter().all(|slot| !slot.is_null()));
        // SAFETY: the slots were made above, and are destroyed once.
        slots.iter().for_each(|slot| unsafe { lw_hazard_destroy(*slot) });
        assert_eq!(fork_and_make(), 0);
    }

    /// What a thread has destroyed serves other threads: all but a few slots at once, and these when the thread exits.
    #[test]
    fn destroyed_slots_serve_other_threads() {
        let make_and_destroy = |count| {
            let slots: Vec<_> = (0..count).map(|_| lw_hazard_make()).collect();
            // SAFETY: the slots were made above, and are destroyed once.
            slots.into_iter().for_each(|slot| unsafe { lw_hazard_destroy(slot) });
        };
        let in_thread = |count| std::thread::spawn(move || make_and_destroy(count)).join().unwrap();
        let before = made();
        (0..100).for_each(|_| in_thread(KEPT));
        make_and_destroy(1000);
        in_thread(900);
        // Other tests make some.
        assert!(made() < before + 1500, "{} more slots", made() - before);
    }
}
