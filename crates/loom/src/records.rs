//! What each thread has one of, on loom's machine: a record for reclamation, and a row of readers' slots.
//!
//! An entry is made when a thread first asks for one, in a group of its own; or all are made before, in one group. Entries
//! are linked, taken and left with the same instructions as in production. A thread that exits leaves its entry to others.
//!
//! Unless records are fresh, each thread counts as one that has been in a section before: it has issued the full fence of its first
//! one, and needs the heavy fence of others. (A group of all threads is for QSBR, whose readers issue full fences themselves.)

use super::machine::{Grouping, Loom, Mistake, mistake, state, thread_number};
use latchwork::machine::group::Entry;
use latchwork::machine::record::{Clocks, NEEDS_FULL_FENCE, Record, Records};
use latchwork::machine::{Group, Word};
use loom::sync::atomic::{self, Ordering};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::ptr::null_mut;

/// A thread's entry, and the group that it is in.
type Own<T> = (&'static T, &'static Group<Loom, T>);

/// The entries of one kind.
pub struct Roll<T: Entry<Loom>> {
    newest: atomic::AtomicPtr<Group<Loom, T>>,
    /// Per thread: its entry, once it has one, and the group.
    own: RefCell<Vec<Option<Own<T>>>>,
    /// Whether there can be an entry without an owner.
    any_left: Cell<bool>,
    all: RefCell<Vec<*mut Group<Loom, T>>>,
    make: fn(u32) -> T,
}

impl<T: Entry<Loom>> Roll<T> {
    /// For so many threads. Each entry is made with its number.
    pub fn new(threads: usize, grouping: Grouping, make: fn(u32) -> T) -> Self {
        let grouped = grouping == Grouping::Together;
        let group = grouped.then(|| Self::group(make, 1..threads as u32 + 1, 0));
        Roll {
            newest: atomic::AtomicPtr::new(group.map_or(null_mut(), Group::as_ptr)),
            own: RefCell::new(vec![None; threads]),
            any_left: Cell::new(grouped),
            all: RefCell::new(group.into_iter().map(Group::as_ptr).collect()),
            make,
        }
    }

    /// A group of entries with these numbers.
    fn group(make: fn(u32) -> T, numbers: Range<u32>, taken: u32) -> &'static Group<Loom, T> {
        let entries: Box<[_]> = numbers.map(make).collect();
        Box::leak(Box::new(Group::new(Box::leak(entries), taken, None)))
    }

    pub fn newest(&self) -> Option<&'static Group<Loom, T>> {
        // SAFETY: groups live until the end of the execution.
        unsafe { self.newest.load(Ordering::Acquire).as_ref() }
    }

    /// The running thread's entry: its own, or one that was left to others, or a new one. With `untaken`, a new one does not
    /// say that it is taken. `reuse` is done to one that was left.
    pub fn own(&self, untaken: Mistake, reuse: impl FnOnce(&T)) -> &'static T {
        let me = thread_number();
        if let Some((own, _)) = self.own.borrow()[me] {
            return own;
        }
        let left = self.any_left.get().then(|| self.newest()).flatten().and_then(Group::take_idle);
        let (own, group) = match left {
            Some(entry) => {
                reuse(entry);
                let all = self.all.borrow();
                // SAFETY: groups live until the end of the execution.
                let mut groups = all.iter().map(|group| -> &'static Group<Loom, T> { unsafe { &**group } });
                (entry, groups.find(|group| group.index_of(entry).is_some()).expect("it is in a group"))
            }
            None => self.make(untaken),
        };
        self.own.borrow_mut()[me] = Some((own, group));
        own
    }

    fn make(&self, untaken: Mistake) -> Own<T> {
        let number = 1 + self.all.borrow().len() as u32;
        let group = Self::group(self.make, number..number + 1, u32::from(mistake() != untaken));
        self.all.borrow_mut().push(group.as_ptr());
        let mut newest = self.newest.load(Ordering::Relaxed);
        loop {
            // SAFETY: groups live until the end of the execution.
            group.link(unsafe { newest.as_ref() });
            match self.newest.compare_exchange(newest, group.as_ptr(), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return (&group.entries()[0], group),
                Err(now) => newest = now,
            }
        }
    }

    /// The running thread exits.
    pub fn leave(&self) {
        let own = self.own.borrow_mut()[thread_number()].take();
        if let Some((entry, group)) = own {
            self.any_left.set(true);
            if mistake() == Mistake::EarlyReturn { group.give_back(entry) } else { group.leave(entry) }
        }
    }

    /// Whether there is such an entry.
    pub fn any(&self, is_such: impl Fn(&T) -> bool) -> bool {
        // SAFETY: groups live until the end of the execution.
        self.all.borrow().iter().any(|group| unsafe { &**group }.entries().iter().any(&is_such))
    }

    /// The end of the execution, when all threads but the first have been joined. `last` is done to each entry.
    pub fn end(&self, last: impl Fn(&'static T)) {
        // Taken out first: a look at a slot may ask whether it is one of a row.
        let all = std::mem::take(&mut *self.all.borrow_mut());
        for group in all {
            // SAFETY: leaked in `group`; the threads that used it are gone.
            let group: &'static Group<Loom, T> = unsafe { &*group };
            let entries: *const [T] = group.entries();
            group.entries().iter().for_each(|entry| {
                assert!(entry.is_idle(), "a reader is still in its record or row");
                last(entry);
            });
            // SAFETY: leaked in `group`; the threads that used them are gone.
            drop(unsafe { (Box::from_raw(group.as_ptr()), Box::from_raw(entries.cast_mut())) });
        }
    }
}

