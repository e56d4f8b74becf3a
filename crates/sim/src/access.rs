//! Accesses to memory: from a word's operation to its cache line, and the threads that wait there.
//!
//! An access happens when its thread's clock is the earliest of all: until then the thread is
//! suspended, unless nobody else has anything to do before. Its effect is at the beginning of its
//! service, and the line is busy until the end, so all accesses to memory have one order, which is
//! the order of simulated time: **the simulated memory is sequentially consistent**. (What a weaker
//! order would break is loom's to find.)
//!
//! A store to a line that is free goes on at once (it is in the store buffer); one to a busy line waits
//! for its turn, as its place in the order is not known before.
//!
//! - *The next request* at a busy line is [`Arbitration`]'s choice.
//! - *Spinners* stand in the line's list and cost no events until a write wakes them all; each comes
//!   back after a random part of a spin loop's turn, so in random order, pays for its new look, and
//!   queues for it like everybody else. The predicate is then asked from the event loop: a
//!   coroutine that would only spin on is not switched to.

use crate::events::{Event, NEVER, Time};
use crate::lines::{Kind, NONE, Requester};
use crate::options::Arbitration;
use crate::state::{Action, State};
use crate::thread::{Look, Pending, Phase};

impl State {
    /// The running thread accesses `address`. `true`: done, go on; `false`: suspend, and when you
    /// are resumed it is done.
    #[inline]
    pub(crate) fn access(&mut self, address: usize, kind: Kind) -> bool {
        let id = self.running;
        let thread = &self.threads[id as usize];
        let node = self.topology.cpus[thread.cpu as usize].node;
        let line = self.lines.number(address, node);
        let thread = &mut self.threads[id as usize];
        let kind = if kind == Kind::Read && thread.streams.foresee(address) { Kind::Scan } else { kind };
        thread.pending = Pending::Access { address, line, kind };
        if kind == Kind::Rmw {
            let core = self.topology.cpus[thread.cpu as usize].core;
            thread.time = thread.time.max(thread.drained) + self.lines.before_effect(line, core);
        }
        let now = thread.time;
        if now < self.events.soonest() && now < thread.attention {
            self.request(id, line, kind, now)
        } else {
            self.events.plan(now, Event::Run(id));
            false
        }
    }

    /// An event lets a thread go on that has a processor.
    pub(crate) fn run(&mut self, id: u32, now: Time) -> Option<Action> {
        let thread = self.thread(id);
        thread.time = now;
        if thread.linked {
            // It was off its processor, and nothing was written meanwhile.
            return self.spin_on(id, now);
        }
        if now >= thread.attention && self.attend(id, now) {
            return None;
        }
        match self.threads[id as usize].pending {
            Pending::Nothing => Some(Action::Resume(id)),
            Pending::Access { line, kind, .. } => {
                self.request(id, line, kind, now).then(|| self.after_access(id))
            }
            Pending::Work(left) => self.work(id, left).then_some(Action::Resume(id)),
            Pending::Exit => {
                self.exit(id, now);
                None
            }
        }
    }

    /// A thread's access has just happened.
    fn after_access(&mut self, id: u32) -> Action {
        match self.thread(id).look {
            Some(look) => Action::Look(id, look),
            None => Action::Resume(id),
        }
    }

    /// Asks for a line. `true`: served, and the thread's clock stands at the end of its service.
    #[inline]
    fn request(&mut self, id: u32, line: u32, kind: Kind, now: Time) -> bool {
        let who = self.requester(id);
        if let Some(service) = self.lines.hit(&self.topology, line, &who, kind, now) {
            self.finish(id, line, kind, now, service);
            return true;
        }
        let at = self.lines.at(line);
        if at.free_at <= now && at.is_wanted_by_nobody() {
            if self.send(id, line, kind, now) {
                self.serve(id, line, kind, now, now);
                return true;
            }
            self.thread(id).phase = Phase::Queued;
            return false;
        }
        // Queue.
        let last = at.waiting.1;
        if last == NONE {
            at.waiting = (id, id);
        } else {
            at.waiting.1 = id;
        }
        if !at.announced {
            at.announced = true;
            let free_at = at.free_at.max(now);
            self.events.plan(free_at, Event::LineFree(line));
        }
        if last != NONE {
            self.thread(last).next = id;
        }
        let thread = self.thread(id);
        thread.next = NONE;
        thread.previous = last;
        thread.phase = Phase::Queued;
        false
    }

    /// Sends a request to a line that is free. `true`: it is there at once.
    #[inline]
    fn send(&mut self, id: u32, line: u32, kind: Kind, now: Time) -> bool {
        let who = self.requester(id);
        let way = self.lines.way(&self.topology, line, &who, kind, &mut self.rng);
        if way == 0 {
            return true;
        }
        let at = self.lines.at(line);
        (at.probe, at.announced) = ((id, now), true);
        self.events.plan(now + way, Event::LineFree(line));
        false
    }

