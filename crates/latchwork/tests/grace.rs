//! Threads share grace periods, and a grace period that does not end is reported. The test has a process of its own,
//! because it counts the grace periods of the process, and reads its stderr.

use latchwork::machine::record::STEP;
use latchwork::machine::{Machine, Native, Records};
use latchwork::reclaim::rcu::RcuDomain;
use latchwork::reclaim::stall;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::*};

/// Threads that wait at once.
const WAITERS: usize = 16;

/// How often threads have asked for a grace period, this call included: cookies are numbered.
fn asked(domain: &RcuDomain<Native>) -> u64 {
    let cookie = format!("{:?}", domain.start_poll());
    let number = cookie.strip_prefix("Cookie(").and_then(|rest| rest.strip_suffix(')'));
    number.and_then(|number| number.parse().ok()).expect("a number")
}

/// However many threads wait, they need no more grace periods than a single thread that came too late for the one that
/// was open.
fn waiters_share(domain: &RcuDomain<Native>) {
    // SAFETY: the test only reads the clocks.
    let periods = || unsafe { Native::clocks() }.grace.load(Relaxed) / STEP;
    let (inside, leave) = (&Barrier::new(2), &Barrier::new(2));
    let done = &AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let guard = domain.enter();
            inside.wait();
            leave.wait();
            drop(guard);
        });
        inside.wait();
        let (before, mut all) = (periods(), asked(domain) + WAITERS as u64);
        for number in 0..WAITERS {
            scope.spawn(move || {
                if number % 2 == 0 {
                    domain.synchronize()
                } else {
                    domain.synchronize_expedited()
                }
                done.fetch_add(1, Relaxed);
            });
        }
        // Until all threads have asked.
        while asked(domain) <= all {
            all += 1;
            std::thread::yield_now();
        }
        Native::doze(20_000_000); // nothing may happen meanwhile, however long this takes
        assert_eq!(done.load(Relaxed), 0, "a grace period ended with a reader inside");
        leave.wait();
        while done.load(Relaxed) < WAITERS {
            std::thread::yield_now();
        }
        let needed = periods() - before;
        assert!((1..=2).contains(&needed), "{needed} grace periods for {WAITERS} waiters");
    });
}

/// The line on stderr names the thread.
fn stalls_are_reported(domain: &RcuDomain<Native>) {
    domain.on_stall(stall::to_stderr);
    domain.set_stall_nanos(1_000_000);
    let (inside, leave) = (&Barrier::new(2), &Barrier::new(2));
    let thread = &AtomicUsize::new(0);
    let (read, write) = pipe();
    // SAFETY: system calls on this test's own descriptors; stderr is put back below.
    let stderr = unsafe {
        let kept = libc::dup(2);
        libc::dup2(write, 2);
        kept
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: the call takes no arguments and touches no memory.
            thread.store(unsafe { libc::gettid() } as usize, Relaxed);
            let guard = domain.enter();
            inside.wait();
            leave.wait();
            drop(guard);
        });
        inside.wait();
        let cookie = domain.start_poll();
        for _ in 0..60_000 {
            assert!(!domain.poll(cookie));
            Native::doze(1_000_000);
            if is_readable(&read) {
                break;
            }
        }
        leave.wait();
    });
    // SAFETY: system calls on this test's own descriptors.
    unsafe {
        libc::dup2(stderr, 2);
        libc::close(stderr);
        libc::close(write);
    }
    let text = std::io::read_to_string(read).expect("a report is text");
    let expected = format!("thread {} has held up a grace period for ", thread.load(Relaxed));
    assert!(text.contains(&expected), "{text:?}");
}

/// Whether the descriptor has something to read.
fn is_readable(file: &std::fs::File) -> bool {
    use std::os::fd::AsRawFd;
    let mut one = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, which is valid for writes; the call does not wait.
    unsafe { libc::poll(&mut one, 1, 0) == 1 }
}

/// Makes a pipe, and returns both ends.
fn pipe() -> (std::fs::File, i32) {
    use std::os::fd::FromRawFd;
    let mut ends = [0; 2];
    // SAFETY: the array is valid for writes; the descriptors are new.
    unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        (std::fs::File::from_raw_fd(ends[0]), ends[1])
    }
}

/// One test, because the two parts would disturb each other.
#[test]
fn grace_periods() {
    let domain = &RcuDomain::<Native>::new_in();
    waiters_share(domain);
    stalls_are_reported(domain);
}