/// The record of a thread that has not been in a section.
fn fresh_record(number: u32) -> Record<Loom> {
    Record { number: Word::new(number), ..Record::new() }
}

/// The record of a thread that has been in a section.
fn used_record(number: u32) -> Record<Loom> {
    Record { section: Word::new(0), pinned: Word::new(0), ..fresh_record(number) }
}

/// The records of one execution.
pub struct All {
    roll: Roll<Record<Loom>>,
    grouping: Grouping,
    clocks: *mut Clocks<Loom>,
}

impl All {
    pub fn new(threads: usize, grouping: Grouping) -> Self {
        let fresh = grouping == Grouping::Fresh;
        let roll = Roll::new(threads, grouping, if fresh { fresh_record } else { used_record });
        All { roll, grouping, clocks: Box::into_raw(Box::new(Clocks::new())) }
    }

    pub fn leave(&self) {
        self.roll.leave();
    }

    pub fn end(&self) {
        self.roll.end(|record| {
            let more: Vec<_> = record.hazards.blocks().skip(1).map(std::ptr::from_ref).collect();
            for block in more {
                // SAFETY: leaked by the record's owner, a thread that is gone.
                drop(unsafe { Box::from_raw(block.cast_mut()) });
            }
        });
        // SAFETY: leaked in `new`; the threads that used it are gone.
        drop(unsafe { Box::from_raw(self.clocks) });
    }
}

// SAFETY: a thread has one record, which is linked before the thread gets it, and lives until the end of the execution.
unsafe impl Records for Loom {
    unsafe fn record() -> &'static Record<Self> {
        let state = super::machine::shared_state();
        let all = state.records();
        all.roll.own(Mistake::UntakenRecord, |record| {
            // As `take` of the native records does.
            let section = if all.grouping == Grouping::Fresh { NEEDS_FULL_FENCE } else { 0 };
            for (word, value) in [(&record.section, section), (&record.pinned, section), (&record.online, 0)]
            {
                word.store(value, Ordering::Release);
            }
            if all.grouping == Grouping::Apart {
                atomic::fence(Ordering::SeqCst);
            }
        })
    }

    unsafe fn records() -> Option<&'static Group<Self, Record<Self>>> {
        let state = super::machine::shared_state();
        let all = state.records();
        if all.grouping == Grouping::Apart {
            // A thread whose record the caller does not find has its first section later: it sees what the caller has done.
            let newest = &all.roll.newest;
            let mut seen = newest.load(Ordering::Relaxed);
            while let Err(now) = newest.compare_exchange(seen, seen, Ordering::AcqRel, Ordering::Relaxed) {
                seen = now;
            }
        }
        let newest = all.roll.newest()?;
        if mistake() == Mistake::SkipsReader {
            // The newest group but the caller's own, which has no reader that counts.
            let own = all.roll.own.borrow()[thread_number()];
            let is_own =
                |group: &&'static Group<Self, _>| own.is_some_and(|(_, own)| std::ptr::eq(*group, own));
            return newest.groups().skip_while(is_own).nth(1);
        }
        Some(newest)
    }

    fn place(_: &'static Record<Self>) -> Option<(&'static Group<Self, Record<Self>>, usize)> {
        let own = super::machine::shared_state().records().roll.own.borrow()[thread_number()];
        let (record, group) = own.expect("it has one");
        let last = group.entries().len() - 1;
        let place = group.index_of(record).expect("of this group");
        Some((group, if mistake() == Mistake::BlindVoucher { last } else { place }))
    }

    unsafe fn clocks() -> &'static Clocks<Self> {
        // SAFETY: clocks live until the end of the execution.
        state(|s| unsafe { &*s.records().clocks })
    }
}
