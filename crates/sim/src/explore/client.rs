//! Clients: what each thread does, made by chance from the kind of the lock.

use crate::rng::Rng;
use std::fmt;

/// Threads of a client at most.
pub(super) const THREADS: usize = 6;
/// Operations of a thread at most.
pub(super) const OPERATIONS: usize = 5;

/// What a thread does next.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Left out.
    Nothing,
    // Mutexes, and the writers of others.
    Lock,
    Try,
    Timed,
    /// The weak attempt, and if that fails the rest.
    Weak,
    /// Locks, and lets another thread unlock, if one comes.
    Pass,
    /// Unlocks for another thread, if one has left its token.
    Relieve,
    /// Locks a second lock within the first.
    Nested,
    // Reader-writer locks.
    Read,
    TryRead,
    TimedRead,
    /// A read that ends without its token, if the lock has recorded it.
    OwnRead,
    /// The thread exits while it reads, and another one goes on for it.
    ReadExit,
    /// Writes, becomes a reader, and reads.
    Downgrade,
    /// Reads upgradably, and becomes a writer.
    Upgrade,
    /// The same with attempts.
    TryUpgrade,
    /// The same with deadlines.
    TimedUpgrade,
    /// Writes, reads upgradably, and reads.
    Round,
    /// Reads, and leaves the lock to a waiter.
    ReadFair,
    /// Locks or writes, and leaves the lock to a waiter.
    LockFair,
    // Condition variables.
    Consume,
    ConsumeTimed,
    /// Offers one item and notifies one waiter, with the mutex held.
    Produce,
    /// The same, after the mutex was released.
    ProduceThenNotify,
    /// Offers two items and notifies all.
    ProduceForAll,
    /// Waits once, and notifies another waiter if it was notified itself.
    PassOn,
    /// Waits, and is cancelled.
    Abandon,
    // Semaphores.
    Acquire,
    TryAcquire,
    TimedAcquire,
    Release,
    ReleaseTwo,
    // Reclamation.
    /// A section in a section.
    ReadNested,
    /// A quiescent state.
    Quiesce,
    /// A section after a time offline.
    Rest,
    /// A section of a reader of another domain.
    ReadElsewhere,
    Retire,
    Replace,
    /// Replaces, and retires in another domain.
    ReplaceElsewhere,
    Synchronize,
    Collect,
    Barrier,
    /// The thread exits, and another one goes on in its place.
    Exit,
    // Maps.
    Insert,
    /// Makes a new value of the one that is there.
    Alter,
    Remove,
    /// Removes what it has found in a section, if that is still there.
    RemoveFound,
    /// A walk in one section.
    Walk,
    /// A walk with a section for each bucket.
    WalkByBuckets,
    Grow,
    Shrink,
    Split,
    Clear,
}

/// An operation, and how long its section lasts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Operation {
    pub what: What,
    /// 0: no time; 1 and 2: a few steps; 3: others are let go on.
    pub hold: u8,
    /// The key, if it is an operation on a map.
    pub key: u8,
}

impl Operation {
    pub(super) const NONE: Operation = Operation { what: What::Nothing, hold: 0, key: 0 };
}

/// A client.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) struct Client {
    pub threads: usize,
    pub lengths: [u8; THREADS],
    pub operations: [[Operation; OPERATIONS]; THREADS],
    /// The last thread that uses the lock destroys it.
    pub destroys: bool,
    /// And makes a new one in the same place.
    pub again: bool,
    /// Threads offer items to each other, with a condition variable.
    pub market: bool,
    /// Reads before the threads start.
    pub warm: u8,
    /// Before all else one thread waits until its deadline passes while another thread is inside.
    pub used: bool,
    /// A guard was forgotten in a lock that was in this place before.
    pub forgotten: bool,
    /// What `Machine::patience` answers at most.
    pub patience: u32,
    /// NUMA nodes.
    pub nodes: u32,
    /// Whether the records of reclamation are in one group.
    pub grouped: bool,
    /// Whether the kernel refuses the heavy fence.
    pub refused: bool,
    /// Whether a release of a lock is one step.
    pub whole: bool,
    /// The units of a semaphore, or the limit of a domain.
    pub units: u32,
}

