//! Clients of the reader-writer locks.

use crate::machine::{DEADLINE, Loom, Mistake, Model, deep, one_fewer_daily, stay};
use latchwork::locks::rwlock::RawRwLock;
use latchwork::locks::rwlock::bravo::Rows;
use latchwork::locks::rwlock::pf_t::RawPfT;
use latchwork::locks::rwlock::shfl_rw::RawShflRw;
use latchwork::registry::{self, Visitor};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Reads after which a lock that adapts to being read (BRAVO) has done so.
pub const WARM_UP: usize = 16;

/// A lock and what it protects: how many writes there were. The lock comes first, so that its identity is known.
#[repr(C)]
pub struct Shared<R> {
    pub lock: R,
    pub writes: UnsafeCell<usize>,
    /// Readers inside, or readers that have been; not for synchronisation.
    pub readers: AtomicUsize,
}

// SAFETY: only holders of the lock use the cell; if the lock fails to exclude, loom reports that.
unsafe impl<R: Sync> Sync for Shared<R> {}

impl<R> Shared<R> {
    /// How many writes there were, asked by a holder in any mode.
    pub fn look(&self) -> usize {
        // SAFETY: the caller holds the lock.
        self.writes.with(|writes| unsafe { *writes })
    }
}

impl<R: RawRwLock> Shared<R> {
    pub fn new() -> Self {
        Shared { lock: R::new_in(), writes: UnsafeCell::new(0), readers: AtomicUsize::new(0) }
    }

    /// The reader's section, and its end.
    pub fn finish_read(&self, token: R::Read) {
        // SAFETY: the caller holds the lock for reading.
        self.writes.with(|writes| unsafe { *writes });
        stay();
        // SAFETY: the token is from the caller's acquisition.
        unsafe { self.lock.unlock_read(token) };
    }

    /// The writer's section, and its end.
    pub fn finish_write(&self, token: R::Write) {
        self.add();
        stay();
        // SAFETY: the token is from the caller's acquisition.
        unsafe { self.lock.unlock_write(token) };
    }

    /// Counts a reader that is inside.
    pub fn count_reader(&self) {
        self.readers.fetch_add(1, Relaxed);
    }

    /// Waits until so many readers have been counted.
    pub fn await_readers(&self, readers: usize) {
        while self.readers.load(Relaxed) < readers {
            loom::thread::yield_now();
        }
    }

    /// The writer's section alone. Returns how many writes there were.
    pub fn add(&self) -> usize {
        assert!(self.lock.is_locked() && self.lock.is_write_locked());
        // SAFETY: the caller holds the lock for writing.
        self.writes.with_mut(|writes| unsafe {
            *writes += 1;
            *writes
        })
    }

    fn writes(&self) -> usize {
        // SAFETY: called when the threads are gone.
        self.writes.with(|writes| unsafe { *writes })
    }
}

/// Makes the lock one that has been read many times, and then once more.
pub fn warm<R: RawRwLock>(shared: &Shared<R>) {
    (0..=WARM_UP).for_each(|_| reads(shared));
}

/// The next read but one makes it such a lock.
fn nearly_warm<R: RawRwLock>(shared: &Shared<R>) {
    (2..WARM_UP).for_each(|_| reads(shared));
}

/// A lock that has been warm, has been written, and will look at the clock at the next read.
fn cooled<R: RawRwLock>(shared: &Shared<R>) {
    warm(shared);
    writes(shared);
    (1..WARM_UP).for_each(|_| reads(shared));
}

pub fn reads<R: RawRwLock>(shared: &Shared<R>) {
    shared.finish_read(shared.lock.read());
}

pub fn reads_twice<R: RawRwLock>(shared: &Shared<R>) {
    reads(shared);
    reads(shared);
}

fn reads_thrice<R: RawRwLock>(shared: &Shared<R>) {
    reads_twice(shared);
    reads(shared);
}

pub fn writes<R: RawRwLock>(shared: &Shared<R>) {
    shared.finish_write(shared.lock.write());
}

pub fn writes_twice<R: RawRwLock>(shared: &Shared<R>) {
    writes(shared);
    writes(shared);
}

pub fn tries_read<R: RawRwLock>(shared: &Shared<R>) {
    if let Some(token) = shared.lock.try_read() {
        shared.finish_read(token);
    }
}

/// As `pthread_rwlock_rdlock` of the preloaded library does.
fn reads_weakly<R: RawRwLock>(shared: &Shared<R>) {
    let token = shared.lock.try_read_weak().unwrap_or_else(|| shared.lock.read());
    shared.finish_read(token);
}

