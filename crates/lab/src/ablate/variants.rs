//! The variants: each line names a mechanism, how it is changed, and the lock's type with that change.

use super::Subject;
use latchwork::locks::mutex::policy::{NoPolicy, NumaPolicy, Policy};
use latchwork::locks::mutex::shfl::RawShfl;
use latchwork::locks::rwlock::bravo::bias::{Adaptive, Bernoulli, Guard, When};
use latchwork::locks::rwlock::bravo::publish::Owned;
use latchwork::locks::rwlock::bravo::revoke::{Holding, Passing};
use latchwork::locks::rwlock::bravo::{RawBravo, Rows};
use latchwork::locks::rwlock::shfl_rw::RawShflRw;
use latchwork::locks::rwlock::shfl_rw::tuning::Tuning;
use latchwork::machine::Machine;
use latchwork_sim::Sim;
use latchwork_workloads::lock::{Exclusive, Lock, Shared};

/// How many of the first variants are the lock as it is: the one to compare with, and one with other seeds.
pub const YARDSTICKS: usize = 2;

/// What is said of a variant.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Variant {
    /// The mechanism or constant.
    pub mechanism: &'static str,
    /// How it is changed.
    pub change: &'static str,
}

/// Called with the type of each variant.
pub trait Visitor<M: Machine> {
    /// A variant of the lock.
    fn variant<L: Lock<Machine = M>>(&mut self, mechanism: &'static str, change: &'static str);
}

/// The first two variants: the lock as it is.
fn as_it_is<M: Machine, L: Lock<Machine = M>>(visitor: &mut impl Visitor<M>) {
    visitor.variant::<L>("all", "as it is");
    visitor.variant::<L>("none", "other seeds");
}

/// The variants of `shfl`.
pub fn shfl<M: Machine>(visitor: &mut impl Visitor<M>) {
    /// A variant whose policy is [`NumaPolicy`] with other items.
    macro_rules! variant {
        ($mechanism:literal, $change:literal, $($item:item)*) => {{
            struct Changed;
            impl Policy for Changed {
                $($item)*
                fn key<N: Machine>() -> u32 {
                    NumaPolicy::key::<N>()
                }
                fn rank<N: Machine>(shuffler: u32, waiter: u32) -> usize {
                    NumaPolicy::rank::<N>(shuffler, waiter)
                }
            }
            visitor.variant::<Exclusive<RawShfl<M, Changed>>>($mechanism, $change);
        }};
    }
    /// The same, with shuffling where there are NUMA nodes.
    macro_rules! constant {
        ($mechanism:literal, $change:literal, $($item:item)*) => {
            variant!($mechanism, $change, $($item)* fn applies<N: Machine>() -> bool { NumaPolicy::applies::<N>() })
        };
    }
    as_it_is::<M, Exclusive<RawShfl<M>>>(visitor);
    variant!(
        "NUMA batches",
        "off",
        fn applies<N: Machine>() -> bool {
            false
        }
    );
    constant!("NUMA batches", "half", const PATIENCE: Option<u32> = Some(8););
    constant!("NUMA batches", "double", const PATIENCE: Option<u32> = Some(32););
    constant!("shuffler's role handed on", "off", const HANDS_ON: bool = false;);
    constant!("walks resume where the last ended", "off", const RESUMES: bool = false;);
    constant!("a shuffler unparks the next in line", "off", const UNPARKS_EARLY: bool = false;);
    constant!("first look", "half", const LOOK: u32 = 25;);
    constant!("first look", "double", const LOOK: u32 = 100;);
    constant!("looks come after a share of the wait", "half", const PROMPTNESS: u32 = 16;);
    constant!("looks come after a share of the wait", "double", const PROMPTNESS: u32 = 4;);
    constant!("second looks at a free lock", "off", const SECOND_LOOKS: u32 = 0;);
    constant!("second looks at a free lock", "1 in place of 3", const SECOND_LOOKS: u32 = 1;);
    constant!("second looks at a free lock", "double", const SECOND_LOOKS: u32 = 6;);
    constant!("spin before sleep", "off", const SPIN: u32 = 0;);
    constant!("spin before sleep", "half", const SPIN: u32 = 5_000;);
    constant!("spin before sleep", "double", const SPIN: u32 = 20_000;);
    constant!("turn of the head", "half", const TURN: u32 = 500;);
    constant!("turn of the head", "double", const TURN: u32 = 2_000;);
    constant!("naps of a robbed head", "off", const NAPS: bool = false;);
    constant!("newcomers spin beside a sleeping head", "off", const BESIDE: bool = false;);
    constant!("requeue of the next head", "off", const REQUEUES: bool = false;);
}

