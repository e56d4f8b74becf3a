//! The variants: each line names a mechanism, how it is changed, and the lock's type with that change.

use super::Subject;
use latchwork::locks::mutex::policies::{NoPolicy, NumaPolicy};
use latchwork::locks::mutex::shfl::RawShfl;
use latchwork::locks::mutex::shuffle::Policy;
use latchwork::locks::rwlock::bravo::bias::{Adaptive, Bernoulli, Guard, When};
use latchwork::locks::rwlock::bravo::publish::Owned;
use latchwork::locks::rwlock::bravo::revoke::{Holding, Passing};
use latchwork::locks::rwlock::bravo::{RawBravo, Rows};
use latchwork::locks::rwlock::shfl_rw::RawShflRw;
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

/// A variant of the lock type `$lock<M, P>`, whose policy `P` is [`NumaPolicy`] with other items.
macro_rules! variant {
    ($visitor:ident, $lock:ident, $mechanism:literal, $change:literal, $($item:item)*) => {{
        struct Changed;
        impl Policy for Changed {
            $($item)*
            fn applies<N: Machine>() -> bool {
                NumaPolicy::applies::<N>()
            }
            fn key<N: Machine>() -> u32 {
                NumaPolicy::key::<N>()
            }
            fn rank<N: Machine>(shuffler: u32, waiter: u32) -> usize {
                NumaPolicy::rank::<N>(shuffler, waiter)
            }
        }
        $visitor.variant::<$lock<M, Changed>>($mechanism, $change);
    }};
}

/// How threads wait, which is the same in `shfl` and `shfl-rw`. `$second` is what second looks are called.
macro_rules! waiting {
    ($visitor:ident, $lock:ident, $second:literal) => {
        variant!($visitor, $lock, "first look", "half", const LOOK: u32 = 25;);
        variant!($visitor, $lock, "first look", "double", const LOOK: u32 = 100;);
        variant!(
            $visitor,
            $lock,
            "looks come after a share of the wait",
            "half",
            const PROMPTNESS: u32 = 32;
        );
        variant!(
            $visitor,
            $lock,
            "looks come after a share of the wait",
            "double",
            const PROMPTNESS: u32 = 8;
        );
        variant!($visitor, $lock, $second, "off", const SECOND_LOOKS: u32 = 0;);
        variant!($visitor, $lock, $second, "1 in place of 3", const SECOND_LOOKS: u32 = 1;);
        variant!($visitor, $lock, $second, "double", const SECOND_LOOKS: u32 = 6;);
        variant!($visitor, $lock, "spin before sleep", "off", const SPIN: u32 = 0;);
        variant!($visitor, $lock, "spin before sleep", "half", const SPIN: u32 = 5_000;);
        variant!($visitor, $lock, "spin before sleep", "double", const SPIN: u32 = 20_000;);
        variant!($visitor, $lock, "turn of the head", "half", const TURN: u32 = 500;);
        variant!($visitor, $lock, "turn of the head", "double", const TURN: u32 = 2_000;);
        variant!($visitor, $lock, "naps of a robbed head", "off", const NAPS: bool = false;);
        variant!(
            $visitor,
            $lock,
            "newcomers spin beside a sleeping head",
            "off",
            const BESIDE: bool = false;
        );
        variant!($visitor, $lock, "no spins after spins in vain", "off", const TRIAL: u32 = 1;);
        variant!($visitor, $lock, "requeue of the next head", "off", const REQUEUES: bool = false;);
    };
}

/// The variants of `shfl`.
pub fn shfl<M: Machine>(visitor: &mut impl Visitor<M>) {
    type With<M, P> = Exclusive<RawShfl<M, P>>;
    as_it_is::<M, Exclusive<RawShfl<M>>>(visitor);
    visitor.variant::<With<M, NoPolicy>>("NUMA batches", "off");
    variant!(visitor, With, "NUMA batches", "half", const PATIENCE: Option<u32> = Some(8););
    variant!(visitor, With, "NUMA batches", "double", const PATIENCE: Option<u32> = Some(32););
    waiting!(visitor, With, "second looks at a free lock");
}

/// The variants of `shfl-rw`.
pub fn shfl_rw<M: Machine>(visitor: &mut impl Visitor<M>) {
    type With<M, P> = Shared<RawShflRw<M, P>>;
    as_it_is::<M, Shared<RawShflRw<M>>>(visitor);
    visitor.variant::<With<M, NoPolicy>>("shuffling", "off");
    waiting!(visitor, With, "a writer's second looks at an open lock");
}

/// A bias that never comes back once it was revoked.
struct Never;

// SAFETY: the number is at least `FIRST` and less than `REVOKING`, because `Guard` returned it.
unsafe impl When for Never {
    fn revoked<M: Machine>(start: u64, now: u64) -> u32 {
        Guard::<9>::revoked::<M>(start, now)
    }

    fn may_return<M: Machine>(_: u32, _: u32, _: u32) -> bool {
        false
    }
}

/// The variants of the bias of `bravo-2d-shfl-rw`.
pub fn bravo<M: Machine>(visitor: &mut impl Visitor<M>) {
    type With<M, W, V = Passing> = Shared<RawBravo<M, RawShflRw<M>, Owned, W, V>>;
    as_it_is::<M, Shared<Rows<M, RawShflRw<M>>>>(visitor);
    visitor.variant::<Shared<RawShflRw<M>>>("bias", "off");
    visitor.variant::<With<M, Never>>("bias after the first revocation", "off");
    visitor.variant::<With<M, Guard>>("reads in a row", "off: the paper's guard, N = 9");
    visitor.variant::<With<M, Guard<99>>>("reads in a row", "off: the paper's guard, N = 99");
    visitor.variant::<With<M, Bernoulli>>("reads in a row", "off: back after 100 slow reads");
    visitor.variant::<With<M, Adaptive<4>>>("reads in a row", "half: N = 4");
    visitor.variant::<With<M, Adaptive<18>>>("reads in a row", "double: N = 18");
    visitor.variant::<With<M, Adaptive<9, { u64::MAX }>>>("what a revocation counts for", "off: its time");
    visitor.variant::<With<M, Adaptive<9, 50_000>>>("what a revocation counts for", "half");
    visitor.variant::<With<M, Adaptive<9, 200_000>>>("what a revocation counts for", "double");
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