pub fn tries_write<R: RawRwLock>(shared: &Shared<R>) {
    if let Some(token) = shared.lock.try_write() {
        shared.finish_write(token);
    }
}

pub fn reads_until<R: RawRwLock>(shared: &Shared<R>) {
    if let Some(token) = shared.lock.read_until(DEADLINE) {
        shared.finish_read(token);
    }
}

pub fn writes_until<R: RawRwLock>(shared: &Shared<R>) {
    if let Some(token) = shared.lock.write_until(DEADLINE) {
        shared.finish_write(token);
    }
}

/// Reads, and stays inside until two readers have been.
fn reads_in_company<R: RawRwLock>(shared: &Shared<R>) {
    let token = shared.lock.read();
    shared.count_reader();
    shared.await_readers(2);
    shared.finish_read(token);
}

/// Afterwards the lock is free, for readers and for writers.
pub fn free_after<R: RawRwLock, const WRITES: usize>(shared: &Shared<R>) {
    assert_eq!(shared.writes(), WRITES);
    works_after(shared);
}

/// As [`free_after`], if the number of writes is not known.
pub fn works_after<R: RawRwLock>(shared: &Shared<R>) {
    assert!(!shared.lock.is_locked() && !shared.lock.is_write_locked());
    shared.finish_read(shared.lock.try_read().expect("a free lock can be read"));
    shared.finish_write(shared.lock.try_write().expect("a free lock can be written"));
    assert!(!shared.lock.is_locked() && !shared.lock.is_write_locked());
}

/// Calls a generic client for every reader-writer lock, or every one for which a condition holds.
macro_rules! for_each_rwlock {
    ($lock:ident => $body:expr) => {
        for_each_rwlock!($lock if true => $body)
    };
    ($lock:ident if $condition:expr => $body:expr) => {{
        struct Each;
        impl Visitor<Loom> for Each {
            fn rwlock<$lock: RawRwLock<Machine = Loom>>(&mut self) {
                if $condition && (crate::machine::deep() || !crate::rwlock::is_composition::<$lock>()) {
                    crate::report($lock::INFO.name, || $body);
                }
            }
        }
        registry::visit(&mut Each);
    }};
}
pub(crate) use for_each_rwlock;

pub fn is_bravo<R: RawRwLock>() -> bool {
    R::INFO.name.starts_with("bravo-")
}

/// BRAVO with a row of slots per thread.
pub fn has_rows<R: RawRwLock>() -> bool {
    R::INFO.name.starts_with("bravo-2d-")
}

/// Several locks, all of which a writer takes.
pub fn is_array<R: RawRwLock>() -> bool {
    R::INFO.name == "percpu"
}

/// BRAVO that differs from another by where its slots are only. What that takes is in [`compositions`].
pub fn is_composition<R: RawRwLock>() -> bool {
    R::INFO.name.starts_with("bravo-cpu-")
}

/// BRAVO with one table.
fn has_table<R: RawRwLock>() -> bool {
    is_bravo::<R>() && !has_rows::<R>()
}

/// A reader and a writer, fresh and warm, as [`thorough`].
#[test]
fn reader_and_writer() {
    for_each_rwlock!(R => thorough::<R>().check(Shared::<R>::new, &[reads, writes], free_after::<R, 1>));
    for_each_rwlock!(R => thorough::<R>().check((Shared::<R>::new, warm::<R>), &[reads, writes], free_after::<R, 1>));
    for_each_rwlock!(R if has_rows::<R>() => thorough::<R>().check((Shared::<R>::new, warm::<R>), &[writes, reads], free_after::<R, 1>));
}

/// BRAVO over a lock whose waiters sleep. Its clients have one preemption fewer than those of that lock alone, and of BRAVO
/// over a lock whose waiters spin. With as many, these took a third of the time of all clients.
pub fn is_bravo_over_blocking<R: RawRwLock>() -> bool {
    is_bravo::<R>() && R::INFO.blocking
}

/// Two writers, as [`thorough`].
#[test]
fn writer_and_writer() {
    for_each_rwlock!(R => thorough::<R>().check(Shared::<R>::new, &[writes, writes], free_after::<R, 2>));
}

