//! Reader-writer locks. [`modes`] has what some of them can do beyond reading and writing.

mod modes;

use super::client::{Client, OPERATIONS as OPERATIONS_OF_THREAD, Operation, What, operations};
use super::engine::{COVERED, Engine};
use super::machine::Explore;
use super::subject::{Going, Subject, TIMEOUTS, begin, check, here, hold, me, note, waiting};
use super::words::U32;
use super::world;
use crate::rng::Rng;
pub(super) use modes::{Downgrades, Forms, Plain, Upgrades};

use latchwork::locks::rwlock::RawRwLock;
use latchwork::machine::{Arith, Deadline, Machine, Word};
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::Ordering::Relaxed;

/// Reads after which BRAVO makes a lock one that is read in the table, and a few around that number.
const WARM: [u8; 6] = [0, 0, 14, 15, 16, 17];

pub(super) struct RwLock<R: RawRwLock<Machine = Explore>, F: Forms<R>> {
    place: *mut R,
    forms: PhantomData<F>,
    /// Readers inside, the upgradable one among them.
    readers: Cell<u32>,
    upgradable: Cell<Option<usize>>,
    writer: Cell<Option<usize>>,
    /// Write sections so far.
    writes: Cell<u32>,
    /// Users that have not left the lock for good.
    users: Cell<usize>,
    destroyed: Cell<bool>,
    /// How far [`use_before`](Self::use_before) is.
    stage: *const U32,
}

const OPERATIONS: [What; 9] = [
    What::Read,
    What::Lock,
    What::TryRead,
    What::Try,
    What::TimedRead,
    What::Timed,
    What::OwnRead,
    What::Exit,
    What::ReadExit,
];

/// What one thread does in a lock that has been used before, and what the others do.
const WAITS: [What; 3] = [What::Read, What::Lock, What::OwnRead];
const ATTEMPTS: [What; 2] = [What::TryRead, What::Try];

impl<R: RawRwLock<Machine = Explore>, F: Forms<R>> Subject for RwLock<R, F> {
    fn client(rng: &mut Rng) -> Client {
        let mut client = Client::empty(rng);
        if rng.below(4) == 0 {
            client.attempt_in_used(rng, &WAITS, &ATTEMPTS);
            return client;
        }
        let exits = if rng.below(8) == 0 { 0 } else { 2 };
        let mut choices = OPERATIONS[..OPERATIONS.len() - exits].to_vec();
        // Not in all clients: the more operations there are, the less often two of them meet.
        if !F::MORE.is_empty() && rng.below(2) == 0 {
            choices.extend(F::MORE);
        }
        client.cast(rng, &choices);
        client.warm = WARM[rng.below(WARM.len() as u64) as usize];
        client.destroys = rng.below(8) == 0;
        client.again = rng.below(2) == 0;
        client.refused = rng.below(16) == 0;
        client.forgotten = rng.below(16) == 0;
        client
    }

    fn another(_: &Client, rng: &mut Rng) -> Option<What> {
        Some(OPERATIONS[rng.below(OPERATIONS.len() as u64 - 2) as usize])
    }

    fn new(engine: &Engine, client: &Client) -> Self {
        let place = engine.with(|s| s.arena.start()).cast::<R>();
        engine.with(|s| s.arena.label(place.addr(), size_of::<R>(), "lock"));
        // SAFETY: the arena is large enough and aligned, and what was there before is over.
        unsafe { place.write(R::new_in()) };
        // SAFETY: within the arena, aligned, and behind the lock.
        let stage = unsafe {
            let stage = place.cast::<u8>().add(COVERED).cast::<U32>();
            stage.write(U32::new(0));
            stage
        };
        engine.with(|s| s.arena.label(stage.addr(), size_of::<U32>(), "stage"));
        let this = RwLock {
            place,
            forms: PhantomData,
            stage,
            readers: Cell::new(0),
            upgradable: Cell::new(None),
            writer: Cell::new(None),
            writes: Cell::new(0),
            users: Cell::new(client.users()),
            destroyed: Cell::new(false),
        };
        this.warm(client.warm);
        if client.forgotten {
            let _ = this.lock().read();
            // SAFETY: nobody uses it any more: its only guard was forgotten.
            unsafe {
                place.drop_in_place();
                place.write(R::new_in());
            }
            this.warm(client.warm);
        }
        this
    }

