//! What makes a waiting thread go on, where a lock does not decide it: condition variables, semaphores, barriers, and the end of
//! threads.
//!
//! A trace says which thread waited for which object, and which thread signalled it. A replay with other locks, or with more
//! threads, must decide anew who waits. So the recorded waits become one of four things, for each object ([`Meaning`]):
//!
//! - **A counter of permits.** A post, or a signal, adds a permit. A wait takes one, and a thread waits while there is none.
//!   Semaphores are this by definition. A condition variable is, if there are about as many signals as *sections that take*:
//!   sections of its mutex of a kind in which the thread, or another one of its role, sometimes waits for the condition. A
//!   queue of jobs is the usual case: a producer adds a job and signals, a consumer takes one, and waits only if there is none.
//! - **Signals.** A wait ends at the next signal that comes after it has begun. That is all that is known of other condition
//!   variables.
//! - **Arrivals.** A wait at a barrier ends when as many threads have come as the barrier takes.
//! - **As recorded.** Nobody in the trace signals: the wait takes as long as it took. So does a wait at a barrier at which too few
//!   threads of the trace meet (it is shared with another process, or the recording has a part of the run).
//!
//! Which thread creates and joins which others stands in the events themselves. [`forks`] says where that happens again and again.
//!
//! A kind of section is the mutex, and the conditions that are signalled within. So the section in which a thread takes a job
//! and the one in which it reports that the job is done are told apart, if the report signals something.
//!
//! How many permits there are at first is not recorded, and need not be: it is the least number with which no thread has taken
//! a permit before it was there. [`permits`] computes it while the moments of the events are known.

use crate::trace::op;
use crate::trace_file::{About, Step};
use std::collections::{BTreeMap, BTreeSet};

/// The most that signals and sections may differ if a condition variable counts permits: a share.
const BALANCE: f64 = 0.10;

/// What an object is in a replay.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Meaning {
    /// A lock, or an object for whose waits nobody in the trace is responsible: these take as long as they took.
    #[default]
    Recorded,
    /// A counter of permits.
    Permits,
    /// A wait ends at the next signal.
    Signals,
    /// A wait ends when the barrier's threads have come.
    Barrier,
}

/// The meaning of each object, and the sections that take permits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edges {
    /// For each object of the trace.
    pub meaning: Vec<Meaning>,
    /// For each thread, its sections that take a permit of a condition variable, in order.
    pub sections: Vec<Vec<Section>>,
}

/// A part of a thread's events in which it holds a mutex, but for waits for conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// The first acquisition: an index into the thread's events.
    pub first: usize,
    /// The acquisition after the last wait; `first`, if there is none.
    pub through: usize,
    /// The waits. Each has three events: a release, the wait, and an acquisition. The index is that of the release.
    pub waits: Vec<usize>,
    /// The condition variable that is waited for in sections of this kind.
    pub condvar: u32,
    /// Whether the last wait ended at its deadline: then the thread has taken nothing.
    pub gave_up: bool,
}

/// A kind of section: the mutex, and what is signalled within.
type Kind = (u32, Vec<u32>);

