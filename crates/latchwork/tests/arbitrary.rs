//! Arbitrary sequences of safe operations, by several threads, over several domains, guards, cells and maps: what a reader
//! has is alive, everything is dropped once, and nothing is left in the end. Twins that are broken on purpose are found.
//!
//! What the operations return is compared with a model elsewhere: `map::model_tests` for one thread, `histories` here for
//! several.
//!
//! | variable | what it does |
//! |---|---|
//! | `LATCHWORK_FUZZ=10000` | so many rounds (1500 if it is not set, about a second) |
//! | `LATCHWORK_FUZZ_MEMCHECK=1` | the rounds run under valgrind's memcheck as well |
//!
//! The tests have a process of their own, because others stop the reclamation of their process.

#[path = "arbitrary/histories.rs"]
mod histories;
#[path = "arbitrary/world.rs"]
mod world;

use latchwork::machine::Native;
use latchwork::reclaim::domain::{Domain, Flavour};
use latchwork::reclaim::epoch::{Epoch, EpochDomain};
use latchwork::reclaim::qsbr::{Qsbr, QsbrDomain};
use latchwork::reclaim::rcu::{General, RcuDomain};
use latchwork::reclaim::typed::Covering;
use latchwork::reclaim::{AtLimit, Garbage, GracePeriod, GuardOf, Info, Limit, Reclaim, Retire};
use std::panic::{AssertUnwindSafe, catch_unwind};
use world::{Strategy, World};

/// Random numbers (xorshift).
pub struct Random(pub u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// How many rounds the environment asks for.
pub fn rounds(usual: u64) -> u64 {
    let asked = std::env::var("LATCHWORK_FUZZ").ok();
    asked.map_or(usual, |text| text.parse().expect("LATCHWORK_FUZZ is a number of rounds"))
}

fn settled<F: Flavour>(domain: &Domain<Native, F>, random: &mut Random) {
    domain.set_limit(Limit { objects: [0, 40, u64::MAX][random.below(3) as usize], bytes: 1 << 20 });
    // So short that a thread which waits for another one's section goes on.
    domain.set_at_limit([AtLimit::Grow, AtLimit::Wait { nanos: 20_000 }][random.below(2) as usize]);
}

impl<F: Flavour> Strategy for Domain<Native, F> {
    fn settle(&self, random: &mut Random) {
        settled(self, random);
    }
    fn inside(&self) -> bool {
        Self::is_inside() || RcuDomain::<Native>::is_inside()
    }
}

/// RCU whose mistakes the driver has to find. What it drops too early it does not free, so that a late reader sees that.
/// Its readers begin sections of `F`.
struct Twin<const MISTAKE: u8, F: Flavour = General> {
    retires: RcuDomain<Native>,
    reads: Domain<Native, F>,
}

/// Drops what is retired at once.
const TOO_EARLY: u8 = 0;
/// Drops every 20th object twice.
const TWICE: u8 = 1;
/// Loses every 20th object.
const LOST: u8 = 2;
/// Drops at once what no section of RCU protects, whatever its readers are in. A world of one thread has no other sections.
const NONE: u8 = 3;

// SAFETY: none: the driver has to find it.
unsafe impl<const MISTAKE: u8, F: Flavour> Reclaim for Twin<MISTAKE, F> {
    type Machine = Native;
    type Reader<'d> = F::Reader<'d, Native>;
    const INFO: Info = <RcuDomain<Native> as Reclaim>::INFO;

    fn new_in() -> Self {
        Twin { retires: RcuDomain::new(), reads: Domain::new_in() }
    }
    fn reader(&self) -> Self::Reader<'_> {
        self.reads.reader()
    }
    fn covers<'r, 'd>(&self, _: &GuardOf<'r, 'd, Self>) -> bool
    where
        Self::Reader<'d>: 'r,
    {
        true
    }
    unsafe fn retire<T: Retire>(&self, object: *mut T) {
        let chance = self.retires.garbage().objects.is_multiple_of(20);
        // SAFETY: none: the driver has to find it. (The memory stays, so that a late reader sees that.)
        unsafe {
            match MISTAKE {
                TOO_EARLY => std::ptr::drop_in_place(object),
                TWICE if chance => (0..2).for_each(|_| std::ptr::drop_in_place(object)),
                LOST if chance => (),
                NONE if !RcuDomain::<Native>::is_inside() => std::ptr::drop_in_place(object),
                _ => self.retires.retire(object),
            }
        }
    }
    fn collect(&self) {
        self.retires.collect();
    }
    fn barrier(&self) {
        self.retires.barrier();
    }
    fn garbage(&self) -> Garbage {
        self.retires.garbage()
    }
}

// SAFETY: none: the driver has to find it.
unsafe impl<const MISTAKE: u8, F: Flavour> GracePeriod for Twin<MISTAKE, F> {
    fn synchronize(&self) {
        self.retires.synchronize();
    }
}

// SAFETY: none: the driver has to find it.
unsafe impl<const MISTAKE: u8, F: Flavour> Covering for Twin<MISTAKE, F> {}

impl<const MISTAKE: u8, F: Flavour> Strategy for Twin<MISTAKE, F> {
    fn settle(&self, random: &mut Random) {
        settled(&self.retires, random);
    }
    fn inside(&self) -> bool {
        RcuDomain::<Native>::is_inside() || Domain::<Native, F>::is_inside()
    }
}

fn sound(rounds: u64) {
    for seed in 0..rounds {
        match seed % 3 {
            0 => World::<RcuDomain<Native>>::round(seed, 3),
            1 => World::<EpochDomain<Native>>::round(seed, 3),
            _ => World::<QsbrDomain<Native>>::round(seed, 3),
        }
    }
}

#[test]
fn arbitrary_operations_find_nothing() {
    sound(rounds(1500));
}

/// One thread, so that it does the same each time. The rarest is found in one of about 100 worlds; the others, in each
/// second one or more often.
fn is_found<D: Strategy>(mistake: &str) {
    let found = (0..5000).any(|seed| catch_unwind(AssertUnwindSafe(|| World::<D>::round(seed, 1))).is_err());
    assert!(found, "not found: {mistake}");
}

#[test]
fn broken_strategies_are_found() {
    is_found::<Twin<TOO_EARLY>>("dropped at once");
    is_found::<Twin<TWICE>>("dropped twice");
    is_found::<Twin<LOST>>("never dropped");
    is_found::<Twin<NONE, Epoch>>("a guard of another strategy: epochs");
    is_found::<Twin<NONE, Qsbr>>("a guard of another strategy: quiescent states");
}

#[test]
#[ignore = "run by `memcheck_finds_nothing`"]
fn subject() {
    sound(rounds(30));
}

#[test]
fn memcheck_finds_nothing() {
    if std::env::var_os("LATCHWORK_FUZZ_MEMCHECK").is_none() {
        return;
    }
    let output = std::process::Command::new("valgrind")
        .args(["--leak-check=full", "--errors-for-leak-kinds=definite", "--fair-sched=yes"])
        .arg("--error-exitcode=99")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "subject", "--ignored", "--test-threads=1"])
        .output();
    let output = output.expect("valgrind runs; where it is missing: sudo apt-get install valgrind");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("ERROR SUMMARY: 0 errors"), "{said}");
}