    fn run(&self, client: &Client, thread: usize) {
        if client.used {
            self.use_before(thread);
        }
        for (number, operation) in operations(client, thread) {
            begin(number);
            self.operate(operation);
        }
        if client.destroys && client.takes_part(thread) {
            begin(OPERATIONS_OF_THREAD);
            self.leave_for_good(client);
        }
    }

    fn after(&self, client: &Client) {
        if self.destroyed.get() {
            return;
        }
        let lock = self.lock();
        check(!lock.is_locked() && !lock.is_write_locked(), || "it looks locked when all is over".into());
        let going = Going::begin(false);
        match lock.try_read() {
            Some(token) => self.reads(token, 0),
            None => going.failed("an attempt to read, at the end,"),
        }
        match lock.try_write() {
            Some(token) => self.writes(token, 0),
            None => going.failed("an attempt to write, at the end,"),
        }
        going.end();
        // SAFETY: nobody uses it any more.
        unsafe { self.place.drop_in_place() };
        let out = world::nodes_out();
        check(out == 0 || client.forgotten, || format!("{out} queue nodes were not given back"));
    }
}

impl<R: RawRwLock<Machine = Explore>, F: Forms<R>> RwLock<R, F> {
    fn lock(&self) -> &R {
        // SAFETY: written in `new`. A use after the destruction is caught at the lock's words.
        unsafe { &*self.place }
    }

    /// One thread holds the lock, another thread waits for it until its deadline passes, and the client begins after that: hints may be left.
    /// (Nobody is stopped for ever here.)
    fn use_before(&self, thread: usize) {
        // SAFETY: written in `new`, and there for as long as the client runs.
        let stage = unsafe { &*self.stage };
        let come = |number| Explore::spin_until(stage, Relaxed, |now| now >= number);
        match thread {
            0 => {
                let token = self.lock().write();
                note(|| "is inside as a writer, before all else".into());
                stage.fetch_add(1, Relaxed);
                come(2);
                // SAFETY: the token is from the acquisition above.
                unsafe { self.lock().unlock_write(token) };
                stage.fetch_add(1, Relaxed);
            }
            1 => {
                come(1);
                let token = self.lock().write_until(Deadline::after::<Explore>(TIMEOUTS[3]));
                check(token.is_none(), || "two threads write at the same time".into());
                note(|| "has waited in vain".into());
                stage.fetch_add(1, Relaxed);
            }
            _ => (),
        }
        come(3);
    }

    fn warm(&self, reads: u8) {
        for _ in 0..reads {
            let token = self.lock().read();
            // SAFETY: the token is from the acquisition just before.
            unsafe { self.lock().unlock_read(token) };
        }
    }

    fn operate(&self, operation: Operation) {
        let Operation { what, hold, .. } = operation;
        if what == What::Exit {
            note(|| "exits, and begins again as another thread".into());
            return world::exit_thread();
        }
        note(|| format!("{what:?}"));
        let lock = self.lock();
        let going = Going::begin(false);
        let deadline = || Deadline::after::<Explore>(TIMEOUTS[usize::from(hold) % 4]);
        match what {
            What::Read => self.reads(waiting(|| lock.read()), hold),
            What::OwnRead => self.reads_own(waiting(|| lock.read()), hold),
            What::ReadExit => {
                let token = waiting(|| lock.read());
                self.begin_read();
                note(|| "exits, and another thread reads on".into());
                world::exit_thread();
                super::subject::hold(hold);
                self.end_read();
                // SAFETY: the token is from the acquisition above.
                unsafe { lock.unlock_read(token) };
            }
            What::TryRead => match lock.try_read() {
                Some(token) => self.reads(token, hold),
                None => going.failed("an attempt to read"),
            },
            What::TimedRead => match waiting(|| lock.read_until(deadline())) {
                Some(token) => self.reads(token, hold),
                None => going.failed("a timed attempt to read"),
            },
            What::Try => match lock.try_write() {
                Some(token) => self.writes(token, hold),
                None => going.failed("an attempt to write"),
            },
            What::Timed => match waiting(|| lock.write_until(deadline())) {
                Some(token) => self.writes(token, hold),
                None => going.failed("a timed attempt to write"),
            },
            What::Lock => self.writes(waiting(|| lock.write()), hold),
            _ => F::operate(self, operation, &going),
        }
        going.end();
        note(|| format!("{what:?} is over"));
    }

