//! Linux: the machine that production code runs on.
//!
//! Words are the core atomics and everything small inlines, so a lock over [`Native`] compiles to
//! what hand-written code would. x86-64 with glibc has three short cuts, each with a portable path
//! beside it: the unlock without a `lock` prefix, thread-local storage without a call, and plain
//! instructions while the process has only one thread.

mod distances;
mod emulation;
mod exit;
mod fence;
mod filter;
mod futex;
mod pool;
mod records;
mod roll;
mod rows;
mod scan;
mod thread;
#[doc(hidden)]
pub mod tls;

use super::{Arith, Clock, Deadline, Group, Machine, Offers, QNode, ReaderRow, Wait, Word, shared};
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence};

/// The Linux machine. See the [module documentation](self).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Native;

/// Spins on one word before the waiter offers its processor to others. With more threads than
/// cores the thread it waits for may not be running.
const SPINS_BEFORE_YIELD: u32 = 64;

/// Slots in the table of visible readers (BRAVO, section 3: "4096 entries").
const VISIBLE_READERS: usize = 4096;

#[repr(align(128))]
struct Table([AtomicUsize; VISIBLE_READERS]);
static TABLE: Table = Table([const { AtomicUsize::new(0) }; VISIBLE_READERS]);

/// Nodes in the waiting array; it is 64 KiB of zeros, of which only what is used takes memory.
const WAITING_ARRAY: usize = 1024;
static WAITING: [QNode<Native>; WAITING_ARRAY] = [const { QNode::zeroed() }; WAITING_ARRAY];

impl Native {
    /// Readies what the operating system has to be asked for once: the `membarrier` registration.
    ///
    /// It happens by itself at the first contention. Call this early in `main` to have it while
    /// the process is single-threaded, when it is free; later it can take milliseconds. It also finds out whether a
    /// filter of system calls would end the process for `membarrier`, and then does without.
    pub fn init() {
        if fence::is_undecided() && !filter::lets_membarrier_pass() {
            fence::avoid();
        }
        fence::init();
        pool::init();
        rows::init();
    }

    /// Has `at_exit` called when a thread exits that has asked for it with [`notice_exit`](Self::notice_exit). For the
    /// library that is preloaded: there is one such function in a process.
    pub fn set_exit(at_exit: fn()) {
        exit::Hook::LIBRARY.create(at_exit, || ());
    }

    /// See [`set_exit`](Self::set_exit). `false` if the thread's exit will not be noticed.
    pub fn notice_exit() -> bool {
        exit::Hook::LIBRARY.set()
    }

    /// Gives the process's only `pthread_key` of this crate back to the C library, for a program that needs all. What
    /// threads keep for themselves is not used again when they exit from then on. `false` if there is none.
    pub fn give_up_key() -> bool {
        exit::give_up()
    }

    /// Does without `membarrier`, whether the kernel lets the process call it or not: unlocking takes an atomic
    /// instruction. For a process that will install a filter of system calls which knows nothing of it. To be called
    /// before the first use of a lock; later it has no effect.
    pub fn avoid_membarrier() {
        fence::avoid();
    }

    /// Whether light fences are, and will be, the compiler's only, and `release_dec` no atomic instruction.
    pub fn has_light_fences() -> bool {
        fence::is_light()
    }

    /// Forgets all fast readers (BRAVO's) in the table, and in the rows of all threads but the calling one.
    ///
    /// # Safety
    ///
    /// For a forked child that has one thread yet: the parent's other threads do not read a lock here. What the forking
    /// thread reads stays in its row; the caller acquires anew what that thread reads through the table.
    pub unsafe fn forget_readers() {
        for slot in shared::visible_readers::<Self>() {
            if slot.load(Ordering::Relaxed) != 0 {
                slot.store(0, Ordering::Relaxed);
            }
        }
        rows::after_fork();
    }
}

/// Marks the branch that it is called in as the one to be laid out elsewhere.
#[cold]
#[inline(always)]
fn unlikely() {}

