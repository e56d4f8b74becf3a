//! A thread's events as a replay performs them: without what the recorder cost, and with the places between which a thread may
//! jump.

use latchwork_recording::edges::{Edges, Meaning};
use latchwork_recording::trace::op;
use latchwork_recording::trace_file::{About, Step};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A thread takes and posts as many permits if the difference is at most this share of their sum.
const EVEN: f64 = 0.02;
/// A state is rare if another one has so many times as many places.
const RARE: usize = 100;

/// A thread's events.
#[derive(Clone, Debug)]
pub struct Stream {
    /// The events.
    pub steps: Vec<Step>,
    /// What the replay must know of each.
    pub marks: Vec<Mark>,
    /// The places, before events, at which a thread may jump to another one of them: it holds no lock, has given all permits
    /// back that it gives back at all, and has joined the threads that it created. If it waits at barriers, it has just passed one.
    /// There are none if there is no event.
    pub tops: Vec<usize>,
    /// The barriers that the thread passes, in order.
    pub passes: Vec<u32>,
    /// Which barriers that are.
    pub barriers: BTreeSet<u32>,
    /// How many times it creates threads while there are none that it created before: the rounds of fork and join.
    pub forks: usize,
    /// The threads at its barriers jump together, to places of the same number in [`tops`](Self::tops).
    pub aligned: bool,
    /// How many permits of which objects the thread has given back there since its first event, beyond those that it has taken.
    pub given: Vec<(u32, i64)>,
    /// Behind the last of these places there is nothing to perform.
    pub end: usize,
    /// Nanoseconds that the thread waited for mutexes in parts of the recording that the replay decides anew.
    pub waited_again: u64,
}

/// What a replay must know of an event.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// The thread may jump here: see [`Stream::tops`].
    pub top: bool,
    /// It acquires a mutex again, after a wait for a condition. The program has not asked for that, so it does not count.
    pub again: bool,
    /// The condition variable of which the section that begins here takes a permit.
    pub takes: Option<u32>,
    /// An attempt to get a lock right after one that failed, in a run of attempts that ends with the lock. The replay tries as often
    /// as it must.
    pub retries: bool,
}

impl Stream {
    /// Of a thread of a trace. `forked`: whether the replay creates a thread where the recorded program did.
    pub fn new(steps: &[Step], edges: &Edges, thread: usize, forked: &[bool], about: &About) -> Self {
        let steps = without_costs(steps, about);
        let counts = |object: u32| edges.meaning[object as usize] == Meaning::Permits;
        let mut sections = edges.sections[thread].iter().filter(|section| counts(section.condvar)).peekable();
        let mut stream = Stream {
            steps: Vec::new(),
            marks: Vec::new(),
            tops: Vec::new(),
            passes: Vec::new(),
            barriers: BTreeSet::new(),
            forks: 0,
            aligned: false,
            given: Vec::new(),
            end: 0,
            waited_again: 0,
        };
        // Events of waits that the replay decides anew, the last of which is the first to come.
        let mut dropped: Vec<usize> = Vec::new();
        let retries = retries(&steps);
        let (mut cpu, mut off) = (0, 0);
        for (index, step) in steps.iter().enumerate() {
            let retries = retries[index];
            let mut mark = Mark { again: is_again(&steps, index, about), retries, ..Mark::default() };
            if let Some(section) = sections.next_if(|section| section.first == index) {
                let waits = section.waits.iter().filter(|_| !section.gave_up);
                dropped.extend(waits.flat_map(|first| [*first, first + 1, first + 2]));
                dropped.sort_unstable_by(|first, second| second.cmp(first));
                mark.takes = (!section.gave_up).then_some(section.condvar);
            }
            if dropped.last() == Some(&index) {
                dropped.pop();
                (cpu, off) = (cpu + step.cpu, off + step.off);
                if mark.again {
                    stream.waited_again += step.wait;
                }
                continue;
            }
            stream.steps.push(Step { cpu: step.cpu + cpu, off: step.off + off, ..*step });
            stream.marks.push(mark);
            (cpu, off) = (0, 0);
        }
        let meets =
            |step: &Step| step.op == op::SLEEP && edges.meaning[step.object as usize] == Meaning::Barrier;
        stream.passes = stream.steps.iter().filter(|step| meets(step)).map(|step| step.object).collect();
        stream.barriers = stream.passes.iter().copied().collect();
        stream.find_tops(&counts, &meets, forked, about);
        stream
    }

