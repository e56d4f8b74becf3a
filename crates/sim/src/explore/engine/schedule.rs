//! The choice of the thread that runs next, at each step and when a thread cannot go on.

use super::plan::{self, At, Chance, Decision, Kind, Source};
use super::*;

impl State {
    pub(super) fn begin(&mut self, setup: Setup) {
        assert!((1..MAX_THREADS).contains(&setup.threads));
        for (number, thread) in self.threads.iter_mut().enumerate() {
            thread.status = if number < setup.threads { Status::Runnable } else { Status::Done };
            thread.priority = PRIORITIES + number as u32;
            (thread.stored, thread.first) = (0, 0);
            (thread.operation, thread.steps) = (0, 0);
            thread.expires = u32::MAX;
            thread.deadline = None;
            thread.until_torn = None;
            thread.waits = false;
        }
        self.count = setup.threads;
        self.runnable = (1 << setup.threads) - 1;
        (self.spinning, self.buffering, self.timed, self.stalled) = (0, 0, 0, 0);
        (self.step, self.marks) = (0, 0);
        (self.preempt, self.preempt_mark) = (u32::MAX, u32::MAX);
        self.source = setup.source;
        self.record = setup.record.then(Vec::new);
        self.sleepers.clear();
        (self.jumped, self.idle, self.naps, self.lowest) = (0, 0, 0, PRIORITIES);
        self.mistake = setup.mistake;
        self.fenced = false;
        self.failure = None;
        self.trace = setup.trace.then(Vec::new);
        (self.begun, self.going) = (0, 0);
        self.patience = setup.patience;
        self.nodes = setup.nodes;
        self.freeze = setup.freeze;
        self.frozen = false;
        self.refused_fences = setup.refused_fences;
        self.whole_releases = setup.whole_releases;
        self.running = 0;
        self.coverage.begin();
        self.until = match &self.source {
            Source::Chance(chance) => chance.until(),
            Source::Record(_) => u32::MAX,
        };
        if let Source::Chance(chance) = &mut self.source {
            for thread in &mut self.threads {
                thread.priority += chance.rng.below(u64::from(PRIORITIES)) as u32;
            }
            match chance.marks {
                true => self.preempt_mark = chance.next_preemption(0),
                false => self.preempt = chance.next_preemption(0),
            }
        }
        self.plan();
    }

    /// Chooses the first thread.
    pub(super) fn start(&mut self) {
        self.running = self.choose_next();
        self.plan();
    }

    /// One more thread, when all others have come to their end.
    pub(super) fn begin_after(&mut self, thread: usize) {
        (0..MAX_THREADS).for_each(|thread| self.drain(thread));
        self.threads[thread].status = Status::Runnable;
        self.runnable = 1 << thread;
        self.count = thread + 1;
        self.running = thread;
        self.plan();
    }

    /// When something may happen next.
    pub(super) fn plan(&mut self) {
        if self.record.is_some() || matches!(self.source, Source::Record(_)) {
            self.event = self.step + 1;
            return;
        }
        let mut event = self.preempt.min(LIMIT).min(self.until.saturating_add(1));
        if self.buffering | self.timed != 0 {
            for thread in &self.threads[..self.count] {
                if thread.stored > 0 {
                    event = event.min(thread.buffer[thread.first].due);
                }
                event = event.min(thread.expires);
            }
        }
        if let Some((_, at)) = self.freeze {
            event = event.min(at.max(self.step + 1));
        }
        self.event = event;
    }

    /// Where the running thread is.
    pub(super) fn at(&self) -> At {
        let Thread { operation, steps, .. } = self.threads[self.running];
        At { thread: self.running as u8, operation, step: steps }
    }

    /// The running thread begins another operation.
    pub(in crate::explore) fn begin_operation(&mut self, number: usize) {
        let thread = &mut self.threads[self.running];
        (thread.operation, thread.steps) = (number as u8 + 1, 0);
    }

    /// A decision: by chance, or as it was recorded.
    pub(super) fn decide(
        &mut self,
        kind: Kind,
        default: u32,
        chance: impl FnOnce(&mut Chance) -> u32,
    ) -> u32 {
        let at = self.at();
        match &mut self.source {
            Source::Chance(by_chance) => {
                let value = chance(by_chance);
                if value != default
                    && let Some(record) = &mut self.record
                {
                    record.push(Decision { at, kind, value });
                }
                value
            }
            Source::Record(decisions) => plan::recorded(decisions, at, kind).unwrap_or(default),
        }
    }

