//! From the recordings of all processes to one [`Profile`]: names in place of addresses, and locks of one variable or one site joined.

use super::distinct::{Identity, distinguish};
use super::files;
use super::model::{
    self, Bucket, Class, Condition, Dropped, Interner, Lengths, OfProcess, Origin, Place as Spot, Process,
    Profile, StackId, Thread, Wait, place,
};
use super::symbols::{Frame, Module, Symbols, module_of, wrappers};
use super::units::count;
use latchwork_recording::histogram;
use latchwork_recording::reader::{self, Counters, Kind, Recording};
use std::collections::HashMap;
use sums::Sums;

mod kept;
mod sums;

/// Joins the recordings, which are those of one run.
pub fn join(recordings: &[Recording]) -> Profile {
    join_again(recordings, &mut Symbols::default())
}

/// The same with the files of modules that were opened before.
pub fn join_again(recordings: &[Recording], symbols: &mut Symbols) -> Profile {
    let mut joiner = Joiner { symbols: std::mem::take(symbols), ..Joiner::default() };
    let start = recordings.iter().map(|recording| recording.started).min().unwrap_or(0);
    let end = recordings.iter().map(|recording| recording.ended).max().unwrap_or(0);
    let mut in_order: Vec<&Recording> = recordings.iter().collect();
    in_order.sort_by_key(|recording| (recording.started, recording.pid));
    for recording in &in_order {
        joiner.add(recording, start);
    }
    joiner.profile.notes.extend(ended_at_once(&in_order));
    let lost = files::lost(recordings);
    if lost > 0 {
        joiner.profile.missing.push(format!("Not in this report: {}.", files::lost_text(lost)));
    }
    let (mut profile, opened) = joiner.finish();
    *symbols = opened;
    profile.attached = in_order.iter().any(|recording| recording.late);
    profile.seconds = end.saturating_sub(start) as f64 / 1e9;
    if let Some(first) = in_order.first() {
        profile.command = first.arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        if profile.command.is_empty() {
            profile.command.push(first.executable.to_string_lossy().into_owned());
        }
    }
    profile
}

/// A note about the processes that did not run their exit handlers, by program. One that has executed another program goes on in a
/// later recording.
fn ended_at_once(in_order: &[&Recording]) -> Option<String> {
    let goes_on = |index: usize| in_order[index + 1..].iter().any(|later| later.pid == in_order[index].pid);
    let mut programs: Vec<(String, Vec<u32>)> = Vec::new();
    for (index, recording) in in_order.iter().enumerate() {
        if recording.complete || goes_on(index) {
            continue;
        }
        let program = program(recording);
        match programs.iter_mut().find(|(name, _)| *name == program) {
            Some((_, processes)) => processes.push(recording.pid),
            None => programs.push((program, vec![recording.pid])),
        }
    }
    let names = programs.iter().map(|(name, processes)| match processes[..] {
        [process] => format!("{name} (process {process})"),
        _ => format!("{name} ({} processes)", processes.len()),
    });
    (!programs.is_empty()).then(|| {
        format!(
            "Ended by a signal or by _exit, or still running, so what the last calls counted may be missing: {}.",
            names.collect::<Vec<_>>().join(", ")
        )
    })
}

/// The name of the process's program.
fn program(recording: &Recording) -> String {
    recording
        .executable
        .file_name()
        .unwrap_or(recording.executable.as_os_str())
        .to_string_lossy()
        .into_owned()
}

/// What the profile calls things.
pub struct Names {
    /// Each class of the recording.
    pub classes: Vec<String>,
    /// The frames of each stack of the recording, the innermost first.
    pub stacks: Vec<Vec<Frame>>,
}

/// Names the classes and the stacks of a recording.
pub fn names(recording: &Recording) -> Names {
    let mut joiner = Joiner::default();
    let modules: Vec<Module> = recording.modules.iter().map(|found| module(found, recording)).collect();
    let stacks: Vec<StackId> = recording.stacks.iter().map(|stack| joiner.stack(&modules, stack)).collect();
    let name = |class: &reader::Class| {
        let kind = match class.kind {
            Kind::Mutex => "mutex",
            Kind::RwLock => "rwlock",
            Kind::Spin => "spin",
            Kind::Condvar => "condition",
            Kind::Semaphore => "semaphore",
            Kind::Barrier => "barrier",
        };
        let (name, _, identity) = joiner.name(kind, &modules, &stacks, class);
        (name, identity)
    };
    let (mut classes, identities): (Vec<_>, Vec<_>) = recording.classes.iter().map(name).unzip();
    distinguish(classes.iter_mut(), &identities);
    let frames = |stack: &StackId| {
        joiner.interner.stacks[*stack].iter().map(|frame| joiner.interner.frames[*frame].clone()).collect()
    };
    Names { classes, stacks: stacks.iter().map(frames).collect() }
}

