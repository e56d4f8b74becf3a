//! What a trace says of the program: roles of threads, locks, and where the threads' time went.

use super::stream::{self, Stream};
use latchwork_recording::edges::{self, Edges, Meaning};
use latchwork_recording::trace::op;
use latchwork_recording::trace_file::{About, Step, Trace};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// A role with a smaller share of the acquisitions is left out of the replay, if the busier ones have [`MOST`] of them.
const SMALL: f64 = 0.005;
/// See [`SMALL`].
const MOST: f64 = 0.99;

/// A call that took longer than this waited, in nanoseconds, in the recording and in the replay. An uncontended one takes a few cache
/// misses at most.
pub const WAITED: u64 = 600;

/// What a lock is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// A mutex or a spin lock.
    Mutex,
    /// A reader-writer lock.
    RwLock,
    /// A condition variable, a semaphore, a barrier or the like.
    Event,
}

/// A lock, a condition variable, a semaphore or a barrier.
#[derive(Clone, Debug)]
pub struct Object {
    /// An index into [`Load::classes`].
    pub class: usize,
    /// What it is.
    pub form: Form,
    /// Whether it belongs to no single thread: see [`is_shared`].
    pub shared: bool,
    /// What a wait for it is. Of an object of one thread: [`Meaning::Recorded`].
    pub meaning: Meaning,
    /// How many permits it has at first.
    pub permits: u32,
    /// How many threads a barrier takes.
    pub parties: u32,
}

/// Threads that do the same.
#[derive(Clone, Debug)]
pub struct Role {
    /// The function that they run.
    pub name: String,
    /// Indices into [`Load::streams`].
    pub members: Vec<usize>,
    /// How many of them ran at the same time: on average; at most, if they are [`forked`](Self::forked).
    pub threads: usize,
    /// Other threads of the replay create them, and join them. See [`edges::forks`].
    pub forked: bool,
    /// Its threads create forked ones. The replay has as many of them as were recorded, however many threads it has.
    pub forks: bool,
    /// Its share of all acquisitions.
    pub share: f64,
}

/// Shares of the threads' time.
#[derive(Copy, Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Shares {
    /// Computing, inside and outside of locks.
    pub cpu: f64,
    /// Waiting for locks.
    pub waiting: f64,
    /// Waiting for conditions and semaphores that another thread of the trace signals, at barriers, and for the end of threads that
    /// the replay creates: the replay decides how long.
    pub sleeping: f64,
    /// Waiting for the end of other threads: the replay keeps these waits as they are.
    pub joining: f64,
    /// Waiting for them until a deadline, or where nobody in the trace signals: the replay keeps these waits as they are.
    pub timed: f64,
    /// Asleep outside of the calls that are recorded: in system calls, and in locks that the recorder does not see.
    pub off: f64,
    /// Able to run, without a processor.
    pub preempted: f64,
}

/// A program, as its trace shows it.
#[derive(Clone, Debug)]
pub struct Load {
    /// Names of the classes.
    pub classes: Vec<String>,
    /// Locks and the like.
    pub objects: Vec<Object>,
    /// Roles that are replayed, the busiest first.
    pub roles: Vec<Role>,
    /// Names of roles that are left out.
    pub left_out: Vec<String>,
    /// The events of each thread.
    pub streams: Vec<Stream>,
    /// Acquisitions a second of the replayed roles, all threads together.
    pub throughput: f64,
    /// Where their time went.
    pub shares: Shares,
    /// Acquisitions for a second of a thread's computing time.
    pub rate: f64,
    /// Events for each acquisition.
    pub events: f64,
    /// The most acquisitions a second that one of the locks allows: it is held alone all the time.
    pub bound: f64,
    /// The share of the events that were dropped.
    pub dropped: f64,
    /// Acquisitions in the second half of the recording, to those in the first half.
    pub second_half: f64,
    /// For each thread that another thread of the replay creates, its place in `roles`.
    pub forked: Vec<Option<usize>>,
    /// How long a thread computes and waits between two barriers, or from a fork to the next one, in nanoseconds. 0: neither.
    pub round: u64,
    /// Whether the recorder counts the wait for the mutex after a wait for a condition to the latter.
    pub relock_sleeps: bool,
}

