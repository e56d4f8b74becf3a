//! What the threads of a schedule have around them: queue nodes, the table and the rows of visible readers, the
//! waiting array, the records of reclamation, and the place where the locks are. All of it is made once for each
//! OS thread that explores, and put back to its beginning for each schedule.

use super::engine::{MAX_THREADS, world};
use super::words::{Ptr, Usize};
use super::{Explore, Mistake};
use corosensei::stack::DefaultStack;
use latchwork::machine::record::{Clocks, Record, STEP};
use latchwork::machine::{Group, QNode, ReaderRow, Word};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Slots in the table of visible readers.
const READER_SLOTS: usize = 4;
/// Nodes in the waiting array.
const WAITING_ARRAY: usize = 4;
/// Rows and records: one for each thread, and for those that exit and come back.
const ROWS: usize = 24;

type RecordGroup = Group<Explore, Record<Explore>>;

/// Where the locks and the data of a client are. It has the same offsets in every process.
#[repr(C, align(4096))]
pub(super) struct Arena(std::cell::UnsafeCell<[u8; ARENA]>);

const ARENA: usize = 64 * 1024;

pub(super) struct World {
    pub stacks: Vec<DefaultStack>,
    arena: &'static Arena,
    /// Labels of ranges of addresses, for people.
    labels: Vec<(usize, usize, &'static str)>,
    nodes: Vec<&'static QNode<Explore>>,
    nodes_used: usize,
    free: [Vec<&'static QNode<Explore>>; MAX_THREADS],
    pub nodes_out: i32,
    table: &'static [Usize],
    waiting: &'static [QNode<Explore>],
    rows: &'static [ReaderRow<Explore>],
    rows_used: usize,
    newest_row: &'static Ptr<ReaderRow<Explore>>,
    own_row: [Option<(usize, bool)>; MAX_THREADS],
    left_rows: Vec<usize>,
    singles: Vec<&'static RecordGroup>,
    singles_used: usize,
    together: &'static RecordGroup,
    newest_record: &'static Ptr<RecordGroup>,
    own_record: [Option<(&'static Record<Explore>, &'static RecordGroup)>; MAX_THREADS],
    any_left: bool,
    clocks: &'static Clocks<Explore>,
    /// Addresses outside of the arena that were asked for an identity, by line.
    identities: Vec<usize>,
    /// Which processor each thread is on.
    cpus: [u32; MAX_THREADS],
    /// The lowest and the highest address of each thread's stack.
    pub stack_ranges: [(usize, usize); MAX_THREADS],
}

fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

fn leak_all<T>(count: usize, make: impl Fn(usize) -> T) -> &'static [T] {
    Box::leak((0..count).map(make).collect())
}

/// The record with this number, which is never 0.
fn record(number: usize) -> Record<Explore> {
    Record { number: Word::new(number as u32 + 1), ..Record::new() }
}

impl World {
    pub(super) fn new() -> World {
        let groups = |first: usize, count: usize| {
            leak(RecordGroup::new(leak_all(count, |i| record(first + i)), 0, None))
        };
        World {
            stacks: Vec::with_capacity(2 * MAX_THREADS),
            arena: leak(Arena(std::cell::UnsafeCell::new([0; ARENA]))),
            labels: Vec::new(),
            nodes: Vec::new(),
            nodes_used: 0,
            free: std::array::from_fn(|_| Vec::with_capacity(16)),
            nodes_out: 0,
            table: leak_all(READER_SLOTS, |_| Usize::new(0)),
            waiting: leak_all(MAX_THREADS * WAITING_ARRAY, |_| QNode::new()),
            rows: leak_all(ROWS, |_| ReaderRow::new()),
            rows_used: 0,
            newest_row: leak(Ptr::new(null_mut())),
            own_row: [None; MAX_THREADS],
            left_rows: Vec::with_capacity(ROWS),
            singles: (0..ROWS).map(|i| groups(i, 1)).collect(),
            singles_used: 0,
            together: groups(ROWS, MAX_THREADS),
            newest_record: leak(Ptr::new(null_mut())),
            own_record: [None; MAX_THREADS],
            any_left: false,
            clocks: leak(Clocks::new()),
            identities: Vec::new(),
            cpus: [0; MAX_THREADS],
            stack_ranges: [(0, 0); MAX_THREADS],
        }
    }

