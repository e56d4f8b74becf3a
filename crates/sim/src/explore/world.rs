//! What the threads of a schedule have around them: queue nodes, the table and the rows of visible readers, the
//! waiting array and the records of reclamation. All of it is made once for each OS thread that explores, and put back
//! to its beginning for each schedule.

use super::engine::{MAX_THREADS, State, Surroundings, world};
use super::words::{Ptr, Usize};
use super::{Explore, Mistake};
use latchwork::machine::record::{Clocks, Record, STEP};
use latchwork::machine::{Group, QNode, ReaderRow, Word};
use std::any::Any;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Slots in the table of visible readers.
const READER_SLOTS: usize = 4;
/// Nodes in the waiting array.
const WAITING_ARRAY: usize = 4;
/// Rows and records: one for each thread, and for those that exit and come back.
const ROWS: usize = 24;

type RecordGroup = Group<Explore, Record<Explore>>;

pub(super) struct World {
    nodes: Vec<&'static QNode<Explore>>,
    nodes_used: usize,
    free: [Vec<&'static QNode<Explore>>; MAX_THREADS],
    nodes_out: i32,
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
    /// Which processor each thread is on.
    cpus: [u32; MAX_THREADS],
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
            cpus: [0; MAX_THREADS],
        }
    }
}

impl Surroundings for World {
    fn reset(&mut self, grouped: bool) {
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
            row.until_sample.store(0, Relaxed);
            row.unbiased.store(0, Relaxed);
        }
        self.rows_used = 0;
        self.newest_row.store(null_mut(), Relaxed);
        self.own_row = [None; MAX_THREADS];
        self.left_rows.clear();
        for group in self.singles[..self.singles_used].iter().chain([&self.together]) {
            for record in group.entries() {
                record.reset();
                // Each thread counts as one that has been in a section before: others need a heavy fence on its behalf.
                record.section.store(0, Relaxed);
                record.pinned.store(0, Relaxed);
            }
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
        self.cpus = std::array::from_fn(|thread| thread as u32);
    }

    fn is_reader_slot(&self, address: usize) -> bool {
        let within = |slots: &[Usize]| {
            let range = slots.as_ptr_range();
            (range.start.addr()..range.end.addr()).contains(&address)
        };
        within(self.table) || self.rows.iter().any(|row| within(&row.slots))
    }

    fn name(&self, address: usize) -> Option<String> {
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

/// The world that the engine of this OS thread was made with.
fn of(state: &mut State) -> &mut World {
    let surroundings: &mut dyn Any = &mut *state.surroundings;
    surroundings.downcast_mut().expect("every engine is made with a World")
}

/// Looks at or changes the world, under the conditions of [`Engine::with`](super::engine::Engine::with).
fn with<R>(f: impl FnOnce(&mut World) -> R) -> R {
    world().with(|s| f(of(s)))
}

/// How many queue nodes are in use.
pub(super) fn nodes_out() -> i32 {
    with(|w| w.nodes_out)
}

fn me() -> usize {
    world().with(|s| s.running)
}

pub(super) fn acquire_node() -> &'static QNode<Explore> {
    let me = me();
    world().with(|s| {
        let mistake = s.mistake;
        let w = of(s);
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
        of(s).nodes_out -= 1;
        if s.mistake != Mistake::NodeTooEarly {
            of(s).free[me].push(node);
        }
    });
}

pub(super) fn visible_readers() -> &'static [Usize] {
    with(|w| w.table)
}

pub(super) fn waiting_array() -> &'static [QNode<Explore>] {
    let me = me();
    world().with(|s| {
        let first = if s.mistake == Mistake::PrivateArray { me * WAITING_ARRAY } else { 0 };
        &of(s).waiting[first..first + WAITING_ARRAY]
    })
}

