//! The semaphore.

use super::client::{Client, Operation, What, operations};
use super::engine::Engine;
use super::machine::Explore;
use super::subject::{Going, Subject, TIMEOUTS, begin, check, hold, note, waiting};
use crate::rng::Rng;
use latchwork::locks::semaphore::RawSemaphore;
use latchwork::machine::Deadline;
use std::cell::Cell;

pub(super) struct Semaphore {
    place: *mut RawSemaphore<Explore>,
    /// Units that were given, or are being given, and that were taken.
    given: Cell<u32>,
    taken: Cell<u32>,
}

/// Those that take a unit and keep it, or give it back, and those that give.
const TAKERS: [What; 4] = [What::Acquire, What::TimedAcquire, What::TryAcquire, What::Lock];
const GIVERS: [What; 2] = [What::Release, What::ReleaseTwo];

fn gives(client: &Client) -> u32 {
    let units = |what| match what {
        What::Release => 1,
        What::ReleaseTwo => 2,
        _ => 0,
    };
    client.all().map(|operation| units(operation.what)).sum()
}

/// Units that takers may keep, and one more if some threads give theirs back.
fn needs(client: &Client) -> u32 {
    let keeps = |what| matches!(what, What::Acquire | What::TimedAcquire | What::TryAcquire);
    let kept = client.all().filter(|operation| keeps(operation.what)).count() as u32;
    kept + u32::from(client.all().any(|operation| operation.what == What::Lock))
}

impl Subject for Semaphore {
    fn client(rng: &mut Rng) -> Client {
        let mut client = Client::empty(rng);
        client.units = rng.below(3) as u32;
        let givers = 1 + rng.below(client.threads as u64 / 2) as usize;
        for thread in 0..client.threads {
            let choices = if thread < givers { &GIVERS[..] } else { &TAKERS[..] };
            for _ in 0..1 + rng.below(2) {
                let what = choices[rng.below(choices.len() as u64) as usize];
                client.add(thread, what, rng.below(4) as u8);
            }
        }
        // Enough for all.
        client.units += needs(&client).saturating_sub(gives(&client) + client.units);
        client
    }

    fn valid(client: &Client) -> bool {
        gives(client) + client.units >= needs(client)
    }

    fn new(engine: &Engine, client: &Client) -> Self {
        let place = engine.with(|s| s.arena.start()).cast::<RawSemaphore<Explore>>();
        engine.with(|s| s.arena.label(place.addr(), size_of::<RawSemaphore<Explore>>(), "semaphore"));
        // SAFETY: within the arena, aligned, and what was there before is over.
        unsafe { place.write(RawSemaphore::new_in(client.units)) };
        Semaphore { place, given: Cell::new(client.units), taken: Cell::new(0) }
    }

    fn run(&self, client: &Client, thread: usize) {
        for (number, operation) in operations(client, thread) {
            begin(number);
            note(|| format!("{:?}", operation.what));
            self.operate(operation);
            note(|| format!("{:?} is over", operation.what));
        }
    }

    fn after(&self, _: &Client) {
        let (value, left) = (self.semaphore().value(), self.given.get() - self.taken.get());
        check(value == left, || format!("{left} units are left, and the value is {value}"));
        for _ in 0..left {
            check(self.semaphore().try_acquire(), || "an attempt failed though there are units".into());
        }
        check(!self.semaphore().try_acquire(), || "a unit that nobody gave".into());
    }
}

impl Semaphore {
    fn semaphore(&self) -> &RawSemaphore<Explore> {
        // SAFETY: written in `new`.
        unsafe { &*self.place }
    }

    fn operate(&self, Operation { what, hold: how, .. }: Operation) {
        let semaphore = self.semaphore();
        let deadline = || Deadline::after::<Explore>(TIMEOUTS[usize::from(how) % 4]);
        let enough = self.given.get() > self.taken.get();
        let going = Going::begin(!enough);
        match what {
            What::Acquire => {
                waiting(|| semaphore.acquire());
                self.take();
            }
            What::TryAcquire if semaphore.try_acquire() => self.take(),
            What::TimedAcquire if waiting(|| semaphore.acquire_until(deadline())) => self.take(),
            What::TryAcquire | What::TimedAcquire => going.failed("an attempt"),
            What::Release => self.give(1),
            What::ReleaseTwo => self.give(2),
            _ => {
                waiting(|| semaphore.acquire());
                self.take();
                hold(how);
                self.taken.set(self.taken.get() - 1);
                check(semaphore.release().is_ok(), || "a unit cannot be given back".into());
            }
        }
        going.end();
    }

    fn take(&self) {
        self.taken.set(self.taken.get() + 1);
        let (taken, given) = (self.taken.get(), self.given.get());
        check(taken <= given, || format!("{taken} units were taken, of {given}"));
    }

    fn give(&self, units: u32) {
        self.given.set(self.given.get() + units);
        check(self.semaphore().release_many(units).is_ok(), || "units cannot be given".into());
    }
}