    /// What is due at this step. Returns whether another thread is to run.
    pub(super) fn happen(&mut self) -> bool {
        if self.step >= LIMIT {
            let message = format!("no end after {LIMIT} steps: {}", self.describe());
            self.failure.get_or_insert(message);
            return true;
        }
        if self.buffering != 0 {
            for thread in 0..self.count {
                while self.threads[thread].stored > 0
                    && self.threads[thread].buffer[self.threads[thread].first].due <= self.step
                {
                    self.flush(thread);
                }
            }
        }
        for thread in 0..self.count {
            if self.threads[thread].expires <= self.step {
                self.time_out(thread);
            }
        }
        // One that waits, and not one that has just been let in and does not know it yet.
        if let Some((thread, at)) = self.freeze
            && at <= self.step
            && self.threads[thread].waits
            && matches!(self.threads[thread].status, Status::Spins(_) | Status::Sleeps(_))
        {
            self.freeze_now(thread);
        }
        let me = self.running as u32;
        self.threads[self.running].steps += 1;
        let at = self.at();
        self.end_stalls();
        if self.step > self.until
            && let Source::Chance(chance) = &mut self.source
        {
            chance.go_on((self.step, self.marks));
            self.until = chance.until();
            (self.preempt, self.preempt_mark) = (u32::MAX, u32::MAX);
            match chance.marks {
                true => self.preempt_mark = chance.next_preemption(self.marks),
                false => self.preempt = chance.next_preemption(self.step),
            }
        }
        let due = self.step >= self.preempt || self.marks >= self.preempt_mark;
        let marks = self.marks;
        let runnable = self.runnable;
        let best = self.best();
        let total = self.count;
        let to = {
            let lowest = &mut self.lowest;
            let threads = &mut self.threads;
            let step = self.step;
            let (stalled, stalled_until) = (&mut self.stalled, &mut self.stalled_until);
            let (preempt, preempt_mark) = (&mut self.preempt, &mut self.preempt_mark);
            let mut lowered = false;
            let decided = match &mut self.source {
                Source::Chance(chance) => {
                    let mut to = me;
                    let count = if chance.marks { marks } else { step };
                    if due {
                        match chance.strategy {
                            Strategy::Straight => (),
                            Strategy::Hesitate(_) => {
                                let others = runnable & !(1 << me);
                                if others != 0 && !chance.is_bold(me as usize, total) {
                                    to = pick(others, chance);
                                }
                            }
                            Strategy::Priorities | Strategy::Shuffled => {
                                if chance.left > 0 && chance.points[chance.left - 1] <= count {
                                    *lowest -= 1;
                                    threads[me as usize].priority = match chance.strategy {
                                        Strategy::Priorities => *lowest,
                                        _ => PRIORITIES + chance.rng.below(u64::from(PRIORITIES)) as u32,
                                    };
                                    lowered = true;
                                }
                            }
                            Strategy::Stall(_, longest) => {
                                let others = runnable & !*stalled & !(1 << me);
                                if others != 0 {
                                    to = pick(others, chance);
                                    *stalled |= 1 << me;
                                    stalled_until[me as usize] =
                                        step + 1 + chance.rng.below(u64::from(longest)) as u32;
                                }
                            }
                            _ => to = pick(runnable, chance),
                        }
                        let next = chance.next_preemption(count);
                        *(if chance.marks { preempt_mark } else { preempt }) = next;
                    }
                    to
                }
                Source::Record(decisions) => {
                    let to = plan::recorded(decisions, at, Kind::Switch).unwrap_or(me);
                    if runnable & (1 << to) != 0 { to } else { me }
                }
            };
            if matches!(&self.source, Source::Chance(chance) if chance.by_priority()) {
                if lowered { self.best() } else { best }
            } else {
                decided
            }
        };
        if to != me
            && let (Source::Chance(_), Some(record)) = (&self.source, &mut self.record)
        {
            record.push(Decision { at, kind: Kind::Switch, value: to });
        }
        self.running = to as usize;
        self.plan();
        to != me
    }

    /// Those that have stayed behind for long enough do not any more.
    pub(super) fn end_stalls(&mut self) {
        for thread in bits(self.stalled) {
            if self.stalled_until[thread] <= self.step {
                self.stalled &= !(1 << thread);
            }
        }
    }

    /// The runnable threads that do not stay behind, or all.
    pub(super) fn willing(&mut self, among: u32) -> u32 {
        self.end_stalls();
        if among & !self.stalled == 0 { among } else { among & !self.stalled }
    }