    fn begin_read(&self) {
        note(|| "is inside as a reader".into());
        self.readers.set(self.readers.get() + 1);
        if let Some(writer) = self.writer.get() {
            here().fail(format!("thread {} reads beside thread {writer}, which writes", me()));
        }
    }

    fn end_read(&self) {
        if let Some(writer) = self.writer.get() {
            here().fail(format!("thread {writer} writes beside thread {}, which reads", me()));
        }
        self.readers.set(self.readers.get() - 1);
        note(|| "leaves as a reader".into());
    }

    fn reads(&self, token: R::Read, how: u8) {
        self.begin_read();
        hold(how);
        self.end_read();
        // SAFETY: the token is from the caller's acquisition.
        unsafe { self.lock().unlock_read(token) };
    }

    fn reads_own(&self, token: R::Read, how: u8) {
        self.begin_read();
        hold(how);
        self.end_read();
        if R::is_recorded(&token) {
            // SAFETY: the token is not used.
            let ended = unsafe { self.lock().unlock_own_recorded_read() };
            check(ended, || "the lock has lost the record of a read".into());
        } else {
            // SAFETY: the token is from the caller's acquisition, which nothing else ends.
            unsafe { self.lock().unlock_read(token) };
        }
    }

    fn writes(&self, token: R::Write, how: u8) {
        self.section(how);
        // SAFETY: the token is from the caller's acquisition.
        unsafe { self.lock().unlock_write(token) };
    }

    fn section(&self, how: u8) {
        self.begin_write();
        hold(how);
        self.end_write();
    }

    fn begin_write(&self) {
        note(|| "is inside as a writer".into());
        if let Some(other) = self.writer.replace(Some(me())) {
            here().fail(format!("threads {other} and {} write at the same time", me()));
        }
        let readers = self.readers.get();
        check(readers == 0, || format!("thread {} writes beside {readers} readers", me()));
    }

    fn end_write(&self) {
        let lock = self.lock();
        check(lock.is_locked() && lock.is_write_locked(), || "it says that it is free, to its writer".into());
        self.writer.set(None);
        self.writes.set(self.writes.get() + 1);
        note(|| "leaves as a writer".into());
    }

    /// The thread's last use of the lock. The last one of all destroys it.
    fn leave_for_good(&self, client: &Client) {
        note(|| "uses the lock for the last time".into());
        let going = Going::begin(false);
        let token = waiting(|| self.lock().write());
        self.section(0);
        self.users.set(self.users.get() - 1);
        let last = self.users.get() == 0;
        // SAFETY: the token is from the acquisition just before.
        unsafe { self.lock().unlock_write(token) };
        going.end();
        if last {
            note(|| "destroys the lock".into());
            // SAFETY: the sections of all others are over, so they must not touch the lock any more; its words
            // tell if they do.
            unsafe { self.place.drop_in_place() };
            if client.again {
                note(|| "makes a new lock in the same place".into());
                // SAFETY: the place is free.
                unsafe { self.place.write(R::new_in()) };
                self.operate(Operation { what: What::Read, ..Operation::NONE });
                self.operate(Operation { what: What::Lock, ..Operation::NONE });
            } else {
                self.destroyed.set(true);
            }
        }
    }
}
