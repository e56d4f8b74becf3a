//! Which thread holds which lock, and which lock was taken while which other was held.

use crate::Wish;
use crate::gates::Gates;
use crate::memory;
use crate::owned::OwnedLock;
use crate::report::{Problem, Step};
use crate::sanitizer::Unseen;
use crate::stack::Stack;
use latchwork::machine::{Machine, Native};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed};

/// Locks that a thread holds at once.
const HELD: usize = 32;
const THREADS: usize = 4096;
/// Locks that were taken while another was held, or held while another was taken.
const NODES: usize = 1 << 17;
const EDGES: usize = 1 << 16;
/// Edges that are kept for those that close a cycle: with one, the cycle is reported once. More reports are not made.
const SPARE_EDGES: usize = crate::report::MOST as usize;
/// No edge.
const NONE: u32 = 0;

#[derive(Copy, Clone)]
pub(crate) struct Hold {
    pub(crate) lock: usize,
    pub(crate) shared: bool,
    /// Whether the lock refuses to be unlocked by another thread.
    refuses: bool,
    /// How many times.
    count: u32,
    taken: Stack,
}

struct Thread {
    used: usize,
    /// How many it holds beside those in `holds`, which is full or was.
    unknown: usize,
    holds: [Hold; HELD],
    /// How it asks for the lock that [`Tables::asked`] has.
    asks: circle::Ask,
}

/// A lock that has an edge.
struct Node {
    /// Its address, or [`FREE`] or [`LEFT`].
    lock: usize,
    /// The first edge of the list of each [`End`].
    first: [u32; 2],
    /// The searches that came by last, one for each [`arrival`].
    seen: [u32; 3],
}

/// A node that was never used, behind which no lock's node is looked for.
const FREE: usize = 0;
/// A node whose lock has no edges any more.
const LEFT: usize = 1;

/// The lock at the end `AFTER` was taken while the lock at the end `BEFORE` was held.
struct Edge {
    /// The nodes.
    ends: [u32; 2],
    /// At which end the thread was a reader. The same order with other readers is another edge.
    shared: Shared,
    /// The neighbours in the lists of the two nodes. An edge that is free has the next free one in `next[BEFORE]`.
    next: [u32; 2],
    previous: [u32; 2],
    /// The next edge of the same [`Tables::buckets`].
    next_in_bucket: u32,
    /// When it was first seen.
    held: Stack,
    taken: Stack,
    /// What kept other threads away each time.
    gates: Gates,
    /// Whether it belongs to a cycle that was reported.
    reported: bool,
    /// The search that came by last, and the edge before this one in its path.
    seen: u32,
    by: u32,
}

/// At which end of an edge the thread was a reader.
pub(crate) type Shared = [bool; 2];

/// Whether a thread with the second edge may keep one with the first waiting, where they meet: not if both are readers. But a writer
/// may wait there between them, and most reader-writer locks then let no further reader in. So readers count like writers, unless
/// one of the threads reads at both ends.
fn may_wait(first: Shared, second: Shared) -> bool {
    let only_reads = [first, second].contains(&[true; 2]);
    !(first[AFTER] && second[BEFORE] && only_reads)
}

/// How an edge comes to its second end, as far as [`may_wait`] depends on it.
fn arrival(shared: Shared) -> usize {
    usize::from(shared[AFTER]) + usize::from(shared == [true; 2])
}

/// An end of an edge. Each node has a list for each: of the edges that have it at this end.
type End = usize;
/// The lock that was held.
const BEFORE: End = 0;
/// The lock that was taken.
const AFTER: End = 1;

/// What there may be no more room for.
#[derive(Copy, Clone, Debug)]
enum Room {
    Orders,
    Locks,
    Threads,
    Holds,
}

/// All zero at first; too large for a stack.
pub(crate) struct Tables {
    ids: [usize; THREADS],
    threads: [Thread; THREADS],
    known: usize,
    /// The lock for which each thread waits, or is about to; 0: it does not. Only those are known that hold others.
    asked: [usize; THREADS],
    /// What a search for a circle has reached: its number, for each thread; the threads in their order; and by which each was reached.
    circles: u32,
    circle_of: [u32; THREADS],
    reached: [u16; THREADS],
    came_from: [u16; THREADS],
    nodes: [Node; NODES],
    edges: [Edge; EDGES],
    edges_used: u32,
    free_edge: u32,
    /// The first edge of each bucket of `edges`. A lock may be taken under thousands of others, and have thousands taken under it.
    buckets: [u32; EDGES],
    search: u32,
    /// Edges behind which a search has not looked yet.
    queue: [u32; EDGES],
    /// Whether it was said that they are full, for each kind of thing ([`Room`]).
    full: [bool; 4],
    /// Locks that threads hold for which there is no room.
    unknown: usize,
}

