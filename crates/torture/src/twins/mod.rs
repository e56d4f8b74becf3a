//! Locks that are broken on purpose, each with a mistake that a real lock could have. The torture must catch every one of
//! them.
//!
//! Some are real locks on a machine that breaks a promise ([`Flaw`]), the others are small locks with
//! one mistake in them.

mod intervals;
mod mutexes;
mod rwlocks;
mod seqlocks;

use crate::jitter::{Flaw, Jitter};
use crate::lock::{Exclusive, Shared};
use crate::reclaim::{pointers, sections};
use crate::report::{Failed, Report};
use crate::scenario::{
    Scenario, Settings, abandonment, condition, copies, exclusion, manners, priorities, reuse, torture,
};
use crate::unit::Unit;
use latchwork::locks::mutex::{Info, Suspension, clh::RawClh, shfl::RawShfl, ttas::RawTtas};
use latchwork::locks::rwlock::{bravo::RawBravo, pf_t::RawPfT};
use latchwork::reclaim::{hazard::HazardDomain, rcu::RcuDomain};
use seqlocks::{Broken, Mistake};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// A broken lock, and how it is caught.
pub struct Twin {
    /// Its name.
    pub name: &'static str,
    /// What is broken.
    pub mistake: &'static str,
    /// What the failure must say, one of these.
    pub symptoms: &'static [&'static str],
    scenario: Scenario,
}

/// Two were inside, whichever check saw it first.
const NOT_ALONE: &[&str] = &[
    "two writers were inside",
    "a torn write",
    "came in on a reader",
    "was inside with",
    "updates were lost",
    "a holder says that it is free",
];
/// A writer came in while a holder changed from one kind of acquisition to another.
const BETWEEN: &[&str] = &["a writer came in between"];
/// A copy with parts of two writes.
const TORN: &[&str] = &["a copy is of two moments"];
/// A reader was not waited for.
const RECLAIMED: &[&str] = &["a reader saw a reclaimed object"];
/// A thread waits for ever.
const STUCK: &[&str] = &["stands still"];
/// A fork's child uses the same broken lock.
const CHILD: &str = "after a fork, a fresh lock in the child";

/// The memory was freed, or already part of a new lock.
const LATE: &[&str] = &["use after free", "stands still", "was not alone", "whose holders have all left"];

