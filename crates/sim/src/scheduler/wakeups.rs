//! A thread wakes up: on which processor it runs, whether it takes the place of the current thread there, and how long that takes.
//! The rules are in the header of `scheduler.rs`.

use super::IDLE_SOON;
use crate::events::{Event, Time};
use crate::lines::NONE;
use crate::state::State;
use crate::thread::Phase;

impl State {
    /// A thread wakes up at `now`, and can run some time later. Returns what that costs `waker`, if a thread has woken it.
    pub(crate) fn wake_up(&mut self, id: u32, waker: u32, now: Time) -> Time {
        if self.is_eevdf() {
            let now = now.max(self.threads[id as usize].time);
            self.average(id, now);
            if !self.threads[id as usize].entity.delayed {
                let cpu = self.select(id, waker, now);
                self.move_to(id, cpu);
            }
            let cpu = self.threads[id as usize].cpu as usize;
            if self.cpus[cpu].current != NONE {
                return self.join(cpu, id, waker, now);
            }
        }
        let in_place = waker != NONE && self.takes_place_of(waker, id);
        let cost = if waker == NONE || in_place { 0 } else { self.wake_cost(id, now) };
        let over = (now + cost).max(self.threads[id as usize].time);
        let at = if in_place { over } else { over + self.wakeup_time(id, over) };
        self.catch_up(id, now + cost);
        self.thread(id).phase = Phase::Stopped;
        self.events.plan(at, Event::Ready(id));
        self.trace(at, u64::from(id) << 40 | 0xf1);
        cost
    }

    /// A thread can run.
    pub(crate) fn make_ready(&mut self, id: u32, now: Time) {
        let last = self.threads[id as usize].cpu as usize;
        if self.is_eevdf() {
            self.average(id, now);
            let cpu = self.select(id, NONE, now);
            self.move_to(id, cpu);
            if self.cpus[cpu].current == NONE {
                self.place_entity(cpu, id, now);
                self.dispatch(cpu, id, now);
            } else {
                self.enter(cpu, id, now);
                if self.makes_room(cpu, Some(id), now) {
                    self.make_room_at(cpu, now);
                }
            }
            return;
        }
        match self.idle_cpu(last) {
            Some(cpu) => {
                if cpu != last {
                    self.thread(id).vruntime = self.cpus[cpu].vruntime;
                }
                self.dispatch(cpu, id, now);
            }
            None if self.preempts(last, id, now) => self.preempt(last, id, now),
            None => self.enqueue(last, id, now),
        }
    }

    /// How long the processor has been idle on which a thread would run that is woken now. `None`: no processor is idle.
    fn idle_for(&self, id: u32, now: Time) -> Option<Time> {
        let cpu = self.idle_cpu(self.threads[id as usize].cpu as usize)?;
        Some(now.saturating_sub(self.cpus[cpu].idle_since))
    }

    /// Whether a thread that `waker` wakes now can run only in the waker's own place. It runs as soon as the waker's system call
    /// returns. No processor is interrupted, and `context_switch` has all that this costs: it was measured with threads that wake
    /// each other on one processor.
    fn takes_place_of(&self, waker: u32, id: u32) -> bool {
        let cpu = |id: u32| self.threads[id as usize].cpu as usize;
        self.costs.wakeup_busy.is_some() && cpu(waker) == cpu(id) && self.idle_cpu(cpu(id)).is_none()
    }

    /// What a wake of this thread at `now` costs the waker, whose place it does not take.
    fn wake_cost(&self, id: u32, now: Time) -> Time {
        let early = self.idle_for(id, now).is_some_and(|idle| idle < self.costs.falls_asleep);
        if early { self.costs.wake_early } else { self.costs.wake }
    }

    /// How long it takes from such a wake until the thread can run: less, if its processor does not sleep yet.
    fn wakeup_time(&self, id: u32, now: Time) -> Time {
        let costs = &self.costs;
        match self.idle_for(id, now) {
            None => self.interrupt_time().unwrap_or(costs.wakeup_soon),
            Some(idle) if idle < costs.falls_asleep => costs.wakeup_early,
            Some(idle) if idle < IDLE_SOON => costs.wakeup_soon,
            Some(_) => costs.wakeup,
        }
    }

    /// From the wake until a busy processor's current thread leaves it for the woken one. The switch comes on top of this.
    fn interrupt_time(&self) -> Option<Time> {
        self.costs.wakeup_busy.map(|busy| busy.saturating_sub(self.costs.context_switch))
    }

    /// A thread that wakes up has no claim to the time that others had while it slept.
    fn catch_up(&mut self, id: u32, now: Time) {
        let cpu = &self.cpus[self.threads[id as usize].cpu as usize];
        let vruntime = if cpu.current == NONE { cpu.vruntime } else { self.vruntime(cpu.current, now) };
        let thread = self.thread(id);
        thread.vruntime = thread.vruntime.max(vruntime);
    }

    /// Whether a woken thread takes the place of the processor's current one.
    fn preempts(&self, cpu: usize, id: u32, now: Time) -> bool {
        self.costs.wakeup_busy.is_some()
            && self.threads[id as usize].vruntime <= self.vruntime(self.cpus[cpu].current, now)
    }

    /// A woken thread takes the place of the processor's current one, which goes on afterwards.
    fn preempt(&mut self, cpu: usize, id: u32, now: Time) {
        self.cpus[cpu].slice_end = now;
        self.cpus[cpu].preempted = true;
        self.cpus[cpu].queue.push_front(id);
        self.queued(cpu, id, now);
    }

    /// `[eevdf]`: a woken thread becomes one of a processor that is busy, and may take the current one's place. Returns what that
    /// costs the waker.
    fn join(&mut self, cpu: usize, id: u32, waker: u32, now: Time) -> Time {
        self.enter(cpu, id, now);
        self.trace(now, u64::from(id) << 40 | 0xf1);
        if !self.makes_room(cpu, Some(id), now) {
            return 0; // no processor is interrupted
        }
        if waker != NONE && self.threads[waker as usize].cpu as usize == cpu {
            // As in `takes_place_of`.
            self.make_room_at(cpu, now);
            return 0;
        }
        self.make_room_at(cpu, now + self.costs.wake + self.interrupt_time().unwrap_or(0));
        self.costs.wake
    }

    /// A woken thread queues at a processor that has another one.
    fn enter(&mut self, cpu: usize, id: u32, now: Time) {
        if self.threads[id as usize].entity.delayed {
            self.requeue_delayed(cpu, id, now);
        } else {
            self.place_entity(cpu, id, now);
        }
        let thread = self.thread(id);
        thread.time = thread.time.max(now);
        self.enqueue(cpu, id, now);
    }

    fn move_to(&mut self, id: u32, cpu: usize) {
        let thread = self.thread(id);
        if thread.cpu as usize != cpu {
            thread.cpu = cpu as u32;
            thread.entity.ran_at = None;
        }
    }

    /// The processor's current thread makes room for another one at `at`.
    fn make_room_at(&mut self, cpu: usize, at: Time) {
        let slice_end = &mut self.cpus[cpu].slice_end;
        *slice_end = at.min(*slice_end);
        self.notice_queue(cpu, at);
    }
}
