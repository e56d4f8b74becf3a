//! The machine of the spin locks: its 32-bit words carry a mark in memory.

use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use latchwork::machine::{Arith, Clock, Deadline, Machine, Native, QNode, Wait, Word};

/// The bit that tells our words from glibc's. A lock of 4 bytes without a queue uses neither this bit nor the sign.
pub(super) const MARK: u32 = 1 << 30;

/// A word that has the mark in memory. Its operations take and return the value without the mark.
#[repr(transparent)]
pub(super) struct MarkedWord(AtomicU32);

impl Word<u32> for MarkedWord {
    fn new(value: u32) -> Self {
        MarkedWord(AtomicU32::new(value ^ MARK))
    }
    #[inline(always)]
    fn load(&self, order: Ordering) -> u32 {
        self.0.load(order) ^ MARK
    }
    #[inline(always)]
    fn store(&self, value: u32, order: Ordering) {
        self.0.store(value ^ MARK, order);
    }
    #[inline(always)]
    fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.0.swap(value ^ MARK, order) ^ MARK
    }
    #[inline(always)]
    fn compare_exchange(&self, current: u32, new: u32, ok: Ordering, err: Ordering) -> Result<u32, u32> {
        let result = self.0.compare_exchange(current ^ MARK, new ^ MARK, ok, err);
        result.map(|word| word ^ MARK).map_err(|word| word ^ MARK)
    }
}

// No sum carries into the mark: the values of a lock of 4 bytes without a queue stay below it.
impl Arith<u32> for MarkedWord {
    #[inline(always)]
    fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        self.0.fetch_add(value, order) ^ MARK
    }
    #[inline(always)]
    fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
        self.0.fetch_sub(value, order) ^ MARK
    }
    #[inline(always)]
    fn fetch_or(&self, value: u32, order: Ordering) -> u32 {
        self.0.fetch_or(value, order) ^ MARK
    }
    #[inline(always)]
    fn fetch_and(&self, value: u32, order: Ordering) -> u32 {
        self.0.fetch_and(value | MARK, order) ^ MARK
    }
}

/// The native machine, except for its 32-bit words. It never uses plain instructions in place of atomic ones, as the native
/// machine does in a process that has one thread: some programs put a private spin lock into memory that they share with a
/// child.
#[derive(Copy, Clone, Debug)]
pub(super) struct Marked;

// SAFETY: every operation is the native machine's, with these exceptions. `acquire_swap` and the fences are always the
// strongest form. A 32-bit word is a native one, and each of its values stands for the value with one bit flipped. No queue
// node is ever handed out.
unsafe impl Machine for Marked {
    type U8 = AtomicU8;
    type U32 = MarkedWord;
    type U64 = AtomicU64;
    type Usize = AtomicUsize;
    type Ptr<T: Send + Sync + 'static> = AtomicPtr<T>;

    #[inline]
    fn spin_until<T: Copy, W: Word<T>>(word: &W, order: Ordering, done: impl FnMut(T) -> bool) -> T {
        Native::spin_until(word, order, done)
    }

    #[inline]
    fn spin_for<T: Copy, W: Word<T>>(
        word: &W,
        order: Ordering,
        spins: u32,
        done: impl FnMut(T) -> bool,
    ) -> Option<T> {
        Native::spin_for(word, order, spins, done)
    }

    #[inline]
    fn pause(spins: u32) {
        Native::pause(spins);
    }

    fn hints(nanos: u32) -> u32 {
        Native::hints(nanos)
    }

    fn yield_now() {
        Native::yield_now();
    }

    fn doze(nanos: u64) {
        Native::doze(nanos);
    }

    fn wait(word: &MarkedWord, expected: u32, deadline: Option<Deadline>) -> Wait {
        Native::wait(&word.0, expected ^ MARK, deadline)
    }

    fn wake(word: *const MarkedWord, count: u32) -> usize {
        Native::wake(word.cast(), count)
    }

    fn light_fence() {
        core::sync::atomic::fence(Ordering::SeqCst);
    }

    fn heavy_fence() -> bool {
        core::sync::atomic::fence(Ordering::SeqCst);
        true
    }

    fn full_fence() {
        core::sync::atomic::fence(Ordering::SeqCst);
    }

    #[inline(always)]
    fn acquire_swap(word: &MarkedWord, value: u32) -> u32 {
        word.swap(value, Ordering::Acquire)
    }

    fn now(clock: Clock) -> u64 {
        Native::now(clock)
    }

    fn thread_id() -> usize {
        Native::thread_id()
    }

    fn numa_node() -> u32 {
        Native::numa_node()
    }

    fn numa_nodes() -> u32 {
        Native::numa_nodes()
    }

    fn acquire_node() -> &'static QNode<Self> {
        unreachable!("a lock of 4 bytes has no queue")
    }

    unsafe fn release_node(_: &'static QNode<Self>) {}

    unsafe fn visible_readers() -> &'static [AtomicUsize] {
        &[]
    }
}
