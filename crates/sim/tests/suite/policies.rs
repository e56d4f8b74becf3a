//! Shuffling policies do what they claim, on simulated machines; the numbers are those of
//! `docs/policies.md` (`cargo test -p latchwork-sim --test suite policies -- --nocapture` prints them).
//!
//! Each claim is also put to a lock that does not make it, which must fail it.

use latchwork::locks::mutex::RawMutex;
use latchwork::locks::mutex::policies::NumaPolicy;
use latchwork::locks::mutex::policies::{
    Account, Hops, NoPolicy, Priority, RawLocally, RawOpportunity, Urgency,
};
use latchwork::locks::mutex::shfl::RawShfl;
use latchwork::locks::mutex::shfl_spin::RawShflSpin;
use latchwork::locks::mutex::shuffle::Policy;
use latchwork::machine::Machine;
use latchwork_sim::{
    Options, Placement, Profile, Report, Sim, acquired, acquiring, now, released, run, thread, work,
};
use std::cell::{Cell, RefCell};

/// A crowd around one lock, for a while.
#[derive(Copy, Clone)]
struct Crowd {
    machine: &'static str,
    threads: usize,
    seed: u64,
    ns: u64,
    /// Nanoseconds inside and outside, by thread.
    inside: fn(usize) -> u64,
    outside: fn(usize) -> u64,
}

struct Seen {
    report: Report,
    acquisitions: Vec<u64>,
    /// Nanoseconds inside.
    inside: Vec<u64>,
    /// The most acquisitions by less urgent threads (with a larger number) while a thread waited.
    passed: Vec<u64>,
}

#[repr(align(128))]
struct Padded<T>(T);

impl Crowd {
    fn watch<L: RawMutex<Machine = Sim>>(self) -> Seen {
        USED.set([0; 256]);
        let lock = Padded(L::new_in());
        let counts: Vec<_> = (0..self.threads).map(|_| [const { Cell::new(0u64) }; 3]).collect();
        // Which thread acquired the lock, and when. (A thread's own clock runs ahead of the others' while it works. So an
        // acquisition that has been counted may still come after another one.)
        let order = RefCell::new(Vec::new());
        let body = || {
            let me = thread();
            let [acquisitions, inside, passed] = &counts[me];
            while now() < self.ns {
                let asked = now();
                acquiring();
                let token = lock.0.lock();
                acquired(0);
                let since =
                    order.borrow().iter().rev().take_while(|(_, time)| *time > asked).copied().collect();
                let less_urgent = |all: Vec<_>| all.iter().filter(|(who, _)| *who > me).count() as u64;
                passed.set(passed.get().max(less_urgent(since)));
                order.borrow_mut().push((me, now()));
                acquisitions.set(acquisitions.get() + 1);
                let start = now();
                work((self.inside)(me));
                inside.set(inside.get() + now() - start);
                released(0);
                // SAFETY: the token is from the acquisition just before.
                unsafe { lock.0.unlock(token) };
                work((self.outside)(me));
            }
        };
        let options = Options {
            seed: self.seed,
            placement: Placement::RoundRobin,
            limit_ns: self.ns * 10,
            ..Options::default()
        };
        let bodies = (0..self.threads).map(|_| Box::new(body) as Box<dyn FnOnce()>).collect();
        let report = run(&Profile::find(self.machine).unwrap(), &options, bodies).unwrap();
        let column = |i: usize| counts.iter().map(|c| c[i].get()).collect();
        Seen { report, acquisitions: column(0), inside: column(1), passed: column(2) }
    }
}

impl Seen {
    fn per_ms(&self) -> f64 {
        self.acquisitions.iter().sum::<u64>() as f64 / (self.report.simulated_ns as f64 / 1e6)
    }
}

/// The first two threads are urgent, the next two less so, the others not at all.
struct ByNumber;
impl Urgency for ByNumber {
    fn of_caller<M: Machine>() -> u32 {
        (thread() as u32 / 2).min(2)
    }
}

/// Some of those that are not urgent would fill the queue for ever; the urgent ones come now and then.
const HURRY: Crowd = Crowd {
    machine: "4x12",
    threads: 40,
    seed: 1,
    ns: 4_000_000,
    inside: |_| 400,
    outside: |me| if me < 4 { 20_000 + me as u64 * 777 } else { 200 },
};

/// The holder is not counted, having come in before. The head keeps its place; the next one looks at everybody
/// before it takes the lock, and keeps its place too; and one may come in while the thread is on its way to the
/// queue, or not yet linked there, or be a wall. This holds for these runs, and is no bound of the lock. Where a run begins, newcomers may
/// take the lock more than once before the queue has a head: 3 times, so that 5 passed, with 48 threads, 50 ns inside and seed 16.
const FEW: u64 = 4;

