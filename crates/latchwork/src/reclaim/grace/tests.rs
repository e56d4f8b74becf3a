use super::super::rcu::General;
use super::*;
use crate::machine::record;
use std::sync::Barrier;
use std::thread;

/// A request to be in a hurry that comes while a leader is about to end a grace period for earlier tickets is not lost.
#[test]
fn a_leader_that_ends_leaves_later_requests_alone() {
    let grace = Grace::<Native, General>::native();
    let (inside, leave) = (&Barrier::new(2), &Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            let word = General::word(record::own::<Native>());
            word.store(General::clock(record::clocks::<Native>()).load(Acquire), Release);
            Native::light_fence();
            inside.wait();
            leave.wait();
            word.store(0, Release);
        });
        inside.wait();
        let first = grace.start();
        assert!(!grace.poll(first, &|_| ()), "a reader is in the way of the grace period that is open now");
        let second = grace.start();
        grace.hurry_up(second);
        grace.hurry_up(first); // a request for an earlier ticket takes nothing back
        leave.wait();
        while !grace.is_over(first) {
            let leading = grace.gate.try_lock().expect("no other thread leads");
            grace.lead(None);
            drop(leading);
        }
        assert!(!grace.is_over(second), "it needs a grace period of its own");
        assert!(grace.is_hurried(), "the request is lost");
        assert!(grace.wait(second, Pace::Normal, None, &|_| ()) && !grace.is_hurried());
    });
}

/// One poll ends the grace period that is open, and the one that the ticket needs. It opens none that no ticket needs.
#[test]
fn a_poll_takes_as_many_grace_periods_as_the_ticket_needs() {
    use super::super::rcu::RcuDomain;
    assert!(super::super::forks::in_a_child(|| {
        let (domain, grace) = (RcuDomain::<Native>::new(), Grace::<Native, General>::native());
        let time = || General::clock(record::clocks::<Native>()).load(Relaxed);
        let section = domain.enter();
        let before = time();
        let waits = !grace.poll(grace.start(), &|_| ());
        let named = grace.stall().is_some();
        drop(section);
        let named_after = grace.stall().is_some();
        let over = grace.poll(grace.start(), &|_| ()) && grace.poll(grace.start(), &|_| ());
        waits && named && !named_after && over && time() == before + 3 * STEP
    }));
}

/// Half of all times later, what nobody has said anything about meanwhile says nothing: neither the time that all readers of
/// QSBR had reached, nor the word of a thread that has gone offline.
#[test]
fn old_times_are_not_later_ones() {
    use super::super::qsbr::QsbrDomain;
    use super::super::{Reader, Reclaim};
    assert!(super::super::forks::in_a_child(|| {
        let domain = QsbrDomain::<Native>::new_in();
        domain.barrier();
        let clock = &record::clocks::<Native>().grace;
        for _ in 0..3 {
            clock.fetch_add(1 << 62, AcqRel);
            super::super::rcu::global().synchronize();
        }
        let (inside, leave) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                let reader = domain.reader();
                let _guard = reader.enter();
                inside.wait();
                leave.wait();
            });
            inside.wait();
            let waits = !domain.poll(domain.start_poll());
            leave.wait();
            waits
        })
    }));
}

/// Where a filter refuses `membarrier` after the first grace period, none ends any more. That is told of, with no thread.
fn a_refused_fence_is_told_of<F: super::super::domain::Flavour>() {
    use super::super::Reader;
    use crate::machine::alone::refuse;
    use std::sync::{Arc, Mutex};
    use std::vec::Vec;
    // In a child, where no other test's grace periods serve this one.
    let check = || {
        let domain = &super::super::domain::Domain::<Native, F>::new_in();
        drop(F::reader(domain).enter()); // so that this thread does not rest
        let told = Arc::new(Mutex::new(Vec::new()));
        domain.set_stall_nanos(1_000_000);
        domain.on_stall({
            let told = told.clone();
            move |stall| told.lock().unwrap().push(*stall)
        });
        let refused = thread::scope(|scope| {
            let refused = scope.spawn(|| {
                refuse(libc::SYS_membarrier, None);
                let cookie = domain.start_poll();
                let mut over = false;
                while told.lock().unwrap().len() < 2 {
                    over |= domain.poll(cookie);
                    thread::yield_now();
                }
                !over
            });
            refused.join().unwrap()
        });
        domain.synchronize();
        refused && told.lock().unwrap().iter().all(|stall| stall.thread == 0 && stall.nanos >= 1_000_000)
    };
    if Native::prepare_fences() {
        assert!(super::super::forks::in_a_child(check), "{}", F::INFO.name);
    }
}

#[test]
fn refused_fences_are_told_of() {
    a_refused_fence_is_told_of::<General>();
    a_refused_fence_is_told_of::<super::super::epoch::Epoch>();
}

/// A grace period needs no heavy fence where the other threads have read nothing since they have retired a batch, or have
/// begun a section since it was opened; but it does where a thread has read since.
#[test]
fn threads_that_rest_cost_no_heavy_fence() {
    use super::super::rcu::RcuDomain;
    use super::super::strategy::GracePeriod;
    use crate::machine::alone::refuse;
    let check = || {
        let domain = &RcuDomain::<Native>::new_in();
        let reads = || drop(domain.enter());
        let retires = || (0..1000).for_each(|_| domain.defer(|| ()));
        let (begin, end) = (&Barrier::new(2), &Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                let does = |work: &dyn Fn()| {
                    begin.wait();
                    work();
                    end.wait();
                };
                does(&|| _ = record::own::<Native>());
                does(&reads);
                does(&reads);
                does(&reads);
                does(&retires);
            });
            refuse(libc::SYS_membarrier, None);
            let other = || {
                begin.wait();
                end.wait();
            };
            let ends = || domain.poll(domain.start_poll());
            other();
            let before_its_first_section = ends();
            other();
            let cookie = domain.start_poll();
            let after_a_section = domain.poll(cookie);
            other(); // with the time of the grace period that is open, which may be one for an earlier ticket
            domain.poll(cookie);
            other();
            let after_a_later_section = domain.poll(cookie);
            other();
            let after_a_batch = ends();
            before_its_first_section && !after_a_section && after_a_later_section && after_a_batch
        })
    };
    if !Native::prepare_fences() {
        return;
    }
    assert!(super::super::forks::in_a_child(check));
}

/// Times wrap around: a reader that began before is still in the way, and one that began after is not.
#[test]
fn times_wrap_around() {
    let (before, after) = ((TIME - STEP) | 1, STEP | 1);
    assert!(is_at_least(after, before) && !is_at_least(before, after) && is_at_least(before, before));
    assert!(has_reached(after, before) && !has_reached(before, after));
    assert!(has_reached(before & !NESTING, after), "it is outside");
    let vouches = |word: u64, time| tree::vouches(word | tree::ALL, time, &|| after);
    assert!(vouches(after, before) && !vouches(before, after));
}
