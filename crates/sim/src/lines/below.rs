//! What lies below the cores: which lines have to leave their caches, where those come from that no core has, and how long they
//! wait for others on the way. With a profile that has no limits, memory alone.

use super::caches::{Caches, Placed};
use super::line::{Line, ones};
use super::{Lines, Requester};
use crate::events::Time;
use crate::topology::{Place, Topology};

impl Lines {
    /// A core uses a line that it has, or has just got, and another may have to leave its cache for that. `Some`: the core's
    /// first-level cache did not have the line, and how long a load takes that finds it in the private one.
    #[inline]
    pub(super) fn keep(&mut self, topology: &Topology, number: u32, core: u16, now: Time) -> Option<Time> {
        self.keep_private(topology, number, core, now);
        let caches = self.caches.as_ref()?;
        if !caches.must_keep_first(self.lines.len(), self.places.has_pages()) {
            return None;
        }
        self.keep_in_first(topology, number, core)
    }

    fn keep_in_first(&mut self, topology: &Topology, number: u32, core: u16) -> Option<Time> {
        let caches = self.caches.as_mut()?;
        if !caches.keeps_first() {
            caches.keep_first();
            each_copy(topology, &self.lines, |core, number| {
                caches.use_first(core, (number, self.places.of(number)));
            });
        }
        caches.use_first(core, (number, self.places.of(number)))
    }

    /// The same without the first-level cache: what is fetched because a neighbour was needed does not come as far.
    #[inline]
    pub(super) fn keep_private(&mut self, topology: &Topology, number: u32, core: u16, now: Time) {
        if let Some(caches) = &self.caches
            && caches.must_keep_private(self.lines.len(), self.places.has_pages())
        {
            self.keep_in_cache(topology, number, core, now);
        }
    }

    fn keep_in_cache(&mut self, topology: &Topology, number: u32, core: u16, now: Time) {
        let Some(caches) = &mut self.caches else { return };
        if !caches.keeps_private() {
            caches.keep_private();
            each_copy(topology, &self.lines, |core, number| {
                caches.use_private(core, (number, self.places.of(number)));
            });
        }
        let (lines, places) = (&mut self.lines, &self.places);
        let Some(left) = caches.use_private(core, (number, places.of(number))) else { return };
        lines[left as usize].leave(topology, core);
        caches.forget_first(core, (left, places.of(left)));
        if caches.keeps_shared() {
            put_shared(caches, lines, topology.cluster_of(core), (left, places.of(left)), now);
        } else if caches.must_keep_shared(lines.len(), places.has_pages()) {
            caches.keep_shared();
            // All that is there already, and `left`.
            for number in 0..lines.len() as u32 {
                for cluster in ones(lines[number as usize].cached) {
                    put_shared(caches, lines, cluster, (number, places.of(number)), now);
                }
            }
        }
    }

    /// A core takes a line from all others, and from the shared caches.
    #[inline]
    pub(super) fn take(&mut self, number: u32, core: u16) {
        let line = &mut self.lines[number as usize];
        if let Some(caches) = &mut self.caches
            && (caches.keeps_private() || caches.keeps_first())
        {
            let placed = (number, self.places.of(number));
            let others = line.holders().filter(|other| *other != core);
            others.for_each(|other| caches.forget_private(other, placed));
            ones(line.cached).for_each(|cluster| caches.forget_shared(cluster, placed));
        }
        line.own(core);
    }

    /// The latency of a line that no core has: from a shared cache or from memory, and whether from another node. In the end, how
    /// long it waits for others on the way.
    pub(super) fn fetch_below(
        &mut self,
        topology: &Topology,
        number: u32,
        who: &Requester,
        now: Time,
    ) -> (Time, bool, Time) {
        let Place { core, node } = who.place;
        let line = &self.lines[number as usize];
        let home = line.home;
        let memory = self.costs.dram[topology.between_nodes(node, home) as usize];
        let Some(caches) = &mut self.caches else { return (memory, home != node, 0) };
        let here = topology.cluster_of(core);
        if line.cached >> here & 1 != 0 {
            return (caches.shared_hit, false, 0);
        }
        let distance = |cluster: u16| topology.between_nodes(node, topology.node_of_cluster(cluster));
        if let Some(nearest) = ones(line.cached).min_by_key(|cluster| distance(*cluster)) {
            let supplier = topology.node_of_cluster(nearest);
            let latency = self.costs.clean[distance(nearest) as usize] + self.costs.leg(home, node, supplier);
            return (latency, supplier != node, caches.at_link(supplier, node, now));
        }
        let queued = caches.at_memory(home, now) + caches.at_link(home, node, now);
        (memory, home != node, queued)
    }

    /// How long a line that comes from a core of another node waits for others on the link.
    pub(super) fn on_the_link(&mut self, from: u16, to: u16, now: Time) -> Time {
        self.caches.as_mut().map_or(0, |caches| caches.at_link(from, to, now))
    }
}

/// Calls `f` with each core and each line that it has, in the order of the lines' numbers.
fn each_copy(topology: &Topology, lines: &[Line], mut f: impl FnMut(u16, u32)) {
    for (line, number) in lines.iter().zip(0..) {
        (0..topology.cores() as u16).filter(|core| line.is_at(*core)).for_each(|core| f(core, number));
    }
}

/// A cluster's shared cache gets a line, and another may have to leave it for that.
fn put_shared(caches: &mut Caches, lines: &mut [Line], cluster: u16, line: Placed, now: Time) {
    let Some(left) = caches.put_shared(cluster, line) else { return };
    let line = &mut lines[left as usize];
    line.cached &= !(1 << cluster);
    if line.modified && line.is_nowhere() {
        line.modified = false;
        // Nobody waits for what is written back, but it takes its time there.
        caches.at_memory(line.home, now);
    }
}