/// All of them. The one that only real-time priorities show is missing where this process may not use them.
pub fn all() -> Vec<Twin> {
    let twin = |name, mistake, symptoms, scenario| Twin { name, mistake, symptoms, scenario };
    type Drops = Jitter<{ Flaw::DROPPED_WAKE }>;
    type Sleeps = Jitter<{ Flaw::SLEEPS_UNSEEN }>;
    type Blind = Jitter<{ Flaw::BLIND_SCAN }>;
    type Reuses = Jitter<{ Flaw::NODE_REUSED }>;
    type Skips = Jitter<{ Flaw::SKIPS_READER }>;
    type Blinks = Jitter<{ Flaw::BLIND_RELEASE }>;
    type Buffers = Jitter<{ Flaw::STORE_BUFFERED }>;
    let mut twins = vec![
        twin(
            "skipped-reader",
            "rcu whose grace periods skip one reader",
            RECLAIMED,
            Scenario::new("reclaim", "jitter", sections::<RcuDomain<Skips>>),
        ),
        twin(
            "early-scan",
            "hazard pointers whose scan comes before the readers' stores are visible",
            RECLAIMED,
            Scenario::new("reclaim", "jitter", pointers::<HazardDomain<Buffers>>),
        ),
        twin(
            "blind-interval",
            "intervals that a reader does not raise when it reads what is newer",
            RECLAIMED,
            Scenario::new("reclaim", "jitter", pointers::<intervals::Blind<Jitter>>),
        ),
        twin(
            "check-then-act",
            "sees that the lock is free, and takes it a moment later",
            NOT_ALONE,
            Scenario::new("exclusion", "jitter", exclusion::<Exclusive<mutexes::ChecksThenActs>>),
        ),
        twin(
            "early-unlock",
            "hands the lock on before the section is over",
            NOT_ALONE,
            Scenario::new("exclusion", "jitter", exclusion::<Exclusive<mutexes::UnlocksEarly>>),
        ),
        twin(
            "greedy-try",
            "a try that comes at the deadline takes the lock from its holder",
            &["given to two", "two writers were inside"],
            Scenario::new("manners", "jitter", manners::<Exclusive<mutexes::GivesInAtTheDeadline>>),
        ),
        twin(
            "forgotten-wake",
            "waiters sleep, and nobody wakes them",
            STUCK,
            Scenario::new("exclusion", "native", exclusion::<Exclusive<mutexes::ForgetsToWake>>),
        ),
        twin(
            "dropped-wake",
            "shfl on a machine where one wake in four wakes nobody",
            STUCK,
            Scenario::new("exclusion", "jitter", exclusion::<Exclusive<RawShfl<Drops>>>),
        ),
        twin(
            "blind-release",
            "shfl on a machine whose release does not look whether a thread waits",
            STUCK,
            Scenario::new("exclusion", "jitter", exclusion::<Exclusive<RawShfl<Blinks>>>),
        ),
        twin(
            "dropped-notification",
            "a condition variable on a machine where one wake in four wakes nobody",
            STUCK,
            Scenario::new("condition", "jitter", condition::<Exclusive<RawTtas<Drops>>>),
        ),
        twin(
            "forgotten-unit",
            "a semaphore on a machine where one wake in four wakes nobody",
            STUCK,
            Scenario::new("exclusion", "jitter", exclusion::<Exclusive<Unit<Drops>>>),
        ),
        twin(
            "spare-unit",
            "a semaphore whose timed waiters give a unit back that they did not get",
            NOT_ALONE,
            Scenario::new("abandonment", "jitter", abandonment::<Exclusive<mutexes::GivesBackTooMuch>>),
        ),
        twin(
            "sleeps-unseen",
            "a condition variable on a machine that compares and goes to sleep in two steps",
            STUCK,
            Scenario::new("condition", "jitter", condition::<Exclusive<RawTtas<Sleeps>>>),
        ),
        twin(
            "node-reused",
            "clh with a thread that reuses its own node, not its predecessor's",
            // Its successor may also be let in twice.
            &["stands still", "two writers were inside", "a torn write", "says that it is free"],
            Scenario::new("exclusion", "jitter", exclusion::<Exclusive<RawClh<Reuses>>>),
        ),
        twin(
            "abandoned-node",
            "a queue lock whose timed waiters leave their nodes in the queue",
            &["stands still", "two writers were inside", "a torn write", "the lock is held when"],
            Scenario::new("abandonment", "jitter", abandonment::<Exclusive<mutexes::LeavesItsNode>>),
        ),
        twin(
            "late-touch",
            "counts its releases in the lock, after the release",
            LATE,
            Scenario::new("reuse", "jitter", reuse::<Exclusive<mutexes::TouchesLate>>),
        ),
        twin(
            "blind-revocation",
            "bravo whose writer scans the table and sees nobody",
            NOT_ALONE,
            Scenario::new("exclusion", "jitter", exclusion::<Shared<RawBravo<Blind, RawPfT<Blind>>>>),
        ),
        twin(
            "uncounted-reader",
            "of two readers that come at once, one is counted",
            // With too few readers counted, the last reader counts below zero, and no writer gets in any more.
            &[
                "stands still",
                "came in on a reader",
                "a torn write",
                "was inside with",
                "says that it is",
                "every thread has left",
            ],
            Scenario::new("exclusion", "jitter", exclusion::<Shared<rwlocks::MiscountsReaders>>),
        ),
        twin(
            "torn-downgrade",
            "lets readers in while its writer is still writing",
            NOT_ALONE,
            Scenario::new("exclusion", "jitter", exclusion::<Shared<rwlocks::LetsReadersInEarly>>),
        ),
        twin(
            "left-to-downgrade",
            "pf-t with a downgrade that lets go of the lock and reads again",
            BETWEEN,
            Scenario::new(
                "exclusion",
                "jitter",
                exclusion::<Shared<RawPfT<Jitter>, rwlocks::LeavesToDowngrade>>,
            ),
        ),
        twin(
            "left-to-upgrade",
            "pf-t with an upgrade that lets go of the lock and writes",
            BETWEEN,
            Scenario::new(
                "exclusion",
                "jitter",
                exclusion::<Shared<RawPfT<Jitter>, rwlocks::LeavesToUpgrade>>,
            ),
        ),
        twin(
            "stays-inside",
            "pf-t with a fair unlock that leaves the reader counted",
            &["stands still", "the lock is held when"],
            Scenario::new("exclusion", "jitter", exclusion::<Shared<RawPfT<Jitter>, rwlocks::StaysInside>>),
        ),
        twin(
            "even-early",
            "a sequence lock whose number is even again before the last word is stored",
            TORN,
            Scenario::new("copies", "jitter", copies::<Broken<Jitter, { Mistake::EVEN_EARLY }>>),
        ),
        twin(
            "unvalidated-copy",
            "a sequence lock whose reader does not look at the number again",
            TORN,
            Scenario::new("copies", "jitter", copies::<Broken<Jitter, { Mistake::UNVALIDATED }>>),
        ),
        twin(
            "same-number",
            "a sequence lock whose number is the same after a write as before",
            TORN,
            Scenario::new("copies", "jitter", copies::<Broken<Jitter, { Mistake::SAME_NUMBER }>>),
        ),
        twin(
            "unguarded-writers",
            "a sequence lock whose writers do not exclude each other",
            // Two of the same version's words, or an odd number that stays.
            &[
                "a copy is of two moments",
                "updates were lost",
                "time went back",
                "stands still",
                "no copy to be had",
            ],
            Scenario::new("copies", "jitter", copies::<Broken<Jitter, { Mistake::NO_MUTEX }>>),
        ),
    ];
    if crate::priorities::are_permitted() {
        twins.push(twin(
            "awake-for-the-link",
            "a queue lock whose holder waits awake for the link of a preempted waiter",
            STUCK,
            Scenario::new("priorities", "jitter", priorities::<Exclusive<mutexes::AwaitsTheLinkAwake>>),
        ));
    }
    twins
}

