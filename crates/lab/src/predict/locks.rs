//! The locks of a replay: this library's by name, and models of glibc's.

use latchwork_sim::Sim;
use latchwork_workloads::candidate::{Candidate, Kind};
use latchwork_workloads::copies::Copies;
use latchwork_workloads::lock::Lock;
use latchwork_workloads::registry::{self, Locks};

/// The name of the C library's locks in a trace, and in `--locks`.
pub const GLIBC: &str = "glibc";
/// The names of the models of its locks in the laboratory.
const GLIBC_MUTEX: &str = "glibc-futex";
const GLIBC_RWLOCK: &str = "glibc-rw-model";

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
        (true, GLIBC) => (Kind::RwLock, GLIBC_RWLOCK),
        (true, name) => (Kind::RwLock, name),
        (false, GLIBC) => (Kind::Mutex, GLIBC_MUTEX),
        (false, name) => (Kind::Mutex, name),
    };
    let mut find = Find { name, kind, found: None };
    registry::locks::<Sim>(&mut find);
    find.found
}