/// What a trace says of its objects.
pub fn find(about: &About, steps: &[Vec<Step>]) -> Edges {
    let is = |object: u32, kind: &str| about.classes[about.objects[object as usize]].kind == kind;
    let is_condvar = |object| is(object, "condvar");
    let mut signals = vec![0_u64; about.objects.len()];
    for step in steps.iter().flatten().filter(|step| matches!(step.op, op::WAKE | op::WAKE_ALL)) {
        signals[step.object as usize] += 1;
    }
    let mut meets = vec![BTreeSet::new(); about.objects.len()];
    for (thread, steps) in steps.iter().enumerate() {
        for step in steps.iter().filter(|step| step.op == op::SLEEP && is(step.object, "barrier")) {
            meets[step.object as usize].insert(thread);
        }
    }
    let all_come = |object: usize| {
        let parties = about.parties.get(object).map_or(0, |parties| *parties as usize);
        (1..=meets[object].len()).contains(&parties)
    };
    let parsed: Vec<Vec<(Kind, Section)>> = steps.iter().map(|steps| sections(steps, &is_condvar)).collect();
    let known = Waits::new(about, &parsed);
    let mut taken = vec![0_u64; about.objects.len()];
    let mut found = Edges { meaning: Vec::new(), sections: Vec::new() };
    for (thread, sections) in parsed.iter().enumerate() {
        let mut takes = Vec::new();
        for (kind, section) in sections {
            if let Some(condvar) = known.of(about, thread, kind) {
                takes.push(Section { condvar, ..section.clone() });
                taken[condvar as usize] += u64::from(!section.gave_up);
            }
        }
        found.sections.push(takes);
    }
    found.meaning = (0..about.objects.len())
        .map(|object| {
            let (signals, taken) = (signals[object], taken[object]);
            let object = object as u32;
            let balanced = signals.abs_diff(taken) as f64 <= BALANCE * signals.max(taken) as f64;
            match () {
                () if all_come(object as usize) => Meaning::Barrier,
                () if signals == 0 => Meaning::Recorded,
                () if is(object, "semaphore") => Meaning::Permits,
                () if !is_condvar(object) => Meaning::Recorded,
                () if balanced && !known.unclear.contains(&object) => Meaning::Permits,
                () => Meaning::Signals,
            }
        })
        .collect();
    for sections in &mut found.sections {
        sections.retain(|section| found.meaning[section.condvar as usize] == Meaning::Permits);
    }
    found
}

/// Roles whose threads come and go: another thread creates some, joins them, and creates more. Returns the names of the creators'
/// roles and those of the created threads.
pub fn forks(about: &About, steps: &[Vec<Step>]) -> BTreeSet<(String, String)> {
    let role = |thread: u32| about.threads.get(thread as usize).map(|thread| thread.role.as_str());
    let mut found = BTreeSet::new();
    let mut created: BTreeMap<&str, usize> = BTreeMap::new();
    for (creator, steps) in steps.iter().enumerate() {
        let creator = about.threads[creator].role.as_str();
        let mut joined = BTreeSet::new();
        for step in steps {
            match (step.op, role(step.object)) {
                (op::JOIN, Some(of)) => {
                    joined.insert(of);
                }
                (op::CREATE, Some(of)) => {
                    *created.entry(of).or_default() += 1;
                    if joined.contains(of) && of != creator {
                        found.insert((creator.to_owned(), of.to_owned()));
                    }
                }
                _ => {}
            }
        }
    }
    // A replay cannot begin those whose creation it does not know.
    let all = |of: &str| about.threads.iter().filter(|thread| thread.role == of).count();
    found.retain(|(_, of)| created[of.as_str()] as f64 >= (1.0 - BALANCE) * all(of) as f64);
    found
}

/// Which condition variable is waited for in a kind of section. `None`: several.
#[derive(Default)]
struct Waits<'a> {
    /// By each thread. Threads of one role may do different things: a language's runtime may start all of them by one function.
    thread: BTreeMap<(usize, &'a Kind), Option<u32>>,
    /// By the threads of each role: for those that never had to wait.
    role: BTreeMap<(&'a str, &'a Kind), Option<u32>>,
    /// Conditions that share a kind of section of a thread.
    unclear: BTreeSet<u32>,
}

impl<'a> Waits<'a> {
    fn new(about: &'a About, parsed: &'a [Vec<(Kind, Section)>]) -> Self {
        let mut waits = Waits::default();
        for (thread, sections) in parsed.iter().enumerate() {
            for (kind, section) in sections.iter().filter(|(_, section)| !section.waits.is_empty()) {
                let condvar = section.condvar;
                let role = about.threads[thread].role.as_str();
                let of_role = waits.role.entry((role, kind)).or_insert(Some(condvar));
                *of_role = of_role.filter(|known| *known == condvar);
                let of_thread = waits.thread.entry((thread, kind)).or_insert(Some(condvar));
                if let Some(other) = of_thread.filter(|known| *known != condvar) {
                    waits.unclear.insert(other);
                }
                *of_thread = of_thread.filter(|known| *known == condvar);
                if of_thread.is_none() {
                    waits.unclear.insert(condvar);
                }
            }
        }
        waits
    }

