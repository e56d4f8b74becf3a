//! The threads' records for reclamation, on loom's machine.
//!
//! A record is made when a thread first asks for one, in a group of its own; or all are made before, in one group. Records
//! are linked and taken with the same instructions as in production. A thread that exits gives its record back, and
//! another thread may take it.
//!
//! Unless records are fresh, each thread counts as one that has been in a section before: it has issued the full fence of its first
//! one, and needs the heavy fence of others.

use super::machine::{Grouping, Loom, Mistake, mistake, state, thread_number};
use latchwork::machine::record::{Clocks, NEEDS_FULL_FENCE, Record, Records};
use latchwork::machine::{Group, Word};
use loom::sync::atomic::{self, Ordering};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::ptr::null_mut;

type Own = &'static Record<Loom>;
type One = Group<Loom, Record<Loom>>;

/// The records of one execution.
pub struct All {
    newest: atomic::AtomicPtr<One>,
    /// Per thread: its record, once it has one, and the group.
    own: RefCell<Vec<Option<(Own, &'static One)>>>,
    /// What the word of a thread's sections is at first.
    resting: u64,
    /// Whether there can be a record without an owner.
    any_left: Cell<bool>,
    all: RefCell<Vec<*mut One>>,
    clocks: *mut Clocks<Loom>,
}

/// A group of records with these numbers.
fn group(numbers: Range<u32>, taken: u32, resting: u64) -> &'static One {
    let word = || Word::new(resting);
    let record =
        |number| Record { number: Word::new(number), section: word(), pinned: word(), ..Record::new() };
    let records: Box<[_]> = numbers.map(record).collect();
    Box::leak(Box::new(Group::new(Box::leak(records), taken, None)))
}

impl All {
    pub fn new(threads: usize, grouping: Grouping) -> Self {
        let grouped = grouping == Grouping::Together;
        let resting = if grouping == Grouping::Fresh { NEEDS_FULL_FENCE } else { 0 };
        let group = grouped.then(|| group(1..threads as u32 + 1, 0, resting));
        All {
            newest: atomic::AtomicPtr::new(group.map_or(null_mut(), One::as_ptr)),
            own: RefCell::new(vec![None; threads]),
            resting,
            any_left: Cell::new(grouped),
            all: RefCell::new(group.into_iter().map(One::as_ptr).collect()),
            clocks: Box::into_raw(Box::new(Clocks::new())),
        }
    }

    fn newest(&self) -> Option<&'static One> {
        // SAFETY: groups live until the end of the execution.
        unsafe { self.newest.load(Ordering::Acquire).as_ref() }
    }

    fn own(&self) -> Own {
        let me = thread_number();
        if let Some((own, _)) = self.own.borrow()[me] {
            return own;
        }
        // First look for a record that was given back, if there can be one.
        let groups = self.any_left.get().then(|| self.newest().into_iter().flat_map(Group::groups));
        let found = groups.into_iter().flatten().find_map(|group| Some((group.take()?, group)));
        if let Some((record, _)) = found {
            // As `take` of the native records does.
            let resting = self.resting;
            for (word, value) in [(&record.section, resting), (&record.pinned, resting), (&record.online, 0)]
            {
                word.store(value, Ordering::Release);
            }
        }
        if found.is_some() && self.resting == 0 {
            atomic::fence(Ordering::SeqCst);
        }
        let own = found.unwrap_or_else(|| self.make());
        self.own.borrow_mut()[me] = Some(own);
        own.0
    }

    fn make(&self) -> (Own, &'static One) {
        let number = 1 + self.all.borrow().len() as u32;
        let taken = u32::from(mistake() != Mistake::UntakenRecord);
        let group = group(number..number + 1, taken, self.resting);
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

    /// The running thread exits. It keeps a record that is in use.
    pub fn leave(&self) {
        let own = self.own.borrow_mut()[thread_number()].take();
        if let Some((record, group)) = own
            && (mistake() == Mistake::EarlyReturn || record.is_idle())
        {
            self.any_left.set(true);
            group.give_back(record);
        }
    }

    /// The end of the execution, when all threads but the first have been joined.
    pub fn end(&self) {
        for group in self.all.borrow_mut().drain(..) {
            // SAFETY: leaked in `make`; the threads that used it are gone.
            let group: &'static One = unsafe { &*group };
            let records: *const [Record<Loom>] = group.entries();
            // SAFETY: leaked in `group`; the threads that used them are gone.
            for record in unsafe { &*records } {
                assert!(record.is_idle(), "a reader is still in its record");
                let more: Vec<_> = record.hazards.blocks().skip(1).map(std::ptr::from_ref).collect();
                for block in more {
                    // SAFETY: leaked by the record's owner, a thread that is gone.
                    drop(unsafe { Box::from_raw(block.cast_mut()) });
                }
            }
            // SAFETY: leaked in `group`; the threads that used them are gone.
            drop(unsafe { (Box::from_raw(group.as_ptr()), Box::from_raw(records.cast_mut())) });
        }
        // SAFETY: leaked in `new`; the threads that used it are gone.
        drop(unsafe { Box::from_raw(self.clocks) });
    }
}

// SAFETY: a thread has one record, which is linked before the thread gets it, and lives until the end of the execution.
unsafe impl Records for Loom {
    unsafe fn record() -> &'static Record<Self> {
        super::machine::shared_state().records().own()
    }

    unsafe fn records() -> Option<&'static One> {
        let state = super::machine::shared_state();
        let all = state.records();
        if all.resting == 0 {
            // A thread whose record the caller does not find has its first section later: it sees what the caller has done.
            let newest = &all.newest;
            let mut seen = newest.load(Ordering::Relaxed);
            while let Err(now) = newest.compare_exchange(seen, seen, Ordering::AcqRel, Ordering::Relaxed) {
                seen = now;
            }
        }
        let newest = all.newest()?;
        if mistake() == Mistake::SkipsReader {
            // The newest group that is not the caller's own, which has no reader that counts.
            let own = all.own.borrow()[thread_number()];
            let is_own = |group: &&One| own.is_some_and(|(_, own)| std::ptr::eq(*group, own));
            return newest.groups().skip_while(is_own).nth(1);
        }
        Some(newest)
    }

    fn place(_: Own) -> Option<(&'static One, usize)> {
        let own = super::machine::shared_state().records().own.borrow()[thread_number()];
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