/// The profile while recordings are added to it.
#[derive(Default)]
struct Joiner {
    profile: Profile,
    symbols: Symbols,
    interner: Interner,
    /// Numbers in [`Profile::locks`].
    locks: HashMap<(model::Kind, String, Identity), usize>,
    /// Numbers in [`Profile::condvars`].
    conditions: HashMap<(bool, String, Identity), usize>,
    /// What each of them is, in the same order.
    lock_identities: Vec<Identity>,
    condition_identities: Vec<Identity>,
    /// What is summed up by stack, for each lock and each condition.
    lock_sums: Vec<Sums>,
    condition_sums: Vec<Sums>,
    dropped: HashMap<&'static str, u64>,
    unaccounted: u64,
    /// What the process that is being added has of each lock.
    of_process: HashMap<usize, OfProcess>,
}

/// Where a class of a recording went.
#[derive(Copy, Clone)]
enum Place {
    Lock(usize),
    Condition(usize),
}

impl Joiner {
    fn add(&mut self, recording: &Recording, start: u64) {
        let modules: Vec<Module> = recording.modules.iter().map(|found| module(found, recording)).collect();
        let stacks: Vec<StackId> = recording.stacks.iter().map(|stack| self.stack(&modules, stack)).collect();
        let places: Vec<Place> =
            recording.classes.iter().map(|class| self.class(recording, &modules, &stacks, class)).collect();
        for (lock, of_process) in self.of_process.drain() {
            let busiest = &mut self.profile.locks[lock].busiest;
            let by_waiting = |of: &OfProcess| (of.wait_ns, of.instances);
            if by_waiting(&of_process) > by_waiting(busiest) {
                *busiest = of_process;
            }
        }
        for pair in &recording.pairs {
            let sums = match places[pair.class] {
                Place::Lock(lock) => &mut self.lock_sums[lock],
                Place::Condition(condition) => &mut self.condition_sums[condition],
            };
            sums.add(pair, &stacks);
        }
        for pair in recording.relocks.iter().filter(|pair| pair.cause != reader::Cause::Whole) {
            if let Place::Lock(lock) = places[pair.class] {
                self.lock_sums[lock].reacquire(pair, &stacks);
            }
        }
        for hold in recording.holds.iter().filter(|hold| hold.holder != 0) {
            if let Place::Lock(lock) = places[hold.class] {
                let holder = self.lock_sums[lock].holder(stacks[hold.holder]);
                holder.holds += hold.count;
                holder.hold_ns += hold.nanos;
            }
        }
        let process = self.profile.processes.len();
        let program = program(recording);
        let first_thread = self.profile.threads.len();
        for thread in &recording.threads {
            self.profile.threads.push(self::thread(process, recording, thread));
        }
        self.unfinished(recording, &places, &stacks);
        for event in &recording.events {
            if let Place::Lock(lock) = places[event.class] {
                self.profile.waits.push(Wait {
                    thread: first_thread + event.thread,
                    lock,
                    start_ns: event.start.saturating_sub(start),
                    length_ns: event.nanos,
                    stands_for_ns: event.stands_for.max(event.nanos),
                    cause: sums::cause(event.cause, &stacks),
                    stack: stacks[event.waiter],
                });
            }
        }
        let lived = recording.ended.saturating_sub(recording.started);
        self.profile.processes.push(Process { pid: recording.pid, program, seconds: lived as f64 / 1e9 });
        for (what, lost) in &recording.dropped {
            *self.dropped.entry(what).or_default() += lost;
        }
        self.unaccounted += recording.unaccounted;
        let overhead = &mut self.profile.overhead;
        overhead.memory_bytes += recording.bytes;
        overhead.stacks += recording.unwound;
        overhead.unwinding_ns += recording.unwinding_nanos;
        let calls = |counters: &Counters| counters.acquisitions + counters.failed;
        overhead.calls += recording.classes.iter().map(|class| calls(&class.counters)).sum::<u64>();
    }

