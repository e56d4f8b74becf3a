//! The maps over RCU: what `RcuMap` and `RcuTreeMap` do, over this machine ([`tables`](super::tables)).
//!
//! What is done to a key, and what each operation has seen, is kept as a history. At the end each key's history must be one
//! that a map can have which one thread at a time uses (linearizability; decided by search, after Wing and Gong, "Testing and
//! Verifying Concurrent Objects", 1993). Stores may stay in a thread's buffer after its operation is over, even the one that
//! releases the lock. So an operation has ended, for the others, when the buffer has been seen empty after it. The operations of one
//! thread keep their order.

use super::Mistake;
use super::client::{Client, Operation, What, operations};
use super::engine::{self, Engine};
use super::keep::Kept;
use super::machine::Explore;
use super::subject::{Subject, begin, check, here, hold, me, note, waiting};
use super::tables::{Element, Table};
use super::words::Usize;
use super::world;
use crate::rng::Rng;
use latchwork::machine::{Arith, Word};
use latchwork::map::growing::Change;
use latchwork::reclaim::Limit;
use latchwork::reclaim::rcu::RcuDomain;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::hash::Hasher;
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering::AcqRel;

/// Keys of a client: the first two have the same hash, and the third goes to another shard after a split.
const KEYS: u8 = 3;
/// Values of a client at most.
const OBJECTS: usize = 52;

/// What knows whether a value was dropped. It is never freed, so that a reader that comes too late sees it.
struct Object {
    dropped: Cell<bool>,
    number: usize,
}

/// A value of the map.
pub(super) struct Value(*const Object);

// SAFETY: the object is used by the threads of a schedule only, which run one at a time.
unsafe impl Send for Value {}
// SAFETY: as above.
unsafe impl Sync for Value {}

impl Value {
    fn object(&self) -> &Object {
        // SAFETY: in the arena, as long as the client runs.
        unsafe { &*self.0 }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        if self.object().dropped.replace(true)
            && let Some(engine) = engine::inside()
        {
            engine.fail(format!("value {} was dropped twice", self.object().number));
        }
    }
}

/// Few hashes.
#[derive(Default)]
pub(super) struct Few(u64);

