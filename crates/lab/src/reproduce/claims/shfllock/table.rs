//! Table 1.

use super::*;

pub fn claims() -> Vec<Claim> {
    let bytes = |lock, most| of(Figure::LockBytes(lock), Bound::AtMost(most));
    let exactly = |value| Bound::Within(value, value);
    vec![
        claim("shfl-table1-bytes-tas", "table 1", "TAS: 1 byte per lock.", vec![bytes("tas", 1.0)])
            .number("1")
        .because(
            "A word here has 32 bits at least, the size that a futex has; one byte would do.",
        ),
        claim(
            "shfl-table1-bytes-mcs",
            "table 1",
            "MCS: 8 bytes per lock; 12 per waiter and per lock-holder.",
            vec![
                bytes("mcs", 8.0),
                of(Figure::WaiterBytes("mcs"), Bound::AtMost(12.0)),
                of(Figure::HolderBytes("mcs"), Bound::AtMost(12.0)),
            ],
        )
        .number("8, 12, 12")
        .because(
            "The lock has its 8 bytes. Nodes of all queue locks here are of one kind, and each \
             has a cache line of its own (64 bytes), lest two waiters share one; the paper counts \
             the fields.",
        ),
        claim(
            "shfl-table1-bytes",
            "table 1",
            "ShflLock: 12 bytes per lock.",
            vec![bytes(B, 12.0), bytes(NB, 12.0)],
        )
        .number("12")
        .because(
            "The same fields, a word of 4 bytes and a pointer of 8; the pointer has to be \
             aligned, which makes 16.",
        ),
        claim(
            "shfl-table1-bytes-waiter",
            "table 1",
            "ShflLock: 28 bytes per waiter.",
            [B, NB].map(|lock| of(Figure::WaiterBytes(lock), Bound::AtMost(28.0))).to_vec(),
        )
        .number("28")
        .because(
            "A queue node has a cache line of its own, as with MCS above.",
        ),
        claim(
            "shfl-table1-bytes-holder",
            "table 1",
            "ShflLock: nothing per lock-holder; MCS keeps its node until the release.",
            vec![
                of(Figure::HolderBytes(B), exactly(0.0)),
                of(Figure::HolderBytes(NB), exactly(0.0)),
                of(Figure::HolderBytes("mcs"), Bound::AtLeast(1.0)),
            ],
        )
        .number("0"),
        claim(
            "shfl-table1-bytes-others",
            "table 1",
            "Per lock, on eight sockets: Cohort 1,152 bytes, CST 1,056; CNA 8, of which waiters and holders take 28 each.",
            vec![
                bytes(COHORT, 1152.0),
                bytes(CST, 1056.0),
                bytes("cna", 8.0),
                of(Figure::WaiterBytes("cna"), Bound::AtMost(28.0)),
                of(Figure::HolderBytes("cna"), Bound::AtMost(28.0)),
            ],
        ).number("1152, 1056, 8, 28")
        .because(
            "The locks themselves are smaller than the paper's. A queue node has a cache line of \
             its own, as with MCS above.",
        ),
        claim(
            "shfl-table1-atomics",
            "table 1",
            "Atomic instructions per acquire and release without contention: TAS 1, MCS 2, ShflLock 1.",
            [("tas", 1.0), ("mcs", 2.0), (NB, 1.0), (B, 1.0)]
                .map(|(lock, atomics)| {
                    let bound = Bound::Within(atomics - 0.01, atomics + 0.01);
                    extra("atomics/op", at("uncontended", lock, 1), bound)
                })
                .to_vec(),
        )
        .number("1, 2, 1"),
        claim(
            "shfl-table1-atomics-contended",
            "table 1",
            "With contention: TAS without limit, MCS 1, ShflLock about 2.",
            vec![
                extra("atomics/op", at("hash-table", "tas", 192), Bound::AtLeast(20.0)),
                extra("atomics/op", at("hash-table", "mcs", 192), Bound::Within(0.9, 1.1)),
                extra("atomics/op", at("hash-table", NB, 192), Bound::Within(1.5, 2.5)),
                extra("atomics/op", at("hash-table-blocking", B, 192), Bound::Within(1.5, 2.5)),
            ],
        )
        .number("unbounded, 1, 2")
        .because(
            "ShflLock-B has a little less, 1.4: many acquisitions are by threads that find the \
             word free, while most others sleep (0.95 of their time). The other parts hold.",
        ),
        claim(
            "shfl-table1-atomics-others",
            "table 1",
            "Without contention: Cohort 4, CNA 2, the kernel's mutex 1, CST about 6.",
            [(COHORT, 3.99, 4.01), ("cna", 1.99, 2.01), (STOCK_MUTEX, 0.99, 1.01), (CST, 5.0, 7.0)]
                .map(|(lock, least, most)| {
                    extra("atomics/op", at("uncontended", lock, 1), Bound::Within(least, most))
                })
                .to_vec(),
        ).number("4, 2, 1, 6")
        .because(
            "Our locks have one fewer where a release can be a store (Cohort 3, CST 4); the \
             kernel's mutex has 2, for its unlock is an exchange too: the paper counts only the \
             acquire.",
        ),
        claim(
            "shfl-table1-atomics-contended-others",
            "table 1",
            "With contention: Cohort and CNA about 2, the kernel's mutex about 4, CST about 3.",
            vec![
                extra("atomics/op", at("hash-table", COHORT, 192), Bound::Within(1.5, 2.5)),
                extra("atomics/op", at("hash-table", "cna", 192), Bound::Within(1.5, 2.5)),
                extra("atomics/op", at("hash-table-blocking", STOCK_MUTEX, 192), Bound::Within(3.0, 5.0)),
                extra("atomics/op", at("hash-table-blocking", CST, 192), Bound::Within(2.25, 3.75)),
            ],
        ).number("2, 2, 4, 3")
        .because(
            "Contended, Cohort and CNA have the one exchange of a tail that MCS has, and CST two, this and \
             the swap with which it hands over. The kernel's mutex has 8: its spinners queue and \
             leave that queue again, and waiters that were woken in vain demand a handoff.",
        ),
        claim(
            "shfl-table1-subscription",
            "table 1, F3",
            "Both mutex and CST are sub-optimal when under-subscribed but maintain good throughput once they are \
             over-subscribed; ShflLock does both.",
            vec![
                over("hash-table-blocking", B, STOCK_MUTEX, 192, Bound::AtLeast(BETTER)),
                over("hash-table-blocking", B, CST, 192, Bound::AtLeast(BETTER)),
                ratio(at("hash-table-blocking", STOCK_MUTEX, 768), at("hash-table-blocking", STOCK_MUTEX, 192), Bound::AtLeast(WORSE)),
                ratio(at("hash-table-blocking", CST, 768), at("hash-table-blocking", CST, 192), Bound::AtLeast(WORSE)),
                ratio(at("hash-table-blocking", B, 768), at("hash-table-blocking", B, 192), Bound::AtLeast(WORSE)),
            ],
        ).number("x/v, x/v, v/v")
        .because(
            "CST keeps 0.72 of its rate with four threads for each processor: its holders set \
             sleepers aside and wake one in each turn of a socket. The other parts hold.",
        ),
        claim(
            "shfl-table1-lines-blocking",
            "table 1, F1",
            "Cache-line movement of the blocking locks: the kernel's mutex high; CST and ShflLock low.",
            [CST, B]
                .map(|lock| {
                    let remote = |lock| Figure::Extra("remote", at("hash-table-blocking", lock, 192));
                    check(Value::Ratio(remote(lock), remote(STOCK_MUTEX)), Bound::AtMost(1.0 / FAR_BETTER))
                })
                .to_vec(),
        ).number("high, low, low"),
        claim(
            "shfl-table1-lines-others",
            "table 1, F1",
            "Cache-line movement: MCS high; Cohort and CNA low.",
            [COHORT, "cna"]
                .map(|lock| {
                    let remote = |lock| Figure::Extra("remote", at("hash-table", lock, 192));
                    check(Value::Ratio(remote(lock), remote("mcs")), Bound::AtMost(1.0 / FAR_BETTER))
                })
                .to_vec(),
        ).number("high, low, low"),
        claim(
            "shfl-table1-lines",
            "table 1, F1",
            "Cache-line movement: TAS very high, MCS high, ShflLock low.",
            vec![
                check(
                    Value::Ratio(
                        Figure::Extra("misses/op", at("hash-table", "tas", 192)),
                        Figure::Extra("misses/op", at("hash-table", "mcs", 192)),
                    ),
                    Bound::AtLeast(FAR_BETTER),
                ),
                check(
                    Value::Ratio(
                        Figure::Extra("remote", at("hash-table", NB, 192)),
                        Figure::Extra("remote", at("hash-table", "mcs", 192)),
                    ),
                    Bound::AtMost(1.0 / FAR_BETTER),
                ),
            ],
        )
        .number("very high, high, low"),
        claim(
            "shfl-tas-collapses",
            "table 1, F2",
            "TAS results in better performance when contention is low, and in worse when it is high.",
            vec![
                over("hash-table", "tas", "mcs", 1, Bound::AtLeast(1.0)),
                over("hash-table", "tas", "mcs", 192, Bound::AtMost(1.0 / FAR_BETTER)),
            ],
        )
        .number("better, worse"),
    ]
}