    /// The address of the arena.
    pub(super) fn arena(&self) -> *mut u8 {
        self.arena.0.get().cast()
    }

    /// What is at these addresses.
    pub(super) fn label(&mut self, address: usize, size: usize, name: &'static str) {
        self.labels.push((address, address + size, name));
    }

    /// Everything as it was. Called outside of schedules, where words are plain memory.
    pub(super) fn reset(&mut self, grouped: bool) {
        self.labels.clear();
        for node in &self.nodes[..self.nodes_used] {
            clear(node);
        }
        self.nodes_used = 0;
        self.free.iter_mut().for_each(Vec::clear);
        self.nodes_out = 0;
        self.table.iter().for_each(|slot| slot.store(0, Relaxed));
        self.waiting.iter().for_each(clear);
        for row in &self.rows[..self.rows_used] {
            row.slots.iter().for_each(|slot| slot.store(0, Relaxed));
            row.counts.iter().for_each(|count| count.store(0, Relaxed));
            row.link(None);
            row.left.store(0, Relaxed);
            row.slow_reads.store(0, Relaxed);
            row.unbiased.store(0, Relaxed);
        }
        self.rows_used = 0;
        self.newest_row.store(null_mut(), Relaxed);
        self.own_row = [None; MAX_THREADS];
        self.left_rows.clear();
        for group in self.singles[..self.singles_used].iter().chain([&self.together]) {
            group.entries().iter().for_each(Record::reset);
            group.forget(std::ptr::null());
            group.link(None);
        }
        self.singles_used = 0;
        let together = if grouped { self.together.as_ptr() } else { null_mut() };
        self.newest_record.store(together, Relaxed);
        self.own_record = [None; MAX_THREADS];
        self.any_left = grouped;
        self.clocks.grace.store(STEP | 1, Relaxed);
        self.clocks.epoch.store(STEP | 1, Relaxed);
        self.clocks.reached.iter().for_each(|time| time.store(0, Relaxed));
        self.identities.clear();
        self.cpus = std::array::from_fn(|thread| thread as u32);
    }

    /// Whether the address is that of a slot for visible readers.
    pub(super) fn is_reader_slot(&self, address: usize) -> bool {
        let within = |slots: &[Usize]| {
            let range = slots.as_ptr_range();
            (range.start.addr()..range.end.addr()).contains(&address)
        };
        within(self.table) || self.rows.iter().any(|row| within(&row.slots))
    }

    /// Whether a value can be an address.
    pub(super) fn is_pointer(&self, value: u64) -> bool {
        value > u64::from(u32::MAX)
    }

    /// A name for an address that is the same in every run.
    pub(super) fn identity(&mut self, address: usize) -> usize {
        let arena = self.arena().addr();
        if (arena..arena + ARENA).contains(&address) {
            return address - arena + ARENA;
        }
        let line = address / 64;
        let known = self.identities.iter().position(|known| *known == line);
        let number = known.unwrap_or_else(|| {
            self.identities.push(line);
            self.identities.len() - 1
        });
        2 * ARENA + number * 64 + address % 64
    }

    /// What a word is called in a trace.
    pub(super) fn name(&self, address: usize) -> String {
        if let Some((start, _, name)) =
            self.labels.iter().find(|(start, end, _)| (*start..*end).contains(&address))
        {
            return format!("{name}+{:#x}", address - start);
        }
        let node = |node: &QNode<Explore>| {
            let start = std::ptr::from_ref(node).addr();
            (start..start + size_of::<QNode<Explore>>()).contains(&address).then(|| field(node, address))
        };
        let numbered = |nodes: &mut dyn Iterator<Item = &QNode<Explore>>, what: &str| {
            nodes.enumerate().find_map(|(i, one)| Some(format!("{what} {i}.{}", node(one)?)))
        };
        numbered(&mut self.nodes.iter().copied(), "node")
            .or_else(|| numbered(&mut self.waiting.iter(), "waiting"))
            .or_else(|| {
                let slot = |slots: &[Usize]| slots.iter().position(|slot| slot.place().address == address);
                slot(self.table).map(|i| format!("slot {i}")).or_else(|| {
                    self.rows.iter().enumerate().find_map(|(row, one)| {
                        slot(&one.slots).map(|i| format!("row {row}, slot {i}")).or_else(|| {
                            let start = one.as_ptr().addr();
                            let size = size_of::<ReaderRow<Explore>>();
                            (start..start + size)
                                .contains(&address)
                                .then(|| format!("row {row}+{:#x}", address - start))
                        })
                    })
                })
            })
            .or_else(|| {
                let stacks = self.stack_ranges.iter().enumerate();
                stacks
                    .clone()
                    .find(|(_, (low, high))| (*low..*high).contains(&address))
                    .map(|(thread, (_, high))| format!("stack {thread}-{:#x}", high - address))
            })
            .unwrap_or_else(|| format!("{address:#x}"))
    }

