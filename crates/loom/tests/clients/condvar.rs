//! Clients of the condition variable, with every mutex.

use crate::machine::{DEADLINE, Loom, Mistake, Model, deep, one_fewer_daily};
use crate::mutex::{bounded, for_each_mutex};
use latchwork::locks::condvar::{RawCondvar, Ticket};
use latchwork::locks::mutex::RawMutex;
use latchwork::machine::{Deadline, Machine, Wait, Word};
use latchwork::registry::{self, Visitor};
use loom::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Items, and a condition variable for threads that wait for one.
struct Market<L> {
    mutex: L,
    arrived: ManuallyDrop<RawCondvar<Loom>>,
    items: UnsafeCell<usize>,
    taken: UnsafeCell<usize>,
}

// SAFETY: the cells are only used by the mutex's holders; if the mutex fails at that, loom tells.
unsafe impl<L: Sync> Sync for Market<L> {}

impl<L: RawMutex> Market<L> {
    fn new() -> Self {
        Market {
            mutex: L::new_in(),
            arrived: ManuallyDrop::new(RawCondvar::new_in()),
            items: UnsafeCell::new(0),
            taken: UnsafeCell::new(0),
        }
    }

    fn items(&self) -> usize {
        // SAFETY: the mutex is held, or nobody else runs.
        self.items.with(|items| unsafe { *items })
    }

    fn taken(&self) -> usize {
        // SAFETY: nobody else runs.
        self.taken.with(|taken| unsafe { *taken })
    }

    fn unlock(&self, token: L::Token) {
        // SAFETY: the token is from the caller's acquisition.
        unsafe { self.mutex.unlock(token) };
    }

    /// One wait, with the mutex held before and after.
    fn wait(&self, token: L::Token, deadline: Option<Deadline>) -> (L::Token, Wait) {
        let reason = self.arrived.wait(|| self.unlock(token), deadline);
        (self.mutex.lock(), reason)
    }

    /// Takes an item, if there is one; ends the section.
    fn take(&self, token: L::Token) {
        if self.items() > 0 {
            // SAFETY: the caller holds the mutex.
            self.items.with_mut(|items| unsafe { *items -= 1 });
            // SAFETY: the caller holds the mutex.
            self.taken.with_mut(|taken| unsafe { *taken += 1 });
        }
        self.unlock(token);
    }

    /// Offers items.
    fn offer(&self, count: usize) {
        // SAFETY: the caller holds the mutex.
        self.items.with_mut(|items| unsafe { *items += count });
    }
}

/// Waits for an item and takes it.
fn consumes<L: RawMutex>(market: &Market<L>) {
    let mut token = market.mutex.lock();
    while market.items() == 0 {
        token = market.wait(token, None).0;
    }
    market.take(token);
}

/// The same, until the deadline.
fn consumes_until<L: RawMutex>(market: &Market<L>) {
    let mut token = market.mutex.lock();
    while market.items() == 0 {
        let reason;
        (token, reason) = market.wait(token, Some(DEADLINE));
        if reason == Wait::TimedOut {
            break;
        }
    }
    market.take(token);
}

/// Waits once, until the deadline, and takes no item. If the thread was notified, it notifies another
/// thread instead.
fn passes_on<L: RawMutex>(market: &Market<L>) {
    let token = market.mutex.lock();
    let (token, reason) = market.wait(token, Some(DEADLINE));
    if reason == Wait::Woken {
        market.arrived.notify_one();
    }
    market.unlock(token);
}

/// Waits until it is notified, and then gives up as a thread that is cancelled. Does not wait if there is or was an item: then no
/// notification may come.
fn abandons<L: RawMutex>(market: &Market<L>) {
    let token = market.mutex.lock();
    if market.items() + market.taken() > 0 {
        return market.unlock(token);
    }
    let ticket = market.arrived.prepare();
    market.unlock(token);
    market.arrived.block(ticket, None);
    market.arrived.abandon(ticket);
}

/// Consumes, and notifies a thread that may still wait.
fn consumes_and_notifies<L: RawMutex>(market: &Market<L>) {
    consumes(market);
    market.arrived.notify_one();
}

/// Offers an item, and notifies with the mutex held.
fn produces<L: RawMutex>(market: &Market<L>) {
    let token = market.mutex.lock();
    market.offer(1);
    market.arrived.notify_one();
    market.unlock(token);
}

/// Offers an item, and notifies after the mutex has been released.
fn produces_then_notifies<L: RawMutex>(market: &Market<L>) {
    let token = market.mutex.lock();
    market.offer(1);
    market.unlock(token);
    market.arrived.notify_one();
}

