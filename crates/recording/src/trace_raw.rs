//! Reads what the preload library wrote ([`crate::trace`]), and divides the threads' time.
//!
//! # The time between two events
//!
//! A thread's CPU time is known at its clock events: before an event that came after a long gap, and behind a long wait. Between
//! two of them, the thread was off its processor for the time that passed less the CPU time that it had. It lost that time in
//! the long gap before the second one, or in waits. (A gap is long from about 15 us on; a thread that leaves its processor is
//! away for longer, mostly.) So the gap gets what the waits do not explain, and no more than its own length. If the thread was
//! switched away involuntarily meanwhile, the time in the gap counts as *preempted*; otherwise the thread *slept*, in a
//! system call that the recorder does not see.
//!
//! # Which thread was joined
//!
//! An event of a join has the `pthread_t` of the thread that has ended, which a later thread may have, too. The module `ends` finds
//! the thread.

use crate::ends::{self, Ends};
use crate::reader::bytes::{get, u32_at, u64_at};
use crate::reader::places::Places;
use crate::reader::{Class, Kind, Module, Recording};
use crate::trace::{
    self, Chunk, FRAMES, GONE, Header, MAGIC, MODULES, MODULES_AT, MOST_UNITS, NO_OBJECT, OBJECT_BITS,
    OBJECTS, OBJECTS_AT, Object, REMADE, SHARED, THREADS, THREADS_AT, Thread, UNIT, UNITS_AT, clock,
    events_of, join, op, unpack,
};
use crate::trace_file::{Error, NO_THREAD, Step};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::fs::File;
use std::mem::offset_of;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What a process wrote.
pub struct Raw {
    /// The process.
    pub pid: u32,
    /// How long it was recorded, in nanoseconds. 0: it was killed.
    pub nanos: u64,
    /// The lock behind mutexes.
    pub mutex: String,
    /// The lock behind rwlocks.
    pub rwlock: String,
    /// See [`About::empty_hold_ns`](crate::trace_file::About::empty_hold_ns).
    pub empty_hold_ns: f64,
    /// See [`About::empty_gap_ns`](crate::trace_file::About::empty_gap_ns).
    pub empty_gap_ns: f64,
    /// See [`About::empty_release_ns`](crate::trace_file::About::empty_release_ns).
    pub empty_release_ns: f64,
    /// Calls that there was no room for.
    pub unknown: u64,
    /// Children that the process forked and that could not make a file. Nothing of them and of their children is recorded.
    pub lost: u64,
    /// The threads, in the order of their first calls.
    pub threads: Vec<RawThread>,
    /// Of each object, which of the classes of `named` it belongs to.
    pub objects: Vec<usize>,
    /// Of each object, how many threads a barrier takes; 0: it is none, or that is not known.
    pub parties: Vec<u32>,
    /// Classes, stacks and modules in the form of a profile's recording, for those who name them.
    pub named: Recording,
}

/// A thread.
pub struct RawThread {
    /// Its number.
    pub tid: u32,
    /// The stack of its first call: an index into the stacks of [`Raw::named`].
    pub stack: usize,
    /// When its first event began, since the start of the recording.
    pub start_ns: u64,
    /// When its last event ended, since the start of the recording. What the recorder took is in it, unlike in the steps.
    pub end_ns: u64,
    /// Its events. Threads that it created or joined are indices into [`Raw::threads`].
    pub steps: Vec<Step>,
    /// When each of them ended (began, if it is a release, a signal or a creation), in nanoseconds since the start of the recording.
    /// Steps do not have the time for which the thread was preempted, nor what the recorder took; these moments do.
    pub times: Vec<u64>,
    /// Events that there was no room for.
    pub dropped: u64,
    /// How long it could run and had no processor, between its events.
    pub preempted_ns: u64,
}

/// The bytes of a record.
fn record(file: &File, at: usize, length: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, at as u64).map_err(|_| Error::NotATrace)?;
    Ok(bytes)
}

/// The text at a place, up to the first zero.
fn text(record: &[u8], at: usize, length: usize) -> Vec<u8> {
    record[at..at + length].iter().copied().take_while(|byte| *byte != 0).collect()
}

fn frames(record: &[u8], depth: usize, at: usize) -> Vec<u64> {
    (0..depth.min(FRAMES)).map(|frame| u64_at(record, at + 8 * frame)).collect()
}

