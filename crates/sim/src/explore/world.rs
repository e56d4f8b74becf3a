//! What the threads of a schedule have around them: queue nodes, the table and the rows of visible readers, the
//! waiting array and the records of reclamation. All of it is made once for each OS thread that explores, and put back
//! to its beginning for each schedule.

use super::engine::{MAX_THREADS, State, Surroundings, world};
use super::words::{Ptr, Usize};
use super::{Explore, Mistake};
use latchwork::machine::group::Entry;
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
    rows: Roll<ReaderRow<Explore>>,
    records: Roll<Record<Explore>>,
    clocks: &'static Clocks<Explore>,
    /// Which processor each thread is on.
    cpus: [u32; MAX_THREADS],
}

/// What each thread has one of.
struct Roll<T: Entry<Explore>> {
    /// Groups of one entry each, made for a thread that asks for one. The first so many are in use.
    singles: Vec<&'static Group<Explore, T>>,
    singles_used: usize,
    /// A group of entries for all threads.
    together: &'static Group<Explore, T>,
    newest: &'static Ptr<Group<Explore, T>>,
    /// Per thread: its entry, once it has one, and the group.
    own: [Option<(&'static T, &'static Group<Explore, T>)>; MAX_THREADS],
    /// Whether there can be an entry without an owner.
    any_left: bool,
}

impl<T: Entry<Explore>> Roll<T> {
    /// `make` makes the entry of a number.
    fn new(make: impl Fn(usize) -> T) -> Self {
        let group = |first: usize, count| leak(Group::new(leak_all(count, |i| make(first + i)), 0, None));
        Roll {
            singles: (0..ROWS).map(|i| group(i, 1)).collect(),
            singles_used: 0,
            together: group(ROWS, MAX_THREADS),
            newest: leak(Ptr::new(null_mut())),
            own: [None; MAX_THREADS],
            any_left: false,
        }
    }

    /// A schedule begins. `clear` makes an entry what it was at first; `grouped`: threads take entries of one group.
    fn reset(&mut self, grouped: bool, clear: impl Fn(&'static T)) {
        for group in self.groups() {
            group.entries().iter().for_each(|entry| {
                clear(entry);
                entry.left().store(0, Relaxed);
            });
            group.forget(std::ptr::null());
            group.link(None);
        }
        self.singles_used = 0;
        self.newest.store(if grouped { self.together.as_ptr() } else { null_mut() }, Relaxed);
        self.own = [None; MAX_THREADS];
        self.any_left = grouped;
    }

    /// The groups that may be in use.
    fn groups(&self) -> impl Iterator<Item = &'static Group<Explore, T>> {
        self.singles[..self.singles_used].iter().copied().chain([self.together])
    }

    fn entries(&self) -> impl Iterator<Item = &'static T> {
        self.groups().flat_map(Group::entries)
    }
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
        World {
            nodes: Vec::new(),
            nodes_used: 0,
            free: std::array::from_fn(|_| Vec::with_capacity(16)),
            nodes_out: 0,
            table: leak_all(READER_SLOTS, |_| Usize::new(0)),
            waiting: leak_all(MAX_THREADS * WAITING_ARRAY, |_| QNode::new()),
            rows: Roll::new(|_| ReaderRow::new()),
            records: Roll::new(record),
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
        self.rows.reset(false, |row| {
            row.slots.iter().for_each(|slot| slot.store(0, Relaxed));
            row.counts.iter().for_each(|count| count.store(0, Relaxed));
            row.until_sample.store(0, Relaxed);
            row.unbiased.store(0, Relaxed);
        });
        self.records.reset(grouped, |record| {
            record.reset();
            // Each thread counts as one that has been in a section before: others need a heavy fence on its behalf.
            record.section.store(0, Relaxed);
            record.pinned.store(0, Relaxed);
        });
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
        within(self.table) || self.rows.entries().any(|row| within(&row.slots))
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
                    self.rows.entries().enumerate().find_map(|(row, one)| {
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

/// The running thread's entry of a roll: its own, or one that was left to others, or a new one. With `untaken`, a new one
/// does not say that it is taken.
fn own<T: Entry<Explore>>(roll: fn(&mut World) -> &mut Roll<T>, untaken: Mistake) -> &'static T {
    let me = me();
    if let Some((own, _)) = with(|w| roll(w).own[me]) {
        return own;
    }
    let left = if with(|w| roll(w).any_left) { newest(roll).and_then(Group::take_idle) } else { None };
    let group = match left {
        Some(entry) => with(|w| roll(w).groups().find(|group| group.index_of(entry).is_some())),
        None => Some(make(roll, untaken)),
    };
    let group = group.expect("an entry is in a group");
    let own = left.unwrap_or(&group.entries()[0]);
    with(|w| roll(w).own[me] = Some((own, group)));
    own
}

/// A new group of one entry, linked and taken.
fn make<T: Entry<Explore>>(
    roll: fn(&mut World) -> &mut Roll<T>,
    untaken: Mistake,
) -> &'static Group<Explore, T> {
    let (group, newest) = with(|w| {
        let roll = roll(w);
        assert!(roll.singles_used < roll.singles.len(), "too many threads come and go");
        roll.singles_used += 1;
        (roll.singles[roll.singles_used - 1], roll.newest)
    });
    if world().with(|s| s.mistake) != untaken {
        group.forget(&group.entries()[0]);
    }
    let mut first = newest.load(Relaxed);
    loop {
        // SAFETY: null, or one of the groups, which are never freed.
        group.link(unsafe { first.as_ref() });
        match newest.compare_exchange(first, group.as_ptr(), Release, Relaxed) {
            Ok(_) => return group,
            Err(now) => first = now,
        }
    }
}

fn newest<T: Entry<Explore>>(roll: fn(&mut World) -> &mut Roll<T>) -> Option<&'static Group<Explore, T>> {
    let newest = with(|w| roll(w).newest);
    // SAFETY: null, or one of the groups, which are never freed.
    unsafe { newest.load(Acquire).as_ref() }
}

/// The running thread exits, as far as its entry of a roll is concerned.
fn leave<T: Entry<Explore>>(roll: fn(&mut World) -> &mut Roll<T>) {
    let me = me();
    let Some((entry, group)) = with(|w| roll(w).own[me].take()) else { return };
    with(|w| roll(w).any_left = true);
    if world().with(|s| s.mistake) == Mistake::EarlyReturn {
        group.give_back(entry)
    } else {
        group.leave(entry)
    }
}

fn rows(world: &mut World) -> &mut Roll<ReaderRow<Explore>> {
    &mut world.rows
}

fn roll_of_records(world: &mut World) -> &mut Roll<Record<Explore>> {
    &mut world.records
}

/// The running thread's row.
pub(super) fn reader_row() -> &'static ReaderRow<Explore> {
    own(rows, Mistake::UntakenRow)
}

pub(super) fn reader_rows() -> Option<&'static Group<Explore, ReaderRow<Explore>>> {
    newest(rows)
}

/// The running thread's record.
pub(super) fn own_record() -> &'static Record<Explore> {
    own(roll_of_records, Mistake::UntakenRecord)
}

pub(super) fn records() -> Option<&'static RecordGroup> {
    let newest = newest(roll_of_records)?;
    if world().with(|s| s.mistake) == Mistake::SkipsReader { newest.groups().nth(1) } else { Some(newest) }
}

pub(super) fn place() -> Option<(&'static RecordGroup, usize)> {
    let me = me();
    let (own, mistake) = world().with(|s| (of(s).records.own[me], s.mistake));
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
    leave(rows);
    leave(roll_of_records);
}
