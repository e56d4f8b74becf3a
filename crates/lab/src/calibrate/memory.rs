//! Cache lines and instructions.
//!
//! The time of a transfer is that of a load that misses: one CPU writes (or, for clean lines, only
//! reads) a set of lines, and another follows pointers through them in random order, so that no
//! prefetcher helps and each load waits for the one before. Each round has an order of its own: a Zen 5
//! that follows the same order again and again fetches lines before they are asked for. Public core-to-core
//! tables bounce one line back and forth instead; a bounce is such a load and the invalidation after it.

use super::sample::Sample;
use super::threads::{Helper, on};
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// Lines in a chase: they fit the first-level cache, with one line left out after each.
const LINES: usize = 128;
/// Samples of each number.
const ROUNDS: usize = 201;

#[repr(align(128))]
struct Link(AtomicUsize);

/// A ring of pointers through separate lines, in random order.
pub struct Chase(Vec<Link>);

impl Chase {
    fn new() -> Self {
        // A fixed shuffle: x -> 45 x + 11 (mod 128) visits all (Hull and Dobell, 1962).
        let links: Vec<Link> = (0..LINES).map(|_| Link(AtomicUsize::new(0))).collect();
        let mut at = 0;
        for _ in 0..LINES {
            let next = (45 * at + 11) % LINES;
            links[at].0.store(next, Relaxed);
            at = next;
        }
        Chase(links)
    }

    /// Makes all lines modified in the caller's cache, and puts them into another order.
    fn write(&self, order: &mut Order) {
        order.shuffle();
        let places = &order.places;
        for (from, to) in places.iter().zip(places.iter().cycle().skip(1)) {
            self.0[*from].0.store(*to, Relaxed);
        }
    }

    /// Follows the pointers once around.
    fn read(&self) {
        let mut at = 0;
        for _ in 0..LINES {
            at = self.0[at].0.load(Relaxed);
        }
        black_box(at);
    }

    /// Nanoseconds per load of a read.
    fn time(&self) -> f64 {
        let start = Instant::now();
        self.read();
        start.elapsed().as_nanos() as f64 / LINES as f64
    }

    /// Puts all lines out of all caches. `false`: this processor has no instruction for it.
    fn flush(&self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            for link in &self.0 {
                // SAFETY: a valid address; the instruction changes no memory. It is in every x86-64.
                unsafe { core::arch::x86_64::_mm_clflush(std::ptr::from_ref(link).cast()) };
            }
            // SAFETY: orders memory accesses only.
            unsafe { core::arch::x86_64::_mm_mfence() };
            true
        }
        #[cfg(not(target_arch = "x86_64"))]
        false
    }
}

/// The order in which a chase visits the lines.
struct Order {
    places: Vec<usize>,
    seed: u64,
}

impl Order {
    fn new() -> Self {
        Order { places: (0..LINES).collect(), seed: 1 }
    }

    /// The next one, by chance (Durstenfeld, 1964). The lines are a ring, so a chase visits all of them from wherever it begins.
    fn shuffle(&mut self) {
        for last in (1..self.places.len()).rev() {
            // Knuth's constants; the high bits are the random ones.
            self.seed =
                self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let other = (self.seed >> 33) as usize % (last + 1);
            self.places.swap(last, other);
        }
    }
}

/// How long a load takes of lines that another CPU has.
pub fn transfer(from: usize, to: usize, modified: bool) -> Option<Vec<f64>> {
    let chase = Chase::new();
    if !modified && !chase.flush() {
        return None;
    }
    let order = Mutex::new(Order::new());
    Helper::with(from, |helper| {
        on(to, || {
            let round = |_| {
                helper.run(&|| {
                    chase.write(&mut order.lock().expect("no thread panics while it holds the mutex"));
                    if !modified {
                        chase.flush();
                        chase.read();
                    }
                });
                chase.time()
            };
            Some((0..ROUNDS).map(round).collect())
        })
    })
}

/// How long a load from memory takes that the CPU `home` touched first, on `cpu`.
pub fn memory(home: usize, cpu: usize) -> Option<Vec<f64>> {
    let chase = on(home, Chase::new);
    on(cpu, || (0..ROUNDS).map(|_| chase.flush().then(|| chase.time())).collect())
}

/// A load that hits.
pub fn hit(cpu: usize) -> Sample {
    let chase = Chase::new();
    on(cpu, || {
        chase.read();
        Sample::of(&(0..ROUNDS).map(|_| chase.time()).collect::<Vec<_>>())
    })
}

