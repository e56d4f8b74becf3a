//! Section 6: the lock in the Linux kernel.

use super::*;

pub fn claims() -> Vec<Claim> {
    let writes = |lock| Figure::Extra("writes/s", at("locktorture-long", lock, 143));
    vec![
        claim("bravo-locktorture-reads", "section 6.1, figure 7a (1 writer)")
            .says("Once the number of threads increases, the scalability of the stock is hampered. The BRAVO version \
             continues to scale perfectly.")
            .number("scales perfectly")
            .checks([over_stock("locktorture-long", 143, Bound::AtLeast(BETTER))])
            .because("A revocation waits for readers that hold the lock for up to 50 ms, so the guard keeps the bias off for up to nine times that, and the writer is back before."),
        claim("bravo-locktorture-writes", "section 6.1, figure 7b")
            .says("When considering the number of write acquisitions, the stock version has a better result.")
            .number("better")
            .checks([check(Value::Ratio(writes(STOCK), writes(KERNEL)), Bound::AtLeast(BETTER))])
            .because("The rwsem's writer waits for the readers before it as well, and most writes find no bias to revoke."),
        claim("bravo-locktorture-linear", "section 6.1, figure 8a (no writer)")
            .says("Both versions, stock and BRAVO, increase the number of reads linearly with the number of threads.")
            .number("linear")
            .checks(
                KERNELS[..2]
                    .iter()
                    .flat_map(|lock| [16, 71].map(|threads| speedup("locktorture-read-long", lock, threads))),
            ),
        claim("bravo-locktorture-short", "section 6.1, figure 8b (5 us)")
            .says("The stock version stops scaling once the contention on shared counter in rwsem grows.")
            .number("stops scaling")
            .checks([
                ratio(
                    at("locktorture-read-short", STOCK, 142),
                    at("locktorture-read-short", STOCK, 71),
                    Bound::AtMost(BETTER),
                ),
                over_stock("locktorture-read-short", 142, Bound::AtLeast(FAR_BETTER)),
            ])
            .because("BRAVO ends at what the cores can do, of which two hardware threads share each (smt_slowdown)."),
        claim("bravo-locktorture-scales", "section 6.1, figure 8b (5 us)")
            .says("BRAVO avoids access to the shared counter and scales perfectly across all thread counts.")
            .number("scales perfectly")
            .checks([16, 71].map(|threads| speedup("locktorture-read-short", KERNEL, threads))),
        claim("bravo-page-fault-few", "section 6.2, figure 9 a, b")
            .says("In page_fault, the BRAVO version performs similarly to stock as long as the latter scales (16 threads).")
            .number("similar")
            .checks([1, 16].map(|threads| over_stock("page-fault", threads, SIMILAR))),
        claim("bravo-page-fault-many", "section 6.2, figure 9 a, b")
            .says("At 142 threads, BRAVO outperforms stock by up to 93%.")
            .number("1.93x")
            .checks([over_stock("page-fault", 142, gain(1.93))]),
        claim("bravo-mmap", "section 6.2, figure 9 c, d")
            .says("mmap shows no significant difference in the performance of BRAVO vs. stock.")
            .number("no difference")
            .checks([1, 16, 72, 142].map(|threads| over_stock("mmap", threads, CLOSE)))
            .because("A writer looks at the bias before it takes the rwsem. That delay relieves writers that try to steal the rwsem from each other."),
        claim("bravo-metis-wc", "section 6.3, table 1")
            .says("wc at 142 threads: 143.217 s with stock, 125.160 s with BRAVO.")
            .number("1.14x")
            .checks([over_stock("wc", 142, gain(143.217 / 125.160))]),
        claim("bravo-metis-wrmem", "section 6.3, table 2")
            .says("wrmem at 142 threads: 58.994 s with stock, 42.544 s with BRAVO.")
            .number("1.39x")
            .checks([over_stock("wrmem", 142, gain(58.994 / 42.544))]),
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