    /// Threads that waited when the recording ended: in a deadlock, for a holder that ran, or as workers without work.
    fn unfinished(&mut self, recording: &Recording, places: &[Place], stacks: &[StackId]) {
        for thread in &recording.threads {
            let Some((wait, wait_ns)) = unfinished(recording, thread) else { continue };
            let waiting = match places[wait.class] {
                Place::Lock(lock) => &mut self.profile.locks[lock].waiting,
                Place::Condition(condition) => &mut self.profile.condvars[condition].waiting,
            };
            waiting.add(wait_ns, stacks[wait.stack]);
        }
        kept::count(recording, &mut self.profile.kept);
    }

    fn stack(&mut self, modules: &[Module], addresses: &[u64]) -> StackId {
        let mut frames = Vec::new();
        for address in addresses {
            frames.extend(self.symbols.frames(modules, *address));
        }
        if frames.is_empty() {
            frames.push(Frame { function: "[unknown]".into(), ..Frame::default() });
        }
        self.interner.stack(frames)
    }

    /// What names a stack that the profile does not have yet.
    fn place(&self, stack: StackId) -> String {
        self.naming(stack).map_or_else(|| "[unknown]".into(), place)
    }

    fn naming(&self, stack: StackId) -> Option<&Frame> {
        let Interner { stacks, frames, .. } = &self.interner;
        stacks[stack].get(wrappers::naming(&stacks[stack], frames)).map(|frame| &frames[*frame])
    }

    fn class(
        &mut self,
        recording: &Recording,
        modules: &[Module],
        stacks: &[StackId],
        class: &reader::Class,
    ) -> Place {
        let kind = match class.kind {
            Kind::Mutex => model::Kind::Mutex,
            Kind::RwLock => model::Kind::RwLock,
            Kind::Spin => model::Kind::Spin,
            // No profile has barriers.
            Kind::Condvar | Kind::Barrier => return self.condition(modules, stacks, class, false),
            Kind::Semaphore => return self.condition(modules, stacks, class, true),
        };
        let (name, origin, identity) = self.name(kind.text(), modules, stacks, class);
        let locks = &mut self.profile.locks;
        let number = *self.locks.entry((kind, name, identity)).or_insert_with_key(|(_, name, identity)| {
            let key = identity.key(name);
            locks.push(Class { name: name.clone(), key, origin, kind, ..Class::default() });
            self.lock_identities.push(identity.clone());
            self.lock_sums.push(Sums::default());
            locks.len() - 1
        });
        // No lock can be chosen for a lock that brings its own.
        let from_where = (!class.own)
            .then(|| self::origin(&mut self.symbols, &self.interner, recording, modules, stacks, class));
        let (into, from) = (&mut locks[number], &class.counters);
        into.origins.extend(from_where.flatten());
        into.instances += class.instances;
        let objects = || class.objects.iter().map(|object| object.wait_nanos).filter(|ns| *ns > 0);
        into.instance_wait_ns.extend(objects());
        // Several classes of a process may have one name.
        let of_process = self.of_process.entry(number).or_default();
        of_process.instances += class.instances;
        let (reads, nested) = if kind == model::Kind::RwLock { (from.reads, 0) } else { (0, from.reads) };
        of_process.holds += from.acquisitions.saturating_sub(nested);
        of_process.wait_ns += from.wait_nanos;
        of_process.longest_instance_ns = of_process.longest_instance_ns.max(objects().max().unwrap_or(0));
        into.acquisitions += from.acquisitions;
        into.reads += reads;
        into.nested += nested;
        into.contended += from.contended;
        into.failed_tries += from.failed;
        into.timeouts += from.timeouts;
        into.waits.add(&lengths(from.contended, from.wait_nanos, from.wait_max, &class.waits));
        into.holds.add(&lengths(from.hold_samples, from.hold_nanos, from.hold_max, &class.holds));
        into.reacquires += from.relocks;
        into.reacquire_ns += from.relock_nanos;
        into.waiters_max = into.waiters_max.max(from.most_waiting);
        into.readers_max = into.readers_max.max(from.most_readers);
        into.read_holds += from.read_samples;
        into.read_hold_ns += from.read_nanos;
        into.timed_ns += from.timed_nanos;
        into.spun_ns += from.spun_nanos;
        into.successions.compared += from.successions;
        into.successions.by_thread += from.owner_changes;
        into.successions.by_cpu += from.cpu_changes;
        into.successions.by_node += from.node_changes;
        let under = match kind {
            _ if class.own => model::OWN,
            model::Kind::RwLock => &recording.rwlock,
            _ => &recording.mutex,
        };
        if !into.served_by.iter().any(|lock| lock == under) {
            into.served_by.push(under.into());
        }
        Place::Lock(number)
    }

