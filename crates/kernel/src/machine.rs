//! [`Kernel`]: the machine of the Linux kernel.
//!
//! | a lock asks for | in the kernel |
//! |---|---|
//! | words | the core atomics |
//! | a spin | `cpu_relax`; a thread that may sleep lets others run when the scheduler asks for it |
//! | sleep and wake | a hash table of lists of sleepers by the word's address, as the futex table (`module/sleep.c`) |
//! | a thread's number | the address of its `task_struct` |
//! | a queue node | a stack of nodes for each processor, taken with interrupts off, so in any context but NMI |
//! | asymmetric fences | a full fence on both sides, see [`light_fence`](Machine::light_fence) |
//! | a deadline | on the clock, or a signal, see [`INTERRUPTIBLE`] and [`KILLABLE`] |
//!
//! A caller that may not sleep (it has turned preemption or interrupts off) spins wherever the lock would sleep. So each
//! lock works in each context in which its holders do not sleep.

use crate::shim::*;
use core::sync::atomic::*;
use latchwork::machine::{Clock, Deadline, Machine, QNode, ReaderRow, Wait, Word};

/// The machine. `FAULT` is what is wrong with it, in a lock that is broken on purpose.
#[derive(Copy, Clone, Debug)]
pub struct Kernel<const FAULT: u8 = SOUND>;

/// Nothing is wrong.
pub const SOUND: u8 = 0;
/// A writer does not find the readers in the table of visible readers.
pub const BLIND: u8 = 1;
/// One wakeup in four is lost: the thread that it was for sleeps on, and no later wakeup finds that thread.
pub const DEAF: u8 = 2;
/// A release by another task does not find the reader in the table of visible readers.
pub const FORGETFUL: u8 = 3;
/// The locks of a kernel that is broken on purpose (feature `twin`), from when `lw_k_broken` says so: a writer does not find the
/// readers in the table of visible readers (1), or a free lock is looked at and taken in two steps, with a sleep between (2).
pub const TWIN: u8 = 4;
/// A sleeping waiter does not give up: neither a time nor a signal ends its sleep.
pub const STUBBORN: u8 = 5;

/// A deadline that passes when a signal is pending, for the interruptible forms. There is no wall clock in here, so
/// [`Clock::Realtime`] is the clock of signals: it shows 0, this time, or [`KILLABLE`] when the signal is deadly.
pub const INTERRUPTIBLE: Deadline = Deadline { clock: Clock::Realtime, nanos: 1 << 62 };
/// A deadline that passes when a deadly signal is pending.
pub const KILLABLE: Deadline = Deadline { clock: Clock::Realtime, nanos: 2 << 62 };

/// Looks at one word before a thread that may sleep lets others run.
const LOOKS: u32 = 64;
/// After so many rounds of [`LOOKS`], such a thread sleeps between two rounds, so that the thread that it waits for runs
/// even if it has a lower real-time priority.
const ROUNDS: u32 = 1000;
/// The length of such a sleep, in nanoseconds.
const NAP: u64 = 50_000;

/// Slots in the table of visible readers (BRAVO, section 3: "4096 entries").
const VISIBLE_READERS: usize = 4096;
#[repr(align(128))]
struct Table([AtomicUsize; VISIBLE_READERS]);
static TABLE: Table = Table([const { AtomicUsize::new(0) }; VISIBLE_READERS]);

impl<const FAULT: u8> Kernel<FAULT> {
    /// Whether this `part` of a [`TWIN`] is broken now.
    #[cfg(feature = "twin")]
    #[inline(always)]
    fn is_broken_twin(part: u32) -> bool {
        FAULT == TWIN && lw_k_broken() == part
    }

    /// No lock of this build can be broken.
    #[cfg(not(feature = "twin"))]
    #[inline(always)]
    fn is_broken_twin(_: u32) -> bool {
        false
    }
}

// SAFETY: words are the core atomics; `lw_k_wait` compares and goes to sleep under the lock that `lw_k_wake` takes; both
// sides of the asymmetric pairs are full fences; two live threads have two tasks; nodes are never freed while the module is
// loaded. With a FAULT, the promise about `find`, `wake` or `wait` is broken: only locks that are broken on purpose have one.
unsafe impl<const FAULT: u8> Machine for Kernel<FAULT> {
    type U8 = AtomicU8;
    type U32 = AtomicU32;
    type U64 = AtomicU64;
    type Usize = AtomicUsize;
    type Ptr<T: Send + Sync + 'static> = AtomicPtr<T>;