/// Words of a line.
const WORDS: usize = 8;

/// Lines one after the other, to be read from the first word to the last: by BRAVO's table of readers.
struct Table(Vec<[AtomicUsize; WORDS]>);

impl Table {
    fn new() -> Self {
        Table((0..4 * LINES).map(|_| [const { AtomicUsize::new(0) }; WORDS]).collect())
    }

    fn write(&self) {
        self.0.iter().flatten().for_each(|word| word.store(0, Relaxed));
    }

    /// Nanoseconds per line of a scan.
    fn time(&self) -> f64 {
        let start = Instant::now();
        black_box(self.0.iter().flatten().all(|word| word.load(Relaxed) != 1));
        start.elapsed().as_nanos() as f64 / self.0.len() as f64
    }
}

/// A load of a scan, in the cache.
pub fn scan(cpu: usize) -> Sample {
    let table = Table::new();
    on(cpu, || Sample::of(&(0..ROUNDS).map(|_| table.time() / WORDS as f64).collect::<Vec<_>>()))
}

/// What a scan takes for each line that another CPU has written, beside its further loads of `load`
/// nanoseconds each.
pub fn scan_line(from: usize, to: usize, load: f64) -> Vec<f64> {
    let table = Table::new();
    Helper::with(from, |helper| {
        on(to, || {
            let round = |_| {
                helper.run(&|| table.write());
                table.time() - load * (WORDS - 1) as f64
            };
            (0..ROUNDS).map(round).collect()
        })
    })
}

/// What one `step` takes.
pub fn each(cpu: usize, mut step: impl FnMut() + Send) -> Sample {
    const STEPS: u32 = 1000;
    on(cpu, || {
        let round = |_| {
            let start = Instant::now();
            for _ in 0..STEPS {
                step();
            }
            start.elapsed().as_nanos() as f64 / f64::from(STEPS)
        };
        let values: Vec<f64> = (0..ROUNDS).map(round).collect();
        Sample::of(&values)
    })
}

/// A store.
pub fn store(cpu: usize) -> Sample {
    let word = AtomicU64::new(0);
    each(cpu, || black_box(&word).store(1, Relaxed))
}

/// A locked instruction on a line that the core owns.
pub fn atomic(cpu: usize) -> Sample {
    let word = AtomicU64::new(0);
    each(cpu, || {
        black_box(&word).fetch_add(1, Relaxed);
    })
}

/// A spin hint.
pub fn pause(cpu: usize) -> Sample {
    each(cpu, std::hint::spin_loop)
}

/// Reading the clock.
pub fn clock(cpu: usize) -> Sample {
    each(cpu, || {
        black_box(Instant::now());
    })
}

/// How much longer computing takes beside a busy sibling.
pub fn smt_slowdown(cpu: usize, sibling: usize) -> Sample {
    let compute = || {
        let start = Instant::now();
        let mut x = 1u64;
        for _ in 0..20_000 {
            x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(x >> 7));
        }
        black_box(x);
        start.elapsed().as_nanos() as f64
    };
    let alone: Vec<f64> = on(cpu, || (0..ROUNDS).map(|_| compute()).collect());
    let alone = Sample::of(&alone).median;
    let beside = Helper::with(sibling, |helper| {
        on(cpu, || {
            let round = |_| {
                let stop = AtomicUsize::new(0);
                helper.while_running(
                    &|| {
                        while stop.load(Relaxed) == 0 {
                            compute();
                        }
                    },
                    || {
                        let time = compute();
                        stop.store(1, Relaxed);
                        time
                    },
                )
            };
            (0..ROUNDS).map(round).collect::<Vec<_>>()
        })
    });
    Sample::of(&beside.iter().map(|time| (time / alone).max(1.0)).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_visits_all_lines_in_an_order_of_its_own() {
        let (chase, mut order) = (Chase::new(), Order::new());
        let mut seen = std::collections::HashSet::new();
        for _ in 0..20 {
            chase.write(&mut order);
            let mut at = 0;
            let mut visited = Vec::new();
            for _ in 0..LINES {
                visited.push(at);
                at = chase.0[at].0.load(Relaxed);
            }
            let mut all = visited.clone();
            all.sort_unstable();
            assert_eq!((at, all), (0, (0..LINES).collect()), "a chase ends where it began");
            assert!(seen.insert(visited), "an order came twice");
        }
    }
}