impl Raw {
    /// Reads a file. No length and no index of it is trusted.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub fn read(path: &Path) -> Result<Self, Error> {
        let file = File::open(path)?;
        let header = record(&file, 0, size_of::<Header>())?;
        if get!(&header, Header, magic, u64) != MAGIC {
            return Err(Error::NotATrace);
        }
        let nanos_per_tick = nanos_per_tick(&header);
        let ended = get!(&header, Header, ended, u64);
        let started = get!(&header, Header, started, u64);
        let mut named = Recording { stacks: vec![Vec::new()], ..Recording::default() };
        let lossy = |at, length| String::from_utf8_lossy(&text(&header, at, length)).into_owned();
        named.pid = get!(&header, Header, pid, u32);
        named.executable =
            PathBuf::from(OsString::from_vec(text(&header, offset_of!(Header, executable), 1024)));
        let places = Places::new(modules(&file, &header)?);
        named.modules = places.modules();
        let Objects { classes: objects, parties, which } = objects(&file, &header, &places, &mut named)?;
        let ticks = |at| f64::from(u32_at(&header, at)) * nanos_per_tick;
        let mut raw = Raw {
            pid: named.pid,
            nanos: ended.saturating_sub(started),
            mutex: lossy(offset_of!(Header, mutex), 48),
            rwlock: lossy(offset_of!(Header, rwlock), 48),
            empty_hold_ns: ticks(offset_of!(Header, empty_hold)),
            empty_gap_ns: ticks(offset_of!(Header, empty_gap)),
            empty_release_ns: ticks(offset_of!(Header, empty_release)),
            unknown: get!(&header, Header, unknown, u64),
            lost: get!(&header, Header, lost, u64),
            threads: Vec::new(),
            objects,
            parties,
            named,
        };
        let kinds = raw.objects.iter().map(|class| raw.named.classes[*class].kind).collect();
        let reader =
            Reader { file: &file, header: &header, places: &places, nanos_per_tick, which: &which, kinds };
        reader.threads(&mut raw)?;
        Ok(raw)
    }

    /// Events of all threads that are about a lock, or another object for which threads wait.
    pub fn events(&self) -> usize {
        let of_objects = |thread: &RawThread| thread.steps.iter().filter(|step| step.has_object()).count();
        self.threads.iter().map(of_objects).sum()
    }
}

/// From the two moments that the header has on both clocks. A process that was killed has only one. If it is the same on both, the
/// recorder read `CLOCK_MONOTONIC` (it reads one clock soon after the other). Otherwise the counter is taken for the one of this
/// machine, whose rate the present moment tells.
fn nanos_per_tick(header: &[u8]) -> f64 {
    let pair = |ticks, nanos| (u64_at(header, ticks), u64_at(header, nanos));
    let start = pair(offset_of!(Header, started_ticks), offset_of!(Header, started));
    let mut end = pair(offset_of!(Header, ended_ticks), offset_of!(Header, ended));
    if end.1 == 0 {
        const SOON: u64 = 1_000_000;
        if start.0.abs_diff(start.1) < SOON {
            return 1.0;
        }
        end = now();
    }
    let (ticks, nanos) = (end.0.saturating_sub(start.0), end.1.saturating_sub(start.1));
    if ticks == 0 || nanos == 0 { 1.0 } else { nanos as f64 / ticks as f64 }
}

/// The present moment on the counter and on `CLOCK_MONOTONIC`.
fn now() -> (u64, u64) {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: there is room for the answer. The call fails for no clock that every kernel has.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    let nanos = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction.
    return (unsafe { core::arch::x86_64::_rdtsc() }, nanos);
    #[cfg(not(target_arch = "x86_64"))]
    (nanos, nanos)
}

fn modules(file: &File, header: &[u8]) -> Result<Vec<(Module, u16)>, Error> {
    type Of = trace::Module;
    let count = (get!(header, Header, modules, u32) as usize).min(MODULES);
    let mut found = Vec::new();
    for index in 0..count {
        let record = record(file, MODULES_AT + index * size_of::<Of>(), size_of::<Of>())?;
        if get!(&record, Of, state, u32) == 1 {
            let at = offset_of!(Of, build_id);
            let length = (get!(&record, Of, build_id_length, u32) as usize).min(32);
            let module = Module {
                path: PathBuf::from(OsString::from_vec(text(&record, offset_of!(Of, path), 960))),
                build_id: record[at..at + length].to_vec(),
                start: get!(&record, Of, start, u64),
                end: get!(&record, Of, end, u64),
                bias: get!(&record, Of, bias, u64),
            };
            found.push((module, get!(&record, Of, replaced, u32) as u16));
        }
    }
    Ok(found)
}

