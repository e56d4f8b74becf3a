//! Bueso, "Scalability Techniques for Practical Synchronization Primitives", ACM Queue 12(11), 2014:
//! the section on cache-line contention.

use super::{Check, Claim, Experiment, Paper, at, check, experiment, of, ratio, with};
use crate::reproduce::rule::{At, BETTER, Bound, CLOSE, FLAT, Figure, SIMILAR, Value, WORSE, decrease, gain};
use latchwork_sim::Placement;

/// "Faster".
const BETTER_AT_LEAST: Bound = Bound::AtLeast(BETTER);
const MACHINE: &str = "8x15";
/// A mutex whose waiters sleep at once: glibc's.
const SLEEPS: &str = "glibc-futex";
/// The spin lock of Linux 3.0.
const SPIN: &str = "ticket";

pub fn experiments() -> Vec<Experiment> {
    let locks: &[&str] = &["tas", "ttas", SPIN, "mcs"];
    vec![
        experiment("counter", MACHINE, "counter", locks, "2,4,8,15,30,60,120").set(&["home=local,remote"]),
        experiment("counter-spread", MACHINE, "counter", locks, "2,8,15,30,60,120")
            .placement(Placement::RoundRobin),
        experiment("counter-two-sockets", "2x15", "counter", &["tas", SPIN], "30")
            .placement(Placement::RoundRobin),
        experiment("spin-or-sleep", MACHINE, "counter", &["ttas", SLEEPS], "2")
            .set(&["hold=500ns,1us,2us,200us", "gap=2us"])
            .micros(20_000)
            .unknown(&["gap=500ns", "gap=8us"]),
        experiment("optimistic-mutex", "1x4", "counter", &["hybrid", SLEEPS], "4")
            .set(&["hold=2us", "gap=2us"])
            .micros(5_000)
            .unknown(&["hold=500ns", "hold=8us", "gap=500ns", "gap=8us"]),
        experiment("optimistic-rwsem", MACHINE, "rwbench", &["rwsem-4.19", "glibc-rw-model"], "120")
            .set(&["writes=1/2", "hold=250"])
            .micros(5_000)
            .unknown(&["writes=1/10", "writes=9/10", "hold=25"]),
    ]
}

fn claim(id: &'static str, place: &'static str) -> Claim {
    Claim::new(id, Paper::Bueso, place)
}

fn local(lock: &'static str, threads: usize) -> At {
    with("counter", lock, threads, "home=local")
}

fn per_cpu(above: At, below: At, bound: Bound) -> Check {
    check(Value::Ratio(Figure::PerThread(above), Figure::PerThread(below)), bound)
}

