//! Mutexes, and condition variables over them.

use super::Mistake;
use super::client::{Client, OPERATIONS as LAST, Operation, What, operations};
use super::engine::Engine;
use super::machine::Explore;
use super::subject::{Going, Subject, TIMEOUTS, begin, check, here, hold, me, note, waiting};
use super::words::Usize;
use super::world;
use crate::rng::Rng;
use latchwork::locks::condvar::RawCondvar;
use latchwork::locks::mutex::{Fair, RawMutex};
use latchwork::machine::{Deadline, Machine, Wait, Word};
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::Ordering::Relaxed;

/// What a mutex can do beyond [`RawMutex`].
pub(super) trait Forms<L: RawMutex<Machine = Explore>> {
    /// Releases the lock, and leaves it to a waiter.
    const UNLOCK_FAIR: Option<unsafe fn(&L, L::Token)>;
}

/// Nothing more.
pub(super) struct Plain;

impl<L: RawMutex<Machine = Explore>> Forms<L> for Plain {
    const UNLOCK_FAIR: Option<unsafe fn(&L, L::Token)> = None;
}

/// A fair unlock.
pub(super) struct Leaves;

impl<L: Fair<Machine = Explore>> Forms<L> for Leaves {
    const UNLOCK_FAIR: Option<unsafe fn(&L, L::Token)> = Some(L::unlock_fair);
}

pub(super) struct Mutex<L: RawMutex<Machine = Explore>, F> {
    forms: PhantomData<F>,
    /// The lock, and one that is taken within it.
    places: [*mut L; 2],
    /// What each protects: how many sections there were.
    data: *const [Usize; 2],
    sections: [Cell<usize>; 2],
    holders: [Cell<Option<usize>>; 2],
    /// A token that another thread may release.
    passed: Cell<Option<L::Token>>,
    condvar: *mut RawCondvar<Explore>,
    /// Items on offer, taken so far, and still to be offered.
    items: Cell<u32>,
    taken: Cell<u32>,
    to_come: Cell<u32>,
    users: Cell<usize>,
    destroyed: Cell<bool>,
}

/// The last one is for locks that have it.
const SECTIONS: [What; 8] =
    [What::Lock, What::Try, What::Timed, What::Weak, What::Nested, What::Pass, What::Relieve, What::LockFair];
const CONSUMERS: [What; 5] = [What::Consume, What::ConsumeTimed, What::Consume, What::PassOn, What::Abandon];
const PRODUCERS: [What; 4] = [What::Produce, What::ProduceThenNotify, What::ProduceForAll, What::Lock];

/// How many items an operation offers.
fn offers(what: What) -> u32 {
    match what {
        What::Produce | What::ProduceThenNotify => 1,
        What::ProduceForAll => 2,
        _ => 0,
    }
}

/// Items that all threads offer.
fn offered(client: &Client) -> u32 {
    client.all().map(|operation| offers(operation.what)).sum()
}

/// Items that they may take.
fn wanted(client: &Client) -> u32 {
    let takes = |what| matches!(what, What::Consume | What::ConsumeTimed);
    client.all().filter(|operation| takes(operation.what)).count() as u32
}

impl<L: RawMutex<Machine = Explore>, F: Forms<L>> Subject for Mutex<L, F> {
    fn client(rng: &mut Rng) -> Client {
        let mut client = Client::empty(rng);
        client.refused = rng.below(16) == 0;
        if rng.below(4) != 0 {
            client.cast(rng, Self::sections());
            client.destroys = rng.below(8) == 0;
            client.again = rng.below(2) == 0;
            return client;
        }
        client.market = true;
        client.destroys = rng.below(4) == 0;
        let choices = if client.destroys { 2 } else { CONSUMERS.len() };
        let producers = 1 + rng.below((client.threads as u64 / 2).max(1)) as usize;
        for thread in 0..client.threads {
            for _ in 0..1 + rng.below(2) {
                let what = if thread < producers {
                    PRODUCERS[rng.below(PRODUCERS.len() as u64) as usize]
                } else {
                    CONSUMERS[rng.below(choices as u64) as usize]
                };
                client.add(thread, what, rng.below(4) as u8);
            }
        }
        // Enough for all: more producers' operations, or else fewer consumers.
        for thread in 0..client.threads {
            if offered(&client) < wanted(&client) && thread < producers {
                client.add(thread, What::ProduceForAll, 0);
            }
        }
        for thread in (producers..client.threads).rev() {
            if offered(&client) < wanted(&client) {
                client.operations[thread].fill(Operation::NONE);
            }
        }
        client
    }

