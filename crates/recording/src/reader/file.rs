//! The file with its sections.

use super::bytes::{get, index, lossy, u32_at, u64_at};
use super::model::*;
use super::places::Places;
use super::sums::{Classes, Sum, Sums, Threads, add_pending};
use super::{Error, estimates, holders};
use crate::histogram::BUCKETS;
use crate::layout::{self, FRAMES, READY, SECTIONS};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::mem::offset_of;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;

/// The longest file that is read. Longer ones are no recordings.
const LONGEST: u64 = 1 << 36;

/// A file with its sections.
pub(super) struct Reader {
    header: Vec<u8>,
    /// The records of each section one after the other.
    sections: Vec<Vec<u8>>,
    dropped: Vec<(&'static str, u64)>,
    bytes: u64,
}

/// The name and the size of a record of each section.
pub(super) const RECORDS: [(&str, usize); SECTIONS] = [
    ("threads", size_of::<layout::Thread>()),
    ("tables", size_of::<layout::Table>()),
    ("locks", size_of::<layout::Object>()),
    ("classes", size_of::<layout::Class>()),
    ("pairs", size_of::<layout::Pair>()),
    ("stacks", size_of::<layout::Stack>()),
    ("histograms", size_of::<layout::Histogram>()),
    ("events", size_of::<layout::Event>()),
    ("modules", size_of::<layout::Module>()),
    ("text", 1),
    ("extended tables", size_of::<layout::More>()),
];

impl Reader {
    pub(super) fn open(file: &File) -> Result<Self, Error> {
        let metadata = file.metadata()?;
        let size = size_of::<layout::Header>();
        if !metadata.is_file() || metadata.len() < size as u64 || metadata.len() > LONGEST {
            return Err(Error::NotARecording);
        }
        let mut header = vec![0; size];
        file.read_exact_at(&mut header, 0)?;
        if get!(&header, layout::Header, magic, u64) != layout::MAGIC {
            return Err(Error::NotARecording);
        }
        let version = get!(&header, layout::Header, version, u32);
        if version != layout::VERSION || get!(&header, layout::Header, header_size, u32) as usize != size {
            return Err(Error::Version(version));
        }
        let (mut sections, mut dropped) = (Vec::new(), Vec::new());
        for (number, (name, size)) in RECORDS.into_iter().enumerate() {
            let at = offset_of!(layout::Header, sections) + number * size_of::<layout::Section>();
            let section = &header[at..at + size_of::<layout::Section>()];
            let offset = get!(section, layout::Section, offset, u64);
            let record_size = get!(section, layout::Section, record_size, u32) as usize;
            let capacity = get!(section, layout::Section, capacity, u32);
            let count = get!(section, layout::Section, count, u32).min(capacity) as usize;
            let length = count as u64 * size as u64;
            let inside = offset.checked_add(length).is_some_and(|end| end <= metadata.len());
            if record_size != size || !inside {
                return Err(Error::Damaged(name));
            }
            let mut bytes = vec![0; count * size];
            file.read_exact_at(&mut bytes, offset)?;
            sections.push(bytes);
            let lost = get!(section, layout::Section, dropped, u32);
            if lost > 0 {
                dropped.push((name, u64::from(lost)));
            }
        }
        let bytes = std::os::unix::fs::MetadataExt::blocks(&metadata) * 512;
        Ok(Self { header, sections, dropped, bytes })
    }

    /// The records of a section. Not all are in use.
    pub(super) fn records(&self, section: usize) -> std::slice::ChunksExact<'_, u8> {
        self.sections[section].chunks_exact(RECORDS[section].1)
    }

