//! The machine that locks see. `machine/resources.rs` has the nodes, rows and records that it hands out, which are
//! generic over it; `machine/futex.rs` has its system calls.

mod futex;
pub(crate) mod resources;

use crate::events::NS;
use crate::lines::Kind;
use crate::simulation::{access, current, inside, spin};
use crate::topology::Distance;
use crate::words::{Ptr, U8, U32, U64, Usize};
use latchwork::machine::record::{Clocks, Record, Records};
use latchwork::machine::{Clock, Deadline, Group, Machine, QNode, ReaderRow, Wait, Word};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The simulated machine: finds its simulation through the OS thread that it runs on.
///
/// Outside of [`run`](crate::run), words are plain memory and take no time, so that locks can be made,
/// looked at and dropped there; waiting panics, as nobody could end it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Sim;

/// A line that stands for the mutex that serialises `membarrier` in the kernel.
const MEMBARRIER: usize = usize::MAX - 4095;

// SAFETY: words are sequentially consistent, which is more than C11; a heavy fence comes before or
// after every light one, since all operations have one order; thread numbers are
// distinct; nodes are never freed.
unsafe impl Machine for Sim {
    type U8 = U8;
    type U32 = U32;
    type U64 = U64;
    type Usize = Usize;
    type Ptr<T: Send + Sync + 'static> = Ptr<T>;

    fn spin_until<T: Copy, W: Word<T>>(word: &W, order: Ordering, mut done: impl FnMut(T) -> bool) -> T {
        let value = word.load(order);
        if done(value) {
            return value;
        }
        let mut found = None;
        let mut look = || {
            let value = word.load(order);
            let satisfied = done(value);
            if satisfied {
                found = Some(value);
            }
            satisfied
        };
        spin(inside("spinning"), &mut look, None);
        found.expect("the loop resumes only who is satisfied")
    }

    fn spin_for<T: Copy, W: Word<T>>(
        word: &W,
        order: Ordering,
        spins: u32,
        mut done: impl FnMut(T) -> bool,
    ) -> Option<T> {
        if spins == 0 {
            return None;
        }
        let value = word.load(order);
        if done(value) {
            return Some(value);
        }
        let sim = current()?;
        let mut found = None;
        let mut look = || {
            let value = word.load(order);
            let satisfied = done(value);
            if satisfied {
                found = Some(value);
            }
            satisfied
        };
        spin(sim, &mut look, Some(spins));
        found
    }

    fn pause(spins: u32) {
        if let Some(sim) = current() {
            sim.with(|s| {
                let pause = s.costs.pause;
                s.me().time += pause * u64::from(spins);
                s.note_attempt();
            });
        }
    }

    fn hints(nanos: u32) -> u32 {
        let pause = current().map_or(0, |sim| sim.with(|s| s.costs.pause));
        (u64::from(nanos) * NS / pause.max(1)).max(1) as u32
    }

    fn yield_now() {
        if let Some(sim) = current()
            && !sim.with(|s| s.offer_cpu())
        {
            sim.suspend();
        }
    }

    fn wait(word: &U32, expected: u32, deadline: Option<Deadline>) -> Wait {
        futex::wait(inside("sleeping"), word, expected, deadline)
    }

    fn wake(word: *const U32, count: u32) -> usize {
        current().map_or(0, |sim| futex::wake(sim, word.addr(), count))
    }

    fn requeue(from: *const U32, expected: u32, to: &U32) {
        if let Some(sim) = current() {
            futex::requeue(sim, from, expected, std::ptr::from_ref(to).addr());
        }
    }

    #[inline]
    fn light_fence() {}

    fn heavy_fence() -> bool {
        if let Some(sim) = current() {
            sim.with(|s| {
                let syscall = s.costs.syscall;
                s.me().time += syscall;
            });
            access(MEMBARRIER, Kind::Rmw);
            sim.with(|s| s.membarrier());
        }
        true
    }

    fn full_fence() {
        if let Some(sim) = current() {
            sim.with(crate::state::State::full_fence);
        }
    }

