//! Where the decisions of a schedule come from: chance, or the record of an earlier schedule.

use crate::rng::Rng;

/// What is decided. Every kind has a default, the decision that disturbs the least.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Which thread takes the next step, though the running one could.
    Switch,
    /// Which thread goes on when the running one cannot, or offers its place.
    Next,
    /// For how many steps a store stays in its thread's buffer.
    Delay,
    /// Whether a futex wait returns for no reason.
    Spurious,
    /// After how many steps the deadline of a sleeper passes; 0: when no thread can run.
    Expire,
    /// Which deadline passes when no thread can run.
    Idle,
    /// By how much time jumps when the clock is read.
    Jump,
    /// How often a bounded spin looks again.
    Look,
    /// Whether a pause lets the same thread go on.
    Eager,
    /// The processor that a thread runs on.
    Cpu,
}

/// Where a decision is made: by which thread, in which of its operations, and at which step of that. So a decision
/// keeps its meaning when other threads or operations are left out.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct At {
    pub thread: u8,
    pub operation: u8,
    pub step: u32,
}

/// A decision that differs from the default: where, what, and how.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    pub at: At,
    pub kind: Kind,
    pub value: u32,
}

/// How threads are chosen by chance.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    /// The running thread goes on until it cannot.
    Straight,
    /// Burckhardt et al., "A randomized scheduler with probabilistic guarantees of finding bugs", ASPLOS 2010:
    /// the thread of the highest priority runs; at a few random steps the running thread's falls below all.
    Priorities,
    /// The same, but the priority that the thread gets is any.
    Shuffled,
    /// At a few random steps, any thread.
    Points,
    /// At every step with this chance (one in so many), any thread.
    Walk(u32),
    /// The same, and the thread that had to stop stays behind for up to so many steps, while others do much.
    Stall(u32, u32),
    /// Before steps that others can see every thread but one lets another go on, about once in so many steps. The one
    /// goes on until it cannot: it does much while the others have stopped in the middle of something.
    Hesitate(u32),
}

/// Steps at which a thread is preempted, at most, under [`Strategy::Priorities`] and [`Strategy::Points`].
pub(super) const POINTS: usize = 8;

/// How one schedule is chosen by chance.
#[derive(Clone, Debug)]
pub(super) struct Chance {
    chain: Chain,
    length: (u32, u32),
    /// Which link of the chain it is.
    number: usize,
    pub rng: Rng,
    pub strategy: Strategy,
    /// Whether preemptions come before steps only that others can see.
    pub marks: bool,
    /// The points of preemption that are still to come, the next one last.
    pub points: [u32; POINTS],
    pub left: usize,
    /// A store is buffered with this chance, of 8, and for how many steps at most.
    pub buffered: u32,
    pub longest: u32,
    /// One wait in so many returns at once for no reason; 0: none.
    pub spurious: u32,
    /// A sleeper's deadline passes by itself with this chance, of 8.
    pub expires: u32,
    /// Time jumps when it is read with this chance, of 16.
    pub jumps: u32,
    /// A bounded spin looks again with this chance, of 8.
    pub looks: u32,
    /// A pause lets the same thread go on with this chance, of 8.
    pub eager: u32,
    /// The thread of this number, modulo how many there are, does not hesitate.
    pub bold: u32,
    /// Threads change processors with this chance, of 8, when they ask.
    pub moves: u32,
}

/// Schedules one after the other at most: the beginning of the first, of which the second goes on, and so on.
pub(super) const LINKS: usize = 6;

/// A schedule: chance from a seed, and from these steps on from others.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Chain {
    links: [(u32, u64); LINKS],
    count: usize,
}

impl Chain {
    pub(super) fn new(seed: u64) -> Chain {
        let mut chain = Chain::default();
        chain.push(0, seed);
        chain
    }

    /// From the step after this one on, another seed.
    pub(super) fn push(&mut self, step: u32, seed: u64) {
        self.links[self.count] = (step, seed);
        self.count += 1;
    }

    pub(super) fn is_full(&self) -> bool {
        self.count == LINKS
    }

    /// The link of this number.
    pub(super) fn link(&self, number: usize) -> Option<(u32, u64)> {
        self.links[..self.count].get(number).copied()
    }
}

impl Chance {
    /// The beginning of a schedule of a client whose schedules have about so many steps, and steps that others see.
    pub(super) fn start(chain: Chain, length: (u32, u32)) -> Chance {
        let (_, seed) = chain.link(0).expect("a chain has a link");
        Chance { chain, length, ..Chance::new(seed, length, (0, 0)) }
    }

    /// The step after which another seed is used.
    pub(super) fn until(&self) -> u32 {
        self.chain.link(self.number + 1).map_or(u32::MAX, |(step, _)| step)
    }

