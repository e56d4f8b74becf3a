use super::*;
use crate::locks::mutex::RawMutex;
use crate::locks::tests::in_threads;
use crate::registry::{Visitor, visit};
use core::cell::UnsafeCell;
use std::boxed::Box;
use std::thread;

const _: () = assert!(size_of::<RawCondvar<Native>>() == 8);

fn within(millis: u64) -> Option<Deadline> {
    Some(Deadline::after::<Native>(millis * 1_000_000))
}

/// Items in flight and the rest, under a raw mutex.
struct Market<L> {
    mutex: L,
    arrived: RawCondvar<Native>,
    taken: RawCondvar<Native>,
    /// On offer; consumed so far.
    items: UnsafeCell<(u32, u32)>,
}

// SAFETY: the items are accessed with the mutex held.
unsafe impl<L: Sync> Sync for Market<L> {}

const PATIENCE: u64 = 300_000;

impl<L: RawMutex<Machine = Native>> Market<L> {
    fn new() -> Self {
        Market {
            mutex: L::new_in(),
            arrived: RawCondvar::new(),
            taken: RawCondvar::new(),
            items: UnsafeCell::new((0, 0)),
        }
    }

    /// Waits on `condvar`; a wait of five minutes is a lost wakeup.
    fn wait(&self, condvar: &RawCondvar<Native>, token: L::Token) -> L::Token {
        // SAFETY: the token is the caller's acquisition.
        let reason = condvar.wait(|| unsafe { self.mutex.unlock(token) }, within(PATIENCE));
        assert_eq!(reason, Wait::Woken, "{}: a lost wakeup", L::INFO.name);
        self.mutex.lock()
    }

    fn assert_settled(&self, total: u32) {
        assert!(!self.arrived.has_waiters() && !self.taken.has_waiters());
        // SAFETY: all threads have finished.
        assert_eq!(unsafe { *self.items.get() }, (0, total));
    }

    fn consume(&self, total: u32, all: bool) {
        let items = self.items.get();
        let mut token = self.mutex.lock();
        // SAFETY: the mutex is held wherever the items are touched.
        unsafe {
            while (*items).1 < total {
                if (*items).0 == 0 {
                    token = self.wait(&self.arrived, token);
                    continue;
                }
                (*items).0 -= 1;
                (*items).1 += 1;
                if all { self.taken.notify_all() } else { self.taken.notify_one() }
            }
            self.mutex.unlock(token);
        }
        // The other consumers are done too.
        self.arrived.notify_all();
    }

    fn produce(&self, count: u32, all: bool) {
        let items = self.items.get();
        for i in 0..count {
            let mut token = self.mutex.lock();
            // SAFETY: the mutex is held wherever the items are touched.
            unsafe {
                loop {
                    if (*items).0 < 2 {
                        break;
                    }
                    token = self.wait(&self.taken, token);
                }
                (*items).0 += 1;
                if i % 2 == 0 {
                    self.mutex.unlock(token);
                }
                if all {
                    self.arrived.notify_all()
                } else {
                    self.arrived.notify_one()
                }
                if i % 2 != 0 {
                    self.mutex.unlock(token);
                }
            }
        }
    }
}

#[test]
fn producers_and_consumers_over_every_mutex() {
    struct All;
    impl Visitor<Native> for All {
        fn mutex<L: RawMutex<Machine = Native>>(&mut self) {
            for all in [false, true] {
                let market = &Market::<L>::new();
                in_threads(8, &|t| match t % 2 {
                    0 => market.consume(4 * 200, all),
                    _ => market.produce(200, all),
                });
                market.assert_settled(4 * 200);
            }
        }
    }
    visit(&mut All);
}

