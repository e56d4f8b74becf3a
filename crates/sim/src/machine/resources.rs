//! What outlives a simulation and is used again by the next one: stacks, queue nodes, the table and the rows of visible
//! readers, the records and clocks of reclamation, and the waiting array. It belongs to an OS thread. When that thread ends,
//! another OS thread takes it over.

use super::Sim;
use crate::words::Usize;
use corosensei::stack::DefaultStack;
use latchwork::machine::group::GROUP;
use latchwork::machine::record::{Clocks, Record};
use latchwork::machine::{Group, QNode, ReaderRow, Word};
use std::cell::{Cell, RefCell};
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of a coroutine's stack. Only what is touched takes memory.
const STACK: usize = 256 * 1024;

/// Slots in the table of visible readers, as many as on the native machine.
const VISIBLE_READERS: usize = 4096;

/// Nodes in the waiting array, as many as on the native machine.
const WAITING_ARRAY: usize = 1024;

#[repr(align(128))]
struct Table([Usize; VISIBLE_READERS]);

/// A node in a pair of lines of its own. On the native machine the nodes of a thread lie side by side. Here it would depend
/// on what ran before which nodes are neighbours.
#[repr(align(128))]
struct Node(QNode<Sim>);

/// Rows of slots made at a time, side by side.
const ROWS: usize = 128;

struct Resources {
    stacks: Vec<DefaultStack>,
    free: Vec<&'static QNode<Sim>>,
    /// The free nodes of each simulated thread.
    own: Vec<Vec<&'static QNode<Sim>>>,
    table: &'static Table,
    /// The rows of slots, and for each simulated thread whether it has its own.
    rows: Vec<&'static [ReaderRow<Sim>]>,
    linked: Vec<bool>,
    newest: Option<&'static ReaderRow<Sim>>,
    /// Groups of records, each linked to the one before, and how many of them are linked in this simulation;
    /// for each thread whether its record is taken. The first is that of the OS thread itself, outside of
    /// simulations.
    records: Vec<&'static Group<Sim, Record<Sim>>>,
    groups: usize,
    recorded: Vec<bool>,
    clocks: &'static Clocks<Sim>,
    /// Made when it is first used.
    waiting: Option<&'static [QNode<Sim>]>,
}

/// What ended OS threads have left.
static LEFT: Mutex<Vec<Resources>> = Mutex::new(Vec::new());

impl Resources {
    fn get() -> Owner {
        let left = LEFT.lock().ok().and_then(|mut left| left.pop());
        Owner(Some(left.unwrap_or_else(|| {
            Resources {
                stacks: Vec::new(),
                free: Vec::new(),
                own: Vec::new(),
                // Made in place: it is large for a stack.
                table: Box::leak(
                    (0..VISIBLE_READERS)
                        .map(|_| Usize::new(0))
                        .collect::<Vec<_>>()
                        .try_into()
                        .map(|slots: Box<[Usize; VISIBLE_READERS]>| Box::new(Table(*slots)))
                        .unwrap_or_else(|_| unreachable!("made with that length")),
                ),
                rows: Vec::new(),
                linked: Vec::new(),
                newest: None,
                records: Vec::new(),
                recorded: Vec::new(),
                groups: 0,
                clocks: Box::leak(Box::new(Clocks::new())),
                waiting: None,
            }
        })))
    }
}

impl Resources {
    /// Nobody reads anything. Clocks go on: they only grow.
    fn forget_records(&mut self) {
        for group in &self.records {
            group.entries().iter().for_each(Record::reset);
            group.forget(std::ptr::null());
        }
        self.recorded.clear();
        self.groups = 0;
    }
}

struct Owner(Option<Resources>);

impl Drop for Owner {
    fn drop(&mut self) {
        if let (Some(resources), Ok(mut left)) = (self.0.take(), LEFT.lock()) {
            left.push(resources);
        }
    }
}

std::thread_local! {
    /// Queue nodes that are in use, and the most since it was last asked.
    static NODES: Cell<(i64, i64)> = const { Cell::new((0, 0)) };
    static RESOURCES: RefCell<Owner> = RefCell::new(Resources::get());
}

fn with<R>(f: impl FnOnce(&mut Resources) -> R) -> R {
    RESOURCES.with_borrow_mut(|owner| f(owner.0.as_mut().expect("taken only when it is dropped")))
}

/// A simulation begins: nobody is in the table, nobody has a row, nobody waits in the array. (One that
/// failed may have left them there.)
pub(crate) fn begin() {
    with(|r| {
        r.table.0.iter().for_each(|slot| slot.store(0, Relaxed));
        for row in r.rows.iter().flat_map(|block| block.iter()) {
            row.slots.iter().for_each(|slot| slot.store(0, Relaxed));
            row.until_sample.store(0, Relaxed);
            row.unbiased.store(0, Relaxed);
        }
        r.linked.clear();
        r.newest = None;
        r.forget_records();
        for node in r.waiting.into_iter().flatten() {
            node.links.iter().for_each(|link| link.store(null_mut(), Relaxed));
            node.words.iter().for_each(|word| word.store(0, Relaxed));
        }
    });
}

