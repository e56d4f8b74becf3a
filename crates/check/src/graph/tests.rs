use super::*;
use crate::gates::GATES;

const ME: usize = 0x1000;
/// Locks that are never destroyed.
const A: usize = 0x10_0000;
const B: usize = 0x10_0040;
const C: usize = 0x10_0080;
/// Where others begin.
const OTHERS: usize = 0x20_0000;
/// More than there is room for.
const LIVES: usize = 2 * NODES;

fn tables() -> &'static mut Tables {
    // SAFETY: zeroes are empty tables, and nothing else has their address.
    unsafe { memory::map::<Tables>().as_mut() }.expect("there is memory")
}

/// Takes locks, one after the other, and releases them.
fn all(tables: &mut Tables, locks: &[(usize, Wish)]) -> Option<Problem> {
    let mut found = None;
    for (lock, wish) in locks {
        found = found.or(tables.acquiring(ME, *lock, *wish, &Stack::NONE));
        assert!(tables.acquired(ME, *lock, *wish, Stack::NONE).is_none());
    }
    for (lock, _) in locks.iter().rev() {
        assert!(tables.releasing(ME, *lock).is_none());
    }
    found
}

fn both(tables: &mut Tables, outer: usize, inner: usize) -> Option<Problem> {
    all(tables, &[(outer, Wish::LOCK), (inner, Wish::LOCK)])
}

fn is_inverted(found: Option<Problem>) -> bool {
    matches!(found, Some(Problem::Inversion { .. }))
}

#[test]
fn locks_that_come_and_go_at_one_address() {
    let tables = tables();
    for life in 0..LIVES {
        let (outer, inner) = if life % 3 == 0 { (OTHERS, A) } else { (A, OTHERS) };
        assert!(both(tables, outer, inner).is_none(), "life {life}: another life had the other order");
        tables.forget(OTHERS);
    }
    assert!(both(tables, A, OTHERS).is_none());
    assert!(is_inverted(both(tables, OTHERS, A)));
}

#[test]
fn locks_that_come_and_go_at_many_addresses() {
    let tables = tables();
    for life in 0..LIVES {
        let lock = OTHERS + 40 * life;
        assert!(both(tables, A, lock).is_none(), "life {life}");
        // Some live longer than others.
        let older = OTHERS + 40 * life.saturating_sub(life % 64);
        tables.forget(lock);
        tables.forget(older);
    }
    assert!(both(tables, A, B).is_none());
    assert!(is_inverted(both(tables, B, A)));
}

#[test]
fn neighbours_of_locks_that_come_and_go() {
    let tables = tables();
    for life in 0..LIVES {
        assert!(both(tables, OTHERS + 40 * life, B).is_none(), "life {life}");
        tables.forget(B);
    }
    assert!(both(tables, A, B).is_none());
    assert!(is_inverted(both(tables, B, A)));
}

/// A program that makes locks and destroys none. It is said once that there is no room, and what is known stays so.
#[test]
fn locks_that_never_go() {
    let tables = tables();
    assert!(both(tables, A, B).is_none());
    let side = EDGES.isqrt();
    let pairs = (0..=side).flat_map(|outer| (0..side).map(move |inner| (outer, side + 1 + inner)));
    let address = |number: usize| OTHERS + 40 * number;
    let said: Vec<_> =
        pairs.filter_map(|(outer, inner)| both(tables, address(outer), address(inner))).collect();
    assert!(matches!(said[..], [Problem::Full("orders of locks")]));
    for first in [true, false] {
        assert_eq!(is_inverted(both(tables, B, A)), first, "reported once");
    }
    assert!(both(tables, B, C).is_none());
    tables.forget(OTHERS);
    assert!(both(tables, B, C).is_none() && is_inverted(both(tables, C, B)));
}