/// Nanoseconds of each kind, and acquisitions.
#[derive(Copy, Clone, Default)]
struct Sums {
    cpu: u64,
    waiting: u64,
    sleeping: u64,
    joining: u64,
    timed: u64,
    off: u64,
    preempted: u64,
    acquisitions: u64,
}

impl Sums {
    fn add(&mut self, other: &Sums) {
        self.cpu += other.cpu;
        self.waiting += other.waiting;
        self.sleeping += other.sleeping;
        self.joining += other.joining;
        self.timed += other.timed;
        self.off += other.off;
        self.preempted += other.preempted;
        self.acquisitions += other.acquisitions;
    }

    fn wall(&self) -> u64 {
        self.cpu + self.waiting + self.sleeping + self.joining + self.timed + self.off + self.preempted
    }
}

/// Whether an event is an acquisition.
pub fn acquires(step: &Step) -> bool {
    matches!(step.op, op::ACQUIRE | op::READ | op::TRY)
}

impl Load {
    /// From a trace that was recorded on a machine with so many CPUs. `lock_ns` is what an uncontended pair of acquisition and
    /// release takes there.
    pub fn new(trace: &Trace, lock_ns: f64) -> Self {
        let about = &trace.about;
        let form = |class: usize| match about.classes[class].kind.as_str() {
            "mutex" | "spin" => Form::Mutex,
            "rwlock" => Form::RwLock,
            _ => Form::Event,
        };
        let mut users: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); about.objects.len()];
        for (thread, steps) in trace.steps.iter().enumerate() {
            steps.iter().filter(|step| step.has_object()).for_each(|step| {
                users[step.object as usize].insert(thread);
            });
        }
        let mut edges = edges::find(about, &trace.steps);
        let objects: Vec<Object> = about
            .objects
            .iter()
            .enumerate()
            .map(|(object, class)| {
                let shared = about.classes[*class].is_static || is_shared(&users[object], about);
                if !shared {
                    edges.meaning[object] = Meaning::Recorded;
                }
                let permits = about.permits.get(object).copied().unwrap_or(0);
                let parties = about.parties.get(object).copied().unwrap_or(0);
                let (form, meaning) = (form(*class), edges.meaning[object]);
                Object { class: *class, form, shared, meaning, permits, parties }
            })
            .collect();
        let forks = edges::forks(about, &trace.steps);
        let of_forks = |role: &str| forks.iter().any(|(_, created)| created == role);
        let forked: Vec<bool> = about.threads.iter().map(|thread| of_forks(&thread.role)).collect();
        let (steps, created) = (&trace.steps, created(trace));
        // A thread that the replay does not create begins at its first call: what it did before that, such as to read files, it
        // does once.
        let lead = |thread: usize| match steps[thread].first() {
            Some(first) if created[thread] && !forked[thread] => first.cpu + first.off,
            _ => 0,
        };
        let mut streams: Vec<Stream> = (0..steps.len())
            .map(|thread| stream::Stream::new(&steps[thread], &edges, thread, &forked, about))
            .collect();
        for (thread, stream) in streams.iter_mut().enumerate() {
            if let Some(first) = stream.steps.first_mut().filter(|_| lead(thread) > 0) {
                (first.cpu, first.off) = (0, 0);
            }
        }
        let sums: Vec<Sums> = (0..steps.len())
            .map(|thread| {
                sums(&steps[thread], &streams[thread], &edges, &forked, about.threads[thread].preempted_ns)
            })
            .collect();
        let mut roles: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, thread) in about.threads.iter().enumerate() {
            roles.entry(&thread.role).or_default().push(index);
        }
        let all: u64 = sums.iter().map(|sums| sums.acquisitions).sum();
        let mut found: Vec<Role> = roles
            .into_iter()
            .map(|(name, members)| {
                let wall: u64 = members.iter().map(|thread| sums[*thread].wall()).sum();
                let start = |thread: &usize| about.threads[*thread].start_ns + lead(*thread);
                let first = members.iter().map(start).min().unwrap_or(0);
                let last =
                    members.iter().map(|thread| start(thread) + sums[*thread].wall()).max().unwrap_or(0);
                let acquisitions: u64 = members.iter().map(|thread| sums[*thread].acquisitions).sum();
                let threads = (wall as f64 / last.saturating_sub(first).max(1) as f64).round() as usize;
                let forked = of_forks(name);
                let threads = if forked { threads.max(width(steps, about, name)) } else { threads };
                let threads = threads.clamp(1, members.len());
                let share = acquisitions as f64 / all.max(1) as f64;
                let forks = !forked && forks.iter().any(|(creator, _)| creator == name);
                Role { name: name.into(), members, threads, forked, forks, share }
            })
            .collect();
        found.sort_by(|first, second| second.share.total_cmp(&first.share));
        let (roles, small) = needed(found, steps, &edges, &forks);
        let mut load = Load {
            classes: about.classes.iter().map(|class| class.name.clone()).collect(),
            objects,
            roles,
            left_out: small.into_iter().filter(|role| role.share > 0.0).map(|role| role.name).collect(),
            streams,
            forked: vec![None; forked.len()],
            round: 0,
            throughput: 0.0,
            shares: Shares::default(),
            rate: 0.0,
            events: 0.0,
            bound: f64::INFINITY,
            dropped: 0.0,
            second_half: 1.0,
            relock_sleeps: about.mutex == super::locks::GLIBC,
        };
        for (number, role) in load.roles.iter().enumerate().filter(|(_, role)| role.forked) {
            role.members.iter().for_each(|thread| load.forked[*thread] = Some(number));
        }
        load.sum_up(&sums, about.cpus, lock_ns);
        load.find_rounds(trace, &sums, &created);
        let of_roles = load.roles.iter().flat_map(|role| &role.members);
        let halves = of_roles.map(|thread| halves(&steps[*thread], lead(*thread)));
        let [first, second] = halves.fold([0, 0], |sum, [first, second]| [sum[0] + first, sum[1] + second]);
        load.second_half = second as f64 / first.max(1) as f64;
        let lost = about.threads.iter().map(|thread| thread.dropped).sum::<u64>() + about.unknown;
        let kept: u64 = about.threads.iter().map(|thread| thread.events).sum();
        load.dropped = lost as f64 / (lost + kept).max(1) as f64;
        load
    }

    fn sum_up(&mut self, sums: &[Sums], cpus: usize, lock_ns: f64) {
        // With a processor for each thread, only other programs took processors away. They will not be there.
        let by_others = self.threads() <= cpus;
        let mut total = Sums::default();
        let length = self.forking_time(sums, by_others, lock_ns);
        for role in &self.roles {
            let mut of_role = Sums::default();
            role.members.iter().for_each(|thread| of_role.add(&sums[*thread]));
            // What the recorder showed of uncontended locks themselves was subtracted with its own cost.
            let mut wall = of_role.wall() as f64 + of_role.acquisitions as f64 * lock_ns;
            if by_others {
                wall -= of_role.preempted as f64;
            }
            self.throughput += match length {
                Some(length) if role.forked || role.forks => {
                    of_role.acquisitions as f64 / length.max(1.0) * 1e9
                }
                _ => role.threads as f64 * of_role.acquisitions as f64 / wall.max(1.0) * 1e9,
            };
            total.add(&of_role);
        }
        let lock = total.acquisitions as f64 * lock_ns;
        let computed = total.cpu as f64 + lock;
        let wall = (total.wall() as f64 + lock).max(1.0);
        let base = if by_others { (wall - total.preempted as f64).max(1.0) } else { wall };
        self.shares = Shares {
            cpu: computed / base,
            waiting: total.waiting as f64 / base,
            sleeping: total.sleeping as f64 / base,
            joining: total.joining as f64 / base,
            timed: total.timed as f64 / base,
            off: total.off as f64 / base,
            preempted: total.preempted as f64 / wall,
        };
        self.rate = total.acquisitions as f64 / (computed / 1e9).max(1e-9);
        let of_roles = self.roles.iter().flat_map(|role| &role.members);
        let events: usize = of_roles.map(|thread| self.streams[*thread].steps.len()).sum();
        self.events = events as f64 / total.acquisitions.max(1) as f64;
        let mut held = vec![0_u64; self.objects.len()];
        for thread in self.roles.iter().flat_map(|role| &role.members) {
            self.held_alone(&self.streams[*thread], &mut held);
        }
        let most = held.into_iter().max().unwrap_or(0);
        if most > 0 {
            self.bound = total.acquisitions as f64 / most as f64 * 1e9;
        }
    }

    /// How long the threads that fork and join lived, on average. `None`: there are none.
    fn forking_time(&self, sums: &[Sums], by_others: bool, lock_ns: f64) -> Option<f64> {
        let mut creators = Sums::default();
        let mut count = 0;
        for role in self.roles.iter().filter(|role| role.forks) {
            role.members.iter().for_each(|thread| creators.add(&sums[*thread]));
            count += role.members.len();
        }
        // While they wait for the end of the others, these use locks.
        let forked = self.roles.iter().filter(|role| role.forked);
        let of_forked = |role: &Role| {
            let acquisitions: u64 = role.members.iter().map(|thread| sums[*thread].acquisitions).sum();
            acquisitions as f64 / role.threads as f64
        };
        let acquisitions = creators.acquisitions as f64 + forked.map(of_forked).sum::<f64>();
        let preempted = if by_others { creators.preempted } else { 0 };
        (count > 0).then(|| ((creators.wall() - preempted) as f64 + acquisitions * lock_ns) / count as f64)
    }

    /// Has the threads at barriers jump together, and finds how long a round takes. `whole`: whether the trace has each thread's
    /// creation.
    fn find_rounds(&mut self, trace: &Trace, sums: &[Sums], whole: &[bool]) {
        let steady = self.roles.iter().filter(|role| !role.forked);
        let threads: Vec<usize> = steady.flat_map(|role| role.members.iter().copied()).collect();
        let meets = |step: &Step| {
            step.op == op::SLEEP && self.objects[step.object as usize].meaning == Meaning::Barrier
        };
        let first = |thread: usize| {
            let steps = &trace.steps[thread];
            let at = steps.iter().position(meets).unwrap_or(steps.len() - 1);
            let time = |step: &Step| step.cpu + step.off + step.wait;
            let left = trace.about.threads[thread].start_ns + steps[..=at].iter().map(time).sum::<u64>();
            (left - steps[at].wait, left)
        };
        stream::align(&mut self.streams, &threads, &first, whole);
        let round = |thread: &usize| {
            let stream = &self.streams[*thread];
            sums[*thread].wall().checked_div(stream.passes.len().max(stream.forks) as u64)
        };
        self.round = threads.iter().filter_map(round).max().unwrap_or(0);
    }

    /// Adds how long a thread held each shared lock alone.
    fn held_alone(&self, stream: &Stream, held: &mut [u64]) {
        let mut now = 0;
        let mut since: BTreeMap<u32, u64> = BTreeMap::new();
        for step in &stream.steps {
            now += step.cpu + step.off;
            match step.op {
                op::ACQUIRE | op::TRY if self.objects[step.object as usize].shared => {
                    since.insert(step.object, now);
                }
                op::RELEASE => {
                    if let Some(since) = since.remove(&step.object) {
                        held[step.object as usize] += now - since;
                    }
                }
                _ => {}
            }
        }
    }

    /// Threads that are replayed as they were recorded.
    pub fn threads(&self) -> usize {
        self.roles.iter().map(|role| role.threads).sum()
    }

    /// The smallest number of threads of a replay: one of each role, and all that fork and join others.
    pub fn least(&self) -> usize {
        self.roles.iter().map(|role| if role.forks { role.threads } else { 1 }).sum()
    }

    /// How many threads each role has, of `threads` in all: in the proportions of the recording, at least one each. What rounding
    /// down leaves goes to the roles that lost most by it. Roles that fork and join others stay as they are.
    pub fn divide(&self, threads: usize) -> Vec<usize> {
        let fixed: usize = self.roles.iter().filter(|role| role.forks).map(|role| role.threads).sum();
        let recorded = (self.threads() - fixed).max(1);
        let wanted = threads.saturating_sub(fixed);
        let exact = |role: &Role| match role.forks {
            true => role.threads as f64,
            false => (role.threads * wanted) as f64 / recorded as f64,
        };
        let mut counts: Vec<usize> = self.roles.iter().map(|role| (exact(role) as usize).max(1)).collect();
        let lacks = |counts: &[usize], at: usize| exact(&self.roles[at]) - counts[at] as f64;
        loop {
            let sum: usize = counts.iter().sum();
            let roles = (0..counts.len()).filter(|at| !self.roles[*at].forks);
            // Of roles that lack as much, the busiest comes first.
            let one = match sum.cmp(&threads) {
                Ordering::Equal => return counts,
                Ordering::Less => {
                    roles.rev().max_by(|a, b| lacks(&counts, *a).total_cmp(&lacks(&counts, *b)))
                }
                Ordering::Greater => roles
                    .filter(|at| counts[*at] > 1)
                    .min_by(|a, b| lacks(&counts, *a).total_cmp(&lacks(&counts, *b))),
            };
            match one {
                Some(one) if sum < threads => counts[one] += 1,
                Some(one) => counts[one] -= 1,
                // More roles than threads.
                None => return counts,
            }
        }
    }
}

