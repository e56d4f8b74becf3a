//! Cache lines: which cores have a copy, and what a request costs.
//!
//! A line is owned by one core (exclusive or modified), shared by several, or in memory only.
//! Hits cost what hits cost; everything else is a *request*, and requests for one line are served
//! one after the other. What is modelled, with the numbers of `Profile::lines`:
//!
//! 1. *One ordering point.* A line is busy until its last service is over ([`Line::free_at`]);
//!    requests that come meanwhile queue ([`Line::waiting`]). [`Arbitration`](crate::Arbitration)
//!    chooses which of them is next (in `access.rs`).
//! 2. *A change of ownership occupies the line for its whole transfer*, and so does the read that
//!    finds it modified and downgrades its owner. Further reads are short: `read_occupancy` within
//!    a node, the share `read_occupancy_remote` of the hop from another ([`Lines::read`]).
//! 3. *Taking ownership of a shared line* costs the farthest acknowledgement and `per_sharer` for
//!    each sharer ([`Lines::own`]).
//! 4. *A write wakes all spinners*: see `access.rs`.
//! 5. *An extra leg* (`third_party`) if the line's home is neither the requester's node nor the
//!    supplier's; `home_at_reader` if it is the requester's ([`Lines::leg`]). *Pairs*: a miss also
//!    fetches the other line of its 128 bytes, with probability `pair_prefetch`. The core that owned that
//!    line loses the ownership ([`Lines::fetch_pair`]). *SMT
//!    siblings* share the core's caches: what the sibling wrote last costs `sibling`.
//! 6. *Loads that were seen coming*: a thread that reads line after line has `scan_misses` of them under
//!    way at once ([`Lines::scan`]); which loads those are is for `streams.rs` to say.
//! 7. *A request is on its way* for the part `request` of the transfer before it takes the line: until then
//!    the owner goes on with it ([`Lines::way`]), and may well be done with a short critical section.
//! 8. *A write that follows a read at once* (within `ahead`): processors send for the ownership before
//!    they have the value, so both are fetched together (`State::serve`).
//! 9. *No two transfers are alike*: each takes up to the share `jitter` more or less, so that threads that
//!    do the same do not fall into step.
//! 10. *A locked instruction* waits for the store buffer before it takes effect. For the part `atomic_wait` of its time, other
//!     cores still see the value from before.
//! 11. *Caches have an end*, where the profile says which: a line that a core has may have to leave its cache for another, and
//!     is then in the shared cache of the core's cluster, or in memory only (`caches.rs`). Where a line lies decides with which
//!     others it competes for room (`places.rs`). *Memory and links* serve one line after the other.
//!
//! A store goes into the store buffer: the thread goes on at once, and others see the line when
//! the transfer is over and all its earlier stores are done. A locked instruction waits for the
//! buffer to drain.

mod below;
mod caches;
mod costs;
mod index;
mod line;
mod places;

use crate::events::Time;
use crate::profile::Profile;
use crate::rng::Rng;
use crate::topology::{Distance, Place, Topology};
use caches::Caches;
use costs::Costs;
use index::Index;
use line::{Line, farthest_here, nearest, ones};
use places::Places;
use std::ops::Range;

/// No core, line or thread.
pub(crate) const NONE: u32 = u32::MAX;
const NO_CORE: u16 = u16::MAX;

/// What a thread does to a line.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Load.
    Read,
    /// Store.
    Store,
    /// Atomic read-modify-write.
    Rmw,
    /// Load that the prefetcher has seen coming (`streams.rs`).
    Scan,
}

impl Kind {
    /// Whether it only reads.
    #[inline]
    pub(crate) fn reads(self) -> bool {
        matches!(self, Kind::Read | Kind::Scan)
    }
}

/// The thread that asks, and its processor.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Requester {
    pub(crate) cpu: u16,
    pub(crate) place: Place,
    /// When the requester's earlier stores are done.
    pub(crate) drained: Time,
    /// When the request was sent.
    pub(crate) sent: Time,
}