/// A simulation has ended.
pub(crate) fn end() {
    with(|r| {
        for list in &mut r.own {
            r.free.append(list);
        }
        // A later drop of a structure that was used in the simulation must not wait for threads that are gone.
        r.forget_records();
    });
}

pub(crate) fn take_stack() -> std::io::Result<DefaultStack> {
    with(|r| r.stacks.pop()).map_or_else(|| DefaultStack::new(STACK), Ok)
}

pub(crate) fn give_stack(stack: DefaultStack) {
    with(|r| r.stacks.push(stack));
}

pub(crate) fn visible_readers() -> &'static [Usize] {
    with(|r| &r.table.0)
}

/// The row of the simulated thread, which is linked when it first asks.
pub(crate) fn reader_row(thread: usize) -> &'static ReaderRow<Sim> {
    let (row, linked) = with(|r| {
        while r.rows.len() <= thread / ROWS {
            let block: Vec<_> = (0..ROWS).map(|_| ReaderRow::new()).collect();
            r.rows.push(Vec::leak(block));
        }
        if r.linked.len() <= thread {
            r.linked.resize(thread + 1, false);
        }
        (&r.rows[thread / ROWS][thread % ROWS], r.linked[thread])
    });
    let mut linked = linked;
    while !linked {
        let newest = reader_rows();
        // Simulated memory: others may run, and link their rows, meanwhile.
        row.link(newest);
        linked = with(|r| {
            let free = r.newest.map(ReaderRow::as_ptr) == newest.map(ReaderRow::as_ptr);
            if free {
                r.newest = Some(row);
                r.linked[thread] = true;
            }
            free
        });
    }
    row
}

/// The row that was linked last.
pub(crate) fn reader_rows() -> Option<&'static ReaderRow<Sim>> {
    with(|r| r.newest)
}

/// The record of the simulated thread `thread - 1`, or, if that is 0, of those outside; linked when it
/// is first asked for.
pub(crate) fn record(thread: usize) -> &'static Record<Sim> {
    let (group, known) = with(|r| {
        while r.records.len() <= thread / GROUP {
            let first = r.records.len() * GROUP + 1;
            let entries = (first..first + GROUP)
                .map(|number| Record { number: Word::new(number as u32), ..Record::new() })
                .collect::<Vec<_>>()
                .leak();
            let next = r.records.last().copied();
            r.records.push(Box::leak(Box::new(Group::new(entries, 0, next))));
        }
        if r.recorded.len() <= thread {
            r.recorded.resize(thread + 1, false);
        }
        r.groups = r.groups.max(thread / GROUP + 1);
        (r.records[thread / GROUP], std::mem::replace(&mut r.recorded[thread], true))
    });
    if !known {
        // Simulated memory: others may run meanwhile.
        group.claim(thread % GROUP);
    }
    &group.entries()[thread % GROUP]
}

/// The group of records that was linked last.
pub(crate) fn records() -> Option<&'static Group<Sim, Record<Sim>>> {
    with(|r| r.groups.checked_sub(1).map(|last| r.records[last]))
}

pub(crate) fn clocks() -> &'static Clocks<Sim> {
    with(|r| r.clocks)
}

/// So many more queue nodes are in use.
pub(crate) fn note_nodes(more: i64) {
    let (now, most) = NODES.get();
    NODES.set((now + more, most.max(now + more)));
}

/// Queue nodes in use on this OS thread: those of the pool, and all that were ever made elsewhere. The difference
/// between two calls is what an acquisition between them takes.
pub fn nodes() -> i64 {
    NODES.get().0
}

/// The most [`nodes`] at a time since this was last asked.
pub fn most_nodes() -> i64 {
    let (now, most) = NODES.get();
    NODES.set((now, now));
    most
}

/// A node that nobody uses yet.
fn spare_node() -> QNode<Sim> {
    let before = NODES.get();
    let node = QNode::new();
    NODES.set(before);
    node
}

pub(crate) fn waiting_array() -> &'static [QNode<Sim>] {
    with(|r| {
        *r.waiting.get_or_insert_with(|| {
            // From an even line on, in every run: lines come in pairs.
            let nodes: &'static [QNode<Sim>] =
                (0..=WAITING_ARRAY).map(|_| spare_node()).collect::<Vec<_>>().leak();
            let odd = nodes.as_ptr().addr() / 64 % 2;
            &nodes[odd..odd + WAITING_ARRAY]
        })
    })
}

/// A free node: the last one that `thread` released, or any.
pub(crate) fn acquire_node(thread: usize) -> &'static QNode<Sim> {
    note_nodes(1);
    with(|r| {
        let own = r.own.get_mut(thread).and_then(Vec::pop);
        own.or_else(|| r.free.pop()).unwrap_or_else(|| &Box::leak(Box::new(Node(spare_node()))).0)
    })
}

pub(crate) fn release_node(thread: usize, node: &'static QNode<Sim>) {
    note_nodes(-1);
    with(|r| {
        if thread >= r.own.len() {
            r.own.resize_with(thread + 1, Vec::new);
        }
        r.own[thread].push(node);
    });
}
