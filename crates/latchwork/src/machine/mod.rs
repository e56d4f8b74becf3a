//! Everything an algorithm asks of the world, as one trait.
//!
//! A lock is written once, generic over [`Machine`], and runs on each machine that exists:
//! [`Native`] (Linux, production), loom (every interleaving of a small client, in the tests) and
//! a simulated NUMA machine. The operations are chosen so that each of them can be implemented
//! faithfully on all three; an algorithm that needs more than this trait is not portable to them.
//!
//! # Orderings
//!
//! Word operations take the C11 orderings. Beyond them there is one *asymmetric* pair, for
//! Dekker-style handshakes in which one side is hot and the other is about to sleep anyway:
//!
//! | hot side | cold side | what it buys |
//! |---|---|---|
//! | [`Machine::light_fence`] (a compiler barrier) | [`Machine::heavy_fence`] (`membarrier`) | publication with a plain store |
//! | [`Machine::release_dec`] (a decrement without `lock`) | [`Machine::heavy_fence`] | unlock without an atomic read-modify-write |

use core::sync::atomic::Ordering;

pub mod group;
pub mod native;
mod offers;
mod qnode;
pub mod record;
mod row;
pub(crate) mod shared;

pub use group::Group;
pub use native::Native;
pub(crate) use offers::Offers;
pub use qnode::{QNode, node_view};
pub use record::{Record, Records};
pub use row::{ROW_COUNTS, ROW_SLOTS, ReaderRow};

/// A shared memory cell of one of the machine's word sizes.
pub trait Word<T: Copy>: Sized + Send + Sync + 'static {
    /// A new word holding `value`.
    fn new(value: T) -> Self;
    /// Atomic load.
    fn load(&self, order: Ordering) -> T;
    /// Atomic store.
    fn store(&self, value: T, order: Ordering);
    /// Atomic exchange; returns the previous value.
    fn swap(&self, value: T, order: Ordering) -> T;
    /// Atomic compare-and-exchange: `Ok(previous)` if it was `current` and is now `new`.
    fn compare_exchange(&self, current: T, new: T, ok: Ordering, err: Ordering) -> Result<T, T>;
}

/// A [`Word`] with arithmetic and bitwise read-modify-writes. Each returns the previous value.
pub trait Arith<T: Copy>: Word<T> {
    /// Wrapping atomic addition.
    fn fetch_add(&self, value: T, order: Ordering) -> T;
    /// Wrapping atomic subtraction.
    fn fetch_sub(&self, value: T, order: Ordering) -> T;
    /// Atomic bitwise or.
    fn fetch_or(&self, value: T, order: Ordering) -> T;
    /// Atomic bitwise and.
    fn fetch_and(&self, value: T, order: Ordering) -> T;
}

/// Which clock a [`Deadline`] is read on.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Never jumps (`CLOCK_MONOTONIC`).
    Monotonic,
    /// Wall time (`CLOCK_REALTIME`); a deadline on it moves when the clock is set.
    Realtime,
}

/// An absolute point in time after which a waiter gives up.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// The clock that `nanos` is read on.
    pub clock: Clock,
    /// Nanoseconds since that clock's epoch.
    pub nanos: u64,
}

impl Deadline {
    /// `nanos` nanoseconds from now on `M`'s monotonic clock.
    pub fn after<M: Machine>(nanos: u64) -> Self {
        Deadline { clock: Clock::Monotonic, nanos: M::now(Clock::Monotonic).saturating_add(nanos) }
    }

    /// Whether the deadline has passed on machine `M`.
    pub fn passed<M: Machine>(&self) -> bool {
        self.left::<M>() == 0
    }

    /// Nanoseconds until the deadline on machine `M`; 0 once it has passed.
    pub fn left<M: Machine>(&self) -> u64 {
        self.nanos.saturating_sub(M::now(self.clock))
    }
}

/// Binary logarithm of nanoseconds in a microsecond, nearly.
pub(crate) const MICRO: u32 = 10;

/// Now, in such microseconds (of 1024 ns); it wraps after 73 minutes, and is compared by difference.
pub(crate) fn micros<M: Machine>() -> u32 {
    (M::now(Clock::Monotonic) >> MICRO) as u32
}

/// Why [`Machine::wait`] returned.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Woken, interrupted, or the word did not hold the expected value: look again.
    Woken,
    /// The deadline passed.
    TimedOut,
}

