//! The locks of a replay: this library's by name, and models of glibc's.

use latchwork::locks::condvar::RawCondvar;
use latchwork::locks::semaphore::RawSemaphore;
use latchwork::machine::{Arith, Machine, Word};
use latchwork_sim::Sim;
use latchwork_workloads::candidate::{Candidate, Kind};
use latchwork_workloads::copies::Copies;
use latchwork_workloads::lock::Lock;
use latchwork_workloads::registry::{self, Locks};
use std::sync::atomic::Ordering::*;

/// The name of the C library's locks in a trace, and in `--locks`.
pub const GLIBC: &str = "glibc";
/// The name of its mutex in the laboratory.
const GLIBC_MUTEX: &str = "glibc-futex";

/// Holds a lock until it is dropped.
pub trait Held {}
impl<T> Held for T {}

/// A lock of the simulated machine.
pub trait AnyLock {
    /// Acquires it for reading; alone, if it is a mutex.
    fn read(&self) -> Box<dyn Held + '_>;
    /// Acquires it alone.
    fn write(&self) -> Box<dyn Held + '_>;
    /// The same, if that is possible without waiting.
    fn try_write(&self) -> Option<Box<dyn Held + '_>>;
}

/// In lines of its own: what else shares a line must not depend on where the allocator puts it.
#[repr(align(128))]
struct Alone<L>(L);

impl<L: Lock> AnyLock for Alone<L> {
    fn read(&self) -> Box<dyn Held + '_> {
        Box::new(self.0.read())
    }
    fn write(&self) -> Box<dyn Held + '_> {
        Box::new(self.0.write())
    }
    fn try_write(&self) -> Option<Box<dyn Held + '_>> {
        Some(Box::new(self.0.try_write()?))
    }
}

/// Makes locks of one algorithm.
pub type Make = fn() -> Box<dyn AnyLock>;

fn make<L: Lock>() -> Box<dyn AnyLock> {
    Box::new(Alone(L::new()))
}

/// The algorithm with this name for mutexes, or for reader-writer locks. `None`: there is none.
pub fn find(name: &str, rwlock: bool) -> Option<Make> {
    struct Find<'a> {
        name: &'a str,
        kind: Kind,
        found: Option<Make>,
    }
    impl Locks<Sim> for Find<'_> {
        fn lock<L: Lock<Machine = Sim>>(&mut self, candidate: Candidate) {
            if candidate.name == self.name && candidate.kind == self.kind {
                self.found = Some(make::<L>);
            }
        }
        fn seqlock<C: Copies<Machine = Sim>>(&mut self, _: Candidate) {}
    }
    let (kind, name) = match (rwlock, name) {
        (true, GLIBC) => return Some(make::<GlibcRwLock>),
        (true, name) => (Kind::RwLock, name),
        (false, GLIBC) => (Kind::Mutex, GLIBC_MUTEX),
        (false, name) => (Kind::Mutex, name),
    };
    let mut find = Find { name, kind, found: None };
    registry::locks::<Sim>(&mut find);
    find.found
}

/// glibc's default reader-writer lock, simplified.
///
/// Source: glibc 2.36, `nptl/pthread_rwlock_common.c`, with `PTHREAD_RWLOCK_PREFER_READER_NP`. As there, a reader announces itself
/// with one atomic addition and enters unless a writer holds the lock, and a writer that leaves lets all readers in that
/// have come meanwhile. Simplified: writers do not hand the lock to each other, and there is one word to sleep on for readers and
/// one for writers.
pub struct GlibcRwLock {
    /// [`WRITER`], and twice the number of readers that are inside or wait.
    state: <Sim as Machine>::U32,
    /// Increased when a writer leaves.
    phase: <Sim as Machine>::U32,
    /// 1: a writer may be asleep.
    writers: <Sim as Machine>::U32,
}

const WRITER: u32 = 1;
const READER: u32 = 2;

/// Holds a [`GlibcRwLock`] for reading.
pub struct Reading<'a>(&'a GlibcRwLock);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let lock = self.0;
        if lock.state.fetch_sub(READER, AcqRel) == READER && lock.writers.swap(0, AcqRel) == 1 {
            Sim::wake(&raw const lock.writers, u32::MAX);
        }
    }
}

/// Holds a [`GlibcRwLock`] alone.
pub struct Writing<'a>(&'a GlibcRwLock);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let lock = self.0;
        let state = lock.state.fetch_sub(WRITER, AcqRel);
        if state >= READER {
            lock.phase.fetch_add(1, AcqRel);
            Sim::wake(&raw const lock.phase, u32::MAX);
        } else if lock.writers.swap(0, AcqRel) == 1 {
            Sim::wake(&raw const lock.writers, u32::MAX);
        }
    }
}

impl Lock for GlibcRwLock {
    type Machine = Sim;
    type Read<'a> = Reading<'a>;
    type Write<'a> = Writing<'a>;
    type Condvar = RawCondvar<Sim>;
    type Semaphore = RawSemaphore<Sim>;
    const SHARED: bool = true;

    fn new() -> Self {
        let word = <Sim as Machine>::U32::new;
        GlibcRwLock { state: word(0), phase: word(0), writers: word(0) }
    }

    fn read(&self) -> Reading<'_> {
        let phase = self.phase.load(Acquire);
        if self.state.fetch_add(READER, AcqRel) & WRITER != 0 {
            while self.phase.load(Acquire) == phase && self.state.load(Acquire) & WRITER != 0 {
                Sim::wait(&self.phase, phase, None);
            }
        }
        Reading(self)
    }

    fn write(&self) -> Writing<'_> {
        loop {
            if let Some(held) = self.try_write() {
                return held;
            }
            self.writers.store(1, SeqCst);
            if self.state.load(SeqCst) != 0 {
                Sim::wait(&self.writers, 1, None);
            }
        }
    }

    fn try_write(&self) -> Option<Writing<'_>> {
        self.state.compare_exchange(0, WRITER, AcqRel, Relaxed).ok()?;
        Some(Writing(self))
    }
}
