//! An address space as the kernel's mmap_lock guards it, reduced to which thread touches which page.
//!
//! Each thread has a mapping of its own (as in will-it-scale), found through a tree of two levels
//! that all share. Mapping and unmapping are writes, a page fault is a read.

use crate::data::{Cell, Line, cells};
use crate::lock::Lock;
use crate::stage::Stage;
use crate::thread::Thread;
use latchwork::machine::Machine;
use latchwork::map::array::Array;

/// Children of the tree's root.
const INNER: usize = 16;

/// An address space.
pub(super) struct AddressSpace<M: Machine, L> {
    lock: Line<L>,
    /// Mappings, and pages in all of them.
    totals: Line<[Cell<M>; 2]>,
    /// Pages of each thread's mapping; 0 is none.
    inner: Box<[Line<Cell<M>>]>,
    leaves: Array<Cell<M>>,
}

impl<M: Machine, L: Lock<Machine = M>> AddressSpace<M, L> {
    pub fn new(threads: usize) -> Self {
        AddressSpace {
            lock: Line(L::new()),
            totals: Line([Cell::new(0), Cell::new(0)]),
            inner: (0..INNER).map(|_| Line(Cell::new(0))).collect(),
            leaves: cells(threads),
        }
    }

    /// Maps `pages` pages for the thread, which has no mapping.
    pub fn map<S: Stage<Machine = M>>(&self, thread: &mut Thread<S>, pages: u64, hold: u64) {
        let held = thread.write(&*self.lock);
        thread.work(hold);
        self.inner[thread.index % INNER].add(1);
        self.leaves[thread.index].set(pages);
        self.totals[0].add(1);
        self.totals[1].add(pages);
        drop(held);
    }

    /// Unmaps the thread's mapping.
    pub fn unmap<S: Stage<Machine = M>>(&self, thread: &mut Thread<S>, hold: u64) {
        let held = thread.write(&*self.lock);
        thread.work(hold);
        let pages = self.leaves[thread.index].get();
        self.inner[thread.index % INNER].add(u64::MAX);
        self.leaves[thread.index].set(0);
        self.totals[0].add(u64::MAX);
        self.totals[1].add(pages.wrapping_neg());
        drop(held);
    }

    /// Faults page `page` of the thread's mapping in.
    pub fn fault<S: Stage<Machine = M>>(&self, thread: &mut Thread<S>, page: u64, hold: u64) {
        let held = thread.read(&*self.lock);
        let mappings = self.totals[0].get();
        let below = self.inner[thread.index % INNER].get();
        let pages = self.leaves[thread.index].get();
        thread.work(hold);
        let still = self.totals[0].get();
        drop(held);
        if page >= pages || below == 0 || mappings < below {
            thread.fail(|| format!("page {page} of {pages}, in {below} of {mappings} mappings"));
        }
        if still != mappings {
            thread.fail(|| format!("{mappings} mappings became {still} during a fault"));
        }
    }

    /// The mappings that are left, if all counts agree.
    pub fn check(&self) -> Result<u64, String> {
        let mappings = self.totals[0].get();
        let inner: u64 = self.inner.iter().map(|inner| inner.get()).sum();
        let pages: u64 = self.leaves.iter().map(Cell::get).sum();
        if inner != mappings || pages != self.totals[1].get() {
            return Err(format!(
                "{mappings} mappings of {} pages were counted, and {inner} of {pages} are there",
                self.totals[1].get()
            ));
        }
        Ok(mappings)
    }
}