/// Offers items, a notification for each, and wakes the waiters after the mutex has been released.
fn announces<L: RawMutex, const ITEMS: usize>(market: &Market<L>) {
    let token = market.mutex.lock();
    market.offer(ITEMS);
    let sleepers = (0..ITEMS).map(|_| market.arrived.announce(1).unwrap()).sum();
    market.unlock(token);
    if sleepers != 0 {
        RawCondvar::<Loom>::wake_announced(market.arrived.word(), sleepers);
    }
}

/// Forgets to wake them.
fn announces_only<L: RawMutex>(market: &Market<L>) {
    let token = market.mutex.lock();
    market.offer(1);
    let _ = market.arrived.announce(1);
    market.unlock(token);
}

/// Destroys the condition variable before it releases the mutex.
fn announces_and_destroys<L: RawMutex>(market: &Market<L>) {
    let token = market.mutex.lock();
    market.offer(2);
    let sleepers = market.arrived.announce(u32::MAX).unwrap();
    market.arrived.wait_until_quiet();
    market.unlock(token);
    if sleepers != 0 {
        RawCondvar::<Loom>::wake_announced(market.arrived.word(), sleepers);
    }
}

fn produces_twice<L: RawMutex>(market: &Market<L>) {
    produces_then_notifies(market);
    produces_then_notifies(market);
}

/// Offers two items, and notifies everybody.
fn produces_for_all<L: RawMutex>(market: &Market<L>) {
    let token = market.mutex.lock();
    market.offer(2);
    market.unlock(token);
    market.arrived.notify_all();
}

/// Offers two items, notifies everybody, and destroys the condition variable.
fn produces_and_destroys<L: RawMutex>(market: &Market<L>) {
    let token = market.mutex.lock();
    market.offer(2);
    market.arrived.notify_all();
    market.unlock(token);
    market.arrived.wait_until_quiet();
    let condvar = std::ptr::from_ref(&*market.arrived).cast_mut();
    // SAFETY: all waiters have been notified, and no thread waits any more. If a thread still touches the condition
    // variable, the words report that. No thread uses or drops it afterwards.
    unsafe { condvar.drop_in_place() };
}

/// Consumes like [`consumes`], but takes its ticket after it has counted itself in.
fn consumes_with_a_late_ticket<L: RawMutex<Machine = Loom>>(market: &Market<L>) {
    let mut token = market.mutex.lock();
    while market.items() == 0 {
        let condvar = &market.arrived;
        let ticket = condvar.prepare();
        let late = condvar.word().load(Relaxed);
        market.unlock(token);
        while condvar.word().load(Relaxed) == late {
            Loom::wait(condvar.word(), late, None);
        }
        condvar.finish(ticket, Wait::Woken);
        token = market.mutex.lock();
    }
    market.take(token);
}

/// Notifies a waiter for which there is nothing, and then one for which there is an item.
fn notifies_and_produces<L: RawMutex>(market: &Market<L>) {
    market.arrived.notify_one();
    produces_then_notifies(market);
}

/// What was taken when everybody has gone home.
fn sold<L: RawMutex, const TAKEN: usize>(market: &Market<L>) {
    assert_eq!((market.items(), market.taken()), (0, TAKEN));
    assert!(!market.arrived.has_waiters() && !market.mutex.is_locked());
}

/// Whether three threads with this mutex have few enough interleavings. It is the condition variable
/// that these clients are about; every mutex is in those of two threads.
fn for_three<L: RawMutex>() -> bool {
    deep() || ["tas", "mcs", "clh"].contains(&L::INFO.name)
}

/// One waits, one notifies, with the mutex held or not; up to 3 preemptions.
#[test]
fn waiter_and_notifier() {
    for_each_mutex!(L => bounded::<L>(3).check(Market::<L>::new, &[consumes, produces], sold::<L, 1>));
    for_each_mutex!(L => bounded::<L>(3).check(
        Market::<L>::new,
        &[consumes, produces_then_notifies],
        sold::<L, 1>
    ));
}

/// Two wait, two notifications for one each; up to 2 preemptions, 1 every day.
#[test]
fn two_waiters_two_notifications() {
    for_each_mutex!(L if for_three::<L>() => Model::new(one_fewer_daily(2)).check(
        Market::<L>::new,
        &[consumes, consumes, produces_twice],
        sold::<L, 2>
    ));
}