/// The lock before the tables.
pub(crate) struct Guarded {
    lock: OwnedLock,
    tables: AtomicPtr<Tables>,
    /// Whether this is a child whose tables still have the locks of the parent's other threads.
    others: AtomicBool,
}

pub(crate) static LOCK: Guarded =
    Guarded { lock: OwnedLock::new(), tables: AtomicPtr::new(null_mut()), others: AtomicBool::new(false) };

impl Guarded {
    /// As [`OwnedLock::acquire`].
    #[must_use]
    pub(crate) fn acquire(&self) -> bool {
        self.lock.acquire()
    }

    pub(crate) fn is_mine(&self) -> bool {
        self.lock.is_mine()
    }

    /// # Safety
    ///
    /// As [`OwnedLock::release`].
    pub(crate) unsafe fn release(&self) {
        // SAFETY: held, so nobody else uses the tables.
        unsafe {
            if self.others.load(Relaxed) {
                self.others.store(false, Relaxed);
                if let Some(tables) = self.tables.load(Relaxed).as_mut() {
                    tables.forget_others(Native::thread_id());
                }
            }
            self.lock.release();
        }
    }

    /// In a forked child, whose only thread holds the lock, and may be about to change the tables.
    pub(crate) fn forget_others_at_release(&self) {
        self.others.store(true, Relaxed);
    }
}

/// Looks at the tables, which nobody else does meanwhile. `None` if there is no memory for them, or if a signal handler has interrupted
/// a thread that looks at them.
pub(crate) fn with<R>(look: impl FnOnce(&mut Tables) -> R) -> Option<R> {
    let _unseen = Unseen::new();
    if !LOCK.acquire() {
        return None;
    }
    let mut tables = LOCK.tables.load(Relaxed);
    if tables.is_null() {
        // Zeroes are empty tables.
        tables = memory::map();
        LOCK.tables.store(tables, Relaxed);
    }
    // SAFETY: under the lock, and mapped.
    let result = unsafe { tables.as_mut() }.map(look);
    // SAFETY: acquired above.
    unsafe { LOCK.release() };
    result
}

impl Tables {
    fn index(&self, me: usize) -> Option<usize> {
        self.ids[..self.known].iter().position(|id| *id == me)
    }

