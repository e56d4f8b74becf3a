//! The clients of reader-writer locks that take longest, seconds each: a reader and a writer, or two writers, that come again, and
//! those in which an attempt, or a deadline, meets readers and a writer. With shfl-rw, two clients of three threads and one of two run
//! in CI only (`LATCHWORK_THOROUGH`).
//!
//! Tests start in the order of their names. These start early, so that no processor is idle at the end.

use crate::machine::{Loom, Model, deep, thorough};
use crate::rwlock::{
    Shared, for_each_rwlock, free_after, has_rows, is_array, is_bravo, is_bravo_over_blocking, is_large,
    reads, reads_twice, reads_until, tries_read, tries_write, warm, works_after, writes, writes_twice,
    writes_until,
};
use latchwork::locks::rwlock::RawRwLock;
use latchwork::locks::rwlock::shfl_rw::RawShflRw;
use latchwork::registry::{self, Visitor};

/// Twice each; up to 3 preemptions, or 2 where waiters also go to sleep and with rows of slots, or 1 where both BRAVO and
/// sleeping waiters are, and with shfl-rw (`LATCHWORK_LOOM_DEEP` has 2). That lock has its own turn with 2 preemptions when the writer
/// comes again (not every day), and with 3 when neither does (`rwlock::reader_and_writer`). A reader that comes again would be
/// 660,000 executions, a minute of processor time.
#[test]
fn reader_and_writer_twice() {
    fn model<R: RawRwLock>() -> Model {
        Model::new(match () {
            () if is_bravo_over_blocking::<R>() || is_large::<R>() => 1,
            () if has_rows::<R>() || R::INFO.blocking => 2,
            () => 3,
        })
    }
    for_each_rwlock!(R => model::<R>().check(
        (Shared::<R>::new, warm::<R>),
        &[reads_twice, writes_twice],
        free_after::<R, 2>
    ));
    for_each_rwlock!(R if thorough() && is_large::<R>() => Model::new(2).check(
        (Shared::<R>::new, warm::<R>),
        &[reads, writes_twice],
        free_after::<R, 2>
    ));
}

/// Two readers and a writer; up to 2 preemptions, or 1 where waiters also go to sleep. None with BRAVO over such a lock: without a
/// bias all three use the underlying lock, which has its own turn with 1. With shfl-rw, 1 if one reader is inside when the others
/// come; else none, because 1 would be 614,000 executions.
#[test]
fn two_readers_and_writer() {
    fn model<R: RawRwLock>() -> Model {
        Model::new(match () {
            () if is_bravo_over_blocking::<R>() || is_large::<R>() => 0,
            () if R::INFO.blocking => 1,
            () => 2,
        })
    }
    for_each_rwlock!(R => model::<R>().check(
        Shared::<R>::new,
        &[reads, reads, writes],
        free_after::<R, 1>
    ));
    type Large = RawShflRw<Loom>;
    fn leaves(shared: &Shared<Large>) {
        shared.finish_read(());
    }
    let inside = |shared: &Shared<Large>| shared.lock.read();
    crate::report("shfl-rw", || {
        Model::new(1).check((Shared::<Large>::new, inside), &[leaves, reads, writes], free_after::<Large, 1>)
    });
}

/// Whether the clients of three threads and more run every day.
fn every_day<R: RawRwLock>() -> bool {
    thorough() || !is_large::<R>()
}

/// A reader and two writers; up to 2 preemptions, or 1 where waiters also go to sleep and with an array of
/// locks, or none with shfl-rw and with BRAVO over it.
#[test]
fn reader_and_two_writers() {
    fn model<R: RawRwLock>() -> Model {
        Model::new(match () {
            () if is_bravo_over_blocking::<R>() || is_large::<R>() => 0,
            () if R::INFO.blocking || is_array::<R>() => 1,
            () => 2,
        })
    }
    for_each_rwlock!(R if every_day::<R>() => model::<R>().check(
        (Shared::<R>::new, warm::<R>),
        &[reads, writes, writes],
        free_after::<R, 2>
    ));
}

