//! Linux: the machine that production code runs on.
//!
//! Words are the core atomics and everything small inlines, so a lock over [`Native`] compiles to what hand-written code
//! would. There are three short cuts, each with a portable path beside it:
//!
//! | short cut | file |
//! |---|---|
//! | light fences that are no instruction | `fence` |
//! | thread-local storage without a call | `tls` |
//! | plain instructions while the process has only one thread | `thread` |
//!
//! What a lock call runs here allocates nothing and restores `errno`: the call may come from a program's `malloc`, through
//! the preload library.

mod distances;
mod emulation;
mod exit;
mod fence;
mod filter;
mod futex;
mod memory;
mod pause;
mod pool;
mod records;
mod roll;
mod rows;
mod scan;
mod thread;
#[doc(hidden)]
pub mod tls;
mod words;

use super::{Clock, Deadline, Group, Machine, Offers, QNode, ReaderRow, Wait, Word, shared};
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence};

/// The Linux machine. See the [module documentation](self).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Native;

/// Looks at one word before the waiter offers its processor to other threads: with more threads than cores, the thread
/// that it waits for may not be running.
const SPINS_BEFORE_YIELD: u32 = 64;

/// Slots in the table of visible readers (BRAVO, section 3: "4096 entries").
const VISIBLE_READERS: usize = 4096;

#[repr(align(128))]
struct Table([AtomicUsize; VISIBLE_READERS]);
static TABLE: Table = Table([const { AtomicUsize::new(0) }; VISIBLE_READERS]);

/// Nodes in the waiting array. The array is 64 KiB of zeros; a page of it takes memory once it is used.
const WAITING_ARRAY: usize = 1024;
static WAITING: [QNode<Native>; WAITING_ARRAY] = [const { QNode::zeroed() }; WAITING_ARRAY];

impl Native {
    /// Registers the process for `membarrier`, once.
    ///
    /// A lock does so by itself at its first contention. Registering is free while the process has one thread, and can
    /// take milliseconds later: so a program may call this early in `main`. This also finds out whether a filter of
    /// system calls would kill the process for calling `membarrier`; then the locks do without it.
    pub fn init() {
        if fence::is_undecided() && !filter::lets_membarrier_pass() {
            fence::avoid();
        }
        fence::init();
        pool::init();
        rows::init();
    }

    /// Has `at_exit` called when a thread exits that has asked for it with [`notice_exit`](Self::notice_exit), before the
    /// thread gives back its record and its row. A copy of this crate has one such function: that of the preload library, or of
    /// the C interface.
    #[doc(hidden)]
    pub fn set_exit(at_exit: fn()) {
        exit::Hook::LIBRARY.create(at_exit);
    }

    /// See [`set_exit`](Self::set_exit). `false` if the thread's exit will not be noticed.
    #[doc(hidden)]
    pub fn notice_exit() -> bool {
        exit::Hook::LIBRARY.set()
    }

    /// Gives this crate's only `pthread_key` back to the C library, for a program that needs all keys. When threads exit
    /// from then on, what they kept for themselves is not used again. `false` if the crate has no key.
    #[doc(hidden)]
    pub fn give_up_key() -> bool {
        exit::give_up()
    }

    /// Has the locks do without `membarrier`, whether or not the kernel lets the process call it. Readers then pay for
    /// it: a section or a hazard pointer takes a full fence, and the readers of `bravo-2d-*` use the underlying lock. For a
    /// process that will install a filter of system calls that does not know `membarrier`. To be called before the first use
    /// of a lock; later it has no effect.
    pub fn avoid_membarrier() {
        fence::avoid();
    }

    /// Whether light fences are compiler barriers. Once they are, that stays so.
    #[doc(hidden)]
    pub fn has_light_fences() -> bool {
        fence::is_light()
    }

    /// Empties the table of visible readers (BRAVO's), and the rows of all threads but the calling one.
    ///
    /// # Safety
    ///
    /// For a forked child that still has one thread: the parent's other threads do not read a lock here. What the thread
    /// itself reads stays in its row; the caller acquires anew what the thread reads through the table.
    #[doc(hidden)]
    pub unsafe fn forget_readers() {
        for slot in shared::visible_readers::<Self>() {
            if slot.load(Ordering::Relaxed) != 0 {
                slot.store(0, Ordering::Relaxed);
            }
        }
        rows::after_fork();
    }
}

/// Has the compiler lay out the branch that calls this apart from the hot path.
#[cold]
#[inline(always)]
fn unlikely() {}

// SAFETY: words are the core atomics; the kernel's futex compares and sleeps in one step; `fence` argues why the
// asymmetric pairs hold; a thread's id is the address of its own control block; nodes live in memory that is never
// returned to the system.
unsafe impl Machine for Native {
    type U8 = AtomicU8;
    type U32 = AtomicU32;
    type U64 = AtomicU64;
    type Usize = AtomicUsize;
    type Ptr<T: Send + Sync + 'static> = AtomicPtr<T>;