    /// A request that was `sent` has arrived.
    #[inline]
    fn serve(&mut self, id: u32, line: u32, kind: Kind, sent: Time, now: Time) {
        let at = self.lines.at(line);
        let undisturbed = std::mem::replace(&mut at.last, id) == id;
        let thread = &self.threads[id as usize];
        let (fetched, since, until) = thread.fetched;
        // It was known before the read was done what would be written, so the request for the ownership
        // followed the one for a copy.
        let followed = undisturbed && fetched == line && !kind.reads() && now < until + self.costs.ahead;
        // The processor goes on past a full fence with loads that it does over if need be.
        let (began, ended) = thread.fenced;
        let past_fence = kind == Kind::Read && ended > 0 && sent <= ended + self.costs.past_fence;
        let sent = match (followed, past_fence) {
            (true, _) => since,
            (_, true) => sent.min(began),
            _ => sent,
        };
        let who = Requester { sent, ..self.requester(id) };
        let service = self.lines.serve(&self.topology, line, &who, kind, now, &mut self.rng);
        self.finish(id, line, kind, now, service);
        if kind == Kind::Read {
            self.thread(id).fetched = (line, sent, service.done);
        }
    }

    /// The running thread issues a full fence.
    pub(crate) fn full_fence(&mut self) {
        let fence = self.costs.fence;
        let thread = self.me();
        let began = thread.time;
        thread.time = began.max(thread.drained) + fence;
        (thread.fenced, thread.stored) = ((began, thread.time), false);
        thread.counts.fences += 1;
    }

    /// The barrier that a machine with weak ordering has before a release. With nothing stored since the last
    /// one there is nothing that it would wait for.
    #[inline]
    pub(crate) fn release_barrier(&mut self) {
        let release = self.costs.release;
        let thread = self.me();
        if release > 0 && std::mem::take(&mut thread.stored) {
            thread.time += release;
            thread.counts.fences += 1;
        }
    }

    /// The barrier that such a machine has after an atomic instruction that acquires.
    #[inline]
    pub(crate) fn acquire_barrier(&mut self) {
        let acquire = self.costs.acquire;
        if acquire > 0 {
            let thread = self.me();
            thread.time += acquire;
            thread.counts.fences += 1;
        }
    }

    /// A line can serve the next request.
    pub(crate) fn line_free(&mut self, line: u32, now: Time) -> Option<Action> {
        let at = self.lines.at(line);
        if at.free_at > now {
            let free_at = at.free_at;
            self.events.plan(free_at, Event::LineFree(line));
            return None;
        }
        let (mut id, mut sent) = std::mem::replace(&mut at.probe, (NONE, 0));
        let arrived = id != NONE;
        if !arrived {
            (id, sent) = (self.arbitrate(line), now);
            self.unlink_waiting(line, id);
        }
        let Pending::Access { kind, .. } = self.threads[id as usize].pending else {
            unreachable!("only accesses queue");
        };
        let who = self.requester(id);
        match self.lines.hit(&self.topology, line, &who, kind, now) {
            Some(service) => self.finish(id, line, kind, now, service),
            None if arrived || self.send(id, line, kind, now) => self.serve(id, line, kind, sent, now),
            None => return None,
        }
        self.thread(id).phase = Phase::Running;
        let at = self.lines.at(line);
        at.announced = at.waiting.0 != NONE;
        if at.announced {
            let free_at = at.free_at.max(now);
            self.events.plan(free_at, Event::LineFree(line));
        }
        Some(self.after_access(id))
    }

    /// Chooses which of the waiting threads is served.
    fn arbitrate(&mut self, line: u32) -> u32 {
        let at = self.lines.at(line);
        let (first, last) = at.waiting;
        let holder = at.holder();
        if first == last {
            return first;
        }
        match self.options.arbitration {
            Arbitration::Fifo => first,
            Arbitration::Nearest(p) => match holder {
                Some(holder) if self.rng.chance(p) => self.nearest_waiting(first, holder),
                _ => first,
            },
            Arbitration::Random => {
                let mut length = 0;
                let mut at = first;
                while at != NONE {
                    length += 1;
                    at = self.threads[at as usize].next;
                }
                let mut chosen = first;
                for _ in 0..self.rng.below(length) {
                    chosen = self.threads[chosen as usize].next;
                }
                chosen
            }
        }
    }

    /// The first of the nearest.
    fn nearest_waiting(&self, first: u32, holder: u16) -> u32 {
        let distance = |id: u32| {
            let cpu = self.threads[id as usize].cpu as usize;
            self.topology.between(self.topology.cpus[cpu].core, holder)
        };
        let nearest = crate::topology::Distance::Cluster;
        let (mut best, mut least) = (first, distance(first));
        let mut id = self.threads[first as usize].next;
        while id != NONE && least > nearest {
            let other = distance(id);
            if other < least {
                (best, least) = (id, other);
            }
            id = self.threads[id as usize].next;
        }
        best
    }

    fn unlink_waiting(&mut self, line: u32, id: u32) {
        let (next, previous) = (self.thread(id).next, self.thread(id).previous);
        match previous {
            NONE => self.lines.at(line).waiting.0 = next,
            previous => self.thread(previous).next = next,
        }
        match next {
            NONE => self.lines.at(line).waiting.1 = previous,
            next => self.thread(next).previous = previous,
        }
        (self.thread(id).next, self.thread(id).previous) = (NONE, NONE);
    }