    /// The condition variable of a thread's section of this kind.
    fn of(&self, about: &About, thread: usize, kind: &Kind) -> Option<u32> {
        let role = || self.role.get(&(about.threads[thread].role.as_str(), kind)).copied();
        self.thread.get(&(thread, kind)).copied().or_else(role)?
    }
}

/// The sections of a thread. Those without a wait have an arbitrary condition variable.
fn sections(steps: &[Step], is_condvar: &dyn Fn(u32) -> bool) -> Vec<(Kind, Section)> {
    let mut done = Vec::new();
    let mut open: BTreeMap<u32, (Vec<u32>, Section)> = BTreeMap::new();
    for (index, step) in steps.iter().enumerate() {
        match step.op {
            op::ACQUIRE | op::TRY => {
                let section = Section { first: index, through: index, ..Section::default() };
                let entry = open.entry(step.object).or_insert((Vec::new(), section));
                entry.1.through = index;
            }
            op::RELEASE => match wait_at(steps, index, is_condvar) {
                Some((condvar, gave_up)) => {
                    if let Some((_, section)) = open.get_mut(&step.object) {
                        section.waits.push(index);
                        (section.condvar, section.gave_up) = (condvar, gave_up);
                    }
                }
                None => {
                    if let Some((mut signalled, section)) = open.remove(&step.object) {
                        signalled.sort_unstable();
                        signalled.dedup();
                        done.push(((step.object, signalled), section));
                    }
                }
            },
            op::WAKE | op::WAKE_ALL => {
                open.values_mut().for_each(|(signalled, _)| signalled.push(step.object));
            }
            _ => {}
        }
    }
    done.sort_by_key(|(_, section)| section.first);
    done
}

/// Whether a release is the beginning of a wait for a condition: for which one, and whether the wait ended at its deadline.
fn wait_at(steps: &[Step], index: usize, is_condvar: &dyn Fn(u32) -> bool) -> Option<(u32, bool)> {
    let [release, wait, acquire] = steps.get(index..index + 3)? else { return None };
    let waits = matches!(wait.op, op::SLEEP | op::FAILED) && is_condvar(wait.object);
    let again = matches!(acquire.op, op::ACQUIRE | op::TRY) && acquire.object == release.object;
    (waits && again).then_some((wait.object, wait.op == op::FAILED))
}

/// How many permits each object has when the recording begins. `times`: when each event ended, on one clock for all threads.
pub fn permits(about: &About, steps: &[Vec<Step>], times: &[Vec<u64>]) -> Vec<u32> {
    let edges = find(about, steps);
    let counts = |object: u32| edges.meaning[object as usize] == Meaning::Permits;
    // When a permit comes (0) or goes (1); what comes at the same moment comes first.
    let mut changes: Vec<(u64, u8, u32)> = Vec::new();
    for (thread, (steps, times)) in steps.iter().zip(times).enumerate() {
        for section in edges.sections[thread].iter().filter(|section| !section.gave_up) {
            changes.push((times[section.through], 1, section.condvar));
        }
        let mut held = 0_usize;
        let mut released = None;
        for (step, time) in steps.iter().zip(times) {
            match step.op {
                op::ACQUIRE | op::TRY | op::READ => held += 1,
                op::RELEASE => {
                    held = held.saturating_sub(1);
                    released = Some(*time);
                }
                op::WAKE | op::WAKE_ALL if counts(step.object) => {
                    let semaphore = about.classes[about.objects[step.object as usize]].kind == "semaphore";
                    // What a signal outside of the mutex is about was done while the mutex was held.
                    let since = released.filter(|_| held == 0 && !semaphore).unwrap_or(*time);
                    changes.push((since, 0, step.object));
                }
                op::SLEEP if counts(step.object) && is_semaphore(about, step.object) => {
                    changes.push((*time, 1, step.object));
                }
                _ => {}
            }
        }
    }
    changes.sort_unstable();
    let mut now = vec![0_i64; about.objects.len()];
    let mut least = now.clone();
    for (_, goes, object) in changes {
        let object = object as usize;
        now[object] += if goes == 1 { -1 } else { 1 };
        least[object] = least[object].min(now[object]);
    }
    least.into_iter().map(|least| u32::try_from(-least).unwrap_or(u32::MAX)).collect()
}

