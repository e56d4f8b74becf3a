//! System calls, sleeping, waking and interrupts.

use super::memory::each;
use super::sample::Sample;
use super::threads::{Helper, on, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

/// Rounds of what takes long.
const ROUNDS: usize = 101;

fn futex(word: &AtomicU32, operation: i32, value: u32) -> i64 {
    // SAFETY: a valid word, no timeout, no second word.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            operation | libc::FUTEX_PRIVATE_FLAG,
            value,
            std::ptr::null::<libc::timespec>(),
        )
    }
}

/// Sleeps until `word` is not `value`.
fn sleep_while(word: &AtomicU32, value: u32) {
    while word.load(Acquire) == value {
        futex(word, libc::FUTEX_WAIT, value);
    }
}

/// Sets `word` and wakes a thread that sleeps on it.
fn set(word: &AtomicU32, value: u32) {
    word.store(value, Release);
    futex(word, libc::FUTEX_WAKE, 1);
}

/// An empty system call.
pub fn syscall(cpu: usize) -> Sample {
    each(cpu, || {
        // SAFETY: no arguments, no memory.
        unsafe { libc::syscall(libc::SYS_getppid) };
    })
}

/// Waking a sleeper: what it costs the waker, and how long after that the sleeper runs.
pub struct Wake {
    /// The waker's system call.
    pub call: Sample,
    /// From the call's return to the sleeper's.
    pub latency: Sample,
}

/// A waker on one CPU, a sleeper on another one or on the same, which has slept for `idle`.
pub fn wake(waker: usize, sleeper: usize, idle: Duration) -> Wake {
    let start = Instant::now();
    let nanos = || start.elapsed().as_nanos() as u64;
    let (word, woken) = (AtomicU32::new(0), AtomicU64::new(0));
    let mut calls = Vec::new();
    let mut latencies = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(sleeper);
            for round in 0..ROUNDS as u32 {
                sleep_while(&word, round);
                woken.store(nanos(), Release);
            }
        });
        on(waker, || {
            for round in 0..ROUNDS as u32 {
                woken.store(0, Relaxed);
                // Time for the other thread to fall asleep. With more, its processor would sleep deeper than it does
                // between two acquisitions. A sleep would last for longer than a short time.
                let asleep = Instant::now();
                match idle {
                    short if short < Duration::from_micros(100) => {
                        while asleep.elapsed() < short {
                            std::hint::spin_loop();
                        }
                    }
                    long => std::thread::sleep(long),
                }
                let before = nanos();
                set(&word, round + 1);
                let after = nanos();
                let woken = loop {
                    match woken.load(Acquire) {
                        0 if waker == sleeper => std::thread::sleep(Duration::from_micros(50)),
                        0 => std::hint::spin_loop(),
                        time => break time,
                    }
                };
                calls.push((after - before) as f64);
                latencies.push(woken as f64 - after as f64);
            }
        });
    });
    Wake { call: Sample::of(&calls), latency: Sample::of(&latencies) }
}

/// From one thread to the next on a CPU, handing over by futex: the whole hand-over.
pub fn hand_over(cpu: usize) -> Sample {
    const HANDS: u32 = 200;
    let word = AtomicU32::new(0);
    let mut values = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(cpu);
            for turn in 0..ROUNDS as u32 * HANDS {
                sleep_while(&word, turn * 2);
                set(&word, turn * 2 + 2);
            }
        });
        on(cpu, || {
            for round in 0..ROUNDS as u32 {
                let start = Instant::now();
                for turn in round * HANDS..(round + 1) * HANDS {
                    set(&word, turn * 2 + 1);
                    sleep_while(&word, turn * 2 + 1);
                }
                values.push(start.elapsed().as_nanos() as f64 / f64::from(2 * HANDS));
            }
        });
    });
    Sample::of(&values)
}

/// How long a busy thread runs while another one wants its CPU: the length of the gaps in the other's
/// time.
pub fn quantum(cpu: usize) -> Option<Sample> {
    const LONG: Duration = Duration::from_micros(200);
    let gaps = || {
        pin(cpu);
        let (start, mut last, mut gaps) = (Instant::now(), Instant::now(), Vec::new());
        while start.elapsed() < Duration::from_millis(250) {
            let now = Instant::now();
            if now - last > LONG {
                gaps.push((now - last).as_nanos() as f64);
            }
            last = now;
        }
        gaps
    };
    let gaps = std::thread::scope(|scope| {
        let both = [scope.spawn(gaps), scope.spawn(gaps)];
        both.into_iter().flat_map(|thread| thread.join().expect("it cannot panic")).collect::<Vec<f64>>()
    });
    (gaps.len() >= 5).then(|| Sample::of(&gaps))
}

/// The times of `membarrier` while another thread of the process spins on `other`. `None` if the
/// kernel has none.
pub fn membarrier(cpu: usize, other: Option<usize>) -> Option<Vec<f64>> {
    const PRIVATE_EXPEDITED: i32 = 1 << 3;
    const REGISTER: i32 = 1 << 4;
    // SAFETY: the call takes no pointers.
    let barrier = |command: i32| unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    if barrier(REGISTER) != 0 {
        return None;
    }
    let measure = || {
        let round = |_| {
            let start = Instant::now();
            barrier(PRIVATE_EXPEDITED);
            start.elapsed().as_nanos() as f64
        };
        (0..ROUNDS * 5).map(round).collect()
    };
    let over = AtomicBool::new(false);
    let spin = || {
        while !over.load(Relaxed) {
            std::hint::spin_loop();
        }
    };
    Some(match other {
        None => on(cpu, measure),
        Some(other) => Helper::with(other, |helper| {
            helper.while_running(&spin, || {
                let values = on(cpu, measure);
                over.store(true, Relaxed);
                values
            })
        }),
    })
}