    /// The runnable thread of the highest priority.
    pub(super) fn best(&self) -> u32 {
        let mut best = self.running as u32;
        let mut highest =
            if self.runnable & (1 << best) != 0 { self.threads[best as usize].priority } else { 0 };
        for thread in bits(self.runnable) {
            if self.threads[thread].priority > highest {
                highest = self.threads[thread].priority;
                best = thread as u32;
            }
        }
        best
    }

    /// The thread that goes on when the running one cannot. Some thread can.
    pub(super) fn choose_next(&mut self) -> usize {
        let runnable = self.runnable;
        let default = runnable.trailing_zeros();
        let best = self.best();
        let willing = self.willing(runnable);
        let next = self.decide(Kind::Next, default, |chance| match chance.strategy {
            Strategy::Straight => default,
            _ if chance.by_priority() => best,
            _ => pick(willing, chance),
        });
        // In a record that was changed, it may be a thread that cannot.
        if runnable & (1 << next) != 0 { next as usize } else { default as usize }
    }

    /// The running thread offers its place. Returns whether another one takes it.
    pub(super) fn pause(&mut self) -> bool {
        self.idle += 1;
        // Time passes faster while nothing else does.
        self.jumped += STEP_NS << (self.idle / self.count as u32).min(20);
        if self.idle > IDLE {
            let message = format!("threads go round in circles, and nothing changes: {}", self.describe());
            self.failure.get_or_insert(message);
            return true;
        }
        let me = self.running;
        self.naps += 1;
        if self.naps > NAP {
            self.naps = 0;
            self.idle_expiry();
        }
        // The next one, so that all get their turn.
        let others = self.runnable & !(1 << me);
        if others == 0 {
            // Stores do not stay in buffers for ever.
            if self.idle.is_multiple_of(8) {
                (0..self.count).for_each(|thread| self.drain(thread));
                self.idle_expiry();
            }
            return false;
        }
        let above = others & !((2 << me) - 1);
        let cyclic = if above != 0 { above.trailing_zeros() } else { others.trailing_zeros() };
        let idle = self.idle;
        let count = self.count;
        let eager = |chance: &mut Chance| {
            u32::from(idle < 64 && (chance.is_bold(me, count) || chance.happens(chance.eager, 8)))
        };
        if self.decide(Kind::Eager, 0, eager) != 0 {
            return false;
        }
        self.lowest -= 1;
        self.threads[me].priority = self.lowest;
        let best = self.best();
        let willing = self.willing(others);
        let next = self.decide(Kind::Next, cyclic, |chance| match chance.strategy {
            Strategy::Straight => cyclic,
            _ if chance.by_priority() && idle < 64 => best,
            _ => pick(willing, chance),
        });
        let next = if self.runnable & (1 << next) != 0 { next } else { cyclic };
        self.running = next as usize;
        self.plan();
        self.running != me
    }

    /// The running thread cannot go on. Returns whether it is to be suspended (it may have been let go on at once).
    pub(super) fn block(&mut self, status: Status) -> bool {
        let me = self.running;
        self.threads[me].status = status;
        self.runnable &= !(1 << me);
        if let Status::Spins(_) = status {
            self.spinning |= 1 << me;
        }
        self.go_on();
        self.running != me || self.failure.is_some()
    }

    /// Chooses the thread that runs when the running one cannot.
    pub(super) fn go_on(&mut self) {
        if self.runnable == 0 && self.buffering != 0 {
            // Buffers empty themselves sooner or later.
            (0..self.count).for_each(|thread| self.drain(thread));
        }
        // (The deadline of a thread that was stopped lets nobody run.)
        while self.runnable == 0 && self.timed != 0 {
            self.idle_expiry();
        }
        if self.runnable == 0 {
            if let Some((thread, _)) = self.freeze
                && self.threads[thread].status == Status::Frozen
                && (0..self.count)
                    .all(|other| matches!(self.threads[other].status, Status::Done | Status::Frozen))
            {
                return;
            }
            let message = format!("all threads wait, and nobody is left to wake them: {}", self.describe());
            self.failure.get_or_insert(message);
            return;
        }
        self.running = self.choose_next();
        self.plan();
    }

    /// A deadline passes: the earliest, or another one.
    pub(super) fn idle_expiry(&mut self) {
        if self.timed == 0 {
            return;
        }
        let timed = self.timed;
        let deadline = |thread: &usize| self.threads[*thread].deadline.unwrap_or(u64::MAX);
        let earliest = bits(timed).min_by_key(deadline).expect("some thread") as u32;
        let thread = self.decide(Kind::Idle, earliest, |chance| {
            if chance.happens(chance.expires, 16) { pick(timed, chance) } else { earliest }
        });
        let thread = if timed & (1 << thread) != 0 { thread } else { earliest };
        self.time_out(thread as usize);
    }

