//! Threads against each other on one `pthread_mutex_t`.

use clap::Args;
use std::cell::UnsafeCell;
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[derive(Args)]
pub struct Contended {
    /// Threads.
    #[arg(long, default_value_t = 4)]
    threads: usize,
    /// How long.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Empty loop iterations inside the lock, beside the increment of a shared counter.
    #[arg(long, default_value_t = 0)]
    inside: u32,
    /// Empty loop iterations between unlock and lock.
    #[arg(long, default_value_t = 0)]
    think: u32,
}

#[derive(Args)]
pub struct Hold {
    /// Waiters.
    #[arg(long, default_value_t = 8)]
    waiters: usize,
    /// How long the lock is held.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
}

/// A mutex and the counter that it protects, not on one cache line.
struct Shared {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    _apart: [u64; 16],
    counter: UnsafeCell<u64>,
}

// SAFETY: the mutex is made for this, and the counter is only touched under it.
unsafe impl Sync for Shared {}

impl Shared {
    const fn new() -> Self {
        Shared {
            mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            _apart: [0; 16],
            counter: UnsafeCell::new(0),
        }
    }

    #[inline(always)]
    fn with(&self, section: impl FnOnce(&mut u64)) {
        // SAFETY: an initialised mutex that does not move; the counter is ours while we hold it.
        unsafe {
            libc::pthread_mutex_lock(self.mutex.get());
            section(&mut *self.counter.get());
            libc::pthread_mutex_unlock(self.mutex.get());
        }
    }
}

/// Seconds of processor time that the process has used.
fn cpu_seconds() -> f64 {
    // SAFETY: plain data, valid for writes.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

#[inline(always)]
fn idle(iterations: u32) {
    for i in 0..iterations {
        black_box(i);
    }
}

/// Acquisitions between two looks at the clock: reading it each time would cost more than the lock. So what is known is how
/// long a batch took, which under a FIFO lock has that many waits.
pub const BATCH: u64 = 16;

pub fn contended(options: &Contended) {
    let shared = Shared::new();
    let stop = AtomicBool::new(false);
    let start = Barrier::new(options.threads + 1);
    let (results, elapsed, cpu) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..options.threads)
            .map(|_| {
                scope.spawn(|| {
                    let (mut done, mut longest) = (0, Duration::ZERO);
                    start.wait();
                    let mut before = Instant::now();
                    while !stop.load(Ordering::Relaxed) {
                        for _ in 0..BATCH {
                            shared.with(|counter| {
                                *counter += 1;
                                idle(options.inside);
                            });
                            idle(options.think);
                        }
                        done += BATCH;
                        let now = Instant::now();
                        longest = longest.max(now - before);
                        before = now;
                    }
                    (done, longest)
                })
            })
            .collect();
        start.wait();
        let (began, cpu) = (Instant::now(), cpu_seconds());
        std::thread::sleep(Duration::from_secs_f64(options.seconds));
        stop.store(true, Ordering::Relaxed);
        let cpu = cpu_seconds() - cpu;
        let elapsed = began.elapsed();
        let results: Vec<_> = threads.into_iter().map(|t| t.join().expect("a worker")).collect();
        (results, elapsed, cpu)
    });
    let mut done: Vec<u64> = results.iter().map(|r| r.0).collect();
    done.sort_unstable();
    let total: u64 = done.iter().sum();
    assert_eq!(total, shared.counter.into_inner(), "updates were lost: the lock does not exclude");
    let better_half: u64 = done[done.len() / 2..].iter().sum();
    println!(
        "{}",
        serde_json::json!({
            "operations_per_second": total as f64 / elapsed.as_secs_f64(),
            "longest_batch_ms": results.iter().map(|r| r.1).max().unwrap_or_default().as_secs_f64() * 1e3,
            "fairness_factor": better_half as f64 / total as f64,
            "cpus_used": cpu / elapsed.as_secs_f64(),
        })
    );
}

pub fn hold(options: &Hold) {
    let shared = Shared::new();
    let arrived = AtomicUsize::new(0);
    let mut cpu = 0.0;
    std::thread::scope(|scope| {
        let mut workers = Vec::new();
        shared.with(|_| {
            for _ in 0..options.waiters {
                workers.push(scope.spawn(|| {
                    arrived.fetch_add(1, Ordering::Relaxed);
                    shared.with(|counter| *counter += 1);
                }));
            }
            while arrived.load(Ordering::Relaxed) < options.waiters {
                std::thread::sleep(Duration::from_millis(1));
            }
            let before = cpu_seconds();
            std::thread::sleep(Duration::from_secs_f64(options.seconds));
            cpu = cpu_seconds() - before;
        });
    });
    assert_eq!(shared.counter.into_inner(), options.waiters as u64, "a waiter did not get the lock");
    println!("{}", serde_json::json!({ "waiters_cpu_percent": cpu / options.seconds * 100.0 }));
}