    fn another(client: &Client, rng: &mut Rng) -> Option<What> {
        (!client.market).then(|| Self::sections()[rng.below(Self::sections().len() as u64) as usize])
    }

    fn valid(client: &Client) -> bool {
        offered(client) >= wanted(client)
    }

    fn new(engine: &Engine, client: &Client) -> Self {
        let arena = engine.with(|s| s.arena.start());
        // SAFETY: all of these are within the arena, aligned, and far enough from each other.
        let (places, condvar, data) = unsafe {
            let second = arena.add(8192);
            let (condvar, data) =
                (arena.add(16384).cast::<RawCondvar<Explore>>(), arena.add(20480).cast::<[Usize; 2]>());
            data.write([Usize::new(0), Usize::new(0)]);
            ([arena.cast::<L>(), second.cast::<L>()], condvar, data)
        };
        for (place, name) in places.into_iter().zip(["lock", "second"]) {
            engine.with(|s| s.arena.label(place.addr(), size_of::<L>(), name));
            // SAFETY: the place is within the arena and aligned, and the lock of the schedule before is not used any more.
            unsafe { place.write(L::new_in()) };
        }
        engine.with(|s| s.arena.label(condvar.addr(), size_of::<RawCondvar<Explore>>(), "condvar"));
        engine.with(|s| s.arena.label(data.addr(), 2 * size_of::<Usize>(), "data"));
        // SAFETY: the place is within the arena and aligned, and the condition variable of the schedule before is not used
        // any more.
        unsafe { condvar.write(RawCondvar::new_in()) };
        Mutex {
            forms: PhantomData,
            places,
            data,
            sections: [const { Cell::new(0) }; 2],
            holders: [const { Cell::new(None) }; 2],
            passed: Cell::new(None),
            condvar,
            items: Cell::new(0),
            taken: Cell::new(0),
            to_come: Cell::new(offered(client)),
            users: Cell::new(client.users()),
            destroyed: Cell::new(false),
        }
    }

    fn run(&self, client: &Client, thread: usize) {
        for (number, operation) in operations(client, thread) {
            begin(number);
            note(|| format!("{:?}", operation.what));
            let going = Going::begin(self.holders[0].get().is_some());
            self.operate(client, operation, &going);
            going.end();
            note(|| format!("{:?} is over", operation.what));
        }
        if client.destroys && !client.market && client.takes_part(thread) {
            begin(LAST);
            self.leave_for_good(client);
        }
    }

    fn after(&self, client: &Client) {
        if self.destroyed.get() && !client.market {
            return;
        }
        for which in 0..2 {
            let lock = self.lock(which);
            check(!lock.is_locked(), || "it looks locked when all is over".into());
            let going = Going::begin(false);
            match lock.try_lock() {
                Some(token) => self.section(which, token, 0),
                None => going.failed("an attempt at the end"),
            }
            going.end();
            // SAFETY: nobody changes it any more.
            let counted = unsafe { &(*self.data)[which] }.load(Relaxed);
            let sections = self.sections[which].get();
            check(counted == sections, || format!("{sections} sections, of which {counted} were counted"));
        }
        if client.market {
            let (items, taken, offered) = (self.items.get(), self.taken.get(), offered(client));
            check(items + taken == offered, || {
                format!("{offered} items, but {items} left and {taken} taken")
            });
            if !self.destroyed.get() {
                check(!self.condvar().has_waiters(), || {
                    "the condition variable counts waiters at the end".into()
                });
            }
        }
        for place in self.places {
            // SAFETY: nobody uses them any more.
            unsafe { place.drop_in_place() };
        }
        let out = world::nodes_out();
        check(out == 0, || format!("{out} queue nodes were not given back"));
    }
}

