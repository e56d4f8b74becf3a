//! A profile of known truth, for the tests of the reports.

use super::model::*;
use super::symbols::Frame;

/// Ten threads for ten seconds. They wait for 38 s: 91% of it for `cache.mutex_`, of which 84% because of `Cache::evict`,
/// the rest because of `Cache::get` and of handovers; 9% for a reader-writer lock.
pub fn profile() -> Profile {
    let mut interner = Interner::default();
    let frame = |function: &str, line: u32, inlined: bool| Frame {
        function: function.into(),
        file: "/src/cache.cc".into(),
        line,
        module: "server".into(),
        inlined,
    };
    let mut stack = |function: &str, line: u32| {
        interner.stack(vec![
            frame("std::mutex::lock", 100, true),
            frame(function, line, false),
            frame("serve", 7, false),
            frame("main", 3, false),
        ])
    };
    let (get, evict, put) = (stack("Cache::get", 31), stack("Cache::evict", 120), stack("Cache::put", 64));
    const S: u64 = 1_000_000_000;
    let bucket = |start: u64, end: u64, count: u64| Bucket { start, end, count };
    let first = 3458 * S / 100;
    let (by_evict, by_get) = (first * 84 / 100, first * 10 / 100);
    let handover = first - by_evict - by_get;
    let cache = Class {
        name: "cache.mutex_".into(),
        key: "cache.mutex_".into(),
        origin: "static in server".into(),
        kind: Kind::Mutex,
        instances: 3,
        instance_wait_ns: vec![first - 2 * S, S, S],
        busiest: OfProcess {
            instances: 3,
            holds: 10_000,
            wait_ns: first,
            longest_instance_ns: first - 2 * S,
        },
        acquisitions: 10_000,
        contended: 4_000,
        waits: Lengths {
            count: 4_000,
            sum_ns: first,
            max_ns: 30_000_000,
            buckets: vec![bucket(8_000_000, 9_000_000, 3_900), bucket(28_000_000, 30_000_000, 100)],
        },
        handover_ns: handover,
        reacquires: 10,
        reacquire_ns: 1_000_000,
        reacquire_pairs: vec![Pair {
            waiter: put,
            cause: Cause::Holder(evict),
            wait_ns: 1_000_000,
            error_ns: Error(0),
        }],
        holds: Lengths {
            count: 4_000,
            sum_ns: 4_800_000_000,
            max_ns: 2_500_000,
            buckets: vec![bucket(1_100_000, 1_300_000, 3_990), bucket(2_400_000, 2_600_000, 10)],
        },
        waiters_max: 9,
        timed_ns: S,
        spun_ns: S / 8,
        successions: Successions { compared: 1_000, by_thread: 900, by_cpu: 500, by_node: 0 },
        waiters: vec![
            Waiter { stack: get, count: 3_000, wait_ns: first * 3 / 4, error_ns: Error(50_000_000) },
            Waiter { stack: put, count: 1_000, wait_ns: first - first * 3 / 4, error_ns: Error(50_000_000) },
        ],
        holders: vec![
            Holder {
                stack: evict,
                waits: 3_500,
                caused_wait_ns: by_evict,
                error_ns: Error(40_000_000),
                holds: 100,
                hold_ns: 120_000_000,
            },
            Holder {
                stack: get,
                waits: 500,
                caused_wait_ns: by_get,
                error_ns: Error(30_000_000),
                holds: 10,
                hold_ns: 1_000_000,
            },
        ],
        pairs: vec![
            Pair { waiter: get, cause: Cause::Holder(evict), wait_ns: by_evict, error_ns: Error(40_000_000) },
            Pair { waiter: put, cause: Cause::Holder(get), wait_ns: by_get, error_ns: Error(30_000_000) },
            Pair { waiter: get, cause: Cause::Handover, wait_ns: handover, error_ns: Error(20_000_000) },
        ],
        ..Class::default()
    };
    let second = 342 * S / 100;
    let table = Class {
        name: "mutex <\"table\"> & more".into(),
        key: "table".into(),
        origin: "first acquired at Cache::put (cache.cc:64)".into(),
        kind: Kind::RwLock,
        instances: 1,
        instance_wait_ns: vec![second],
        busiest: OfProcess { instances: 1, holds: 1_000_000, wait_ns: second, longest_instance_ns: second },
        acquisitions: 1_000_000,
        reads: 970_000,
        contended: 2_000,
        waits: Lengths {
            count: 2_000,
            sum_ns: second,
            max_ns: 5_000_000,
            buckets: vec![bucket(1_600_000, 1_800_000, 2_000)],
        },
        holds: Lengths {
            count: 1_000,
            sum_ns: 1_000_000,
            max_ns: 3_000,
            buckets: vec![bucket(900, 1_100, 1_000)],
        },
        waiters_max: 4,
        readers_max: 3,
        read_holds: 1_000,
        read_hold_ns: 1_000_000,
        waiters: vec![Waiter { stack: get, count: 2_000, wait_ns: second, error_ns: Error(0) }],
        holders: vec![Holder { stack: put, waits: 2_000, caused_wait_ns: second, ..Holder::default() }],
        pairs: vec![Pair { waiter: get, cause: Cause::Holder(put), wait_ns: second, error_ns: Error(0) }],
        ..Class::default()
    };
    let thread = |number: u32| Thread {
        process: 0,
        tid: 1000 + number,
        name: format!("worker/{number}"),
        lives: true,
        lifetime_ns: 10 * S,
        wait_ns: 38 * S / 10,
        waits: 600,
        idle_ns: S,
    };
    let wait = |number: u64| Wait {
        thread: number as usize % 10,
        lock: number as usize % 2,
        start_ns: number * 10_000_000,
        length_ns: 8_000_000,
        stands_for_ns: 42_000_000,
        cause: Cause::Holder(evict),
        stack: get,
    };
    Profile {
        command: vec!["./server".into(), "--threads=10".into()],
        seconds: 10.0,
        processes: vec![Process { pid: 1000, program: "server".into(), seconds: 10.0 }],
        threads: (0..10).map(thread).collect(),
        waits: (0..900).map(wait).collect(),
        locks: vec![cache, table],
        condvars: vec![Condition {
            name: "pool.ready".into(),
            origin: "static in server".into(),
            instances: 1,
            waits: 500,
            wait_ns: 10 * S,
            notifications: 500,
            waiters: vec![Waiter { stack: put, count: 500, wait_ns: 10 * S, error_ns: Error(0) }],
            ..Condition::default()
        }],
        overhead: Overhead { calls: 1_010_000, stacks: 900, unwinding_ns: 900_000, memory_bytes: 2 << 20 },
        dropped: vec![Dropped { what: "stacks".into(), count: 12 }],
        notes: vec!["This is a sample.".into()],
        attached: false,
        deadlock: None,
        kept: Default::default(),
        missing: Vec::new(),
        frames: interner.frames,
        stacks: interner.stacks,
    }
}
