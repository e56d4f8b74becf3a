//! What caches hold, and what it costs not to have a line there.

use super::sample::Sample;
use super::threads::on;
use latchwork_workloads::load::working_set::successors;
use std::hint::black_box;
use std::time::Instant;

/// Samples of each number, at most and at least.
const ROUNDS: (usize, usize) = (41, 3);
/// Loads in all samples of a number, if they are not the most or the fewest.
const LOADS: usize = 1 << 20;

/// A data cache.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Its size.
    pub kib: usize,
    pub ways: usize,
}

/// A CPU's data cache of a level, as the kernel lists it.
pub fn cache(cpu: usize, level: usize) -> Option<Cache> {
    let caches = format!("/sys/devices/system/cpu/cpu{cpu}/cache");
    (0..8).find_map(|index| {
        let text = |name: &str| std::fs::read_to_string(format!("{caches}/index{index}/{name}")).ok();
        let number = |name: &str| text(name)?.trim().parse::<usize>().ok();
        let is_it = number("level")? == level && text("type")?.trim() != "Instruction";
        let cache = || {
            let kib = text("size")?.trim().strip_suffix('K')?.parse().ok()?;
            Some(Cache { kib, ways: number("ways_of_associativity")? })
        };
        is_it.then(cache)?.filter(|cache| cache.kib > 0 && (1..=32).contains(&cache.ways))
    })
}

/// A line that says which is next.
#[derive(Copy, Clone)]
#[repr(align(64))]
struct Link(usize);

/// Nanoseconds of each load of a chase in random order through so many lines.
fn chase(cpu: usize, lines: usize) -> Vec<f64> {
    on(cpu, || {
        let mut links = vec![Link(0); lines];
        for (line, next) in successors(lines, false).into_iter().enumerate() {
            links[line] = Link(next);
        }
        let mut at = 0;
        let mut round = || {
            let start = Instant::now();
            for _ in 0..lines {
                at = links[black_box(at)].0;
            }
            start.elapsed().as_nanos() as f64 / lines as f64
        };
        round();
        (0..(LOADS / lines).clamp(ROUNDS.1, ROUNDS.0)).map(|_| round()).collect()
    })
}

/// Lines of 64 bytes in a KiB.
const LINES: usize = 16;

/// A load that the first-level cache of so many KiB does not have, and the private one has: a chase through four times as much, or
/// half of the private cache.
pub fn private_hit(cpu: usize, first: usize, private: usize) -> Sample {
    Sample::of(&chase(cpu, (first * 4).min(private / 2) * LINES))
}

/// A load that the private cache of so many KiB does not have, and the shared one has: a chase through twice as much.
pub fn shared_hit(cpu: usize, private: usize) -> Sample {
    Sample::of(&chase(cpu, private * 2 * LINES))
}

/// How many KiB of the shared cache this CPU gets: other virtual machines use it too, or the host keeps a part of it for each.
/// The largest power of two times the private cache, of at most what the kernel says, through which a load of a chase takes less
/// than half-way from `hit` to `memory`. At least twice the private cache: that is where `hit` was measured.
pub fn shared(cpu: usize, private: usize, said: usize, hit: f64, memory: f64) -> usize {
    let sizes = std::iter::successors(Some(private * 4), |kib| Some(kib * 2)).take_while(|kib| *kib <= said);
    let is_there = |kib: &usize| Sample::of(&chase(cpu, kib * LINES)).median < (hit + memory) / 2.0;
    sizes.take_while(is_there).last().unwrap_or(private * 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chase_takes_time_and_caches_grow_with_their_level() {
        assert!(chase(0, 64).iter().all(|time| *time > 0.0));
        let caches: Vec<Cache> = (1..=3).filter_map(|level| cache(0, level)).collect();
        assert!(caches.is_sorted_by_key(|cache| cache.kib), "{caches:?}");
    }
}
