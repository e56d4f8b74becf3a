//! Recordings made by hand, whose truth is known.

use super::*;
use crate::histogram;
use crate::layout::{NONE, READY};
use file::RECORDS;
use layout::{
    CLASSES, Class as C, Counters as N, ENTRIES, EVENTS, Entry, Event as V, HISTOGRAMS, Header, Histogram,
    MODULES, MORE, Module as M, OBJECTS, Object as O, PAIRS, Pair as P, Pending, STACKS, Section, Stack as S,
    TABLES, TEXT, THREADS, Table, Tally, Thread as T,
};
use std::mem::offset_of;

/// A record as bytes: fields are named like `put!(record, Type.field = value)`.
macro_rules! put {
    ($record:expr, $($of:ident . $field:ident = $value:expr),+ $(,)?) => {
        $({
            let (at, bytes) = (offset_of!($of, $field), $value.to_ne_bytes());
            $record[at..at + bytes.len()].copy_from_slice(&bytes);
        })+
    };
}

/// The bytes of a file with these records.
fn file(sections: &[(usize, Vec<Vec<u8>>)]) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    put!(
        bytes,
        Header.magic = layout::MAGIC,
        Header.version = layout::VERSION,
        Header.pid = 77_u32,
        Header.header_size = size_of::<Header>() as u32,
        Header.started = 1_000_u64,
        Header.ended = 9_000_u64
    );
    for (number, (_, size)) in RECORDS.into_iter().enumerate() {
        let records =
            sections.iter().find(|section| section.0 == number).map_or(&[][..], |section| &section.1);
        let mut section = vec![0; size_of::<Section>()];
        put!(
            section,
            Section.offset = bytes.len() as u64,
            Section.record_size = size as u32,
            Section.capacity = (records.len() as u32).max(1),
            Section.count = records.len() as u32,
            Section.dropped = if number == STACKS { 5_u32 } else { 0 }
        );
        let at = offset_of!(Header, sections) + number * section.len();
        bytes[at..at + section.len()].copy_from_slice(&section);
        records.iter().for_each(|record| bytes.extend(record));
        bytes.resize(bytes.len().next_multiple_of(4096) + 4096, 0);
    }
    bytes
}

fn record(section: usize) -> Vec<u8> {
    vec![0; RECORDS[section].1]
}

fn stack(addresses: &[u64]) -> Vec<u8> {
    let mut stack = record(STACKS);
    put!(stack, S.state = READY, S.depth = addresses.len() as u32);
    for (frame, address) in addresses.iter().enumerate() {
        let at = offset_of!(S, frames) + 8 * frame;
        stack[at..at + 8].copy_from_slice(&address.to_ne_bytes());
    }
    stack
}

fn class(kind: u32, birth: u32, waits: u32) -> Vec<u8> {
    let mut class = record(CLASSES);
    put!(class, C.state = READY, C.kind = kind, C.birth = birth, C.instances = 2_u32, C.waits = waits);
    let counters = &mut class[offset_of!(C, counters)..];
    put!(
        counters,
        N.acquisitions = 100_u64,
        N.wait_max = 5_u64,
        N.relocks = 2_u64,
        N.relock_nanos = 1_000_u64
    );
    class
}

fn object(serial: u32, address: u64) -> Vec<u8> {
    let mut object = record(OBJECTS);
    put!(object, O.state = READY, O.class = 1_u32, O.serial = serial, O.address = address);
    let counters = &mut object[offset_of!(O, counters)..];
    put!(
        counters,
        N.acquisitions = 10_u64,
        N.contended = 1_u64,
        N.wait_nanos = 600_u64,
        N.wait_max = 600_u64
    );
    object
}

fn entry(object: u32, serial: u8, address: u64, acquisitions: u64) -> Vec<u8> {
    let mut entry = vec![0; size_of::<Entry>()];
    put!(
        entry,
        Entry.address = address,
        Entry.object = object,
        Entry.class = 1_u32,
        Entry.serial = serial,
        Entry.acquisitions = acquisitions
    );
    entry
}

