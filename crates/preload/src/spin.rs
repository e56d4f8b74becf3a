//! `pthread_spin_*`: 4 bytes, so only locks of that size; the chosen mutex if it is one, else
//! `ttas`.
//!
//! A process-shared spin lock is glibc's: a process that shares it may not be preloaded. All that says so is the value
//! of the object's one word. glibc's are 1 and below (unlocked is 1 on x86 and 0 elsewhere; on x86 waiters count it
//! down below 0). Ours have [`MARK`] set, and are above 1 as signed numbers: the words of the machine [`Marked`] add
//! the mark to what a lock stores, and take it from what it loads. A word that no `pthread_spin_init` has written is
//! glibc's too.
//!
//! The locks never use plain instructions where the native machine does, in a process that has one thread: some
//! programs put a private spin lock into memory that they share with a child.

use crate::table::{REAL, Spin, install};
use crate::{cancel, stats};
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use latchwork::locks::mutex::RawMutex;
use latchwork::machine::{Arith, Clock, Deadline, Machine, Native, QNode, Wait, Word};
use latchwork::registry::{Visitor, visit};
use libc::{EBUSY, c_int};

/// What tells our words from glibc's. A lock of 4 bytes without a queue never uses this bit, or the sign.
const MARK: u32 = 1 << 30;

/// A word that has the mark, and is seen without it.
#[repr(transparent)]
struct MarkedWord(AtomicU32);

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

/// No sum carries into the mark.
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

/// The native machine, but for its 32-bit words.
#[derive(Copy, Clone, Debug)]
struct Marked;

// SAFETY: everything is the native machine's, except that `acquire_swap` and `release_dec` are always atomic, and that
// 32-bit words are native ones under another name for each value; queue nodes are never handed out.
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

    #[inline(always)]
    fn release_dec(word: &MarkedWord) -> bool {
        (word.fetch_sub(1, Ordering::Release).wrapping_sub(1) as i32) < 0
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

/// Serves the family with `name`, or with `ttas`.
pub(crate) fn install(name: &'static [u8], stats: bool) {
    struct Fits {
        name: &'static [u8],
        found: bool,
        stats: bool,
    }
    impl Visitor<Marked> for Fits {
        fn mutex<L: RawMutex<Machine = Marked>>(&mut self) {
            if size_of::<L>() > size_of::<Spin>() || L::INFO.name.as_bytes() != self.name {
                return;
            }
            self.found = true;
            stats::name_spin(L::INFO.name);
            if self.stats { serve::<L, true>() } else { serve::<L, false>() }
        }
    }
    let mut fits = Fits { name, found: false, stats };
    visit(&mut fits);
    if !fits.found {
        visit(&mut Fits { name: b"ttas", found: false, stats });
    }
}

fn serve<L: RawMutex<Machine = Marked>, const STATS: bool>() {
    install! {
        spin_init => init::<STATS>,
        spin_destroy => destroy,
        spin_lock => lock::<L, STATS>,
        spin_trylock => trylock::<L, STATS>,
        spin_unlock => unlock::<L>,
    }
}

/// Whether a lock with this word is ours.
#[inline(always)]
fn is_ours(word: u32) -> bool {
    word as i32 > 1
}

/// The lock, if it is ours.
///
/// # Safety
///
/// `s` is a live spin lock of the caller's.
#[inline(always)]
unsafe fn raw<'a, L>(s: *mut Spin) -> Option<&'a L> {
    // SAFETY: four aligned bytes of the caller's lock. `install` chose an `L` that fits, and whose words are `Marked`.
    unsafe { is_ours((*s.cast::<AtomicU32>()).load(Ordering::Relaxed)).then(|| &*s.cast::<L>()) }
}

/// Counts a call that goes to glibc.
fn foreign<const STATS: bool>() {
    if STATS {
        stats::foreign_call(stats::SPIN_SHARED);
    }
}

unsafe extern "C" fn init<const STATS: bool>(s: *mut Spin, shared: c_int) -> c_int {
    if shared != libc::PTHREAD_PROCESS_PRIVATE {
        if STATS {
            stats::foreign_object(stats::SPIN_SHARED);
        }
        // SAFETY: the caller's lock.
        return unsafe { REAL.spin_init.get()(s, shared) };
    }
    if STATS {
        stats::object(stats::SPIN);
    }
    // SAFETY: the caller's lock.
    unsafe { s.write(MARK) };
    0
}

unsafe extern "C" fn destroy(_: *mut Spin) -> c_int {
    0
}

unsafe extern "C" fn lock<L: RawMutex<Machine = Marked>, const STATS: bool>(s: *mut Spin) -> c_int {
    // SAFETY: the caller's lock.
    let Some(lock) = (unsafe { raw::<L>(s) }) else {
        // SAFETY: the caller's lock.
        return unsafe { lock_foreign::<STATS>(s) };
    };
    if STATS {
        stats::call(stats::SPIN);
    }
    // Weak: who goes on to wait does not pass those who wait already.
    if lock.try_lock_weak().is_some() { 0 } else { contended::<L, STATS>(lock) }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn lock_foreign<const STATS: bool>(s: *mut Spin) -> c_int {
    foreign::<STATS>();
    // SAFETY: the caller's lock.
    unsafe { REAL.spin_lock.get()(s) }
}

#[cold]
#[inline(never)]
fn contended<L: RawMutex<Machine = Marked>, const STATS: bool>(lock: &L) -> c_int {
    if STATS {
        stats::contended(stats::SPIN);
    }
    cancel::wait(None, || lock.lock(), |deadline| lock.lock_until(deadline));
    0
}

unsafe extern "C" fn trylock<L: RawMutex<Machine = Marked>, const STATS: bool>(s: *mut Spin) -> c_int {
    // SAFETY: the caller's lock.
    let Some(lock) = (unsafe { raw::<L>(s) }) else {
        foreign::<STATS>();
        // SAFETY: the caller's lock.
        return unsafe { REAL.spin_trylock.get()(s) };
    };
    if STATS {
        stats::call(stats::SPIN);
    }
    if lock.try_lock().is_some() {
        return 0;
    }
    if STATS {
        stats::contended(stats::SPIN);
    }
    EBUSY
}

unsafe extern "C" fn unlock<L: RawMutex<Machine = Marked>>(s: *mut Spin) -> c_int {
    use latchwork::locks::mutex::Token;
    // SAFETY: the caller's lock, which it holds; a lock of 4 bytes without a queue has no token.
    unsafe {
        match raw::<L>(s) {
            Some(lock) => {
                lock.unlock(L::Token::from_word(0));
                0
            }
            None => REAL.spin_unlock.get()(s),
        }
    }
}