/// The objects of the file.
struct Objects {
    /// The class of each.
    classes: Vec<usize>,
    /// See [`Raw::parties`].
    parties: Vec<u32>,
    /// Where each record of the file went.
    which: HashMap<u32, u32>,
}

fn objects(file: &File, header: &[u8], places: &Places, named: &mut Recording) -> Result<Objects, Error> {
    type Of = Object;
    let count = (get!(header, Header, objects, u32) as usize).min(OBJECTS);
    let mut found = Objects { classes: Vec::new(), parties: Vec::new(), which: HashMap::new() };
    let mut known: HashMap<(u32, u64, Vec<u64>), usize> = HashMap::new();
    for index in 0..count {
        let record = record(file, OBJECTS_AT + index * size_of::<Of>(), size_of::<Of>())?;
        let number = get!(&record, Of, kind, u32) & !(GONE | REMADE);
        let replaced = get!(&record, Of, replaced, u32) as u16;
        let Some(kind) = Kind::new(number) else { continue };
        if get!(&record, Of, state, u32) != 1 {
            continue;
        }
        let is_static = get!(&record, Of, is_static, u32) == 1;
        let address = if is_static { get!(&record, Of, address, u64) } else { 0 };
        let address = places.move_address(address, address, replaced);
        let depth = get!(&record, Of, depth, u32) as usize;
        let frames = places.move_frames(frames(&record, depth, offset_of!(Of, frames)), replaced);
        let key = (number, address, if is_static { Vec::new() } else { frames.clone() });
        let class = *known.entry(key).or_insert_with(|| {
            named.stacks.push(frames);
            named.classes.push(Class { birth: named.stacks.len() - 1, address, ..Class::new(kind) });
            named.classes.len() - 1
        });
        named.classes[class].instances += 1;
        found.which.insert(index as u32, found.classes.len() as u32);
        found.classes.push(class);
        let parties = get!(&record, Of, parties, u32);
        found.parties.push(if kind == Kind::Barrier { parties } else { 0 });
    }
    Ok(found)
}

/// Reads the threads' events.
struct Reader<'a> {
    file: &'a File,
    header: &'a [u8],
    places: &'a Places,
    nanos_per_tick: f64,
    /// From the index in the file to that in [`Raw::objects`].
    which: &'a HashMap<u32, u32>,
    /// For each of [`Raw::objects`].
    kinds: Vec<Kind>,
}