    pub(super) fn read(self) -> Result<Recording, Error> {
        let places = Places::new(self.modules());
        let header = &self.header;
        let number = |offset| u64_at(header, offset);
        let (ended, started) =
            (number(offset_of!(layout::Header, ended)), number(offset_of!(layout::Header, started)));
        let mut recording = Recording {
            pid: get!(header, layout::Header, pid, u32),
            parent: get!(header, layout::Header, parent, u32),
            started,
            started_realtime: number(offset_of!(layout::Header, started_realtime)),
            ended,
            complete: ended != 0,
            executable: OsString::from_vec(self.text(offset_of!(layout::Header, executable)).to_vec()).into(),
            arguments: self.arguments(),
            mutex: lossy(self.text(offset_of!(layout::Header, mutex))),
            rwlock: lossy(self.text(offset_of!(layout::Header, rwlock))),
            forked: get!(header, layout::Header, began, u32) == layout::began::FORK,
            late: get!(header, layout::Header, began, u32) == layout::began::LATE,
            modules: places.modules(),
            stacks: self.stacks(&places),
            unwound: number(offset_of!(layout::Header, unwound)),
            cached: number(offset_of!(layout::Header, cached)),
            unwinding_nanos: number(offset_of!(layout::Header, unwinding_nanos)),
            unaccounted: number(offset_of!(layout::Header, unaccounted)),
            lost: number(offset_of!(layout::Header, lost)),
            bytes: self.bytes,
            dropped: self.dropped.clone(),
            ..Recording::default()
        };
        let mut classes = Classes::new(&self, &recording.stacks);
        classes.add_objects(&self);
        classes.add_tables(&self);
        let mut sums = self.pairs(&classes, &recording.stacks);
        self.add_tallies(&mut classes, &mut sums, &recording.stacks);
        let mut threads = self.threads(&mut classes, &mut sums, &recording.stacks);
        recording.events = self.events(&classes, &threads, &recording.stacks);
        let noted = recording.mutex != "glibc";
        holders::find(&self, &mut threads, |class| match classes.list[class].kind {
            Kind::RwLock => Some(holders::Held::ByDepth),
            _ => (noted || classes.list[class].own).then_some(holders::Held::ByStamp),
        });
        recording.threads = std::mem::take(&mut threads.list);
        if recording.complete {
            recording.ends_at(ended);
        } else {
            let waits = |thread: &Thread| thread.waiting.as_ref().map_or(0, |waiting| waiting.since);
            let last = |thread: &Thread| thread.seen.max(thread.ended).max(waits(thread));
            let last = recording.threads.iter().map(last).max().unwrap_or(0).max(started);
            recording.ends_at(last.max(number(offset_of!(layout::Header, gone))));
        }
        recording.classes = classes.finish();
        for class in recording.classes.iter_mut().filter(|class| class.address != 0) {
            let birth = self.records(layout::STACKS).nth(class.birth);
            let replaced = birth.map_or(0, |birth| get!(birth, layout::Stack, replaced, u16));
            class.address = places.move_address(class.address, class.address, replaced);
        }
        let waits = |counters: &Counters| (counters.contended, counters.wait_nanos);
        recording.pairs = estimates::calibrate(sums.pairs, &recording.classes, waits);
        let relocks = |counters: &Counters| (counters.relocks, counters.relock_nanos);
        recording.relocks = estimates::calibrate(sums.relocks, &recording.classes, relocks);
        for pairs in [&mut recording.pairs, &mut recording.relocks] {
            pairs.sort_by_key(|pair| (pair.class, std::cmp::Reverse(pair.nanos), pair.waiter));
        }
        recording.holds = sums
            .holds
            .into_iter()
            .map(|((class, holder, read), Sum { count, nanos, .. })| Hold {
                class,
                holder,
                read,
                count,
                nanos,
            })
            .collect();
        recording.holds.sort_by_key(|hold| (hold.class, std::cmp::Reverse(hold.nanos), hold.holder));
        Ok(recording)
    }

    /// The bytes that the [`layout::Text`] at `offset` of the header names.
    fn text(&self, offset: usize) -> &[u8] {
        self.bytes_of_text(u32_at(&self.header, offset), u32_at(&self.header, offset + 4))
    }

    fn bytes_of_text(&self, start: u32, length: u32) -> &[u8] {
        let text = &self.sections[layout::TEXT];
        let end = start.saturating_add(length) as usize;
        text.get(start as usize..end).unwrap_or_default()
    }

    fn arguments(&self) -> Vec<OsString> {
        let text = self.text(offset_of!(layout::Header, arguments));
        let text = text.strip_suffix(&[0]).unwrap_or(text);
        if text.is_empty() {
            return Vec::new();
        }
        text.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect()
    }

    /// The modules, and [`layout::Module::replaced`] of each.
    fn modules(&self) -> Vec<(Module, u16)> {
        type Of = layout::Module;
        let ready = |record: &&[u8]| get!(record, Of, state, u32) == READY;
        let one = |record: &[u8]| {
            let length = usize::from(get!(record, Of, build_id_length, u16)).min(32);
            let at = offset_of!(Of, build_id);
            let path = self.bytes_of_text(get!(record, Of, path, u32), get!(record, Of, path_length, u32));
            let module = Module {
                path: OsString::from_vec(path.to_vec()).into(),
                build_id: record[at..at + length].to_vec(),
                start: get!(record, Of, start, u64),
                end: get!(record, Of, end, u64),
                bias: get!(record, Of, bias, u64),
            };
            (module, get!(record, Of, replaced, u16))
        };
        self.records(layout::MODULES).filter(ready).map(one).collect()
    }

    fn stacks(&self, places: &Places) -> Vec<Vec<u64>> {
        type Of = layout::Stack;
        let one = |record: &[u8]| {
            if get!(record, Of, state, u32) != READY {
                return Vec::new();
            }
            let depth = usize::from(get!(record, Of, depth, u16)).min(FRAMES);
            let replaced = get!(record, Of, replaced, u16);
            let frame = |frame| u64_at(record, offset_of!(Of, frames) + 8 * frame);
            places.move_frames((0..depth).map(frame).collect(), replaced)
        };
        let mut stacks: Vec<_> = self.records(layout::STACKS).map(one).collect();
        // Index 0 is there even in a file without stacks.
        if stacks.is_empty() {
            stacks.push(Vec::new());
        }
        stacks
    }

