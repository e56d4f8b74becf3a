//! Everything that an algorithm asks of the world, as one trait: [`Machine`].
//!
//! A lock, or a strategy of reclamation, is written once, generic over [`Machine`]. The same code then runs on every
//! machine:
//!
//! | machine | what it is for | where it is |
//! |---|---|---|
//! | [`Native`] | production, on Linux | [`native`] |
//! | loom | every interleaving of a small client under the C11 memory model | `crates/loom` |
//! | simulated | costs: caches, NUMA nodes and a scheduler, in virtual time | the simulator's crate |
//! | exploring | schedules: millions of random interleavings of a larger client | the simulator's crate |
//!
//! On [`Native`], every small operation is one or two instructions that the compiler inlines, so a lock compiles to
//! what hand-written code would. Each operation is chosen so that all machines can implement it faithfully. An
//! algorithm that needs more than this trait does not run on them.
//!
//! # What a newcomer needs to know
//!
//! - **Words.** Memory that threads share consists of the machine's words ([`Word`], [`Arith`]), with the operations and
//!   orderings of the core atomics. On [`Native`] they *are* the core atomics.
//! - **Waiting** has three forms. A thread spins on one word ([`spin_until`](Machine::spin_until),
//!   [`spin_for`](Machine::spin_for)); it pauses between two attempts ([`pause`](Machine::pause),
//!   [`yield_now`](Machine::yield_now), [`doze`](Machine::doze)); or it sleeps until another thread wakes it, as on a
//!   futex ([`wait`](Machine::wait), [`wake`](Machine::wake)).
//! - **Asymmetric fences.** In a handshake of the kind of Dekker's, two threads each store one word and then load the
//!   other's, and each needs a full fence in between. If one side is hot and the other rare, the rare side can pay for
//!   both:
//!
//!   | the hot side | the rare side | what it buys |
//!   |---|---|---|
//!   | [`light_fence`](Machine::light_fence): a compiler barrier | [`heavy_fence`](Machine::heavy_fence): the system call `membarrier` | a reader announces itself with a plain store |
//!
//!   [`full_fence`](Machine::full_fence) is the ordinary, symmetric one.
//! - **What threads share** beside the locks themselves, once for the process: queue nodes ([`QNode`]), rows of visible
//!   readers ([`ReaderRow`]), and records for reclamation ([`Records`], a trait of its own).
//!
//! A new machine implements [`Machine`], and [`Records`] if memory is to be reclaimed on it. The methods with a default
//! body can wait.

use core::sync::atomic::Ordering;

mod abort;
#[cfg(test)]
pub(crate) mod alone;
pub mod group;
pub mod native;
mod offers;
mod qnode;
pub mod record;
mod row;
pub(crate) mod shared;
mod time;
mod word;

pub(crate) use abort::{end, or_abort};
pub use group::Group;
pub use native::Native;
pub(crate) use offers::{Nap, Offers};
pub use qnode::{QNode, node_view};
pub use record::{Record, Records};
pub use row::{ROW_COUNTS, ROW_SLOTS, ReaderRow};
pub use time::{Clock, Deadline};
pub(crate) use time::{MICRO, micros};
pub use word::{Arith, Word};

/// Why [`Machine::wait`] returned.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The thread was woken or interrupted, or the word did not hold the expected value: look at the word again.
    Woken,
    /// The deadline has passed, and no [`wake`](Machine::wake) has counted this thread.
    TimedOut,
}