impl Reader<'_> {
    fn threads(&self, raw: &mut Raw) -> Result<(), Error> {
        type Of = Thread;
        let count = (get!(self.header, Header, threads, u32) as usize).min(THREADS);
        let started = get!(self.header, Header, started_ticks, u64);
        let mut ends = Ends::default();
        // Of each barrier, how many times it has chosen a thread, and how many times a thread has passed it.
        let mut rounds = vec![(0_u64, 0_u64); raw.objects.len()];
        for index in 0..count {
            let record = record(self.file, THREADS_AT + index * size_of::<Of>(), size_of::<Of>())?;
            if get!(&record, Of, state, u32) != 1 {
                continue;
            }
            let depth = get!(&record, Of, depth, u32) as usize;
            let frames = frames(&record, depth, offset_of!(Of, frames));
            let replaced = get!(&record, Of, replaced, u32) as u16;
            raw.named.stacks.push(self.places.move_frames(frames, replaced));
            let start = get!(&record, Of, started, u64).saturating_sub(started);
            let mut divider = Divider::new(self);
            self.events(get!(&record, Of, first, u32), index as u32, &mut divider)?;
            for (object, chosen) in &divider.passed_barriers {
                let (rounds, passes) = &mut rounds[*object as usize];
                (*rounds, *passes) = (*rounds + u64::from(*chosen), *passes + 1);
            }
            let nanos = |ticks| self.nanos(start + ticks);
            ends.threads.push(ends::Thread {
                record: index as u32,
                handle: get!(&record, Of, handle, u64),
                start_ns: nanos(0),
                creates: divider
                    .creates
                    .iter()
                    .map(|(step, ticks, index)| (*step, nanos(*ticks), *index))
                    .collect(),
                joins: divider
                    .joins
                    .iter()
                    .map(|(step, ticks, handle)| (*step, nanos(*ticks), *handle))
                    .collect(),
            });
            raw.threads.push(RawThread {
                tid: get!(&record, Of, tid, u32),
                stack: raw.named.stacks.len() - 1,
                start_ns: self.nanos(start),
                end_ns: self.nanos(start + divider.now),
                steps: divider.steps,
                times: divider.times.into_iter().map(|ticks| self.nanos(start + ticks)).collect(),
                dropped: get!(&record, Of, dropped, u64),
                preempted_ns: divider.preempted,
            });
        }
        ends.resolve(&mut raw.threads);
        for (parties, (rounds, passes)) in raw.parties.iter_mut().zip(rounds) {
            if *parties == SHARED {
                *parties = 0;
            } else if *parties == 0 && rounds > 0 {
                *parties = u32::try_from((passes + rounds / 2) / rounds).unwrap_or(0);
            }
        }
        Ok(())
    }

    /// The events of a thread, from its first chunk on.
    fn events(&self, first: u32, thread: u32, divider: &mut Divider) -> Result<(), Error> {
        let capacity = get!(self.header, Header, unit_capacity, u32);
        let mut chunk = first;
        // A damaged file may lead in a circle.
        let mut read = HashSet::new();
        while let Some(index) = chunk.checked_sub(1).filter(|index| *index < capacity && read.insert(*index))
        {
            let at = UNITS_AT + index as usize * UNIT;
            let head = record(self.file, at, size_of::<Chunk>())?;
            let units = get!(&head, Chunk, units, u32);
            if get!(&head, Chunk, thread, u32) != thread + 1 || !(1..=MOST_UNITS).contains(&units) {
                return Ok(());
            }
            let used = (get!(&head, Chunk, used, u32) as usize).min(events_of(units));
            let events = record(self.file, at + size_of::<Chunk>(), used * size_of::<trace::Event>())?;
            for at in (0..events.len()).step_by(size_of::<trace::Event>()) {
                let (first, second) = (u64_at(&events, at), u64_at(&events, at + 8));
                divider.event(trace::Event {
                    what: first as u32,
                    gap: (first >> 32) as u32,
                    wait: second as u32,
                    more: (second >> 32) as u32,
                });
            }
            chunk = get!(&head, Chunk, next, u32);
        }
        Ok(())
    }

    fn nanos(&self, ticks: u64) -> u64 {
        (ticks as f64 * self.nanos_per_tick).round() as u64
    }
}

/// Divides a thread's time, and leaves out what is no operation of a lock: see the [module documentation](self).
struct Divider<'a> {
    reader: &'a Reader<'a>,
    /// From how many ticks on a gap is long.
    long: u64,
    steps: Vec<Step>,
    /// For each step, when it ended, or began: ticks since the thread's start.
    times: Vec<u64>,
    /// Ticks since the thread's start.
    now: u64,
    /// Ticks of what the recorder did for itself that lie in the next gap.
    readings: u64,
    preempted: u64,
    /// At the last clock event: CPU time, voluntary and involuntary switches.
    clock: Option<(u64, u8, u8)>,
    /// Since then: nanoseconds, and those of them in waits.
    passed: u64,
    waited: u64,
    /// Of the next event: CPU time and sleep before it.
    cpu: u64,
    off: u64,
    /// Locks that the thread holds, and how many times.
    held: BTreeMap<u32, u32>,
    /// Creations: the step, when the call began, and the record of the new thread.
    creates: Vec<(usize, u64, u32)>,
    /// Joins: the step, when the call began, and the `pthread_t`.
    joins: Vec<(usize, u64, u64)>,
    /// The barriers that the thread has passed, and whether it was chosen.
    passed_barriers: Vec<(u32, bool)>,
}

impl<'a> Divider<'a> {
    fn new(reader: &'a Reader<'a>) -> Self {
        Divider {
            reader,
            long: get!(reader.header, Header, long, u64),
            steps: Vec::new(),
            times: Vec::new(),
            now: 0,
            readings: 0,
            preempted: 0,
            clock: None,
            passed: 0,
            waited: 0,
            cpu: 0,
            off: 0,
            held: BTreeMap::new(),
            creates: Vec::new(),
            joins: Vec::new(),
            passed_barriers: Vec::new(),
        }
    }

