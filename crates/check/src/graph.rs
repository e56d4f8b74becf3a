//! Which thread holds which lock, and which lock was taken while which other was held.

use crate::Wish;
use crate::memory;
use crate::report::{Problem, Step};
use crate::sanitizer::Unseen;
use crate::stack::Stack;
use latchwork::locks::mutex::{RawMutex, ttas::RawTtas};
use latchwork::machine::{Machine, Native};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// Locks that a thread holds at once.
const HELD: usize = 32;
const THREADS: usize = 4096;
/// Locks that were ever taken while another was held, or held while another was taken.
const NODES: usize = 1 << 17;
const EDGES: usize = 1 << 16;
/// No edge, no node.
const NONE: u32 = 0;

#[derive(Copy, Clone)]
struct Hold {
    lock: usize,
    shared: bool,
    /// How many times.
    count: u32,
    taken: Stack,
}

struct Thread {
    used: usize,
    /// How many it holds beside those in `holds`, which is full or was.
    unknown: usize,
    holds: [Hold; HELD],
}

/// A lock.
struct Node {
    /// Its address; 0 if it is free, 1 if the lock is gone.
    lock: usize,
    /// The edges that begin here.
    first: u32,
    /// The search that came by last, and the edge by which it did.
    seen: u32,
    by: u32,
}

/// `to` was taken while `from` was held.
struct Edge {
    from: u32,
    to: u32,
    next: u32,
    /// When it was first seen.
    held: Stack,
    taken: Stack,
}

/// All zero at first; too large for a stack.
pub(crate) struct Tables {
    ids: [usize; THREADS],
    threads: [Thread; THREADS],
    known: usize,
    nodes: [Node; NODES],
    edges: [Edge; EDGES],
    edges_used: u32,
    free_edge: u32,
    search: u32,
    queue: [u32; NODES],
    full: bool,
}

/// The lock before the tables.
pub(crate) struct Guarded {
    lock: RawTtas<Native>,
    tables: AtomicPtr<Tables>,
}

pub(crate) static LOCK: Guarded = Guarded { lock: RawTtas::new(), tables: AtomicPtr::new(null_mut()) };

impl Guarded {
    pub(crate) fn acquire(&self) {
        self.lock.lock();
    }

    /// # Safety
    ///
    /// It is held; in a child, by the thread that has forked.
    pub(crate) unsafe fn release_after_fork(&self, child: bool) {
        let tables = self.tables.load(Relaxed);
        // SAFETY: held, so nobody else uses the tables.
        unsafe {
            if child && let Some(tables) = tables.as_mut() {
                let me = Native::thread_id();
                for index in 0..tables.known {
                    if tables.ids[index] != me {
                        (tables.threads[index].used, tables.threads[index].unknown) = (0, 0);
                    }
                }
            }
            self.lock.unlock(());
        }
    }
}

/// Looks at the tables, which nobody else does meanwhile. `None` if there is no memory for them.
pub(crate) fn with<R>(look: impl FnOnce(&mut Tables) -> R) -> Option<R> {
    let _unseen = Unseen::new();
    LOCK.acquire();
    let mut tables = LOCK.tables.load(Relaxed);
    if tables.is_null() {
        // Zeroes are empty tables.
        tables = memory::map();
        LOCK.tables.store(tables, Relaxed);
    }
    // SAFETY: under the lock, and mapped.
    let result = unsafe { tables.as_mut() }.map(look);
    // SAFETY: taken above.
    unsafe { LOCK.lock.unlock(()) };
    result
}

impl Tables {
    fn thread(&mut self, me: usize) -> Option<&mut Thread> {
        let index = match self.ids[..self.known].iter().position(|id| *id == me) {
            Some(index) => index,
            None => {
                // One that holds nothing is not missed: its thread comes back here, or has ended.
                let idle = (0..self.known).find(|index| {
                    let thread = &self.threads[*index];
                    thread.used == 0 && thread.unknown == 0
                });
                let index = idle.unwrap_or(self.known);
                if index == THREADS {
                    return None;
                }
                self.known = self.known.max(index + 1);
                self.ids[index] = me;
                self.threads[index].unknown = 0;
                index
            }
        };
        Some(&mut self.threads[index])
    }

    /// What may be wrong with this, and what is to be remembered of it.
    pub(crate) fn acquiring(&mut self, me: usize, lock: usize, wish: Wish, here: &Stack) -> Option<Problem> {
        let index = self.ids[..self.known].iter().position(|id| *id == me)?;
        let mut problem = None;
        for i in 0..self.threads[index].used {
            let Hold { lock: held, shared, taken, .. } = self.threads[index].holds[i];
            if held == lock {
                if wish.again || wish.shared && shared {
                    return None;
                }
                return Some(Problem::SelfDeadlock { lock, held: taken, here: *here });
            }
            if shared && wish.shared {
                continue; // readers do not wait for each other
            }
            let now = Step { held: (held, taken), taken: (lock, *here) };
            let found = self.connect(&now);
            problem = problem.or(found);
        }
        problem
    }