/// What became of a twin.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// Caught, for the right reason.
    Caught(Failed),
    /// Failed in a way that its mistake does not explain.
    Otherwise(Failed),
    /// Not caught in time.
    Missed(Report),
}

impl Twin {
    /// Tortures it, in short rounds that become longer (on a busy machine little happens in a short one),
    /// until it is caught or `time` is over.
    pub fn check(&self, seed: u64, time: Duration) -> Verdict {
        let start = Instant::now();
        let stands_still = self.symptoms.contains(&STUCK[0]);
        let mut settings = Settings {
            threads: 8,
            time: Duration::ZERO,
            round: Duration::from_millis(150),
            // A twin that is not expected to stand still may have been delayed by other programs.
            patience: if stands_still { Duration::from_millis(1500) } else { Duration::from_secs(20) },
            seed,
        };
        let never = AtomicBool::new(false);
        loop {
            // With a disturber in every other round.
            settings.time = 2 * settings.round;
            let report = torture(std::slice::from_ref(&self.scenario), settings, &never, |_| ());
            match report.failed {
                Some(failed) => {
                    let expected = |symptom: &&str| failed.what.contains(*symptom);
                    break if self.symptoms.iter().chain([&CHILD]).any(expected) {
                        Verdict::Caught(failed)
                    } else {
                        Verdict::Otherwise(failed)
                    };
                }
                None if start.elapsed() > time => break Verdict::Missed(report),
                None => {
                    settings.round = (settings.round * 5 / 4).min(Duration::from_secs(2));
                    settings.seed += 1;
                }
            }
        }
    }
}

pub(crate) const INFO: Info = Info {
    name: "broken",
    summary: "broken on purpose",
    atomics: 0,
    waiter_bytes: 0,
    holder_bytes: 0,
    fairness: "none",
    blocking: false,
    suspension: Suspension::Blocks,
    source: "none",
};