/// A notification may claim the waiter while it counts itself in; up to 3 preemptions.
#[test]
fn a_claimed_waiter_wakes_up() {
    for_each_mutex!(L if for_three::<L>() => Model::new(3).check(
        Market::<L>::new,
        &[consumes, notifies_and_produces],
        sold::<L, 1>
    ));
}

/// Seeded: a waiter takes its ticket after it has counted itself in. A notification in between claims it, and it sleeps on.
#[test]
fn finds_a_late_ticket() {
    for_each_mutex!(L if for_three::<L>() => Model::new(2).check_fails(
        Market::<L>::new,
        &[consumes_with_a_late_ticket, notifies_and_produces],
        sold::<L, 1>
    ));
}

/// Two wait, one notification for both; up to 2 preemptions.
#[test]
fn two_waiters_one_notification_for_all() {
    for_each_mutex!(L if for_three::<L>() => Model::new(2).check(
        Market::<L>::new,
        &[consumes, consumes, produces_for_all],
        sold::<L, 2>
    ));
}

/// A notification against a deadline. The items are counted right, whichever comes first; up to 2 preemptions.
#[test]
fn notification_against_deadline() {
    for_each_mutex!(L => Model::new(2).with_clock().check(
        Market::<L>::new,
        &[consumes_until, produces],
        |market| {
            assert_eq!(market.items() + market.taken(), 1);
            assert!(!market.arrived.has_waiters());
        }
    ));
}

/// A waiter that reports a timeout has not used up the only notification: the other one is woken;
/// up to 2 preemptions (with mcs, which has the most states, 1).
#[test]
fn timeouts_swallow_no_notification() {
    fn model<L: RawMutex>() -> Model {
        Model::new(2 - usize::from(L::INFO.name == "mcs"))
    }
    for_each_mutex!(L if for_three::<L>() => model::<L>().with_clock().check(
        Market::<L>::new,
        &[passes_on, consumes, produces],
        sold::<L, 1>
    ));
}

/// A waiter that is notified and then cancelled passes the notification on, so an item waits for no thread in vain; up to 2
/// preemptions. It does so before it counts itself out: then the condition variable may be destroyed (up to 3 preemptions).
#[test]
fn cancelled_waiters_swallow_no_notification() {
    for_each_mutex!(L if for_three::<L>() => Model::new(2).check(
        Market::<L>::new,
        &[abandons, consumes_and_notifies, produces],
        sold::<L, 1>
    ));
    for_each_mutex!(L if for_three::<L>() => Model::new(3).check(
        Market::<L>::new,
        &[abandons, produces_and_destroys],
        |market| assert_eq!(market.taken(), 0)
    ));
}

/// When all waiters have been notified and the condition variable is quiet, it may be destroyed; at
/// most 1 preemption, with two waiters, 2 with one.
#[test]
fn destroyed_when_quiet() {
    for_each_mutex!(L => Model::new(2).check(
        Market::<L>::new,
        &[consumes, produces_and_destroys],
        |market| assert_eq!(market.taken(), 1)
    ));
    for_each_mutex!(L if for_three::<L>() => Model::new(1).check(
        Market::<L>::new,
        &[consumes, consumes, produces_and_destroys],
        |market| assert_eq!(market.taken(), 2)
    ));
}

/// A notifier announces its notifications with the mutex held, and wakes the waiters when it has released it; up to 3 preemptions
/// (with three threads 2, 1 every day).
#[test]
fn announced_notifications() {
    for_each_mutex!(L => bounded::<L>(3).check(Market::<L>::new, &[consumes, announces::<L, 1>], sold::<L, 1>));
    for_each_mutex!(L if for_three::<L>() => Model::new(one_fewer_daily(2)).check(
        Market::<L>::new,
        &[consumes, consumes, announces::<L, 2>],
        sold::<L, 2>
    ));
}

/// Who waits until all waiters have left wakes those of an announcement; up to 2 preemptions.
#[test]
fn announced_and_destroyed() {
    for_each_mutex!(L if for_three::<L>() => Model::new(2).check(
        Market::<L>::new,
        &[consumes, announces_and_destroys],
        |market| assert_eq!(market.taken(), 1)
    ));
}

/// Seeded: an announced waiter is not woken.
#[test]
fn finds_announcement_without_wake() {
    for_each_mutex!(L if for_three::<L>() => Model::new(2).check_fails(
        Market::<L>::new,
        &[consumes, announces_only],
        sold::<L, 1>
    ));
}

/// Seeded: nobody is woken.
#[test]
fn finds_dropped_wake() {
    for_each_mutex!(L => Model::new(2)
        .with_mistake(Mistake::DroppedWake)
        .check_fails(Market::<L>::new, &[consumes, produces], sold::<L, 1>));
}