/// A waiter that reports a timeout has not used up a notification: one that ignores its
/// condition then must not keep the other from being woken.
#[test]
fn timeouts_do_not_swallow_notifications() {
    use crate::locks::mutex::ttas::RawTtas;
    const ITEMS: u32 = 1000;
    let market = &Market::<RawTtas<Native>>::new();
    thread::scope(|scope| {
        scope.spawn(|| market.consume(ITEMS, false));
        scope.spawn(|| {
            let items = market.items.get();
            market.mutex.lock();
            // SAFETY: the mutex is held wherever the items are touched.
            unsafe {
                while (*items).1 < ITEMS {
                    let deadline = Some(Deadline::after::<Native>(20_000));
                    let reason = market.arrived.wait(|| market.mutex.unlock(()), deadline);
                    market.mutex.lock();
                    if reason == Wait::Woken && (*items).0 > 0 {
                        (*items).0 -= 1;
                        (*items).1 += 1;
                        market.taken.notify_one();
                    }
                }
                market.mutex.unlock(());
            }
            market.arrived.notify_all();
        });
        scope.spawn(|| market.produce(ITEMS, false));
    });
    market.assert_settled(ITEMS);
}

#[test]
fn a_notification_without_waiters_leaves_no_trace() {
    let condvar = RawCondvar::new();
    condvar.notify_one();
    condvar.notify_all();
    assert_eq!(condvar.word().load(Relaxed), 0);
    // And is not kept for a waiter that comes later.
    assert_eq!(condvar.wait(|| (), within(2)), Wait::TimedOut);
}

#[test]
fn a_notification_between_unlock_and_sleep_is_seen() {
    let condvar = RawCondvar::new();
    assert_eq!(condvar.wait(|| condvar.notify_one(), None), Wait::Woken);
    assert_eq!(condvar.wait(|| condvar.notify_all(), None), Wait::Woken);
    // Also if the sleep ended with a timeout.
    let ticket = condvar.prepare();
    assert_eq!(condvar.block(ticket, within(0)), Wait::TimedOut);
    condvar.notify_one();
    assert_eq!(condvar.finish(ticket, Wait::TimedOut), Wait::Woken);
    assert!(!condvar.has_waiters());
}

#[test]
fn an_abandoned_notification_goes_to_the_next() {
    let condvar = RawCondvar::new();
    let leaver = condvar.prepare();
    condvar.notify_one();
    let other = condvar.prepare();
    condvar.abandon(leaver);
    assert_eq!(condvar.block(other, within(PATIENCE)), Wait::Woken);
    condvar.finish(other, Wait::Woken);
    // Without a notification there is nothing to hand on.
    let (leaver, other) = (condvar.prepare(), condvar.prepare());
    condvar.abandon(leaver);
    assert!(!condvar.is_notified(other));
    condvar.finish(other, Wait::TimedOut);
    assert!(!condvar.has_waiters());
}

/// A notification of one waiter is no answer to the deadline of another.
#[test]
fn the_others_time_out() {
    let woken = |millis| {
        let condvar = RawCondvar::<Native>::new();
        thread::scope(|scope| {
            let waiters = [(); 3].map(|()| scope.spawn(|| condvar.wait(|| (), within(millis))));
            while Waiters(condvar.waiters.load(Relaxed)).count() < 3
                && !waiters.iter().any(|waiter| waiter.is_finished())
            {
                thread::yield_now();
            }
            thread::sleep(core::time::Duration::from_millis(5)); // now they sleep
            condvar.notify_one();
            waiters.map(|waiter| waiter.join().unwrap()).iter().filter(|&&why| why == Wait::Woken).count()
        })
    };
    // On a busy machine the notification may come before a waiter sleeps, which then does not, or after all deadlines. And where a
    // debugger or a stop of the process interrupts the sleep, it may end. Then once more, with more time.
    assert!((1..=20).map(|attempt| woken(500 * attempt)).any(|woken| woken == 1), "never one alone");
}