    /// Uses the next seed from here on.
    pub(super) fn go_on(&mut self, from: (u32, u32)) {
        let number = self.number + 1;
        if let Some((_, seed)) = self.chain.link(number) {
            let (chain, length) = (self.chain, self.length);
            *self = Chance { chain, length, number, ..Chance::new(seed, length, from) };
        }
    }

    fn new(seed: u64, (steps, marks): (u32, u32), from: (u32, u32)) -> Chance {
        let mut rng = Rng::new(seed ^ 0x5eed_0000_0000_0000);
        let one_of = |rng: &mut Rng, choices: &[u32]| choices[rng.below(choices.len() as u64) as usize];
        let strategy = match rng.below(10) {
            8.. => Strategy::Hesitate(one_of(&mut rng, &[1, 2, 3])),
            0 => Strategy::Priorities,
            1..=2 => Strategy::Shuffled,
            3 => Strategy::Points,
            4..=5 => Strategy::Walk(one_of(&mut rng, &[2, 3, 4, 8, 16, 32])),
            _ => {
                let often = one_of(&mut rng, &[2, 4, 8, 16]);
                Strategy::Stall(often, one_of(&mut rng, &[16, 64, 256]))
            }
        };
        let only_marks = rng.below(2) == 0 || matches!(strategy, Strategy::Hesitate(_));
        let (length, first) = if only_marks { (marks, from.1) } else { (steps, from.0) };
        let left = 1 + rng.below(POINTS as u64) as usize;
        let mut points = [0; POINTS];
        for point in &mut points[..left] {
            *point = 1 + first + rng.below(u64::from(length.max(8))) as u32;
        }
        points[..left].sort_unstable_by(|a, b| b.cmp(a));
        Chance {
            chain: Chain::default(),
            length: (0, 0),
            number: 0,
            strategy,
            marks: only_marks,
            points,
            left,
            buffered: one_of(&mut rng, &[0, 0, 1, 4, 8]),
            longest: one_of(&mut rng, &[4, 16, 64, 256]),
            spurious: {
                rng.next(); // Nothing uses this number. Without it each seed would give another schedule than before.
                one_of(&mut rng, &[0, 0, 0, 4, 16])
            },
            expires: one_of(&mut rng, &[0, 2, 4, 8]),
            jumps: one_of(&mut rng, &[0, 0, 1, 4]),
            looks: one_of(&mut rng, &[0, 0, 2, 4]),
            eager: one_of(&mut rng, &[0, 2, 4, 6]),
            moves: one_of(&mut rng, &[0, 0, 0, 1]),
            bold: rng.below(60) as u32,
            rng,
        }
    }

    /// Whether the runnable thread of the highest priority runs.
    #[inline]
    pub(super) fn by_priority(&self) -> bool {
        matches!(self.strategy, Strategy::Priorities | Strategy::Shuffled)
    }

    /// Whether a thread, of so many, goes on until it cannot.
    #[inline]
    pub(super) fn is_bold(&self, thread: usize, count: usize) -> bool {
        matches!(self.strategy, Strategy::Hesitate(_)) && thread == self.bold as usize % count
    }

    /// A schedule without preemptions, to see how long a client is.
    pub(super) fn straight() -> Chance {
        Chance {
            chain: Chain::default(),
            length: (0, 0),
            number: 0,
            rng: Rng::new(0),
            strategy: Strategy::Straight,
            marks: false,
            points: [0; POINTS],
            left: 0,
            buffered: 0,
            longest: 1,
            spurious: 0,
            expires: 0,
            jumps: 0,
            looks: 0,
            eager: 0,
            moves: 0,
            bold: 0,
        }
    }

    /// Whether something of `chance` in `of` happens.
    #[inline]
    pub(super) fn happens(&mut self, chance: u32, of: u32) -> bool {
        chance > 0 && self.rng.below(u64::from(of)) < u64::from(chance)
    }

    /// The step of the next preemption after `step`.
    pub(super) fn next_preemption(&mut self, step: u32) -> u32 {
        match self.strategy {
            Strategy::Straight => u32::MAX,
            Strategy::Walk(one_in) | Strategy::Stall(one_in, _) | Strategy::Hesitate(one_in) => {
                // Geometric, by inversion.
                let gap = self.rng.exponential(u64::from(one_in)).min(1 << 20) as u32;
                step + 1 + gap
            }
            Strategy::Priorities | Strategy::Shuffled | Strategy::Points => {
                while self.left > 0 {
                    let at = self.points[self.left - 1];
                    if at > step {
                        return at;
                    }
                    self.left -= 1;
                }
                u32::MAX
            }
        }
    }
}

/// Where decisions come from.
#[derive(Debug)]
pub(super) enum Source {
    Chance(Chance),
    /// The decisions of another schedule.
    Record(Vec<Decision>),
}

/// The decision of this kind at this place, if there is one.
pub(super) fn recorded(decisions: &[Decision], at: At, kind: Kind) -> Option<u32> {
    decisions
        .iter()
        .find(|decision| decision.at == at && decision.kind == kind)
        .map(|decision| decision.value)
}