/// What came of it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    /// When the thread goes on.
    pub(crate) done: Time,
    /// When others can see it.
    pub(crate) visible: Time,
    /// Whether the line had to come from elsewhere, or others had to give it up.
    pub(crate) miss: bool,
    /// Whether another node took part.
    pub(crate) remote: bool,
    /// The part of this time in which the line waited for others at memory or a link.
    pub(crate) queued: Time,
}

/// All lines that were ever touched. A line's number is the order of first touch: addresses, which
/// differ from run to run, play no part.
pub(crate) struct Lines {
    costs: Costs,
    lines: Vec<Line>,
    index: Index,
    places: Places,
    caches: Option<Caches>,
}

impl Lines {
    pub(crate) fn new(profile: &Profile, topology: &Topology) -> Self {
        Lines {
            costs: Costs::new(profile),
            lines: Vec::new(),
            index: Index::new(),
            places: Places::default(),
            caches: Caches::new(profile, topology),
        }
    }

    #[inline]
    pub(crate) fn at(&mut self, line: u32) -> &mut Line {
        &mut self.lines[line as usize]
    }

    /// The line of an address; if it is new, `toucher` is the node that touches it.
    #[inline]
    pub(crate) fn number(&mut self, address: usize, toucher: u16) -> u32 {
        match self.index.find(address >> 6) {
            Some(line) => line,
            None => self.add(address, toucher),
        }
    }

    #[cold]
    fn add(&mut self, address: usize, toucher: u16) -> u32 {
        let number = self.lines.len() as u32;
        // Memory is on the node of the thread that touches it first.
        let mut line = Line::new(toucher);
        if let Some(pair) = self.index.find((address >> 6) ^ 1) {
            line.pair = pair;
            self.lines[pair as usize].pair = number;
        }
        self.lines.push(line);
        self.places.add(address >> 6);
        self.index.insert(address >> 6, number);
        number
    }

    /// Moves a line's memory to a node.
    pub(crate) fn set_home(&mut self, line: u32, node: u16) {
        self.at(line).home = node;
    }

    /// The lines of these addresses divided by 64 keep their offset within their page ([`in_pages`](crate::in_pages)).
    pub(crate) fn in_pages(&mut self, lines: Range<usize>, rng: &mut Rng) {
        self.places.in_pages(lines, rng);
    }

    /// How long a locked instruction waits before it takes effect, on a line that `core` owns. (On another line it waits for
    /// the line anyway.)
    #[inline]
    pub(crate) fn before_effect(&self, line: u32, core: u16) -> Time {
        if self.lines[line as usize].owner == core { self.costs.atomic_wait } else { 0 }
    }

    /// A hit, if it is one: nobody else takes part, and the line's other requests do not matter.
    #[inline]
    pub(crate) fn hit(
        &mut self,
        topology: &Topology,
        number: u32,
        who: &Requester,
        kind: Kind,
        now: Time,
    ) -> Option<Service> {
        let line = &self.lines[number as usize];
        let core = who.place.core;
        if line.owner != core && !(kind.reads() && line.has(core)) {
            return None;
        }
        let from_private = self.keep(topology, number, core, now);
        Some(self.hit_in(from_private, number, who, kind, now))
    }

    /// What a hit costs in the first-level cache, or in the private one, where a load takes `from_private`.
    #[inline]
    fn hit_in(
        &mut self,
        from_private: Option<Time>,
        number: u32,
        who: &Requester,
        kind: Kind,
        now: Time,
    ) -> Service {
        let costs = &self.costs;
        let line = &mut self.lines[number as usize];
        let later = from_private.map_or(0, |load| load.saturating_sub(costs.hit));
        let (hit, scan) = match later {
            0 => (costs.hit, costs.scan),
            _ => (costs.hit + later, costs.scan.max((later as f64 / costs.scan_misses) as Time)),
        };
        if line.owner != who.place.core {
            let hit = if kind == Kind::Scan { scan } else { hit };
            return Service { done: now + hit, visible: 0, miss: false, remote: false, queued: 0 };
        }
        let sibling = line.last_cpu != who.cpu;
        line.last_cpu = who.cpu;
        let own = if sibling { costs.clean[Distance::Sibling as usize] } else { 0 };
        let (done, visible) = match kind {
            Kind::Read => (now + own.max(hit), 0),
            Kind::Scan => (now + own.max(scan), 0),
            Kind::Store => (now + costs.store, (now + costs.store + own + later).max(who.drained)),
            Kind::Rmw => {
                let done = now + own + later + (costs.atomic - costs.atomic_wait);
                (done, done)
            }
        };
        if !kind.reads() {
            line.modified = true;
            // Others' requests come after this instruction; but an owner that goes on and on does
            // not keep those away that wait already.
            if line.is_wanted_by_nobody() {
                line.free_at = line.free_at.max(visible);
            }
        }
        Service { done, visible, miss: false, remote: false, queued: 0 }
    }

