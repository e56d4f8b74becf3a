//! The machine that explores: [`Machine`] over loom 0.7.
//!
//! A [`Model`] runs a small client under every interleaving (up to a number of preemptions) that
//! loom's C11 memory model allows. All of the state is made anew for each execution and belongs to
//! the OS thread that runs the model; loom's own threads are coroutines on it.
//!
//! # What stands for what
//!
//! - **The asymmetric fence.** Each thread has a mutex. A light fence takes and releases the thread's own, and
//!   `heavy_fence` takes and releases that of every thread in turn, as `membarrier` interrupts every processor in turn. So
//!   the heavy fence comes before or after each light fence of each thread, and orders memory in that direction. Two light
//!   fences are not ordered with each other.
//!   (`membarrier` is a full fence on the interrupted processors and, at both ends, on the caller.)
//! - **`wait` and `wake`** are a futex: a queue for each address, behind its lock; the comparison
//!   and going to sleep are one step with respect to wakers. Each sleeper is woken by itself, first
//!   in, first out, so a wake that the wrong sleeper consumed is lost, and loom reports the
//!   deadlock. There are no spurious wake-ups: they would hide lost ones.
//! - **A release of a lock** ([`Machine::release_if`]) is the look at the queue, perhaps a look at the word, and the store. It is torn
//!   for a waiter that goes to sleep between the look and the store: that sleep ends by itself, at any time. No other sleep does,
//!   so a wakeup that is lost by another cause shows.
//! - **Time** stands still until the model's clock thread lets it jump past every deadline at once,
//!   at a point that loom chooses: every deadline passes early, late and in between.
//! - **Rows of slots** are made when a thread first asks for one, each in a group of its own, and linked, taken and left with
//!   the same instructions as in production.
//! - **Queue nodes** are used again by the thread that released them, last in, first out. A node is reported if another thread may
//!   write to it after its release, or has written to it and is not ordered before that. So is a leak. (In a model with a mistake
//!   the release is not checked: what comes of the mistake must show.)
//! - **Identities** do not depend on the run. What the threads share has the same identities in every execution. Other lines of
//!   memory have numbers, in the order in which an execution first asks for their identity.

use super::words::{Cell, UsizeCell};
use execution::Sleeper;
use latchwork::machine::{Clock, Deadline, Group, Machine, QNode, ReaderRow, Wait, Word};
use loom::sync::atomic::{self, Ordering, fence};
use loom::thread;
use std::cell::Cell as StdCell;
use std::rc::Rc;

mod execution;
mod model;
mod names;

pub use execution::{exit_thread, stay, thread_number};
pub(crate) use execution::{in_model, is_blind, mistake, owe_fence, shared_state, state, take_fence_owed};
pub use model::{Grouping, Mistake, Model, Outcome, deep, fails, one_fewer_daily, thorough};

/// Nodes in the waiting array.
const WAITING_ARRAY: usize = 4;

/// Turns of spin loops that do not yield, unless a model says another number, and that are explored, per thread and execution.
const EAGER_SPINS: u32 = 2;
const SPINS: u32 = 6;

/// Before the jump, and the deadline that passes with it.
const EARLY: u64 = 1_000_000;
const LATE: u64 = 10_000_000_000;
/// A deadline that has not passed before the clock thread has let time jump.
pub const DEADLINE: Deadline = Deadline { clock: Clock::Monotonic, nanos: LATE };
/// The deadline of a sleep that ends by itself only if a release of its word was torn, so that other lost wakeups show.
const WHEN_TORN: Deadline = Deadline { clock: Clock::Monotonic, nanos: u64::MAX };

/// The machine. See the [module documentation](self).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Loom;

// SAFETY: words are loom's; the other promises are argued in the module documentation.
unsafe impl Machine for Loom {
    type U8 = Cell<atomic::AtomicU8>;
    type U32 = Cell<atomic::AtomicU32>;
    type U64 = Cell<atomic::AtomicU64>;
    type Usize = UsizeCell;
    type Ptr<T: Send + Sync + 'static> = Cell<atomic::AtomicPtr<T>>;

    #[track_caller]
    fn spin_until<T: Copy, W: Word<T>>(word: &W, order: Ordering, mut done: impl FnMut(T) -> bool) -> T {
        loop {
            let value = word.load(order);
            if done(value) {
                return value;
            }
            spin(false);
        }
    }

    /// One look: a second would only add executions in which the waiter was luckier. In a model of late looks, others run first.
    #[track_caller]
    fn spin_for<T: Copy, W: Word<T>>(
        word: &W,
        order: Ordering,
        _spins: u32,
        mut done: impl FnMut(T) -> bool,
    ) -> Option<T> {
        if state(|s| s.late_looks) {
            thread::yield_now();
        }
        let value = word.load(order);
        done(value).then_some(value)
    }

    fn pause(_spins: u32) {
        spin(true);
    }

