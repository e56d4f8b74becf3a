//! Strategies of reclamation.

use super::client::{Client, Operation, What, operations};
use super::engine::Engine;
use super::machine::Explore;
use super::subject::{Subject, begin, check, hold, me, note, waiting};
use super::words::Ptr;
use super::{engine, world};
use crate::rng::Rng;
use latchwork::machine::Word;
use latchwork::reclaim::{GracePeriod, Guard, Header, Limit, Reader, Reclaim, Retire};
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::AcqRel;

/// Objects of a client at most.
const OBJECTS: usize = 48;

/// What is retired. It is never freed, so that a reader that comes too late sees it.
#[repr(C, align(64))]
struct Object {
    header: Header,
    reclaimed: Cell<bool>,
    number: usize,
}

// SAFETY: the cell is used by the threads of a schedule only, which run one at a time.
unsafe impl Sync for Object {}
// SAFETY: `repr(C)`, and the header comes first.
unsafe impl Retire for Object {
    unsafe fn reclaim(this: *mut Self) {
        // SAFETY: in the arena, as long as the client runs.
        let object = unsafe { &*this };
        if object.reclaimed.replace(true)
            && let Some(engine) = engine::inside()
        {
            engine.fail(format!("object {} was reclaimed twice", object.number));
        }
    }
}

/// How a strategy waits for readers, if it can.
pub(super) trait Waits<D> {
    /// Returns `false` if it cannot.
    fn synchronize(domain: &D) -> bool;
}

/// By a grace period.
pub(super) struct Periods;
/// Not at all.
pub(super) struct Never;

impl<D: GracePeriod> Waits<D> for Periods {
    fn synchronize(domain: &D) -> bool {
        domain.synchronize();
        true
    }
}

impl<D> Waits<D> for Never {
    fn synchronize(_: &D) -> bool {
        false
    }
}

pub(super) struct Reclamation<D: Reclaim<Machine = Explore>, W> {
    /// Two domains, next to each other.
    domain: *mut D,
    root: *mut Ptr<Object>,
    objects: *mut Object,
    made: Cell<usize>,
    /// For each thread the objects that it has retired, a bit for each.
    retired: [Cell<u64>; engine::MAX_THREADS],
    waits: PhantomData<W>,
}

const OPERATIONS: [What; 13] = [
    What::Read,
    What::ReadNested,
    What::ReadElsewhere,
    What::Quiesce,
    What::Rest,
    What::Retire,
    What::Replace,
    What::Replace,
    What::ReplaceElsewhere,
    What::Synchronize,
    What::Collect,
    What::Barrier,
    What::Exit,
];

impl<D: Reclaim<Machine = Explore>, W: Waits<D>> Subject for Reclamation<D, W> {
    fn client(rng: &mut Rng) -> Client {
        let mut client = Client::empty(rng);
        client.cast(rng, &OPERATIONS);
        client.units = [0, 0, 1, 2][rng.below(4) as usize];
        client
    }

    fn another(_: &Client, rng: &mut Rng) -> Option<What> {
        Some(OPERATIONS[rng.below(OPERATIONS.len() as u64) as usize])
    }

    fn new(engine: &Engine, client: &Client) -> Self {
        let arena = engine.with(|s| s.arena.start());
        let (domain, root) = (arena.cast::<D>(), arena.wrapping_add(16384).cast::<Ptr<Object>>());
        assert!(2 * size_of::<D>() <= 16384, "room for two domains");
        let this = Reclamation {
            domain,
            root,
            objects: arena.wrapping_add(32768).cast(),
            made: Cell::new(0),
            retired: [const { Cell::new(0) }; engine::MAX_THREADS],
            waits: PhantomData,
        };
        engine.with(|s| {
            s.arena.label(domain.addr(), size_of::<D>(), "domain");
            s.arena.label(domain.wrapping_add(1).addr(), size_of::<D>(), "other domain");
            s.arena.label(root.addr(), size_of::<Ptr<Object>>(), "root");
            s.arena.label(this.objects.addr(), OBJECTS * size_of::<Object>(), "object");
        });
        // SAFETY: within the arena, aligned, far enough from each other, and what was there before is over.
        unsafe {
            domain.write(D::new_in());
            domain.add(1).write(D::new_in());
            root.write(Ptr::new(this.make()));
        }
        if client.units > 0 {
            let limit = Limit { objects: u64::from(client.units), bytes: 1 << 20 };
            this.domains().for_each(|domain| domain.set_limit(limit));
        }
        this
    }

    fn run(&self, client: &Client, thread: usize) {
        for (number, operation) in operations(client, thread) {
            begin(number);
            note(|| format!("{:?}", operation.what));
            self.operate(operation);
            note(|| format!("{:?} is over", operation.what));
        }
        world::exit_thread();
    }