    /// Finds the places for jumps.
    fn find_tops(
        &mut self,
        counts: &dyn Fn(u32) -> bool,
        meets: &dyn Fn(&Step) -> bool,
        forked: &[bool],
        about: &About,
    ) {
        let is_semaphore = |object: u32| about.classes[about.objects[object as usize]].kind == "semaphore";
        // Of each event, the object whose permits it changes, and by how many.
        let change = |index: usize| {
            let step = &self.steps[index];
            match (step.op, self.marks[index].takes) {
                (_, Some(condvar)) => Some((condvar, -1)),
                (op::SLEEP, _) if counts(step.object) && is_semaphore(step.object) => Some((step.object, -1)),
                (op::WAKE | op::WAKE_ALL, _) if counts(step.object) => Some((step.object, 1_i64)),
                _ => None,
            }
        };
        // What the thread gives back when it has taken it: of an object, or of all together.
        let mut totals: BTreeMap<Option<u32>, (i64, i64)> = BTreeMap::new();
        for (object, by) in (0..self.steps.len()).filter_map(change) {
            for key in [None, Some(object)] {
                let (sum, all) = totals.entry(key).or_default();
                (*sum, *all) = (*sum + by, *all + 1);
            }
        }
        let even =
            |(sum, all): (i64, i64)| sum.abs() as f64 <= (EVEN * all as f64).max(2.0) && sum.abs() < all;
        let kept: BTreeSet<Option<u32>> =
            totals.iter().filter(|(_, total)| even(**total)).map(|(key, _)| *key).collect();
        let is_even = |object: u32| kept.contains(&Some(object));
        let mut state = Balance::default();
        let mut lent = Lent::default();
        let mut places: BTreeMap<(Balance, Lent), Vec<usize>> = BTreeMap::new();
        let mut held = 0_usize;
        // Threads that live, of those that this one joins at some time.
        let is_forked = |step: &&Step| forked.get(step.object as usize).copied().unwrap_or(false);
        let joins = self.steps.iter().filter(|step| step.op == op::JOIN).filter(is_forked);
        let joined: BTreeSet<u32> = joins.map(|step| step.object).collect();
        let mut alive = BTreeSet::new();
        let mut may_jump = self.passes.is_empty();
        for (index, step) in self.steps.iter().enumerate() {
            // A thread that polls computes before its first attempt only.
            if held == 0 && alive.is_empty() && may_jump && !self.marks[index].retries {
                places.entry((state, lent.clone())).or_default().push(index);
            }
            may_jump = self.passes.is_empty() || meets(step);
            match step.op {
                op::CREATE if joined.contains(&step.object) => {
                    self.forks += usize::from(alive.is_empty());
                    alive.insert(step.object);
                }
                op::JOIN => drop(alive.remove(&step.object)),
                op::ACQUIRE | op::READ | op::TRY => held += 1,
                op::RELEASE => held = held.saturating_sub(1),
                _ => {}
            }
            if let Some((object, by)) = change(index) {
                let keys = [None, Some(object)].into_iter().filter(|key| kept.contains(key));
                keys.for_each(|key| state.change(key, by));
                if kept.contains(&None) && !is_even(object) {
                    lent.change(object, by);
                }
            }
        }
        if held == 0 && alive.is_empty() && may_jump {
            places.entry((state, lent)).or_default().push(self.steps.len());
        }
        // A state that is rare is the thread's beginning or its end.
        let most = places.values().map(Vec::len).max().unwrap_or(0);
        places.retain(|_, places| places.len() * RARE >= most);
        let ((_, lent), tops) = places
            .into_iter()
            .max_by_key(|((state, _), places)| (state.sum, places.len(), Reverse(places[0])))
            .unwrap_or_default();
        // All these places have the same balance of each object.
        let mut given: BTreeMap<u32, i64> = BTreeMap::new();
        let before = (0..tops.first().copied().unwrap_or(0)).filter_map(change);
        before.filter(|(object, _)| is_even(*object)).for_each(|(object, by)| {
            *given.entry(object).or_default() += by;
        });
        self.tops = tops;
        self.given = given.into_iter().chain(lent.0).filter(|(_, by)| *by != 0).collect();
        self.end = match self.tops[..] {
            // A stream of which there is nothing to repeat is performed to its end.
            [] | [_] => {
                self.tops = vec![0];
                self.steps.len()
            }
            [.., _, last] => {
                self.tops.pop();
                last
            }
        };
        if self.steps.is_empty() {
            self.tops.clear();
        }
        for top in &self.tops {
            self.marks[*top].top = true;
        }
        // Each place behind a barrier is one of the places for jumps, the last one included.
        self.aligned = self.passes.len() >= 2 && self.tops.len() + 1 == self.passes.len();
    }