/// More threads hold locks than there is room for.
#[test]
fn threads_that_keep_locks() {
    let tables = tables();
    let (thread, lock) = (|number: usize| ME + 0x1000 * number, |number: usize| OTHERS + 40 * number);
    let mut said = Vec::new();
    for number in 0..THREADS + 2 {
        said.extend(tables.acquired(thread(number), lock(number), Wish::LOCK, Stack::NONE));
    }
    assert!(matches!(said[..], [Problem::Full("threads that hold locks")]));
    for number in (0..THREADS + 2).rev() {
        assert!(tables.releasing(thread(number), lock(number)).is_none(), "{number}");
    }
    assert!(matches!(tables.releasing(ME, A), Some(Problem::Stranger { holder: None, .. })));
}

/// A thread takes each lock of a row, more than there is room for. It is said once, also after something else has been said.
#[test]
fn a_thread_that_holds_many() {
    let tables = tables();
    assert!(tables.full(Room::Orders).is_some());
    let locks = || (0..HELD + 3).map(|number| OTHERS + 40 * number);
    let mut said = Vec::new();
    for _ in 0..2 {
        said.extend(locks().filter_map(|lock| tables.acquired(ME, lock, Wish::LOCK, Stack::NONE)));
        assert!(locks().rev().all(|lock| tables.releasing(ME, lock).is_none()));
    }
    assert!(matches!(said[..], [Problem::Full("locks that one thread holds (32)")]));
}

#[test]
fn an_order_through_a_lock_ends_with_it() {
    let tables = tables();
    for through in [false, true] {
        assert!(both(tables, A, B).is_none());
        if !through {
            tables.forget(B);
        }
        assert!(both(tables, B, C).is_none());
        assert_eq!(is_inverted(both(tables, C, A)), through);
        tables.forget(C);
    }
}

const READ: Wish = Wish { shared: true, ..Wish::LOCK };
const GATE: usize = 0x10_00c0;
const OTHER_GATE: usize = 0x10_0100;

/// Takes locks under a gate, and releases them.
fn gated(tables: &mut Tables, gate: (usize, Wish), locks: &[usize]) -> Option<Problem> {
    let locks: Vec<_> = locks.iter().map(|lock| (*lock, Wish::LOCK)).collect();
    all(tables, &[&[gate], &locks[..]].concat())
}

/// Two orders that are never taken at once, until one is taken without the gate.
#[test]
fn a_gate_keeps_two_orders_apart() {
    let gate = (GATE, Wish::LOCK);
    for without in [[A, B], [B, A]] {
        let tables = tables();
        for _ in 0..2 {
            assert!(gated(tables, gate, &[A, B]).is_none());
            assert!(gated(tables, gate, &[B, A]).is_none());
        }
        assert!(is_inverted(both(tables, without[0], without[1])));
        for again in [[A, B], [B, A]] {
            assert!(both(tables, again[0], again[1]).is_none(), "reported once");
        }
    }
}

/// The gate need not be the outermost lock.
#[test]
fn a_gate_that_is_taken_under_another_lock() {
    let tables = tables();
    assert!(gated(tables, (A, Wish::LOCK), &[GATE, B]).is_none());
    // A thread that takes the gate under B may wait for the first thread, which waits for B.
    assert!(is_inverted(gated(tables, (B, Wish::LOCK), &[GATE])));
}

#[test]
fn a_gate_keeps_three_orders_apart() {
    let (tables, gate) = (tables(), (GATE, Wish::LOCK));
    for order in [[A, B], [B, C], [C, A]] {
        assert!(gated(tables, gate, &order).is_none());
    }
    assert!(both(tables, B, C).is_none(), "the two others are still apart");
    assert!(is_inverted(both(tables, A, B)), "now the third one meets none");
}

/// What two threads can have at the same time is no gate: two locks, or one that both read.
#[test]
fn what_keeps_two_orders_apart() {
    for (gates, apart) in [
        ([(GATE, Wish::LOCK), (OTHER_GATE, Wish::LOCK)], false),
        ([(GATE, READ), (GATE, READ)], false),
        ([(GATE, READ), (GATE, Wish::LOCK)], true),
        ([(GATE, Wish::LOCK), (GATE, READ)], true),
    ] {
        let tables = tables();
        assert!(gated(tables, gates[0], &[A, B]).is_none());
        assert_eq!(!is_inverted(gated(tables, gates[1], &[B, A])), apart, "{gates:?}");
        // From now on there are readers on both sides.
        assert_eq!(
            is_inverted(gated(tables, (GATE, READ), &[A, B])),
            apart && gates[1].1.shared,
            "{gates:?}"
        );
        assert_eq!(
            is_inverted(gated(tables, (GATE, READ), &[B, A])),
            apart && gates[0].1.shared,
            "{gates:?}"
        );
    }
}

