//! The waits of the calling thread: what it says of one that has begun, what it notes of one that has ended, and the events.
//!
//! What is noted is in [`pending`], until the thread has released the lock and settles it.

use super::account::Parts;
use super::file::{append, header, record};
use super::live;
use super::pending::{self, Settled};
use super::threads::{Local, NOTED};
use super::{at_once, homes};
use crate::state::abi::RwLock;
use crate::state::program::PAGE;
use crate::state::unwind::is_readable;
use core::sync::atomic::Ordering::*;
use latchwork_recording::layout::*;

/// The least waiting that one event stands for, in nanoseconds. It doubles with each eighth of the section that is
/// in use.
const FIRST_PERIOD: u64 = 10_000;

/// A wait of the calling thread.
pub(super) struct Wait {
    pub(super) object: u32,
    pub(super) serial: u32,
    pub(super) class: u32,
    pub(super) waiter: u32,
    pub(super) start: u64,
    pub(super) nanos: u64,
    /// For how many waits it stands that were not looked at closely; 0: it was not, either.
    pub(super) weight: u32,
}

/// The calling thread begins to wait for the lock at this address, which that thread holds, and for which the thread has noted no other
/// wait.
pub(super) fn begin_for(
    local: &Local,
    (address, holder): (usize, u32),
    (object, class): (u32, u32),
    waiter: u32,
    now: u64,
) {
    local.shared.waits_for.store(address, Relaxed);
    local.thread.held_by.store(holder, Relaxed);
    local.thread.pending.object.store(object, Relaxed);
    begin(local, class, waiter, now);
}

/// The calling thread begins to wait.
pub(super) fn begin(local: &Local, class: u32, waiter: u32, now: u64) {
    let thread = local.thread;
    thread.waits_at.store(waiter, Relaxed);
    thread.waits_since.store(now, Relaxed);
    thread.waits_for.store(class + 1, Release);
}

/// The calling thread no longer waits.
pub(super) fn end(local: &Local, now: u64) {
    let thread = local.thread;
    local.shared.waits_for.store(0, Relaxed);
    thread.waits_for.store(0, Relaxed);
    thread.seen.store(now, Relaxed);
}

/// The process ends: brings up to date which threads hold the locks for which others wait. A lock may have had other holders since
/// the wait began.
pub(super) fn look_at_holders() {
    homes::each_waiting(|address, thread| {
        let Some(class) = thread.waits_for.load(Acquire).checked_sub(1) else { return };
        // A thread that was cancelled in a wait has left this behind, and the lock may be gone.
        let pages = [address, address + size_of::<RwLock>() - 1].map(|byte| byte & !(PAGE - 1));
        if pages.into_iter().all(is_readable) {
            let kind = record::<Class>(class).kind.load(Relaxed);
            // SAFETY: the bytes of a lock can be read there.
            thread.held_by.store(unsafe { at_once::holder(kind, address) }, Relaxed);
        }
    });
}

/// Before a wait that is only counted: notes what is known of it. So the thread has less to note when it holds the lock, and delays the
/// others. `wait` has no length yet. No other wait is noted.
#[inline(always)]
pub(super) fn expect(local: &Local, wait: &Wait) {
    fill(&local.thread.pending, wait);
}

/// As [`note`], of a wait that was [expected](expect).
#[inline(always)]
pub(super) fn note_expected(local: &mut Local, address: usize, wait: &Wait) {
    let pending = &local.thread.pending;
    if local.attention & NOTED != 0 || pending.start.load(Relaxed) != wait.start {
        // A signal handler has waited meanwhile.
        return note_unexpected(local, address, wait);
    }
    pending.nanos.store(wait.nanos, Relaxed);
    publish(local, address, wait.class);
}

#[cold]
#[inline(never)]
fn note_unexpected(local: &mut Local, address: usize, wait: &Wait) {
    note(local, address, wait, None);
}