/// The running thread's row: its own, or one that was left behind and is empty, or a new one.
pub(super) fn reader_row() -> &'static ReaderRow<Explore> {
    let me = me();
    let (row, linked) = match with(|w| w.own_row[me]) {
        Some((row, linked)) => (row, linked),
        None => {
            let (rows, left) = with(|w| (w.rows, w.left_rows.clone()));
            // Takes it before it looks: others may take it, read and leave it again meanwhile.
            let take = |row: &usize| {
                with(|w| {
                    let at = w.left_rows.iter().position(|left| left == row);
                    at.map(|at| w.left_rows.remove(at)).is_some()
                })
            };
            let empty = left.into_iter().find(|row| {
                let taken = take(row);
                if taken && !rows[*row].is_empty() {
                    with(|w| w.left_rows.push(*row));
                    return false;
                }
                taken
            });
            let own = with(|w| {
                let own = empty.map_or((w.rows_used, false), |row| (row, true));
                w.rows_used += usize::from(empty.is_none());
                w.own_row[me] = Some(own);
                own
            });
            assert!(own.0 < ROWS, "too many threads come and go");
            own
        }
    };
    let (rows, newest, mistake) = world().with(|s| (of(s).rows, of(s).newest_row, s.mistake));
    let row_now = &rows[row];
    if linked || mistake == Mistake::LateRow && row_now.is_empty() {
        return row_now;
    }
    with(|w| w.own_row[me] = Some((row, true)));
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
    let newest = with(|w| w.newest_row);
    // SAFETY: null, or one of the rows, which are never freed.
    unsafe { newest.load(Acquire).as_ref() }
}

/// The running thread's record.
pub(super) fn own_record() -> &'static Record<Explore> {
    let me = me();
    if let Some((own, _)) = with(|w| w.own_record[me]) {
        return own;
    }
    let newest = with(|w| w.any_left.then_some(w.newest_record));
    // SAFETY: null, or one of the groups, which are never freed.
    let first = newest.and_then(|newest| unsafe { newest.load(Acquire).as_ref() });
    let groups = first.into_iter().flat_map(Group::groups);
    let found = groups.into_iter().find_map(|group| Some((group.take()?, group)));
    let own = found.unwrap_or_else(make_record);
    with(|w| w.own_record[me] = Some(own));
    own.0
}

fn make_record() -> (&'static Record<Explore>, &'static RecordGroup) {
    let (group, newest, mistake) = world().with(|s| {
        let mistake = s.mistake;
        let w = of(s);
        w.singles_used += 1;
        (w.singles[w.singles_used - 1], w.newest_record, mistake)
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
    let (newest, mistake) = world().with(|s| (of(s).newest_record, s.mistake));
    // SAFETY: null, or one of the groups, which are never freed.
    let newest = unsafe { newest.load(Acquire).as_ref() }?;
    if mistake == Mistake::SkipsReader { newest.groups().nth(1) } else { Some(newest) }
}

pub(super) fn place() -> Option<(&'static RecordGroup, usize)> {
    let me = me();
    let (own, mistake) = world().with(|s| (of(s).own_record[me], s.mistake));
    let (record, group) = own?;
    let last = group.entries().len() - 1;
    Some((group, if mistake == Mistake::BlindVoucher { last } else { group.index_of(record)? }))
}

pub(super) fn clocks() -> &'static Clocks<Explore> {
    with(|w| w.clocks)
}

pub(super) fn cpu() -> u32 {
    let me = me();
    with(|w| w.cpus[me])
}

pub(super) fn set_cpu(cpu: u32) {
    let me = me();
    with(|w| w.cpus[me] = cpu);
}

/// The running thread ends, as far as its row and its record are concerned; what it does then, another thread
/// does.
pub(super) fn exit_thread() {
    let me = me();
    let (row, mistake, rows) = world().with(|s| (of(s).own_row[me].take(), s.mistake, of(s).rows));
    if let Some((row, linked)) = row {
        if mistake == Mistake::ExitEmptiesRow {
            rows[row].slots.iter().for_each(|slot| slot.store(0, Release));
        }
        if linked {
            // A release: the next owner comes after what this one did.
            world().with(|s| {
                s.drain(me);
                of(s).left_rows.push(row);
            });
        }
    }
    if let Some((record, group)) = with(|w| w.own_record[me].take()) {
        with(|w| w.any_left = true);
        group.give_back(record);
    }
}
