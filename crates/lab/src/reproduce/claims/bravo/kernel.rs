//! Section 6: the lock in the Linux kernel.

use super::*;

pub fn claims() -> Vec<Claim> {
    let writes = |lock| Figure::Extra("writes/s", at("locktorture-long", lock, 143));
    vec![
        claim(
            "bravo-locktorture-reads",
            "section 6.1, figure 7a (1 writer)",
            "Once the number of threads increases, the scalability of the stock is hampered. The BRAVO version \
             continues to scale perfectly.",
            vec![over_stock("locktorture-long", 143, Bound::AtLeast(BETTER))],
        ).number("scales perfectly").because("A revocation waits for readers that hold the lock for up to 50 ms, so the guard keeps the bias off for up to nine times that, and the writer is back before."),
        claim(
            "bravo-locktorture-writes",
            "section 6.1, figure 7b",
            "When considering the number of write acquisitions, the stock version has a better result.",
            vec![check(Value::Ratio(writes(STOCK), writes(KERNEL)), Bound::AtLeast(BETTER))],
        ).number("better").because("The rwsem's writer waits for the readers before it as well, and most writes find no bias to revoke."),
        claim(
            "bravo-locktorture-linear",
            "section 6.1, figure 8a (no writer)",
            "Both versions, stock and BRAVO, increase the number of reads linearly with the number of threads.",
            KERNELS[..2]
                .iter()
                .flat_map(|lock| [16, 71].map(|threads| speedup("locktorture-read-long", lock, threads)))
                .collect(),
        ).number("linear"),
        claim(
            "bravo-locktorture-short",
            "section 6.1, figure 8b (5 us)",
            "The stock version stops scaling once the contention on shared counter in rwsem grows.",
            vec![
                ratio(
                    at("locktorture-read-short", STOCK, 142),
                    at("locktorture-read-short", STOCK, 71),
                    Bound::AtMost(BETTER),
                ),
                over_stock("locktorture-read-short", 142, Bound::AtLeast(FAR_BETTER)),
            ],
        ).number("stops scaling").because("BRAVO ends at what the cores can do, of which two hardware threads share each (smt_slowdown)."),
        claim(
            "bravo-locktorture-scales",
            "section 6.1, figure 8b (5 us)",
            "BRAVO avoids access to the shared counter and scales perfectly across all thread counts.",
            [16, 71].map(|threads| speedup("locktorture-read-short", KERNEL, threads)).to_vec(),
        ).number("scales perfectly"),
        claim(
            "bravo-page-fault-few",
            "section 6.2, figure 9 a, b",
            "In page_fault, the BRAVO version performs similarly to stock as long as the latter scales (16 threads).",
            [1, 16].map(|threads| over_stock("page-fault", threads, SIMILAR)).to_vec(),
        ).number("similar"),
        claim(
            "bravo-page-fault-many",
            "section 6.2, figure 9 a, b",
            "At 142 threads, BRAVO outperforms stock by up to 93%.",
            vec![over_stock("page-fault", 142, gain(1.93))],
        ).number("1.93x"),
        claim(
            "bravo-mmap",
            "section 6.2, figure 9 c, d",
            "mmap shows no significant difference in the performance of BRAVO vs. stock.",
            [1, 16, 72, 142].map(|threads| over_stock("mmap", threads, CLOSE)).to_vec(),
        ).number("no difference").because("A writer looks at the bias before it takes the rwsem. That delay relieves writers that try to steal the rwsem from each other."),
        claim(
            "bravo-metis-wc",
            "section 6.3, table 1",
            "wc at 142 threads: 143.217 s with stock, 125.160 s with BRAVO.",
            vec![over_stock("wc", 142, gain(143.217 / 125.160))],
        ).number("1.14x"),
        claim(
            "bravo-metis-wrmem",
            "section 6.3, table 2",
            "wrmem at 142 threads: 58.994 s with stock, 42.544 s with BRAVO.",
            vec![over_stock("wrmem", 142, gain(58.994 / 42.544))],
        ).number("1.39x"),
    ]
}

/// The same of a later kernel's rwsem.
pub fn later() -> Vec<Claim> {
    const IDS: [(&str, &str); 10] = [
        ("bravo-locktorture-reads", "bravo-locktorture-reads-later"),
        ("bravo-locktorture-writes", "bravo-locktorture-writes-later"),
        ("bravo-locktorture-linear", "bravo-locktorture-linear-later"),
        ("bravo-locktorture-short", "bravo-locktorture-short-later"),
        ("bravo-locktorture-scales", "bravo-locktorture-scales-later"),
        ("bravo-page-fault-few", "bravo-page-fault-few-later"),
        ("bravo-page-fault-many", "bravo-page-fault-many-later"),
        ("bravo-mmap", "bravo-mmap-later"),
        ("bravo-metis-wc", "bravo-metis-wc-later"),
        ("bravo-metis-wrmem", "bravo-metis-wrmem-later"),
    ];
    let claims = claims();
    let of = |(id, later): &(&str, &'static str)| {
        let claim = claims.iter().find(|claim| claim.id == *id).expect("one of the above");
        claim.of_others(later, "with the rwsem of a later kernel", &[(STOCK, LATER), (KERNEL, LATER_KERNEL)])
    };
    IDS.iter().map(of).collect()
}