    /// Adds an edge. If it is new, and closes a cycle, that is a problem.
    fn connect(&mut self, now: &Step) -> Option<Problem> {
        let (Some(from), Some(to)) = (self.node(now.held.0), self.node(now.taken.0)) else {
            return self.fill("locks");
        };
        let mut edge = self.nodes[from as usize].first;
        while edge != NONE {
            if self.edges[edge as usize].to == to {
                return None;
            }
            edge = self.edges[edge as usize].next;
        }
        let found = self.path(to, from);
        let Some(new) = self.new_edge() else { return self.fill("orders of locks") };
        self.edges[new as usize] =
            Edge { from, to, next: self.nodes[from as usize].first, held: now.held.1, taken: now.taken.1 };
        self.nodes[from as usize].first = new;
        let (first, last, length) = found?;
        let step = |edge: u32| {
            let edge = &self.edges[edge as usize];
            Step {
                held: (self.nodes[edge.from as usize].lock, edge.held),
                taken: (self.nodes[edge.to as usize].lock, edge.taken),
            }
        };
        Some(Problem::Inversion { now: *now, then: step(first), back: step(last), length })
    }

    /// The first and last edge of a shortest path, and its length.
    fn path(&mut self, from: u32, to: u32) -> Option<(u32, u32, usize)> {
        self.search += 1;
        let search = self.search;
        (self.nodes[from as usize].seen, self.queue[0]) = (search, from);
        let (mut done, mut end) = (0, 1);
        while done < end {
            let mut edge = self.nodes[self.queue[done] as usize].first;
            done += 1;
            while edge != NONE {
                let next = self.edges[edge as usize].to;
                let node = &mut self.nodes[next as usize];
                if node.seen != search {
                    (node.seen, node.by) = (search, edge);
                    if next == to {
                        return Some(self.walk_back(from, edge));
                    }
                    self.queue[end] = next;
                    end += 1;
                }
                edge = self.edges[edge as usize].next;
            }
        }
        None
    }

    fn walk_back(&self, from: u32, last: u32) -> (u32, u32, usize) {
        let (mut first, mut length) = (last, 1);
        while self.edges[first as usize].from != from {
            first = self.nodes[self.edges[first as usize].from as usize].by;
            length += 1;
        }
        (first, last, length)
    }

    /// The node of a lock.
    fn node(&mut self, lock: usize) -> Option<u32> {
        // Edges may lead to one that is gone, so it is not used again.
        let index = probes(lock).find(|index| [lock, 0].contains(&self.nodes[*index].lock))?;
        self.nodes[index].lock = lock;
        Some(index as u32)
    }

    fn new_edge(&mut self) -> Option<u32> {
        if self.free_edge != NONE {
            let edge = self.free_edge;
            self.free_edge = self.edges[edge as usize].next;
            return Some(edge);
        }
        // The first one is `NONE`.
        (self.edges_used + 1 < EDGES as u32).then(|| {
            self.edges_used += 1;
            self.edges_used
        })
    }

    fn fill(&mut self, what: &'static str) -> Option<Problem> {
        (!std::mem::replace(&mut self.full, true)).then_some(Problem::Full(what))
    }

    pub(crate) fn acquired(&mut self, me: usize, lock: usize, shared: bool, taken: Stack) {
        let Some(thread) = self.thread(me) else { return };
        let Thread { used, unknown, holds } = thread;
        if let Some(hold) = holds[..*used].iter_mut().find(|hold| hold.lock == lock) {
            hold.count += 1;
        } else if *used < HELD {
            holds[*used] = Hold { lock, shared, count: 1, taken };
            *used += 1;
        } else {
            *unknown += 1;
        }
    }

    /// Ends one acquisition; `None` if there was none. An `all` ends all of one thread.
    fn release(&mut self, index: usize, lock: usize, all: bool) -> Option<Stack> {
        let Thread { used, holds, .. } = &mut self.threads[index];
        let at = holds[..*used].iter().rposition(|hold| hold.lock == lock)?;
        let taken = holds[at].taken;
        holds[at].count -= 1;
        if all || holds[at].count == 0 {
            holds.copy_within(at + 1..*used, at);
            *used -= 1;
        }
        Some(taken)
    }

    pub(crate) fn releasing(&mut self, me: usize, lock: usize) -> Option<Problem> {
        if let Some(index) = self.ids[..self.known].iter().position(|id| *id == me) {
            if self.release(index, lock, false).is_some() {
                return None;
            }
            let unknown = &mut self.threads[index].unknown;
            if *unknown > 0 {
                *unknown -= 1;
                return None; // probably one of those
            }
        }
        let holder = self.take_from_all(lock);
        Some(Problem::Stranger { lock, holder, here: Stack::NONE })
    }

    fn take_from_all(&mut self, lock: usize) -> Option<(usize, Stack)> {
        let mut holder = None;
        for index in 0..self.known {
            if let Some(taken) = self.release(index, lock, true) {
                holder = Some((self.ids[index], taken));
            }
        }
        holder
    }

    /// The lock is gone, and with it what came before and after it.
    pub(crate) fn forget(&mut self, lock: usize) -> Option<Problem> {
        for index in probes(lock) {
            if self.nodes[index].lock == 0 {
                break;
            }
            if self.nodes[index].lock == lock {
                let mut edge = std::mem::replace(&mut self.nodes[index].first, NONE);
                self.nodes[index].lock = 1;
                while edge != NONE {
                    let next = std::mem::replace(&mut self.edges[edge as usize].next, self.free_edge);
                    self.free_edge = edge;
                    edge = next;
                }
                break;
            }
        }
        let holder = self.take_from_all(lock)?;
        Some(Problem::Destroyed { lock, holder, here: Stack::NONE })
    }
}

/// Where the node of a lock may be.
fn probes(lock: usize) -> impl Iterator<Item = usize> {
    let start = (lock as u64 >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (0..64).map(move |step| (start as usize + step) % NODES)
}