    /// Keeps, of the barriers that the thread passes, `count` behind the first `skipped` ones.
    fn keep_passes(&mut self, skipped: usize, count: usize) {
        self.marks.iter_mut().for_each(|mark| mark.top = false);
        let places: Vec<usize> =
            self.tops.iter().copied().chain([self.end]).skip(skipped).take(count).collect();
        if let [tops @ .., end] = &places[..] {
            (self.tops, self.end) = (tops.to_vec(), *end);
        }
        for top in &self.tops {
            self.marks[*top].top = true;
        }
    }
}

/// Finds the threads that pass the same barriers in the same order, and has them jump together: what they do between two barriers
/// belongs together. The others keep their number of threads at a barrier, and no more. `first`: when each thread came to its
/// first barrier and when it left it; `whole`: whether its recording begins with its creation.
pub fn align(streams: &mut [Stream], threads: &[usize], first: &dyn Fn(usize) -> (u64, u64), whole: &[bool]) {
    let mut groups: BTreeMap<BTreeSet<u32>, Vec<usize>> = BTreeMap::new();
    for thread in threads.iter().copied().filter(|thread| !streams[*thread].passes.is_empty()) {
        groups.entry(streams[thread].barriers.clone()).or_default().push(thread);
    }
    for (barriers, group) in &groups {
        let alone = groups.keys().all(|other| other == barriers || other.is_disjoint(barriers));
        // Where a recording begins in the middle of a run, a thread may have left a barrier before that, and another one after it.
        let left = group.iter().map(|thread| first(*thread).1).min().unwrap_or(0);
        let skipped = |thread: usize| usize::from(!whole[thread] && first(thread).0 <= left);
        let is_late = group.iter().any(|thread| !whole[*thread] && first(*thread).0 > left);
        let skipped: Vec<usize> =
            group.iter().map(|thread| if is_late { skipped(*thread) } else { 0 }).collect();
        let passes = |at: usize| &streams[group[at]].passes[skipped[at]..];
        let count = (0..group.len()).map(|at| passes(at).len()).min().unwrap_or(0);
        let same = (0..group.len())
            .all(|at| streams[group[at]].aligned && passes(at)[..count] == passes(0)[..count]);
        for (at, thread) in group.iter().enumerate() {
            streams[*thread].aligned = alone && same && count >= 2;
            if streams[*thread].aligned {
                streams[*thread].keep_passes(skipped[at], count);
            }
        }
    }
}

