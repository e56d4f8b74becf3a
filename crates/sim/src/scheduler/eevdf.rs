//! Which of the threads of a processor runs, where the profile has `[eevdf]`: the rules of Linux from 6.6 on.
//!
//! Source: `Documentation/scheduler/sched-eevdf.rst` and `kernel/sched/fair.c` of Linux 6.18; each function here names the kernel's.
//! All threads have the same weight.
//!
//! - *Virtual time* of a thread is the processor time that it has had. That of a processor is the mean of its threads' virtual times.
//!   A thread is *eligible* if it is not ahead of its processor. The difference is its *lag*.
//! - *Who runs*: of the eligible threads the one with the earliest deadline. A thread's deadline is one slice after the virtual time at
//!   which it was placed, or at which it last reached its deadline. Until then a running thread that is eligible is protected.
//! - *A woken thread* is placed at the processor's virtual time. It takes the current thread's place if that one is ahead of the
//!   processor, or has reached the deadline that it had when it was picked.
//! - *Delayed dequeue*: a thread that goes to sleep ahead of its processor stays among its threads until it would be picked, or is
//!   woken. If it is woken before, it stays on that processor, even if others are idle.
//! - *`sched_yield`* costs an eligible thread the rest of its slice.
//!
//! Which processor a woken thread goes to is in `selection.rs`, and what idle processors take from others in `balance.rs`.

use crate::events::{NEVER, NS, Time};
use crate::lines::NONE;
use crate::state::State;

/// What the scheduler keeps about a thread (the kernel's `sched_entity`), beside its virtual time. Virtual times are picoseconds.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Entity {
    deadline: i64,
    /// The deadline that it had when it was picked.
    protected: i64,
    /// How far it was behind its processor when it left it.
    pub(super) lag: i64,
    /// It sleeps, and is still among its processor's threads.
    pub(crate) delayed: bool,
    /// When it last left a processor; none if it has moved to another one since.
    pub(super) ran_at: Option<Time>,
}

impl State {
    pub(super) fn is_eevdf(&self) -> bool {
        self.costs.eevdf.is_some()
    }

    fn slice(&self) -> i64 {
        self.costs.eevdf.as_ref().map_or(0, |eevdf| eevdf.base_slice as i64)
    }

    fn entity(&mut self, id: u32) -> &mut Entity {
        &mut self.thread(id).entity
    }

    /// The sum of the virtual times of a processor's threads, and their number (`avg_vruntime`).
    fn virtual_time(&self, cpu: usize, now: Time) -> (i64, i64) {
        let cpu = &self.cpus[cpu];
        let current = (cpu.current != NONE).then_some(cpu.current);
        let threads = current.iter().chain(&cpu.queue).chain(&cpu.delayed);
        threads.fold((0, 0), |(sum, count), id| (sum + self.vruntime(*id, now), count + 1))
    }

    /// `entity_eligible`.
    fn is_eligible(&self, cpu: usize, id: u32, now: Time) -> bool {
        let (sum, count) = self.virtual_time(cpu, now);
        self.vruntime(id, now) * count <= sum
    }

    /// How far a thread is behind its processor (`update_entity_lag`).
    pub(super) fn lag(&self, cpu: usize, id: u32, now: Time) -> i64 {
        let limit = self.slice() + self.costs.quantum as i64;
        let (sum, count) = self.virtual_time(cpu, now);
        (sum / count.max(1) - self.vruntime(id, now)).clamp(-limit, limit)
    }

    /// A thread becomes one of the processor's, among which it is not yet (`place_entity`).
    pub(super) fn place_entity(&mut self, cpu: usize, id: u32, now: Time) {
        let ((sum, count), slice) = (self.virtual_time(cpu, now), self.slice());
        let idle = self.cpus[cpu].vruntime;
        let thread = self.thread(id);
        thread.vruntime = match count {
            0 => idle,
            // Its own weight moves the mean.
            count => sum / count - thread.entity.lag * (count + 1) / count,
        };
        (thread.entity.lag, thread.entity.deadline) = (0, thread.vruntime + slice);
    }

