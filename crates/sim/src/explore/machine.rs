//! The machine that explores, as locks see it.

use super::engine::{WHEN_TORN, inside, world as engine};
use super::plan::Kind;
use super::words::{self, Ptr, U8, U32, U64, Usize};
use super::{Mistake, trace, world};
use latchwork::machine::record::{Clocks, Record, Records};
use latchwork::machine::{Clock, Deadline, Group, Machine, QNode, ReaderRow, Wait, Word};
use std::sync::atomic::Ordering;

/// The machine that explores schedules. See the [module documentation](super).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Explore;

/// Processors, and NUMA nodes at most.
const CPUS: u32 = 8;

/// The value in memory of a word that a thread sleeps on.
fn slept_on(word: *const U32) -> u32 {
    // SAFETY: a sleeper is in the middle of a call on the word, so the word is there.
    unsafe { &*word }.place().value() as u32
}

// SAFETY: words are those of x86-64 (sequentially consistent but for store buffers, which read-modify-writes and
// the fences empty), which is more than C11 asks for; a heavy fence comes between two instructions of every thread,
// and empties all buffers; thread numbers are distinct; nodes are never freed.
unsafe impl Machine for Explore {
    type U8 = U8;
    type U32 = U32;
    type U64 = U64;
    type Usize = Usize;
    type Ptr<T: Send + Sync + 'static> = Ptr<T>;

    fn spin_until<T: Copy, W: Word<T>>(word: &W, order: Ordering, mut done: impl FnMut(T) -> bool) -> T {
        loop {
            let value = word.load(order);
            if done(value) {
                return value;
            }
            let engine = inside().expect("spinning outside of a schedule: nobody could end it");
            // The value is the first field of every word.
            engine.spin(std::ptr::from_ref(word).addr());
        }
    }

    /// One look, or a few.
    fn spin_for<T: Copy, W: Word<T>>(
        word: &W,
        order: Ordering,
        spins: u32,
        mut done: impl FnMut(T) -> bool,
    ) -> Option<T> {
        if spins == 0 {
            return None;
        }
        loop {
            let value = word.load(order);
            if done(value) {
                return Some(value);
            }
            let engine = inside()?;
            if engine.with(|s| s.any(Kind::Look, 2)) == 0 {
                return None;
            }
            engine.pause();
        }
    }

    fn pause(_: u32) {
        if let Some(engine) = inside() {
            engine.pause();
        }
    }

    fn patience(looks: u32) -> u32 {
        looks.min(engine().with(|s| s.patience))
    }

    fn yield_now() {
        Self::pause(1);
    }

    fn wait(word: &U32, expected: u32, deadline: Option<Deadline>) -> Wait {
        let engine = inside().expect("sleeping outside of a schedule: nobody could wake it");
        let place = word.place();
        engine.mark();
        engine.touch(place, "futex wait");
        trace!(engine, place, "futex wait", None, Some(u64::from(expected)));
        // Comparing and going to sleep are one step. The kernel's lock empties the store buffer.
        let outcome = engine.with(|s| {
            s.drain(s.running);
            if place.value() != u64::from(expected) && s.mistake != Mistake::SleepsUnseen {
                return Some(Wait::Woken);
            }
            if deadline.is_some_and(|deadline| deadline.nanos <= s.time()) {
                return Some(Wait::TimedOut);
            }
            s.is_spurious().then_some(Wait::Woken)
        });
        outcome.unwrap_or_else(|| engine.sleep(place.address, deadline.map(|deadline| deadline.nanos)))
    }

    fn wake(word: *const U32, count: u32) -> usize {
        let Some(engine) = inside() else { return 0 };
        engine.mark();
        engine.with(|s| {
            s.drain(s.running);
            if s.trace.is_some() {
                let text = format!("futex wake {} (at most {count})", s.name(word.addr()));
                s.note(text);
            }
            s.wake(word.addr(), count)
        })
    }

    fn requeue(from: *const U32, expected: u32, to: &U32) {
        let Some(engine) = inside() else { return };
        engine.mark();
        engine.with(|s| {
            s.drain(s.running);
            if s.sleeps_somebody(from.addr()) && slept_on(from) == expected {
                s.requeue(from.addr(), to.place().address);
            }
        });
    }

    /// Orders nothing that the processor would not: a compiler's barrier.
    fn light_fence() {
        if let Some(engine) = inside() {
            engine.with(|s| s.fenced = true);
        }
    }

