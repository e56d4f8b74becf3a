//! How much caches hold, and how fast memory and links are: `Profile::memory`. Without that section a cache has no end, and neither
//! has a link.
//!
//! A core's first-level cache (where the profile has it), its private cache and a cluster's shared one are sets of ways; in each set the line that was used longest ago makes
//! room. What leaves a private cache goes to the shared cache of its cluster, and from there to memory. A line's set follows
//! from its place (`places.rs`). What the first-level cache has, the private one has too.
//!
//! Memory and links serve one line after the other.

use super::NONE;
use crate::events::{NS, Time};
use crate::profile::{Number, Profile};
use crate::topology::Topology;

/// Bytes of a line.
const LINE: f64 = 64.0;

/// A line's number, and its place.
pub(super) type Placed = (u32, u32);

/// Caches of one level.
struct Level {
    ways: usize,
    sets: usize,
    /// Of each cache each set, what was used last first; [`NONE`] where nothing is. Empty: there is no limit.
    entries: Vec<u32>,
}

impl Level {
    fn new(entries: usize, ways: usize) -> Self {
        Level { ways, sets: (entries / ways).max(1), entries: Vec::new() }
    }

    /// How much of it may be in use before it matters where that lies: a quarter. Until then no account is kept, and most
    /// simulations stay there.
    fn quarter(&self) -> usize {
        self.ways * self.sets / 4
    }

    fn is_kept(&self) -> bool {
        !self.entries.is_empty()
    }

    fn keep(&mut self, caches: usize) {
        self.entries = vec![NONE; caches * self.sets * self.ways];
    }

    #[inline]
    fn set(&mut self, cache: usize, place: u32) -> &mut [u32] {
        let set = cache * self.sets + place as usize % self.sets;
        &mut self.entries[set * self.ways..][..self.ways]
    }

    /// Makes `line` the one that was used last. `Some`: it was not there, and this had to leave for it ([`NONE`]: nothing had).
    #[inline]
    fn touch(&mut self, cache: usize, (line, place): Placed) -> Option<u32> {
        let set = self.set(cache, place);
        if set[0] == line {
            return None;
        }
        let found = set.iter().position(|entry| *entry == line);
        let at = found.unwrap_or(set.len() - 1);
        let left = set[at];
        set[..=at].rotate_right(1);
        set[0] = line;
        if found.is_some() { None } else { Some(left) }
    }

    /// It is not there any more, if it was.
    fn forget(&mut self, cache: usize, (line, place): Placed) {
        let set = self.set(cache, place);
        if let Some(at) = set.iter().position(|entry| *entry == line) {
            set[at..].rotate_left(1);
            set[set.len() - 1] = NONE;
        }
    }
}

/// The caches and the ways to memory of a machine.
pub(super) struct Caches {
    first: Option<Level>,
    /// A load that the first-level cache does not have, and the private one has.
    private_hit: Time,
    private: Level,
    shared: Level,
    /// A load that the cluster's shared cache has.
    pub(super) shared_hit: Time,
    cores: usize,
    clusters: usize,
    nodes: usize,
    /// For how long each node's memory, and each link from node to node, has lines to serve, and what each takes.
    memory: Vec<Time>,
    memory_line: Time,
    links: Vec<Time>,
    link_line: Time,
}

impl Caches {
    pub(super) fn new(profile: &Profile, topology: &Topology) -> Option<Self> {
        let memory = profile.memory.as_ref()?;
        let count = |number: &Number| number.value as usize;
        let lines = |kib: &Number| (kib.value * 1024.0 / LINE) as usize;
        // A line at so many gigabytes (1e9 bytes) a second.
        let line = |rate: &Option<Number>| {
            rate.as_ref().map_or(0, |rate| (LINE / rate.value * NS as f64).round() as Time)
        };
        let nodes = topology.nodes;
        Some(Caches {
            first: memory
                .first
                .as_ref()
                .zip(memory.first_ways.as_ref())
                .map(|(size, ways)| Level::new(lines(size), count(ways))),
            private_hit: memory.private_hit.as_ref().map_or(0, Number::time),
            private: Level::new(lines(&memory.private), count(&memory.private_ways)),
            shared: Level::new(lines(&memory.shared), count(&memory.shared_ways)),
            shared_hit: memory.shared_hit.time(),
            cores: topology.cores(),
            clusters: topology.all_clusters(),
            nodes,
            memory: vec![0; nodes],
            memory_line: line(&memory.bandwidth),
            links: vec![0; nodes * nodes],
            link_line: line(&memory.link),
        })
    }

    /// Whether account has to be kept of first-level caches, with so many lines. `all`: with any number.
    #[inline]
    pub(super) fn must_keep_first(&self, lines: usize, all: bool) -> bool {
        self.first.as_ref().is_some_and(|first| all || lines > first.quarter())
    }