/// The variants of `shfl-rw`.
pub fn shfl_rw<M: Machine>(visitor: &mut impl Visitor<M>) {
    /// A variant with other items, and the order of the lock as it is.
    macro_rules! constant {
        ($mechanism:literal, $change:literal, $($item:item)*) => {{
            struct Changed;
            impl Tuning for Changed {
                type Order = NumaPolicy;
                $($item)*
            }
            visitor.variant::<Shared<RawShflRw<M, Changed>>>($mechanism, $change);
        }};
    }
    /// In order of arrival.
    struct InOrder;
    impl Tuning for InOrder {
        type Order = NoPolicy;
    }
    as_it_is::<M, Shared<RawShflRw<M>>>(visitor);
    visitor.variant::<Shared<RawShflRw<M, InOrder>>>("shuffling", "off");
    constant!("newcomer's looks", "off", const NEWCOMER_LOOKS: u32 = 0;);
    constant!("newcomer's looks", "half", const NEWCOMER_LOOKS: u32 = 12;);
    constant!("newcomer's looks", "double", const NEWCOMER_LOOKS: u32 = 48;);
    constant!("newcomer's longest pause", "half", const NEWCOMER_PAUSE: u32 = 4;);
    constant!("newcomer's longest pause", "double", const NEWCOMER_PAUSE: u32 = 16;);
    constant!("newcomer's second looks", "off", const NEWCOMER_IDLE: (u32, u32) = (0, 5););
    constant!("newcomer's second looks", "double", const NEWCOMER_IDLE: (u32, u32) = (2, 5););
    constant!("head's second looks", "off", const HEAD_IDLE: (u32, u32) = (0, 8););
    constant!("head's second looks", "double", const HEAD_IDLE: (u32, u32) = (8, 8););
    constant!("head's longest pause", "half", const HEAD_PAUSE: (u32, u32) = (1, 64););
    constant!("head's longest pause", "double", const HEAD_PAUSE: (u32, u32) = (1, 256););
    constant!("head's looks before it sleeps", "half", const HEAD_LOOKS: u32 = 16;);
    constant!("head's looks before it sleeps", "double", const HEAD_LOOKS: u32 = 64;);
    constant!("a writer shuts readers out while it spins", "off", const DRAIN: u32 = 0;);
    constant!("a writer shuts readers out while it spins", "half", const DRAIN: u32 = 256;);
    constant!("a writer shuts readers out while it spins", "double", const DRAIN: u32 = 1024;);
    constant!("readers woken together", "one", const INVITATIONS: u32 = 1;);
    constant!("readers woken together", "double", const INVITATIONS: u32 = 32;);
    constant!("requeue of the next head", "off", const REQUEUES: bool = false;);
    constant!("time for which a head is passed", "half", const STEAL_BOUND: u32 = 100;);
    constant!("time for which a head is passed", "double", const STEAL_BOUND: u32 = 400;);
    constant!("time for which a sleeping head is passed", "half", const WAKE_BOUND: u32 = 5_000;);
    constant!("time for which a sleeping head is passed", "double", const WAKE_BOUND: u32 = 20_000;);
    constant!("part of that as the head", "off", const HEAD_BOUND: u32 = 0;);
}

/// A bias that never comes back once it was revoked.
struct Never;

// SAFETY: the number is at least `FIRST` and less than `REVOKING`, because `Guard` returned it.
unsafe impl When for Never {
    fn revoked<M: Machine>(start: u64, now: u64, memory: &mut u32) -> u32 {
        Guard::<9>::revoked::<M>(start, now, memory)
    }

    fn may_return<M: Machine>(_: u32) -> bool {
        false
    }
}

/// The variants of the bias of `bravo-2d-shfl-rw`.
pub fn bravo<M: Machine>(visitor: &mut impl Visitor<M>) {
    type With<M, W, V = Passing> = Shared<RawBravo<M, RawShflRw<M>, Owned, W, V>>;
    as_it_is::<M, Shared<Rows<M, RawShflRw<M>>>>(visitor);
    visitor.variant::<Shared<RawShflRw<M>>>("bias", "off");
    visitor.variant::<With<M, Never>>("bias after the first revocation", "off");
    visitor.variant::<With<M, Guard>>("cost model", "off: the paper's guard, N = 9");
    visitor.variant::<With<M, Guard<99>>>("cost model", "off: the paper's guard, N = 99");
    visitor.variant::<With<M, Bernoulli>>("cost model", "off: back after 100 slow reads");
    visitor.variant::<With<M, Adaptive<4>>>("share of the time for revocations", "double: N = 4");
    visitor.variant::<With<M, Adaptive<19>>>("share of the time for revocations", "half: N = 19");
    visitor.variant::<With<M, Adaptive, Holding>>("a long revocation lets readers pass", "off");
}

/// What there is for a lock.
pub fn list(subject: Subject) -> Vec<Variant> {
    struct List(Vec<Variant>);
    impl Visitor<Sim> for List {
        fn variant<L: Lock<Machine = Sim>>(&mut self, mechanism: &'static str, change: &'static str) {
            self.0.push(Variant { mechanism, change });
        }
    }
    let mut list = List(Vec::new());
    match subject {
        Subject::Shfl => shfl(&mut list),
        Subject::ShflRw => shfl_rw(&mut list),
        Subject::Bravo => bravo(&mut list),
    }
    list.0
}