/// How many permits of each object a thread has given back, beyond those that it has taken. There may be thousands of objects, and it is
/// kept for many places, so it has a hash of the numbers.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Balance {
    sum: i64,
    /// The sum of the numbers, each times a random number that belongs to its object.
    hash: u64,
}

impl Balance {
    /// `object`: `None` for all together.
    fn change(&mut self, object: Option<u32>, by: i64) {
        // splitmix64
        let mut random = object.map_or(1, |object| u64::from(object) + 2).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        random = (random ^ random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        random = (random ^ random >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.sum += by;
        self.hash = self.hash.wrapping_add((random ^ random >> 31).wrapping_mul(by.cast_unsigned()));
    }
}

/// What a thread has given of one object and not yet taken of another, or the other way round: the objects and +1 or -1, the oldest
/// first. A thread that takes turns with another one posts one semaphore, and takes from a different one; so it has given back
/// what it took, but at some places the other thread has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Lent(Vec<(u32, i64)>);

impl Lent {
    /// Kept at most. A thread that has lent more gives and takes without any relation.
    const MOST: usize = 16;

    fn change(&mut self, object: u32, by: i64) {
        match self.0.last() {
            Some((_, last)) if *last == -by => {
                self.0.pop();
            }
            _ if self.0.len() < Self::MOST => self.0.push((object, by)),
            _ => {}
        }
    }
}

/// Whether an event acquires a mutex again after a wait for a condition.
fn is_again(steps: &[Step], index: usize, about: &About) -> bool {
    let Some(before) = index.checked_sub(1).map(|before| &steps[before]) else { return false };
    matches!(steps[index].op, op::ACQUIRE | op::TRY)
        && matches!(before.op, op::SLEEP | op::FAILED)
        && about.classes[about.objects[before.object as usize]].kind == "condvar"
}

/// Which events are attempts right after one that failed, in runs that end with the lock: see [`Mark::retries`].
fn retries(steps: &[Step]) -> Vec<bool> {
    let mut retries = vec![false; steps.len()];
    let mut gets = None;
    for (index, step) in steps.iter().enumerate().rev() {
        match step.op {
            op::TRY => gets = Some(step.object),
            op::FAILED if step.wait == 0 && gets == Some(step.object) => retries[index + 1] = true,
            _ => gets = None,
        }
    }
    retries
}

/// The events without what the recorder cost.
fn without_costs(steps: &[Step], about: &About) -> Vec<Step> {
    let (mut hold, mut gap) = (Cost::new(about.empty_hold_ns), Cost::new(about.empty_gap_ns));
    let release = about.empty_release_ns.round() as u64;
    let mut after_release = false;
    let corrected = steps.iter().map(|step| {
        let cost = if after_release { &mut gap } else { &mut hold };
        after_release = step.op == op::RELEASE;
        let wait = if takes_time(step) { step.wait.saturating_sub(release) } else { step.wait };
        Step { cpu: cost.less(step.cpu), wait, ..*step }
    });
    corrected.collect()
}

/// Whether the event is one of which [`Step::wait`] is how long the call took: it is work. The replay does it anew, but for the creation
/// of threads.
pub fn takes_time(step: &Step) -> bool {
    matches!(step.op, op::RELEASE | op::WAKE | op::WAKE_ALL | op::CREATE)
}

/// What is to be subtracted from each of several times. A clock may advance in steps that are larger than the cost; so what is more than
/// one time is subtracted from the next.
struct Cost {
    each: f64,
    owed: f64,
}

impl Cost {
    /// At most so many costs are kept for later times. (A section may be shorter than the one that was calibrated.)
    const KEPT: f64 = 4.0;

    fn new(each: f64) -> Self {
        Cost { each, owed: 0.0 }
    }

    fn less(&mut self, time: u64) -> u64 {
        self.owed += self.each;
        let paid = (self.owed as u64).min(time);
        self.owed = (self.owed - paid as f64).min(Self::KEPT * self.each);
        time - paid
    }
}
