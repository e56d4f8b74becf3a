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
        Experiment {
            micros: Some(5_000),
            unknown: &["unit=2ns", "unit=8ns", "unit=16ns"],
            ..experiment("test-rwlock-pthread", "x5-2", "test-rwlock", LOCKS, "35,71")
        },
        Experiment {
            set: &["writes=9/10,1/2,1/10,1/1000,1/10000"],
            micros: Some(20_000),
            ..experiment("rwbench-pthread", "x5-2", "rwbench", LOCKS, "1,8,36,72")
        },
        Experiment {
            unknown: &["write=20us", "write=100us", "write=300us"],
            ..experiment("readwhilewriting-pthread", "x5-2", "readwhilewriting", LOCKS, "1,8,36,71")
        },
        Experiment {
            set: &["writers=2", "read=200ns", "write=300ns", "chance=0"],
            unknown: &["away=1us", "away=10us", "away=100us"],
            ..experiment("rocksdb-hash-table-pthread", "x5-2", "locktorture", LOCKS, "36,72")
        },
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
        claim(
            "bravo-pthread-alternator",
            "section 5.2, figure 2",
            "BRAVO-BA outperforms the underlying BA by a wide margin. ... The same observations are true when \
             considering BRAVO-pthread and pthread locks.",
            over("alternator-pthread", &[8, 36, 72], Bound::AtLeast(FAR_BETTER)),
        ).number("wide margin"),
        claim(
            "bravo-pthread-alternator-stable",
            "section 5.2, figure 2",
            "... the performance of BRAVO-BA remains stable. ... The same observations are true when considering \
             BRAVO-pthread and pthread locks.",
            [8, 36, 72]
                .map(|threads| {
                    ratio(at("alternator-pthread", OVER_IT, threads), at("alternator-pthread", OVER_IT, 2), SIMILAR)
                })
                .to_vec(),
        ).number("stable"),
        claim(
            "bravo-pthread-alternator-per-cpu",
            "section 5.2, figure 2",
            "... and is competitive with the much larger Per-CPU lock. ... The same observations are true when \
             considering BRAVO-pthread and pthread locks.",
            beside(("alternator-pthread", "alternator"), PER_CPU, &[2, 8, 36, 72], COMPETITIVE),
        ).number("competitive"),
        claim(
            "bravo-pthread-test-rwlock",
            "section 5.3, figure 3",
            "Due to its default reader preference, BRAVO-pthread easily beats pthread.",
            over("test-rwlock-pthread", &[35, 71], Bound::AtLeast(FAR_BETTER)),
        ).number("easily"),
        claim(
            "bravo-pthread-test-rwlock-per-cpu",
            "section 5.3, figure 3",
            "... and comes close to the performance level of Per-CPU.",
            beside(("test-rwlock-pthread", "test-rwlock"), PER_CPU, &[35, 71], SIMILAR),
        ).number("close"),
        claim(
            "bravo-pthread-rwbench-abc",
            "section 5.4, figures 4a to 4c",
            "BRAVO-pthread tracks closely to pthread, providing neither benefit nor harm. The same behavior plays out \
             in figures 4b and 4c.",
            RATIOS[..3].iter().flat_map(|set| closely(set)).collect(),
        ).number("tracks closely"),
        claim(
            "bravo-pthread-rwbench-ef",
            "section 5.4, figures 4e and 4f",
            "... with BRAVO-BA and BRAVO-pthread yielding performance similar to that of Per-CPU.",
            RATIOS[4..]
                .iter()
                .flat_map(|set| [8, 36, 72].map(|threads| (set, threads)))
                .map(|(set, threads)| {
                    ratio(with_share(OVER_IT, threads, set), with("rwbench-others", PER_CPU, threads, set), SIMILAR)
                })
                .collect(),
        ).number("similar"),
        claim(
            "bravo-pthread-rwbench-flat",
            "section 5.4, figures 4e and 4f",
            "BA and pthread yield flat performance as the thread count increases.",
            RATIOS[4..]
                .iter()
                .flat_map(|set| {
                    MANY.map(|threads| ratio(with_share(PTHREAD, threads, set), with_share(PTHREAD, 8, set), FLAT))
                })
                .collect(),
        ).number("flat"),
        claim(
            "bravo-pthread-rwbench-gain",
            "section 5.4, figures 4e and 4f",
            "BRAVO improves performance for more read-dominated workloads (of BRAVO-pthread, against pthread).",
            RATIOS[4..]
                .iter()
                .flat_map(|set| {
                    MANY.map(|threads| {
                        ratio(with_share(OVER_IT, threads, set), with_share(PTHREAD, threads, set), Bound::AtLeast(FAR_BETTER))
                    })
                })
                .collect(),
        ).number("improves; flat"),
        claim(
            "bravo-pthread-readwhilewriting",
            "section 5.5, figure 5",
            "The performance of BRAVO-BA and BRAVO-pthread ... always exceeds that of Cohort-RW and the respective \
             underlying locks.",
            [
                over("readwhilewriting-pthread", &[1, 8, 36, 71], EXCEEDS),
                beside(("readwhilewriting-pthread", "readwhilewriting"), COHORT, &[1, 8, 36, 71], EXCEEDS),
            ]
            .concat(),
        ).number("always exceeds"),
        claim(
            "bravo-pthread-readwhilewriting-per-cpu",
            "section 5.5, figure 5",
            "... the performance of BRAVO-BA and BRAVO-pthread tracks that of Per-CPU.",
            beside(("readwhilewriting-pthread", "readwhilewriting"), PER_CPU, &[8, 36, 71], CLOSE),
        ).number("tracks"),
        claim(
            "bravo-pthread-hash-table-bench",
            "section 5.6, figure 6",
            "BRAVO enhances the performance of underlying locks, and shows substantial speedup at high thread counts \
             (of BRAVO-pthread, against pthread).",
            over("rocksdb-hash-table-pthread", &MANY, Bound::AtLeast(FAR_BETTER)),
        ).number("substantial"),
    ]
}