    fn after(&self, _: &Client) {
        self.retire(self.domain(), self.root().swap(null_mut(), AcqRel));
        self.domains().for_each(D::barrier);
        let garbage: u64 = self.domains().map(|domain| domain.garbage().objects).sum();
        check(garbage == 0, || format!("{garbage} objects are garbage after a barrier, at the end"));
        for number in 0..self.made.get() {
            check(self.object(number).reclaimed.get(), || format!("object {number} was never reclaimed"));
        }
        // SAFETY: nobody uses it any more.
        unsafe {
            self.domain.drop_in_place();
            self.domain.add(1).drop_in_place();
        }
    }
}

impl<D: Reclaim<Machine = Explore>, W: Waits<D>> Reclamation<D, W> {
    fn domain(&self) -> &D {
        // SAFETY: written in `new`.
        unsafe { &*self.domain }
    }

    /// Another one of the same type.
    fn elsewhere(&self) -> &D {
        // SAFETY: written in `new`.
        unsafe { &*self.domain.add(1) }
    }

    /// Whether a guard of the one domain protects what is retired in the other.
    fn covered(&self) -> bool {
        let reader = self.domain().reader();
        let guard = reader.enter();
        self.elsewhere().covers(&guard)
    }

    fn domains(&self) -> impl Iterator<Item = &D> {
        [self.domain(), self.elsewhere()].into_iter()
    }

    fn root(&self) -> &Ptr<Object> {
        // SAFETY: written in `new`.
        unsafe { &*self.root }
    }

    fn object(&self, number: usize) -> &Object {
        // SAFETY: written in `make`.
        unsafe { &*self.objects.add(number) }
    }

    fn make(&self) -> *mut Object {
        let number = self.made.get();
        assert!(number < OBJECTS, "as many objects as there can be operations");
        self.made.set(number + 1);
        let object = self.objects.wrapping_add(number);
        // SAFETY: within the arena, and nobody's yet.
        unsafe {
            object.write(Object { header: Header::new(), reclaimed: Cell::new(false), number });
            D::note_new(&mut *object);
        }
        object
    }

    fn retire(&self, domain: &D, object: *mut Object) {
        // SAFETY: null, or made by `make`.
        let Some(number) = (unsafe { object.as_ref() }).map(|object| object.number) else { return };
        note(|| format!("retires object {number}"));
        // SAFETY: removed by the caller, and by nobody else.
        waiting(|| unsafe { domain.retire(object) });
        let mine = &self.retired[me()];
        mine.set(mine.get() | 1 << number);
    }

    /// A reader looks at an object that it has protected.
    fn look(&self, object: *mut Object, how: u8) {
        // SAFETY: null, or an object, which is never freed.
        let Some(object) = (unsafe { object.as_ref() }) else { return };
        note(|| format!("reads object {}", object.number));
        let look = || {
            let alive = !object.reclaimed.get();
            check(alive, || format!("thread {} reads object {}, which was reclaimed", me(), object.number));
        };
        look();
        hold(how);
        look();
    }

    fn operate(&self, Operation { what, hold: how, .. }: Operation) {
        let domain = self.domain();
        match what {
            What::ReadNested => {
                let reader = domain.reader();
                let guard = reader.enter();
                let object = guard.protect(0, self.root());
                drop(reader.enter());
                self.look(object, how);
            }
            What::Quiesce | What::Rest => {
                let mut reader = domain.reader();
                self.look(reader.enter().protect(0, self.root()), how);
                if what == What::Rest {
                    reader.offline(|| hold(how));
                } else {
                    reader.quiescent();
                }
                let guard = reader.enter();
                self.look(guard.protect(0, self.root()), how);
            }
            What::ReadElsewhere => {
                let reader = self.elsewhere().reader();
                let guard = reader.enter();
                // A guard that is for its own domain alone protects nothing here.
                if self.domains().all(|domain| domain.covers(&guard)) {
                    self.look(guard.protect(0, self.root()), how);
                }
            }
            What::Retire => self.retire(domain, self.root().swap(null_mut(), AcqRel)),
            What::Replace => self.retire(domain, self.root().swap(self.make(), AcqRel)),
            What::ReplaceElsewhere => {
                let domain = if self.covered() { self.elsewhere() } else { domain };
                self.retire(domain, self.root().swap(self.make(), AcqRel));
            }
            What::Synchronize => {
                let old = self.root().swap(self.make(), AcqRel);
                if !waiting(|| W::synchronize(domain)) {
                    self.retire(domain, old);
                // SAFETY: null, or an object, which is never freed.
                } else if let Some(object) = unsafe { old.as_ref() } {
                    note(|| format!("reclaims object {}", object.number));
                    object.reclaimed.set(true);
                }
            }
            What::Collect => domain.collect(),
            What::Barrier => {
                let mut mine = self.retired[me()].get();
                waiting(|| self.domains().for_each(D::barrier));
                while mine != 0 {
                    let number = mine.trailing_zeros() as usize;
                    mine &= mine - 1;
                    check(self.object(number).reclaimed.get(), || {
                        format!(
                            "object {number} is not reclaimed after a barrier of the thread that retired it"
                        )
                    });
                }
            }
            What::Exit => world::exit_thread(),
            _ => {
                let reader = domain.reader();
                let guard = reader.enter();
                self.look(guard.protect(0, self.root()), how);
            }
        }
    }
}