#[test]
fn the_urgent_are_passed_by_few() {
    fn check<L: RawMutex<Machine = Sim>>(what: &str, crowd: Crowd) -> u64 {
        let seen = crowd.watch::<L>();
        let most = seen.passed[..2].iter().copied().max().unwrap();
        let least = seen.acquisitions[4..].iter().min().unwrap();
        eprintln!(
            "{what}: the urgent were passed by {most} at most, the next by {}; {:.0} a ms; the others {least} times each at least",
            seen.passed[2..4].iter().max().unwrap(),
            seen.per_ms()
        );
        assert!(*least > 0, "{what}: {:?}", seen.acquisitions);
        most
    }
    // On 48 processors, and on 16, where most waiters sleep.
    for machine in ["4x12", "4x4"] {
        let crowd = Crowd { machine, ..HURRY };
        assert!(
            check::<RawShfl<Sim, Priority<ByNumber>>>(&format!("priority, shfl, {machine}"), crowd) <= FEW
        );
        // What they are without it.
        assert!(check::<RawShfl<Sim, NumaPolicy>>(&format!("NUMA, shfl, {machine}"), crowd) > 4 * FEW);
    }
    assert!(check::<RawShflSpin<Sim, Priority<ByNumber>>>("priority, shfl-spin", HURRY) <= FEW);
    assert!(check::<RawShflSpin<Sim, NoPolicy>>("FIFO, shfl-spin", HURRY) > 4 * FEW);
    // Short sections and long ones, a queue that is empty now and then, and one that takes long to look at.
    let scenes: [(_, _, fn(_) -> u64); 5] = [
        ("4x12", 20, |_| 50),
        ("4x12", 48, |_| 50),
        ("4x12", 48, |_| 400),
        ("4x12", 40, |_| 2_000),
        ("e7-8890v4", 192, |_| 400),
    ];
    for (machine, threads, inside) in scenes {
        let crowd = Crowd { machine, threads, inside, ..HURRY };
        let what = format!("{threads} on {machine}, {} ns inside", inside(0));
        assert!(check::<RawShfl<Sim, Priority<ByNumber>>>(&format!("priority, shfl, {what}"), crowd) <= FEW);
        assert!(
            check::<RawShflSpin<Sim, Priority<ByNumber>>>(&format!("priority, shfl-spin, {what}"), crowd)
                <= FEW
        );
    }
    // The queue begins in each run with a head that finds the lock free now and then, in the hands of threads that take it over
    // and over. If that head does not keep them out, they pass the urgent for as long as it spins: 22 with seed 1, 5 with seeds 9 and 16.
    for seed in 2..=32 {
        let crowd = Crowd { threads: 20, inside: |_| 50, seed, ..HURRY };
        let what = format!("priority, shfl, 20 on 4x12, seed {seed}");
        assert!(check::<RawShfl<Sim, Priority<ByNumber>>>(&what, crowd) <= FEW);
    }
}

/// A thread's time inside, by thread.
struct InSim;
thread_local! {
    static USED: Cell<[u64; 256]> = const { Cell::new([0; 256]) };
}
impl Account for InSim {
    fn get<M: Machine>() -> u64 {
        USED.get()[thread()]
    }
    fn set<M: Machine>(word: u64) {
        let mut used = USED.get();
        used[thread()] = word;
        USED.set(used);
    }
}

/// One thread stays ten times as long. The time is long beside the head's turn (1 ms), in which one thread may steal the lock
/// over and over.
const GREED: Crowd = Crowd {
    machine: "2x8",
    threads: 8,
    seed: 1,
    ns: 300_000_000,
    inside: |me| if me == 0 { 20_000 } else { 2_000 },
    outside: |_| 500,
};

#[test]
fn time_inside_is_shared_out() {
    /// The first thread's share of the time inside, and the least share of another.
    fn share<L: RawMutex<Machine = Sim>>(what: &str, crowd: Crowd) -> (f64, f64) {
        let seen = crowd.watch::<L>();
        let all: u64 = seen.inside.iter().sum();
        let share = seen.inside[0] as f64 / all as f64;
        let least = *seen.inside[1..].iter().min().unwrap() as f64 / all as f64;
        eprintln!(
            "{what}: {:.1}% for who stays long, {:.1}% at least for others; {:.0} a ms, busy {:.0}%",
            100.0 * share,
            100.0 * least,
            seen.per_ms(),
            100.0 * all as f64 / seen.report.simulated_ns as f64
        );
        (share, least)
    }
    for (machine, threads) in [("2x8", 8), ("2x8", 16), ("2x2", 8)] {
        let crowd = Crowd { machine, threads, ..GREED };
        let fair = 1.0 / threads as f64;
        let (got, least) =
            share::<RawOpportunity<Sim, InSim>>(&format!("opportunity, {threads} on {machine}"), crowd);
        assert!((0.25 * fair..1.5 * fair).contains(&got), "{got}, not about {fair}");
        // Under FIFO it is less than a fifth of the fair share. The least of so many threads is far below their mean.
        assert!(least > 0.3 * fair, "{least}, not about {fair}");
        let (got, _) = share::<RawShfl<Sim, NoPolicy>>(&format!("FIFO, {threads} on {machine}"), crowd);
        assert!(got > 2.0 * fair);
    }
}