/// Whether copies of the threads would use the same lock. A lock that only one of several threads of a role used is taken to belong
/// to that thread, and each copy gets one of its own. If the role has only one thread, nothing tells such locks from others, and
/// they count as shared.
fn is_shared(users: &BTreeSet<usize>, about: &About) -> bool {
    let of_role = |role: &str| about.threads.iter().filter(|thread| thread.role == role).count();
    match users.first() {
        Some(only) if users.len() == 1 => of_role(&about.threads[*only].role) == 1,
        _ => true,
    }
}

/// Which threads were created by threads of the trace: their recordings begin with their beginning.
fn created(trace: &Trace) -> Vec<bool> {
    let mut created = vec![false; trace.steps.len()];
    for step in trace.steps.iter().flatten().filter(|step| step.op == op::CREATE) {
        if let Some(created) = created.get_mut(step.object as usize) {
            *created = true;
        }
    }
    created
}

/// How many threads of a role live at most that were created and not joined yet, by each creator.
fn width(steps: &[Vec<Step>], about: &About, role: &str) -> usize {
    let is_of_role =
        |step: &&Step| about.threads.get(step.object as usize).is_some_and(|thread| thread.role == role);
    let of_creator = |steps: &Vec<Step>| {
        let joins = steps.iter().filter(|step| step.op == op::JOIN).filter(is_of_role);
        let joined: BTreeSet<u32> = joins.map(|step| step.object).collect();
        let (mut now, mut most) = (0_usize, 0);
        for step in steps.iter().filter(|step| joined.contains(&step.object)) {
            match step.op {
                op::CREATE => now += 1,
                op::JOIN => now = now.saturating_sub(1),
                _ => {}
            }
            most = most.max(now);
        }
        most
    };
    steps.iter().map(of_creator).sum()
}