    /// A sleeper's deadline passes.
    pub(super) fn time_out(&mut self, thread: usize) {
        let deadline = self.threads[thread].deadline.unwrap_or(0);
        self.jumped += deadline.saturating_sub(self.time());
        self.sleepers.retain(|(_, sleeper)| *sleeper != thread);
        self.wake_thread(thread, Wait::TimedOut);
        if self.trace.is_some() {
            self.note(format!("(the deadline of thread {thread} passes)"));
        }
    }

    pub(super) fn wake_thread(&mut self, thread: usize, outcome: Wait) {
        let sleeper = &mut self.threads[thread];
        sleeper.outcome = outcome;
        sleeper.expires = u32::MAX;
        sleeper.deadline = None;
        sleeper.until_torn = None;
        self.timed &= !(1 << thread);
        if sleeper.status != Status::Frozen {
            sleeper.status = Status::Runnable;
            self.runnable |= 1 << thread;
            self.idle = 0;
        }
        self.look_again();
    }

    /// A thread of a higher priority may be able to run now.
    pub(super) fn look_again(&mut self) {
        if matches!(&self.source, Source::Chance(chance) if chance.by_priority()) {
            self.event = self.event.min(self.step + 1);
        }
    }

    pub(super) fn freeze_now(&mut self, thread: usize) {
        self.freeze = Some((thread, u32::MAX));
        self.frozen = true;
        self.threads[thread].status = Status::Frozen;
        self.runnable &= !(1 << thread);
        self.spinning &= !(1 << thread);
        self.drain(thread);
        if self.trace.is_some() {
            self.note(format!("(thread {thread} is stopped for ever)"));
        }
    }

    /// The running thread has come to its end. Returns whether there are others.
    pub(super) fn exit(&mut self) -> bool {
        let me = self.running;
        self.threads[me].status = Status::Done;
        self.runnable &= !(1 << me);
        if self.threads[..self.count]
            .iter()
            .all(|thread| matches!(thread.status, Status::Done | Status::Frozen))
        {
            return false;
        }
        self.go_on();
        true
    }

    /// What each thread waits for.
    pub(super) fn describe(&self) -> String {
        let mut text = String::new();
        for (number, thread) in self.threads[..self.count].iter().enumerate() {
            let does = match thread.status {
                Status::Done => continue,
                Status::Runnable => "can run".to_owned(),
                Status::Spins(address) => format!("spins on {}", self.name(address)),
                Status::Sleeps(0) => "sleeps".to_owned(),
                Status::Sleeps(address) => format!("sleeps on {}", self.name(address)),
                Status::Frozen => "is stopped".to_owned(),
            };
            if !text.is_empty() {
                text.push_str(", ");
            }
            text.push_str(&format!("thread {number} {does}"));
        }
        text
    }

    /// Nanoseconds since the clock's epoch.
    pub(in crate::explore) fn time(&self) -> u64 {
        START_NS + u64::from(self.step) * STEP_NS + self.jumped
    }

    /// Reads the clock, which may jump.
    pub(in crate::explore) fn now(&mut self) -> u64 {
        let jump = self.decide(Kind::Jump, 0, |chance| {
            if chance.happens(chance.jumps, 16) { 1 + chance.rng.below(5) as u32 } else { 0 }
        });
        self.jumped += [0, 2_000, 250_000, 1_100_000, 12_000_000, 1_000_000_000][jump as usize % 6];
        self.time()
    }

    /// A number below `choices`, 0 by default.
    pub(in crate::explore) fn any(&mut self, kind: Kind, choices: u32) -> u32 {
        self.decide(kind, 0, |chance| {
            let happens = match kind {
                Kind::Look => chance.happens(chance.looks, 8),
                Kind::Cpu => chance.happens(chance.moves, 8),
                _ => true,
            };
            if happens { chance.rng.below(u64::from(choices)) as u32 } else { 0 }
        })
    }
}

/// The numbers of the bits that are set.
pub(super) fn bits(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (bit < 32).then_some(bit as usize)
    })
}

/// One of the bits that are set, by chance.
pub(super) fn pick(mask: u32, chance: &mut Chance) -> u32 {
    let n = chance.rng.below(u64::from(mask.count_ones())) as usize;
    bits(mask).nth(n).expect("a bit is set") as u32
}
