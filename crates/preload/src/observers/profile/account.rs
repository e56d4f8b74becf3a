//! The account of an object: which holder causes a wait.
//!
//! Only waits that are looked at closely ([`sampling`](super::sampling)) take part: the threads that wait here are these.
//!
//! An object keeps, for each of up to [`HOLDERS`] stacks, for how long that stack has held the lock *while threads waited*.
//! The holder adds its part when it releases the lock, if threads wait then. A waiter copies the sums when it comes
//! ([`arrive`]), and subtracts them when it has the lock ([`leave`]): the difference says how much of its wait each holder
//! caused, over any number of handovers. What remains is handover.
//!
//! If an object has more holders, a new stack takes the place of the stack that caused the least waiting lately. The old stack's sum
//! goes to that of all others. A waiter sees by [`Object::replaced`] that a place has been given to another stack.
//!
//! A waiter comes in the middle of some holder's part. It notes how much of that part is already over, and subtracts it from
//! that holder's difference. The holder is known if it acquired the lock while threads waited: then its stack is in the
//! object. Otherwise it is the first holder since threads wait. Its stack comes into the object when it releases the lock,
//! and stays until no thread waits. Or its section is a free one ([`fast`](super::fast)), which pays only if it was long. The object
//! keeps the last [`LATE`] payments for such sections, with their beginnings. The first of them after a waiter came tells whether
//! the waiter came in the middle of that section.
//!
//! Readers of a rwlock hold it at the same time. A reader that leaves is charged for the time since it came, as far as no other
//! reader has been charged for that. The rest stays open ([`Object::uncharged`]), for a reader that came earlier and leaves later.
//! So a reader that comes and goes while another one stays is charged for its own moment only.
//!
//! The fields of the account have a lock, which only threads take that write them: holders, while threads wait. A thread that
//! does not get it in time drops what it wanted to write. A waiter reads the fields as in a sequence lock.

use super::{file, filter, objects};
use core::hint::spin_loop;
use core::sync::atomic::{AtomicU32, Ordering::*, fence};
use latchwork_recording::layout::{HOLDERS, LATE, Object, cause};

/// Rounds that a thread waits for the lock of an account, or for a consistent copy. The lock is held for some 20
/// instructions.
const PATIENCE: u32 = 200;

/// In [`Object::holder`]: no thread holds the lock, or a thread that need not pay. (0: the holder's stack is not known.)
const FREE: u32 = u32::MAX;
/// In [`Object::holder`]: readers hold the lock, or the last holder was a reader. In [`Object::first_holder`]: the first ones were.
const READERS: u32 = u32::MAX - 3;

/// The account at some moment.
#[derive(Clone, Copy)]
pub(super) struct Snapshot {
    holders: [u32; HOLDERS + 1],
    nanos: [u64; HOLDERS + 1],
    replaced: [u8; HOLDERS],
    /// How much of the present holder's part is over, and that holder; 0 if it is not known yet.
    over: u64,
    holder: u32,
    /// When it was taken.
    at: u64,
    /// [`Object::late`], and what is known of these holders.
    late: u32,
    late_holders: [u32; LATE],
    late_since: [u64; LATE],
}

/// What a holder says of its section when it releases the lock.
pub(super) struct Payment {
    /// Its stack.
    pub(super) site: u32,
    /// When it acquired the lock; 0: that is not known, and was before threads waited.
    pub(super) since: u64,
    pub(super) now: u64,
    pub(super) read: bool,
    /// The section stands for 2 to this power sections that are not paid.
    pub(super) weight: u8,
}

/// The parts of a wait.
pub(super) struct Parts {
    pub(super) holders: [u32; HOLDERS + 1],
    pub(super) nanos: [u64; HOLDERS + 1],
}

/// A thread begins to wait for the object at this address.
pub(super) fn arrive(object: &Object, address: usize, now: u64) -> Snapshot {
    // `leave` takes that back.
    filter::watch(address);
    let begin = || {
        object.first_waiter.fetch_max(now, Relaxed);
        object.first_holder.store(0, Relaxed);
        object.uncharged.store(0, Relaxed);
    };
    let others = object.waiting.load(Relaxed);
    if others == 0 {
        begin();
    }
    let waiting = object.waiting.fetch_add(1, AcqRel) + 1;
    if waiting == 1 && others != 0 {
        begin();
    }
    let most = &objects::sums(object).most_waiting;
    if most.load(Relaxed) < u64::from(waiting) {
        most.fetch_max(u64::from(waiting), Relaxed);
    }
    snapshot(object, now)
}