    /// A thread that slept among its processor's threads wakes up (`requeue_delayed_entity`). It gains nothing by its sleep.
    pub(super) fn requeue_delayed(&mut self, cpu: usize, id: u32, now: Time) {
        let lag = self.lag(cpu, id, now);
        self.cpus[cpu].delayed.retain(|delayed| *delayed != id);
        self.entity(id).delayed = false;
        if lag > 0 {
            self.entity(id).lag = 0;
            self.place_entity(cpu, id, now);
        }
    }

    /// A thread gets a processor (`set_protect_slice`).
    pub(super) fn picked(&mut self, id: u32, now: Time) {
        let thread = self.thread(id);
        thread.entity.protected = thread.entity.deadline;
        // It may have spun for a limited number of looks: it has made none without a processor.
        if let Some(left) = thread.entity.ran_at
            && thread.look.is_some()
            && thread.give_up != NEVER
        {
            thread.give_up += now.saturating_sub(left);
        }
    }

    /// Whether the processor's current thread has to make room: to `woken`, which has just joined the others, or to any
    /// (`update_curr`, `check_preempt_wakeup_fair`).
    pub(super) fn makes_room(&mut self, cpu: usize, woken: Option<u32>, now: Time) -> bool {
        let (current, slice) = (self.cpus[cpu].current, self.slice());
        let vruntime = self.vruntime(current, now);
        let entity = self.entity(current);
        if vruntime >= entity.deadline {
            entity.deadline = vruntime + slice;
        }
        let protected = vruntime < entity.protected;
        // Without that protection the kernel chooses anew a moment later, at the end of the system call or of the interrupt. Until
        // then the current thread runs.
        let now = if protected { now } else { now + NS };
        match self.pick(cpu, now) {
            None => false,
            Some(next) => next != current && (!protected || woken.is_none_or(|woken| woken == next)),
        }
    }

    /// Of a processor's threads the one that runs next; the current one is one of them (`__pick_eevdf`).
    fn pick(&self, cpu: usize, now: Time) -> Option<u32> {
        let (sum, count) = self.virtual_time(cpu, now);
        let eligible = |id: &u32| self.vruntime(*id, now) * count <= sum;
        let entity = |id: u32| &self.threads[id as usize].entity;
        let queue = &self.cpus[cpu];
        let current = Some(queue.current).filter(|id| *id != NONE && eligible(id));
        if let Some(current) = current
            && self.vruntime(current, now) < entity(current).protected
        {
            return Some(current);
        }
        let others = queue.queue.iter().chain(&queue.delayed).copied().filter(eligible);
        others.chain(current).min_by_key(|id| entity(*id).deadline)
    }

    /// The current thread has called `sched_yield`: it forfeits the rest of its slice (`yield_task_fair`).
    pub(super) fn forfeit(&mut self, cpu: usize, id: u32, now: Time) {
        self.settle(id, now);
        self.thread(id).runs_since = now;
        if self.is_eligible(cpu, id, now) {
            let slice = self.slice();
            let thread = self.thread(id);
            thread.vruntime = thread.vruntime.max(thread.entity.deadline);
            thread.entity.deadline = thread.vruntime + slice;
        }
    }

    /// The current thread, which has been settled, is the processor's no more (`dequeue_entity`). `sleeps`: it went to sleep.
    pub(super) fn dequeue(&mut self, cpu: usize, id: u32, sleeps: bool, now: Time) {
        if sleeps && !self.is_eligible(cpu, id, now) {
            self.entity(id).delayed = true;
            self.cpus[cpu].delayed.push(id);
        } else {
            let lag = self.lag(cpu, id, now);
            self.entity(id).lag = lag;
        }
    }

    /// Takes the next thread out of a processor's queue (`pick_next_entity`). Sleeping ones leave it as they are picked.
    pub(super) fn take_eligible(&mut self, cpu: usize, now: Time) -> Option<u32> {
        loop {
            let id = self.pick(cpu, now)?;
            if !self.threads[id as usize].entity.delayed {
                self.cpus[cpu].queue.retain(|ready| *ready != id);
                return Some(id);
            }
            let lag = self.lag(cpu, id, now).min(0);
            self.average(id, now);
            self.cpus[cpu].delayed.retain(|delayed| *delayed != id);
            let entity = self.entity(id);
            (entity.delayed, entity.lag) = (false, lag);
        }
    }
}