/// The roles that are replayed, and the others, of those that were `found`, the busiest first. A role with few acquisitions is replayed all the same if another one, which is
/// replayed, waits for what it signals, meets it at a barrier, or is forked and joined by it; or if it is forked and joined itself.
fn needed(
    mut found: Vec<Role>,
    steps: &[Vec<Step>],
    edges: &Edges,
    forks: &BTreeSet<(String, String)>,
) -> (Vec<Role>, Vec<Role>) {
    let objects = |role: &Role, ops: &[u32]| -> BTreeSet<u32> {
        let all = role.members.iter().flat_map(|thread| &steps[*thread]);
        let of =
            |step: &&Step| ops.contains(&step.op) && edges.meaning[step.object as usize] != Meaning::Recorded;
        all.filter(of).map(|step| step.object).collect()
    };
    let mut kept: Vec<Role> = Vec::new();
    let mut wanted = BTreeSet::new();
    let meets = |role: &Role| {
        let mut barriers = objects(role, &[op::SLEEP]);
        barriers.retain(|object| edges.meaning[*object as usize] == Meaning::Barrier);
        barriers
    };
    let is_related = |role: &Role, kept: &[Role]| {
        let one_of = |name: &String| kept.iter().any(|kept| kept.name == *name);
        let is_creator = |(creator, created): &(String, String)| *creator == role.name && one_of(created);
        let is_created = |(creator, created): &(String, String)| *created == role.name && one_of(creator);
        forks.iter().any(|pair| is_creator(pair) || is_created(pair))
    };
    let mut share = 0.0;
    while let Some(next) = found.iter().position(|role| {
        role.share >= SMALL
            || role.share > 0.0 && share < MOST
            || is_related(role, &kept)
            || !objects(role, &[op::WAKE, op::WAKE_ALL]).is_disjoint(&wanted)
            || !meets(role).is_disjoint(&wanted)
    }) {
        let role = found.remove(next);
        wanted.extend(objects(&role, &[op::SLEEP]));
        share += role.share;
        kept.push(role);
    }
    (kept, found)
}