/// Seeded: a thread goes to sleep without a second look at the word.
#[test]
fn finds_sleep_without_a_look() {
    for_each_mutex!(L => Model::new(2)
        .with_mistake(Mistake::SleepsUnseen)
        .check_fails(Market::<L>::new, &[consumes, produces], sold::<L, 1>));
}

/// A condition variable with a waiter that is counted in, and does not sleep yet.
struct Counted {
    changed: ManuallyDrop<RawCondvar<Loom>>,
    ticket: Ticket,
    returned: <Loom as Machine>::U32,
}

impl Counted {
    fn new() -> Self {
        let changed = ManuallyDrop::new(RawCondvar::new_in());
        let ticket = changed.prepare();
        Counted { changed, ticket, returned: Word::new(0) }
    }

    /// What the waiter does.
    fn sleeps(&self) {
        let reason = self.changed.block(self.ticket, None);
        self.changed.finish(self.ticket, reason);
        self.returned.store(1, Relaxed);
        Loom::full_fence(); // as a mutex would order it with the look at the waiters
        self.changed.notify_all();
    }

    /// Another one, which waits until the first one has returned.
    fn comes_later(&self) {
        let ticket = self.changed.prepare();
        Loom::full_fence();
        let returned = self.returned.load(Relaxed) == 1;
        let reason = if returned { Wait::Woken } else { self.changed.block(ticket, None) };
        self.changed.finish(ticket, reason);
    }

    /// The same, if a notification has claimed the first one by then.
    fn comes_after_the_claim(&self) {
        if self.changed.is_notified(self.ticket) {
            self.comes_later();
        }
    }
}

/// A notification relies on another one's claim of that waiter, and a thread begins to wait after that, or unseen by it, but falls
/// asleep before the claimed one. That one returns nevertheless; up to 1 preemption: of the last thread, after its claim. (From then on
/// loom runs the thread that has yielded least, or the first of several. So the order of the threads decides which case this is.)
#[test]
fn a_later_waiter_takes_no_notification_away() {
    fn notifies_all(shared: &Counted) {
        shared.changed.notify_all();
    }
    fn notifies_one(shared: &Counted) {
        shared.changed.notify_one();
    }
    fn yields<const NOTIFIES: bool>(shared: &Counted) {
        loom::thread::yield_now();
        if NOTIFIES { notifies_all(shared) } else { shared.comes_later() }
    }
    let clients: [&[fn(&Counted)]; 2] = [
        &[yields::<true>, Counted::comes_later, Counted::sleeps, notifies_one],
        &[yields::<false>, Counted::sleeps, notifies_all, notifies_one],
    ];
    for threads in clients {
        let model = Model::new(1 + usize::from(deep()));
        crate::report("condvar", || model.check(Counted::new, threads, |_| ()));
    }
}

/// A thread of a real-time priority begins to wait between the claim and its wake. The claimed waiter returns nevertheless; up to
/// 2 preemptions.
#[test]
fn nor_does_one_of_a_higher_priority() {
    let threads: &[fn(&Counted)] =
        &[Counted::sleeps, |shared| shared.changed.notify_one(), Counted::comes_after_the_claim];
    let model = Model::new(2).with_real_time(2);
    crate::report("condvar", || model.check(Counted::new, threads, |_| ()));
}

/// A notification claims a thread of a real-time priority while that thread helps a waiter that is claimed already: it is due then, and
/// must not sleep. The next notification finds all waiters claimed, and wakes none; the thread returns nevertheless. At most 1
/// preemption (7 s of processor time), none every day.
#[test]
fn a_thread_that_helps_may_be_claimed() {
    let threads: &[fn(&Counted)] = &[
        |shared| {
            let reason = shared.changed.block(shared.ticket, None);
            shared.changed.finish(shared.ticket, reason);
        },
        |shared| shared.changed.notify_one(),
        |shared| {
            let ticket = shared.changed.prepare();
            shared.returned.store(1, Release); // it is counted
            let reason = shared.changed.block(ticket, None);
            shared.changed.finish(ticket, reason);
        },
        |shared| {
            shared.changed.notify_one();
            Loom::spin_until(&shared.returned, Acquire, |counted| counted == 1);
            shared.changed.notify_all();
        },
    ];
    let model = Model::new(one_fewer_daily(1)).with_real_time(2);
    crate::report("condvar", || model.check(Counted::new, threads, |_| ()));
}