    fn condition(
        &mut self,
        modules: &[Module],
        stacks: &[StackId],
        class: &reader::Class,
        is_semaphore: bool,
    ) -> Place {
        let text = if is_semaphore { "semaphore" } else { "condition" };
        let (name, origin, identity) = self.name(text, modules, stacks, class);
        let condvars = &mut self.profile.condvars;
        let key = (is_semaphore, name, identity);
        let number = *self.conditions.entry(key).or_insert_with_key(|(_, name, identity)| {
            self.condition_identities.push(identity.clone());
            condvars.push(Condition { name: name.clone(), origin, is_semaphore, ..Condition::default() });
            self.condition_sums.push(Sums::default());
            condvars.len() - 1
        });
        let (into, from) = (&mut condvars[number], &class.counters);
        into.instances += class.instances;
        into.waits += from.contended;
        into.wait_ns += from.wait_nanos;
        into.timeouts += from.timeouts;
        into.notifications += from.reads;
        into.returned += if is_semaphore { from.relocks } else { 0 };
        Place::Condition(number)
    }

    /// The name of a class, how it was found, and what tells the class from others of that name.
    fn name(
        &mut self,
        kind: &str,
        modules: &[Module],
        stacks: &[StackId],
        class: &reader::Class,
    ) -> (String, String, Identity) {
        let is_named = !class.name.is_empty();
        let named = |name: String| if is_named { class.name.clone() } else { name };
        if class.address != 0
            && let Some(variable) = self.symbols.variable(modules, class.address)
        {
            let origin = format!("static in {}", variable.module);
            let (module, start) = (variable.path, Some(variable.start));
            let of_variable = Identity { module, start, file: variable.file };
            return (named(variable.name), origin, if is_named { Identity::default() } else { of_variable });
        }
        let site = stacks[class.birth];
        let module = self.naming(site).map(|frame| frame.module.clone()).filter(|module| !module.is_empty());
        // A file and a line are the same place in each module.
        let is_place = self.naming(site).is_some_and(|frame| !frame.file.is_empty());
        let mut identity = Identity::default();
        if !is_named && !is_place {
            identity.module = module.clone().unwrap_or_default().into();
        }
        let place = self.place(site);
        let origin = module.map_or_else(String::new, |module| format!(" in {module}"));
        (named(format!("{kind} of {place}")), format!("first used at {place}{origin}"), identity)
    }

    fn finish(mut self) -> (Profile, Symbols) {
        let mut profile = self.profile;
        distinguish(profile.locks.iter_mut().map(|class| &mut class.name), &self.lock_identities);
        distinguish(
            profile.condvars.iter_mut().map(|condition| &mut condition.name),
            &self.condition_identities,
        );
        for (class, sums) in profile.locks.iter_mut().zip(self.lock_sums) {
            sums.finish(class);
            class.origins.sort_unstable();
            class.origins.dedup();
            class.instance_wait_ns.sort_unstable_by(|first, second| second.cmp(first));
        }
        for (condition, sums) in profile.condvars.iter_mut().zip(self.condition_sums) {
            condition.waiters = sums::waiters(sums.waiters);
        }
        // The waits name locks by number, so that sorting must say where each went.
        // A lock that got its name before its first use has left nothing in the class that it had without the name.
        let is_there = |class: &Class| {
            class.instances > 0
                || class.acquisitions > 0
                || class.waits.count > 0
                || class.waiting.threads > 0
        };
        let mut order: Vec<usize> =
            (0..profile.locks.len()).filter(|lock| is_there(&profile.locks[*lock])).collect();
        order.sort_by_key(|lock| {
            let class = &profile.locks[*lock];
            (std::cmp::Reverse((class.lost_ns(), class.acquisitions)), class.name.clone())
        });
        let mut moved = vec![0; profile.locks.len()];
        order.iter().enumerate().for_each(|(new, old)| moved[*old] = new);
        let mut locks: Vec<_> = profile.locks.into_iter().map(Some).collect();
        profile.locks = order.iter().map(|old| locks[*old].take().expect("each once")).collect();
        profile.waits.iter_mut().for_each(|wait| wait.lock = moved[wait.lock]);
        profile.waits.sort_by_key(|wait| wait.start_ns);
        profile.condvars.sort_by(|first, second| {
            second.idle_ns().cmp(&first.idle_ns()).then_with(|| first.name.cmp(&second.name))
        });
        profile.dropped =
            self.dropped.into_iter().map(|(what, count)| Dropped { what: what.into(), count }).collect();
        profile.dropped.sort_by(|first, second| first.what.cmp(&second.what));
        if self.unaccounted > 0 {
            let times = match self.unaccounted {
                1 => "Once".into(),
                many => format!("{} times", count(many)),
            };
            profile.notes.push(format!(
                "{times} a thread could not note in time which holder caused a wait: such waiting is shown as handover, or as not known."
            ));
        }
        self.symbols.changed.sort();
        self.symbols.changed.dedup();
        for path in &self.symbols.changed {
            profile.notes.push(format!(
                "{} has changed since the program ran: its functions have no names here.",
                path.display()
            ));
        }
        profile.frames = self.interner.frames;
        profile.stacks = self.interner.stacks;
        (profile, self.symbols)
    }
}