    /// A value in a trace: a number, or what it points to.
    pub(super) fn value(&self, value: u64) -> String {
        if !self.is_pointer(value) {
            return if value < 10 { value.to_string() } else { format!("{value:#x}") };
        }
        let name = self.name(value as usize);
        match name.strip_suffix(".link0") {
            Some(node) => format!("&{node}"),
            None => format!("&{name}"),
        }
    }
}

/// The name of a node's field.
fn field(node: &QNode<Explore>, address: usize) -> &'static str {
    let links = node.links.iter().map(|link| link.place().address).zip(["link0", "link1"]);
    let words =
        node.words.iter().map(|word| word.place().address).zip(["word0", "word1", "word2", "word3", "word4"]);
    links.chain(words).find(|(start, _)| *start == address).map_or("(inside)", |(_, name)| name)
}

fn clear(node: &QNode<Explore>) {
    node.links.iter().for_each(|link| link.store(null_mut(), Relaxed));
    node.words.iter().for_each(|word| word.store(0, Relaxed));
}

fn me() -> usize {
    world().with(|s| s.running)
}

pub(super) fn acquire_node() -> &'static QNode<Explore> {
    let me = me();
    world().with(|s| {
        let mistake = s.mistake;
        let w = &mut s.world;
        w.nodes_out += 1;
        let node = w.free[me].pop().unwrap_or_else(|| {
            if w.nodes_used == w.nodes.len() {
                w.nodes.push(leak(QNode::new()));
            }
            w.nodes_used += 1;
            w.nodes[w.nodes_used - 1]
        });
        if mistake == Mistake::NodeTooEarly {
            w.free[me].push(node);
        }
        node
    })
}

pub(super) fn release_node(node: &'static QNode<Explore>) {
    let me = me();
    world().with(|s| {
        s.world.nodes_out -= 1;
        if s.mistake != Mistake::NodeTooEarly {
            s.world.free[me].push(node);
        }
    });
}

pub(super) fn visible_readers() -> &'static [Usize] {
    world().with(|s| s.world.table)
}

pub(super) fn waiting_array() -> &'static [QNode<Explore>] {
    let me = me();
    world().with(|s| {
        let first = if s.mistake == Mistake::PrivateArray { me * WAITING_ARRAY } else { 0 };
        &s.world.waiting[first..first + WAITING_ARRAY]
    })
}

/// The running thread's row: its own, or one that was left behind and is empty, or a new one.
pub(super) fn reader_row() -> &'static ReaderRow<Explore> {
    let me = me();
    let (row, linked) = match world().with(|s| s.world.own_row[me]) {
        Some((row, linked)) => (row, linked),
        None => {
            let (rows, left) = world().with(|s| (s.world.rows, s.world.left_rows.clone()));
            // Takes it before it looks: others may take it, read and leave it again meanwhile.
            let take = |row: &usize| {
                world().with(|s| {
                    let at = s.world.left_rows.iter().position(|left| left == row);
                    at.map(|at| s.world.left_rows.remove(at)).is_some()
                })
            };
            let empty = left.into_iter().find(|row| {
                let taken = take(row);
                if taken && !rows[*row].is_empty() {
                    world().with(|s| s.world.left_rows.push(*row));
                    return false;
                }
                taken
            });
            let own = world().with(|s| {
                let w = &mut s.world;
                let own = empty.map_or((w.rows_used, false), |row| (row, true));
                w.rows_used += usize::from(empty.is_none());
                w.own_row[me] = Some(own);
                own
            });
            assert!(own.0 < ROWS, "too many threads come and go");
            own
        }
    };
    let (rows, newest, mistake) = world().with(|s| (s.world.rows, s.world.newest_row, s.mistake));
    let row_now = &rows[row];
    if linked || mistake == Mistake::LateRow && row_now.is_empty() {
        return row_now;
    }
    world().with(|s| s.world.own_row[me] = Some((row, true)));
    let mut first = newest.load(Relaxed);
    loop {
        // SAFETY: null, or one of the rows, which are never freed.
        row_now.link(unsafe { first.as_ref() });
        match newest.compare_exchange(first, row_now.as_ptr(), Release, Relaxed) {
            Ok(_) => return row_now,
            Err(now) => first = now,
        }
    }
}

