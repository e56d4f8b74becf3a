//! What outlives a simulation and is used again by the next one: stacks, queue nodes, the table and the rows of visible
//! readers, the records and clocks of reclamation, and the waiting array. It belongs to an OS thread. When that thread ends,
//! another OS thread takes it over.

use super::Sim;
use crate::words::Usize;
use corosensei::stack::DefaultStack;
use latchwork::machine::group::{Entry, GROUP};
use latchwork::machine::record::{Clocks, Record};
use latchwork::machine::{Group, QNode, ReaderRow, Word};
use std::cell::{Cell, RefCell};
use std::ptr::{null, null_mut};
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

/// What each thread has one of, side by side in groups, each of which is linked to the one before.
struct Roll<T: Entry<Sim>> {
    groups: Vec<&'static Group<Sim, T>>,
    /// How many of the groups are linked in this simulation.
    linked: usize,
    /// For each thread whether its entry is taken.
    taken: Vec<bool>,
    make: fn(u32) -> T,
}

impl<T: Entry<Sim>> Roll<T> {
    /// `make` makes the entry of a number, from 1 on.
    fn new(make: fn(u32) -> T) -> Self {
        Roll { groups: Vec::new(), linked: 0, taken: Vec::new(), make }
    }

    /// No thread has an entry. `clear` makes an entry idle.
    fn forget(&mut self, clear: impl Fn(&'static T)) {
        for group in &self.groups {
            group.entries().iter().for_each(&clear);
            group.forget(null());
        }
        self.linked = 0;
        self.taken.clear();
    }

    /// The group of a thread's entry, which is linked from now on, and whether the entry was taken; it counts as taken from now on.
    fn group_of(&mut self, thread: usize) -> (&'static Group<Sim, T>, bool) {
        while self.groups.len() <= thread / GROUP {
            let first = self.groups.len() * GROUP + 1;
            let entries =
                (first..first + GROUP).map(|number| (self.make)(number as u32)).collect::<Vec<_>>().leak();
            self.groups.push(Box::leak(Box::new(Group::new(entries, 0, self.groups.last().copied()))));
        }
        if self.taken.len() <= thread {
            self.taken.resize(thread + 1, false);
        }
        self.linked = self.linked.max(thread / GROUP + 1);
        (self.groups[thread / GROUP], std::mem::replace(&mut self.taken[thread], true))
    }

    /// The group that was linked last.
    fn newest(&self) -> Option<&'static Group<Sim, T>> {
        self.linked.checked_sub(1).map(|last| self.groups[last])
    }
}

/// A thread's entry of a roll, which is taken when it is first asked for.
fn own<T: Entry<Sim>>(thread: usize, roll: fn(&mut Resources) -> &mut Roll<T>) -> &'static T {
    let (group, taken) = with(|r| roll(r).group_of(thread));
    if !taken {
        // Simulated memory: others may run meanwhile.
        group.claim(thread % GROUP);
    }
    &group.entries()[thread % GROUP]
}

struct Resources {
    stacks: Vec<DefaultStack>,
    free: Vec<&'static QNode<Sim>>,
    /// The free nodes of each simulated thread.
    own: Vec<Vec<&'static QNode<Sim>>>,
    table: &'static Table,
    /// The rows of slots.
    rows: Roll<ReaderRow<Sim>>,
    /// The records. The first is that of the OS thread itself, outside of simulations.
    records: Roll<Record<Sim>>,
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
                rows: Roll::new(|_| ReaderRow::new()),
                records: Roll::new(|number| Record { number: Word::new(number), ..Record::new() }),
                clocks: Box::leak(Box::new(Clocks::new())),
                waiting: None,
            }
        })))
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
        r.rows.forget(|row| {
            row.slots.iter().for_each(|slot| slot.store(0, Relaxed));
            row.until_sample.store(0, Relaxed);
            row.unbiased.store(0, Relaxed);
        });
        // Clocks go on: they only grow.
        r.records.forget(Record::reset);
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
        r.records.forget(Record::reset);
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

/// The row of the simulated thread.
pub(crate) fn reader_row(thread: usize) -> &'static ReaderRow<Sim> {
    own(thread, |r| &mut r.rows)
}

pub(crate) fn reader_rows() -> Option<&'static Group<Sim, ReaderRow<Sim>>> {
    with(|r| r.rows.newest())
}

/// The record of the simulated thread `thread - 1`, or, if that is 0, of those outside.
pub(crate) fn record(thread: usize) -> &'static Record<Sim> {
    own(thread, |r| &mut r.records)
}

pub(crate) fn records() -> Option<&'static Group<Sim, Record<Sim>>> {
    with(|r| r.records.newest())
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
