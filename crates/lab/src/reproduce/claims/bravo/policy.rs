//! Section 3: the slow-down guard and the revocation; section 5.1: collisions in the table. What is asked is not a rate of a
//! workload, so a probe simulates it.

use super::*;

/// The paper's scan rate, in nanoseconds for each slot.
const SCAN: f64 = 1.1;
/// Its `N`, and some around it.
const GUARDS: [u64; 4] = [1, 3, 9, 19];
/// Readers that come back at once, beside one writer that does.
const READERS: [usize; 2] = [8, 35];

fn probe(probe: Probe) -> Figure {
    Figure::Probe(probe)
}

pub fn claims() -> Vec<Claim> {
    let writes = |guard, readers| probe(Probe::Writes { guard, readers });
    // What is left of the writes without BRAVO: at least 1 - 1/(N + 1), and a twentieth less for luck.
    let left = |n: u64| Bound::AtLeast(0.95 * n as f64 / (n + 1) as f64);
    let bounded = READERS.iter().flat_map(|readers| {
        GUARDS.map(|n| check(Value::Ratio(writes(Some(n), *readers), writes(None, *readers)), left(n)))
    });
    // A bound that no writer comes near would say nothing: without inhibition there has to be harm.
    let harm = READERS.map(|readers| {
        check(Value::Ratio(writes(Some(0), readers), writes(None, readers)), Bound::AtMost(WORSE))
    });
    let share = READERS.iter().flat_map(|readers| {
        GUARDS.map(|guard| {
            let share = probe(Probe::Revoking { guard, readers: *readers });
            of(share, Bound::AtMost(1.0 / (guard + 1) as f64))
        })
    });
    let shown = READERS.map(|readers| of(probe(Probe::Revoking { guard: 0, readers }), Bound::AtLeast(0.2)));
    vec![
        claim("bravo-guard", "section 3 (cost model)")
            .says("... bounding the worst-case expected slow-down from BRAVO for writers to 1/(N + 1) (here: writes a second of \
             one writer beside readers, all of which come back at once, with N of 1, 3, 9 and 19; and with no inhibition \
             they do slow down).")
            .number("1/(N + 1)")
            .checks(bounded.chain(harm)),
        claim("bravo-guard-share", "section 3 (cost model)")
            .says("We measure the latency of revocation and multiply that period by N, and then inhibit the subsequent setting \
             of bias for that period (here: revocation takes at most 1/(N + 1) of the writer's time; and with no \
             inhibition a fifth or more).")
            .number("1/(N + 1)")
            .checks(share.chain(shown)),
        claim("bravo-scan", "section 3")
            .says("We observe a scan rate of about 1.1 nanoseconds per element on our system-under-test (here: with 8 and 35 \
             readers in both sockets that filled slots before).")
            .number("1.1 ns")
            .checks(
                READERS
                    .map(|readers| of(probe(Probe::Scan { readers }), Bound::Within(0.67 * SCAN, 1.5 * SCAN))),
            ),
        claim("bravo-collisions", "notes of the extended version (balls into bins)")
            .says("Concurrently, each thread picks a random lock, acquires it, and then releases it. ... Collision rate per \
             access is Balls / (2*Bins) (here: threads in step, 8192 locks, 4096 slots; the rate over that number).")
            .number("threads / (2 x slots)")
            .checks(
                [16, 32, 64]
                    .map(|threads| of(probe(Probe::Collisions { threads, locks: 8192 }), Bound::Within(0.8, 1.25))),
            ),
        claim("bravo-collisions-locks", "notes of the extended version (balls into bins)")
            .says("The number of locks is NOT relevant to the collision rate (here: 64 threads in step, 256 and 1024 locks \
             against 8192).")
            .number("not relevant")
            .checks([256, 1024].map(|locks| {
                let rate = |locks| probe(Probe::Collisions { threads: 64, locks });
                check(Value::Ratio(rate(locks), rate(8192)), Bound::Within(0.8, 1.25))
            })),
    ]
}