/// That an order was taken by a reader of the gate is not forgotten.
#[test]
fn a_gate_that_was_read_once() {
    let tables = tables();
    for wish in [READ, Wish::LOCK] {
        assert!(gated(tables, (GATE, wish), &[A, B]).is_none());
    }
    assert!(is_inverted(gated(tables, (GATE, READ), &[B, A])));
}

/// A thread that reads under a lock that it reads waits for no reader.
#[test]
fn orders_of_readers() {
    // Which of the locks of some orders are read, as bits: the outer and the inner lock of the first order, and so on.
    let wish = |bits: u32, at: u32| if bits >> at & 1 == 1 { READ } else { Wish::LOCK };
    for orders in [&[[A, B], [B, A]][..], &[[A, B], [B, C], [C, A]]] {
        for bits in 0..1 << (2 * orders.len()) {
            let tables = tables();
            let mut found = None;
            let mut waits = true;
            for (number, [outer, inner]) in orders.iter().enumerate() {
                assert!(found.is_none());
                let [at, next] = [2 * number as u32, 2 * ((number + 1) % orders.len()) as u32];
                found = all(tables, &[(*outer, wish(bits, at)), (*inner, wish(bits, at + 1))]);
                let reads = |at: u32| wish(bits, at).shared;
                let one_only_reads = [at, next].iter().any(|at| reads(*at) && reads(*at + 1));
                waits &= !(reads(at + 1) && reads(next) && one_only_reads);
            }
            assert_eq!(is_inverted(found), waits, "{bits:06b}");
        }
    }
}

/// An order that was taken in two ways, and goes on in a third one: whichever way was found first, the other counts, too.
#[test]
fn an_order_as_reader_and_as_writer() {
    let ways = [[false, false], [false, true], [true, false], [true, true]];
    let take = |tables: &mut Tables, locks: [usize; 2], way: Shared| {
        let lock = |end: End| (locks[end], if way[end] { READ } else { Wish::LOCK });
        all(tables, &[lock(BEFORE), lock(AFTER)])
    };
    for first in ways {
        for second in ways {
            for third in ways {
                let tables = tables();
                for way in [first, second] {
                    assert!(take(tables, [A, B], way).is_none());
                }
                assert!(take(tables, [B, C], third).is_none());
                let waits = may_wait(first, third) || may_wait(second, third);
                assert_eq!(is_inverted(both(tables, C, A)), waits, "{first:?} {second:?} {third:?}");
            }
        }
    }
}

/// Two orders that were reported are not reported again because another thread reads.
#[test]
fn orders_of_writers_and_then_of_readers() {
    let tables = tables();
    assert!(both(tables, A, B).is_none());
    assert!(is_inverted(both(tables, B, A)));
    for (outer, inner) in [(A, B), (B, A)] {
        for wishes in [[READ, Wish::LOCK], [Wish::LOCK, READ], [READ, READ]] {
            assert!(all(tables, &[(outer, wishes[0]), (inner, wishes[1])]).is_none(), "{wishes:?}");
        }
    }
}

/// A gate that readers read is forgotten, too.
#[test]
fn a_gate_that_readers_read() {
    let tables = tables();
    assert!(all(tables, &[(GATE, READ), (A, Wish::LOCK), (B, READ)]).is_none());
    tables.forget(GATE);
    assert!(is_inverted(gated(tables, (GATE, Wish::LOCK), &[B, A])));
}