pub fn claims() -> Vec<Claim> {
    let misses = |lock, threads| Figure::Extra("misses/op", local(lock, threads));
    let more_misses = |lock, bound| check(Value::Ratio(misses(lock, 120), misses(lock, 15)), bound);
    vec![
        claim("bueso-one-socket", "figure 1 (throughput per CPU)")
            .says("By using all cores in a single socket, the microbenchmark throughput decreases by 91.8 percent when \
             compared with using only two cores.")
            .number("-91.8%")
            .checks([
                per_cpu(local(SPIN, 15), local(SPIN, 2), decrease(0.918)),
                // The rate of a CPU alone would fall by as much under a lock that serves all CPUs at a constant rate.
                ratio(local(SPIN, 15), local(SPIN, 2), Bound::AtMost(WORSE)),
            ]),
        claim("bueso-smoothly", "figure 1")
            .says("Performance degrades smoothly as more cores contribute to cache-line contention.")
            .number("degrades")
            .checks([(4, 2), (8, 4), (15, 8)].iter().flat_map(|(more, fewer)| {
                let (more, fewer) = (local(SPIN, *more), local(SPIN, *fewer));
                [
                    per_cpu(more.clone(), fewer.clone(), Bound::AtMost(WORSE)),
                    ratio(more, fewer, Bound::AtMost(1.0)),
                ]
            })),
        claim("bueso-two-sockets", "table 2 (throughput per CPU)")
            .says("There's more than an 80 percent decrease in throughput when going from 15 to 30 cores.")
            .number("-80%")
            .checks([per_cpu(local(SPIN, 30), local(SPIN, 15), decrease(0.8))]),
        claim("bueso-remote-memory", "table 2")
            .says("The cost of having the lock's memory location on a remote node is clearly worse when using two sockets.")
            .number("clearly worse")
            .checks([ratio(with("counter", SPIN, 30, "home=remote"), local(SPIN, 30), Bound::AtMost(WORSE))])
            .outside("a queue at the line's home node (docs/simulator.md, what it leaves out): in the model a contended line goes from cache to cache"),
        claim("bueso-remote-memory-90", "table 2 (throughput per CPU)")
            .says("... reducing throughput by more than 90 percent when compared with a single socket.")
            .number("-90%")
            .checks([per_cpu(with("counter", SPIN, 30, "home=remote"), local(SPIN, 15), decrease(0.9))])
            .outside("a queue at the line's home node (docs/simulator.md, what it leaves out): in the model a contended line goes from cache to cache"),
        claim("bueso-first-fill", "cache-line contention")
            .says("Cache-line contention is always better when all the contention is contained in as few sockets as \
             possible: first fill against round robin.")
            .number("always better")
            .checks([8, 15, 30, 60].iter().flat_map(|threads| {
                ["tas", "ttas", SPIN, "mcs"].map(|lock| {
                    ratio(local(lock, *threads), at("counter-spread", lock, *threads), Bound::AtLeast(1.0))
                })
            })),
        claim("bueso-probability", "figure 2")
            .says("The probability of inter- versus intra-cache-line contention, estimated by computing 100/num_sockets: a \
             handover stays within one of 8 sockets in 12.5% of all cases, within one of 2 in 50%.")
            .number("12.5%, 50%")
            .checks([
                of(Figure::Extra("remote", at("counter-spread", SPIN, 120)), Bound::Within(0.825, 0.925)),
                of(Figure::Extra("remote", at("counter-two-sockets", SPIN, 30)), Bound::Within(0.45, 0.55)),
            ])
            .because("A ticket lock is first in, first out, so a closed loop keeps the order that it begins with for ever. On two sockets that one order is a small sample."),
        claim("bueso-unfair", "cache-line contention")
            .says("Busy-wait locks with CCAS or backoff expose to an irregular number of cache misses when the lock becomes \
             contended (here: it grows with the CPUs, for tas, ttas and ticket).")
            .number("irregular")
            .checks(["tas", "ttas", SPIN].map(|lock| more_misses(lock, Bound::AtLeast(BETTER)))),
        claim("bueso-scalable-lock", "cache-line contention")
            .says("A truly scalable lock is one that generates a constant number of cache misses per acquisition, thus \
             avoiding the sudden performance collapse that occurs with nonscalable alternatives (MCS).")
            .number("constant")
            .checks([
                more_misses("mcs", SIMILAR),
                ratio(local("mcs", 120), local("mcs", 30), FLAT),
            ])
            .because("The misses are constant, but from two sockets to eight more of them come from another socket, and some take two hops."),
        claim("bueso-mcs", "figure 3")
            .says("Throughput in the spinlock case quickly flatlines, while with the MCS lock it steadily improves by a \
             factor of 2.4 (here: MCS against the ticket lock, 120 CPUs).")
            .number("2.4x")
            .checks([ratio(local("mcs", 120), local(SPIN, 120), gain(2.4))])
            .because("What decides is how long a spinner's read of the ticket lock from another socket keeps the line busy."),
        claim("bueso-ccas", "cache-line mishandling")
            .says("CCAS: to do a simple read of the lock state and incur the read-modify-write CAS operation only when the \
             lock becomes available; up to a 90 percent throughput increase (here: ttas against tas).")
            .number("1.9x")
            .checks([15, 120].map(|threads| ratio(local("ttas", threads), local("tas", threads), gain(1.9)))),
        claim("bueso-spin-or-sleep", "locks and their properties (lock overhead)")
            .says("If the average time that a thread expects to wait is less than twice the context-switch time, then spinning \
             will actually be faster than blocking (here: a spin lock against one whose waiters sleep at once, two threads \
             with a processor each, holds of up to two thirds of 2 x 1.5 us; and with holds of 200 us it no longer \
             matters).")
            .number("2 x switch")
            .checks(
                [("hold=500ns", BETTER_AT_LEAST), ("hold=1us", BETTER_AT_LEAST), ("hold=2us", BETTER_AT_LEAST), ("hold=200us", CLOSE)]
                    .map(|(set, bound)| {
                        ratio(with("spin-or-sleep", "ttas", 2, set), with("spin-or-sleep", SLEEPS, 2, set), bound)
                    }),
            ),
        claim("bueso-optimistic", "hybrid locking models")
            .says("On a Linux VFS create+unlink microbenchmark to stress mutexes, optimistic spinning gave a boost in throughput of \
             about 3.5 times on a commodity desktop system, as opposed to immediately sleeping (here: the kernel's mutex \
             against one whose waiters sleep at once, 4 CPUs, sections of 2 us).")
            .number("3.5x")
            .checks([ratio(at("optimistic-mutex", "hybrid", 4), at("optimistic-mutex", SLEEPS, 4), gain(3.5))]),
        claim("bueso-optimistic-rwsem", "hybrid locking models")
            .says("For rw_semaphores on AIM7 workloads, hybrid locking provided an increase in throughput of about 1.8 times \
             (here: rwsem of Linux 4.19, whose writers spin, against a reader-writer lock whose waiters sleep at once; half \
             of the operations write, 120 CPUs).")
            .number("1.8x")
            .checks([ratio(
                at("optimistic-rwsem", "rwsem-4.19", 120),
                at("optimistic-rwsem", "glibc-rw-model", 120),
                gain(1.8),
            )]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_serves_all_cpus_at_a_constant_rate_does_not_degrade() {
        let constant = |figure: &Figure| match figure {
            Figure::PerThread(at) => Ok(1.0 / at.threads as f64),
            _ => Ok(1.0),
        };
        for id in ["bueso-one-socket", "bueso-two-sockets", "bueso-remote-memory-90"] {
            let claim = claims().into_iter().find(|claim| claim.id == id).unwrap();
            let met = |check: &Check| check.bound.allows(check.value.compute(&constant).unwrap());
            assert!(!claim.checks.iter().all(met), "{id}");
        }
    }

    #[test]
    fn a_lock_whose_total_rate_rises_does_not_degrade_smoothly() {
        let rises = |figure: &Figure| match figure {
            Figure::PerThread(at) => Ok((at.threads as f64).powf(-0.9)),
            figure => Ok((figure.at().unwrap().threads as f64).powf(0.1)),
        };
        let claim = claims().into_iter().find(|claim| claim.id == "bueso-smoothly").unwrap();
        let met = |check: &Check| check.bound.allows(check.value.compute(&rises).unwrap());
        assert!(!claim.checks.iter().all(met));
    }
}