    /// How long a request is on its way until it takes a line that is free away from its owner.
    ///
    /// Nobody waits for a store (it is in the buffer), and what is foreseen was sent for in time: their
    /// place in the order is that of the request.
    pub(crate) fn way(
        &self,
        topology: &Topology,
        number: u32,
        who: &Requester,
        kind: Kind,
        rng: &mut Rng,
    ) -> Time {
        let line = &self.lines[number as usize];
        match line.holder() {
            Some(owner) if !matches!(kind, Kind::Store | Kind::Scan) => {
                let transfer = self.costs.transfer(topology, line, owner, who);
                (self.costs.jitter(transfer, rng) as f64 * self.costs.request) as Time
            }
            _ => 0,
        }
    }

    /// Serves a request that is no hit; the line is free.
    pub(crate) fn serve(
        &mut self,
        topology: &Topology,
        number: u32,
        who: &Requester,
        kind: Kind,
        now: Time,
        rng: &mut Rng,
    ) -> Service {
        let service = match kind {
            Kind::Read => self.read(topology, number, who, now, rng),
            Kind::Scan => self.scan(topology, number, who, now, rng),
            _ => self.own(topology, number, who, kind, now, rng),
        };
        self.keep(topology, number, who.place.core, now);
        self.fetch_pair(topology, number, who, now, rng);
        service
    }

    /// Gets a copy to read.
    fn read(
        &mut self,
        topology: &Topology,
        number: u32,
        who: &Requester,
        now: Time,
        rng: &mut Rng,
    ) -> Service {
        let line = &mut self.lines[number as usize];
        let Place { core, node } = who.place;
        let (mut latency, mut occupancy, remote, queued);
        if let Some(owner) = line.holder() {
            let supplier = topology.node_of(owner);
            latency = self.costs.transfer(topology, line, owner, who);
            occupancy = latency;
            remote = supplier != node;
            line.downgrade(supplier);
            line.share(core, node);
            queued = self.on_the_link(supplier, node, now);
        } else if line.sharer_count > 0 {
            let (distance, supplier) = nearest(topology, line, core, node);
            let in_own_cache = line.cached >> topology.cluster_of(core) & 1 != 0;
            if let Some(caches) =
                self.caches.as_ref().filter(|_| in_own_cache && distance > Distance::Cluster)
            {
                // The shared cache of the core's own cluster is nearer than any core that has a copy.
                (latency, remote, queued) = (caches.shared_hit, false, 0);
                occupancy = self.costs.read[Distance::Cluster as usize];
                line.share(core, node);
            } else {
                latency = self.costs.clean[distance as usize] + self.costs.leg(line.home, node, supplier);
                occupancy = self.costs.read[distance as usize];
                remote = supplier != node;
                line.share(core, node);
                queued = self.on_the_link(supplier, node, now);
            }
        } else {
            (latency, remote, queued) = self.fetch_below(topology, number, who, now);
            occupancy = latency;
            self.take(number, core); // exclusive: the first write is free
            let line = &mut self.lines[number as usize];
            line.modified = false;
            line.last_cpu = who.cpu;
        }
        let jitter = self.costs.jitter(latency, rng);
        if occupancy == latency {
            occupancy = jitter;
        }
        latency = jitter;
        self.lines[number as usize].free_at = (who.sent + occupancy).max(now) + queued;
        let done = (who.sent + latency).max(now) + queued;
        Service { done, visible: done, miss: true, remote, queued }
    }