    /// The steps of a native machine. The release is torn for a waiter that went to sleep after the look. So it is for any if the
    /// look found an old value.
    #[track_caller]
    fn release_if(queue: &Self::Ptr<QNode<Self>>, word: &Self::U32, expected: u32) -> bool {
        let (whole, blind) = state(|s| (s.whole_release, s.mistake == Mistake::BlindRelease));
        if whole {
            return word.compare_exchange(expected, 0, Ordering::Release, Ordering::Relaxed).is_ok();
        }
        let is_empty = queue.load(Ordering::Relaxed).is_null();
        let mut is_old = is_empty && queue.newest() != 0;
        let mut looked = state(|s| s.look());
        if !is_empty && !blind {
            if word.load(Ordering::Relaxed) != expected {
                return false;
            }
            is_old = word.newest() != u64::from(expected);
            looked = state(|s| s.look());
        }
        word.store(0, Ordering::Release);
        shared_state().tear(std::ptr::from_ref(word).addr(), if is_old { 0 } else { looked });
        true
    }

    fn doze_at(word: &Self::U32, expected: u32, nanos: u64) {
        if state(|s| s.naps_last) {
            Self::wait(word, expected, None);
        } else {
            Self::doze(nanos);
        }
    }

    fn torn_timeout(_nanos: u64) -> Option<Deadline> {
        let ends = state(|s| !s.whole_release && s.mistake != Mistake::NoTornTimeout);
        ends.then_some(WHEN_TORN)
    }

    fn hints(_nanos: u32) -> u32 {
        1
    }

    /// The algorithms' own loops around `pause` are cut short like `spin_for`.
    fn patience(_looks: u32) -> u32 {
        1
    }

    fn yield_now() {
        spin(true);
    }

    #[track_caller]
    fn wait(word: &Self::U32, expected: u32, deadline: Option<Deadline>) -> Wait {
        let state = shared_state();
        let bucket = state.bucket(std::ptr::from_ref(word).addr());
        fence(Ordering::SeqCst);
        let mut sleepers = bucket.lock().unwrap();
        let is_expected = word.load(Ordering::Relaxed) == expected;
        if !is_expected && state.mistake != Mistake::SleepsUnseen {
            return Wait::Woken;
        }
        let timed = deadline.is_some_and(|deadline| deadline.nanos <= LATE);
        if timed && (state.jumped.get() || deadline.is_some_and(|deadline| deadline.nanos <= EARLY)) {
            drop(sleepers);
            spin(false);
            return Wait::TimedOut;
        }
        let until_torn = deadline == Some(WHEN_TORN);
        if until_torn && is_expected && word.newest() != u64::from(expected) {
            // A torn release, which this thread does not see yet.
            drop(sleepers);
            spin(false);
            return Wait::TimedOut;
        }
        let is_real_time = Self::is_real_time();
        let me = Sleeper { thread: thread::current(), timed, is_real_time, outcome: StdCell::new(None) };
        let me = Rc::new(me);
        if until_torn {
            let (at, now) = (std::ptr::from_ref(word).addr(), state.look());
            state.until_torn.borrow_mut().push((at, now, me.clone()));
        }
        let overtaken = sleepers.iter().position(|sleeper| is_real_time && !sleeper.is_real_time);
        let place = overtaken.unwrap_or(sleepers.len());
        sleepers.insert(place, me.clone());
        drop(sleepers);
        loop {
            if let Some(outcome) = me.outcome.get() {
                return outcome;
            }
            thread::park();
        }
    }

    #[track_caller]
    fn wake(word: *const Self::U32, count: u32) -> usize {
        if mistake() == Mistake::DroppedWake {
            return 0;
        }
        let bucket = shared_state().bucket(word.addr());
        fence(Ordering::SeqCst);
        let mut sleepers = bucket.lock().unwrap();
        let count = sleepers.len().min(count as usize);
        sleepers.drain(..count).for_each(|sleeper| sleeper.end(Wait::Woken));
        count
    }

