//! Where this machine's CPUs are, as the kernel says.

use latchwork_sim::{Links, Shape};
use latchwork_workloads::topology::allowed;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// A CPU that this process may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Its number.
    pub id: usize,
    socket: usize,
    /// The first CPU of those that share its last cache.
    cluster: usize,
    core: usize,
}

/// How far two CPUs are apart.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// Two hardware threads of a core.
    Sibling,
    /// Cores that share their last cache.
    Cluster,
    /// Cores of a socket that do not.
    Socket,
    /// Two sockets (or NUMA nodes, where a socket has several).
    Remote,
}

/// This machine.
#[derive(Clone, Debug)]
pub struct Places {
    /// The CPUs.
    pub cpus: Vec<Cpu>,
}

impl Places {
    /// This machine's.
    pub fn here() -> Places {
        let nodes = numbered("/sys/devices/system/node", "node");
        let number =
            |path: String| fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<usize>().ok());
        let packages: BTreeSet<_> = allowed()
            .iter()
            .map(|cpu| number(format!("/sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id")))
            .collect();
        let cpus = allowed()
            .into_iter()
            .map(|id| {
                let base = format!("/sys/devices/system/cpu/cpu{id}");
                let package = number(format!("{base}/topology/physical_package_id")).unwrap_or(0);
                let node = nodes.iter().copied().find(|node| {
                    fs::exists(format!("/sys/devices/system/node/node{node}/cpu{id}")).unwrap_or(false)
                });
                let core = number(format!("{base}/topology/core_id")).unwrap_or(id);
                let caches = numbered(&format!("{base}/cache"), "index");
                let last = caches.last().and_then(|index| {
                    fs::read_to_string(format!("{base}/cache/index{index}/shared_cpu_list")).ok()
                });
                let socket = if nodes.len() > packages.len() { node.unwrap_or(0) } else { package };
                Cpu {
                    id,
                    socket,
                    cluster: last.and_then(|list| first_of(&list)).unwrap_or(socket << 16),
                    core: package << 16 | core,
                }
            })
            .collect();
        Places { cpus }
    }

    /// Those of a machine that is not at hand, without further hardware threads.
    #[cfg(test)]
    pub fn made_up(sockets: usize, clusters: usize, cores: usize) -> Places {
        let cpu =
            |id: usize| Cpu { id, socket: id / (clusters * cores), cluster: id / cores * cores, core: id };
        Places { cpus: (0..sockets * clusters * cores).map(cpu).collect() }
    }

    /// How far two CPUs are apart.
    pub fn between(&self, a: &Cpu, b: &Cpu) -> Distance {
        if a.core == b.core {
            Distance::Sibling
        } else if a.socket != b.socket {
            Distance::Remote
        } else if a.cluster == b.cluster {
            Distance::Cluster
        } else {
            Distance::Socket
        }
    }

    /// Up to `most` pairs of CPUs at that distance, spread over the machine.
    pub fn pairs(&self, distance: Distance, most: usize) -> Vec<(usize, usize)> {
        let mut pairs = Vec::new();
        for (i, a) in self.cpus.iter().enumerate() {
            for b in &self.cpus[i + 1..] {
                if self.between(a, b) == distance {
                    pairs.push((a.id, b.id));
                }
            }
        }
        let step = pairs.len().div_ceil(most).max(1);
        pairs.into_iter().step_by(step).collect()
    }

    /// Two CPUs of different cores, as near to each other as there are; of one core if there is only one.
    pub fn nearest(&self) -> Option<(usize, usize)> {
        let distances = [Distance::Cluster, Distance::Socket, Distance::Remote, Distance::Sibling];
        distances.into_iter().find_map(|distance| self.pairs(distance, 1).first().copied())
    }

    /// The shape of a machine of which all sockets are like the largest.
    pub fn shape(&self) -> Shape {
        let mut sockets: BTreeMap<usize, BTreeMap<usize, BTreeMap<usize, usize>>> = BTreeMap::new();
        for cpu in &self.cpus {
            let clusters = sockets.entry(cpu.socket).or_default();
            *clusters.entry(cpu.cluster).or_default().entry(cpu.core).or_default() += 1;
        }
        let clusters = || sockets.values().flat_map(BTreeMap::values);
        Shape {
            sockets: sockets.len(),
            clusters: sockets.values().map(BTreeMap::len).max().unwrap_or(1),
            cores: clusters().map(BTreeMap::len).max().unwrap_or(1),
            smt: clusters().flat_map(BTreeMap::values).copied().max().unwrap_or(1),
            links: Links::Full,
        }
    }
}

/// The numbers of entries such as `node0` in a directory, in order.
fn numbered(directory: &str, prefix: &str) -> Vec<usize> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut numbers: Vec<usize> =
        entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

/// The first CPU of a list such as `0-3,8`.
fn first_of(list: &str) -> Option<usize> {
    list.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sockets of two clusters of two cores of two threads.
    fn example() -> Places {
        let cpu = |id: usize| Cpu { id, socket: id / 8, cluster: id / 4 * 4, core: id / 2 };
        Places { cpus: (0..16).map(cpu).collect() }
    }

    #[test]
    fn distances_and_shape() {
        let places = example();
        for (distance, other) in
            [(Distance::Sibling, 1), (Distance::Cluster, 2), (Distance::Socket, 4), (Distance::Remote, 8)]
        {
            assert_eq!(places.between(&places.cpus[0], &places.cpus[other]), distance);
            let pairs = places.pairs(distance, 3);
            assert!((1..=3).contains(&pairs.len()), "{distance:?}: {pairs:?}");
        }
        assert_eq!(places.nearest(), Some((0, 2)));
        let shape = places.shape();
        assert_eq!((shape.sockets, shape.clusters, shape.cores, shape.smt), (2, 2, 2, 2));
    }

    #[test]
    fn one_cpu() {
        let places = Places { cpus: vec![Cpu { id: 3, socket: 0, cluster: 0, core: 0 }] };
        assert!(places.pairs(Distance::Cluster, 3).is_empty());
        assert_eq!(places.nearest(), None);
        assert_eq!(places.shape().cores, 1);
    }

    #[test]
    fn this_machine_has_cpus() {
        let places = Places::here();
        assert!(!places.cpus.is_empty());
        assert_eq!(first_of("12-15,44\n"), Some(12));
    }
}
