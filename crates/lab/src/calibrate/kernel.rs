//! System calls, sleeping, waking and interrupts.

use super::memory::each;
use super::sample::Sample;
use super::threads::{Helper, on};
use latchwork_workloads::topology::pin;
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

/// `FUTEX_WAIT` on a word that has another value, and `FUTEX_WAKE` of a word on which nobody sleeps.
pub fn futex_calls(cpu: usize) -> [Sample; 2] {
    let word = AtomicU32::new(0);
    [(libc::FUTEX_WAIT, 1), (libc::FUTEX_WAKE, 1)].map(|(operation, value)| {
        each(cpu, || {
            futex(&word, operation, value);
        })
    })
}

/// Waking a sleeper: what it costs the waker, and how long after that the sleeper runs.
pub struct Wake {
    /// The waker's system call.
    pub call: Sample,
    /// From the call's return to the sleeper's.
    pub latency: Sample,
}

/// What [`wake`] measured, in nanoseconds: of each round the call and the latency.
type Rounds = (Vec<f64>, Vec<f64>);

/// A waker on one CPU, a sleeper on another one or on the same, which has slept for `idle`.
pub fn wake(waker: usize, sleeper: usize, idle: Duration) -> Wake {
    let (calls, latencies) = rounds(waker, sleeper, idle);
    Wake { call: Sample::of(&calls), latency: Sample::of(&latencies) }
}

/// Waking a thread that has just gone to sleep, while its CPU is still on the way to idleness.
pub struct Early {
    /// How long after the thread has gone to sleep its CPU is on that way, in nanoseconds.
    pub time: Sample,
    /// As in [`Wake`].
    pub wake: Wake,
}

/// A waker on one CPU, a sleeper on another one. `None`: such a wake takes as long as a later one.
pub fn wake_early(waker: usize, sleeper: usize) -> Option<Early> {
    // A wake and its latency are shorter than this part of what they are later.
    const SHORTER: f64 = 0.75;
    let median = |(calls, latencies): &Rounds| {
        Sample::of(&calls.iter().zip(latencies).map(|(call, latency)| call + latency).collect::<Vec<_>>())
            .median
    };
    let later = median(&rounds(waker, sleeper, Duration::from_micros(10)));
    let steps = (2..=40).map(|step| Duration::from_nanos(200 * step));
    let mut tried: Vec<(Duration, Rounds)> = steps.map(|idle| (idle, rounds(waker, sleeper, idle))).collect();
    let last = tried.iter().rposition(|(_, rounds)| median(rounds) < SHORTER * later)?;
    tried.truncate(last + 1);
    let time = tried[last].0.as_nanos() as f64;
    let (calls, latencies): (Vec<_>, Vec<_>) = tried.into_iter().map(|(_, rounds)| rounds).unzip();
    Some(Early {
        time: Sample::of(&[time]),
        wake: Wake { call: Sample::of(&calls.concat()), latency: Sample::of(&latencies.concat()) },
    })
}

/// How long after a wake a sleeper runs on a CPU on which another thread computes all the time. `None`: most have to wait until
/// that thread has had its turn.
pub fn wake_busy(waker: usize, sleeper: usize) -> Option<Sample> {
    const TURN: f64 = 200_000.0;
    let over = AtomicBool::new(false);
    let (_, latencies) = std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(sleeper);
            while !over.load(Relaxed) {
                std::hint::spin_loop();
            }
        });
        let measured = rounds(waker, sleeper, Duration::from_micros(50));
        over.store(true, Relaxed);
        measured
    });
    let sample = Sample::of(&latencies);
    (sample.median < TURN).then_some(sample)
}

fn rounds(waker: usize, sleeper: usize, idle: Duration) -> Rounds {
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
    (calls, latencies)
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

/// Whether the scheduler of a kernel of this release is EEVDF.
pub fn is_eevdf(release: &str) -> bool {
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(6))
}

/// How many CPUs the kernel has, also those that this process may not use.
pub fn cpus() -> usize {
    // SAFETY: no memory.
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.try_into().unwrap_or(1)
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

/// The time between two pauses of a thread that has a CPU for itself, and how long they take: timer ticks, other interrupts, and
/// what the host of a virtual machine takes. None, if there are few.
pub fn pauses(cpu: usize) -> Option<(Sample, Sample)> {
    /// Two looks at the clock, with a few cache misses in them, take less.
    const SHORT: Duration = Duration::from_nanos(500);
    const FEWEST: usize = 20;
    on(cpu, || {
        let start = Instant::now();
        let (mut last, mut before) = (start, start);
        let (mut intervals, mut lengths) = (Vec::new(), Vec::new());
        while start.elapsed() < Duration::from_millis(500) {
            let now = Instant::now();
            if now - last > SHORT {
                lengths.push((now - last).as_nanos() as f64);
                intervals.push((now - before).as_nanos() as f64);
                before = now;
            }
            last = now;
        }
        (lengths.len() >= FEWEST).then(|| (Sample::of(&intervals), Sample::of(&lengths)))
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheduler_is_eevdf_from_6_6_on() {
        let releases =
            ["6.6.0", "6.18.44-fc-v657", "7.0-rc1", "6.5.0-15-generic", "5.15.167.4-microsoft", "6", ""];
        assert_eq!(releases.map(is_eevdf), [true, true, true, false, false, false, false]);
    }
}