/// Another lock at the address of a gate is another gate.
#[test]
fn a_gate_that_comes_and_goes() {
    for locks in [[A, B], [B, A]] {
        let (tables, gate) = (tables(), (GATE, Wish::LOCK));
        // The gate is the outer or the inner one of two.
        assert!(all(tables, &[gate, (A, Wish::LOCK), (B, Wish::LOCK)]).is_none());
        tables.forget(GATE);
        let turned = gated(tables, gate, &locks);
        assert_eq!(is_inverted(turned), locks == [B, A]);
    }
}

/// More locks are held than are remembered as gates: the outermost ones are.
#[test]
fn more_gates_than_are_remembered() {
    for remembered in [GATES - 1, GATES] {
        let tables = tables();
        let outer = (0..remembered).map(|number| OTHERS + 40 * number);
        let locks: Vec<_> = outer.chain([GATE, A, B]).map(|lock| (lock, Wish::LOCK)).collect();
        assert!(all(tables, &locks).is_none());
        assert_eq!(is_inverted(gated(tables, (GATE, Wish::LOCK), &[B, A])), remembered == GATES);
    }
}

#[test]
fn locks_that_a_thread_leaves() {
    let tables = tables();
    assert!(!tables.holds_any(ME) && tables.ended(ME).is_none());
    for (lock, wish) in [(A, Wish::LOCK), (C, READ)] {
        assert!(tables.acquired(ME, lock, wish, Stack::NONE).is_none());
    }
    assert!(tables.holds_any(ME));
    for left in [C, A] {
        assert!(matches!(tables.ended(ME), Some(Problem::Ended { lock, .. }) if lock == left));
    }
    assert!(!tables.holds_any(ME) && tables.ended(ME).is_none());
    // The next thread has the same identity, and does not wait for itself.
    for lock in [A, C] {
        assert!(tables.acquiring(ME, lock, Wish::LOCK, &Stack::NONE).is_none());
    }
    assert!(matches!(tables.destroying(A), Some(Problem::Destroyed { holder: (ENDED, _), .. })));
    assert!(matches!(tables.releasing(ME, A), Some(Problem::Stranger { holder: Some((ENDED, _)), .. })));
    assert!(tables.destroying(A).is_none(), "it was released");
}

#[test]
fn waits_for_a_condition_without_the_lock() {
    let tables = tables();
    assert!(matches!(tables.waiting(ME, A), Some(Problem::Stranger { holder: None, .. })));
    assert!(tables.acquired(ME, A, Wish::LOCK, Stack::NONE).is_none());
    assert!(tables.waiting(ME, A).is_none());
    assert!(matches!(tables.waiting(ME + 1, A), Some(Problem::Stranger { holder: Some((ME, _)), .. })));
    assert!(tables.waiting(ME, A).is_none(), "it was taken from its holder");
}

/// A lock under which thousands of others are taken, and one that is taken under all of them: each order is found without a look at
/// the others.
#[test]
fn many_locks_under_one() {
    let tables = tables();
    for lock in 0..20_000 {
        let lock = (OTHERS + 40 * lock, Wish::LOCK);
        assert!(all(tables, &[(A, Wish::LOCK), lock, (B, Wish::LOCK)]).is_none());
    }
    let in_bucket = |first: &u32| {
        let next =
            |edge: &u32| Some(tables.edges[*edge as usize].next_in_bucket).filter(|edge| *edge != NONE);
        core::iter::successors(Some(*first).filter(|edge| *edge != NONE), next).count()
    };
    let lengths: Vec<_> = tables.buckets.iter().map(in_bucket).collect();
    assert_eq!(lengths.iter().sum::<usize>(), 40_001);
    assert!(lengths.into_iter().all(|length| length <= 16));
    assert!(is_inverted(both(tables, B, A)));
    assert!(is_inverted(both(tables, OTHERS + 40 * 777, A)));
    assert!(is_inverted(both(tables, B, OTHERS + 40 * 19_999)));
    (0..20_000).for_each(|lock| tables.forget(OTHERS + 40 * lock));
    assert!(both(tables, OTHERS, A).is_none());
}