fn tally(object: u32, serial: u32, waiter: u32, holder: u32, nanos: u64) -> Vec<u8> {
    let mut tally = vec![0; size_of::<Tally>()];
    put!(
        tally,
        Tally.class = 2_u32,
        Tally.object = object,
        Tally.serial = serial,
        Tally.waiter = waiter,
        Tally.holder = holder,
        Tally.waits = 1_u32,
        Tally.nanos = nanos
    );
    tally
}

fn pair(holder: u32, nanos: u64) -> Vec<u8> {
    let mut pair = record(PAIRS);
    put!(
        pair,
        P.state = READY,
        P.class = 1_u32,
        P.waiter = 1_u32,
        P.holder = holder,
        P.waits = 1_u64,
        P.nanos = nanos
    );
    pair
}

/// One class of interest, with an object that is alive. Its first class is of no known kind.
fn known() -> Vec<u8> {
    let mut thread = record(THREADS);
    put!(
        thread,
        T.state = READY,
        T.tid = 78_u32,
        T.started = 1_000_u64,
        T.seen = 8_000_u64,
        T.waits_for = 2_u32,
        T.waits_at = 2_u32,
        T.waits_since = 7_000_u64
    );
    thread[offset_of!(T, name)..][..6].copy_from_slice(b"worker");
    let pending = &mut thread[offset_of!(T, pending)..];
    put!(
        pending,
        Pending.class = 2_u32,
        Pending.object = 0_u32,
        Pending.serial = 0x103_u32,
        Pending.waiter = 1_u32,
        Pending.nanos = 1_000_u64,
        Pending.weight = 2_u32
    );
    // The second stack caused 700 ns of it.
    put!(pending, Pending.holders = 2_u32, Pending.parts = 700_u64);
    let mut table = record(TABLES);
    let entries = [
        entry(0, 3, 0xa000, 1_000),  // of the object
        entry(0, 4, 0xa000, 20_000), // of an object that was in the same record
        entry(NONE, 0, 0xb000, 300_000),
        entry(9, 0, 0xc000, 4_000_000), // of a record that is not there
    ];
    let mut more = record(MORE);
    let last = entry(0, 3, 0xa000, 5);
    let at = more.len() - last.len();
    more[at..].copy_from_slice(&last);
    for (number, entry) in entries.iter().enumerate() {
        assert!(number < ENTRIES);
        table[number * entry.len()..][..entry.len()].copy_from_slice(entry);
    }
    let tallies = [
        tally(0, 0x103, layout::ALL_WAITS, 0, 10_000), // of the object
        tally(0, 0x103, 1, layout::cause::WHOLE, 9_000),
        tally(0, 0x103, 1, 2, 8_000),
        tally(0, 0x103, 1 | layout::RELOCK, layout::cause::WHOLE, 500),
        tally(0, 0x103, 1 | layout::RELOCK, 2, 400),
        tally(0, 0x103, 1 | layout::RELOCK, layout::cause::HANDOVER, 100),
        tally(0, 0x104, layout::holds::WRITE, 2, 30), // of an object that was in the same record
        tally(NONE, 0, layout::holds::READ, 0, 5),
        tally(NONE, 0, layout::holds::READ, 99, 1), // by a holder that is not there
        tally(NONE, 0, 99, 1, 7),                   // of a waiter that is not there
    ];
    for (number, tally) in tallies.iter().enumerate() {
        table[offset_of!(Table, tallies) + number * tally.len()..][..tally.len()].copy_from_slice(tally);
    }
    let mut waits = vec![0; size_of::<Histogram>()];
    let at = 8 * histogram::bucket(600);
    waits[at..at + 8].copy_from_slice(&1_u64.to_ne_bytes());
    let mut event = record(EVENTS);
    put!(
        event,
        V.state = READY,
        V.class = 1_u32,
        V.waiter = 1_u32,
        V.holder = 2_u32,
        V.nanos = 600_u64,
        V.start = 2_000_u64
    );
    let mut module = record(MODULES);
    put!(
        module,
        M.state = READY,
        M.start = 0x1000_u64,
        M.end = 0x2000_u64,
        M.build_id_length = 2_u32,
        M.path = 0_u32,
        M.path_length = 5_u32
    );
    module[offset_of!(M, build_id)..][..2].copy_from_slice(&[0xab, 0xcd]);
    file(&[
        (THREADS, vec![thread]),
        (TABLES, vec![table]),
        (MORE, vec![more]),
        (OBJECTS, vec![object(0x103, 0xa000)]),
        (CLASSES, vec![class(99, 0, 0), class(layout::kind::MUTEX, 2, 1)]),
        (
            PAIRS,
            vec![
                pair(layout::cause::WHOLE, 600),
                pair(2, 400),
                pair(layout::cause::HANDOVER, 200),
                pair(17, 1),
            ],
        ),
        (STACKS, vec![record(STACKS), stack(&[0x1100, 0x1200]), stack(&[0x1300])]),
        (HISTOGRAMS, vec![record(HISTOGRAMS), waits]),
        (EVENTS, vec![event]),
        (MODULES, vec![module]),
        (TEXT, b"/a/so".iter().map(|byte| vec![*byte]).collect()),
    ])
}