    /// Whether it is kept.
    pub(super) fn keeps_first(&self) -> bool {
        self.first.as_ref().is_some_and(Level::is_kept)
    }

    pub(super) fn keep_first(&mut self) {
        if let Some(first) = &mut self.first {
            first.keep(self.cores);
        }
    }

    /// A core uses a line that it has, or has just got. `Some`: its first-level cache does not have it, and how long a load takes
    /// then.
    #[inline]
    pub(super) fn use_first(&mut self, core: u16, line: Placed) -> Option<Time> {
        self.first.as_mut()?.touch(core.into(), line).map(|_| self.private_hit)
    }

    /// Whether account is kept of private caches.
    #[inline]
    pub(super) fn keeps_private(&self) -> bool {
        self.private.is_kept()
    }

    /// Whether it has to be, with so many lines, or with any number.
    #[inline]
    pub(super) fn must_keep_private(&self, lines: usize, all: bool) -> bool {
        all || lines > self.private.quarter()
    }

    pub(super) fn keep_private(&mut self) {
        self.private.keep(self.cores);
    }

    /// A core uses a line that it has, or has just got. What had to leave its cache.
    #[inline]
    pub(super) fn use_private(&mut self, core: u16, line: Placed) -> Option<u32> {
        self.private.touch(core.into(), line).filter(|left| *left != NONE)
    }

    /// Whether account is kept of shared caches.
    pub(super) fn keeps_shared(&self) -> bool {
        self.shared.is_kept()
    }

    /// Whether it has to be, with so many lines, or with any number.
    pub(super) fn must_keep_shared(&self, lines: usize, all: bool) -> bool {
        all || lines > self.shared.quarter()
    }

    pub(super) fn keep_shared(&mut self) {
        self.shared.keep(self.clusters);
    }

    /// A cluster's shared cache gets a line. What had to leave it.
    pub(super) fn put_shared(&mut self, cluster: u16, line: Placed) -> Option<u32> {
        self.shared.touch(cluster.into(), line).filter(|left| *left != NONE)
    }

    /// A line has left a core's private cache, and leaves its first-level one.
    pub(super) fn forget_first(&mut self, core: u16, line: Placed) {
        if let Some(first) = self.first.as_mut().filter(|first| first.is_kept()) {
            first.forget(core.into(), line);
        }
    }

    /// A core has lost a line to a writer.
    pub(super) fn forget_private(&mut self, core: u16, line: Placed) {
        self.forget_first(core, line);
        if self.private.is_kept() {
            self.private.forget(core.into(), line);
        }
    }

    /// So has a cluster.
    pub(super) fn forget_shared(&mut self, cluster: u16, line: Placed) {
        if self.shared.is_kept() {
            self.shared.forget(cluster.into(), line);
        }
    }

    /// How long a line waits at a node's memory, beside the time that it takes without others. (Written back: it waits too, but
    /// nobody for it.)
    #[inline]
    pub(super) fn at_memory(&mut self, home: u16, now: Time) -> Time {
        queue(&mut self.memory[usize::from(home)], self.memory_line, now)
    }

    /// ... at the link between two nodes.
    #[inline]
    pub(super) fn at_link(&mut self, from: u16, to: u16, now: Time) -> Time {
        if from == to {
            return 0;
        }
        queue(&mut self.links[usize::from(from) * self.nodes + usize::from(to)], self.link_line, now)
    }
}

#[inline]
fn queue(free: &mut Time, takes: Time, now: Time) -> Time {
    let begins = now.max(*free);
    *free = begins + takes;
    begins - now
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_was_used_longest_ago_leaves_its_set() {
        let mut level = Level::new(8, 2);
        level.keep(2);
        let mut touch = |line: u32| level.touch(1, (line, line));
        // Sets of lines 1, 5, 9: the same.
        assert_eq!((touch(1), touch(5)), (Some(NONE), Some(NONE)));
        assert_eq!(touch(2), Some(NONE), "another set");
        assert_eq!((touch(1), touch(9)), (None, Some(5)));
        assert_eq!((touch(1), touch(5)), (None, Some(9)));
    }

    #[test]
    fn what_is_gone_makes_room() {
        let mut level = Level::new(4, 4);
        level.keep(1);
        assert!([1, 2, 3, 4].iter().all(|line| level.touch(0, (*line, 0)) == Some(NONE)));
        level.forget(0, (3, 0));
        level.forget(0, (7, 0));
        assert_eq!(level.touch(0, (5, 0)), Some(NONE));
        assert_eq!([1, 2, 4].map(|line| level.touch(0, (line, 0))), [None; 3]);
        assert_eq!(level.touch(0, (3, 0)), Some(5));
    }

    #[test]
    fn a_queue_is_as_long_as_what_is_before_one() {
        let mut free = 0;
        assert_eq!([10, 10, 12].map(|now| queue(&mut free, 5, now)), [0, 5, 8]);
        assert_eq!(queue(&mut free, 5, 100), 0);
    }
}