/// Sections that touch nothing but the lock, on every processor.
const BUSY: Crowd =
    Crowd { machine: "e7-8890v4", threads: 192, seed: 1, ns: 1_500_000, inside: |_| 50, outside: |_| 300 };

#[test]
fn near_nodes_come_before_far_ones() {
    fn watch<L: RawMutex<Machine = Sim>>(what: &str, crowd: Crowd) -> f64 {
        let seen = crowd.watch::<L>();
        let least = seen.acquisitions.iter().min().unwrap();
        eprintln!(
            "{what}: {:.0} a ms, {:.1}% from another node; {least} times each at least",
            seen.per_ms(),
            100.0 * seen.report.remote_handover_fraction()
        );
        seen.per_ms()
    }
    for threads in [48, 192] {
        let crowd = Crowd { threads, ..BUSY };
        watch::<RawShflSpin<Sim, NoPolicy>>(&format!("shfl-spin, FIFO, {threads}"), crowd);
        watch::<RawShflSpin<Sim, NumaPolicy>>(&format!("shfl-spin, NUMA, {threads}"), crowd);
        watch::<RawShflSpin<Sim, Hops>>(&format!("shfl-spin, hops, {threads}"), crowd);
    }
    for threads in [192, 384] {
        let crowd = Crowd { threads, ..BUSY };
        watch::<RawShfl<Sim, NumaPolicy>>(&format!("shfl, NUMA, {threads}"), crowd);
        watch::<RawShfl<Sim, Hops>>(&format!("shfl, hops, {threads}"), crowd);
        watch::<RawLocally<Sim>>(&format!("shfl, NUMA, stealing in the node, {threads}"), crowd);
    }
}

/// What no policy should say: something else each time.
struct Whim<const THOROUGH: bool>;
thread_local! {
    static MOOD: Cell<u64> = const { Cell::new(1) };
}
impl<const THOROUGH: bool> Policy for Whim<THOROUGH> {
    const RANKS: usize = 5;
    const PATIENCE: Option<u32> = Some(4);
    const THOROUGH: bool = THOROUGH;
    const STEALING: bool = false;
    fn key<M: Machine>() -> u32 {
        Self::rank::<M>(0, 0) as u32
    }
    fn rank<M: Machine>(_: u32, _: u32) -> usize {
        MOOD.set(MOOD.get().wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f));
        (MOOD.get() >> 40) as usize % 9
    }
}

/// Always for some, never for the others; with a bound of its own.
struct Unjust<const PATIENCE: u32>;
impl<const PATIENCE: u32> Policy for Unjust<PATIENCE> {
    const RANKS: usize = 2;
    const PATIENCE: Option<u32> = Some(PATIENCE);
    const THOROUGH: bool = true;
    fn key<M: Machine>() -> u32 {
        u32::from(thread() >= 10)
    }
    fn rank<M: Machine>(_: u32, waiter: u32) -> usize {
        waiter as usize
    }
}

/// The invariants are the mechanism's: no policy loses a waiter, or starves one.
#[test]
fn no_policy_breaks_the_queue() {
    let least = |seen: Seen| *seen.acquisitions.iter().min().unwrap();
    for machine in ["4x12", "4x4"] {
        let crowd = Crowd { machine, ns: 2_000_000, outside: |_| 200, ..HURRY };
        assert!(least(crowd.watch::<RawShfl<Sim, Whim<true>>>()) > 2);
        assert!(least(crowd.watch::<RawShfl<Sim, Whim<false>>>()) > 2);
        let spin = Crowd { machine: "4x12", ..crowd };
        assert!(least(spin.watch::<RawShflSpin<Sim, Whim<true>>>()) > 2);
        assert!(least(spin.watch::<RawShflSpin<Sim, Whim<false>>>()) > 2);
        assert!(least(spin.watch::<RawShflSpin<Sim, Unjust<16>>>()) >= 3);
        // Without the mechanism's bound, some starve: what this test would see.
        assert!(least(spin.watch::<RawShflSpin<Sim, Unjust<1_000_000>>>()) <= 1);
    }
}
