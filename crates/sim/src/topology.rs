//! Which processors there are, and how far they are from each other.
//!
//! Processors are numbered node by node; within a node first one hardware thread of every core,
//! then the second. So "the first n" fills cores before it doubles up, and one node before the
//! next.

use crate::profile::{Links, Profile};

/// How far two cores, or a core and a memory, are apart.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Distance {
    /// The same core: two hardware threads of it.
    Sibling,
    /// The same group of cores within a socket (a core complex with a cache of its own).
    Cluster,
    /// The same socket.
    Socket,
    /// A neighbouring socket.
    Hop,
    /// A socket behind a neighbour.
    TwoHops,
}

/// How many distances there are.
pub(crate) const DISTANCES: usize = 5;

/// Where a processor is.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Place {
    pub(crate) core: u16,
    pub(crate) node: u16,
}

/// The machine's shape.
pub(crate) struct Topology {
    pub(crate) cpus: Vec<Place>,
    pub(crate) nodes: usize,
    /// Of each core: its cluster and its node.
    cores: Vec<(u16, u16)>,
    hops: Vec<Distance>,
    smt: usize,
    cores_per_node: usize,
    clusters: usize,
}

impl Topology {
    pub(crate) fn new(profile: &Profile) -> Self {
        let shape = &profile.topology;
        let nodes = shape.sockets;
        let cores_per_node = shape.clusters * shape.cores;
        let mut cpus = Vec::with_capacity(profile.cpus());
        for node in 0..nodes {
            for _ in 0..shape.smt {
                for core in 0..cores_per_node {
                    cpus.push(Place { core: (node * cores_per_node + core) as u16, node: node as u16 });
                }
            }
        }
        let cores = (0..nodes * cores_per_node)
            .map(|core| ((core / shape.cores) as u16, (core / cores_per_node) as u16))
            .collect();
        let hops = (0..nodes * nodes).map(|pair| shape.links.distance(pair / nodes, pair % nodes)).collect();
        Topology { cpus, nodes, cores, hops, smt: shape.smt, cores_per_node, clusters: shape.clusters }
    }

    /// Between two nodes.
    #[inline]
    pub(crate) fn between_nodes(&self, a: u16, b: u16) -> Distance {
        self.hops[usize::from(a) * self.nodes + usize::from(b)]
    }

    /// Between two cores.
    #[inline]
    pub(crate) fn between(&self, a: u16, b: u16) -> Distance {
        let (here, there) = (self.cores[usize::from(a)], self.cores[usize::from(b)]);
        if a == b {
            Distance::Sibling
        } else if here.0 == there.0 {
            Distance::Cluster
        } else {
            self.between_nodes(here.1, there.1)
        }
    }

    /// The node of a core.
    #[inline]
    pub(crate) fn node_of(&self, core: u16) -> u16 {
        self.cores[usize::from(core)].1
    }

    /// How many cores there are.
    pub(crate) fn cores(&self) -> usize {
        self.cores.len()
    }

    /// How many clusters there are in all sockets.
    pub(crate) fn all_clusters(&self) -> usize {
        self.nodes * self.clusters
    }

    /// The cluster of a core, counted through all sockets.
    #[inline]
    pub(crate) fn cluster_of(&self, core: u16) -> u16 {
        self.cores[usize::from(core)].0
    }

    /// The node of a cluster.
    pub(crate) fn node_of_cluster(&self, cluster: u16) -> u16 {
        cluster / self.clusters as u16
    }

    /// Whether a socket's cores are all equally far apart.
    #[inline]
    pub(crate) fn single_cluster(&self) -> bool {
        self.clusters == 1
    }

    /// The cores of a node.
    pub(crate) fn cores_of(&self, node: u16) -> std::ops::Range<u16> {
        let size = self.cores_per_node as u16;
        node * size..(node + 1) * size
    }

    /// The processors of a node.
    pub(crate) fn cpus_of(&self, node: u16) -> std::ops::Range<usize> {
        let size = self.cores_per_node * self.smt;
        usize::from(node) * size..(usize::from(node) + 1) * size
    }

    /// The other hardware threads of a processor's core.
    pub(crate) fn siblings(&self, cpu: usize) -> impl Iterator<Item = usize> {
        let cpus = self.cpus_of(self.cpus[cpu].node);
        let step = self.cores_per_node;
        let first = cpus.start + (cpu - cpus.start) % step;
        (first..cpus.end).step_by(step).filter(move |other| *other != cpu)
    }
}

impl Links {
    /// Between two sockets.
    fn distance(self, a: usize, b: usize) -> Distance {
        match (self, (a ^ b).count_ones()) {
            (_, 0) => Distance::Socket,
            (Links::Full, _) | (Links::Cube, 1) => Distance::Hop,
            (Links::Cube, _) => Distance::TwoHops,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_sockets_have_three_neighbours_and_four_beyond() {
        let topology = Topology::new(&Profile::find("e7-8890v4").unwrap());
        assert_eq!((topology.nodes, topology.cpus.len()), (8, 192));
        for a in 0..8 {
            let count = |d| (0..8).filter(|b| topology.between_nodes(a, *b) == d).count();
            assert_eq!((count(Distance::Socket), count(Distance::Hop), count(Distance::TwoHops)), (1, 3, 4));
        }
    }

    #[test]
    fn cores_before_their_second_threads() {
        let topology = Topology::new(&Profile::find("x5-2").unwrap());
        assert_eq!(topology.cpus.len(), 72);
        assert_eq!((topology.cpus[17].core, topology.cpus[18].core), (17, 0));
        assert_eq!((topology.cpus[35].node, topology.cpus[36].node), (0, 1));
        assert_eq!(topology.siblings(0).collect::<Vec<_>>(), [18]);
        assert_eq!(topology.siblings(19).collect::<Vec<_>>(), [1]);
        assert_eq!(topology.siblings(71).collect::<Vec<_>>(), [53]);
        assert_eq!(topology.between(0, 1), Distance::Cluster);
        assert_eq!(topology.between(0, 18), Distance::Hop);
    }

    #[test]
    fn core_complexes_are_closer_than_the_rest_of_the_socket() {
        let topology = Topology::new(&Profile::find("epyc-7742").unwrap());
        assert_eq!(topology.cpus.len(), 256);
        assert_eq!(topology.between(0, 3), Distance::Cluster);
        assert_eq!(topology.between(0, 4), Distance::Socket);
        assert_eq!(topology.between(0, 64), Distance::Hop);
    }
}