/// A thread of a real-time priority begins to wait between a claim and its wake.
#[test]
fn a_thread_of_a_higher_priority_takes_no_notification_away() {
    let condvar = RawCondvar::<Native>::new();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| condvar.wait(|| (), within(PATIENCE)));
        while condvar.waiters.load(Relaxed) == 0 {
            thread::yield_now();
        }
        thread::sleep(core::time::Duration::from_millis(5)); // now it sleeps
        // A notification, up to its system call.
        condvar.waiters.fetch_add(Waiters::CLAIM, Relaxed);
        let before = condvar.sequence.fetch_add(1, Relaxed);
        let urgent = scope.spawn(|| {
            let parameters = libc::sched_param { sched_priority: 1 };
            // SAFETY: the parameters are valid, and nothing else is passed.
            if unsafe { libc::pthread_setschedparam(libc::pthread_self(), libc::SCHED_FIFO, &parameters) }
                != 0
            {
                std::println!("SKIPPED: real-time priorities are not permitted");
                condvar.notify_all();
                return;
            }
            let ticket = condvar.prepare();
            // The waiter leaves by this alone, and nobody has notified the caller.
            let left = (0..PATIENCE / 4).any(|_| {
                thread::sleep(core::time::Duration::from_millis(1));
                Waiters(condvar.waiters.load(Relaxed)).count() == 1
            });
            assert!(left, "the waiter sleeps on");
            assert_eq!(condvar.block(ticket, within(2)), Wait::TimedOut);
            assert_eq!(condvar.finish(ticket, Wait::TimedOut), Wait::TimedOut);
        });
        urgent.join().unwrap();
        assert_eq!(waiter.join().unwrap(), Wait::Woken);
        assert_ne!(condvar.sequence.load(Relaxed), before);
    });
    assert!(!condvar.has_waiters());
}

/// Destroyed by the notifier while the waiters are on their way out.
#[test]
fn it_can_be_freed_once_quiet() {
    use core::sync::atomic::AtomicUsize;
    for _ in 0..200 {
        let condvar = Box::new(RawCondvar::<Native>::new());
        let left = AtomicUsize::new(0);
        thread::scope(|scope| {
            let shared: &RawCondvar<Native> = &condvar;
            for _ in 0..3 {
                scope.spawn(|| {
                    assert_eq!(shared.wait(|| (), within(PATIENCE)), Wait::Woken);
                    left.fetch_add(1, Relaxed);
                });
            }
            while shared.waiters.load(Relaxed) != 3 {
                thread::yield_now();
            }
            shared.notify_all();
            shared.wait_until_quiet();
            assert_eq!(shared.waiters.load(Relaxed), 0);
        });
        drop(condvar);
        assert_eq!(left.into_inner(), 3);
    }
}

#[test]
fn through_lock_api() {
    use crate::locks::mutex::clh::RawClh;
    use crate::locks::{ClhMutex, CondvarOver, TasMutex};
    use core::time::Duration;
    static TURN: ClhMutex<u32> = ClhMutex::new(0);
    static CHANGED: CondvarOver<RawClh<Native>> = CondvarOver::new();
    thread::scope(|scope| {
        for me in 0..6 {
            scope.spawn(move || {
                for round in 0..20 {
                    let mut turn = TURN.lock();
                    CHANGED.wait_while(&mut turn, |turn| *turn != round * 6 + me);
                    *turn += 1;
                    CHANGED.notify_all();
                }
            });
        }
    });
    assert_eq!(*TURN.lock(), 120);

    let (mutex, condvar) = (TasMutex::new(()), CondvarOver::new());
    let mut guard = mutex.lock();
    assert!(condvar.wait_for(&mut guard, Duration::from_millis(2)).timed_out());
    assert!(mutex.try_lock().is_none(), "not locked again after a timeout");
    assert!(condvar.wait_until(&mut guard, std::time::Instant::now()).timed_out());
}

/// A notification that finds all waiters claimed advances the number: those that do not sleep yet will not, behind a later waiter.
#[test]
fn a_notification_that_needs_no_wake_advances_the_number() {
    let condvar = RawCondvar::<Native>::new();
    let ticket = condvar.prepare();
    for (notified, sleepers) in [(1, 1), (2, 0), (3, 0)] {
        assert_eq!(condvar.announce(1), Some(sleepers));
        assert_eq!(condvar.word().load(Relaxed), ticket.value() + notified);
    }
    assert_eq!(condvar.finish(ticket, Wait::TimedOut), Wait::Woken);
    assert_eq!((condvar.announce(1), condvar.word().load(Relaxed)), (Some(0), ticket.value() + 3));
}