impl Hasher for Few {
    fn write(&mut self, _: &[u8]) {}
    fn write_u8(&mut self, key: u8) {
        self.0 = u64::from(key) / 2;
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

type Found<'g> = Option<&'g Element>;

/// What was done to a key, by the numbers of values, and what was seen there.
#[derive(Copy, Clone, Debug)]
enum Done {
    /// Not yet.
    Open,
    /// It had this value.
    Found(Option<usize>),
    /// It had the first value, and got the second.
    Set(Option<usize>, usize),
    /// It had this value, and has none.
    Removed(Option<usize>),
    /// It did not have this value.
    Lacked(usize),
    /// It has none.
    Cleared,
}

impl Done {
    /// The key's value after it, if it can come after `value`.
    fn after(self, value: Option<usize>) -> Option<Option<usize>> {
        match self {
            Done::Found(seen) => (value == seen).then_some(value),
            Done::Set(seen, new) => (value == seen).then_some(Some(new)),
            Done::Removed(seen) => (value == seen).then_some(None),
            Done::Lacked(number) => (value != Some(number)).then_some(value),
            Done::Open | Done::Cleared => Some(None),
        }
    }
}

#[derive(Copy, Clone, Debug)]
struct Event {
    key: u8,
    thread: usize,
    done: Done,
    began: u32,
    /// When all threads could see it; `u32::MAX`: not yet.
    ended: u32,
}

/// Whether the operations, each at some moment between its beginning and its end, do in some order what was seen.
fn has_order(events: &[Event]) -> bool {
    assert!(events.len() < 64, "a bit for each");
    let all = (1u64 << events.len()) - 1;
    let (mut open, mut known) = (vec![(0u64, None)], HashSet::new());
    while let Some((past, value)) = open.pop() {
        if past == all {
            return true;
        }
        if !known.insert((past, value)) {
            continue;
        }
        let left = || (0..events.len()).filter(|at| past >> at & 1 == 0);
        // Only an operation can be next that began before each of the others had ended, and after those of its own thread.
        let first_end = left().map(|at| events[at].ended).min().expect("some are left");
        let is_first = |event: &Event| {
            left().all(|at| events[at].thread != event.thread || events[at].began >= event.began)
        };
        for at in left().filter(|at| events[*at].began <= first_end && is_first(&events[*at])) {
            if let Some(then) = events[at].done.after(value) {
                open.push((past | 1 << at, then));
            }
        }
    }
    false
}

pub(super) struct Map<T: Table> {
    domain: *mut RcuDomain<Explore>,
    table: *mut ManuallyDrop<T>,
    /// How many threads may still use the table.
    users: *mut Usize,
    objects: *mut Object,
    made: Cell<usize>,
    history: RefCell<Vec<Event>>,
    clock: Cell<u32>,
    _kept: Kept,
}

impl<T: Table> Subject for Map<T> {
    fn client(rng: &mut Rng) -> Client {
        let mut client = Client::empty(rng);
        client.cast(rng, T::OPERATIONS);
        for operation in client.operations.iter_mut().flatten() {
            operation.key = [0, 0, 0, 1, 2][rng.below(5) as usize];
        }
        client.units = [0, 0, 1, 2][rng.below(4) as usize];
        client.destroys = rng.below(4) == 0;
        client
    }

    fn another(_: &Client, rng: &mut Rng) -> Option<What> {
        Some(T::OPERATIONS[rng.below(T::OPERATIONS.len() as u64) as usize])
    }

    fn new(engine: &Engine, client: &Client) -> Self {
        let arena = engine.with(|s| s.arena.start());
        let domain = arena.cast::<RcuDomain<Explore>>();
        // The table comes after what coverage looks at: its words have addresses, which differ from run to run.
        let table = arena.wrapping_add(24 * 1024).cast::<ManuallyDrop<T>>();
        let users = arena.wrapping_add(32 * 1024).cast::<Usize>();
        assert!(engine::COVERED <= 24 * 1024 && size_of::<RcuDomain<Explore>>() <= engine::COVERED);
        assert!(size_of::<T>() <= 8 * 1024, "room for the table");
        let this = Map {
            domain,
            table,
            users,
            objects: arena.wrapping_add(40 * 1024).cast(),
            made: Cell::new(0),
            history: RefCell::default(),
            clock: Cell::new(0),
            _kept: Kept::begin(engine.with(|s| s.mistake) != Mistake::None),
        };
        engine.with(|s| {
            s.arena.label(domain.addr(), size_of::<RcuDomain<Explore>>(), "domain");
            s.arena.label(table.addr(), size_of::<T>(), "table");
            s.arena.label(users.addr(), size_of::<Usize>(), "users");
        });
        // SAFETY: within the arena, aligned, far enough from each other, and what was there before is over. The domain lives
        // longer than the table, as `after` drops it last.
        unsafe {
            domain.write(RcuDomain::new_in());
            table.write(ManuallyDrop::new(T::make(&*domain)));
            users.write(Usize::new(client.threads));
        }
        if client.units > 0 {
            this.domain().set_limit(Limit { objects: u64::from(client.units), bytes: 1 << 20 });
        }
        for key in T::OTHERS {
            this.update(key, 0, true);
        }
        // Two of the keys are there.
        for key in 0..2 {
            let done = this.update(key, 0, true);
            this.history.borrow_mut().push(Event { key, thread: 0, done, began: 0, ended: 0 });
        }
        this
    }

    fn run(&self, client: &Client, thread: usize) {
        for (number, operation) in operations(client, thread) {
            begin(number);
            note(|| format!("{:?} {}", operation.what, operation.key));
            self.operate(operation);
            note(|| format!("{:?} is over", operation.what));
        }
        if client.destroys {
            self.leave();
        }
        world::exit_thread();
    }

    fn after(&self, client: &Client) {
        if !client.destroys {
            self.every_key_is_what_it_was_last();
            // SAFETY: nobody uses it any more.
            unsafe { ManuallyDrop::drop(&mut *self.table) };
        }
        self.domain().barrier();
        let garbage = self.domain().garbage().objects;
        check(garbage == 0, || format!("{garbage} objects are garbage after a barrier, at the end"));
        for number in 0..self.made.get() {
            // SAFETY: written in `make`.
            let object = unsafe { &*self.objects.add(number) };
            check(object.dropped.get(), || format!("value {number} was never dropped"));
        }
        for key in 0..KEYS {
            let mut events = self.history.borrow().clone();
            events.retain(|event| event.key == key);
            check(has_order(&events), || {
                format!("no order of the operations on key {key} explains what they saw: {events:?}")
            });
        }
        // SAFETY: nobody uses it any more.
        unsafe { self.domain.drop_in_place() };
    }
}

impl<T: Table> Map<T> {
    fn domain(&self) -> &'static RcuDomain<Explore> {
        // SAFETY: written in `new`, and dropped by `after`.
        unsafe { &*self.domain }
    }

    fn table(&self) -> &T {
        // SAFETY: written in `new`, and dropped by the last user.
        unsafe { &*self.table }
    }

    /// The thread does not use the table any more. The last one ends it, while others may reclaim what was in it.
    fn leave(&self) {
        // SAFETY: written in `new`.
        if unsafe { &*self.users }.fetch_sub(1, AcqRel) == 1 {
            note(|| "ends the table".into());
            // SAFETY: no other thread uses it any more, and this happens once.
            waiting(|| unsafe { ManuallyDrop::drop(&mut *self.table) });
        }
        self.domain().collect();
    }

    fn make(&self) -> Value {
        let number = self.made.get();
        assert!(number < OBJECTS, "as many values as there can be operations");
        self.made.set(number + 1);
        let object = self.objects.wrapping_add(number);
        // SAFETY: within the arena, and nobody's yet.
        unsafe { object.write(Object { dropped: Cell::new(false), number }) };
        Value(object)
    }

    /// Sets a key to a new value, after some time under the lock. Unless it `inserts`, only if the key is there.
    fn update(&self, key: u8, how: u8, inserts: bool) -> Done {
        let mut done = Done::Open;
        self.table().update(key, |found| {
            let before = self.number(found);
            hold(how);
            if before.is_none() && !inserts {
                done = Done::Found(None);
                return Change::Keep;
            }
            let value = self.make();
            done = Done::Set(before, value.object().number);
            Change::Set(value)
        });
        done
    }

    /// The same by mistake: the key may change between the look and the update.
    fn tear(&self, key: u8, how: u8) -> Done {
        let before = self.number(self.table().find(&self.table().enter(), key));
        hold(how);
        match (before, self.update(key, 0, before.is_some())) {
            (Some(_), Done::Set(_, new)) => Done::Set(before, new),
            _ => Done::Found(before),
        }
    }

    /// The number of an element's value, which must be alive.
    fn number(&self, found: Found) -> Option<usize> {
        let object = found?.value.object();
        let (number, alive) = (object.number, !object.dropped.get());
        check(alive || engine::inside().is_none(), || {
            format!("thread {} reads value {number}, which was dropped", me())
        });
        Some(number)
    }

    /// A reader looks at an element for some time.
    fn look(&self, found: Found, how: u8) {
        let before = self.number(found);
        note(|| format!("reads {before:?}"));
        hold(how);
        let after = self.number(found);
        check(before == after, || format!("a reader has {after:?} in the place of {before:?}"));
    }

    /// An operation on a key begins. Returns where its event is.
    fn begins(&self, key: u8) -> usize {
        let (thread, now) = (me(), self.clock.get() + 1);
        self.clock.set(now + 1);
        let mut history = self.history.borrow_mut();
        for event in history.iter_mut().filter(|event| event.ended == u32::MAX) {
            let over = !matches!(event.done, Done::Open);
            if over && !here().with(|s| s.has_stores(event.thread)) {
                event.ended = now;
            }
        }
        history.push(Event { key, thread, done: Done::Open, began: now + 1, ended: u32::MAX });
        history.len() - 1
    }

    /// What came of it.
    fn ends(&self, event: usize, done: Done) {
        note(|| format!("{done:?}"));
        self.history.borrow_mut()[event].done = done;
    }

    /// What a walk has met. It may meet a key twice, if that was removed and inserted meanwhile, but no value.
    fn met(&self, events: [usize; KEYS as usize], met: &[(u8, usize)]) {
        for (key, event) in (0..KEYS).zip(events) {
            let mut values = met.iter().filter(|(of, _)| *of == key).map(|(_, value)| *value);
            self.ends(event, Done::Found(values.next()));
            for value in values {
                let first = self.history.borrow()[event];
                self.history.borrow_mut().push(Event { done: Done::Found(Some(value)), ..first });
            }
        }
        let different: HashSet<usize> = met.iter().map(|(_, value)| *value).collect();
        check(different.len() == met.len(), || format!("a walk has met an element twice: {met:?}"));
        let ascends = met.is_sorted_by(|one, next| one.0 < next.0);
        check(ascends || !T::SORTED, || format!("a walk does not ascend: {met:?}"));
    }

    fn every_key_is_what_it_was_last(&self) {
        let mut there = 0;
        for key in 0..KEYS {
            let event = self.begins(key);
            let section = self.table().enter();
            let last = self.number(self.table().find(&section, key));
            there += usize::from(last.is_some());
            self.ends(event, Done::Found(last));
        }
        let section = self.table().enter();
        there += T::OTHERS.filter(|key| self.table().find(&section, *key).is_some()).count();
        let count = self.table().count();
        check(count == there, || format!("{there} elements count as {count}"));
    }

    fn operate(&self, Operation { what, hold: how, key }: Operation) {
        let table = self.table();
        match what {
            What::Insert => {
                let event = self.begins(key);
                self.ends(event, waiting(|| self.update(key, 0, true)));
            }
            What::Alter => {
                let event = self.begins(key);
                let torn = here().with(|s| s.mistake) == Mistake::TornUpdate;
                let done = waiting(|| if torn { self.tear(key, how) } else { self.update(key, how, false) });
                self.ends(event, done);
            }
            What::Remove => {
                let event = self.begins(key);
                let mut before = None;
                waiting(|| {
                    table.update(key, |found| {
                        before = self.number(found);
                        Change::Remove
                    });
                });
                self.ends(event, Done::Removed(before));
            }
            What::RemoveFound => {
                table.throttle();
                let seen = self.begins(key);
                let section = table.enter();
                let found = table.find(&section, key);
                let number = self.number(found);
                self.ends(seen, Done::Found(number));
                hold(how);
                if let Some((node, number)) = found.zip(number) {
                    let event = self.begins(key);
                    let removed = waiting(|| table.remove_found(&section, node));
                    let done = if removed { Done::Removed(Some(number)) } else { Done::Lacked(number) };
                    self.ends(event, done);
                    self.look(found, 0);
                }
            }
            What::Walk => {
                let events = [0, 1, 2].map(|key| self.begins(key));
                let section = table.enter();
                let nodes: Vec<Found> = table.walk(&section).into_iter().map(Some).collect();
                let met = |found: &Found| Some((found.as_ref()?.key, self.number(*found)?));
                self.met(events, &nodes.iter().filter_map(met).collect::<Vec<_>>());
                nodes.into_iter().for_each(|found| self.look(found, how));
            }
            What::WalkByBuckets => {
                let events = [0, 1, 2].map(|key| self.begins(key));
                let (mut at, mut met) = (Some(0), Vec::new());
                while let Some(begin) = at {
                    let section = table.enter();
                    let (part, next) = table.part(&section, begin);
                    met.extend(part.iter().filter_map(|node| Some((node.key, self.number(Some(node))?))));
                    drop(part);
                    drop(section);
                    hold(how);
                    at = next;
                }
                self.met(events, &met);
            }
            What::Grow | What::Shrink | What::Split => waiting(|| table.reshape(what)),
            What::Clear => {
                let events = [0, 1, 2].map(|key| self.begins(key));
                waiting(|| table.clear());
                events.into_iter().for_each(|event| self.ends(event, Done::Cleared));
            }
            What::Collect => self.domain().collect(),
            What::Barrier => waiting(|| self.domain().barrier()),
            What::Exit => world::exit_thread(),
            _ => {
                let event = self.begins(key);
                let section = table.enter();
                let found = table.find(&section, key);
                self.ends(event, Done::Found(self.number(found)));
                self.look(found, how);
            }
        }
    }
}