/// Turns that a long section gives to the others.
const PATIENCE_OF_READER: u32 = 3;

/// Two readers, of whom the second leaves before the first, which stays for long.
fn reads_with_a_guest<R: RawRwLock>(shared: &Shared<R>) {
    let token = shared.lock.read();
    if let Some(guest) = shared.lock.try_read() {
        shared.finish_read(guest);
    }
    for _ in 0..PATIENCE_OF_READER {
        loom::thread::yield_now();
    }
    shared.finish_read(token);
}

/// Up to 2 preemptions; 1 with an array of locks and with `pf-q`, none where waiters also go to sleep: threads then
/// take turns where they spin, sleep, or stay inside for long.
fn few<R: RawRwLock>() -> Model {
    Model::new(match R::INFO.name {
        _ if R::INFO.blocking => 0,
        "percpu" | "pf-q" => 1,
        _ => 2,
    })
}

/// An attempt to write loses to readers, and a writer has queued behind it meanwhile: the writer must wait for
/// the reader that is still inside. As [`few`]. (BRAVO does here what the lock below does.)
#[test]
fn attempt_between_readers_and_writer() {
    for_each_rwlock!(R if !is_bravo::<R>() && every_day::<R>() => few::<R>().check(
        Shared::<R>::new,
        &[tries_write, reads_with_a_guest, writes],
        works_after
    ));
}

/// At most 1 preemption; none where waiters also go to sleep, with an array of locks, and with counters per node.
fn fewer<R: RawRwLock>() -> Model {
    let large = R::INFO.blocking || ["percpu", "cohort-rw"].contains(&R::INFO.name);
    Model::new(usize::from(!large))
}

/// An attempt to write with the readers in two threads, and an attempt to read beside a reader and a writer; as
/// [`fewer`]; the first not with shfl-rw, where it is 120,000 executions (`LATCHWORK_LOOM_DEEP`). With BRAVO, an attempt to write
/// among a reader in the table and a writer (not every day over a lock that has been tried itself, where waiters sleep).
#[test]
fn attempt_among_three() {
    for_each_rwlock!(R if !is_bravo::<R>() && !is_large::<R>() => fewer::<R>().check(
        Shared::<R>::new,
        &[tries_write, reads, reads, writes],
        works_after
    ));
    for_each_rwlock!(R if !is_bravo::<R>() => fewer::<R>().check(
        Shared::<R>::new,
        &[tries_read, reads, writes],
        works_after
    ));
    for_each_rwlock!(R if is_bravo::<R>() && (deep() || !R::INFO.blocking) => fewer::<R>().check(
        (Shared::<R>::new, warm::<R>),
        &[tries_write, reads, writes],
        works_after
    ));
}

/// A deadline that may pass at any moment, for a thread that waits between a holder and another waiter, which must
/// get the lock: a writer's between a writer and a reader, and between a reader and a writer; a reader's between
/// writers. As [`fewer`], and every day and with BRAVO without preemptions; the clock counts as a thread. (Not every day with BRAVO
/// over a lock that has been tried itself, where waiters sleep; with shfl-rw only the first.)
#[test]
fn deadline_between_holder_and_waiter() {
    fn is_tried<R: RawRwLock>() -> bool {
        !deep() && is_bravo::<R>() && R::INFO.blocking
    }
    fn model<R: RawRwLock>() -> Model {
        let few = is_bravo::<R>() || !thorough();
        if few { Model::new(0) } else { fewer::<R>() }.with_clock()
    }
    for_each_rwlock!(R if !is_tried::<R>() => model::<R>().check(
        (Shared::<R>::new, warm::<R>),
        &[writes, writes_until, reads],
        works_after
    ));
    for_each_rwlock!(R if !is_tried::<R>() && !is_large::<R>() => model::<R>().check(
        (Shared::<R>::new, warm::<R>),
        &[reads, writes_until, writes],
        works_after
    ));
    for_each_rwlock!(R if !is_tried::<R>() && !is_large::<R>() => model::<R>().check(
        (Shared::<R>::new, warm::<R>),
        &[writes, reads_until, writes],
        works_after
    ));
}