    fn acquire_swap(word: &U32, value: u32) -> u32 {
        word.swap(value, Ordering::Acquire)
    }

    fn now(_: Clock) -> u64 {
        current().map_or(0, |sim| {
            sim.with(|s| {
                let clock = s.costs.clock;
                let thread = s.me();
                thread.time += clock;
                // A thread that looks at the clock does not go round in circles for ever: its deadline passes.
                thread.idle.1 = 0;
                thread.time / NS
            })
        })
    }

    fn thread_id() -> usize {
        /// Numbers for OS threads, beyond those of simulated ones.
        static NEXT: AtomicUsize = AtomicUsize::new(1 << 32);
        std::thread_local! {
            static OUTSIDE: usize = NEXT.fetch_add(1, Ordering::Relaxed);
        }
        match current() {
            Some(sim) => sim.with(|s| s.running as usize + 1),
            None => OUTSIDE.with(|id| *id),
        }
    }

    /// The line's number and the offset in it: addresses differ from run to run.
    fn identity(address: usize) -> usize {
        current().map_or(address, |sim| {
            sim.with(|s| {
                let line = s.lines.number(address, s.node(s.running));
                (line as usize + 1) * 64 + address % 64
            })
        })
    }

    fn numa_node() -> u32 {
        current().map_or(0, |sim| sim.with(|s| u32::from(s.node(s.running))))
    }

    fn numa_nodes() -> u32 {
        current().map_or(1, |sim| sim.with(|s| s.topology.nodes as u32))
    }

    fn cpu() -> u32 {
        current().map_or(0, |sim| sim.with(|s| s.threads[s.running as usize].cpu))
    }

    fn cpus() -> u32 {
        current().map_or(1, |sim| sim.with(|s| s.topology.cpus.len() as u32))
    }

    fn numa_hops(from: u32, to: u32) -> u32 {
        current().map_or(0, |sim| {
            sim.with(|s| match s.topology.between_nodes(from as u16, to as u16) {
                Distance::Sibling | Distance::Cluster | Distance::Socket => 0,
                Distance::Hop => 1,
                Distance::TwoHops => 2,
            })
        })
    }

    fn acquire_node() -> &'static QNode<Self> {
        resources::acquire_node(thread())
    }

    unsafe fn release_node(node: &'static QNode<Self>) {
        resources::release_node(thread(), node);
    }

    fn note_node() {
        resources::note_nodes(1);
    }

    unsafe fn visible_readers() -> &'static [Usize] {
        resources::visible_readers()
    }

    fn safety_timeout(nanos: u64) -> Option<Deadline> {
        let suspends = current().is_some_and(|sim| sim.with(|s| s.options.suspends));
        suspends.then(|| Deadline::after::<Self>(nanos))
    }

    fn doze(nanos: u64) {
        if current().is_some() {
            let word = U32::new(0);
            Self::wait(&word, 0, Some(Deadline::after::<Self>(nanos)));
        }
    }

    /// Finding it costs nothing: a thread-local.
    unsafe fn reader_row() -> Option<&'static ReaderRow<Self>> {
        current().map(|_| resources::reader_row(thread()))
    }

    unsafe fn reader_rows() -> Option<&'static Group<Self, ReaderRow<Self>>> {
        resources::reader_rows()
    }

    unsafe fn waiting_array() -> &'static [QNode<Self>] {
        resources::waiting_array()
    }
}

// SAFETY: a record is that of one simulated thread, or of the OS thread outside of simulations, and is
// linked before it is given out; the clocks are the OS thread's, on which all simulated ones run.
unsafe impl Records for Sim {
    /// Finding it costs nothing: a thread-local.
    unsafe fn record() -> &'static Record<Self> {
        resources::record(current().map_or(0, |_| thread() + 1))
    }

    unsafe fn records() -> Option<&'static Group<Self, Record<Self>>> {
        resources::records()
    }

    unsafe fn clocks() -> &'static Clocks<Self> {
        resources::clocks()
    }
}

/// The running thread, for the pool of nodes.
fn thread() -> usize {
    current().map_or(0, |sim| sim.with(|s| s.running as usize))
}