/// Two readers are inside together: up to 3 preemptions. Warm, with one slot for both and more.
#[test]
fn readers_in_company() {
    for_each_rwlock!(R if R::SHARES => Model::new(3).check(
        Shared::<R>::new,
        &[reads_in_company, reads_in_company],
        free_after::<R, 0>
    ));
    for_each_rwlock!(R if has_table::<R>() && R::SHARES => Model::new(3).with_reader_slots(1).check(
        (Shared::<R>::new, warm::<R>),
        &[reads_in_company, reads_in_company],
        free_after::<R, 0>
    ));
    for_each_rwlock!(R if has_table::<R>() && R::SHARES => Model::new(3).with_reader_slots(4).check(
        (Shared::<R>::new, warm::<R>),
        &[reads_in_company, reads_in_company],
        free_after::<R, 0>
    ));
}

/// An attempt to read beside a reader that stays inside, while another reader comes: that one may queue behind the attempt, which
/// must let it in. Up to 2 preemptions.
#[test]
fn reader_behind_an_attempt() {
    fn stays<R: RawRwLock>(shared: &Shared<R>) {
        let token = shared.lock.read();
        shared.await_readers(2);
        shared.finish_read(token);
    }
    fn tries<R: RawRwLock>(shared: &Shared<R>) {
        tries_read(shared);
        shared.count_reader();
    }
    fn comes<R: RawRwLock>(shared: &Shared<R>) {
        reads(shared);
        shared.count_reader();
    }
    for_each_rwlock!(R if R::SHARES && !is_bravo::<R>() => Model::new(if R::INFO.blocking { 1 } else { 2 }).check(
        Shared::<R>::new,
        &[stays, tries, comes],
        free_after::<R, 0>
    ));
}

/// Two readers in the table, or one in it and one that found its slot taken, and a writer that
/// revokes; up to 2 preemptions, or 1 where waiters also go to sleep.
#[test]
fn revocation_from_two_readers() {
    fn model<R: RawRwLock>() -> Model {
        Model::new(if R::INFO.blocking { 1 } else { 2 })
    }
    for_each_rwlock!(R if is_bravo::<R>() => model::<R>().with_reader_slots(1).check(
        (Shared::<R>::new, warm::<R>),
        &[reads, reads, writes],
        free_after::<R, 1>
    ));
    for_each_rwlock!(R if has_table::<R>() => model::<R>().with_reader_slots(2).check(
        (Shared::<R>::new, warm::<R>),
        &[reads, reads, writes],
        free_after::<R, 1>
    ));
}

/// Whether three threads at this lock are millions of executions, too many for every day (`LATCHWORK_LOOM_DEEP`).
pub fn is_large<R: RawRwLock>() -> bool {
    !deep() && R::INFO.name == "shfl-rw"
}

/// Two readers that count up to the bias; one goes on and uses it when the other may still be
/// counting. And a writer; at most 1 preemption. The steps are the same over a lock whose waiters
/// sleep, which takes too long for every day.
#[test]
fn bias_appears() {
    for_each_rwlock!(R if is_bravo::<R>() && (!R::INFO.blocking || deep()) => Model::new(1).check(
        (Shared::<R>::new, nearly_warm::<R>),
        &[reads_thrice, reads, writes],
        free_after::<R, 1>
    ));
}

/// A reader that comes when the time after a revocation is over, or not yet, biases the lock again
/// and uses it, while a writer comes, and then another; up to 2 preemptions. Where waiters also go to sleep, with
/// 1 preemption and one writer (a second one is a million executions: `LATCHWORK_LOOM_DEEP`). Time may jump at any moment.
#[test]
fn bias_comes_back() {
    fn check<R: RawRwLock<Machine = Loom>>(preemptions: usize) -> impl std::fmt::Display {
        let model = Model::new(preemptions).with_clock();
        let start = (Shared::<R>::new, cooled::<R>);
        if R::INFO.blocking && !deep() {
            model.check(start, &[reads_twice, writes], free_after::<R, 2>)
        } else {
            model.check(start, &[reads_twice, writes_twice], free_after::<R, 3>)
        }
    }
    for_each_rwlock!(R if is_bravo::<R>() => check::<R>(if R::INFO.blocking { 1 } else { 2 }));
    type R = Rows<Loom, RawPfT<Loom>>;
    crate::report(R::INFO.name, || check::<R>(if deep() { 2 } else { 1 }));
}

/// Attempts against holders and each other; as [`thorough`].
#[test]
fn attempts() {
    for_each_rwlock!(R => thorough::<R>().check((Shared::<R>::new, warm::<R>), &[tries_read, writes], works_after));
    for_each_rwlock!(R => thorough::<R>().check((Shared::<R>::new, warm::<R>), &[reads, tries_write], works_after));
    for_each_rwlock!(R => thorough::<R>().check((Shared::<R>::new, warm::<R>), &[writes, tries_write], works_after));
    for_each_rwlock!(R => thorough::<R>().check(Shared::<R>::new, &[tries_read, tries_write], works_after));
}