/// A copy of the account.
fn snapshot(object: &Object, now: u64) -> Snapshot {
    let mut copy = Snapshot {
        holders: [0; _],
        nanos: [0; _],
        replaced: [0; _],
        over: 0,
        holder: FREE,
        at: now,
        late: 0,
        late_holders: [0; _],
        late_since: [0; _],
    };
    for _ in 0..PATIENCE {
        let version = object.account.load(Acquire);
        if version & 1 == 0 {
            for index in 0..=HOLDERS {
                copy.holders[index] = object.holders[index].load(Relaxed);
                copy.nanos[index] = object.holder_nanos[index].load(Relaxed);
            }
            for index in 0..HOLDERS {
                copy.replaced[index] = object.replaced[index].load(Relaxed);
            }
            copy.holder = object.holder.load(Relaxed);
            let from = object.charged_until.load(Relaxed).max(object.first_waiter.load(Relaxed));
            let open = now.saturating_sub(from) + object.uncharged.load(Relaxed);
            copy.over = if copy.holder == FREE { 0 } else { open };
            copy.late = object.late.load(Relaxed);
            for index in 0..LATE {
                copy.late_holders[index] = object.late_holders[index].load(Relaxed);
                copy.late_since[index] = object.late_since[index].load(Relaxed);
            }
            fence(Acquire);
            if object.account.load(Relaxed) == version {
                return copy;
            }
        }
        spin_loop();
    }
    file::header().unaccounted.fetch_add(1, Relaxed);
    copy
}

/// A thread ends its wait; `got` says whether it holds the lock now. Returns the parts of the threads that held the lock
/// meanwhile.
pub(super) fn leave(
    object: &Object,
    address: usize,
    before: &Snapshot,
    nanos: u64,
    now: u64,
    got: bool,
) -> Parts {
    let after = snapshot(object, now);
    let resolve = |holder: u32| match holder {
        0 => object.first_holder.load(Relaxed),
        holder => holder,
    };
    let mut parts = Parts { holders: after.holders, nanos: [0; _] };
    for index in 0..=HOLDERS {
        parts.nanos[index] = after.nanos[index].wrapping_sub(before.nanos[index]);
    }
    for index in (0..HOLDERS).filter(|index| after.replaced[*index] != before.replaced[*index]) {
        // The sum that the place had when the wait began is in the last one now.
        parts.nanos[index] = after.nanos[index];
        parts.nanos[HOLDERS] = parts.nanos[HOLDERS].wrapping_sub(before.nanos[index]);
    }
    parts.holders[HOLDERS] = cause::OTHERS;
    let slot_of = |parts: &Parts, holder: u32| {
        parts.holders[..HOLDERS].iter().position(|other| *other == holder && holder != 0).unwrap_or(HOLDERS)
    };
    let (mut holder, mut over) = (resolve(before.holder), before.over);
    if before.holder == FREE && (1..=LATE as u32).contains(&after.late.wrapping_sub(before.late)) {
        let first = before.late as usize % LATE;
        (holder, over) = (after.late_holders[first], before.at.saturating_sub(after.late_since[first]));
    }
    if over != 0 {
        // Which of the readers was charged for that is not known. Most probably it is the one with the largest part.
        let slot = match holder {
            READERS => (0..=HOLDERS).max_by_key(|slot| parts.nanos[*slot]).unwrap_or(HOLDERS),
            holder => slot_of(&parts, holder),
        };
        parts.nanos[slot] = parts.nanos[slot].saturating_sub(over);
    }
    // The present holder has not paid yet.
    if !got && after.over != 0 {
        let present = if [0, READERS].contains(&after.holder) { cause::STILL_HELD } else { after.holder };
        let empty = || parts.holders[..HOLDERS].iter().position(|other| *other == 0);
        let slot = match slot_of(&parts, present) {
            HOLDERS => empty().unwrap_or(HOLDERS),
            slot => slot,
        };
        if slot < HOLDERS {
            parts.holders[slot] = present;
        }
        parts.nanos[slot] += after.over.min(nanos);
    }
    // The parts cannot be more than the wait. (They can seem so if a thread was preempted between two steps.)
    let mut rest = nanos;
    for part in &mut parts.nanos {
        *part = (*part).min(rest);
        rest -= *part;
    }
    let last = object.waiting.fetch_sub(1, AcqRel) == 1;
    filter::unwatch(address);
    if last && !got {
        // The next holder may acquire the lock without writing here.
        for known in [FREE, READERS] {
            let _ = object.holder.compare_exchange(known, 0, Relaxed, Relaxed);
        }
    }
    parts
}

