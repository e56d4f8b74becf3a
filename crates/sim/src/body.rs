//! For code that runs inside: computing, the clock, and marks for the report.

use crate::Error;
use crate::events::NS;
use crate::simulation::{current, inside};

/// Computes for `ns` nanoseconds without touching memory.
pub fn work(ns: u64) {
    let sim = inside("work");
    if !sim.with(|s| s.compute(ns.saturating_mul(NS))) {
        sim.suspend();
    }
}

/// Simulated nanoseconds since the start, on the caller's own clock. Takes no time.
pub fn now() -> u64 {
    inside("now").with(|s| {
        s.me().idle.1 = 0;
        s.me().time / NS
    })
}

/// Suspends the caller as soon as it executes anything `ns` nanoseconds from now or later, for `absence` nanoseconds or
/// for ever, unless [`never_suspend`] comes before. For ever needs [`Options::suspends`](crate::Options::suspends).
pub fn suspend_in(ns: u64, absence: Option<u64>) {
    inside("suspend_in").with(|s| {
        assert!(s.options.suspends || absence.is_some(), "suspended for ever, and the options do not say so");
        let thread = s.me();
        thread.suspended = thread.time + ns.saturating_mul(NS);
        thread.absence = absence.map_or(crate::events::NEVER, |absence| absence.saturating_mul(NS));
        thread.attention = thread.attention.min(thread.suspended);
    });
}

/// Takes [`suspend_in`] back.
pub fn never_suspend() {
    inside("never_suspend").with(|s| s.me().suspended = crate::events::NEVER);
}

/// The processor that the caller runs on.
pub fn cpu() -> usize {
    inside("cpu").with(|s| s.me().cpu as usize)
}

/// The caller's number: the index of its body.
pub fn thread() -> usize {
    inside("thread").with(|s| s.running as usize)
}

/// The caller asks for a lock: the wait begins.
pub fn acquiring() {
    inside("acquiring").with(|s| {
        let now = s.me().time;
        s.me().asked = Some(now);
    });
}

/// The caller has got lock number `lock` (the workload numbers its locks from 0; the numbers index an
/// array). For a lock that several can hold, mark writers only.
pub fn acquired(lock: usize) {
    inside("acquired").with(|s| {
        let node = s.node(s.running);
        let id = s.running;
        let thread = s.me();
        thread.holds += 1;
        let (asked, woken, now) = (thread.asked.take(), thread.woken, thread.time);
        s.marks.acquired(lock, id, node, woken, asked, now);
        s.tempt_adversary();
    });
}

/// The caller is about to release lock number `lock`.
pub fn released(lock: usize) {
    inside("released").with(|s| {
        let node = s.node(s.running);
        let id = s.running;
        let thread = s.me();
        thread.holds = thread.holds.saturating_sub(1);
        let now = thread.time;
        s.marks.released(lock, id, node, now);
    });
}

/// Puts the memory of `object` on a node (for the lines that it occupies).
pub fn set_home<T>(object: &T, node: usize) {
    inside("set_home").with(|s| {
        let start = std::ptr::from_ref(object).addr() & !63;
        let node = node.min(s.topology.nodes - 1) as u16;
        for address in (start..std::ptr::from_ref(object).addr() + size_of::<T>().max(1)).step_by(64) {
            let line = s.lines.number(address, node);
            s.lines.set_home(line, node);
        }
    });
}

/// The lines of `memory`, which begins a page, keep their offset within their page of 4 KiB from now on, and the pages lie at random
/// places: lines at equal places of many pages meet in few sets of a cache, as in real memory. To be called before one of them is
/// touched. Elsewhere lines that are touched one after the other lie side by side, whatever their addresses are, because those
/// differ from run to run.
pub fn in_pages<T>(memory: &[T]) {
    inside("in_pages").with(|s| {
        let bytes = memory.as_ptr_range();
        s.lines.in_pages(bytes.start.addr() >> 6..bytes.end.addr().div_ceil(64), &mut s.rng);
    });
}

/// Ends the simulation with [`Error::Failed`]: a check did not hold. Nothing on the caller's stack is
/// dropped.
pub fn fail(message: impl Into<String>) -> ! {
    let Some(sim) = current() else { panic!("{}", message.into()) };
    sim.with(|s| {
        let at_ns = s.me().time / NS;
        s.failure = Some(Error::Failed { at_ns, message: message.into() });
    });
    loop {
        sim.suspend();
    }
}