    /// The same for a load that was seen coming: the line itself is as busy, but the thread has been
    /// waiting for several at once.
    fn scan(
        &mut self,
        topology: &Topology,
        number: u32,
        who: &Requester,
        now: Time,
        rng: &mut Rng,
    ) -> Service {
        let service = self.read(topology, number, who, now, rng);
        let share = ((service.done - now - service.queued) as f64 / self.costs.scan_misses) as Time;
        Service { done: now + share.max(self.costs.scan) + service.queued, ..service }
    }

    /// Takes the line from everybody else.
    fn own(
        &mut self,
        topology: &Topology,
        number: u32,
        who: &Requester,
        kind: Kind,
        now: Time,
        rng: &mut Rng,
    ) -> Service {
        let line = &self.lines[number as usize];
        let Place { core, node } = who.place;
        let (transfer, remote, queued) = if let Some(owner) = line.holder() {
            let supplier = topology.node_of(owner);
            let transfer = self.costs.transfer(topology, line, owner, who);
            (transfer, supplier != node, self.on_the_link(supplier, node, now))
        } else if line.sharer_count > 0 {
            let (transfer, remote) = self.invalidation(topology, line, who);
            (transfer, remote, 0)
        } else {
            self.fetch_below(topology, number, who, now)
        };
        self.take(number, core);
        let costs = &self.costs;
        let line = &mut self.lines[number as usize];
        line.modified = true;
        line.last_cpu = who.cpu;
        let arrival = (who.sent + costs.jitter(transfer, rng)).max(now) + queued;
        let (done, visible) = match kind {
            Kind::Read | Kind::Scan => {
                (arrival + costs.hit + costs.store, (arrival + costs.hit + costs.store).max(who.drained))
            }
            Kind::Store => (now + costs.store, (arrival + costs.store).max(who.drained)),
            Kind::Rmw => (arrival + costs.atomic, arrival + costs.atomic),
        };
        line.free_at = visible;
        Service { done, visible, miss: transfer > 0, remote, queued }
    }

    /// What it takes to become the owner of a line of which there are copies, and whether another node has one.
    fn invalidation(&self, topology: &Topology, line: &Line, who: &Requester) -> (Time, bool) {
        let Place { core, node } = who.place;
        let costs = &self.costs;
        let others = line.sharer_count - u16::from(line.has(core));
        let (mut time, mut remote) = (0, false);
        for sharer in ones(line.sharer_nodes) {
            if sharer != node {
                remote = true;
                let distance = topology.between_nodes(node, sharer);
                time = time.max(costs.clean[distance as usize]);
            } else if others > 0 {
                time = time.max(costs.clean[farthest_here(topology, line, core, node) as usize]);
            }
        }
        (if others == 0 { 0 } else { time + costs.per_sharer * Time::from(others) }, remote)
    }

    /// The adjacent-line prefetch.
    fn fetch_pair(&mut self, topology: &Topology, number: u32, who: &Requester, now: Time, rng: &mut Rng) {
        let pair = self.lines[number as usize].pair;
        if pair == NONE || !rng.chance(self.costs.pair_prefetch) {
            return;
        }
        let Place { core, node } = who.place;
        let line = &mut self.lines[pair as usize];
        if line.free_at > now || !line.is_wanted_by_nobody() || line.owner == core || line.has(core) {
            return;
        }
        if let Some(owner) = line.holder() {
            line.downgrade(topology.node_of(owner));
            line.share(core, node);
        } else if line.sharer_count > 0 {
            line.share(core, node);
        } else {
            return; // from memory: costs nobody anything
        }
        line.free_at = now + self.costs.read[Distance::Socket as usize];
        self.keep_private(topology, pair, core, now);
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.lines.len() as u64
    }

    /// The line of an address that was touched before.
    pub(crate) fn known(&self, address: usize) -> Option<u32> {
        self.index.find(address >> 6)
    }

    /// What one look at a word that is in the cache costs.
    pub(crate) fn look(&self) -> Time {
        self.costs.hit
    }
}
