//! A thread's events as a replay performs them: without what the recorder cost, and with the places between which a thread may
//! jump.

use latchwork_recording::edges::{Edges, Meaning};
use latchwork_recording::trace::op;
use latchwork_recording::trace_file::{About, Step};
use std::collections::BTreeMap;

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
    /// The places, before events, at which a thread may jump to another one of them: it holds no lock, and has given all permits
    /// back that it gives back at all. There are none if there is no event.
    pub tops: Vec<usize>,
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
}

impl Stream {
    /// Of a thread of a trace.
    pub fn new(steps: &[Step], edges: &Edges, thread: usize, about: &About) -> Self {
        let steps = without_costs(steps, about);
        let counts = |object: u32| edges.meaning[object as usize] == Meaning::Permits;
        let mut sections = edges.sections[thread].iter().filter(|section| counts(section.condvar)).peekable();
        let mut stream = Stream {
            steps: Vec::new(),
            marks: Vec::new(),
            tops: Vec::new(),
            given: Vec::new(),
            end: 0,
            waited_again: 0,
        };
        // Events of waits that the replay decides anew, the last of which is the first to come.
        let mut dropped: Vec<usize> = Vec::new();
        let (mut cpu, mut off) = (0, 0);
        for (index, step) in steps.iter().enumerate() {
            let mut mark = Mark { again: is_again(&steps, index, about), ..Mark::default() };
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
        stream.find_tops(&counts, about);
        stream
    }

    /// Finds the places for jumps.
    fn find_tops(&mut self, counts: &dyn Fn(u32) -> bool, about: &About) {
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
        let kept: Vec<Option<u32>> =
            totals.iter().filter(|(_, total)| even(**total)).map(|(key, _)| *key).collect();
        let mut state = vec![0_i64; kept.len()];
        let mut places: BTreeMap<Vec<i64>, Vec<usize>> = BTreeMap::new();
        let mut held = 0_usize;
        for (index, step) in self.steps.iter().enumerate() {
            if held == 0 {
                places.entry(state.clone()).or_default().push(index);
            }
            match step.op {
                op::ACQUIRE | op::READ | op::TRY => held += 1,
                op::RELEASE => held = held.saturating_sub(1),
                _ => {}
            }
            if let Some((object, by)) = change(index) {
                let matches = |key: &Option<u32>| key.is_none_or(|key| key == object);
                kept.iter().zip(&mut state).filter(|(key, _)| matches(key)).for_each(|(_, sum)| *sum += by);
            }
        }
        if held == 0 {
            places.entry(state).or_default().push(self.steps.len());
        }
        // A state that is rare is the thread's beginning or its end.
        let most = places.values().map(Vec::len).max().unwrap_or(0);
        places.retain(|_, places| places.len() * RARE >= most);
        let (state, tops) =
            places.into_iter().max_by_key(|(state, _)| state.iter().sum::<i64>()).unwrap_or_default();
        self.tops = tops;
        let given = kept.iter().zip(&state).filter_map(|(key, by)| Some(((*key)?, *by)));
        self.given = given.filter(|(_, by)| *by != 0).collect();
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
    }
}

/// Whether an event acquires a mutex again after a wait for a condition.
fn is_again(steps: &[Step], index: usize, about: &About) -> bool {
    let Some(before) = index.checked_sub(1).map(|before| &steps[before]) else { return false };
    matches!(steps[index].op, op::ACQUIRE | op::TRY)
        && matches!(before.op, op::SLEEP | op::FAILED)
        && about.classes[about.objects[before.object as usize]].kind == "condvar"
}

/// The events without what the recorder cost.
fn without_costs(steps: &[Step], about: &About) -> Vec<Step> {
    let (hold, gap) = (about.empty_hold_ns.round() as u64, about.empty_gap_ns.round() as u64);
    let mut after_release = false;
    let corrected = steps.iter().map(|step| {
        let cost = if after_release { gap } else { hold };
        after_release = step.op == op::RELEASE;
        Step { cpu: step.cpu.saturating_sub(cost), ..*step }
    });
    corrected.collect()
}
