//! Copies: what a sequence lock promises its readers, which do not hold it.
//!
//! Every copy is of one moment. The copies of a thread, and of the threads that replace it, never go back in time. A
//! thread's own write is in its next copy. In the end no write is missing.

use crate::chaos::beside;
use crate::lock::words;
use crate::run::Subject;
use crate::worker::{Count, Crew, Doing, Worker};
use latchwork::locks::mutex::RawMutex;
use latchwork::locks::seqlock::SeqLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};

/// Two cache lines and a bit: enough to be held up in the middle of.
pub const WORDS: usize = 18;

/// Words that are copied. Each word says which write it is of.
pub type Copy = [usize; WORDS];

/// A sequence lock under torture, with its words.
pub trait Copied: Send + Sync {
    /// A copy.
    fn read(&self) -> Copy;
    /// A copy, unless a writer is at work.
    fn try_read(&self) -> Option<Copy>;
    /// Changes the words; calls `change` once.
    fn write(&self, change: &mut dyn FnMut(&mut Copy));
    /// The memory of the lock and the words as it is now.
    fn words(&self) -> String;
}

/// A type of such locks.
pub trait MadeCopied: Copied + Sized + 'static {
    /// A lock with words of zero.
    fn new() -> Self;
}

/// Makes a lock with words of zero.
pub type Make = fn() -> Box<dyn Copied>;

impl<L: RawMutex> MadeCopied for SeqLock<L, WORDS> {
    fn new() -> Self {
        SeqLock::new_in()
    }
}

impl<L: RawMutex> Copied for SeqLock<L, WORDS> {
    fn read(&self) -> Copy {
        SeqLock::read(self)
    }
    fn try_read(&self) -> Option<Copy> {
        SeqLock::try_read(self)
    }
    fn write(&self, change: &mut dyn FnMut(&mut Copy)) {
        SeqLock::write(self, change);
    }
    fn words(&self) -> String {
        words(self)
    }
}

/// The subject.
pub struct Copies {
    make: Make,
    copied: Box<dyn Copied>,
    /// For each place, the newest write of which it has had a copy. Only the thread in that place writes the entry, with a
    /// plain store: an atomic addition would create the order that the lock must create.
    seen: Box<[AtomicUsize]>,
    /// One operation in so many writes.
    writes: u64,
}

/// A word of the write with this number.
fn payload(version: usize, index: usize) -> usize {
    if index == 0 { version } else { (version + index).wrapping_mul(0x9E37_79B9_7F4A_7C15) }
}

/// Makes it one of write `version`.
fn fill(copy: &mut Copy, version: usize) {
    *copy = std::array::from_fn(|index| payload(version, index));
}

/// The number of the write that a copy is of.
fn version(copy: &Copy) -> Result<usize, String> {
    let version = copy[0];
    match (1..WORDS).find(|index| copy[*index] != payload(version, *index)) {
        None => Ok(version),
        Some(index) => Err(format!(
            "a copy is of two moments: word {index} beside version {version} is {:#x}, not {:#x}",
            copy[index],
            payload(version, index)
        )),
    }
}

impl Copies {
    /// Words for `places` threads. One in `writes` of their operations is a write.
    pub fn new(make: Make, places: usize, writes: u64) -> Self {
        let copied = make();
        copied.write(&mut |copy| fill(copy, 0));
        Copies { make, copied, seen: (0..places).map(|_| AtomicUsize::new(0)).collect(), writes }
    }

    fn look(&self, worker: &Worker, copy: &Copy) -> Result<(), String> {
        let (version, seen) = (version(copy)?, &self.seen[worker.place()]);
        let last = seen.load(Relaxed);
        if version < last {
            return Err(format!("time went back: after version {last}, a copy of version {version}"));
        }
        seen.store(version, Relaxed);
        Ok(())
    }

    fn read(&self, worker: &mut Worker) -> Result<(), String> {
        let copy = if worker.random.once_in(4) {
            worker.doing(Doing::Tries);
            self.copied.try_read()
        } else {
            let start = worker.doing(Doing::WaitsToRead);
            let copy = self.copied.read();
            worker.waited(Count::LongestRead, start);
            Some(copy)
        };
        worker.doing(Doing::Elsewhere);
        worker.count(if copy.is_some() { Count::Reads } else { Count::Refused });
        copy.map_or(Ok(()), |copy| self.look(worker, &copy))
    }

    fn write(&self, worker: &mut Worker) -> Result<(), String> {
        let start = worker.doing(Doing::WaitsToWrite);
        let mut before = Ok(0);
        self.copied.write(&mut |copy| {
            worker.waited(Count::LongestWrite, start);
            worker.doing(Doing::Writes);
            before = version(copy);
            worker.dwell();
            fill(copy, copy[0] + 1);
        });
        worker.doing(Doing::Elsewhere);
        worker.count(Count::Writes);
        let own = before? + 1;
        self.seen[worker.place()].fetch_max(own, Relaxed);
        self.look(worker, &self.copied.read())
    }
}

impl Subject for Copies {
    fn operate(self: &Arc<Self>, worker: &mut Worker) -> Result<(), String> {
        if worker.random.once_in(self.writes) { self.write(worker) } else { self.read(worker) }
    }

    fn balance(&self, crew: &Crew) -> Result<(), String> {
        let Some(copy) = self.copied.try_read() else {
            return Err("there is no copy to be had when every thread has left".to_owned());
        };
        let (writes, versions) = (crew.total(Count::Writes), version(&copy)? as u64);
        if versions != writes {
            return Err(format!("updates were lost: {writes} writes left {versions} versions"));
        }
        Ok(())
    }

    fn describe(&self) -> Vec<String> {
        vec![format!("memory: {}", self.copied.words())]
    }

    fn works_in_child(&self) -> bool {
        let copied = (self.make)();
        copied.write(&mut |copy| fill(copy, 1));
        let add = || (0..50).for_each(|_| copied.write(&mut |copy| fill(copy, copy[0] + 1)));
        beside(add, add);
        version(&copied.read()) == Ok(101)
    }
}