    fn heavy_fence() -> bool {
        let Some(engine) = inside() else { return true };
        engine.mark();
        engine.with(|s| {
            s.drain(s.running);
            if s.trace.is_some() {
                s.note("heavy fence".into());
            }
            if !s.refused_fences {
                s.heavy_fence();
            }
            !s.refused_fences
        })
    }

    fn prepare_fences() -> bool {
        !engine().with(|s| s.refused_fences)
    }

    fn full_fence() {
        if let Some(engine) = inside() {
            engine.mark();
            engine.with(|s| {
                if s.mistake != Mistake::NoFullFence {
                    s.drain(s.running);
                }
            });
        }
    }

    fn acquire_swap(word: &U32, value: u32) -> u32 {
        word.swap(value, Ordering::Acquire)
    }

    /// The steps of a native machine, or one step, as in the kernel.
    fn release_if(queue: &Self::Ptr<QNode<Self>>, word: &U32, expected: u32) -> bool {
        let (whole, blind) = engine().with(|s| (s.whole_releases, s.mistake == Mistake::BlindRelease));
        if whole {
            return word.compare_exchange(expected, 0, Ordering::Release, Ordering::Relaxed).is_ok();
        }
        words::release_if(queue.load(Ordering::Relaxed).is_null() || blind, word, expected)
    }

    fn torn_timeout(nanos: u64) -> Option<Deadline> {
        let ends = engine().with(|s| !s.whole_releases && s.mistake != Mistake::NoTornTimeout);
        let torn = Deadline { clock: Clock::Monotonic, nanos: WHEN_TORN };
        Self::safety_timeout(nanos).or(ends.then_some(torn))
    }

    fn hints(nanos: u32) -> u32 {
        nanos.min(2)
    }

    fn now(_: Clock) -> u64 {
        match inside() {
            Some(engine) => {
                engine.point();
                engine.with(|s| s.now())
            }
            None => engine().with(|s| s.time()),
        }
    }

    fn thread_id() -> usize {
        engine().with(|s| s.running + 1)
    }

    fn identity(address: usize) -> usize {
        engine().with(|s| s.arena.identity(address))
    }

    fn numa_node() -> u32 {
        Self::cpu() % engine().with(|s| s.nodes)
    }

    fn numa_nodes() -> u32 {
        2
    }

    /// Where the thread is right now: it may have been moved.
    fn cpu() -> u32 {
        if let Some(engine) = inside() {
            engine.point();
            let moved = engine.with(|s| s.any(Kind::Cpu, CPUS));
            if moved != 0 {
                world::set_cpu(moved);
            }
        }
        world::cpu()
    }

    fn cpus() -> u32 {
        CPUS
    }

    fn acquire_node() -> &'static QNode<Self> {
        world::acquire_node()
    }

    unsafe fn release_node(node: &'static QNode<Self>) {
        world::release_node(node);
    }

    unsafe fn visible_readers() -> &'static [Usize] {
        world::visible_readers()
    }

    unsafe fn waiting_array() -> &'static [QNode<Self>] {
        world::waiting_array()
    }

    unsafe fn reader_row() -> Option<&'static ReaderRow<Self>> {
        Some(world::reader_row())
    }

    unsafe fn reader_rows() -> Option<&'static Group<Self, ReaderRow<Self>>> {
        world::reader_rows()
    }

    /// Only where a thread may be stopped for ever: a sleep that ends by itself hides lost wakeups.
    fn safety_timeout(nanos: u64) -> Option<Deadline> {
        let freezes = inside().is_some_and(|engine| engine.with(|s| s.freeze.is_some()));
        freezes.then(|| Deadline::after::<Self>(nanos))
    }

    fn doze(nanos: u64) {
        if let Some(engine) = inside() {
            engine.point();
            let deadline = engine.with(|s| s.time().saturating_add(nanos));
            engine.sleep(0, Some(deadline));
        }
    }
}

// SAFETY: a thread has one record, linked before it gets it; groups are never freed; the clocks are those of the
// OS thread, on which all threads of a schedule run.
unsafe impl Records for Explore {
    unsafe fn record() -> &'static Record<Self> {
        world::own_record()
    }

    unsafe fn records() -> Option<&'static Group<Self, Record<Self>>> {
        world::records()
    }

    fn place(_: &'static Record<Self>) -> Option<(&'static Group<Self, Record<Self>>, usize)> {
        world::place()
    }

    unsafe fn clocks() -> &'static Clocks<Self> {
        world::clocks()
    }
}
