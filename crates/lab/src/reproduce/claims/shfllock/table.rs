//! Table 1.

use super::*;

pub fn claims() -> Vec<Claim> {
    // At most what the paper has, and of its order.
    let of_order = |most: f64| Bound::Within(most / 2.0, most);
    let bytes = |lock, most| of(Figure::LockBytes(lock), of_order(most));
    let exactly = |value| Bound::Within(value, value);
    vec![
        claim("shfl-table1-bytes-tas", "table 1")
            .says("TAS: 1 byte per lock.")
            .number("1")
            .checks([bytes("tas", 1.0)])
            .by_design("a word has 32 bits at least, the size of a futex"),
        claim("shfl-table1-bytes-mcs", "table 1")
            .says("MCS: 8 bytes per lock; 12 per waiter and per lock-holder.")
            .number("8, 12, 12")
            .checks([
                bytes("mcs", 8.0),
                of(Figure::WaiterBytes("mcs"), of_order(12.0)),
                of(Figure::HolderBytes("mcs"), of_order(12.0)),
            ])
            .by_design("a queue node has a cache line of its own, so that no two waiters share one; the paper counts the fields"),
        claim("shfl-table1-bytes", "table 1")
            .says("ShflLock: 12 bytes per lock.")
            .number("12")
            .checks([bytes(B, 12.0), bytes(NB, 12.0)])
            .by_design("the pointer is aligned: 4 bytes of word, 4 of padding, 8 of pointer"),
        claim("shfl-table1-bytes-waiter", "table 1")
            .says("ShflLock: 28 bytes per waiter.")
            .number("28")
            .checks([B, NB].map(|lock| of(Figure::WaiterBytes(lock), of_order(28.0))))
            .by_design("a queue node has a cache line of its own, so that no two waiters share one; the paper counts the fields"),
        claim("shfl-table1-bytes-holder", "table 1")
            .says("ShflLock: nothing per lock-holder; MCS keeps its node until the release.")
            .number("0")
            .checks([
                of(Figure::HolderBytes(B), exactly(0.0)),
                of(Figure::HolderBytes(NB), exactly(0.0)),
                of(Figure::HolderBytes("mcs"), Bound::AtLeast(1.0)),
            ]),
        claim("shfl-table1-bytes-others", "table 1")
            .says("Per lock, on eight sockets: Cohort 1,152 bytes, CST 1,056; CNA 8, of which waiters and holders take 28 each.")
            .number("1152, 1056, 8, 28")
            .checks([
                of(Figure::LockBytes(COHORT), Bound::AtMost(1152.0)),
                of(Figure::LockBytes(CST), Bound::AtMost(1056.0)),
                bytes("cna", 8.0),
                of(Figure::WaiterBytes("cna"), of_order(28.0)),
                of(Figure::HolderBytes("cna"), of_order(28.0)),
            ])
            .by_design("a queue node has a cache line of its own, so that no two waiters share one; the paper counts the fields"),
        claim("shfl-table1-atomics", "table 1")
            .says("Atomic instructions per acquire and release without contention: TAS 1, MCS 2, ShflLock 1.")
            .number("1, 2, 1")
            .checks([("tas", 1.0), ("mcs", 2.0), (NB, 1.0), (B, 1.0)].map(|(lock, atomics)| {
                let bound = Bound::Within(atomics - 0.01, atomics + 0.01);
                extra("atomics/op", at("uncontended", lock, 1), bound)
            })),
        claim("shfl-table1-atomics-contended", "table 1")
            .says("With contention: TAS without limit, MCS 1, ShflLock about 2.")
            .number("unbounded, 1, 2")
            .checks([
                extra("atomics/op", at("hash-table", "tas", 192), Bound::AtLeast(20.0)),
                extra("atomics/op", at("hash-table", "mcs", 192), Bound::Within(0.9, 1.1)),
                extra("atomics/op", at("hash-table", NB, 192), Bound::Within(1.5, 2.5)),
                extra("atomics/op", at("hash-table-blocking", B, 192), Bound::Within(1.5, 2.5)),
            ])
            .because("Many acquisitions of ShflLock-B are by threads that find the word free while most others sleep."),
        claim("shfl-table1-atomics-others", "table 1")
            .says("Without contention: Cohort 4, CNA 2, the kernel's mutex 1, CST about 6.")
            .number("4, 2, 1, 6")
            .checks(
                [(COHORT, 3.99, 4.01), ("cna", 1.99, 2.01), (STOCK_MUTEX, 0.99, 1.01), (CST, 5.0, 7.0)]
                    .map(|(lock, least, most)| {
                        extra("atomics/op", at("uncontended", lock, 1), Bound::Within(least, most))
                    }),
            )
            .by_design("a release is a store where the paper counts an atomic instruction, and of the mutex the paper counts only the acquisition"),
        claim("shfl-table1-atomics-contended-others", "table 1")
            .says("With contention: Cohort and CNA about 2, the kernel's mutex about 4, CST about 3.")
            .number("2, 2, 4, 3")
            .checks([
                extra("atomics/op", at("hash-table", COHORT, 192), Bound::Within(1.5, 2.5)),
                extra("atomics/op", at("hash-table", "cna", 192), Bound::Within(1.5, 2.5)),
                extra("atomics/op", at("hash-table-blocking", STOCK_MUTEX, 192), Bound::Within(3.0, 5.0)),
                extra("atomics/op", at("hash-table-blocking", CST, 192), Bound::Within(2.25, 3.75)),
            ])
            .because("Contended, Cohort and CNA have the one exchange of a tail that MCS has, and CST also the exchange with which it hands over. Spinners of the kernel's mutex queue and leave that queue again."),
        claim("shfl-table1-subscription", "table 1, F3")
            .says("Both mutex and CST are sub-optimal when under-subscribed but maintain good throughput once they are \
             over-subscribed; ShflLock does both.")
            .number("x/v, x/v, v/v")
            .checks([
                over("hash-table-blocking", B, STOCK_MUTEX, 192, Bound::AtLeast(BETTER)),
                over("hash-table-blocking", B, CST, 192, Bound::AtLeast(BETTER)),
                ratio(at("hash-table-blocking", STOCK_MUTEX, 768), at("hash-table-blocking", STOCK_MUTEX, 192), Bound::AtLeast(WORSE)),
                ratio(at("hash-table-blocking", CST, 768), at("hash-table-blocking", CST, 192), Bound::AtLeast(WORSE)),
                ratio(at("hash-table-blocking", B, 768), at("hash-table-blocking", B, 192), Bound::AtLeast(WORSE)),
            ])
            .because("CST's holders set sleepers aside and wake one in each turn of a socket."),
        claim("shfl-table1-lines-blocking", "table 1, F1")
            .says("Cache-line movement of the blocking locks: the kernel's mutex high; CST and ShflLock low.")
            .number("high, low, low")
            .checks([CST, B].map(|lock| {
                let remote = |lock| Figure::Extra("remote", at("hash-table-blocking", lock, 192));
                check(Value::Ratio(remote(lock), remote(STOCK_MUTEX)), Bound::AtMost(1.0 / FAR_BETTER))
            })),
        claim("shfl-table1-lines-others", "table 1, F1")
            .says("Cache-line movement: MCS high; Cohort and CNA low.")
            .number("high, low, low")
            .checks([COHORT, "cna"].map(|lock| {
                let remote = |lock| Figure::Extra("remote", at("hash-table", lock, 192));
                check(Value::Ratio(remote(lock), remote("mcs")), Bound::AtMost(1.0 / FAR_BETTER))
            })),
        claim("shfl-table1-lines", "table 1, F1")
            .says("Cache-line movement: TAS very high, MCS high, ShflLock low.")
            .number("very high, high, low")
            .checks([
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
            ]),
        claim("shfl-tas-collapses", "table 1, F2")
            .says("TAS results in better performance when contention is low, and in worse when it is high.")
            .number("better, worse")
            .checks([
                over("hash-table", "tas", "mcs", 1, Bound::AtLeast(1.0)),
                over("hash-table", "tas", "mcs", 192, Bound::AtMost(1.0 / FAR_BETTER)),
            ]),
    ]
}