/// A thread's acquisitions in the first and in the second half of its time, which begins after so many nanoseconds.
fn halves(steps: &[Step], lead: u64) -> [u64; 2] {
    let time = |step: &Step| step.cpu + step.off + step.wait;
    let middle = (steps.iter().map(time).sum::<u64>() + lead) / 2;
    let (mut now, mut counts) = (0, [0, 0]);
    for step in steps {
        now += time(step);
        counts[usize::from(now > middle)] += u64::from(acquires(step));
    }
    counts
}

/// Where a thread's time went, as recorded; `stream` has no cost of the recorder.
fn sums(steps: &[Step], stream: &Stream, edges: &Edges, forked: &[bool], preempted: u64) -> Sums {
    let mut sums = Sums { preempted, ..Sums::default() };
    for (step, mark) in stream.steps.iter().zip(&stream.marks) {
        if mark.retries {
            // Polling is waiting.
            sums.waiting += step.cpu + step.off;
        } else {
            sums.cpu += step.cpu;
            sums.off += step.off;
        }
        if acquires(step) {
            sums.acquisitions += u64::from(!mark.again);
            *(if step.wait > WAITED { &mut sums.waiting } else { &mut sums.cpu }) += step.wait;
        } else if stream::takes_time(step) {
            sums.cpu += step.wait;
        }
    }
    for step in steps.iter().filter(|step| !acquires(step) && !stream::takes_time(step)) {
        if step.op == op::JOIN {
            let is_forked = forked.get(step.object as usize).copied().unwrap_or(false);
            *(if is_forked { &mut sums.sleeping } else { &mut sums.joining }) += step.wait;
        } else if step.op == op::SLEEP && edges.meaning[step.object as usize] != Meaning::Recorded {
            sums.sleeping += step.wait;
        } else {
            sums.timed += step.wait;
        }
    }
    // The mutex that a thread waited for after a wait for a condition.
    sums.waiting += stream.waited_again;
    sums
}