    #[inline]
    fn spin_until<T: Copy, W: Word<T>>(word: &W, order: Ordering, mut done: impl FnMut(T) -> bool) -> T {
        let mut rounds = 0;
        loop {
            if let Some(value) = Self::spin_for(word, order, LOOKS, &mut done) {
                return value;
            }
            rounds += 1;
            if rounds % ROUNDS == 0 { Self::doze(NAP) } else { Self::yield_now() }
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
        lw_k_hints(nanos)
    }

    fn yield_now() {
        lw_k_yield();
    }

    fn doze(nanos: u64) {
        lw_k_doze(nanos);
    }

    fn wait(word: &AtomicU32, expected: u32, deadline: Option<Deadline>) -> Wait {
        if !lw_k_may_sleep() {
            lw_k_relax();
            let late = deadline.is_some_and(|deadline| deadline.passed::<Self>());
            return if late { Wait::TimedOut } else { Wait::Woken };
        }
        let deadline = if FAULT == STUBBORN { None } else { deadline };
        let (until, signals) = match deadline {
            None => (u64::MAX, 0),
            Some(Deadline { clock: Clock::Monotonic, nanos }) => (nanos, 0),
            Some(Deadline { clock: Clock::Realtime, nanos }) => (u64::MAX, (nanos >> 62) as u32),
        };
        // SAFETY: the word is there while the caller waits at it.
        let woken = unsafe { lw_k_wait(word.as_ptr(), expected, until, signals) };
        if woken { Wait::Woken } else { Wait::TimedOut }
    }

    fn wake(word: *const AtomicU32, count: u32) -> usize {
        // SAFETY: the function uses the address alone.
        if FAULT == DEAF && unsafe { lw_k_lose(word.cast()) } {
            return 0;
        }
        // SAFETY: the function uses the address alone.
        unsafe { lw_k_wake(word.cast(), count) }
    }

    // `requeue` is the trait's: it wakes the sleeper. A move may come late, when `from` is another waiter's node, and take that waiter to a
    // lock that it does not wait for. It would wake by itself in user space, but here no sleep has a time limit.

    /// A full fence. The other side could interrupt all processors instead, so that this side would cost nothing; but a
    /// writer may attempt a semaphore with interrupts off, where that is not allowed, and processors that are kept free of
    /// interrupts (`nohz_full`) would get them.
    #[inline(always)]
    fn light_fence() {
        fence(Ordering::SeqCst);
    }

    #[inline(always)]
    fn heavy_fence() -> bool {
        fence(Ordering::SeqCst);
        true
    }

    #[inline(always)]
    fn full_fence() {
        fence(Ordering::SeqCst);
    }

    #[inline(always)]
    fn acquire_swap(word: &AtomicU32, value: u32) -> u32 {
        word.swap(value, Ordering::Acquire)
    }

    #[inline(always)]
    fn acquire_zero(word: &AtomicU32, value: u32) -> bool {
        if Self::is_broken_twin(2) {
            let free = word.load(Ordering::Acquire) == 0;
            if free {
                Self::doze(NAP);
                word.store(value, Ordering::Relaxed);
            }
            return free;
        }
        word.compare_exchange(0, value, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// One atomic step, so that no wakeup is lost for a time: the kernel would show that as a stall.
    #[inline(always)]
    fn release_if(_: &AtomicPtr<QNode<Self>>, word: &AtomicU32, expected: u32) -> bool {
        word.compare_exchange(expected, 0, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    fn torn_timeout(_: u64) -> Option<Deadline> {
        None
    }

    /// None: a task that another one should wake is woken, or the lock is broken. The torture sees that.
    fn safety_timeout(_: u64) -> Option<Deadline> {
        None
    }

    fn now(clock: Clock) -> u64 {
        match clock {
            Clock::Monotonic => lw_k_now(),
            Clock::Realtime => u64::from(lw_k_signals()) << 62,
        }
    }

    #[inline]
    fn thread_id() -> usize {
        lw_k_thread()
    }

    fn cpu() -> u32 {
        lw_k_cpu()
    }

    fn cpus() -> u32 {
        lw_k_cpus()
    }

    fn numa_node() -> u32 {
        lw_k_node()
    }

    fn numa_nodes() -> u32 {
        lw_k_nodes()
    }

    fn numa_hops(from: u32, to: u32) -> u32 {
        lw_k_hops(from, to)
    }

    fn acquire_node() -> &'static QNode<Self> {
        // SAFETY: 64 bytes, aligned to 64, zero at first, used as a node alone, and there while the module is loaded.
        unsafe { &*lw_k_take_node().cast() }
    }

    unsafe fn release_node(node: &'static QNode<Self>) {
        // SAFETY: it came from `acquire_node`, and is given back once, says the caller.
        unsafe { lw_k_return_node(node.as_ptr().cast()) }
    }

    unsafe fn visible_readers() -> &'static [AtomicUsize] {
        &TABLE.0
    }

    #[inline]
    fn find(words: &[AtomicUsize], value: usize) -> Option<usize> {
        if FAULT == BLIND || Self::is_broken_twin(1) {
            return None;
        }
        words.iter().position(|word| word.load(Ordering::SeqCst) == value)
    }

    /// None: a row belongs to a thread, and the kernel has no room for a pointer of ours in a task.
    unsafe fn reader_row() -> Option<&'static ReaderRow<Self>> {
        None
    }
}
