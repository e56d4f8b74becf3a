//! `pthread_spin_*`: 4 bytes, so only locks of that size; the chosen mutex if it is one, else
//! `ttas`.
//!
//! There is no room in the object to say that it is process-shared, so every spin lock of ours
//! works between processes: it never uses plain instructions where the native machine does, in a
//! process that has one thread. That is what [`Shared`] is for.

use crate::table::{Spin, install};
use crate::{cancel, stats};
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use latchwork::machine::{Clock, Deadline, Machine, Native, QNode, Wait, Word};
use latchwork::mutex::RawMutex;
use latchwork::registry::{Visitor, visit};
use libc::{EBUSY, c_int};

/// The native machine, for memory that several processes see.
#[derive(Copy, Clone, Debug)]
struct Shared;

// SAFETY: everything is the native machine's, except that `acquire_swap` is always atomic; queue
// nodes, which belong to one process, are never handed out.
unsafe impl Machine for Shared {
    type U8 = AtomicU8;
    type U32 = AtomicU32;
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

    fn wait(word: &AtomicU32, expected: u32, deadline: Option<Deadline>) -> Wait {
        Native::wait(word, expected, deadline)
    }

    fn wake(word: *const AtomicU32, count: u32) -> usize {
        Native::wake(word, count)
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
    fn acquire_swap(word: &AtomicU32, value: u32) -> u32 {
        word.swap(value, Ordering::Acquire)
    }

    #[inline(always)]
    fn release_dec(word: &AtomicU32) -> bool {
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

    fn visible_readers() -> &'static [AtomicUsize] {
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
    impl Visitor<Shared> for Fits {
        fn mutex<L: RawMutex<Machine = Shared>>(&mut self) {
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

fn serve<L: RawMutex<Machine = Shared>, const STATS: bool>() {
    install! {
        spin_init => init::<STATS>,
        spin_destroy => destroy,
        spin_lock => lock::<L, STATS>,
        spin_trylock => trylock::<L, STATS>,
        spin_unlock => unlock::<L>,
    }
}

/// # Safety
///
/// `s` is a live spin lock of the caller's.
#[inline(always)]
unsafe fn raw<'a, L>(s: *mut Spin) -> &'a L {
    // SAFETY: from the caller; `install` chose an `L` that fits, and zero is unlocked.
    unsafe { &*s.cast::<L>() }
}

unsafe extern "C" fn init<const STATS: bool>(s: *mut Spin, _shared: c_int) -> c_int {
    if STATS {
        stats::object(stats::SPIN);
    }
    // SAFETY: the caller's lock.
    unsafe { s.write(0) };
    0
}

unsafe extern "C" fn destroy(_: *mut Spin) -> c_int {
    0
}

unsafe extern "C" fn lock<L: RawMutex<Machine = Shared>, const STATS: bool>(s: *mut Spin) -> c_int {
    // SAFETY: the caller's lock.
    let lock = unsafe { raw::<L>(s) };
    if STATS {
        stats::call(stats::SPIN);
    }
    // Weak: who goes on to wait does not pass those who wait already.
    if lock.try_lock_weak().is_some() { 0 } else { contended::<L, STATS>(lock) }
}

#[cold]
#[inline(never)]
fn contended<L: RawMutex<Machine = Shared>, const STATS: bool>(lock: &L) -> c_int {
    if STATS {
        stats::contended(stats::SPIN);
    }
    cancel::wait(None, || lock.lock(), |deadline| lock.lock_until(deadline));
    0
}

unsafe extern "C" fn trylock<L: RawMutex<Machine = Shared>, const STATS: bool>(s: *mut Spin) -> c_int {
    if STATS {
        stats::call(stats::SPIN);
    }
    // SAFETY: the caller's lock.
    if unsafe { raw::<L>(s) }.try_lock().is_some() {
        return 0;
    }
    if STATS {
        stats::contended(stats::SPIN);
    }
    EBUSY
}

unsafe extern "C" fn unlock<L: RawMutex<Machine = Shared>>(s: *mut Spin) -> c_int {
    use latchwork::mutex::Token;
    // SAFETY: the caller's lock, which it holds; a lock of 4 bytes without a queue has no token.
    unsafe { raw::<L>(s).unlock(L::Token::from_word(0)) };
    0
}