    /// Books a service.
    #[inline]
    fn finish(&mut self, id: u32, line: u32, kind: Kind, now: Time, service: crate::lines::Service) {
        self.trace(now, u64::from(id) << 40 | u64::from(line) << 4 | kind as u64);
        let thread = &mut self.threads[id as usize];
        thread.time = service.done;
        thread.counts.accesses += 1;
        thread.counts.misses += u64::from(service.miss);
        thread.counts.remote += u64::from(service.remote);
        if !kind.reads() {
            thread.stored = true;
            thread.counts.atomics += u64::from(kind == Kind::Rmw);
            thread.drained = thread.drained.max(service.visible);
            if self.lines.at(line).spinners != NONE {
                self.wake_spinners(line, service.visible);
            }
        }
    }

    /// The predicate of a spinning thread has been asked.
    pub(crate) fn looked(&mut self, id: u32, done: bool) -> Option<Action> {
        let thread = self.thread(id);
        if done || thread.give_up <= thread.time {
            return Some(self.end_spin(id));
        }
        let Pending::Access { line, .. } = thread.pending else {
            unreachable!("spinning is reading");
        };
        let now = thread.time;
        self.link_spinner(line, id);
        self.spin_on(id, now)
    }

    fn end_spin(&mut self, id: u32) -> Action {
        let thread = self.thread(id);
        thread.look = None;
        thread.phase = Phase::Running;
        Action::Resume(id)
    }

    /// The running thread, which has just read its word, spins on it. Suspend afterwards.
    pub(crate) fn start_spin(&mut self, look: Look, give_up: Time) {
        let id = self.running;
        let thread = self.thread(id);
        thread.look = Some(look);
        thread.give_up = give_up;
        if let Pending::Access { kind, .. } = &mut thread.pending {
            *kind = Kind::Read; // nobody foresees the further looks
        }
        if let Some(action) = self.looked(id, false) {
            // It gives up at once.
            debug_assert!(matches!(action, Action::Resume(_)));
            let time = self.thread(id).time;
            self.thread(id).pending = Pending::Nothing;
            self.events.plan(time, Event::Run(id));
        }
    }

    /// A thread in a line's list of spinners has a processor to spin on.
    fn spin_on(&mut self, id: u32, now: Time) -> Option<Action> {
        let thread = self.thread(id);
        if thread.give_up <= now {
            self.unlink_spinner(id);
            return Some(self.end_spin(id));
        }
        thread.phase = Phase::Spinning;
        let endless = thread.give_up == NEVER;
        self.set_spin_timer(id, now);
        self.set_dormant(id, endless);
        None
    }

    /// The timer of a spinning thread: it gives up, or has to make room for others.
    pub(crate) fn spin_timer(&mut self, id: u32, now: Time) -> Option<Action> {
        let thread = self.thread(id);
        thread.time = now;
        if thread.give_up <= now {
            // It looks a number of times, and has made no look in a pause of its processor.
            let cpu = thread.cpu as usize;
            let paused = self.paused(cpu, now);
            if paused > 0 {
                self.thread(id).give_up += paused;
                self.set_spin_timer(id, now);
                return None;
            }
            self.unlink_spinner(id);
            return Some(self.end_spin(id));
        }
        self.make_room(id, now);
        None
    }

    fn link_spinner(&mut self, line: u32, id: u32) {
        let first = std::mem::replace(&mut self.lines.at(line).spinners, id);
        if first != NONE {
            self.thread(first).previous = id;
        }
        let thread = self.thread(id);
        (thread.next, thread.previous, thread.linked) = (first, NONE, true);
    }

    fn unlink_spinner(&mut self, id: u32) {
        let thread = self.thread(id);
        let (next, previous, pending) = (thread.next, thread.previous, thread.pending);
        (thread.next, thread.previous, thread.linked, thread.timer) = (NONE, NONE, false, 0);
        if next != NONE {
            self.thread(next).previous = previous;
        }
        if previous != NONE {
            self.thread(previous).next = next;
        } else if let Pending::Access { line, .. } = pending {
            self.lines.at(line).spinners = next;
        }
        self.set_dormant(id, false);
    }

    /// A write that others see at `visible`.
    fn wake_spinners(&mut self, line: u32, visible: Time) {
        let turn = self.costs.pause + self.lines.look();
        let mut id = std::mem::replace(&mut self.lines.at(line).spinners, NONE);
        while id != NONE {
            let delay = self.rng.below(turn);
            let thread = &mut self.threads[id as usize];
            let next = thread.next;
            (thread.next, thread.previous, thread.linked, thread.timer) = (NONE, NONE, false, 0);
            if thread.phase == Phase::Spinning {
                thread.phase = Phase::Running;
                let at = visible.max(thread.time) + delay;
                self.events.plan(at, Event::Run(id));
            }
            self.set_dormant(id, false);
            id = next;
        }
    }
}