impl<L: RawMutex<Machine = Explore>, F: Forms<L>> Mutex<L, F> {
    /// The operations of a client without a condition variable.
    fn sections() -> &'static [What] {
        &SECTIONS[..SECTIONS.len() - usize::from(F::UNLOCK_FAIR.is_none())]
    }

    fn lock(&self, which: usize) -> &L {
        // SAFETY: written in `new`. A use after the destruction is caught at the lock's words.
        unsafe { &*self.places[which] }
    }

    fn condvar(&self) -> &RawCondvar<Explore> {
        // SAFETY: written in `new`. A use after the destruction is caught at the condition variable's words.
        unsafe { &*self.condvar }
    }

    fn operate(&self, client: &Client, Operation { what, hold, .. }: Operation, going: &Going) {
        let lock = self.lock(0);
        let deadline = || Deadline::after::<Explore>(TIMEOUTS[usize::from(hold) % 4]);
        match what {
            What::Try => match lock.try_lock() {
                Some(token) => self.section(0, token, hold),
                None => going.failed("an attempt"),
            },
            What::Timed => match waiting(|| lock.lock_until(deadline())) {
                Some(token) => self.section(0, token, hold),
                None => going.failed("a timed attempt"),
            },
            What::Weak => {
                let token = lock.try_lock_weak().unwrap_or_else(|| waiting(|| lock.lock_contended()));
                self.section(0, token, hold);
            }
            What::Nested => {
                let token = waiting(|| lock.lock());
                self.enter(0);
                self.section(1, waiting(|| self.lock(1).lock()), hold);
                self.leave(0);
                self.unlock(0, token);
            }
            What::Pass => {
                let token = waiting(|| lock.lock());
                self.enter(0);
                // Handing it over orders what was before.
                here().with(|s| s.drain(s.running));
                self.passed.set(Some(token));
                super::subject::hold(hold);
                self.relieve();
            }
            What::Relieve => self.relieve(),
            What::LockFair => {
                let token = waiting(|| lock.lock());
                self.enter(0);
                super::subject::hold(hold);
                self.leave(0);
                let unlock_fair = F::UNLOCK_FAIR.expect("only clients of such locks have it");
                // SAFETY: the token is from the acquisition above.
                unsafe { unlock_fair(lock, token) };
            }
            What::Consume | What::ConsumeTimed | What::PassOn | What::Abandon => self.consume(what, hold),
            What::Produce | What::ProduceThenNotify | What::ProduceForAll => self.produce(client, what, hold),
            _ => self.section(0, waiting(|| lock.lock()), hold),
        }
    }

    fn unlock(&self, which: usize, token: L::Token) {
        // SAFETY: the token is from an acquisition that nobody has ended.
        unsafe { self.lock(which).unlock(token) };
    }

    /// The running thread has the lock.
    fn enter(&self, which: usize) {
        note(|| "is inside".into());
        if let Some(other) = self.holders[which].replace(Some(me())) {
            here().fail(format!("threads {other} and {} are inside at the same time", me()));
        }
    }

    fn leave(&self, which: usize) {
        check(self.lock(which).is_locked(), || "it says that it is free, to its holder".into());
        // SAFETY: within the arena, for as long as the client runs.
        let data = unsafe { &(*self.data)[which] };
        let before = data.load(Relaxed);
        data.store(before + 1, Relaxed);
        self.sections[which].update(|sections| sections + 1);
        check(self.holders[which].replace(None).is_some(), || "somebody else has left meanwhile".into());
        note(|| "leaves".into());
    }

    fn section(&self, which: usize, token: L::Token, how: u8) {
        self.enter(which);
        hold(how);
        self.leave(which);
        self.unlock(which, token);
    }

    /// Ends the section of the thread that has left its token, if there is one.
    fn relieve(&self) {
        if let Some(token) = self.passed.take() {
            self.leave(0);
            self.unlock(0, token);
        }
    }

    fn offer(&self, items: u32) {
        self.items.set(self.items.get() + items);
        self.to_come.set(self.to_come.get() - items);
    }

    fn produce(&self, client: &Client, what: What, how: u8) {
        let condvar = self.condvar();
        let token = waiting(|| self.lock(0).lock());
        self.enter(0);
        hold(how);
        self.offer(offers(what));
        let last = client.destroys && self.to_come.get() == 0;
        let inside = what == What::Produce || client.destroys;
        let notify = || match what {
            What::ProduceForAll => condvar.notify_all(),
            _ if last => condvar.notify_all(),
            _ => condvar.notify_one(),
        };
        if inside {
            notify();
        }
        self.leave(0);
        self.unlock(0, token);
        if !inside {
            notify();
        }
        if last {
            note(|| "waits until nobody uses the condition variable any more, and destroys it".into());
            waiting(|| condvar.wait_until_quiet());
            // SAFETY: there is an item for each thread that wants one, so no thread will wait. A thread that still uses the
            // condition variable is caught at its words.
            unsafe { self.condvar.drop_in_place() };
            self.destroyed.set(true);
        }
    }

    fn consume(&self, what: What, how: u8) {
        let condvar = self.condvar();
        let deadline = || Deadline::after::<Explore>(TIMEOUTS[usize::from(how) % 4]);
        let mut token = waiting(|| self.lock(0).lock());
        self.enter(0);
        match what {
            What::Abandon => {
                let ticket = condvar.prepare();
                self.leave(0);
                self.unlock(0, token);
                waiting(|| condvar.block(ticket, Some(deadline())));
                condvar.abandon(ticket);
                return;
            }
            What::PassOn => {
                let reason;
                (token, reason) = self.wait(token, Some(deadline()));
                if reason == Wait::Woken {
                    condvar.notify_one();
                }
            }
            _ => {
                let deadline = (what == What::ConsumeTimed).then(deadline);
                while self.items.get() == 0 {
                    let reason;
                    (token, reason) = self.wait(token, deadline);
                    if reason == Wait::TimedOut {
                        break;
                    }
                }
                if self.items.get() > 0 {
                    self.items.set(self.items.get() - 1);
                    self.taken.set(self.taken.get() + 1);
                }
            }
        }
        self.leave(0);
        self.unlock(0, token);
    }

    fn wait(&self, token: L::Token, deadline: Option<Deadline>) -> (L::Token, Wait) {
        self.leave(0);
        let reason = if here().with(|s| s.mistake) == Mistake::LateTicket {
            self.wait_with_a_late_ticket(token, deadline)
        } else {
            waiting(|| self.condvar().wait(|| self.unlock(0, token), deadline))
        };
        let token = waiting(|| self.lock(0).lock());
        self.enter(0);
        (token, reason)
    }

    /// [`RawCondvar::wait`] with [`Mistake::LateTicket`].
    fn wait_with_a_late_ticket(&self, token: L::Token, deadline: Option<Deadline>) -> Wait {
        let condvar = self.condvar();
        let ticket = condvar.prepare();
        let late = condvar.word().load(Relaxed);
        self.unlock(0, token);
        let mut reason = Wait::Woken;
        while reason == Wait::Woken && condvar.word().load(Relaxed) == late {
            reason = waiting(|| Explore::wait(condvar.word(), late, deadline));
        }
        condvar.finish(ticket, reason)
    }

    /// The thread's last use of the lock. The last one of all destroys it.
    fn leave_for_good(&self, client: &Client) {
        note(|| "uses the lock for the last time".into());
        let going = Going::begin(self.holders[0].get().is_some());
        let token = waiting(|| self.lock(0).lock());
        self.enter(0);
        self.users.set(self.users.get() - 1);
        let last = self.users.get() == 0;
        self.leave(0);
        self.unlock(0, token);
        going.end();
        if last {
            note(|| "destroys the lock".into());
            // SAFETY: the sections of all others are over, so they must not touch the lock any more; its words
            // tell if they do.
            unsafe { self.places[0].drop_in_place() };
            if client.again {
                note(|| "makes a new lock in the same place".into());
                // SAFETY: the place is free.
                unsafe { self.places[0].write(L::new_in()) };
                self.section(0, waiting(|| self.lock(0).lock()), 0);
            } else {
                self.destroyed.set(true);
            }
        }
    }
}