    #[expect(
        clippy::not_unsafe_ptr_arg_deref,
        reason = "it looks at the word only while a thread sleeps there"
    )]
    #[track_caller]
    fn requeue(from: *const Self::U32, expected: u32, to: &Self::U32) {
        let state = shared_state();
        let source = state.bucket(from.addr());
        let target = state.bucket(std::ptr::from_ref(to).addr());
        fence(Ordering::SeqCst);
        // Always in this order, and no other operation takes two.
        let (mut source, mut target) = (source.lock().unwrap(), target.lock().unwrap());
        // SAFETY: a sleeper is in the middle of a call on the word, so the word is there. Without
        // one it may be gone, and there is nothing to move.
        if !source.is_empty() && unsafe { &*from }.load(Ordering::Relaxed) == expected {
            target.extend(source.pop_front());
        }
    }

    fn is_real_time() -> bool {
        state(|s| s.real_time) == Some(thread_number())
    }

    #[track_caller]
    fn light_fence() {
        if mistake() == Mistake::NoLightFence {
            return;
        }
        drop(shared_state().instructions[thread_number()].lock());
        state(|s| s.fenced.set(Some(thread_number())));
    }

    #[track_caller]
    fn heavy_fence() -> bool {
        let state = shared_state();
        if let Some(left) = state.refusals.get().checked_sub(1) {
            state.refusals.set(left);
            return false;
        }
        if state.mistake == Mistake::NoHeavyFence {
            return true;
        }
        fence(Ordering::SeqCst);
        for instruction in &state.instructions {
            drop(instruction.lock());
        }
        fence(Ordering::SeqCst);
        true
    }

    #[track_caller]
    fn full_fence() {
        if mistake() != Mistake::NoFullFence {
            fence(Ordering::SeqCst);
        }
    }

    #[track_caller]
    fn acquire_swap(word: &Self::U32, value: u32) -> u32 {
        word.swap(value, Ordering::Acquire)
    }

    #[track_caller]
    fn now(_clock: Clock) -> u64 {
        let state = shared_state();
        // Without a clock the load would be a point at which loom might switch threads, for nothing.
        let is_late = state.is_late || state.clock && state.late.load(Ordering::Relaxed);
        let time = if is_late { LATE } else { EARLY };
        time + state.dozed.as_ref().map_or(0, |dozed| dozed.borrow()[thread_number()])
    }

    fn doze(_nanos: u64) {
        if let Some(dozed) = &shared_state().dozed {
            dozed.borrow_mut()[thread_number()] += 1_000_000_000;
        }
        Self::yield_now();
    }

    fn thread_id() -> usize {
        thread_number() + 1
    }

    fn identity(address: usize) -> usize {
        if in_model() { state(|s| s.names.identity(address)) } else { address }
    }

    /// Threads alternate between the nodes.
    fn numa_node() -> u32 {
        (thread_number() % state(|s| s.numa_nodes)) as u32
    }

    fn numa_nodes() -> u32 {
        2
    }

    /// None: a lost wakeup must show.
    fn safety_timeout(_nanos: u64) -> Option<Deadline> {
        None
    }

    fn acquire_node() -> &'static QNode<Self> {
        let state = shared_state();
        let free = state.free_nodes.borrow_mut()[thread_number()].pop();
        let node = free.unwrap_or_else(|| {
            let node = Box::into_raw(Box::new(QNode::new()));
            state.nodes.borrow_mut().push(node);
            node
        });
        state.nodes_out.update(|out| out + 1);
        if state.mistake == Mistake::NodeTooEarly {
            state.free_nodes.borrow_mut()[thread_number()].push(node);
        }
        // SAFETY: freed at the end of the execution only, when no thread runs any more.
        unsafe { &*node }
    }

    unsafe fn release_node(node: &'static QNode<Self>) {
        let state = shared_state();
        state.nodes_out.update(|out| out - 1);
        if state.mistake == Mistake::None {
            node.links.iter().for_each(|link| link.settled());
            node.words.iter().for_each(|word| word.settled());
        }
        if state.mistake != Mistake::NodeTooEarly {
            state.free_nodes.borrow_mut()[thread_number()].push(node.as_ptr());
        }
    }

    unsafe fn visible_readers() -> &'static [Self::Usize] {
        // SAFETY: leaked in `State::new`; freed at the end of the execution only.
        state(|s| unsafe { &*s.readers })
    }

    /// The first caller makes the array. The mutex orders that before the calls of the others.
    unsafe fn waiting_array() -> &'static [QNode<Self>] {
        let state = shared_state();
        let mut array = state.waiting.lock().unwrap();
        let private = state.mistake == Mistake::PrivateArray;
        let arrays = if private { state.instructions.len() } else { 1 };
        let nodes = || (0..arrays * WAITING_ARRAY).map(|_| QNode::new()).collect::<Box<[_]>>();
        let all: &'static [_] = array.get_or_insert_with(|| Box::leak(nodes()));
        let first = if private { thread_number() * WAITING_ARRAY } else { 0 };
        &all[first..first + WAITING_ARRAY]
    }

    unsafe fn reader_row() -> Option<&'static ReaderRow<Self>> {
        let state = shared_state();
        Some(state.rows.own(Mistake::UntakenRow, |_| ()))
    }

    unsafe fn reader_rows() -> Option<&'static Group<Self, ReaderRow<Self>>> {
        shared_state().rows.newest()
    }
}

/// A turn of a spin loop. If `eager`, the first few do nothing, so that a waiter can get to the end of its
/// patience, and go to sleep, while the holder has not moved. Then each turn lets the others go on.
/// Two spinners could take turns for ever while the holder waits, so beyond [`SPINS`] turns loom
/// only follows one schedule, which is fair, instead of exploring them all. The report says in how many executions that was so.
fn spin(eager: bool) {
    let (turns, eager_turns) = state(|s| {
        let turns = &mut s.spins.borrow_mut()[thread_number()];
        *turns += 1;
        (*turns, s.eager_spins)
    });
    if turns > SPINS.max(eager_turns) {
        state(|s| s.cut_short.set(true));
        loom::skip_branch();
    }
    if !eager || turns > eager_turns {
        thread::yield_now();
    }
}