/// A weak attempt to read before a read, beside a writer, where a lock has weak attempts of its own; up to 2 preemptions.
#[test]
fn weak_attempts() {
    fn has_its_own<R: RawRwLock>() -> bool {
        is_bravo::<R>() || ["shfl-rw", "bravo-shfl-rw"].contains(&R::INFO.name)
    }
    for_each_rwlock!(R if has_its_own::<R>() => Model::new(if R::INFO.blocking { 1 } else { 2 }).check(
        (Shared::<R>::new, warm::<R>),
        &[reads_weakly, writes],
        free_after::<R, 1>
    ));
}

/// An attempt to write that fails must leave the lock as it was to the writer that comes next: a
/// reader in the table is still seen. Up to 3 preemptions, or 2 where waiters also go to sleep, with rows of
/// slots, and with an array of locks; 1 where both rows and sleeping waiters are, or 2 if deeper bounds are asked for (440,000
/// executions).
#[test]
fn after_a_failed_attempt() {
    fn model<R: RawRwLock>() -> Model {
        Model::new(match (R::INFO.blocking, has_rows::<R>()) {
            (true, true) => 1 + usize::from(deep()),
            (false, false) if !is_array::<R>() => 3,
            _ => 2,
        })
    }
    for_each_rwlock!(R => model::<R>().check(
        (Shared::<R>::new, warm::<R>),
        &[reads, |shared| {
            tries_write(shared);
            writes(shared);
        }],
        works_after
    ));
}

/// Deadlines against holders; up to 2 preemptions, or 1 where waiters also go to sleep. A thread that waits behind one that
/// gives up gets in (at most 1 preemption, or none every day and where waiters also go to sleep; not every day with BRAVO over a
/// lock that has been tried itself, where waiters sleep).
#[test]
fn deadlines() {
    for_each_rwlock!(R => Model::new(if R::INFO.blocking { 1 } else { 2 }).with_clock().check(
        Shared::<R>::new,
        &[reads_until, writes],
        works_after
    ));
    for_each_rwlock!(R => Model::new(if R::INFO.blocking { 1 } else { 2 }).with_clock().check(
        (Shared::<R>::new, warm::<R>),
        &[reads, writes_until],
        works_after
    ));
    fn behind<R: RawRwLock>() -> Model {
        Model::new(if R::INFO.blocking { 0 } else { one_fewer_daily(1) }).with_clock()
    }
    for_each_rwlock!(R if deep() || !is_bravo_over_blocking::<R>() => behind::<R>().check(
        (Shared::<R>::new, warm::<R>),
        &[reads, writes_until, reads],
        works_after
    ));
}

/// As many preemptions as it takes; 3 where waiters also go to sleep, with rows of slots, and with an array
/// of locks.
pub fn thorough<R: RawRwLock>() -> Model {
    match () {
        () if deep() => Model::exhaustive(),
        () if has_rows::<R>() || is_array::<R>() || R::INFO.blocking => Model::new(3),
        () => Model::exhaustive(),
    }
}

/// A lock that is read says that it is locked, while other readers come and go; up to 3 preemptions.
#[test]
fn a_read_lock_is_locked() {
    fn looks<R: RawRwLock>(shared: &Shared<R>) {
        let token = shared.lock.read();
        assert!(shared.lock.is_locked(), "a read lock says that it is free");
        shared.finish_read(token);
    }
    // Two readers in slots of BRAVO do not meet. `anonymous.rs` asks there.
    for_each_rwlock!(R if !is_bravo::<R>() => Model::new(3).on_one_node().check(
        (Shared::<R>::new, warm::<R>),
        &[looks, reads],
        free_after::<R, 0>
    ));
}

/// Seeded: the end of a section is not ordered before the next one.
#[test]
fn finds_relaxed_release() {
    for_each_rwlock!(R => Model::new(2).with_mistake(Mistake::RelaxedRelease).check_fails(
        (Shared::<R>::new, warm::<R>),
        &[reads, writes],
        free_after::<R, 1>
    ));
}

/// Seeded: the start of a section is not ordered after the last one.
#[test]
fn finds_relaxed_acquire() {
    for_each_rwlock!(R => Model::new(2).with_mistake(Mistake::RelaxedAcquire).check_fails(
        (Shared::<R>::new, warm::<R>),
        &[reads, writes],
        free_after::<R, 1>
    ));
}