    fn thread(&mut self, me: usize) -> Option<&mut Thread> {
        let index = match self.index(me) {
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
                self.asked[index] = 0;
                index
            }
        };
        Some(&mut self.threads[index])
    }

    /// The child of a fork has one thread.
    fn forget_others(&mut self, me: usize) {
        for index in 0..self.known {
            if self.ids[index] != me {
                (self.threads[index].used, self.threads[index].unknown) = (0, 0);
                self.asked[index] = 0;
            }
        }
    }

    /// What may be wrong with this, and what is to be remembered of it.
    pub(crate) fn acquiring(&mut self, me: usize, lock: usize, wish: Wish, here: &Stack) -> Option<Problem> {
        let index = self.index(me)?;
        let mut problem = None;
        for i in 0..self.threads[index].used {
            let Hold { lock: held, shared, taken, .. } = self.threads[index].holds[i];
            if held == lock {
                if wish.again || wish.shared && shared {
                    return None;
                }
                return Some(Problem::SelfDeadlock { lock, held: taken, here: *here });
            }
            let now = Step { held: (held, taken), taken: (lock, *here), shared: [shared, wish.shared] };
            let found = self.connect(index, &now);
            problem = problem.or(found);
        }
        problem
    }

    /// Adds an edge. If it closes a cycle, that is a problem: when it is new, or when fewer gates kept it apart than each time before.
    /// The thread has this index.
    fn connect(&mut self, index: usize, now: &Step) -> Option<Problem> {
        let ends = self.find(now.held.0).zip(self.find(now.taken.0)).map(|(from, to)| [from, to]);
        let (edge, reported) = ends.map_or((NONE, false), |ends| self.edge(ends, now.shared));
        if edge != NONE {
            return self.connect_again(index, edge, now);
        }
        let gates = Gates::of(self.holds(index), now.held.0);
        let found = ends.and_then(|ends| self.path(ends, now.shared, &gates));
        if let Err(room) = self.add(now, gates, found.is_some())
            && found.is_none()
        {
            return self.full(room);
        }
        found.filter(|_| !reported).map(|path| self.inversion(now, path))
    }

    fn connect_again(&mut self, index: usize, edge: u32, now: &Step) -> Option<Problem> {
        let Edge { ends, mut gates, reported, .. } = self.edges[edge as usize];
        if !gates.narrow(self.holds(index)) {
            return None;
        }
        self.edges[edge as usize].gates = gates;
        if reported {
            return None;
        }
        let path = self.path(ends, now.shared, &gates)?;
        self.edges[edge as usize].reported = true;
        Some(self.inversion(now, path))
    }

    /// What the thread with this index holds.
    fn holds(&self, index: usize) -> &[Hold] {
        let Thread { used, holds, .. } = &self.threads[index];
        &holds[..*used]
    }

    fn inversion(&self, now: &Step, (first, last, length): (u32, u32, usize)) -> Problem {
        let step = |edge: u32| {
            let Edge { ends, held, taken, shared, .. } = &self.edges[edge as usize];
            let lock = |end: End| self.nodes[ends[end] as usize].lock;
            Step { held: (lock(BEFORE), *held), taken: (lock(AFTER), *taken), shared: *shared }
        };
        Problem::Inversion { now: *now, then: step(first), back: step(last), length }
    }

    /// There is no room. That is said once for each kind of thing.
    fn full(&mut self, room: Room) -> Option<Problem> {
        let what = match room {
            Room::Orders => "orders of locks",
            Room::Locks => "locks",
            Room::Threads => "threads that hold locks",
            Room::Holds => "locks that one thread holds (32)",
        };
        (!std::mem::replace(&mut self.full[room as usize], true)).then_some(Problem::Full(what))
    }

    /// The first and last edge of a shortest path from the second end of an edge to the first one, and its length. Where edges meet,
    /// threads may wait. Edges that share one of these gates are left out. If two edges of the path share one, there is no path:
    /// another one, as short or longer, is not looked for.
    fn path(&mut self, ends: [u32; 2], shared: Shared, gates: &Gates) -> Option<(u32, u32, usize)> {
        if self.nodes[ends[BEFORE] as usize].first[AFTER] == NONE {
            return None; // no edge leads back
        }
        self.search += 1;
        let search = self.search;
        let (mut done, mut end) = (0, 0);
        let (mut node, mut came, mut by) = (ends[AFTER], shared, NONE);
        loop {
            let Node { first, seen, .. } = &mut self.nodes[node as usize];
            let mut edge = first[BEFORE];
            if std::mem::replace(&mut seen[arrival(came)], search) == search {
                edge = NONE; // all these were looked at
            }
            while edge != NONE {
                let step = &mut self.edges[edge as usize];
                let next = step.next[BEFORE];
                if step.seen != search && may_wait(came, step.shared) && !step.gates.meet(gates) {
                    (step.seen, step.by) = (search, by);
                    if step.ends[AFTER] != ends[BEFORE] {
                        self.queue[end] = edge;
                        end += 1;
                    } else if may_wait(step.shared, shared) {
                        return (!self.is_apart(edge)).then(|| self.walk_back(edge));
                    }
                }
                edge = next;
            }
            if done == end {
                return None;
            }
            by = self.queue[done];
            done += 1;
            (node, came) = (self.edges[by as usize].ends[AFTER], self.edges[by as usize].shared);
        }
    }

    /// The edges of the path that the search has found, from this one back to the first.
    fn path_to(&self, last: u32) -> impl Iterator<Item = u32> {
        let before = |edge: &u32| Some(self.edges[*edge as usize].by).filter(|edge| *edge != NONE);
        std::iter::successors(Some(last), before)
    }

    /// Whether two edges of the path that ends with this one share a gate.
    fn is_apart(&self, last: u32) -> bool {
        let gates = |edge: u32| &self.edges[edge as usize].gates;
        let meets = |edge: u32| self.path_to(edge).skip(1).any(|before| gates(before).meet(gates(edge)));
        self.path_to(last).any(meets)
    }

    /// The path that ends with this edge is reported. Returns what [`path`](Self::path) does.
    fn walk_back(&mut self, last: u32) -> (u32, u32, usize) {
        let (mut first, mut edge, mut length) = (last, last, 0);
        while edge != NONE {
            (first, length) = (edge, length + 1);
            let step = &mut self.edges[edge as usize];
            step.reported = true;
            edge = step.by;
        }
        (first, last, length)
    }

    /// The node of a lock, if it has one.
    fn find(&self, lock: usize) -> Option<u32> {
        let lock_at = |index: &usize| self.nodes[*index].lock;
        let index = probes(lock).find(|index| [lock, FREE].contains(&lock_at(index)))?;
        (lock_at(&index) == lock).then_some(index as u32)
    }

    /// The node of a lock, which the caller gives an edge.
    fn node(&mut self, lock: usize) -> Option<u32> {
        let unused = || probes(lock).find(|index| [FREE, LEFT].contains(&self.nodes[*index].lock));
        let index = self.find(lock).or_else(|| unused().map(|index| index as u32))?;
        self.nodes[index as usize].lock = lock;
        Some(index)
    }

    #[must_use]
    pub(crate) fn acquired(&mut self, me: usize, lock: usize, wish: Wish, taken: Stack) -> Option<Problem> {
        let Some(thread) = self.thread(me) else {
            self.unknown += 1;
            return self.full(Room::Threads);
        };
        let Thread { used, unknown, holds, .. } = thread;
        if let Some(hold) = holds[..*used].iter_mut().find(|hold| hold.lock == lock) {
            hold.count += 1;
        } else if *used < HELD {
            let Wish { shared, refuses, .. } = wish;
            holds[*used] = Hold { lock, shared, refuses, count: 1, taken };
            *used += 1;
        } else {
            *unknown += 1;
            return self.full(Room::Holds);
        }
        None
    }

    /// Ends one acquisition; `false` if there was none. An `all` ends all of one thread.
    fn release(&mut self, index: usize, lock: usize, all: bool) -> bool {
        let Thread { used, holds, .. } = &mut self.threads[index];
        let Some(at) = holds[..*used].iter().rposition(|hold| hold.lock == lock) else { return false };
        holds[at].count -= 1;
        if all || holds[at].count == 0 {
            holds.copy_within(at + 1..*used, at);
            *used -= 1;
        }
        true
    }

    pub(crate) fn releasing(&mut self, me: usize, lock: usize) -> Option<Problem> {
        if let Some(index) = self.index(me) {
            if self.release(index, lock, false) {
                return None;
            }
            let unknown = &mut self.threads[index].unknown;
            if *unknown > 0 {
                *unknown -= 1;
                return None; // probably one of those
            }
        } else if self.unknown > 0 {
            self.unknown -= 1;
            return None; // probably one of those
        }
        let problem = self.stranger(lock);
        if !self.holder(lock).is_some_and(|(_, hold)| hold.refuses) {
            self.take_from_all(lock);
        }
        Some(problem)
    }

    /// A thread that does not hold the lock releases it.
    fn stranger(&self, lock: usize) -> Problem {
        let holder = self.holder(lock).map(|(thread, hold)| (thread, hold.taken));
        Problem::Stranger { lock, holder, here: Stack::NONE }
    }

    fn take_from_all(&mut self, lock: usize) {
        for index in 0..self.known {
            self.release(index, lock, true);
        }
    }

    /// A thread that holds the lock.
    fn holder(&self, lock: usize) -> Option<(usize, Hold)> {
        (0..self.known).rev().find_map(|index| {
            let Thread { used, holds, .. } = &self.threads[index];
            let hold = holds[..*used].iter().rfind(|hold| hold.lock == lock)?;
            Some((self.ids[index], *hold))
        })
    }

    /// The lock is gone, and with it what came before and after it.
    pub(crate) fn forget(&mut self, lock: usize) {
        if let Some(node) = self.find(lock) {
            self.forget_gate(lock, node);
            for end in [BEFORE, AFTER] {
                while self.nodes[node as usize].first[end] != NONE {
                    self.remove(self.nodes[node as usize].first[end]);
                }
            }
        }
        self.take_from_all(lock);
    }

    /// The lock is no gate any more. What was taken while it was held has an edge from it.
    fn forget_gate(&mut self, lock: usize, node: u32) {
        let mut under = self.nodes[node as usize].first[BEFORE];
        while under != NONE {
            let Edge { ends, next, .. } = self.edges[under as usize];
            under = next[BEFORE];
            let mut edge = self.nodes[ends[AFTER] as usize].first[AFTER];
            while edge != NONE {
                self.edges[edge as usize].gates.remove(lock);
                edge = self.edges[edge as usize].next[AFTER];
            }
        }
    }

    pub(crate) fn destroying(&self, lock: usize) -> Option<Problem> {
        let (thread, hold) = self.holder(lock)?;
        Some(Problem::Destroyed { lock, holder: (thread, hold.taken), here: Stack::NONE })
    }
}

/// Where the node of a lock may be.
fn probes(lock: usize) -> impl Iterator<Item = usize> {
    let start = (lock as u64 >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (0..64).map(move |step| (start as usize + step) % NODES)
}

mod circle;
mod edges;
mod ended;
pub(crate) use ended::ENDED;

#[cfg(test)]
mod tests;