/// The threads of the circle that a thread closes as it asks for a lock, and the lock that each asks for.
fn closes(tables: &mut Tables, me: usize, lock: usize, wish: Wish) -> Vec<(usize, usize)> {
    if !tables.asks(me, lock, wish, &Stack::NONE) {
        return Vec::new();
    }
    let circle = tables.circle(me).expect("the thread has closed one");
    let waits: Vec<_> = circle.waits.iter().flatten().collect();
    assert_eq!(circle.length, waits.len());
    // Each waits for the next one.
    for (at, wait) in waits.iter().enumerate() {
        assert_eq!(wait.holder, waits[(at + 1) % waits.len()].thread);
    }
    waits.iter().map(|wait| (wait.thread, wait.lock)).collect()
}

fn takes(tables: &mut Tables, me: usize, lock: usize, wish: Wish) {
    assert!(tables.acquired(me, lock, wish, Stack::NONE).is_none());
}

#[test]
fn the_last_of_a_circle_sees_it() {
    let [one, two, three] = [1, 2, 3];
    let tables = tables();
    for (thread, lock) in [(one, A), (two, B), (three, C)] {
        takes(tables, thread, lock, Wish::LOCK);
    }
    assert!(closes(tables, one, B, Wish::LOCK).is_empty());
    // The fourth is behind them, and holds nothing; the fifth holds another lock.
    assert!(closes(tables, 4, A, Wish::LOCK).is_empty());
    takes(tables, 5, OTHERS, Wish::LOCK);
    assert!(closes(tables, 5, A, Wish::LOCK).is_empty());
    assert!(closes(tables, two, C, Wish::LOCK).is_empty());
    assert_eq!(closes(tables, three, A, Wish::LOCK), [(three, A), (one, B), (two, C)]);
    // The circle is broken where a thread gets its lock, gives up, or ends.
    tables.asks_no_more(one);
    assert!(closes(tables, three, A, Wish::LOCK).is_empty());
    assert_eq!(closes(tables, one, B, Wish::LOCK).len(), 3);
    while tables.ended(two).is_some() {}
    assert!(closes(tables, one, B, Wish::LOCK).is_empty());
}

#[test]
fn readers_keep_writers_waiting() {
    for (first, second, deadlock) in [(READ, READ, false), (READ, Wish::LOCK, true), (Wish::LOCK, READ, true)]
    {
        let tables = tables();
        // Three read, and one of these waits for the mutex of the thread that waits for the lock.
        (1..4).for_each(|thread| takes(tables, thread, A, first));
        takes(tables, 4, B, Wish::LOCK);
        assert!(closes(tables, 2, B, Wish::LOCK).is_empty());
        assert_eq!(!closes(tables, 4, A, second).is_empty(), deadlock);
    }
}

/// A thread gets a lock again that it holds, or is refused, or deadlocks with itself. That is no circle.
#[test]
fn a_lock_of_ones_own_is_no_circle() {
    let tables = tables();
    takes(tables, 1, A, Wish::LOCK);
    takes(tables, 2, B, Wish::LOCK);
    assert!(closes(tables, 2, A, Wish::LOCK).is_empty());
    assert!(closes(tables, 1, A, Wish { again: true, ..Wish::LOCK }).is_empty());
    assert_eq!(closes(tables, 1, B, Wish::LOCK).len(), 2);
}

/// More threads than are shown.
#[test]
fn a_long_circle_is_counted() {
    let tables = tables();
    let lock = |thread: usize| OTHERS + 40 * (thread % 20);
    (1..=20).for_each(|thread| takes(tables, thread, lock(thread), Wish::LOCK));
    for thread in 1..20 {
        assert!(closes(tables, thread, lock(thread + 1), Wish::LOCK).is_empty());
    }
    assert!(tables.asks(20, lock(21), Wish::LOCK, &Stack::NONE));
    let circle = tables.circle(20).unwrap();
    assert_eq!(circle.length, 20);
    let threads: Vec<_> = circle.waits.iter().flatten().map(|wait| wait.thread).collect();
    assert_eq!(threads, [20, 1, 2, 3, 4, 5, 6, 7]);
}