impl Client {
    /// A client without operations.
    pub(super) fn empty(rng: &mut Rng) -> Client {
        Client {
            threads: [2, 3, 3, 3, 4, 4, 4, 5, 5, 6][rng.below(10) as usize],
            lengths: [0; THREADS],
            operations: [[Operation::NONE; OPERATIONS]; THREADS],
            destroys: false,
            again: false,
            market: false,
            warm: 0,
            used: false,
            forgotten: false,
            // A power of two, as all that is asked for.
            patience: [1, 1, 2, 4][rng.below(4) as usize],
            nodes: 1 + rng.below(2) as u32,
            grouped: rng.below(2) == 0,
            refused: false,
            // Not another number, without which each seed would give another client than before.
            whole: rng.clone().next().is_multiple_of(4),
            units: 0,
        }
    }

    /// The operations of a thread.
    pub(super) fn of(&self, thread: usize) -> &[Operation] {
        &self.operations[thread][..usize::from(self.lengths[thread])]
    }

    /// The operations of all threads.
    pub(super) fn all(&self) -> impl Iterator<Item = Operation> {
        (0..self.threads).flat_map(|thread| self.of(thread).iter().copied())
    }

    /// Whether a thread does anything.
    pub(super) fn takes_part(&self, thread: usize) -> bool {
        self.of(thread).iter().any(|operation| operation.what != What::Nothing)
    }

    /// How many threads do.
    pub(super) fn users(&self) -> usize {
        (0..self.threads).filter(|thread| self.takes_part(*thread)).count()
    }

    /// One more operation of a thread, if there is room.
    pub(super) fn add(&mut self, thread: usize, what: What, hold: u8) {
        let length = &mut self.lengths[thread];
        if usize::from(*length) < OPERATIONS {
            self.operations[thread][usize::from(*length)] = Operation { what, hold, key: 0 };
            *length += 1;
        }
    }

    /// Gives each thread a role: half of them do one thing only, the others what comes, from a mix that is the
    /// client's own. Which operations meet each other matters more than how often.
    pub(super) fn cast(&mut self, rng: &mut Rng, choices: &[What]) {
        let mut weights = [0u64; 16];
        for weight in &mut weights[..choices.len()] {
            *weight = [0, 0, 1, 1, 4][rng.below(5) as usize];
        }
        if weights.iter().all(|weight| *weight == 0) {
            weights[..choices.len()].fill(1);
        }
        let total: u64 = weights.iter().sum();
        let draw = |rng: &mut Rng| {
            let mut n = rng.below(total);
            let at = weights.iter().position(|weight| {
                let here = n < *weight;
                n = n.wrapping_sub(*weight);
                here
            });
            choices[at.expect("below the total")]
        };
        // Few operations: what is to be found takes a few preemptions at the right steps, of all that there are.
        let most = [1, 1, 2, 4][rng.below(4) as usize];
        // Or one operation each, all different, as far as there are.
        let dealt = rng.below(2) == 0;
        let mut deck = [What::Lock; 16];
        deck[..choices.len()].copy_from_slice(choices);
        for at in (1..choices.len()).rev() {
            deck.swap(at, rng.below(at as u64 + 1) as usize);
        }
        for thread in 0..self.threads {
            let only = if dealt {
                Some(deck[thread % choices.len()])
            } else {
                (rng.below(2) == 0).then(|| draw(rng))
            };
            let long = rng.below(3) == 0;
            for _ in 0..1 + rng.below(most) {
                let hold = if long { 3 } else { [0, 0, 1, 2][rng.below(4) as usize] };
                let what = only.unwrap_or_else(|| draw(rng));
                self.add(thread, what, hold);
            }
        }
    }

