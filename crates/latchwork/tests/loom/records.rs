//! The threads' records for reclamation, in the machine that explores.
//!
//! They are made when a thread first asks for one, and linked with the same instructions as in
//! production; those of threads that exit are reused when they are idle.

use super::machine::{Loom, Mistake, mistake, state, thread_number};
use latchwork::machine::record::{Clocks, Record, Records};
use loom::sync::atomic::{self, Ordering};
use std::cell::RefCell;
use std::ptr::null_mut;

/// The records of one execution.
pub struct All {
    newest: atomic::AtomicPtr<Record<Loom>>,
    /// Per thread: its record, once it has one.
    own: RefCell<Vec<*mut Record<Loom>>>,
    /// Those of threads that have exited.
    left: RefCell<Vec<*mut Record<Loom>>>,
    all: RefCell<Vec<*mut Record<Loom>>>,
    clocks: *mut Clocks<Loom>,
}

impl All {
    pub fn new(threads: usize) -> Self {
        All {
            newest: atomic::AtomicPtr::new(null_mut()),
            own: RefCell::new(vec![null_mut(); threads]),
            left: RefCell::default(),
            all: RefCell::default(),
            clocks: Box::into_raw(Box::new(Clocks::new())),
        }
    }

    fn own(&self) -> *mut Record<Loom> {
        let me = thread_number();
        let own = self.own.borrow()[me];
        if !own.is_null() {
            return own;
        }
        let left = self.left.borrow().clone();
        // SAFETY: records live until the end of the execution.
        let found = left.iter().find(|record| unsafe { (***record).is_idle() });
        // Another thread may have been faster while this one looked.
        let reused = found.and_then(|found| {
            let mut now = self.left.borrow_mut();
            now.iter().position(|record| record == found).map(|i| now.remove(i))
        });
        let record = reused.unwrap_or_else(|| {
            let record = Box::into_raw(Box::new(Record::new()));
            self.all.borrow_mut().push(record);
            self.link(record);
            record
        });
        self.own.borrow_mut()[me] = record;
        record
    }

    fn link(&self, record: *mut Record<Loom>) {
        let mut newest = self.newest.load(Ordering::Relaxed);
        loop {
            // SAFETY: as above; words are shared.
            latchwork::machine::Word::store(unsafe { &(*record).next }, newest, Ordering::Relaxed);
            match self.newest.compare_exchange(newest, record, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => newest = now,
            }
        }
    }

    /// The running thread exits: what is in its record stays there.
    pub fn leave(&self) {
        let record = std::mem::replace(&mut self.own.borrow_mut()[thread_number()], null_mut());
        if !record.is_null() {
            self.left.borrow_mut().push(record);
        }
    }

    /// The end of the execution, when all threads but the first have been joined.
    pub fn end(&self) {
        for record in self.all.borrow_mut().drain(..) {
            // SAFETY: leaked in `own`; the threads that used it are gone.
            let record = unsafe { &*record };
            assert!(record.is_idle(), "a reader is still in its record");
            let more: Vec<_> = record.hazards.blocks().skip(1).map(std::ptr::from_ref).collect();
            for block in more {
                // SAFETY: leaked by their owner, who is gone.
                drop(unsafe { Box::from_raw(block.cast_mut()) });
            }
            // SAFETY: as above.
            drop(unsafe { Box::from_raw(record.as_ptr()) });
        }
        // SAFETY: leaked in `new`.
        drop(unsafe { Box::from_raw(self.clocks) });
    }
}

// SAFETY: a thread has one record, linked before it gets it; it lives until the end of the execution.
unsafe impl Records for Loom {
    fn record() -> &'static Record<Self> {
        // SAFETY: as above.
        unsafe { &*super::machine::shared_state().records.own() }
    }

    fn records() -> Option<&'static Record<Self>> {
        let newest = super::machine::shared_state().records.newest.load(Ordering::Acquire);
        // SAFETY: as above.
        let newest = unsafe { newest.as_ref() }?;
        if mistake() == Mistake::SkipsReader { newest.all().nth(1) } else { Some(newest) }
    }

    fn clocks() -> &'static Clocks<Self> {
        // SAFETY: as above.
        state(|s| unsafe { &*s.records.clocks })
    }
}