pub(super) fn reader_rows() -> Option<&'static ReaderRow<Explore>> {
    let newest = world().with(|s| s.world.newest_row);
    // SAFETY: null, or one of the rows, which are never freed.
    unsafe { newest.load(Acquire).as_ref() }
}

/// The running thread's record.
pub(super) fn own_record() -> &'static Record<Explore> {
    let me = me();
    if let Some((own, _)) = world().with(|s| s.world.own_record[me]) {
        return own;
    }
    let newest = world().with(|s| s.world.any_left.then_some(s.world.newest_record));
    // SAFETY: null, or one of the groups, which are never freed.
    let first = newest.and_then(|newest| unsafe { newest.load(Acquire).as_ref() });
    let groups = first.into_iter().flat_map(Group::groups);
    let found = groups.into_iter().find_map(|group| Some((group.take()?, group)));
    let own = found.unwrap_or_else(make_record);
    world().with(|s| s.world.own_record[me] = Some(own));
    own.0
}

fn make_record() -> (&'static Record<Explore>, &'static RecordGroup) {
    let (group, newest, mistake) = world().with(|s| {
        s.world.singles_used += 1;
        (s.world.singles[s.world.singles_used - 1], s.world.newest_record, s.mistake)
    });
    let record = &group.entries()[0];
    if mistake != Mistake::UntakenRecord {
        group.forget(record);
    }
    let mut first = newest.load(Relaxed);
    loop {
        // SAFETY: null, or one of the groups, which are never freed.
        group.link(unsafe { first.as_ref() });
        match newest.compare_exchange(first, group.as_ptr(), Release, Relaxed) {
            Ok(_) => return (record, group),
            Err(now) => first = now,
        }
    }
}

pub(super) fn records() -> Option<&'static RecordGroup> {
    let (newest, mistake) = world().with(|s| (s.world.newest_record, s.mistake));
    // SAFETY: null, or one of the groups, which are never freed.
    let newest = unsafe { newest.load(Acquire).as_ref() }?;
    if mistake == Mistake::SkipsReader { newest.groups().nth(1) } else { Some(newest) }
}

pub(super) fn place() -> Option<(&'static RecordGroup, usize)> {
    let me = me();
    let (own, mistake) = world().with(|s| (s.world.own_record[me], s.mistake));
    let (record, group) = own?;
    let last = group.entries().len() - 1;
    Some((group, if mistake == Mistake::BlindVoucher { last } else { group.index_of(record)? }))
}

pub(super) fn clocks() -> &'static Clocks<Explore> {
    world().with(|s| s.world.clocks)
}

pub(super) fn cpu() -> u32 {
    let me = me();
    world().with(|s| s.world.cpus[me])
}

pub(super) fn set_cpu(cpu: u32) {
    let me = me();
    world().with(|s| s.world.cpus[me] = cpu);
}

/// The running thread ends, as far as its row and its record are concerned; what it does then, another thread
/// does.
pub(super) fn exit_thread() {
    let me = me();
    let (row, mistake, rows) = world().with(|s| (s.world.own_row[me].take(), s.mistake, s.world.rows));
    if let Some((row, linked)) = row {
        if mistake == Mistake::ExitEmptiesRow {
            rows[row].slots.iter().for_each(|slot| slot.store(0, Release));
        }
        if linked {
            // A release: the next owner comes after what this one did.
            world().with(|s| {
                s.drain(me);
                s.world.left_rows.push(row);
            });
        }
    }
    if let Some((record, group)) = world().with(|s| s.world.own_record[me].take()) {
        world().with(|s| s.world.any_left = true);
        group.give_back(record);
    }
}
