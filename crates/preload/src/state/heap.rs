//! What Rust code in this library allocates. Only the reports of `latchwork check` do.
//!
//! The program's `malloc` must not serve them. It may be another allocator than the C library's, with pthread locks of its own, and a
//! report may be about these: the thread that reports holds one, and would wait for itself.
//!
//! Blocks have sizes of powers of two. Small ones are cut from chunks, and kept for later when they are freed. Large ones are mapped, and
//! unmapped again.

use super::{kernel, memory};
use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, Ordering};
use latchwork::machine::{Machine, Native};

#[global_allocator]
static HEAP: Heap = Heap {
    taken: AtomicBool::new(false),
    pools: UnsafeCell::new(Pools { free: [null_mut(); CLASSES], chunk: 0..0 }),
};

/// Bytes of a page, and the largest alignment that blocks have.
const PAGE: usize = 4096;
/// Bytes that are mapped for small blocks at a time.
const CHUNK: usize = 64 << 10;
/// Bytes of the smallest block, which has room for a pointer.
const SMALLEST: usize = 16;
/// How many sizes of small blocks there are: 16 bytes to 32 KiB.
const CLASSES: usize = (CHUNK / 2 / SMALLEST).ilog2() as usize + 1;
/// How often a thread lets others run before it does without the pools: the thread that has them may be one that only the parent of
/// this process has.
const PATIENCE: u32 = 1_000;

struct Heap {
    taken: AtomicBool,
    pools: UnsafeCell<Pools>,
}

/// Freed blocks of each size, each of which begins with the address of the next one; and what is left of the newest chunk.
struct Pools {
    free: [*mut u8; CLASSES],
    chunk: core::ops::Range<usize>,
}

// SAFETY: only the thread that has set `taken` looks at the pools.
unsafe impl Sync for Heap {}

/// Bytes of a block for this layout, and the number of its class if it is a small one.
fn block(layout: Layout) -> (usize, Option<usize>) {
    let bytes = layout.size().max(layout.align()).max(SMALLEST).next_power_of_two();
    let class = (bytes / SMALLEST).ilog2() as usize;
    (bytes, (class < CLASSES).then_some(class))
}

fn map(bytes: usize) -> *mut u8 {
    // SAFETY: a new mapping replaces nothing.
    let memory = memory::quietly(|| unsafe { kernel::map(null_mut(), bytes, 0, None) });
    if memory == libc::MAP_FAILED { null_mut() } else { memory.cast() }
}

impl Heap {
    /// Calls `f` with the pools, unless another thread keeps them for too long.
    fn with_pools<T>(&self, f: impl FnOnce(&mut Pools) -> T) -> Option<T> {
        let mut patience = PATIENCE;
        // (A) pairs with itself: a thread that has the pools sees what the one before it did.
        while self.taken.swap(true, Ordering::Acquire) {
            patience = patience.checked_sub(1)?;
            Native::yield_now();
        }
        // SAFETY: `taken` was false, so no other thread uses them.
        let result = f(unsafe { &mut *self.pools.get() });
        self.taken.store(false, Ordering::Release); // (A)
        Some(result)
    }
}

impl Pools {
    fn take(&mut self, bytes: usize, class: usize) -> *mut u8 {
        let first = self.free[class];
        if !first.is_null() {
            // SAFETY: a freed block begins with the address of the next one, and no code uses it.
            self.free[class] = unsafe { first.cast::<*mut u8>().read() };
            return first;
        }
        let mut start = self.chunk.start.next_multiple_of(bytes.min(PAGE));
        if start + bytes > self.chunk.end {
            start = map(CHUNK).expose_provenance();
            if start == 0 {
                return null_mut();
            }
            self.chunk.end = start + CHUNK;
        }
        self.chunk.start = start + bytes;
        core::ptr::with_exposed_provenance_mut(start)
    }
}

// SAFETY: a block has at least the size that is asked for, and a multiple of the alignment, up to a page, for its address. It belongs to no
// other block, because chunks are cut once, and a block is in a list only from its release on.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (bytes, class) = block(layout);
        if layout.align() > PAGE {
            return null_mut();
        }
        let pooled = class.and_then(|class| self.with_pools(|pools| pools.take(bytes, class)));
        pooled.unwrap_or_else(|| map(bytes))
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        match block(layout) {
            // SAFETY: the caller's block, which was mapped by itself.
            (bytes, None) => memory::quietly(|| unsafe { kernel::unmap(memory.cast(), bytes) }),
            // If the pools cannot be had, the block is lost.
            (_, Some(class)) => drop(self.with_pools(|pools| {
                // SAFETY: the block has room for an address, and no code uses it any more.
                unsafe { memory.cast::<*mut u8>().write(pools.free[class]) };
                pools.free[class] = memory;
            })),
        }
    }
}