    /// One thread waits, and the others only try, each once, in a lock that has been used before: hints that are left
    /// there are for the attempts to drop, and must not be those of the one that waits.
    pub(super) fn attempt_in_used(&mut self, rng: &mut Rng, waits: &[What], attempts: &[What]) {
        self.used = true;
        self.threads = [3, 3, 4][rng.below(3) as usize];
        let waiter = rng.below(self.threads as u64) as usize;
        let first = rng.below(attempts.len() as u64) as usize;
        for thread in 0..self.threads {
            let what = match thread {
                _ if thread == waiter => waits[rng.below(waits.len() as u64) as usize],
                _ => attempts[(first + thread - usize::from(thread > waiter)) % attempts.len()],
            };
            self.add(thread, what, rng.below(3) as u8);
        }
    }

    /// The same client up to operations that have begun, with others after them.
    pub(super) fn vary(
        &mut self,
        begun: [u8; THREADS],
        rng: &mut Rng,
        another: impl Fn(&Client, &mut Rng) -> Option<What>,
    ) {
        for (thread, begun) in begun.into_iter().enumerate().take(self.threads) {
            for at in usize::from(begun)..usize::from(self.lengths[thread]) {
                if rng.below(2) == 0
                    && let Some(what) = another(self, rng)
                {
                    let key = self.operations[thread][at].key;
                    self.operations[thread][at] = Operation { what, hold: rng.below(4) as u8, key };
                }
            }
            if rng.below(2) == 0
                && self.takes_part(thread)
                && let Some(what) = another(self, rng)
            {
                self.add(thread, what, rng.below(4) as u8);
            }
        }
    }

    /// All clients that have a little less in them, the smallest first.
    pub(super) fn smaller(&self) -> Vec<Client> {
        let mut all = Vec::new();
        for thread in (0..self.threads).filter(|thread| self.takes_part(*thread)) {
            let mut less = *self;
            less.operations[thread].fill(Operation::NONE);
            all.push(less);
        }
        for thread in 0..self.threads {
            for at in 0..self.of(thread).len() {
                let mut less = *self;
                less.operations[thread][at] = Operation::NONE;
                if less != *self {
                    all.push(less);
                }
            }
        }
        let mut also = |less: Client| {
            if less != *self {
                all.push(less);
            }
        };
        also(Client { destroys: false, again: false, ..*self });
        also(Client { again: false, ..*self });
        also(Client { warm: 0, ..*self });
        also(Client { used: false, ..*self });
        also(Client { forgotten: false, ..*self });
        also(Client { refused: false, ..*self });
        also(Client { whole: false, ..*self });
        also(Client { patience: 1, ..*self });
        also(Client { nodes: 1, ..*self });
        also(Client { grouped: false, ..*self });
        for thread in 0..self.threads {
            for at in 0..self.of(thread).len() {
                let mut less = *self;
                less.operations[thread][at].hold = 0;
                also(less);
            }
        }
        all
    }
}

/// The operations of a thread that are not left out, each with its number.
pub(super) fn operations(client: &Client, thread: usize) -> impl Iterator<Item = (usize, Operation)> {
    client.of(thread).iter().copied().enumerate().filter(|(_, operation)| operation.what != What::Nothing)
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for thread in (0..self.threads).filter(|thread| self.takes_part(*thread)) {
            write!(f, "  thread {thread}:")?;
            for operation in self.of(thread).iter().filter(|operation| operation.what != What::Nothing) {
                let hold =
                    ["", ", briefly", ", for some steps", ", for long"][usize::from(operation.hold) % 4];
                write!(f, " {:?}", operation.what)?;
                if operation.key > 0 {
                    write!(f, " of key {}", operation.key)?;
                }
                write!(f, "{hold};")?;
            }
            writeln!(f)?;
        }
        let Client { warm, patience, nodes, .. } = self;
        write!(f, "  patience {patience}, NUMA nodes {nodes}")?;
        for (is, what) in [
            (*warm > 0, format!("{warm} reads before")),
            (self.destroys, "the last one destroys the lock".into()),
            (self.again, "and makes a new one".into()),
            (self.used, "a thread waits in vain before".into()),
            (self.forgotten, "a guard was forgotten before".into()),
            (self.refused, "the heavy fence is refused".into()),
            (self.whole, "a release is one step".into()),
            (self.units > 0, format!("units {}", self.units)),
        ] {
            if is {
                write!(f, ", {what}")?;
            }
        }
        writeln!(f)
    }
}
