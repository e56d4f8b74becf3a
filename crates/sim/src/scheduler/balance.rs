//! Processors without a thread take one from another's queue.
//!
//! A processor that runs out of threads takes one from the longest queue, from its own node first. Where the profile has
//! `[eevdf]`, two more rules of Linux hold (`kernel/sched/fair.c` of 6.18):
//!
//! - *A thread that has just run* is left where it is (`task_hot`), unless the processor was idle at more than `cache_nice_tries` timer
//!   ticks in a row and found none.
//! - *At each timer tick* an idle processor looks again (`sched_balance_domains`).

use crate::events::{Event, Time};
use crate::lines::NONE;
use crate::state::State;

/// Linux's `cache_nice_tries` of processors that share a cache.
const CACHE_NICE_TRIES: u32 = 1;

impl State {
    /// Takes a thread from another processor's queue.
    pub(super) fn steal(&mut self, thief: usize, now: Time) -> Option<u32> {
        if self.ready == 0 {
            self.cpus[thief].failed = 0;
            return None;
        }
        let node = self.topology.cpus_of(self.topology.cpus[thief].node);
        let longest = |cpus: std::ops::Range<usize>| {
            // The first of the longest.
            let longest = cpus.rev().max_by_key(|cpu| self.cpus[*cpu].queue.len())?;
            (!self.cpus[longest].queue.is_empty()).then_some(longest)
        };
        let victim = longest(node).or_else(|| longest(0..self.cpus.len()))?;
        if self.is_eevdf() {
            return self.pull(thief, victim, now);
        }
        let stolen = self.cpus[victim].queue.pop_front()?;
        self.thread(stolen).vruntime = self.cpus[thief].vruntime;
        Some(stolen)
    }

    /// Takes the first thread of a queue that has not just run (`detach_tasks`, `can_migrate_task`).
    fn pull(&mut self, thief: usize, victim: usize, now: Time) -> Option<u32> {
        let migration_cost = self.costs.eevdf.as_ref().map_or(0, |eevdf| eevdf.migration_cost);
        let hot_too = self.cpus[thief].failed > CACHE_NICE_TRIES;
        let may = |id: &&u32| {
            let ran_at = self.threads[**id as usize].entity.ran_at;
            hot_too || ran_at.is_none_or(|at| now.saturating_sub(at) >= migration_cost)
        };
        let id = *self.cpus[victim].queue.iter().find(may)?;
        let lag = self.lag(victim, id, now);
        self.cpus[victim].queue.retain(|ready| *ready != id);
        self.cpus[thief].failed = 0;
        self.thread(id).entity.lag = lag;
        self.place_entity(thief, id, now);
        Some(id)
    }

    /// A processor is idle, or a thread waits for another one: at the next timer tick the idle one looks for threads.
    pub(super) fn plan_balance(&mut self, now: Time) {
        if self.is_eevdf() && self.ready > 0 && !self.balances && self.idle_cpu(0).is_some() {
            self.balances = true;
            self.events.plan(now + self.costs.quantum, Event::Balance);
        }
    }

    /// The timer tick of the processors that are idle: they take over threads that wait for others.
    pub(crate) fn balance(&mut self, now: Time) {
        self.balances = false;
        for cpu in 0..self.cpus.len() {
            if self.cpus[cpu].current != NONE {
                continue;
            }
            match self.steal(cpu, now) {
                Some(id) => {
                    self.ready -= 1;
                    self.dispatch(cpu, id, now + self.costs.wakeup);
                }
                None if self.ready > 0 => self.cpus[cpu].failed += 1,
                None => (),
            }
        }
        self.plan_balance(now);
    }
}
