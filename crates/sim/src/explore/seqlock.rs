//! Sequence locks.

use super::client::{Client, What, operations};
use super::engine::Engine;
use super::machine::Explore;
use super::subject::{Going, Subject, begin, check, here, hold, note, waiting};
use super::words::Usize;
use crate::rng::Rng;
use latchwork::locks::mutex::RawMutex;
use latchwork::locks::seqlock::RawSeqLock;
use latchwork::machine::Word;
use std::cell::Cell;

const WORDS: usize = 3;

pub(super) struct SeqLock<L: RawMutex<Machine = Explore>> {
    place: *mut (RawSeqLock<L>, [Usize; WORDS]),
    /// Writes that are over, and that have begun.
    over: Cell<usize>,
    begun: Cell<usize>,
}

impl<L: RawMutex<Machine = Explore>> Subject for SeqLock<L> {
    fn client(rng: &mut Rng) -> Client {
        let mut client = Client::empty(rng);
        client.cast(rng, &[What::Read, What::TryRead, What::Lock]);
        client
    }

    fn another(_: &Client, rng: &mut Rng) -> Option<What> {
        Some([What::Read, What::TryRead, What::Lock][rng.below(3) as usize])
    }

    fn new(engine: &Engine, _: &Client) -> Self {
        let place = engine.with(|s| s.arena.start()).cast::<(RawSeqLock<L>, [Usize; WORDS])>();
        engine.with(|s| s.arena.label(place.addr(), size_of::<(RawSeqLock<L>, [Usize; WORDS])>(), "lock"));
        // SAFETY: within the arena, aligned, and what was there before is over.
        unsafe { place.write((RawSeqLock::new_in(), std::array::from_fn(|_| Usize::new(0)))) };
        SeqLock { place, over: Cell::new(0), begun: Cell::new(0) }
    }

    fn run(&self, client: &Client, thread: usize) {
        // SAFETY: written in `new`.
        let (lock, words) = unsafe { &*self.place };
        let mut copy = [0; WORDS];
        for (number, operation) in operations(client, thread) {
            begin(number);
            note(|| format!("{:?}", operation.what));
            let going = Going::begin(false);
            // Writes with stores that may still be in a buffer need not be seen.
            let before = if here().with(|s| s.no_stores_elsewhere()) { self.over.get() } else { 0 };
            match operation.what {
                What::Lock => {
                    let mut writing = waiting(|| lock.write());
                    self.begun.set(self.begun.get() + 1);
                    writing.load(words, &mut copy);
                    self.judge(&copy, self.over.get(), self.over.get());
                    hold(operation.hold);
                    writing.store(words, &copy.map(|word| word + 1));
                    self.over.set(self.over.get() + 1);
                    drop(writing);
                }
                What::TryRead => match lock.try_read(words, &mut copy) {
                    true => self.judge(&copy, before, self.begun.get()),
                    false => going.failed("an attempt to read"),
                },
                _ => {
                    waiting(|| lock.read(words, &mut copy, || ()));
                    self.judge(&copy, before, self.begun.get());
                }
            }
            going.end();
            note(|| format!("{:?} is over", operation.what));
        }
    }

    fn after(&self, _: &Client) {
        // SAFETY: written in `new`.
        let (lock, words) = unsafe { &*self.place };
        let mut copy = [0; WORDS];
        check(lock.try_read(words, &mut copy), || "it cannot be read when all is over".into());
        self.judge(&copy, self.over.get(), self.over.get());
    }
}

impl<L: RawMutex<Machine = Explore>> SeqLock<L> {
    /// Whether a copy is of one moment, and of which.
    fn judge(&self, copy: &[usize; WORDS], earliest: usize, latest: usize) {
        check(copy.iter().all(|word| *word == copy[0]), || format!("a copy of two moments: {copy:?}"));
        let version = copy[0];
        check((earliest..=latest).contains(&version), || {
            format!("a copy of write {version}, when writes {earliest} to {latest} were possible")
        });
    }
}
