//! Memory that outlives its schedule, so that an access that comes too late is seen, and does no harm.
//!
//! Locks lie in the arena, which is never freed. A map allocates. A program whose allocator is [`Keeping`] keeps what a schedule
//! with a map frees until that schedule is over: a word there says that it was destroyed, also if a seeded mistake has made
//! a thread use it. A schedule without a mistake needs no such allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;

/// The system's allocator, which keeps what is freed within a schedule that explores a map. A program says
/// `#[global_allocator] static ALLOCATOR: Keeping = Keeping;`.
#[derive(Copy, Clone, Debug, Default)]
pub struct Keeping;

std::thread_local! {
    /// Whether this OS thread keeps what it frees.
    static KEEPS: Cell<bool> = const { Cell::new(false) };
    /// What it has kept. Never dropped: a thread-local with a destructor could not be used by an allocator.
    static FREED: ManuallyDrop<RefCell<Vec<(*mut u8, Layout)>>> =
        const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

// SAFETY: the system's allocator does it all; what is kept is given back to it once, with its layout.
unsafe impl GlobalAlloc for Keeping {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if KEEPS.get() {
            // The list itself may grow, and free its memory: that is not kept.
            let kept =
                FREED.with(|freed| freed.try_borrow_mut().map(|mut freed| freed.push((memory, layout))));
            if kept.is_ok() {
                return;
            }
        }
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// The calling OS thread keeps what it frees until this is dropped. With a seeded mistake, several threads may free the same memory.
pub(super) struct Kept {
    mistaken: bool,
}

impl Kept {
    pub(super) fn begin(mistaken: bool) -> Kept {
        KEEPS.set(true);
        Kept { mistaken }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        KEEPS.set(false);
        let mut freed = FREED.with(|freed| freed.take());
        // It was kept, so an address has had no other owner since.
        let times = freed.len();
        freed.sort_unstable_by_key(|(memory, _)| *memory);
        freed.dedup_by_key(|(memory, _)| *memory);
        assert!(self.mistaken || freed.len() == times, "memory was freed twice");
        for (memory, layout) in freed {
            // SAFETY: `dealloc` was called for it with this layout, and no thread of the schedule is left.
            unsafe { System.dealloc(memory, layout) };
        }
    }
}
