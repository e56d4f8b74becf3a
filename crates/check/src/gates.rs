//! Locks that keep two orders of other locks apart.

use crate::graph::Hold;

/// Locks that a thread held while it took a lock under another one: the outermost ones. Two orders that have a gate in common are
/// never taken at the same time, so they cannot deadlock (S. Bensalem, K. Havelund: Dynamic Deadlock Analysis of Multi-threaded
/// Programs, 2005). Two threads that only read the gate pass it at the same time.
#[derive(Copy, Clone)]
pub(crate) struct Gates([Gate; GATES]);

/// With more, some orders are reported that a gate keeps apart.
pub(crate) const GATES: usize = 4;

#[derive(Copy, Clone, PartialEq)]
struct Gate {
    /// 0: none.
    lock: usize,
    /// Whether it was only read, at least once.
    shared: bool,
}

const NONE: Gate = Gate { lock: 0, shared: false };

impl Gates {
    /// Of the thread with these holds, which takes a lock while it holds `held`.
    pub(crate) fn of(holds: &[Hold], held: usize) -> Self {
        let mut gates = Gates([NONE; GATES]);
        let kept = holds.iter().filter(|hold| hold.lock != held);
        for (gate, Hold { lock, shared, .. }) in gates.0.iter_mut().zip(kept) {
            *gate = Gate { lock: *lock, shared: *shared };
        }
        gates
    }

    pub(crate) fn meet(&self, other: &Self) -> bool {
        let mut gates = self.0.iter().filter(|gate| gate.lock != 0);
        gates
            .any(|gate| other.0.iter().any(|other| other.lock == gate.lock && !(other.shared && gate.shared)))
    }

    /// The thread with these holds takes the same order again. Returns whether less keeps it apart than before.
    pub(crate) fn narrow(&mut self, holds: &[Hold]) -> bool {
        let mut less = false;
        for gate in self.0.iter_mut().filter(|gate| gate.lock != 0) {
            let hold = holds.iter().find(|hold| hold.lock == gate.lock);
            let now = hold.map_or(NONE, |hold| Gate { shared: hold.shared || gate.shared, ..*gate });
            less |= now != *gate;
            *gate = now;
        }
        less
    }

    pub(crate) fn remove(&mut self, lock: usize) {
        self.0.iter_mut().filter(|gate| gate.lock == lock).for_each(|gate| *gate = NONE);
    }
}
