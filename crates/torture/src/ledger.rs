//! Exclusion, lost updates, torn reads: books that stay right only if the lock excludes.

use crate::chaos::beside;
use crate::lock::{Access, Class, Lock, Token, Way};
use crate::run::Subject;
use crate::worker::{Count, Crew, Doing, Worker};
use latchwork::machine::{Deadline, Machine, Native};
use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// What a lock protects. All of it is plain data.
#[repr(C, align(64))]
struct Page {
    /// The writer's place plus one; 0 outside of write sections.
    writer: u64,
    /// Write sections so far.
    version: u64,
    /// What belongs to the version, over more than one cache line.
    payload: [u64; 12],
}

/// A lock and its page.
pub(crate) struct Book {
    lock: Box<dyn Lock>,
    page: UnsafeCell<Page>,
    /// Write sections by place.
    by_place: Vec<UnsafeCell<u64>>,
    readers: AtomicU32,
    /// The place plus one of the upgradable reader in its section; 0 outside of such sections.
    upgradable: UnsafeCell<u64>,
}

// SAFETY: the page is only used by the lock's holders, through volatile accesses; whether the lock
// keeps them apart is what is being tested.
unsafe impl Sync for Book {}

/// How the books are used.
#[derive(Copy, Clone, Debug)]
pub struct Habits {
    /// How many there are.
    pub books: usize,
    /// One access in so many is a write, if there are readers.
    pub writes: u64,
    /// Almost every acquisition has a deadline, and sections are long enough for most of them to give up.
    pub impatient: bool,
}

/// The subject: one book or several, and how they are used.
pub struct Ledger {
    class: &'static Class,
    books: Vec<Book>,
    habits: Habits,
    /// Most readers that were inside one book at a time.
    pub(crate) company: Arc<AtomicU64>,
    handed_over: AtomicU64,
}

