//! For how long a replay is simulated.

use super::load::Load;
use super::replay::How;
use crate::simulate::stage;
use latchwork_sim::now;
use std::cell::Cell;

/// A simulation has so many rounds of barriers, or of fork and join, if that does not make it longer than [`LONGER`] times.
const LEAST_ROUNDS: u64 = 20;
/// See [`LEAST_ROUNDS`].
const LONGER: u64 = 4;
/// Events for each acquisition that a simulation is made for. If there are more, it has fewer acquisitions.
const EVENTS: f64 = 16.0;
/// A simulation ends when it has had so many times the events that it is made for. A call of minutes in the recording, because the
/// process was stopped or the machine suspended, makes it far too long.
const TOO_MANY: f64 = 8.0;

impl How {
    /// When the counting begins and ends: so that about as many acquisitions happen as are asked for.
    pub(super) fn time(&self, load: &Load, threads: usize) -> Time {
        let cpus = self.profile.cpus();
        let ideal = (threads.min(cpus) as f64 * load.rate).min(load.bound).max(1.0);
        let idle = load.shares.off + load.shares.sleeping + load.shares.joining + load.shares.timed;
        let busy = 1.0 - idle;
        // A program may use semaphores, and hardly any lock.
        let acquisitions = self.acquisitions as f64 * (EVENTS / load.events).min(1.0);
        let asked = (acquisitions / (ideal * busy.clamp(0.02, 1.0)) * 1e9) as u64;
        let mut length = asked;
        if threads > cpus {
            // Each thread has the processor a few times.
            let turn = self.profile.kernel.quantum.value * (threads as f64 / cpus as f64).ceil();
            length = length.max((4.0 * turn) as u64);
        }
        length = length.max((LEAST_ROUNDS * load.round).min(LONGER * length));
        let expected = acquisitions * load.events * (length as f64 / asked.max(1) as f64);
        // With the warm-up.
        let most = (1.25 * TOO_MANY * expected) as u64;
        Time {
            warm_up: Cell::new(length / 4),
            end: Cell::new(length / 4 + length),
            left: Cell::new(most),
            half: most / 2,
        }
    }
}

/// When the counting begins and ends, in simulated nanoseconds.
pub(super) struct Time {
    pub(super) warm_up: Cell<u64>,
    pub(super) end: Cell<u64>,
    /// Events until the simulation ends early, and how many of them are left when the warm-up does.
    left: Cell<u64>,
    half: u64,
}

impl Time {
    pub(super) fn is_over(&self) -> bool {
        now() >= self.end.get() || stage::is_stopped()
    }

    /// A thread performs an event.
    pub(super) fn count(&self) {
        self.left.set(self.left.get().saturating_sub(1));
        if self.left.get() == self.half {
            self.warm_up.set(self.warm_up.get().min(now()));
        }
        if self.left.get() == 0 {
            self.end.set(self.end.get().min(now()));
        }
    }
}
