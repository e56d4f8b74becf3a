//! Memory reuse: a lock that is destroyed, and its memory used again, as soon as its last holder has released it.
//!
//! An object with a reference count that its own lock guards does that. The thread that takes the last reference away
//! frees the object after its own release has returned, while other threads may not have returned from their releases yet.
//! The memory is a page in an [`Arena`], so every late access is noticed; or it becomes a new lock at once, which a late
//! access damages.

use crate::arena::Arena;
use crate::lock::{Access, Class, Lock, Way};
use crate::run::Subject;
use crate::worker::{Count, Crew, Doing, Worker};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex};

/// What is on a page behind the lock, from the next multiple of 8 bytes on. Plain data under the lock.
#[repr(C)]
struct Fields {
    /// References left.
    references: u64,
    /// The writer's place plus one; 0 outside of write sections.
    writer: u64,
    changes: u64,
    changes_again: u64,
}

/// A reference to an object: to its lock, at the start of a page, and to what the lock guards.
#[derive(Copy, Clone)]
struct Reference {
    page: *mut u8,
    lock: *const dyn Lock,
    fields: *mut Fields,
}

// SAFETY: the object is only used under its lock, until the last reference is gone.
unsafe impl Send for Reference {}

/// The subject.
pub struct Reuse {
    class: &'static Class,
    arena: Arena,
    /// References that no thread is using.
    idle: Mutex<Vec<Reference>>,
    made: AtomicU64,
}

/// References to an object at first.
const REFERENCES: u64 = 3;

impl Reuse {
    /// Objects for `threads` threads, with locks of the class.
    pub fn new(class: &'static Class, threads: usize) -> Self {
        assert!(Self::size(class) <= 4096, "an object is larger than its page");
        let objects = threads / REFERENCES as usize + 1;
        let this = Reuse {
            class,
            arena: Arena::new(4 * objects + 64),
            idle: Mutex::default(),
            made: AtomicU64::new(0),
        };
        for _ in 0..objects {
            this.make(this.arena.allocate());
        }
        this
    }

    /// Bytes of an object.
    fn size(class: &Class) -> usize {
        class.bytes.next_multiple_of(align_of::<Fields>()) + size_of::<Fields>()
    }

    /// The object in `page`.
    fn object(&self, page: *mut u8) -> Reference {
        let fields = page.wrapping_add(Self::size(self.class) - size_of::<Fields>());
        Reference { page, lock: self.class.at(page), fields: fields.cast() }
    }

    /// Makes a new object in `page`.
    fn make(&self, page: *mut u8) {
        let object = self.object(page);
        // SAFETY: the page is large enough (`new` looked), aligned, and the caller's.
        unsafe {
            self.class.write(page);
            object.fields.write(Fields { references: REFERENCES, writer: 0, changes: 0, changes_again: 0 });
        }
        self.made.fetch_add(1, Relaxed);
        self.idle.lock().unwrap().extend([object; REFERENCES as usize]);
    }

    /// The last reference is gone, and the release has returned.
    fn destroy(&self, object: Reference, worker: &mut Worker) {
        worker.count(Count::Destroyed);
        let page = object.page;
        if worker.random.once_in(4) {
            // SAFETY: the caller had the last reference.
            unsafe { page.write_bytes(0, Self::size(self.class)) };
            self.make(page);
        } else {
            // SAFETY: the caller had the last reference.
            unsafe { self.arena.free(page) };
            self.make(self.arena.allocate());
        }
    }