fn payload(version: u64, index: usize) -> u64 {
    (version + index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl Ledger {
    /// Books for `places` threads, each with a lock of the class.
    pub fn new(class: &'static Class, places: usize, habits: Habits) -> Self {
        let book = || Book {
            lock: class.make(),
            page: UnsafeCell::new(Page {
                writer: 0,
                version: 0,
                payload: std::array::from_fn(|index| payload(0, index)),
            }),
            by_place: (0..places).map(|_| UnsafeCell::new(0)).collect(),
            readers: AtomicU32::new(0),
            upgradable: UnsafeCell::new(0),
        };
        Ledger {
            class,
            books: (0..habits.books).map(|_| book()).collect(),
            habits,
            company: Arc::default(),
            handed_over: AtomicU64::new(0),
        }
    }

    /// Where the most readers seen together will be found.
    pub fn company(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.company)
    }

    fn section(&self, book: &Book, access: Access, worker: &mut Worker) -> Result<(), String> {
        // The count of readers is atomic, and its fences could hide what the lock fails to order.
        let counted = self.class.readers && worker.random.once_in(2);
        match access {
            Access::Read | Access::Upgradable => {
                if access == Access::Upgradable {
                    book.mark_upgradable(0, worker.place() as u64 + 1)?;
                }
                if counted {
                    let readers = book.readers.fetch_add(1, Relaxed) + 1;
                    if u64::from(readers) > self.company.load(Relaxed) {
                        self.company.fetch_max(u64::from(readers), Relaxed);
                    }
                }
                let result = book.read(worker);
                if counted {
                    book.readers.fetch_sub(1, Relaxed);
                }
                if access == Access::Upgradable {
                    book.mark_upgradable(worker.place() as u64 + 1, 0)?;
                }
                result
            }
            Access::Write => {
                book.write(worker)?;
                match book.readers.load(Relaxed) {
                    readers if counted && readers > 0 => {
                        Err(format!("a writer was inside with {readers} readers"))
                    }
                    _ => Ok(()),
                }
            }
        }
    }
}

impl Book {
    /// One of the page's words.
    fn word(&self, index: usize) -> *mut u64 {
        // SAFETY: the page is 14 words in a row.
        unsafe { self.page.get().cast::<u64>().add(index) }
    }

    fn get(&self, index: usize) -> u64 {
        // SAFETY: inside the page; see `Book`.
        unsafe { self.word(index).read_volatile() }
    }

    fn set(&self, index: usize, value: u64) {
        // SAFETY: `index` is inside the page; other threads access it volatilely too.
        unsafe { self.word(index).write_volatile(value) };
    }

    /// The upgradable reader begins or ends its section.
    fn mark_upgradable(&self, expected: u64, now: u64) -> Result<(), String> {
        // SAFETY: plain data that only an upgradable reader writes; volatile, because whether the lock keeps such readers
        // apart is the question.
        let found = unsafe {
            let found = self.upgradable.get().read_volatile();
            self.upgradable.get().write_volatile(now);
            found
        };
        if found == expected {
            return Ok(());
        }
        Err(format!("two upgradable readers were inside at a time (marks {found} and {expected})"))
    }

    /// What a place has written.
    fn own(&self, place: usize) -> u64 {
        // SAFETY: plain data; see `Book`.
        unsafe { self.by_place[place].get().read_volatile() }
    }

    fn check(&self, version: u64, who: &str) -> Result<(), String> {
        for index in 0..12 {
            let seen = self.get(2 + index);
            if seen != payload(version, index) {
                return Err(format!(
                    "{who} saw a torn write: word {index} of version {version} is {seen:#x}, not {:#x}",
                    payload(version, index)
                ));
            }
        }
        Ok(())
    }

    fn read(&self, worker: &mut Worker) -> Result<(), String> {
        let writer = self.get(0);
        let version = self.get(1);
        if writer != 0 {
            return Err(format!("a reader was inside with a writer (place {})", writer - 1));
        }
        self.check(version, "a reader")?;
        worker.dwell();
        let (writer, after) = (self.get(0), self.get(1));
        if writer != 0 || after != version {
            return Err(format!("a writer came in on a reader: version {version} became {after}"));
        }
        self.check(version, "a reader")
    }

    fn write(&self, worker: &mut Worker) -> Result<(), String> {
        let me = worker.place() as u64 + 1;
        let writer = self.get(0);
        if writer != 0 {
            return Err(format!("two writers were inside at a time (places {} and {})", writer - 1, me - 1));
        }
        self.set(0, me);
        let version = self.get(1);
        self.check(version, "a writer")?;
        for index in 0..6 {
            self.set(2 + index, payload(version + 1, index));
        }
        worker.dwell();
        for index in 6..12 {
            self.set(2 + index, payload(version + 1, index));
        }
        self.set(1, version + 1);
        let own = self.own(worker.place()) + 1;
        // SAFETY: as in `own`.
        unsafe { self.by_place[worker.place()].get().write_volatile(own) };
        let writer = self.get(0);
        if writer != me || self.get(1) != version + 1 {
            return Err(format!(
                "two writers were inside at a time (place {} came in on {})",
                writer,
                me - 1
            ));
        }
        self.set(0, 0);
        Ok(())
    }
}

impl Ledger {
    /// A whole acquisition of book `index`; with the lock held, `also` happens.
    fn visit(self: &Arc<Self>, worker: &mut Worker, index: usize, also: Option<usize>) -> Result<(), String> {
        let book = &self.books[index];
        let access = self.access(worker);
        let way = if self.habits.impatient { worker.impatient_way() } else { worker.way() };
        let Some(mut token) = worker.acquire(&*book.lock, access, way) else { return Ok(()) };
        let mut result = self.section(book, access, worker);
        if result.is_ok() {
            (token, result) = self.change(book, token, worker);
        }
        let access = token.access;
        if self.habits.impatient && worker.random.once_in(8) {
            Native::pause(2000);
        }
        if !book.lock.is_locked() || access == Access::Write && !book.lock.is_write_locked() {
            result = result.and(Err("the lock of a holder says that it is free".to_owned()));
        }
        if let Some(next) = also {
            // In order of index, so this cannot deadlock.
            result = result.and(self.visit(worker, next, None));
            worker.doing(if access == Access::Write { Doing::Writes } else { Doing::Reads });
        }
        if access == Access::Write && worker.random.once_in(512) {
            self.hand_over(worker, index, token);
        } else if self.class.modes.fair && worker.random.once_in(4) {
            // SAFETY: acquired above.
            unsafe { worker.release_fairly(&*book.lock, token) };
        } else {
            // SAFETY: acquired above.
            unsafe { worker.release(&*book.lock, token) };
        }
        result
    }

    fn access(&self, worker: &mut Worker) -> Access {
        match () {
            () if !self.class.readers || worker.random.once_in(self.habits.writes) => Access::Write,
            () if self.class.modes.upgrades && worker.random.once_in(4) => Access::Upgradable,
            () => Access::Read,
        }
    }

    /// Now and then, turns the acquisition into one of another kind, with a section of that kind.
    fn change(&self, book: &Book, token: Token, worker: &mut Worker) -> (Token, Result<(), String>) {
        let modes = self.class.modes;
        let random = &mut worker.random;
        let to = match token.access {
            Access::Write if modes.upgrades && random.once_in(16) => Access::Upgradable,
            Access::Write if modes.downgrades && random.once_in(8) => Access::Read,
            Access::Upgradable if random.once_in(2) => Access::Write,
            Access::Upgradable if random.once_in(4) => Access::Read,
            _ => return (token, Ok(())),
        };
        let (version, way) = (book.get(1), worker.way());
        // SAFETY: the token is from the caller's acquisition, and the class can do this.
        let changed = unsafe { worker.change(&*book.lock, token, to, way) };
        let result = if book.get(1) == version {
            self.section(book, changed.map_or(token.access, |_| to), worker)
        } else {
            Err(format!("a writer came in between while a holder changed from {:?} to {to:?}", token.access))
        };
        (changed.unwrap_or_else(|token| token), result)
    }

    /// Lets another thread release the lock. Only for writers, because a reader's token may belong to its thread.
    fn hand_over(self: &Arc<Self>, worker: &mut Worker, index: usize, token: Token) {
        worker.count(Count::HandedOver);
        worker.doing(Doing::Elsewhere);
        let this = Arc::clone(self);
        worker.errand(move || {
            let book = &this.books[index];
            Native::pause(100);
            this.handed_over.fetch_add(1, Relaxed);
            // SAFETY: acquired by the other thread, which has given the token away.
            unsafe { book.lock.release(token) };
        });
    }
}

impl Subject for Ledger {
    fn operate(self: &Arc<Self>, worker: &mut Worker) -> Result<(), String> {
        let count = self.books.len();
        let index = worker.random.below(count as u64) as usize;
        let also = (index + 1 < count && worker.random.once_in(8)).then_some(index + 1);
        self.visit(worker, index, also)
    }

    fn balance(&self, crew: &Crew) -> Result<(), String> {
        let mut versions = 0;
        for book in &self.books {
            versions += book.get(1);
            book.check(book.get(1), "whoever looked in the end")?;
            if book.lock.is_locked() {
                return Err("the lock is held when every thread has left".to_owned());
            }
            match book.lock.acquire(Access::Write, Way::Try) {
                // SAFETY: acquired just now.
                Some(token) => unsafe { book.lock.release(token) },
                None => return Err("the lock cannot be taken when every thread has left".to_owned()),
            }
        }
        let writes = crew.total(Count::Writes);
        if versions != writes {
            return Err(format!("updates were lost: {writes} write sections left {versions} versions"));
        }
        for (place, post) in crew.posts().iter().enumerate() {
            let own: u64 = self.books.iter().map(|book| book.own(place)).sum();
            if own != post.get(Count::Writes) {
                let writes = post.get(Count::Writes);
                return Err(format!("updates were lost: {writes} writes of place {place} left {own} marks"));
            }
        }
        let (given, done) = (crew.total(Count::HandedOver), self.handed_over.load(Relaxed));
        if given != done {
            return Err(format!("{given} locks were handed over and {done} released"));
        }
        Ok(())
    }

    fn describe(&self) -> Vec<String> {
        let line = |(index, book): (usize, &Book)| {
            let held = match (book.lock.is_write_locked(), book.lock.is_locked()) {
                (true, _) => "held by a writer",
                (false, true) => "held",
                (false, false) => "free",
            };
            let mark = book.get(0);
            let writer = if mark == 0 { "nobody".into() } else { format!("place {}", mark - 1) };
            let memory = book.lock.words();
            format!("lock {index} {held}, {writer} is marked as writing; memory: {memory}")
        };
        self.books.iter().enumerate().map(line).collect()
    }

    fn works_in_child(&self) -> bool {
        let lock = Arc::new(Ledger::new(self.class, 1, Habits { books: 1, writes: 2, impatient: false }));
        let book = &lock.books[0];
        let soon = || Way::Until(Deadline::after::<Native>(200_000));
        let Some(token) = book.lock.acquire(Access::Write, Way::Try) else { return false };
        if [Way::Try, soon()].into_iter().any(|way| book.lock.acquire(Access::Write, way).is_some()) {
            return false;
        }
        // SAFETY: acquired above.
        unsafe { book.lock.release(token) };
        // With threads of its own.
        let mark = || {
            for _ in 0..50 {
                let Some(token) = book.lock.acquire(Access::Write, Way::Wait) else { return };
                book.set(1, book.get(1) + 1);
                // SAFETY: acquired above.
                unsafe { book.lock.release(token) };
            }
        };
        beside(mark, mark);
        book.get(1) == 100 && !book.lock.is_locked()
    }
}
