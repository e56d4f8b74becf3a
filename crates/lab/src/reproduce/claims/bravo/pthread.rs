//! Section 5, figures 2 to 6: BRAVO over glibc's lock, BRAVO-pthread. The paper's "pthread" is glibc-rw-model, written after
//! glibc's source, with its default preference for readers.

use super::*;

const PTHREAD: &str = "glibc-rw-model";
const OVER_IT: &str = "bravo-glibc-rw-model";
const LOCKS: &[&str] = &[PTHREAD, OVER_IT];
const MANY: [usize; 2] = [36, 72];

pub fn experiments() -> Vec<Experiment> {
    vec![
        experiment("alternator-pthread", "x5-2", "alternator", LOCKS, "1,2,8,36,72"),
        experiment("test-rwlock-pthread", "x5-2", "test-rwlock", LOCKS, "35,71").micros(5_000).unknown(&[
            "unit=2ns",
            "unit=8ns",
            "unit=16ns",
        ]),
        experiment("rwbench-pthread", "x5-2", "rwbench", LOCKS, "1,8,36,72")
            .set(&["writes=9/10,1/2,1/10,1/1000,1/10000"])
            .micros(20_000),
        experiment("readwhilewriting-pthread", "x5-2", "readwhilewriting", LOCKS, "1,8,36,71")
            .set(WRITE)
            .unknown(WRITES),
        experiment("rocksdb-hash-table-pthread", "x5-2", "hash-table-bench", LOCKS, "36,70").unknown(&[
            "lookup=500ns",
            "lookup=2us",
            "insert=1us",
        ]),
    ]
}

/// BRAVO-pthread over pthread.
fn over(experiment: &'static str, counts: &[usize], bound: Bound) -> Vec<super::super::Check> {
    against(experiment, (OVER_IT, PTHREAD), counts, bound)
}

/// BRAVO-pthread over one of the paper's other locks, which ran in `other`.
fn beside(
    (experiment, other): (&'static str, &'static str),
    lock: &'static str,
    counts: &[usize],
    bound: Bound,
) -> Vec<super::super::Check> {
    let check = |threads: &usize| ratio(at(experiment, OVER_IT, *threads), at(other, lock, *threads), bound);
    counts.iter().map(check).collect()
}

pub fn claims() -> Vec<Claim> {
    let with_share = |lock, threads, set: &str| with("rwbench-pthread", lock, threads, set);
    let closely = |set: &str| {
        [1, 8, 36, 72]
            .map(|threads| ratio(with_share(OVER_IT, threads, set), with_share(PTHREAD, threads, set), CLOSE))
            .to_vec()
    };
    vec![
        claim("bravo-pthread-alternator", "section 5.2, figure 2")
            .says("BRAVO-BA outperforms the underlying BA by a wide margin. ... The same observations are true when \
             considering BRAVO-pthread and pthread locks.")
            .number("wide margin")
            .checks(over("alternator-pthread", &[8, 36, 72], Bound::AtLeast(FAR_BETTER))),
        claim("bravo-pthread-alternator-stable", "section 5.2, figure 2")
            .says("... the performance of BRAVO-BA remains stable. ... The same observations are true when considering \
             BRAVO-pthread and pthread locks.")
            .number("stable")
            .checks([8, 36, 72].map(|threads| {
                ratio(at("alternator-pthread", OVER_IT, threads), at("alternator-pthread", OVER_IT, 2), SIMILAR)
            })),
        claim("bravo-pthread-alternator-per-cpu", "section 5.2, figure 2")
            .says("... and is competitive with the much larger Per-CPU lock. ... The same observations are true when \
             considering BRAVO-pthread and pthread locks.")
            .number("competitive")
            .checks(beside(("alternator-pthread", "alternator"), PER_CPU, &[2, 8, 36, 72], COMPETITIVE)),
        claim("bravo-pthread-test-rwlock", "section 5.3, figure 3")
            .says("Due to its default reader preference, BRAVO-pthread easily beats pthread.")
            .number("easily")
            .checks(over("test-rwlock-pthread", &[35, 71], Bound::AtLeast(FAR_BETTER))),
        claim("bravo-pthread-test-rwlock-per-cpu", "section 5.3, figure 3")
            .says("... and comes close to the performance level of Per-CPU.")
            .number("close")
            .checks(beside(("test-rwlock-pthread", "test-rwlock"), PER_CPU, &[35, 71], SIMILAR)),
        claim("bravo-pthread-rwbench-abc", "section 5.4, figures 4a to 4c")
            .says("BRAVO-pthread tracks closely to pthread, providing neither benefit nor harm. The same behavior plays out \
             in figures 4b and 4c.")
            .number("tracks closely")
            .checks(RATIOS[..3].iter().flat_map(|set| closely(set))),
        claim("bravo-pthread-rwbench-ef", "section 5.4, figures 4e and 4f")
            .says("... with BRAVO-BA and BRAVO-pthread yielding performance similar to that of Per-CPU.")
            .number("similar")
            .checks(
                RATIOS[4..]
                    .iter()
                    .flat_map(|set| [8, 36, 72].map(|threads| (set, threads)))
                    .map(|(set, threads)| {
                        ratio(with_share(OVER_IT, threads, set), with("rwbench-others", PER_CPU, threads, set), SIMILAR)
                    }),
            ),
        claim("bravo-pthread-rwbench-flat", "section 5.4, figures 4e and 4f")
            .says("BA and pthread yield flat performance as the thread count increases.")
            .number("flat")
            .checks(RATIOS[4..].iter().flat_map(|set| {
                MANY.map(|threads| ratio(with_share(PTHREAD, threads, set), with_share(PTHREAD, 8, set), FLAT))
            })),
        claim("bravo-pthread-rwbench-gain", "section 5.4, figures 4e and 4f")
            .says("BRAVO improves performance for more read-dominated workloads (of BRAVO-pthread, against pthread).")
            .number("improves; flat")
            .checks(RATIOS[4..].iter().flat_map(|set| {
                MANY.map(|threads| {
                    ratio(with_share(OVER_IT, threads, set), with_share(PTHREAD, threads, set), Bound::AtLeast(FAR_BETTER))
                })
            })),
        claim("bravo-pthread-readwhilewriting", "section 5.5, figure 5")
            .says("The performance of BRAVO-BA and BRAVO-pthread ... always exceeds that of Cohort-RW and the respective \
             underlying locks.")
            .number("always exceeds")
            .checks(
                [
                    over("readwhilewriting-pthread", &[1, 8, 36, 71], EXCEEDS),
                    beside(("readwhilewriting-pthread", "readwhilewriting"), COHORT, &[1, 8, 36, 71], EXCEEDS),
                ]
                .concat(),
            ),
        claim("bravo-pthread-readwhilewriting-per-cpu", "section 5.5, figure 5")
            .says("... the performance of BRAVO-BA and BRAVO-pthread tracks that of Per-CPU.")
            .number("tracks")
            .checks(beside(("readwhilewriting-pthread", "readwhilewriting"), PER_CPU, &[8, 36, 71], CLOSE)),
        claim("bravo-pthread-hash-table-bench", "section 5.6, figure 6")
            .says("BRAVO enhances the performance of underlying locks, and shows substantial speedup at high thread counts \
             (of BRAVO-pthread, against pthread).")
            .number("substantial")
            .checks(over("rocksdb-hash-table-pthread", &[36, 70], Bound::AtLeast(FAR_BETTER))),
    ]
}
