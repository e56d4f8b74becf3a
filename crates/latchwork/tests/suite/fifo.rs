//! Waiters under `SCHED_FIFO`. The holder runs on the same processor with a lower priority, so it runs only while the
//! waiter sleeps. A waiter that only spins and yields would keep the holder from running. The kernel then lets the holder
//! run once a second, or never on a machine where that is switched off.
//!
//! The torture's scenario `priorities` has threads of three priorities, which are preempted anywhere in a lock call.
//!
//! The test needs the right to use `SCHED_FIFO`. Without that right it prints so and passes.

use latchwork::locks::mutex::RawMutex;
use latchwork::locks::rwlock::RawRwLock;
use latchwork::machine::{Deadline, Machine, Native, Word};
use latchwork::registry::{Visitor, visit};
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::thread;

/// Nanoseconds of processor time for which the holder computes before it releases: longer than any waiter spins and
/// yields before it sleeps.
const SECTION: u64 = 20_000_000;

/// A deadline that never comes.
const NEVER: Deadline = Deadline { clock: latchwork::machine::Clock::Monotonic, nanos: u64::MAX };

/// Makes timed attempts, of a millisecond each, until one succeeds, as the preloaded library does for some waiters.
fn again_and_again<T>(mut attempt: impl FnMut(Deadline) -> Option<T>) -> T {
    loop {
        if let Some(token) = attempt(Deadline::after::<Native>(1_000_000)) {
            return token;
        }
    }
}

/// Keeps the calling thread, and the threads that it starts, on the processor where it runs now.
fn pin() {
    // SAFETY: the set is a plain value and valid for the calls.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0, "pinning");
    }
}

/// Gives the calling thread the lowest priority of `SCHED_FIFO`. Returns whether that is permitted.
fn become_urgent() -> bool {
    // SAFETY: the parameter is valid for the call.
    unsafe {
        let parameter = libc::sched_param { sched_priority: 1 };
        libc::pthread_setschedparam(libc::pthread_self(), libc::SCHED_FIFO, &parameter) == 0
    }
}

/// How often the calling thread has slept. A yield does not count.
fn sleeps() -> i64 {
    // SAFETY: zero bytes are a valid value, and it is valid for writes.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &mut usage), 0);
        usage.ru_nvcsw
    }
}

/// Nanoseconds that the calling thread has run.
fn own_time() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is valid for writes.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Runs `waits` in a thread under `SCHED_FIFO`. Meanwhile the calling thread, which holds what `waits` waits for,
/// computes, and then calls `release`. Prints for how long the waiter was awake: the processor time that it kept from
/// the holder.
fn meet(name: &str, what: &str, waits: impl FnOnce() + Send, release: impl FnOnce()) {
    let urgent = AtomicU32::new(0);
    let (slept, awake) = thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            assert!(become_urgent(), "permitted before");
            urgent.store(1, Release);
            let before = (sleeps(), own_time());
            waits();
            (sleeps() - before.0, own_time() - before.1)
        });
        while urgent.load(Acquire) == 0 {
            thread::yield_now();
        }
        let begin = own_time();
        while own_time() - begin < SECTION {
            std::hint::spin_loop();
        }
        release();
        waiter.join().unwrap()
    });
    eprintln!("{name:>16}: {what:<28} awake for {:>8.2} ms", awake as f64 / 1e6);
    assert!(slept > 0, "{name}: {what}: the waiter has not slept while the holder computed");
}

/// Each kind of waiter of each lock.
struct Locks;

impl Visitor<Native> for Locks {
    fn mutex<L: RawMutex<Machine = Native>>(&mut self) {
        let (lock, name) = (L::new_in(), L::INFO.name);
        // SAFETY: each token is from one acquisition, which the unlock ends.
        unsafe {
            let token = lock.lock();
            meet(name, "lock", || lock.unlock(lock.lock()), || lock.unlock(token));
            let token = lock.lock();
            let waits = || lock.unlock(lock.lock_until(NEVER).expect("it never comes"));
            meet(name, "lock with a deadline", waits, || lock.unlock(token));
            let token = lock.lock();
            let waits = || lock.unlock(again_and_again(|soon| lock.lock_until(soon)));
            meet(name, "lock, many deadlines", waits, || lock.unlock(token));
        }
    }

    fn rwlock<R: RawRwLock<Machine = Native>>(&mut self) {
        let (lock, name) = (R::new_in(), R::INFO.name);
        // SAFETY: each token is from one acquisition, which the unlock ends.
        unsafe {
            let token = lock.write();
            meet(name, "read", || lock.unlock_read(lock.read()), || lock.unlock_write(token));
            let token = lock.write();
            let waits = || lock.unlock_write(lock.write());
            meet(name, "write behind a writer", waits, || lock.unlock_write(token));
            // With a new lock, and after enough reads that a lock which adapts to readers has done so.
            for (warm, what) in [(0, "write behind a reader"), (64, "write, readers preferred")] {
                (0..warm).for_each(|_| lock.unlock_read(lock.read()));
                let token = lock.read();
                meet(name, what, || lock.unlock_write(lock.write()), || lock.unlock_read(token));
            }
            let token = lock.read();
            let waits = || lock.unlock_write(lock.write_until(NEVER).expect("it never comes"));
            meet(name, "write with a deadline", waits, || lock.unlock_read(token));
            let token = lock.write();
            let waits = || lock.unlock_read(lock.read_until(NEVER).expect("it never comes"));
            meet(name, "read with a deadline", waits, || lock.unlock_write(token));
            let token = lock.write();
            let waits = || lock.unlock_write(again_and_again(|soon| lock.write_until(soon)));
            meet(name, "write, many deadlines", waits, || lock.unlock_write(token));
        }
    }
}

#[test]
fn waiters_let_a_preempted_holder_run() {
    if !thread::spawn(become_urgent).join().unwrap() {
        eprintln!("skipped: SCHED_FIFO is not permitted");
        return;
    }
    pin();
    let word = AtomicU32::new(0);
    let waits = || {
        Native::spin_until(&word, Acquire, |word| word == 1);
    };
    meet("a word", "spin", waits, || Word::store(&word, 1, Release));
    visit(&mut Locks);
}
