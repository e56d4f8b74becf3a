//! To which processor a woken thread goes, where the profile has `[eevdf]`. All processors share a cache.
//!
//! Source: `kernel/sched/fair.c` and `kernel/sched/pelt.c` of Linux 6.18; each function here names the kernel's.
//!
//! - *The averages* of a thread forget half in 32 ms: its load is the share of the time that it was among a processor's threads,
//!   its utilisation that in which it had one. A sleeping thread's load counts on the processor on which it ran last.
//! - *The target* is the last processor. If that is busy, and the waker's is another one with less load, it is the waker's.
//! - *An idle processor* takes the thread in place of a busy target if it is the thread's last or the one before, or if the
//!   processors are so little utilised that the kernel looks for others: two of them for less than 60% of the time.

use crate::events::{NS, Time};
use crate::lines::NONE;
use crate::state::State;
use crate::thread::Phase;

/// Half-life of the averages: `LOAD_AVG_PERIOD` periods of 1024 times 1024 ns.
const HALF_LIFE: f64 = (32 * 1024 * 1024 * NS) as f64;
/// `imbalance_pct` of processors that share a cache, as a factor.
const IMBALANCE: f64 = 1.17;

/// What a thread's time was used for, and when that was last brought up to date.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Averages {
    load: f64,
    utilisation: f64,
    at: Time,
    /// The processor before its last (`recent_used_cpu`).
    recent: Option<usize>,
}

impl Default for Averages {
    /// Of a new thread (`init_entity_runnable_average`, `post_init_entity_util_avg`).
    fn default() -> Self {
        Averages { load: 1.0, utilisation: 0.5, at: 0, recent: None }
    }
}

impl State {
    /// `___update_load_sum`.
    fn averages(&self, id: u32, now: Time) -> Averages {
        let thread = &self.threads[id as usize];
        let runs = self.cpus[thread.cpu as usize].current == id;
        let queued = runs || thread.phase == Phase::Ready || thread.entity.delayed;
        let before = thread.averages;
        let keep = (-(now.saturating_sub(before.at) as f64) / HALF_LIFE).exp2();
        let toward = |value: f64, goal: bool| f64::from(u8::from(goal)) * (1.0 - keep) + value * keep;
        Averages {
            load: toward(before.load, queued),
            utilisation: toward(before.utilisation, runs),
            at: now.max(before.at),
            recent: before.recent,
        }
    }

    /// The thread's state is about to change.
    pub(super) fn average(&mut self, id: u32, now: Time) {
        if self.is_eevdf() {
            self.thread(id).averages = self.averages(id, now);
        }
    }

    /// `cpu_load`.
    fn load(&self, cpu: usize, now: Time) -> f64 {
        let of_cpu =
            (0..self.threads.len() as u32).filter(|id| self.threads[*id as usize].cpu as usize == cpu);
        of_cpu.map(|id| self.averages(id, now).load).sum()
    }

    /// Whether the kernel looks for an idle processor, wherever it is (`SIS_UTIL`: `update_idle_cpu_scan`).
    fn scans(&self, now: Time) -> bool {
        let cpus = self.cpus.len() as f64;
        let busy: f64 = (0..self.threads.len() as u32).map(|id| self.averages(id, now).utilisation).sum();
        let busy = IMBALANCE * busy / cpus;
        cpus * (1.0 - busy * busy) >= 1.0
    }

    /// The processor for a woken thread (`select_task_rq_fair`).
    pub(super) fn select(&mut self, id: u32, waker: u32, now: Time) -> usize {
        let last = self.threads[id as usize].cpu as usize;
        let idle = |cpu: usize| self.cpus[cpu].current == NONE;
        if idle(last) {
            return last;
        }
        let wakers = if waker == NONE { last } else { self.threads[waker as usize].cpu as usize };
        let target = if self.pulls(id, last, wakers, now) { wakers } else { last };
        let recent = self.threads[id as usize].averages.recent;
        let chosen = match recent.filter(|recent| idle(*recent)) {
            Some(recent) => recent,
            None if self.scans(now) => self.idle_cpu(target).unwrap_or(target),
            None => target,
        };
        self.thread(id).averages.recent = Some(last);
        chosen
    }

    /// Whether a thread whose last processor is busy rather goes to its waker's (`wake_affine_weight`).
    fn pulls(&self, id: u32, last: usize, wakers: usize, now: Time) -> bool {
        let load = self.averages(id, now).load;
        let here = self.load(wakers, now) + load;
        let there = (self.load(last, now) - load) * (1.0 + (IMBALANCE - 1.0) / 2.0);
        wakers != last && here < there
    }
}