/// Where the locks of a class come from. `None`: a module of it is not known.
fn origin(
    symbols: &mut Symbols,
    interner: &Interner,
    recording: &Recording,
    modules: &[Module],
    stacks: &[StackId],
    class: &reader::Class,
) -> Option<Origin> {
    let place = |address: u64| {
        let module = module_of(modules, address)?;
        let address = address.wrapping_sub(module.bias);
        Some(Spot { module: module.path.clone(), build_id: module.build_id.clone(), address })
    };
    if class.address != 0 {
        return place(class.address).map(Origin::Static);
    }
    let naming = wrappers::naming(&interner.stacks[stacks[class.birth]], &interner.frames);
    let (mut calls, mut seen) = (Vec::new(), 0);
    for address in &recording.stacks[class.birth] {
        // A return address lies behind its call.
        calls.push(place(address - 1)?);
        seen += symbols.frames(modules, *address).len();
        if seen > naming {
            break;
        }
    }
    (!calls.is_empty()).then_some(Origin::Calls(calls))
}

fn module(module: &reader::Module, recording: &Recording) -> Module {
    // The dynamic linker has no name for the program itself.
    let path = if module.path.as_os_str().is_empty() { &recording.executable } else { &module.path };
    Module { path: path.clone(), ..module.clone() }
}

/// The wait in which the thread was when the recording ended, and how long it had lasted.
fn unfinished<'a>(recording: &Recording, thread: &'a reader::Thread) -> Option<(&'a reader::Waiting, u64)> {
    let wait = thread.waiting.as_ref()?;
    Some((wait, recording.ended.saturating_sub(wait.since.max(recording.started))))
}

fn thread(process: usize, recording: &Recording, thread: &reader::Thread) -> Thread {
    let (mut wait_ns, mut idle_ns) = (thread.wait_nanos, thread.sleep_nanos);
    if let Some((wait, nanos)) = unfinished(recording, thread) {
        let sum = match recording.classes[wait.class].kind {
            Kind::Mutex | Kind::RwLock | Kind::Spin => &mut wait_ns,
            Kind::Condvar | Kind::Semaphore | Kind::Barrier => &mut idle_ns,
        };
        *sum = sum.saturating_add(nanos);
    }
    let lived = thread.ended.saturating_sub(thread.started);
    Thread {
        process,
        tid: thread.tid,
        name: thread.name.clone(),
        lives: thread.lives,
        lifetime_ns: lived.max(wait_ns.saturating_add(idle_ns)),
        wait_ns,
        waits: thread.waits,
        idle_ns,
    }
}

fn lengths(count: u64, sum_ns: u64, max_ns: u64, counts: &[u64]) -> Lengths {
    let bucket = |(number, count): (usize, &u64)| {
        let (start, end) = histogram::bounds(number);
        Bucket { start, end, count: *count }
    };
    let buckets = counts.iter().enumerate().filter(|(_, count)| **count > 0).map(bucket).collect();
    Lengths { count, sum_ns, max_ns, buckets }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holders of one wait may miss several times to note their parts.
    #[test]
    fn what_could_not_be_noted_is_no_number_of_waits() {
        let recording = Recording { unaccounted: 192, ..Recording::default() };
        let notes = join(&[recording]).notes;
        assert!(notes.iter().any(|note| note.starts_with("192 times a thread could not note")), "{notes:?}");
    }
}