    fn pairs(&self, classes: &Classes, stacks: &[Vec<u64>]) -> Sums {
        type Of = layout::Pair;
        let mut sums = Sums::default();
        for record in self.records(layout::PAIRS) {
            let sum = Sum {
                count: get!(record, Of, waits, u64),
                nanos: get!(record, Of, nanos, u64),
                squares: get!(record, Of, squares, u64),
            };
            if get!(record, Of, state, u32) == READY
                && let Some(class) = classes.number(get!(record, Of, class, u32))
            {
                let (waiter, holder) = (get!(record, Of, waiter, u32), get!(record, Of, holder, u32));
                sums.add(class, waiter, holder, sum, stacks);
            }
        }
        sums
    }

    /// Adds what threads have summed up for themselves.
    fn add_tallies(&self, classes: &mut Classes, sums: &mut Sums, stacks: &[Vec<u64>]) {
        type Of = layout::Tally;
        for table in self.records(layout::TABLES) {
            for tally in table[offset_of!(layout::Table, tallies)..].chunks_exact(size_of::<Of>()) {
                let class = get!(tally, Of, class, u32).checked_sub(1);
                let Some(class) = class.and_then(|class| classes.number(class)) else { continue };
                let (waiter, holder) = (get!(tally, Of, waiter, u32), get!(tally, Of, holder, u32));
                let (waits, nanos) = (u64::from(get!(tally, Of, waits, u32)), get!(tally, Of, nanos, u64));
                if waiter != layout::ALL_WAITS {
                    let sum = Sum { count: waits, nanos, squares: get!(tally, Of, squares, u64) };
                    sums.add(class, waiter, holder, sum, stacks);
                }
                let mut counted = Counters::default();
                if matches!(waiter, layout::holds::WRITE | layout::holds::READ) {
                    (counted.hold_samples, counted.hold_nanos) = (waits, nanos);
                    if waiter == layout::holds::READ {
                        (counted.read_samples, counted.read_nanos) = (waits, nanos);
                    }
                } else if waiter == layout::ALL_WAITS {
                    (counted.contended, counted.wait_nanos) = (waits, nanos);
                } else {
                    continue;
                }
                let object = (get!(tally, Of, object, u32), get!(tally, Of, serial, u32));
                classes.counters(class, object).add(&counted);
            }
        }
    }

    fn threads(&self, classes: &mut Classes, sums: &mut Sums, stacks: &[Vec<u64>]) -> Threads {
        type Of = layout::Thread;
        let mut threads = Threads { list: Vec::new(), numbers: HashMap::new() };
        for (number, record) in self.records(layout::THREADS).enumerate() {
            if get!(record, Of, state, u32) != READY {
                continue;
            }
            let at = offset_of!(Of, name);
            let name = record[at..at + 16].split(|byte| *byte == 0).next().expect("one part");
            let waiting = || {
                Some(Waiting {
                    class: classes.number(get!(record, Of, waits_for, u32).checked_sub(1)?)?,
                    stack: index(get!(record, Of, waits_at, u32), stacks)?,
                    since: get!(record, Of, waits_since, u64),
                    held_by: get!(record, Of, held_by, u32),
                    holders: Vec::new(),
                })
            };
            threads.numbers.insert(number as u32, threads.list.len());
            threads.list.push(Thread {
                tid: get!(record, Of, tid, u32),
                name: lossy(name),
                started: get!(record, Of, started, u64),
                ended: get!(record, Of, ended, u64),
                lives: get!(record, Of, ended, u64) == 0,
                seen: get!(record, Of, seen, u64),
                waits: get!(record, Of, waits, u64),
                wait_nanos: get!(record, Of, wait_nanos, u64),
                sleeps: get!(record, Of, sleeps, u64),
                sleep_nanos: get!(record, Of, sleep_nanos, u64),
                waiting: waiting(),
            });
            let at = offset_of!(Of, pending);
            add_pending(&record[at..at + size_of::<layout::Pending>()], classes, sums, stacks);
        }
        threads
    }

    fn events(&self, classes: &Classes, threads: &Threads, stacks: &[Vec<u64>]) -> Vec<Event> {
        type Of = layout::Event;
        let one = |record: &[u8]| {
            Some(Event {
                class: classes.number(get!(record, Of, class, u32))?,
                thread: *threads.numbers.get(&get!(record, Of, thread, u32))?,
                waiter: index(get!(record, Of, waiter, u32), stacks)?,
                cause: Cause::new(get!(record, Of, holder, u32), stacks)?,
                start: get!(record, Of, start, u64),
                nanos: get!(record, Of, nanos, u64),
                stands_for: get!(record, Of, stands_for, u64),
            })
        };
        let ready = |record: &&[u8]| get!(record, Of, state, u32) == READY;
        let mut events: Vec<_> = self.records(layout::EVENTS).filter(ready).filter_map(one).collect();
        events.sort_by_key(|event| event.start);
        events
    }

    /// The counts of a histogram; none for number 0.
    pub(super) fn histogram(&self, number: u32) -> Vec<u64> {
        let record = self.records(layout::HISTOGRAMS).nth(number as usize);
        match record {
            Some(record) if number != 0 => (0..BUCKETS).map(|bucket| u64_at(record, 8 * bucket)).collect(),
            _ => Vec::new(),
        }
    }
}
