//! Tests of forks: what a child that goes on may rely on.

use super::counted::CountedDomain;
use super::domain::{Domain, Flavour};
use super::epoch::EpochDomain;
use super::grace::{Grace, Periods, Stamps};
use super::hazard::HazardDomain;
use super::interval::IntervalDomain;
use super::qsbr::QsbrDomain;
use super::rcu::RcuDomain;
use super::section::{SectionGuard, SectionReader};
use super::strategy::Info;
use super::*;
use crate::machine::record::{self, Clocks, Record, STEP, TIME};
use crate::machine::{Deadline, Machine, Native};
use core::cell::RefCell;
use core::sync::atomic::Ordering::*;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::boxed::Box;
use std::sync::{Arc, Barrier};

std::thread_local! {
    /// What the calling thread does when it takes its next ticket.
    static AT_TICKET: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// General-purpose RCU with [`AT_TICKET`].
struct Interrupted;

/// Its grace periods.
struct Tickets<M: Machine>(Grace<M, Interrupted>);

// SAFETY: sections are those of general-purpose RCU.
unsafe impl Stamps for Interrupted {
    fn word<M: Machine>(record: &Record<M>) -> &M::U64 {
        rcu::General::word(record)
    }
    fn clock<M: Machine>(clocks: &Clocks<M>) -> &M::U64 {
        rcu::General::clock(clocks)
    }
}

// SAFETY: `Grace` waits for the sections of `SectionReader`.
unsafe impl Flavour for Interrupted {
    const INFO: Info = <rcu::General as Flavour>::INFO;
    type Periods<M: Records> = Tickets<M>;
    type Reader<'d, M: Records> = SectionReader<'d, M, Self>;
    fn reader<M: Records>(domain: &Domain<M, Self>) -> SectionReader<'_, M, Self> {
        SectionReader::new(domain)
    }
}

// SAFETY: those of `Grace`.
unsafe impl<M: Records> Periods for Tickets<M> {
    fn new() -> Self {
        Tickets(Grace::new())
    }
    fn start(&self) -> u64 {
        if let Some(body) = AT_TICKET.with_borrow_mut(Option::take) {
            body();
        }
        self.0.start()
    }
    fn is_over(&self, ticket: u64) -> bool {
        self.0.is_over(ticket)
    }
    fn poll(&self, ticket: u64, tell: &dyn Fn(&Stall)) -> bool {
        self.0.poll(ticket, tell)
    }
    fn wait(&self, ticket: u64, pace: Pace, deadline: Option<Deadline>, tell: &dyn Fn(&Stall)) -> bool {
        self.0.wait(ticket, pace, deadline, tell)
    }
    fn stall(&self) -> Option<Stall> {
        self.0.stall()
    }
    fn set_patience(&self, nanos: u64) {
        self.0.set_patience(nanos);
    }
}

/// Runs `body` in a child, and returns whether it returned `true` there.
pub(super) fn in_a_child(body: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child reclaims, which frees memory (the C library sees to its locks), and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends a child that hangs.
        unsafe { libc::alarm(300) };
        let ok = body();
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!ok)) };
    }
    let mut status = -1;
    // SAFETY: the child is ours and `status` valid.
    unsafe { libc::waitpid(child, &mut status, 0) };
    status == 0
}

/// In a child, so that other tests do not see it: lets a clock advance until it is about to wrap around. It makes jumps that are
/// smaller than half of all times, and calls `catch_up` after each.
pub(super) fn advance_to_the_end(clock: &AtomicU64, catch_up: impl Fn()) {
    const NEAR: u64 = TIME - 4 * STEP;
    while clock.load(Relaxed) & TIME < NEAR {
        let left = NEAR - (clock.load(Relaxed) & TIME);
        clock.fetch_add(left.min(1 << 62), Relaxed);
        catch_up();
    }
}