    #[inline]
    fn spin_until<T: Copy, W: Word<T>>(word: &W, order: Ordering, mut done: impl FnMut(T) -> bool) -> T {
        let mut offers = Offers::new();
        loop {
            if let Some(value) = Self::spin_for(word, order, SPINS_BEFORE_YIELD, &mut done) {
                return value;
            }
            offers.take::<Self>(u64::MAX);
        }
    }

    #[inline]
    fn spin_for<T: Copy, W: Word<T>>(
        word: &W,
        order: Ordering,
        spins: u32,
        mut done: impl FnMut(T) -> bool,
    ) -> Option<T> {
        for _ in 0..spins {
            let value = word.load(order);
            if done(value) {
                return Some(value);
            }
            core::hint::spin_loop();
        }
        None
    }

    #[inline]
    fn pause(spins: u32) {
        for _ in 0..spins {
            core::hint::spin_loop();
        }
    }

    fn hints(nanos: u32) -> u32 {
        pause::hints(nanos)
    }

    fn has_one_processor() -> bool {
        thread::has_one_processor()
    }

    fn yield_now() {
        // SAFETY: the call takes no arguments and touches no memory.
        unsafe { libc::sched_yield() };
    }

    fn wait(word: &AtomicU32, expected: u32, deadline: Option<Deadline>) -> Wait {
        futex::wait(word, expected, deadline)
    }

    fn wake(word: *const AtomicU32, count: u32) -> usize {
        futex::wake(word, count)
    }

    fn is_real_time() -> bool {
        thread::is_real_time()
    }

    fn requeue(from: *const AtomicU32, expected: u32, to: &AtomicU32) {
        futex::requeue(from, expected, to);
    }

    #[inline(always)]
    fn light_fence() {
        if fence::is_light() {
            compiler_fence(Ordering::SeqCst);
        } else {
            core::sync::atomic::fence(Ordering::SeqCst);
        }
    }

    fn heavy_fence() -> bool {
        fence::heavy()
    }

    fn prepare_fences() -> bool {
        fence::init();
        fence::is_light()
    }

    #[inline(always)]
    fn lightest_fence() {
        compiler_fence(Ordering::SeqCst);
    }

    #[inline(always)]
    fn full_fence() {
        core::sync::atomic::fence(Ordering::SeqCst);
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn prefetch<T>(place: impl FnOnce() -> *const T) {
        // SAFETY: the instruction changes nothing and does not fault, whatever the address. Processors without it take it for
        // another one that does nothing.
        unsafe {
            core::arch::asm!("prefetchw [{}]", in(reg) place(), options(nostack, preserves_flags, readonly));
        }
    }

    #[inline(always)]
    fn acquire_swap(word: &AtomicU32, value: u32) -> u32 {
        if thread::is_single() {
            // Laid out second: in a process with one thread, the exchange is the smaller part of the cost.
            unlikely();
            let old = word.load(Ordering::Relaxed);
            word.store(value, Ordering::Relaxed);
            old
        } else {
            word.swap(value, Ordering::Acquire)
        }
    }

    #[inline(always)]
    fn acquire_zero(word: &AtomicU32, value: u32) -> bool {
        if thread::is_single() {
            unlikely();
            let free = word.load(Ordering::Relaxed) == 0;
            if free {
                word.store(value, Ordering::Relaxed);
            }
            free
        } else {
            word.compare_exchange(0, value, Ordering::Acquire, Ordering::Relaxed).is_ok()
        }
    }

    fn now(clock: Clock) -> u64 {
        futex::now(clock)
    }

    #[inline(always)]
    fn thread_id() -> usize {
        thread::id()
    }

    fn numa_node() -> u32 {
        thread::numa_node()
    }

    fn numa_nodes() -> u32 {
        thread::numa_nodes()
    }

    fn numa_hops(from: u32, to: u32) -> u32 {
        distances::hops(from, to)
    }

    #[inline]
    fn cpu() -> u32 {
        thread::cpu()
    }

    #[inline]
    fn cpus() -> u32 {
        thread::cpus()
    }

    #[inline]
    fn find(words: &[AtomicUsize], value: usize) -> Option<usize> {
        scan::find(words, value)
    }

    #[inline]
    fn acquire_node() -> &'static QNode<Self> {
        pool::acquire()
    }

    #[inline]
    unsafe fn release_node(node: &'static QNode<Self>) {
        // SAFETY: the node came from `acquire_node`, which is `pool::acquire`, and is released once, says the caller.
        unsafe { pool::release(node) }
    }

    #[inline(always)]
    unsafe fn visible_readers() -> &'static [AtomicUsize] {
        &TABLE.0
    }

    #[inline(always)]
    unsafe fn waiting_array() -> &'static [QNode<Self>] {
        &WAITING
    }

    #[inline(always)]
    unsafe fn reader_row() -> Option<&'static ReaderRow<Self>> {
        Some(rows::own())
    }

    unsafe fn reader_rows() -> Option<&'static Group<Self, ReaderRow<Self>>> {
        rows::newest()
    }

    fn doze(nanos: u64) {
        // No thread knows this word, so the sleep ends with the deadline.
        let unknown = AtomicU32::new(0);
        futex::wait(&unknown, 0, Some(Deadline::after::<Self>(nanos)));
    }
}