#[inline(always)]
fn fill(pending: &Pending, wait: &Wait) {
    pending.object.store(wait.object, Relaxed);
    pending.serial.store(wait.serial, Relaxed);
    pending.waiter.store(wait.waiter, Relaxed);
    pending.start.store(wait.start, Relaxed);
    pending.weight.store(wait.weight, Relaxed);
}

#[inline(always)]
fn publish(local: &mut Local, address: usize, class: u32) {
    local.thread.pending.class.store(class + 1, Release);
    local.waited_for = address;
    local.attention |= NOTED;
}

/// Notes a wait that has ended. One that was noted before is settled first. `address`: that of the lock that the thread holds now, if
/// the wait was only counted, and no thread looked closely meanwhile; else 0. `parts`: those of a wait whose holders are known.
#[inline(always)]
pub(super) fn note(local: &mut Local, address: usize, wait: &Wait, parts: Option<&Parts>) {
    settle(local);
    let pending = &local.thread.pending;
    fill(pending, wait);
    pending.nanos.store(wait.nanos, Relaxed);
    if wait.weight != 0 {
        note_parts(pending, parts);
    }
    publish(local, address, wait.class);
}

#[cold]
#[inline(never)]
fn note_parts(pending: &Pending, parts: Option<&Parts>) {
    let mut noted = 0;
    if let Some(parts) = parts {
        for (holder, nanos) in parts.holders.iter().zip(parts.nanos).filter(|part| part.1 != 0) {
            pending.holders[noted].store(*holder, Relaxed);
            pending.parts[noted].store(nanos, Relaxed);
            noted += 1;
        }
    }
    if noted <= HOLDERS {
        pending.parts[noted].store(0, Relaxed);
    }
}

/// Adds the wait that the calling thread has noted, if any, to the sums in its table, and makes it an event if it is chosen.
#[inline(always)]
pub(super) fn settle(local: &mut Local) {
    if local.attention & NOTED != 0 {
        settle_noted(local);
    }
}

#[inline(never)]
fn settle_noted(local: &mut Local) {
    local.attention &= !NOTED;
    if local.waited_for != 0 {
        local.rates.learn(local.waited_for, local.thread.pending.nanos.load(Relaxed));
        local.waited_for = 0;
    }
    live::look(local.thread.seen.load(Relaxed));
    if let Some(settled) = pending::settle(local.thread, local.table) {
        event(local, &settled);
    }
}

/// Records the wait as an event, if it is chosen: the thread's waiting, laid end to end, is cut into pieces of one period,
/// and the wait in which a piece ends is chosen. A wait is as long there as all for which it stands.
fn event(local: &mut Local, settled: &Settled) {
    let Settled { whole, start, nanos, weight, .. } = *settled;
    let section = &header().sections[EVENTS];
    let filled = u64::from(section.count.load(Relaxed)) * 8 / u64::from(section.capacity);
    let period = FIRST_PERIOD << filled;
    local.since_event += nanos.saturating_mul(u64::from(weight));
    if local.since_event < period {
        return;
    }
    let stands_for = local.since_event - local.since_event % period;
    local.since_event %= period;
    let Some(index) = append::<Event>(1) else { return };
    let handover = nanos.saturating_sub(settled.parts().map(|part| part.1).sum());
    let holder = match settled.parts().max_by_key(|part| part.1) {
        Some((0, most)) if most >= handover => cause::UNKNOWN,
        Some((holder, most)) if most >= handover => holder,
        _ => cause::HANDOVER,
    };
    header().event_period.store(period, Relaxed);
    let event = record::<Event>(index);
    event.class.store(whole.class, Relaxed);
    event.object.store(whole.object, Relaxed);
    event.thread.store(local.thread_index, Relaxed);
    event.waiter.store(whole.waiter, Relaxed);
    event.holder.store(holder, Relaxed);
    event.start.store(start, Relaxed);
    event.nanos.store(nanos, Relaxed);
    event.stands_for.store(stands_for, Relaxed);
    event.state.store(READY, Release);
}