/// A holder acquired the lock while threads wait, or after it waited itself.
pub(super) fn take(object: &Object, site: u32, now: u64, read: bool) {
    let holder = object.holder.load(Relaxed);
    // Other readers may hold the lock, and none is the one holder.
    let site = if read { READERS } else { site };
    if object.waiting.load(Relaxed) == 0 {
        if holder != 0 {
            object.holder.store(0, Relaxed);
        }
        return;
    }
    if read && holder != FREE {
        return;
    }
    locked(object, || {
        object.holder.store(site, Relaxed);
        object.charged_until.fetch_max(now, Relaxed);
        object.uncharged.store(0, Relaxed);
    });
}

/// A holder is about to release the lock. It pays for its part, as often as this stands for parts that are not paid.
pub(super) fn pay(object: &Object, payment: &Payment) {
    let &Payment { site, since, now, read, weight } = payment;
    let waiting = object.waiting.load(Relaxed) != 0;
    if !waiting {
        object.holder.store(0, Relaxed);
        return;
    }
    locked(object, || {
        let mut from = object.charged_until.load(Relaxed).max(object.first_waiter.load(Relaxed));
        let holder = object.holder.load(Relaxed);
        if holder == FREE || holder == READERS && !read {
            // A free section, of which the account did not know.
            from = from.max(since);
            let late = object.late.load(Relaxed);
            object.late_holders[late as usize % LATE].store(site, Relaxed);
            object.late_since[late as usize % LATE].store(from, Relaxed);
            object.late.store(late.wrapping_add(1), Relaxed);
        }
        let present = now.saturating_sub(from);
        let mut part = present << (weight % 64);
        let uncharged = if read { object.uncharged.load(Relaxed) } else { 0 };
        if read {
            let own = since.max(object.first_waiter.load(Relaxed));
            let held = match from.checked_sub(own) {
                Some(earlier) => present + earlier.min(uncharged),
                None => now.saturating_sub(own),
            };
            part = (held << (weight % 64)).min(present + uncharged);
        }
        object.uncharged.store((present + uncharged).saturating_sub(part), Relaxed);
        let slot = object.holders[..HOLDERS]
            .iter()
            .position(|holder| [0, site].contains(&holder.load(Relaxed)))
            .unwrap_or_else(|| replace(object));
        object.holders[slot].store(site, Relaxed);
        object.holder_nanos[slot].fetch_add(part, Relaxed);
        // A part of less than a microsecond counts, too.
        let more = (part / 1000).clamp(1, u64::from(u32::MAX)) as u32;
        object.recent[slot].store(object.recent[slot].load(Relaxed).saturating_add(more), Relaxed);
        if object.holder.load(Relaxed) == 0 && object.first_holder.load(Relaxed) == 0 {
            object.first_holder.store(if read { READERS } else { site }, Relaxed);
        }
        object.charged_until.fetch_max(now, Relaxed);
        object.holder.store(if read { READERS } else { FREE }, Relaxed);
    });
}

/// Makes room for a holder, in place of the one that caused the least waiting lately. The caller has the lock of the account.
///
/// What counts as lately: with each such change, all lose a sixteenth. So a holder that causes no waiting any more loses its place
/// after some hundred changes, however much it has caused before.
#[cold]
fn replace(object: &Object) -> usize {
    let recent = |slot: &usize| object.recent[*slot].load(Relaxed);
    let least = (0..HOLDERS).min_by_key(recent).unwrap_or(0);
    for other in &object.recent {
        let recent = other.load(Relaxed);
        other.store(recent - recent.div_ceil(16), Relaxed);
    }
    object.recent[least].store(0, Relaxed);
    let replaced = &object.replaced[least];
    replaced.store(replaced.load(Relaxed).wrapping_add(1), Relaxed);
    let nanos = object.holder_nanos[least].swap(0, Relaxed);
    object.holder_nanos[HOLDERS].fetch_add(nanos, Relaxed);
    least
}

/// Runs `change` under the lock of the account.
fn locked(object: &Object, change: impl FnOnce()) {
    let account: &AtomicU32 = &object.account;
    for _ in 0..PATIENCE {
        let version = account.load(Relaxed);
        if version & 1 == 0 && account.compare_exchange_weak(version, version + 1, Acquire, Relaxed).is_ok() {
            // A reader that sees a change sees the odd version, too.
            fence(Release);
            change();
            account.store(version.wrapping_add(2), Release);
            return;
        }
        spin_loop();
    }
    file::header().unaccounted.fetch_add(1, Relaxed);
}