    /// A section. With `leave` it takes the caller's reference away. Returns how many were left.
    fn section(
        &self,
        object: Reference,
        worker: &mut Worker,
        access: Access,
        leave: bool,
    ) -> Result<Option<u64>, String> {
        // SAFETY: the caller has a reference, so the object lives; the lock is the part of it that
        // may be used without holding the lock.
        let lock = unsafe { &*object.lock };
        let object = object.fields;
        let way = if leave { Way::Wait } else { worker.way() };
        let Some(token) = worker.acquire(lock, access, way) else { return Ok(None) };
        let me = worker.place() as u64 + 1;
        // SAFETY: the lock is held; volatile, because whether that means anything is the question.
        let result = unsafe {
            let field = |which: *mut u64| which.read_volatile();
            let writer = &raw mut (*object).writer;
            let (changes, again) = (&raw mut (*object).changes, &raw mut (*object).changes_again);
            let before = field(writer);
            let equal = field(changes) == field(again);
            let mut inside = before;
            if access == Access::Write {
                writer.write_volatile(me);
                changes.write_volatile(field(changes) + 1);
                worker.dwell();
                again.write_volatile(field(again) + 1);
                inside = field(writer);
                writer.write_volatile(0);
            }
            let references = &raw mut (*object).references;
            if leave {
                references.write_volatile(field(references).wrapping_sub(1));
            }
            let wrong = before != 0 || !equal || access == Access::Write && inside != me;
            let left = field(references);
            if wrong || left > REFERENCES {
                Err(format!("a holder was not alone: writer {before}, then {inside}; {left} references"))
            } else {
                Ok(Some(left))
            }
        };
        // SAFETY: acquired above.
        unsafe { worker.release(lock, token) };
        result
    }

    /// Gives the caller's reference up; the last one destroys the object.
    fn leave(&self, object: Reference, worker: &mut Worker) -> Result<(), String> {
        if self.class.readers && worker.random.once_in(2) {
            // A reader that finds itself the last one, because the others wrote that they left.
            for _ in 0..64 {
                if self.section(object, worker, Access::Read, false)? == Some(1) {
                    self.destroy(object, worker);
                    return Ok(());
                }
                worker.rest();
            }
        }
        if self.section(object, worker, Access::Write, true)? == Some(0) {
            self.destroy(object, worker);
        }
        Ok(())
    }
}

impl Subject for Reuse {
    fn operate(self: &Arc<Self>, worker: &mut Worker) -> Result<(), String> {
        let object = {
            let mut idle = self.idle.lock().unwrap();
            if idle.is_empty() {
                return Ok(()); // other threads have all references
            }
            let index = worker.random.below(idle.len() as u64) as usize;
            idle.swap_remove(index)
        };
        for _ in 0..worker.random.below(4) {
            let read = self.class.readers && worker.random.once_in(2);
            self.section(object, worker, if read { Access::Read } else { Access::Write }, false)?;
        }
        self.leave(object, worker)?;
        worker.doing(Doing::Elsewhere);
        Ok(())
    }

    fn balance(&self, crew: &Crew) -> Result<(), String> {
        let idle = self.idle.lock().unwrap();
        for object in idle.iter() {
            // SAFETY: a reference that nobody is using; so the object lives, and all have left.
            let (lock, references) = unsafe { (&*object.lock, (*object.fields).references) };
            let have = idle.iter().filter(|other| other.page == object.page).count() as u64;
            if lock.is_locked() || references != have {
                return Err(format!(
                    "a lock whose holders have all left is {}; it counts {references} references of {have}",
                    if lock.is_locked() { "held" } else { "free" }
                ));
            }
        }
        let (made, destroyed) = (self.made.load(Relaxed), crew.total(Count::Destroyed));
        let live: std::collections::HashSet<_> = idle.iter().map(|object| object.page.addr()).collect();
        if made != destroyed + live.len() as u64 {
            return Err(format!("{made} locks made, {destroyed} destroyed, {} left", live.len()));
        }
        Ok(())
    }

    fn describe(&self) -> Vec<String> {
        // References in use are not listed anywhere; their pages are those that are not free.
        let line = |page: *mut u8| {
            // SAFETY: a page in use holds an object.
            let lock = unsafe { &*self.class.at(page) };
            let held = if lock.is_locked() { "held" } else { "free" };
            format!("lock {page:p} {held}; memory: {}", lock.words())
        };
        self.arena.used().into_iter().map(line).collect()
    }
}