/// A thread forks inside of a section, while another thread is about to have retired objects wait for a grace period. In the
/// child, the section goes on and protects what it has found: no object waits with an earlier ticket than its own.
fn a_section_protects_in_the_child(
    collect: fn(&Domain<Native, Interrupted>),
    in_child: fn(&Domain<Native, Interrupted>),
) {
    let domain = &Domain::<Native, Interrupted>::new_in();
    domain.never_soon(); // or `defer` may take the ticket
    let reclaimed = Arc::new(AtomicBool::new(false));
    let (inside, leave) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let guard = SectionGuard::<Native, Interrupted>::new(record::own::<Native>());
    let protected = std::thread::scope(|scope| {
        scope.spawn(|| {
            let (reclaimed, inside, leave) = (reclaimed.clone(), inside.clone(), leave.clone());
            domain.defer(move || reclaimed.store(true, Relaxed));
            AT_TICKET.set(Some(Box::new(move || {
                inside.wait();
                leave.wait();
            })));
            collect(domain);
        });
        inside.wait();
        let protected = in_a_child(|| {
            in_child(domain);
            !reclaimed.load(Relaxed)
        });
        leave.wait();
        drop(guard);
        protected
    });
    assert!(protected, "a retired object was reclaimed under a section that may have found it");
    domain.barrier();
    assert!(reclaimed.load(Relaxed));
}

#[test]
fn a_section_protects_in_the_child_what_the_collector_had() {
    a_section_protects_in_the_child(Domain::barrier, Domain::collect);
}

/// A new thread of the child gets the list of the thread that is not there.
#[test]
fn a_section_protects_in_the_child_what_another_thread_had() {
    a_section_protects_in_the_child(Domain::collect, |domain| {
        let _collecting = domain.backlog.lock(); // so that the new threads steal nothing
        let all_there = Barrier::new(40); // more threads than a group of records has entries
        std::thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| {
                    record::own::<Native>();
                    all_there.wait();
                    domain.collect();
                });
            }
        });
    });
}

/// A thread is in the hook at the fork, and is not there in the child: there the hook is called all the same.
#[test]
fn a_child_is_told_of_stalls() {
    let domain = &rcu::RcuDomain::<Native>::new();
    let (inside, leave) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let calls = Arc::new(AtomicUsize::new(0));
    domain.set_stall_nanos(1);
    domain.on_stall({
        let (inside, leave, calls) = (inside.clone(), leave.clone(), calls.clone());
        move |_| {
            if calls.fetch_add(1, Relaxed) == 0 {
                inside.wait();
                leave.wait();
            }
        }
    });
    let stall = || {
        domain.defer(|| ());
        domain.collect();
    };
    let told = std::thread::scope(|scope| {
        let _guard = domain.enter();
        scope.spawn(stall);
        inside.wait();
        let told = in_a_child(|| {
            stall();
            calls.load(Relaxed) > 1
        });
        leave.wait();
        told
    });
    assert!(told, "the hook was not called in the child");
}

/// An object whose destructor waits until another thread says that it may go on.
#[repr(C)]
struct Slow {
    header: Header,
    inside: Arc<Barrier>,
    leave: Arc<Barrier>,
}

// SAFETY: `repr(C)`, the header first; made by boxes.
unsafe impl Retire for Slow {}

impl Drop for Slow {
    fn drop(&mut self) {
        self.inside.wait();
        self.leave.wait();
    }
}

/// The collector, which is not there in the child, is reclaiming an object at the fork, and has others of which it has found
/// out that they are not in use. The child has lost them, and neither waits for them nor counts them.
fn a_child_waits_for_no_lost_object<D: Reclaim<Machine = Native>>() {
    let domain = &D::new_in();
    let (inside, leave) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let left = std::thread::scope(|scope| {
        scope.spawn(|| {
            let (inside, leave) = (inside.clone(), leave.clone());
            let slow = Box::new(Slow { header: Header::new(), inside, leave });
            // SAFETY: no other thread has it.
            unsafe { domain.retire(Box::into_raw(slow)) };
            domain.barrier();
        });
        inside.wait();
        let left = in_a_child(|| {
            domain.barrier();
            domain.garbage() == Garbage::default()
        });
        leave.wait();
        left
    });
    assert!(left, "{}: the child has garbage left, or waits for ever", D::INFO.name);
}

#[test]
fn a_child_waits_for_no_object_that_the_collector_had() {
    a_child_waits_for_no_lost_object::<RcuDomain<Native>>();
    a_child_waits_for_no_lost_object::<EpochDomain<Native>>();
    a_child_waits_for_no_lost_object::<QsbrDomain<Native>>();
    a_child_waits_for_no_lost_object::<HazardDomain<Native>>();
    a_child_waits_for_no_lost_object::<CountedDomain<Native>>();
    a_child_waits_for_no_lost_object::<IntervalDomain<Native>>();
}