    fn event(&mut self, event: trace::Event) {
        let (op, object) = (event.what >> OBJECT_BITS, event.what & NO_OBJECT);
        let ticks = unpack(event.gap);
        let gap = self.reader.nanos(ticks);
        self.now += ticks;
        if op == op::COST {
            self.readings += unpack(event.wait);
            return;
        }
        // What a release or a signal causes may begin before the call is over.
        let (begun, mut moment) = (self.now, self.now);
        if op != op::CLOCK {
            self.now += unpack(event.wait);
        }
        if !matches!(op, op::RELEASE | op::WAKE | op::WAKE_ALL | op::CREATE) {
            moment = self.now;
        }
        self.passed += gap;
        if ticks > 0 {
            let readings = std::mem::take(&mut self.readings).min(ticks);
            self.cpu += self.reader.nanos(ticks - readings);
        }
        if op == op::CLOCK {
            self.readings += u64::from(get!(self.reader.header, Header, clock_cost, u32));
            return self.at_clock(clock::unpack(event.wait, event.more), ticks, gap);
        }
        let wait = self.reader.nanos(unpack(event.wait));
        self.passed += wait;
        self.waited += wait;
        let object = match (op, self.reader.which.get(&object)) {
            (op::EXIT, _) => 0,
            (op::CREATE, _) => {
                self.creates.push((self.steps.len(), begun, object));
                NO_THREAD
            }
            (op::JOIN, _) => {
                self.joins.push((self.steps.len(), begun, join::unpack(object, event.more)));
                NO_THREAD
            }
            (op::ACQUIRE..=op::WAKE_ALL | op::TRY, Some(object)) => *object,
            // Of an object without a record, or from a damaged file.
            _ => return,
        };
        let kind = self.reader.kinds.get(object as usize);
        if op == op::SLEEP && kind == Some(&Kind::Barrier) {
            self.passed_barriers.push((object, event.more == 1));
        }
        if op == op::FAILED && wait == 0 && kind == Some(&Kind::Condvar) {
            // The wait that has just been written down ended at its deadline.
            let is_it = |step: &&mut Step| step.op == op::SLEEP && step.object == object;
            if let Some(slept) = self.steps.iter_mut().rev().take(4).find(is_it) {
                slept.op = op::FAILED;
            }
            return;
        }
        if matches!(op, op::ACQUIRE | op::TRY) && event.more == 0 && self.held.remove(&object).is_some() {
            // Another thread has released the lock, or another object lies there now: the thread holds it no longer.
            let (cpu, off) = (std::mem::take(&mut self.cpu), std::mem::take(&mut self.off));
            self.steps.push(Step { op: op::RELEASE, object, cpu, off, wait: 0 });
            self.times.push(begun);
        }
        if self.is_inner(op, object) {
            // The time belongs to what the thread does outside.
            self.cpu += wait;
            return;
        }
        let (cpu, off) = (std::mem::take(&mut self.cpu), std::mem::take(&mut self.off));
        self.steps.push(Step { op, object, cpu, off, wait });
        self.times.push(moment);
    }

    /// Whether the thread holds the lock before and after the event, or neither before nor after it. Such acquisitions and
    /// releases decide nothing: those of recursive mutexes, and a release of what the thread acquired before it was recorded.
    fn is_inner(&mut self, op: u32, object: u32) -> bool {
        match op {
            op::ACQUIRE | op::READ | op::TRY => {
                let depth = self.held.entry(object).or_default();
                *depth += 1;
                *depth > 1
            }
            op::RELEASE => match self.held.get_mut(&object) {
                None => true,
                Some(depth) => {
                    *depth -= 1;
                    let inner = *depth > 0;
                    if !inner {
                        self.held.remove(&object);
                    }
                    inner
                }
            },
            _ => false,
        }
    }

    /// The thread's clock was read after a gap, which the caller has counted as CPU time.
    fn at_clock(&mut self, now: (u64, u8, u8), ticks: u64, gap: u64) {
        if let Some((cpu, _, involuntary)) = self.clock
            && ticks >= self.long
        {
            let had = now.0.saturating_sub(cpu);
            let lost = self.passed.saturating_sub(had).saturating_sub(self.waited).min(gap);
            self.cpu = self.cpu.saturating_sub(lost);
            if now.2 == involuntary {
                self.off += lost;
            } else {
                self.preempted += lost;
            }
        }
        self.clock = Some(now);
        (self.passed, self.waited) = (0, 0);
    }
}

#[cfg(test)]
mod tests;