/// What an algorithm asks of the world.
///
/// Functions have no `self`: a machine is a type, and one that needs state (loom, the simulator)
/// finds it through the running thread.
///
/// # Safety
///
/// Lock code builds memory safety on these operations: an implementation must give words C11
/// semantics, make the asymmetric pairs hold as documented, never return the same
/// [`thread_id`](Machine::thread_id) to two live threads, and keep nodes handed out by
/// [`acquire_node`](Machine::acquire_node) valid until they are released.
pub unsafe trait Machine: Copy + core::fmt::Debug + Send + Sync + 'static {
    /// An 8-bit word.
    type U8: Word<u8>;
    /// A 32-bit word; the only size that can be waited on.
    type U32: Arith<u32>;
    /// A 64-bit word.
    type U64: Arith<u64>;
    /// A pointer-sized word.
    type Usize: Arith<usize>;
    /// A word that holds a pointer.
    type Ptr<T: Send + Sync + 'static>: Word<*mut T>;

    /// Spins until `done(word)`, and returns the value that satisfied it. The load that does has
    /// ordering `order`. A waiter that spins for long may yield its processor, and then sleep for a
    /// bounded time between two looks: nobody has to wake it.
    fn spin_until<T: Copy, W: Word<T>>(word: &W, order: Ordering, done: impl FnMut(T) -> bool) -> T;

    /// Like [`spin_until`](Machine::spin_until), but gives up after about `spins` looks at the
    /// word. Returns `None` when it gave up.
    fn spin_for<T: Copy, W: Word<T>>(
        word: &W,
        order: Ordering,
        spins: u32,
        done: impl FnMut(T) -> bool,
    ) -> Option<T>;

    /// A pause between two attempts that are not a spin on one word (backoff): `spins` units of
    /// the processor's spin hint.
    fn pause(spins: u32);

    /// How many of `looks` looks an algorithm takes before its next step (going to the queue, going
    /// to sleep). All of them, except on a machine that explores every interleaving.
    #[inline(always)]
    fn patience(looks: u32) -> u32 {
        looks
    }

    /// Gives the processor to another thread that can run.
    fn yield_now();

    /// Sleeps while `word` holds `expected`, until [`wake`](Machine::wake) or the deadline. The
    /// comparison and going to sleep are one atomic step with respect to `wake` (a futex). May
    /// return spuriously.
    fn wait(word: &Self::U32, expected: u32, deadline: Option<Deadline>) -> Wait;

    /// Wakes up to `count` threads sleeping on `word`, longest sleeper first; returns how many.
    /// The memory behind `word` may already have been freed (a mutex may be destroyed as soon as
    /// it is unlocked): an implementation must only use the address.
    fn wake(word: *const Self::U32, count: u32) -> usize;

    /// If `*from == expected`, moves the longest sleeper on `from` to `to`, without waking it: the
    /// next [`wake`](Machine::wake) of `to` does. A machine that cannot do so wakes it now. Like
    /// `wake`, this only uses the address of `from`.
    fn requeue(from: *const Self::U32, expected: u32, to: &Self::U32) {
        let _ = (expected, to);
        Self::wake(from, 1);
    }

    /// The hot side of the asymmetric fence: orders earlier stores before later loads *with
    /// respect to a* [`heavy_fence`](Machine::heavy_fence) on another thread.
    fn light_fence();

    /// The cold side: a full fence on every thread of the process (costs microseconds).
    ///
    /// Returns `false` if the operating system refused it, in which case the caller must not rely
    /// on it: it may only sleep for a bounded time.
    #[must_use]
    fn heavy_fence() -> bool;

    /// Readies the asymmetric fences, if that is still to be done. Whether
    /// [`lightest_fence`](Machine::lightest_fence) may be used from now on.
    fn prepare_fences() -> bool {
        true
    }

    /// [`light_fence`](Machine::light_fence) for who knows that
    /// [`prepare_fences`](Machine::prepare_fences) has said `true`.
    #[inline(always)]
    fn lightest_fence() {
        Self::light_fence();
    }

    /// A full fence, for the caller alone: orders what it has done before with what it does then, in one order
    /// with all other full fences and the heavy ones. What an asymmetric pair is to be compared with, and for who
    /// needs one so rarely that nobody should pay for the heavy side.
    fn full_fence();

    /// Exchange on a lock word by a thread that may be the only one of its process: a machine may
    /// then do without an atomic instruction. Ordering: acquire.
    fn acquire_swap(word: &Self::U32, value: u32) -> u32;

    /// Subtracts one from `word` with release ordering and returns whether the result is negative
    /// as a signed number (its top bit is set), as the cheapest unlock the machine has.
    ///
    /// Only the holder of the lock may call it. It is **not** atomic with respect to concurrent
    /// writers of the word: a bit that another thread sets meanwhile may be lost. It is indivisible
    /// with respect to [`heavy_fence`](Machine::heavy_fence): if a thread sets a bit, issues a heavy
    /// fence that returns `true`, and then still sees its bit, every decrement that has not taken
    /// effect by then will see the bit too.
    ///
    /// The word is not touched after the decrement took effect, so the memory may be freed by
    /// whoever gets the lock next.
    fn release_dec(word: &Self::U32) -> bool;

    /// Nanoseconds on `clock`.
    fn now(clock: Clock) -> u64;

    /// A number that no other live thread has; never 0.
    fn thread_id() -> usize;

    /// What stands for the object at `address` where an algorithm hashes it, or publishes it to be
    /// compared: the address, unless the machine has names that are the same in every run. Distinct
    /// for distinct addresses, with the same low six bits, and never 0.
    #[inline(always)]
    fn identity(address: usize) -> usize {
        address
    }

    /// The NUMA node that the caller runs on, right now.
    fn numa_node() -> u32;

    /// How many NUMA nodes the machine has; with one there is nothing to group.
    fn numa_nodes() -> u32;

    /// The processor that the caller runs on, right now. A machine that has none of its own has one for
    /// each thread.
    fn cpu() -> u32 {
        Self::thread_id() as u32
    }

    /// How many processors there can be: [`cpu`](Machine::cpu) is below it. Always the same.
    fn cpus() -> u32 {
        u32::MAX
    }

    /// How far two NUMA nodes are apart: 0 is the same node, 1 the nearest others, and so on.
    fn numa_hops(from: u32, to: u32) -> u32 {
        u32::from(from != to)
    }

    /// A queue node from type-stable memory: memory that is only ever reused as a queue node.
    fn acquire_node() -> &'static QNode<Self>;

    /// Gives a node back.
    ///
    /// # Safety
    ///
    /// The node came from [`acquire_node`](Machine::acquire_node), the caller is the only one that
    /// will still write to it, and it is not released twice.
    unsafe fn release_node(node: &'static QNode<Self>);

    /// A waiter uses a queue node that is not of the pool: on its stack, or in the waiting array. For a machine
    /// that counts what waiters occupy.
    #[inline(always)]
    fn note_node() {}

    /// The process's one table of visible readers (BRAVO, listing 1, `VisibleReaders`): a power of
    /// two of slots, each null (0) or the address of a lock.
    ///
    /// # Safety
    ///
    /// Memory safety rests on these words: the caller writes to them only as the algorithm that they are for does.
    unsafe fn visible_readers() -> &'static [Self::Usize];

    /// The index of the first of `words` that holds `value`. Each is read as with a sequentially
    /// consistent load; a machine may read several at once.
    #[inline]
    fn find(words: &[Self::Usize], value: usize) -> Option<usize> {
        words.iter().position(|word| word.load(Ordering::SeqCst) == value)
    }

    /// The process's one array of places to wait at, for locks that have room for a number and none for
    /// a pointer, or no node at all: a power of two of nodes, all fields zero at first, which locks of
    /// one kind share. On a machine without one it is empty, and who finds no place waits at the lock.
    ///
    /// # Safety
    ///
    /// Memory safety rests on these words: the caller writes to them only as the algorithm that they are for does.
    #[inline]
    unsafe fn waiting_array() -> &'static [QNode<Self>] {
        &[]
    }

    /// The calling thread's own row of slots. A machine without rows has none, and a lock that
    /// wants one does without what it is for.
    ///
    /// # Safety
    ///
    /// Memory safety rests on these words: the caller writes to them only as the algorithm that they are for does.
    #[inline]
    unsafe fn reader_row() -> Option<&'static ReaderRow<Self>> {
        None
    }

    /// The newest row; all others are linked behind it. A row is linked before its owner gets it.
    ///
    /// # Safety
    ///
    /// Memory safety rests on these words: the caller writes to them only as the algorithm that they are for does.
    unsafe fn reader_rows() -> Option<&'static ReaderRow<Self>> {
        None
    }

    /// When a sleep ends that another thread should end, should that thread be suspended: about `nanos` nanoseconds
    /// from now. `None`, and so never, on a machine that looks for lost wakeups: such sleeps hide them.
    fn safety_timeout(nanos: u64) -> Option<Deadline> {
        Some(Deadline::after::<Self>(nanos))
    }

    /// Sleeps for about `nanos` nanoseconds: for a waiter that nobody wakes, because those it waits
    /// for are not to look for waiters. May return at once.
    fn doze(nanos: u64) {
        let _ = nanos;
        Self::yield_now();
    }
}