/// What an algorithm asks of the world. The [module documentation](self) introduces the parts.
///
/// Functions have no `self`: a machine is a type. A machine that needs state (loom, the simulator) finds it through the
/// running thread.
///
/// # Safety
///
/// Lock code builds memory safety on these operations. An implementation must
///
/// - give words the semantics of C11 atomics;
/// - make the asymmetric pairs hold as documented;
/// - never return the same [`thread_id`](Machine::thread_id) to two live threads;
/// - keep a node from [`acquire_node`](Machine::acquire_node) valid until it is released.
pub unsafe trait Machine: Copy + core::fmt::Debug + Send + Sync + 'static {
    // ----- Words.

    /// An 8-bit word.
    type U8: Word<u8>;
    /// A 32-bit word; the only size that a thread can sleep on.
    type U32: Arith<u32>;
    /// A 64-bit word.
    type U64: Arith<u64>;
    /// A pointer-sized word.
    type Usize: Arith<usize>;
    /// A word that holds a pointer.
    type Ptr<T: Send + Sync + 'static>: Word<*mut T>;

    // ----- Waiting without sleep.

    /// Spins until `done` returns `true` of the word's value, and returns that value. The load that read it has ordering
    /// `order`. A thread that spins for long may yield its processor, and then sleep for a bounded time between two
    /// looks; no other thread has to wake it.
    fn spin_until<T: Copy, W: Word<T>>(word: &W, order: Ordering, done: impl FnMut(T) -> bool) -> T;

    /// Like [`spin_until`](Machine::spin_until), but gives up after about `spins` looks at the word, and then returns
    /// `None`.
    fn spin_for<T: Copy, W: Word<T>>(
        word: &W,
        order: Ordering,
        spins: u32,
        done: impl FnMut(T) -> bool,
    ) -> Option<T>;

    /// A pause between two attempts that are not a spin on one word (backoff): `spins` times the processor's spin hint.
    fn pause(spins: u32);

    /// How many spin hints take about `nanos` nanoseconds, at least 1.
    fn hints(nanos: u32) -> u32;

    /// How many of `looks` looks an algorithm takes before its next step (joining the queue, going to sleep): all of
    /// them, except on a machine that explores interleavings, where more looks only mean more work.
    #[inline(always)]
    fn patience(looks: u32) -> u32 {
        looks
    }

    /// Gives the processor to another thread that can run.
    fn yield_now();

    /// Sleeps for about `nanos` nanoseconds; may return at once. For a waiter that no other thread wakes, because the
    /// threads that it waits for must not spend time on looking for waiters.
    fn doze(nanos: u64) {
        let _ = nanos;
        Self::yield_now();
    }

    /// Sleeps like [`doze`](Machine::doze), and also wakes as from [`wait`](Machine::wait).
    fn doze_at(word: &Self::U32, expected: u32, nanos: u64) {
        Self::wait(word, expected, Some(Deadline::after::<Self>(nanos)));
    }

    /// Whether the process has a single processor, as far as the caller knows. Then no other thread runs while the caller spins, so
    /// every spin is in vain.
    fn has_one_processor() -> bool {
        false
    }

    // ----- Sleeping and waking.

    /// Sleeps while `word` holds `expected`, until [`wake`](Machine::wake) or the deadline. The comparison and going to
    /// sleep are one atomic step with respect to `wake` (a futex). May return spuriously.
    ///
    /// A thread that `wake` has counted gets [`Wait::Woken`], even if its deadline passes before it runs. So a waiter that
    /// gets [`Wait::TimedOut`] has used up no wakeup, and may leave without waking another waiter.
    fn wait(word: &Self::U32, expected: u32, deadline: Option<Deadline>) -> Wait;

    /// Wakes up to `count` threads that sleep on `word`, the longest sleeper first; returns how many.
    ///
    /// The memory behind `word` may already have been freed, because a mutex may be destroyed as soon as it is unlocked.
    /// So an implementation uses the address alone.
    fn wake(word: *const Self::U32, count: u32) -> usize;

    /// Whether the caller has a real-time priority: a [`wake`](Machine::wake) prefers it to threads that have slept longer.
    fn is_real_time() -> bool {
        false
    }

    /// If `*from == expected`, moves the longest sleeper on `from` to `to` without waking it; the next
    /// [`wake`](Machine::wake) of `to` wakes it. A machine that cannot move a sleeper wakes it now. Like `wake`, this
    /// uses the address of `from` alone.
    fn requeue(from: *const Self::U32, expected: u32, to: &Self::U32) {
        let _ = (expected, to);
        Self::wake(from, 1);
    }

    /// The deadline, about `nanos` nanoseconds from now, of a sleep that another thread should end, in case that thread
    /// is suspended. `None`, and so never, on a machine that looks for lost wakeups: a sleep with a deadline hides them.
    fn safety_timeout(nanos: u64) -> Option<Deadline> {
        Some(Deadline::after::<Self>(nanos))
    }

    // ----- Fences.

    /// The hot side of the asymmetric fence: orders the caller's earlier stores before its later loads, *as seen by a
    /// thread that issues a* [`heavy_fence`](Machine::heavy_fence).
    fn light_fence();

    /// The rare side: a full fence on every thread of the process. It costs microseconds.
    ///
    /// Returns `false` if the operating system refuses it. The caller must not rely on the fence then: it may only sleep
    /// for a bounded time.
    #[must_use]
    fn heavy_fence() -> bool;

    /// Readies the asymmetric fences, if that is still to be done. Returns whether
    /// [`lightest_fence`](Machine::lightest_fence) may be used from now on.
    fn prepare_fences() -> bool {
        true
    }

    /// [`light_fence`](Machine::light_fence) for a thread that knows that [`prepare_fences`](Machine::prepare_fences)
    /// has returned `true`.
    #[inline(always)]
    fn lightest_fence() {
        Self::light_fence();
    }

    /// A full fence, for the caller alone. It orders what the caller has done before with what it does then, in one
    /// order with all other full fences and the heavy ones. Asymmetric pairs are compared with it; and it serves a thread
    /// that needs a fence so rarely that no thread should pay for the heavy side.
    fn full_fence();

    // ----- The cache.

    /// Asks for the cache line at an address that the caller will write to soon. The address may be of freed memory. A machine
    /// on which that changes nothing does not compute the address.
    #[inline(always)]
    fn prefetch<T>(place: impl FnOnce() -> *const T) {
        let _ = place;
    }

    // ----- The fast path of a lock.

    /// An exchange on a lock word, with ordering acquire. On a thread that is the only one of its process, a machine may
    /// do it without an atomic instruction.
    fn acquire_swap(word: &Self::U32, value: u32) -> u32;

    /// Changes a lock word from 0 to `value`, with ordering acquire. Returns `false`, and changes nothing, if the word is
    /// not 0. On a thread that is the only one of its process, a machine may do it without an atomic instruction.
    #[inline(always)]
    fn acquire_zero(word: &Self::U32, value: u32) -> bool {
        word.compare_exchange(0, value, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Stores 0 in `word`, with ordering release, if `queue` is null or the word holds `expected`: the cheapest unlock that
    /// can fail. Otherwise it returns `false` and changes nothing. Other values of the word must matter only to a thread in the
    /// queue, so that a machine may look at the word alone.
    ///
    /// The queue is looked at first, because an Intel Xeon (2023) loads a word late if a locked instruction has just written it.
    /// Another word of the line comes 4 ns earlier, a quarter of an uncontended pair.
    ///
    /// Only the holder of the lock may call it. It may be *torn*: a value that another thread writes between the look and the
    /// store is overwritten. A thread that still sees its value a microsecond later can rely on it, unless the holder was
    /// interrupted between the two instructions; so it may only sleep until [`torn_timeout`](Machine::torn_timeout).
    #[inline(always)]
    fn release_if(queue: &Self::Ptr<QNode<Self>>, word: &Self::U32, expected: u32) -> bool {
        let held = queue.load(Ordering::Relaxed).is_null() || word.load(Ordering::Relaxed) == expected;
        if held {
            word.store(0, Ordering::Release);
        }
        held
    }

    /// The deadline, about `nanos` nanoseconds from now, of a sleep that may miss its wakeup because a
    /// [`release_if`](Machine::release_if) was torn. `None` on a machine where it is one atomic step. On machines that look for
    /// lost wakeups it passes only if a release of the word was torn, so that a wakeup which is lost by another cause shows.
    fn torn_timeout(nanos: u64) -> Option<Deadline> {
        Some(Deadline::after::<Self>(nanos))
    }

    // ----- Time.

    /// Nanoseconds on `clock`.
    fn now(clock: Clock) -> u64;

    // ----- Which thread, which processor, which NUMA node.

    /// A number that no other live thread has; never 0.
    fn thread_id() -> usize;

    /// What stands for the object at `address` where an algorithm hashes the address, or publishes it to be compared. It
    /// is the address itself, unless the machine has names that are the same in every run. It is distinct for distinct
    /// addresses, has the same low six bits as the address, and is never 0.
    #[inline(always)]
    fn identity(address: usize) -> usize {
        address
    }

    /// The processor that the caller runs on, right now. On a machine without processors, each thread has one to itself.
    fn cpu() -> u32 {
        Self::thread_id() as u32
    }

    /// How many processors there can be: [`cpu`](Machine::cpu) is below this number, which never changes.
    fn cpus() -> u32 {
        u32::MAX
    }

    /// The NUMA node that the caller runs on, right now.
    fn numa_node() -> u32;

    /// How many NUMA nodes the machine has.
    fn numa_nodes() -> u32;

    /// How far two NUMA nodes are apart: 0 for the same node, 1 for the nearest others, and so on.
    fn numa_hops(from: u32, to: u32) -> u32 {
        u32::from(from != to)
    }

    // ----- Queue nodes.

    /// A queue node from type-stable memory: memory that is only ever used again as a queue node.
    fn acquire_node() -> &'static QNode<Self>;

    /// Gives a node back.
    ///
    /// # Safety
    ///
    /// The node came from [`acquire_node`](Machine::acquire_node), no other thread will write to it, and it is released
    /// once.
    unsafe fn release_node(node: &'static QNode<Self>);

    /// Notes that a waiter uses a queue node that is not from the pool: on its stack, or in the waiting array. For a
    /// machine that counts what waiters occupy.
    #[inline(always)]
    fn note_node() {}

    /// The process's one array of places to wait at, for locks that have room for a number but not for a pointer, or
    /// that use no node at all. It holds a power of two of nodes, all fields zero at first, which locks of one kind
    /// share. On a machine without such an array it is empty, and a thread that finds no place waits at the lock.
    ///
    /// # Safety
    ///
    /// Memory safety rests on these words: the caller writes to them only as the algorithm does that they are for.
    #[inline]
    unsafe fn waiting_array() -> &'static [QNode<Self>] {
        &[]
    }

    // ----- Visible readers (BRAVO).

    /// The process's one table of visible readers (BRAVO, listing 1, `VisibleReaders`): a power of two of slots, each of
    /// which is 0 or the address of a lock.
    ///
    /// # Safety
    ///
    /// Memory safety rests on these words: the caller writes to them only as the algorithm does that they are for.
    unsafe fn visible_readers() -> &'static [Self::Usize];

    /// The index of the first of `words` that holds `value`. Each word is read as with a sequentially consistent load; a
    /// machine may read several at once.
    #[inline]
    fn find(words: &[Self::Usize], value: usize) -> Option<usize> {
        words.iter().position(|word| word.load(Ordering::SeqCst) == value)
    }

    /// The calling thread's own row of slots (BRAVO-2D). A machine without rows has none; a lock that wants a row then
    /// does without it, and is slower.
    ///
    /// # Safety
    ///
    /// Memory safety rests on these words: the caller writes to them only as the algorithm does that they are for.
    #[inline]
    unsafe fn reader_row() -> Option<&'static ReaderRow<Self>> {
        None
    }

    /// The newest group of rows; all others are linked behind it. A row's group is linked, and says that the row is taken,
    /// before the owner gets the row and until the row is empty and the owner has exited.
    ///
    /// # Safety
    ///
    /// Memory safety rests on these words: the caller writes to them only as the algorithm does that they are for.
    unsafe fn reader_rows() -> Option<&'static Group<Self, ReaderRow<Self>>> {
        None
    }
}