/// Seeded: the revoking writer sees no reader in the table.
#[test]
fn finds_blind_revocation() {
    for_each_rwlock!(R if is_bravo::<R>() => Model::new(2)
        .with_mistake(Mistake::BlindScan)
        .check_fails((Shared::<R>::new, warm::<R>), &[reads, writes], free_after::<R, 1>));
}

/// Seeded: reader and revoking writer do not order their stores before their loads, so each may
/// miss the other.
#[test]
fn finds_missing_fence_of_revocation() {
    for_each_rwlock!(R if has_table::<R>() => Model::new(2)
        .with_mistake(Mistake::NoSeqCst)
        .check_fails((Shared::<R>::new, warm::<R>), &[reads, writes], free_after::<R, 1>));
}

/// Seeded: the same where a reader adds itself and then looks for a writer, which does the reverse.
#[test]
fn finds_missing_fence_of_arrival() {
    for_each_rwlock!(R if ["shfl-rw", "cohort-rw"].contains(&R::INFO.name) => Model::new(2)
        .with_mistake(Mistake::NoSeqCst)
        .check_fails(Shared::<R>::new, &[reads, writes], free_after::<R, 1>));
}

/// Seeded: a sleeper is not woken. A reader behind a writer, a writer behind a reader, and writers.
#[test]
fn finds_dropped_wake() {
    for_each_rwlock!(R if R::INFO.blocking => Model::new(3)
        .with_mistake(Mistake::DroppedWake)
        .check_fails(Shared::<R>::new, &[reads, writes], free_after::<R, 1>));
    for_each_rwlock!(R if R::INFO.blocking => Model::new(3)
        .with_mistake(Mistake::DroppedWake)
        .check_fails(Shared::<R>::new, &[writes, reads], free_after::<R, 1>));
    for_each_rwlock!(R if R::INFO.blocking => Model::new(3)
        .with_mistake(Mistake::DroppedWake)
        .check_fails(Shared::<R>::new, &[writes, writes], free_after::<R, 2>));
}

/// Seeded: a thread goes to sleep without a second look at the word.
#[test]
fn finds_sleep_without_a_look() {
    for_each_rwlock!(R if R::INFO.blocking => Model::new(3)
        .with_mistake(Mistake::SleepsUnseen)
        .check_fails(Shared::<R>::new, &[reads, writes], free_after::<R, 1>));
}

/// Seeded: the head announces that it sleeps between the look and the store of the writer's release, and then sleeps without a
/// bound; the release does not look whether there is such a head.
#[test]
fn finds_torn_release() {
    for_each_rwlock!(R if R::INFO.name == "shfl-rw" => Model::new(3)
        .with_mistake(Mistake::NoTornTimeout)
        .check_fails(Shared::<R>::new, &[writes, writes], free_after::<R, 2>));
    for_each_rwlock!(R if R::INFO.name == "shfl-rw" => Model::new(3)
        .with_mistake(Mistake::BlindRelease)
        .check_fails(Shared::<R>::new, &[writes, writes], free_after::<R, 2>));
}

/// Two readers sleep behind a writer. The first one gets the lock, and invites the second one, which abandons its node, or becomes the
/// head when it is inside already. Up to 2 preemptions, from the writer's release on.
#[test]
fn an_invited_reader_leaves_its_node() {
    type L = RawShflRw<Loom>;
    fn sleeps(shared: &Shared<L>) {
        loom::stop_exploring();
        reads(shared);
    }
    fn releases(shared: &Shared<L>) {
        loom::explore();
        shared.finish_write(());
    }
    let held = |shared: &Shared<L>| shared.lock.write();
    crate::report("shfl-rw", || {
        Model::new(2).check((Shared::<L>::new, held), &[sleeps, reads, releases], free_after::<L, 1>)
    });
}

/// A writer sleeps until the reader inside leaves. That reader comes again and sees that a head is parked, and an attempt to write may
/// pass the head: of the two, one sees the other. At most 1 preemption, between the reader's two releases.
#[test]
fn an_attempt_to_write_meets_a_reader_past_a_parked_head() {
    type L = RawShflRw<Loom>;
    fn sleeps(shared: &Shared<L>) {
        loom::stop_exploring();
        writes(shared);
    }
    fn comes_again(shared: &Shared<L>) {
        loom::explore();
        shared.finish_read(());
        reads(shared);
        loom::stop_exploring();
    }
    let held = |shared: &Shared<L>| shared.lock.read();
    crate::report("shfl-rw", || {
        Model::new(1 + usize::from(deep())).check(
            (Shared::<L>::new, held),
            &[sleeps, comes_again, tries_write],
            works_after,
        )
    });
}
