//! The edges of the graph, in the lists of their nodes and in buckets.

use super::{AFTER, BEFORE, EDGES, Edge, FREE, LEFT, NODES, NONE, Room, SPARE_EDGES, Shared, Tables};
use crate::gates::Gates;
use crate::report::Step;

impl Tables {
    /// The edge between these nodes by these readers, and whether one by other readers was reported.
    pub(super) fn edge(&self, ends: [u32; 2], shared: Shared) -> (u32, bool) {
        let mut reported = false;
        let mut edge = self.buckets[bucket(ends)];
        while edge != NONE {
            let step = &self.edges[edge as usize];
            if step.ends == ends {
                if step.shared == shared {
                    break;
                }
                reported |= step.reported;
            }
            edge = step.next_in_bucket;
        }
        (edge, reported)
    }

    /// Takes an edge out of its bucket.
    fn leave_bucket(&mut self, edge: u32) {
        let Edge { ends, next_in_bucket, .. } = self.edges[edge as usize];
        let mut before = self.buckets[bucket(ends)];
        if before == edge {
            self.buckets[bucket(ends)] = next_in_bucket;
            return;
        }
        while self.edges[before as usize].next_in_bucket != edge {
            before = self.edges[before as usize].next_in_bucket;
        }
        self.edges[before as usize].next_in_bucket = next_in_bucket;
    }

    /// Adds an edge. The error: what there is no room for.
    pub(super) fn add(&mut self, now: &Step, gates: Gates, closes_cycle: bool) -> Result<(), Room> {
        let end = if closes_cycle { EDGES } else { EDGES - SPARE_EDGES };
        let edge = match self.free_edge {
            // The first one is `NONE`.
            NONE if self.edges_used as usize + 1 >= end => return Err(Room::Orders),
            NONE => self.edges_used + 1,
            free => free,
        };
        let from = self.node(now.held.0).ok_or(Room::Locks)?;
        let Some(to) = self.node(now.taken.0) else {
            self.leave_if_bare(from);
            return Err(Room::Locks);
        };
        if edge == self.free_edge {
            self.free_edge = self.edges[edge as usize].next[BEFORE];
        } else {
            self.edges_used = edge;
        }
        let ends = [from, to];
        let next = [BEFORE, AFTER].map(|end| self.nodes[ends[end] as usize].first[end]);
        let (held, taken) = (now.held.1, now.taken.1);
        self.edges[edge as usize] = Edge {
            ends,
            shared: now.shared,
            next,
            previous: [NONE; 2],
            next_in_bucket: self.buckets[bucket(ends)],
            held,
            taken,
            gates,
            reported: closes_cycle,
            seen: 0,
            by: NONE,
        };
        self.buckets[bucket(ends)] = edge;
        for end in [BEFORE, AFTER] {
            self.nodes[ends[end] as usize].first[end] = edge;
            if next[end] != NONE {
                self.edges[next[end] as usize].previous[end] = edge;
            }
        }
        Ok(())
    }

    /// Removes an edge, and with it the nodes that have no other one.
    pub(super) fn remove(&mut self, edge: u32) {
        self.leave_bucket(edge);
        let Edge { ends, next, previous, .. } = self.edges[edge as usize];
        for end in [BEFORE, AFTER] {
            match previous[end] {
                NONE => self.nodes[ends[end] as usize].first[end] = next[end],
                previous => self.edges[previous as usize].next[end] = next[end],
            }
            if next[end] != NONE {
                self.edges[next[end] as usize].previous[end] = previous[end];
            }
            self.leave_if_bare(ends[end]);
        }
        self.edges[edge as usize].next[BEFORE] = self.free_edge;
        self.free_edge = edge;
    }

    /// Another lock may use the node if it has no edges.
    fn leave_if_bare(&mut self, node: u32) {
        let mut index = node as usize;
        if self.nodes[index].first != [NONE; 2] {
            return;
        }
        self.nodes[index].lock = LEFT;
        // Nothing is looked for behind a free node, nor then behind those before it that were left.
        if self.nodes[(index + 1) % NODES].lock == FREE {
            while self.nodes[index].lock == LEFT {
                self.nodes[index].lock = FREE;
                index = (index + NODES - 1) % NODES;
            }
        }
    }
}

/// In which list of [`Tables::buckets`] an edge between these nodes is.
fn bucket([from, to]: [u32; 2]) -> usize {
    let key = u64::from(from) << 32 | u64::from(to);
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % EDGES
}