macro_rules! word {
    ($atomic:ty, $t:ty) => {
        impl Word<$t> for $atomic {
            #[inline(always)]
            fn new(value: $t) -> Self {
                <$atomic>::new(value)
            }
            #[inline(always)]
            fn load(&self, order: Ordering) -> $t {
                self.load(order)
            }
            #[inline(always)]
            fn store(&self, value: $t, order: Ordering) {
                self.store(value, order)
            }
            #[inline(always)]
            fn swap(&self, value: $t, order: Ordering) -> $t {
                self.swap(value, order)
            }
            #[inline(always)]
            fn compare_exchange(&self, current: $t, new: $t, ok: Ordering, err: Ordering) -> Result<$t, $t> {
                self.compare_exchange(current, new, ok, err)
            }
        }
    };
}

macro_rules! arith {
    ($atomic:ty, $t:ty) => {
        word!($atomic, $t);
        impl Arith<$t> for $atomic {
            #[inline(always)]
            fn fetch_add(&self, value: $t, order: Ordering) -> $t {
                self.fetch_add(value, order)
            }
            #[inline(always)]
            fn fetch_sub(&self, value: $t, order: Ordering) -> $t {
                self.fetch_sub(value, order)
            }
            #[inline(always)]
            fn fetch_or(&self, value: $t, order: Ordering) -> $t {
                self.fetch_or(value, order)
            }
            #[inline(always)]
            fn fetch_and(&self, value: $t, order: Ordering) -> $t {
                self.fetch_and(value, order)
            }
        }
    };
}

word!(AtomicU8, u8);
arith!(AtomicU32, u32);
arith!(AtomicU64, u64);
arith!(AtomicUsize, usize);

impl<T: Send + Sync + 'static> Word<*mut T> for AtomicPtr<T> {
    #[inline(always)]
    fn new(value: *mut T) -> Self {
        AtomicPtr::new(value)
    }
    #[inline(always)]
    fn load(&self, order: Ordering) -> *mut T {
        self.load(order)
    }
    #[inline(always)]
    fn store(&self, value: *mut T, order: Ordering) {
        self.store(value, order)
    }
    #[inline(always)]
    fn swap(&self, value: *mut T, order: Ordering) -> *mut T {
        self.swap(value, order)
    }
    #[inline(always)]
    fn compare_exchange(
        &self,
        current: *mut T,
        new: *mut T,
        ok: Ordering,
        err: Ordering,
    ) -> Result<*mut T, *mut T> {
        self.compare_exchange(current, new, ok, err)
    }
}

// SAFETY: words are the core atomics; the futex compares and sleeps atomically; the asymmetric
// pairs are argued in `fence`; a thread's id is the address of its own control block; nodes live in
// memory that is never returned to the system.
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

    fn yield_now() {
        // SAFETY: no arguments, no memory.
        unsafe { libc::sched_yield() };
    }

    fn wait(word: &AtomicU32, expected: u32, deadline: Option<Deadline>) -> Wait {
        futex::wait(word, expected, deadline)
    }

    fn wake(word: *const AtomicU32, count: u32) -> usize {
        futex::wake(word, count)
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

    #[inline(always)]
    fn acquire_swap(word: &AtomicU32, value: u32) -> u32 {
        if thread::is_single() {
            // Not the way to be laid out first: there the exchange is the smaller part of the cost.
            unlikely();
            let old = word.load(Ordering::Relaxed);
            word.store(value, Ordering::Relaxed);
            old
        } else {
            word.swap(value, Ordering::Acquire)
        }
    }

    #[inline(always)]
    fn release_dec(word: &AtomicU32) -> bool {
        fence::release_dec(word)
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
        // SAFETY: forwarded from the caller.
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

    unsafe fn reader_rows() -> Option<&'static ReaderRow<Self>> {
        rows::newest()
    }

    fn doze(nanos: u64) {
        let nobody = AtomicU32::new(0);
        futex::wait(&nobody, 0, Some(Deadline::after::<Self>(nanos)));
    }
}
