//! This machine's CPUs and NUMA nodes, and which thread runs where.

use crate::stage::Home;
use std::fs;

/// In which order threads get CPUs.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub enum Placement {
    /// The scheduler decides.
    #[default]
    Free,
    /// One node's CPUs after the other's (Bueso: "first fill").
    FirstFill,
    /// One CPU of each node in turn (Bueso: "round robin").
    RoundRobin,
}

/// The CPUs that this process may use, by NUMA node.
#[derive(Clone, Debug)]
pub struct Topology {
    /// For each node: its number and CPUs; of those, one of each core first.
    nodes: Vec<(u32, Vec<usize>)>,
}

impl Topology {
    /// This machine's.
    pub fn here() -> Self {
        let allowed = allowed();
        let mut nodes = Vec::new();
        for entry in fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(number) = name.to_str().and_then(|name| name.strip_prefix("node")?.parse().ok()) else {
                continue;
            };
            let list = fs::read_to_string(entry.path().join("cpulist")).unwrap_or_default();
            let cpus: Vec<usize> = cpu_list(&list).into_iter().filter(|cpu| allowed.contains(cpu)).collect();
            if !cpus.is_empty() {
                nodes.push((number, siblings_last(cpus)));
            }
        }
        nodes.sort();
        if nodes.is_empty() {
            nodes.push((0, siblings_last(allowed)));
        }
        Topology { nodes }
    }

    /// How many CPUs there are.
    pub fn cpus(&self) -> usize {
        self.nodes.iter().map(|(_, cpus)| cpus.len()).sum()
    }

    /// The CPU for thread `index`; with more threads than CPUs they begin anew.
    pub fn cpu(&self, placement: Placement, index: usize) -> Option<usize> {
        let index = index % self.cpus();
        let mut order = match placement {
            Placement::Free => return None,
            Placement::FirstFill => self.nodes.iter().flat_map(|(_, cpus)| cpus).copied().collect::<Vec<_>>(),
            Placement::RoundRobin => {
                let most = self.nodes.iter().map(|(_, cpus)| cpus.len()).max().unwrap_or(0);
                (0..most)
                    .flat_map(|at| self.nodes.iter().filter_map(move |(_, cpus)| cpus.get(at).copied()))
                    .collect()
            }
        };
        Some(order.swap_remove(index))
    }

    /// NUMA nodes.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Moves the pages of `object` to `home`.
    pub(crate) fn place<T>(&self, object: &T, home: Home, placement: Placement) -> Result<(), String> {
        // Thread 0 runs on the first node, unless the scheduler decides.
        let node = match (home, placement) {
            (Home::Local, Placement::Free) => return Ok(()),
            (Home::Local, _) => self.nodes[0].0,
            (Home::Remote, _) if self.nodes.len() < 2 => {
                return Err("home=remote needs two NUMA nodes, and this machine has one; \
                            `latchwork-lab simulate` has machines with more"
                    .into());
            }
            (Home::Remote, Placement::Free) => {
                return Err("home=remote needs threads in their places: --placement first-fill".into());
            }
            (Home::Remote, _) => self.nodes[self.nodes.len() - 1].0,
        };
        bind(std::ptr::from_ref(object).cast(), size_of::<T>(), node)
    }
}

/// CPUs that this process may use.
pub fn allowed() -> Vec<usize> {
    // SAFETY: all zero bytes are an empty set; the call fills it within its size.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &mut set);
        set
    };
    let limit = 8 * size_of::<libc::cpu_set_t>();
    // SAFETY: below the set's size.
    let cpus: Vec<usize> = (0..limit).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect();
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// Binds the calling thread to `cpu`. If the system refuses (the CPU went away), it runs anywhere.
pub fn pin(cpu: usize) {
    // SAFETY: all zero bytes are an empty set; `cpu` came from such a set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

/// Reads "0-3,8".
fn cpu_list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

/// The first thread of each core, then the second of each, and so on.
fn siblings_last(cpus: Vec<usize>) -> Vec<usize> {
    let rank = |cpu: &usize| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        let siblings = cpu_list(&fs::read_to_string(path).unwrap_or_default());
        siblings.iter().position(|sibling| sibling == cpu).unwrap_or(0)
    };
    let mut ranked: Vec<(usize, usize)> = cpus.iter().map(|cpu| (rank(cpu), *cpu)).collect();
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, cpu)| cpu).collect()
}

/// Moves pages to a node, where they stay.
fn bind(start: *const u8, bytes: usize, node: u32) -> Result<(), String> {
    const MPOL_BIND: libc::c_long = 2;
    const MPOL_MF_MOVE: libc::c_ulong = 2;
    let mut mask = [0 as libc::c_ulong; 16];
    let width = libc::c_ulong::BITS;
    let word = mask.get_mut((node / width) as usize).ok_or("a NUMA node beyond 1023")?;
    *word |= 1 << (node % width);
    let most = mask.len() * width as usize;
    // SAFETY: whole pages that the caller owns; the mask has as many bits as it says.
    let result =
        unsafe { libc::syscall(libc::SYS_mbind, start, bytes, MPOL_BIND, mask.as_ptr(), most, MPOL_MF_MOVE) };
    if result != 0 {
        return Err(format!("mbind to NUMA node {node}: {}", std::io::Error::last_os_error()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_nodes() -> Topology {
        Topology { nodes: vec![(0, vec![0, 1]), (1, vec![2, 3])] }
    }

    #[test]
    fn placements_are_those_of_the_paper() {
        let order = |placement| (0..5).map(|i| two_nodes().cpu(placement, i)).collect::<Vec<_>>();
        assert_eq!(order(Placement::FirstFill), [0, 1, 2, 3, 0].map(Some));
        assert_eq!(order(Placement::RoundRobin), [0, 2, 1, 3, 0].map(Some));
        assert_eq!(order(Placement::Free), [None; 5]);
    }

    #[test]
    fn a_remote_home_needs_another_node() {
        let one = Topology { nodes: vec![(0, vec![0])] };
        let page = crate::data::Page(0u8);
        assert!(one.place(&page, Home::Remote, Placement::FirstFill).unwrap_err().contains("two NUMA"));
        assert!(one.place(&page, Home::Local, Placement::FirstFill).is_ok());
    }

    #[test]
    fn this_machine_has_cpus() {
        assert_eq!(cpu_list("0-2,5\n"), [0, 1, 2, 5]);
        let here = Topology::here();
        assert!(here.cpus() >= 1);
        assert!(here.cpu(Placement::FirstFill, 0).is_some());
    }
}