/// A file of the test's own with these bytes.
fn read(name: &str, bytes: &[u8]) -> Result<Recording, Error> {
    let path = std::env::temp_dir().join(format!("latchwork-recording-{}-{name}", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    let result = Recording::read(&path);
    std::fs::remove_file(&path).unwrap();
    result
}

#[test]
fn everything_counted_is_found_once() {
    let recording = read("known", &known()).unwrap();
    assert_eq!(
        (recording.pid, recording.started, recording.ended, recording.complete),
        (77, 1_000, 9_000, true)
    );
    let [class] = &recording.classes[..] else { panic!("{:?}", recording.classes) };
    assert_eq!((class.kind, class.birth, class.instances), (Kind::Mutex, 2, 2));
    assert_eq!(class.objects.len(), 1);
    assert_eq!(class.objects[0].acquisitions, 1_015);
    assert_eq!(class.counters.acquisitions, 100 + 1_015 + 20_000 + 300_000 + 4_000_000);
    // The pending wait is among these.
    assert_eq!(
        (class.counters.contended, class.counters.wait_nanos, class.counters.wait_max),
        (3, 11_600, 1_000)
    );
    assert_eq!((class.objects[0].contended, class.objects[0].wait_nanos), (3, 11_600));
    assert_eq!(class.waits.iter().sum::<u64>(), 2);
    assert_eq!([600, 1_000].map(|nanos| class.waits[histogram::bucket(nanos)]), [1, 1]);
    let counters = &class.counters;
    assert_eq!((counters.hold_samples, counters.hold_nanos), (3, 36));
    assert_eq!((counters.read_samples, counters.read_nanos), (2, 6));
    let holds: Vec<_> =
        recording.holds.iter().map(|hold| (hold.holder, hold.read, hold.count, hold.nanos)).collect();
    assert_eq!(holds, [(2, false, 1, 30), (0, true, 2, 6)]);
    let plain = |pairs: &[Pair]| -> Vec<_> {
        pairs.iter().map(|pair| (pair.waiter, pair.cause, pair.waits, pair.nanos)).collect()
    };
    // Only half of these waits was looked at closely.
    assert_eq!(
        plain(&recording.relocks),
        [(1, Cause::Whole, 2, 1_000), (1, Cause::Holder(2), 2, 800), (1, Cause::Handover, 2, 200)]
    );
    assert_eq!(
        plain(&recording.pairs),
        [(1, Cause::Whole, 3, 11_600), (1, Cause::Holder(2), 3, 10_800), (1, Cause::Handover, 2, 800)],
        "the pair with a stack that is not there is left out"
    );
    assert_eq!(recording.stacks, [vec![], vec![0x1100, 0x1200], vec![0x1300]]);
    let [thread] = &recording.threads[..] else { panic!("{:?}", recording.threads) };
    assert_eq!((thread.name.as_str(), thread.tid, thread.ended), ("worker", 78, 9_000));
    assert_eq!(thread.waiting.as_ref().map(|waiting| (waiting.class, waiting.stack)), Some((0, 2)));
    assert_eq!(recording.events.len(), 1);
    let module = &recording.modules[0];
    assert_eq!((module.path.to_str(), &module.build_id[..]), (Some("/a/so"), &[0xab, 0xcd][..]));
    assert_eq!(recording.dropped, [("stacks", 5)]);
}

#[test]
fn a_killed_process_ends_at_its_last_sign_of_life() {
    let mut bytes = known();
    put!(bytes, Header.ended = 0_u64);
    let recording = read("killed", &bytes).unwrap();
    assert_eq!((recording.complete, recording.ended), (false, 8_000));
    assert_eq!((recording.threads[0].ended, recording.threads[0].lives), (8_000, true));
}

/// The threads of a killed process lived until the command saw that it was gone, also if they have not looked at the clock for long.
#[test]
fn a_killed_process_ends_when_it_was_seen_to_be_gone() {
    let mut bytes = known();
    put!(bytes, Header.ended = 0_u64, Header.gone = 20_000_u64);
    let mut recording = read("gone", &bytes).unwrap();
    assert_eq!((recording.complete, recording.ended), (false, 20_000));
    assert_eq!(recording.threads[0].ended, 20_000);
    // As the command writes it.
    let path = std::env::temp_dir().join(format!("latchwork-recording-{}-noted", std::process::id()));
    std::fs::write(&path, &bytes).unwrap();
    note_gone(&File::options().write(true).open(&path).unwrap(), 25_000).unwrap();
    assert_eq!(Recording::read(&path).unwrap().ended, 25_000);
    std::fs::remove_file(&path).unwrap();
    recording.ends_at(30_000);
    assert_eq!((recording.ended, recording.threads[0].ended), (30_000, 30_000));
}

#[test]
fn other_files_are_refused() {
    assert!(matches!(read("empty", b""), Err(Error::NotARecording)));
    assert!(matches!(read("zeroes", &[0; 8192]), Err(Error::NotARecording)));
    let mut bytes = known();
    put!(bytes, Header.version = 999_u32);
    let error = read("version", &bytes).unwrap_err();
    assert!(matches!(error, Error::Version(999)));
    assert!(error.to_string().contains("version 999"), "{error}");
    let mut bytes = known();
    let section = &mut bytes[offset_of!(Header, sections) + STACKS * size_of::<Section>()..];
    put!(section, Section.offset = u64::MAX - 10);
    assert!(matches!(read("outside", &bytes), Err(Error::Damaged("stacks"))));
    assert!(matches!(Recording::read(Path::new("/no/such/file")), Err(Error::Io(_))));
    assert!(matches!(Recording::read(Path::new("/")), Err(Error::NotARecording)));
}

#[test]
fn no_damage_makes_the_reader_panic() {
    let whole = known();
    let mut random = 1_u64;
    let mut next = move || {
        // xorshift64
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random as usize
    };
    let mut readable = 0;
    for round in 0..2_000 {
        let mut bytes = whole.clone();
        if round % 4 == 0 {
            bytes.truncate(next() % whole.len());
        }
        for _ in 0..next() % 20 {
            // Not in the magic and the version, so that most of the files are read.
            let at = 16 + next() % (whole.len() - 16);
            if let Some(byte) = bytes.get_mut(at) {
                *byte = [0, 1, 0xff, next() as u8][next() % 4];
            }
        }
        readable += usize::from(read("damaged", &bytes).is_ok());
    }
    assert!((100..2_000).contains(&readable), "{readable} of the damaged files were read");
}

/// Two threads wait for a mutex; the third has it, and the fourth had it before. So has a thread that has ended, whose table has another
/// thread now. The last thread holds a rwlock for which the first mutex's holder waits.
#[test]
fn tables_name_holders() {
    let waits = |table: u32, class: u32, object: u32| {
        let mut thread = record(THREADS);
        put!(thread, T.state = READY, T.tid = table, T.waits_for = class);
        let pending = &mut thread[offset_of!(T, pending)..];
        put!(pending, Pending.tables = table, Pending.object = object);
        thread
    };
    let of = |object: u32, address: u64, depth: u8, open: u8, released: u64| {
        let mut entry = entry(object, 3, address, 35);
        let weight = (released as u8) << layout::STAMP_SHIFT;
        put!(entry, Entry.depth = depth, Entry.open = open, Entry.weight = weight);
        entry
    };
    let table = |entries: &[Vec<u8>]| {
        let mut table = record(TABLES);
        for (place, entry) in entries.iter().enumerate() {
            table[place * entry.len()..][..entry.len()].copy_from_slice(entry);
        }
        table
    };
    let holders = |mutex: &str, second: Vec<u8>| {
        let mut more = record(MORE);
        let last = of(1, 0xb000, layout::READING, 0, 35);
        let at = more.len() - last.len();
        more[at..].copy_from_slice(&last);
        let mut in_class = object(3, 0xb000);
        put!(in_class, O.class = 2_u32);
        let mut bytes = file(&[
            (
                THREADS,
                vec![
                    waits(1, 2, 0),
                    waits(1, 2, 0),
                    waits(2, 3, 1),
                    waits(3, 0, NONE),
                    waits(4 | 1 << u16::BITS, 0, NONE),
                ],
            ),
            (
                TABLES,
                vec![
                    table(&[of(0, 0xa000, 1, 0, 35), of(1, 0xb000, 0, 0, 34)]),
                    table(&[second]),
                    table(&[of(0, 0xa000, 1, 0, 35)]),
                    table(&[]),
                ],
            ),
            (MORE, vec![more]),
            (OBJECTS, vec![object(3, 0xa000), in_class]),
            (
                CLASSES,
                vec![class(99, 0, 0), class(layout::kind::MUTEX, 0, 0), class(layout::kind::RWLOCK, 0, 0)],
            ),
            (STACKS, vec![record(STACKS)]),
            (TEXT, mutex.bytes().map(|byte| vec![byte]).collect()),
        ]);
        put!(bytes, Header.mutex = 0_u32);
        let at = offset_of!(Header, mutex) + 4;
        bytes[at..at + 4].copy_from_slice(&(mutex.len() as u32).to_ne_bytes());
        let recording = read(&format!("holders-{mutex}"), &bytes).unwrap();
        let waiting = |thread: &Thread| thread.waiting.as_ref().map(|waiting| waiting.holders.clone());
        recording.threads.iter().filter_map(waiting).collect::<Vec<_>>()
    };
    let held = || of(0, 0xa000, 1, 0, 34);
    assert_eq!(holders("shfl", held()), [vec![2], vec![2], vec![4]]);
    // The release of a hold that is measured is always noted.
    assert_eq!(holders("shfl", of(0, 0xa000, 1, 1, 35)), [vec![2], vec![2], vec![4]]);
    assert_eq!(holders("shfl", of(0, 0xa000, 0, 0, 34)), [vec![], vec![], vec![4]]);
    // Another lock was at the address.
    assert_eq!(holders("shfl", of(1, 0xa000, 1, 0, 34)), [vec![], vec![], vec![4]]);
    // glibc's mutexes are released without a note.
    assert_eq!(holders("glibc", held()), [vec![], vec![], vec![4]]);
}
