//! What is known of a cache line, and which of its sharers are near.

use super::{NO_CORE, NONE};
use crate::events::Time;
use crate::topology::{Distance, Topology};

/// A cache line.
pub(crate) struct Line {
    /// The core that has it alone.
    pub(super) owner: u16,
    pub(super) modified: bool,
    /// The processor that used it last while it was owned.
    pub(super) last_cpu: u16,
    /// Where its memory is.
    pub(super) home: u16,
    /// Cores that have a copy: how many, which, and on which nodes.
    pub(super) sharer_count: u16,
    pub(super) sharers: [u64; 8],
    pub(super) sharer_nodes: u64,
    /// The clusters whose shared cache has it.
    pub(super) cached: u64,
    /// The other line of the 128-byte pair.
    pub(super) pair: u32,
    /// Until then the line serves no request.
    pub(crate) free_at: Time,
    /// The thread that made the last request that was no hit.
    pub(crate) last: u32,
    /// The request that is on its way to the owner (a thread), and since when.
    pub(crate) probe: (u32, Time),
    /// First and last of the requests that wait (threads, linked through `Thread::next`).
    pub(crate) waiting: (u32, u32),
    /// Whether an event says when it is free.
    pub(crate) announced: bool,
    /// First of the threads that spin on it (linked through `Thread::next` and `previous`).
    pub(crate) spinners: u32,
}

impl Line {
    pub(super) fn new(home: u16) -> Self {
        Line {
            owner: NO_CORE,
            modified: false,
            last_cpu: 0,
            home,
            sharer_count: 0,
            sharers: [0; 8],
            sharer_nodes: 0,
            cached: 0,
            pair: NONE,
            free_at: 0,
            last: NONE,
            probe: (NONE, 0),
            waiting: (NONE, NONE),
            announced: false,
            spinners: NONE,
        }
    }

    #[inline]
    pub(super) fn has(&self, core: u16) -> bool {
        self.sharers[usize::from(core) / 64] >> (core % 64) & 1 != 0
    }

    pub(super) fn share(&mut self, core: u16, node: u16) {
        if !self.has(core) {
            self.sharers[usize::from(core) / 64] |= 1 << (core % 64);
            self.sharer_count += 1;
            self.sharer_nodes |= 1 << node;
        }
    }

    pub(super) fn own(&mut self, core: u16) {
        self.cached = 0;
        if self.sharer_count != 0 {
            self.sharers = [0; 8];
            self.sharer_count = 0;
            self.sharer_nodes = 0;
        }
        self.owner = core;
    }

    /// Turns the owner into a sharer.
    pub(super) fn downgrade(&mut self, node: u16) {
        let owner = std::mem::replace(&mut self.owner, NO_CORE);
        self.modified = false;
        self.share(owner, node);
    }

    /// Whether the core has it, alone or with others.
    #[inline]
    pub(super) fn is_at(&self, core: u16) -> bool {
        self.owner == core || self.has(core)
    }

    /// The cores that have it.
    pub(super) fn holders(&self) -> impl Iterator<Item = u16> {
        let sharers =
            self.sharers.iter().zip(0..).flat_map(|(word, at)| ones(*word).map(move |bit| at * 64 + bit));
        self.holder().into_iter().chain(sharers)
    }

    /// Whether only memory has it.
    pub(super) fn is_nowhere(&self) -> bool {
        self.cached == 0 && self.owner == NO_CORE && self.sharer_count == 0
    }

    /// The core's cache has no room for it any more.
    pub(super) fn leave(&mut self, topology: &Topology, core: u16) {
        if self.owner == core {
            self.owner = NO_CORE;
        } else if self.has(core) {
            self.sharers[usize::from(core) / 64] &= !(1 << (core % 64));
            self.sharer_count -= 1;
            let node = topology.node_of(core);
            if !topology.cores_of(node).any(|other| self.has(other)) {
                self.sharer_nodes &= !(1 << node);
            }
        }
        self.cached |= 1 << topology.cluster_of(core);
    }

    /// Whether no request waits for it or is on its way.
    pub(crate) fn is_wanted_by_nobody(&self) -> bool {
        self.waiting.0 == NONE && self.probe.0 == NONE
    }

    /// The core with the newest copy, as far as the line knows.
    pub(crate) fn holder(&self) -> Option<u16> {
        (self.owner != NO_CORE).then_some(self.owner)
    }
}

/// The places of the bits that are set.
#[inline]
pub(super) fn ones(mut bits: u64) -> impl Iterator<Item = u16> {
    std::iter::from_fn(move || {
        let first = bits.trailing_zeros() as u16;
        bits &= bits.wrapping_sub(1);
        (first < 64).then_some(first)
    })
}

/// The nearest sharer: how far, and on which node.
pub(super) fn nearest(topology: &Topology, line: &Line, core: u16, node: u16) -> (Distance, u16) {
    if line.sharer_nodes >> node & 1 != 0 {
        return (by_cluster(topology, line, core, node, Distance::min, Distance::Socket), node);
    }
    let sharers = ones(line.sharer_nodes).map(|sharer| (topology.between_nodes(node, sharer), sharer));
    sharers.min().expect("a line that is shared has sharers")
}

/// The farthest sharer on the requester's own node.
pub(super) fn farthest_here(topology: &Topology, line: &Line, core: u16, node: u16) -> Distance {
    by_cluster(topology, line, core, node, Distance::max, Distance::Cluster)
}

/// The least or greatest distance of a sharer on the own node, or `otherwise`.
fn by_cluster(
    topology: &Topology,
    line: &Line,
    core: u16,
    node: u16,
    choose: fn(Distance, Distance) -> Distance,
    otherwise: Distance,
) -> Distance {
    if topology.single_cluster() {
        return Distance::Cluster;
    }
    let cores = topology.cores_of(node);
    cores
        .filter(|other| *other != core && line.has(*other))
        .map(|other| topology.between(core, other))
        .reduce(choose)
        .unwrap_or(otherwise)
}