fn is_semaphore(about: &About, object: u32) -> bool {
    about.classes[about.objects[object as usize]].kind == "semaphore"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace_file::{Class, Thread};

    const MUTEX: u32 = 0;
    const FULL: u32 = 1;
    const FREE: u32 = 2;
    const UNITS: u32 = 3;

    fn about(roles: &[&str]) -> About {
        let class = |kind: &str| Class { name: kind.into(), kind: kind.into(), is_static: true };
        About {
            classes: vec![class("mutex"), class("condvar"), class("semaphore")],
            objects: vec![0, 1, 1, 2],
            threads: roles.iter().map(|role| Thread { role: (*role).into(), ..Thread::default() }).collect(),
            ..About::default()
        }
    }

    #[test]
    fn threads_that_are_created_again_and_again_are_forked() {
        let mut about = about(&["main", "worker", "worker", "server"]);
        let list =
            [(op::CREATE, 3), (op::CREATE, 1), (op::JOIN, 1), (op::CREATE, 2), (op::JOIN, 2), (op::JOIN, 3)];
        let trace = [steps(&list), vec![], vec![], vec![]];
        assert_eq!(forks(&about, &trace), [("main".into(), "worker".into())].into());
        // Most of them come from elsewhere.
        about.threads.extend(vec![Thread { role: "worker".into(), ..Thread::default() }; 3]);
        assert_eq!(forks(&about, &trace), BTreeSet::new());
    }

    #[test]
    fn a_barrier_counts_if_all_its_threads_are_there() {
        let mut about = about(&["worker"; 3]);
        about.classes.push(Class { name: "meeting".into(), kind: "barrier".into(), is_static: true });
        about.objects.push(3);
        let trace = vec![steps(&[(op::SLEEP, 4)]); 3];
        for (parties, meaning) in
            [(3, Meaning::Barrier), (2, Meaning::Barrier), (4, Meaning::Recorded), (0, Meaning::Recorded)]
        {
            about.parties = vec![0, 0, 0, 0, parties];
            assert_eq!(find(&about, &trace).meaning[4], meaning, "{parties}");
        }
    }

    fn steps(list: &[(u32, u32)]) -> Vec<Step> {
        list.iter().map(|(op, object)| Step { op: *op, object: *object, ..Step::default() }).collect()
    }

    /// A section of the queue that waits for `waits` so many times, and signals.
    fn section(waits: u32, times: usize, signals: Option<u32>) -> Vec<(u32, u32)> {
        let wait = [(op::RELEASE, MUTEX), (op::SLEEP, waits), (op::ACQUIRE, MUTEX)];
        let signal = signals.map(|condvar| (op::WAKE, condvar));
        let inner = std::iter::repeat_n(wait, times).flatten().chain(signal);
        std::iter::once((op::ACQUIRE, MUTEX)).chain(inner).chain([(op::RELEASE, MUTEX)]).collect()
    }

    #[test]
    fn a_queue_of_jobs_counts_permits() {
        let about = about(&["produce", "consume"]);
        let produced = section(FREE, 0, Some(FULL)).repeat(20);
        let mut consumed = section(FULL, 2, Some(FREE));
        consumed.extend(section(FULL, 0, Some(FREE)).repeat(19));
        let trace = [steps(&produced), steps(&consumed)];
        let found = find(&about, &trace);
        // Nobody waits for a free place, so that no section is known to take one.
        use Meaning::*;
        assert_eq!(found.meaning, [Recorded, Permits, Signals, Recorded]);
        assert_eq!((found.sections[0].len(), found.sections[1].len()), (0, 20));
        let first = &found.sections[1][0];
        assert_eq!((first.first, first.through, &first.waits[..]), (0, 6, &[1, 4][..]));
        // The consumer takes each job when it is there.
        let times = [(0..60).map(|at| at * 10).collect(), (0..66).map(|at| 11 + at * 11).collect()];
        assert_eq!(permits(&about, &trace, &times)[FULL as usize], 0);
        // If the producer is later, the consumer finds two jobs that the recording has not seen.
        let early = [times[0].iter().map(|at| at + 105).collect(), times[1].clone()];
        assert_eq!(permits(&about, &trace, &early)[FULL as usize], 2);
    }

    #[test]
    fn other_conditions_are_signals() {
        let about = about(&["produce", "consume"]);
        // One signal for four sections.
        let trace = [
            steps(&section(FREE, 0, Some(FULL)).repeat(5)),
            steps(&[section(FULL, 1, None), section(FULL, 0, None).repeat(19)].concat()),
        ];
        let found = find(&about, &trace);
        assert_eq!(found.meaning[FULL as usize], Meaning::Signals);
        assert!(found.sections[1].is_empty());
        // A kind of section in which a role waits for two conditions.
        let mut both = section(FULL, 1, None);
        both.extend(section(FREE, 1, None));
        let trace = [steps(&[(op::WAKE, FULL), (op::WAKE, FREE)]), steps(&both)];
        let found = find(&about, &trace);
        assert_eq!(&found.meaning[1..3], [Meaning::Signals, Meaning::Signals]);
    }

    #[test]
    fn a_semaphore_has_the_permits_that_were_taken_before_they_were_posted() {
        let about = about(&["worker"]);
        let pairs = [(op::SLEEP, UNITS), (op::SLEEP, UNITS), (op::WAKE, UNITS), (op::WAKE, UNITS)].repeat(3);
        let trace = [steps(&pairs)];
        let times = [(0..12).collect()];
        assert_eq!(permits(&about, &trace, &times), [0, 0, 0, 2]);
        // Nobody posts: what the thread waits for is not in the trace.
        let trace = [steps(&[(op::SLEEP, UNITS)])];
        assert_eq!(find(&about, &trace).meaning[UNITS as usize], Meaning::Recorded);
        assert_eq!(permits(&about, &trace, &[vec![1]]), [0; 4]);
    }

    /// As in a program whose runtime starts all threads by the same function.
    #[test]
    fn threads_of_one_role_may_do_different_things() {
        let about = about(&["start", "start", "start"]);
        let of = |condvar| [section(condvar, 1, None), section(condvar, 0, None).repeat(9)].concat();
        let signals = |condvar| [(op::WAKE, condvar)].repeat(10);
        let trace = [
            steps(&[of(FREE), signals(FULL)].concat()),
            steps(&[of(FULL), signals(FREE)].concat()),
            // Nothing tells what this one would wait for.
            steps(&section(FULL, 0, None)),
        ];
        let found = find(&about, &trace);
        assert_eq!(&found.meaning[1..3], [Meaning::Permits, Meaning::Permits]);
        assert_eq!(found.sections.iter().map(Vec::len).collect::<Vec<_>>(), [10, 10, 0]);
    }

    #[test]
    fn who_gives_up_takes_nothing() {
        let about = about(&["produce", "consume"]);
        let late = [
            (op::ACQUIRE, MUTEX),
            (op::RELEASE, MUTEX),
            (op::FAILED, FULL),
            (op::ACQUIRE, MUTEX),
            (op::RELEASE, MUTEX),
        ];
        let mut consumed = section(FULL, 1, None).repeat(9);
        consumed.extend(late);
        let trace = [steps(&[(op::WAKE, FULL)].repeat(9)), steps(&consumed)];
        let found = find(&about, &trace);
        assert_eq!(found.meaning[FULL as usize], Meaning::Permits);
        assert!(found.sections[1][9].gave_up && !found.sections[1][8].gave_up);
    }
}
