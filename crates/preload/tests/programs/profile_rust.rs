//! As profile.c, for a Rust program. The locks of Rust's standard library park in the kernel, and no library sees them. So this
//! program has what others have that park by pthread: a mutex, and a parker over a mutex and a condition variable.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::*};
use std::thread;
use std::time::{Duration, Instant};

#[repr(C, align(8))]
struct Raw([u8; 48]);

#[link(name = "pthread")]
unsafe extern "C" {
    fn pthread_mutex_lock(mutex: *mut Raw) -> i32;
    fn pthread_mutex_unlock(mutex: *mut Raw) -> i32;
    fn pthread_cond_wait(cond: *mut Raw, mutex: *mut Raw) -> i32;
    fn pthread_cond_signal(cond: *mut Raw) -> i32;
}

/// A mutex of pthread's around a value.
struct Locked<T> {
    raw: UnsafeCell<Raw>,
    value: UnsafeCell<T>,
}
unsafe impl<T: Send> Sync for Locked<T> {}

impl<T> Locked<T> {
    const fn new(value: T) -> Self {
        // Zero bytes are an unlocked mutex in glibc.
        Locked { raw: UnsafeCell::new(Raw([0; 48])), value: UnsafeCell::new(value) }
    }

    fn lock(&self) -> Guard<'_, T> {
        assert_eq!(unsafe { pthread_mutex_lock(self.raw.get()) }, 0);
        Guard(self)
    }
}

struct Guard<'a, T>(&'a Locked<T>);
impl<T> Guard<'_, T> {
    fn value(&mut self) -> &mut T {
        unsafe { &mut *self.0.value.get() }
    }
}
impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        assert_eq!(unsafe { pthread_mutex_unlock(self.0.raw.get()) }, 0);
    }
}

/// Lets one thread sleep until another one calls [`unpark`](Self::unpark).
struct Parker {
    notified: Locked<bool>,
    cond: UnsafeCell<Raw>,
}
unsafe impl Sync for Parker {}

impl Parker {
    fn park(&self) {
        let mut guard = self.notified.lock();
        while !*guard.value() {
            unsafe { pthread_cond_wait(self.cond.get(), self.notified.raw.get()) };
        }
        *guard.value() = false;
    }

    fn unpark(&self) {
        *self.notified.lock().value() = true;
        unsafe { pthread_cond_signal(self.cond.get()) };
    }
}

static COUNTER: Locked<u64> = Locked::new(0);
static PARKER: Parker = Parker { notified: Locked::new(false), cond: UnsafeCell::new(Raw([0; 48])) };
/// What the recorder does not see.
static OF_STD: std::sync::Mutex<u64> = std::sync::Mutex::new(0);

static HELD: AtomicI32 = AtomicI32::new(0);
static STARTED: AtomicBool = AtomicBool::new(false);
static WAITED: AtomicU64 = AtomicU64::new(0);
static HELD_NANOS: AtomicU64 = AtomicU64::new(0);

fn since(start: Instant) -> u64 {
    start.elapsed().as_nanos() as u64
}

#[inline(never)]
fn culprit() {
    let start = Instant::now();
    let mut guard = COUNTER.lock();
    WAITED.fetch_add(since(start), Relaxed);
    let got = Instant::now();
    *guard.value() += 1;
    HELD.fetch_add(1, Release);
    thread::sleep(Duration::from_millis(20));
    HELD_NANOS.fetch_add(since(got), Relaxed);
    drop(guard);
    *OF_STD.lock().unwrap() += 1;
}

#[inline(never)]
fn victim() {
    let start = Instant::now();
    let mut guard = COUNTER.lock();
    WAITED.fetch_add(since(start), Relaxed);
    let got = Instant::now();
    *guard.value() += 1;
    HELD_NANOS.fetch_add(since(got), Relaxed);
    drop(guard);
    *OF_STD.lock().unwrap() += 1;
}

fn main() {
    const ROUNDS: i32 = 8;
    let parked = thread::spawn(|| {
        STARTED.store(true, Release);
        let start = Instant::now();
        PARKER.park();
        since(start)
    });
    while !STARTED.load(Acquire) {
        thread::yield_now();
    }
    for round in 0..ROUNDS {
        let holder = thread::spawn(culprit);
        while HELD.load(Acquire) <= round {
            thread::sleep(Duration::from_micros(100));
        }
        let waiters: Vec<_> = (0..2).map(|_| thread::spawn(victim)).collect();
        holder.join().unwrap();
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    }
    PARKER.unpark();
    let idle = parked.join().unwrap();
    println!("count {} acquisitions", 3 * ROUNDS);
    println!("time {} wait\ntime {} hold\ntime {idle} idle", WAITED.load(Relaxed), HELD_NANOS.load(Relaxed));
    println!("ok");
}
