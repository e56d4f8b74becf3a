//! Clients of what reader-writer locks can do beyond reading and writing: downgrade, upgradable reads, recursive reads,
//! fair unlock. And twins that are broken on purpose, to see that the clients find it.

use crate::destroyed::{Mortal, destroy, mortal, writes_before_the_end};
use crate::machine::{DEADLINE, Loom, Mistake, Model, deep};
use crate::mutex::be_patient;
use crate::rwlock::{Shared, free_after, reads, tries_read, tries_write, warm, works_after, writes};
use latchwork::locks::mutex::Info;
use latchwork::locks::rwlock::bravo::{Columns, RawBravo, Rows};
use latchwork::locks::rwlock::cohort_rw::RawCohortRw;
use latchwork::locks::rwlock::percpu::RawPerCpu;
use latchwork::locks::rwlock::pf_q::RawPfQ;
use latchwork::locks::rwlock::pf_t::RawPfT;
use latchwork::locks::rwlock::rwsem::RawRwSem;
use latchwork::locks::rwlock::shfl_rw::RawShflRw;
use latchwork::locks::rwlock::{RawDowngrade, RawFair, RawRecursive, RawRwLock, RawUpgrade, Timeout};

type Sleeping = RawShflRw<Loom>;
type Recommended = Rows<Loom, RawShflRw<Loom>>;
type RowsOfPfT = Rows<Loom, RawPfT<Loom>>;
type Table = RawBravo<Loom, RawPfT<Loom>>;

/// How many writes there were. The caller holds the lock in any mode.
fn look<R: RawRwLock>(shared: &Shared<R>) -> usize {
    shared.look()
}

fn downgrades<R: RawDowngrade>(shared: &Shared<R>) {
    let token = shared.lock.write();
    let mine = shared.add();
    // SAFETY: the token is from the acquisition above.
    let token = unsafe { shared.lock.downgrade(token) };
    assert_eq!(look(shared), mine, "a writer between a write and its downgrade");
    shared.finish_read(token);
}

/// Writes, becomes a reader, and stays inside until another reader has been.
fn downgrades_in_company<R: RawDowngrade>(shared: &Shared<R>) {
    let token = shared.lock.write();
    // SAFETY: the token is from the acquisition above.
    let token = unsafe { shared.lock.downgrade(token) };
    shared.await_readers(1);
    shared.finish_read(token);
}

/// Becomes a plain reader, and stays inside until an upgradable reader has been.
fn downgrades_upgradable_in_company<R: RawUpgrade>(shared: &Shared<R>) {
    let held = shared.lock.upgradable();
    // SAFETY: the token is from the acquisition above.
    let token = unsafe { shared.lock.downgrade_upgradable(held) };
    shared.await_readers(1);
    shared.finish_read(token);
}

fn reads_upgradable_and_counts<R: RawUpgrade>(shared: &Shared<R>) {
    let held = shared.lock.upgradable();
    look(shared);
    shared.count_reader();
    // SAFETY: the token is from the acquisition above.
    unsafe { shared.lock.unlock_upgradable(held) };
}

fn upgrades<R: RawUpgrade>(shared: &Shared<R>) {
    upgrades_within(shared, Timeout::Never);
}

fn tries_to_upgrade<R: RawUpgrade>(shared: &Shared<R>) {
    upgrades_within(shared, Timeout::Immediate);
}

fn upgrades_until<R: RawUpgrade>(shared: &Shared<R>) {
    upgrades_within(shared, Timeout::At(DEADLINE));
}

/// Reads with an upgradable acquisition, and writes if it gets that far.
fn upgrades_within<R: RawUpgrade>(shared: &Shared<R>, timeout: Timeout) {
    let Some(held) = shared.lock.upgradable_within(timeout, &|| ()) else { return };
    let before = look(shared);
    // SAFETY: each token is from the acquisition above it.
    match unsafe { shared.lock.upgrade_within(held, timeout) } {
        Ok(token) => {
            assert_eq!(look(shared), before, "a writer between an upgradable read and its upgrade");
            shared.finish_write(token);
        }
        Err(held) => {
            assert_eq!(look(shared), before, "a writer beside an upgradable reader");
            // SAFETY: the upgradable token came back from the failed upgrade.
            unsafe { shared.lock.unlock_upgradable(held) };
        }
    }
}

/// All changes from one mode to another.
fn goes_round<R: RawUpgrade>(shared: &Shared<R>) {
    let token = shared.lock.write();
    let mine = shared.add();
    // SAFETY: each token is from the acquisition before it.
    unsafe {
        let held = shared.lock.downgrade_to_upgradable(token);
        assert_eq!(look(shared), mine, "a writer between a write and its downgrade");
        let token = shared.lock.downgrade_upgradable(held);
        assert_eq!(look(shared), mine, "a writer between an upgradable read and its downgrade");
        shared.finish_read(token);
    }
}

fn reads_again<R: RawRecursive>(shared: &Shared<R>) {
    let outer = shared.lock.read();
    let inner = shared.lock.read_recursive();
    shared.finish_read(outer);
    shared.finish_read(inner);
}

fn tries_to_read_again<R: RawRecursive>(shared: &Shared<R>) {
    let outer = shared.lock.read();
    // An attempt that meets a writer that is about to turn back may fail.
    if let Some(inner) = shared.lock.try_read_recursive() {
        shared.finish_read(inner);
    }
    shared.finish_read(outer);
}

/// Reads past waiters, though it reads nothing yet: a writer may be inside.
fn reads_recursively<R: RawRecursive>(shared: &Shared<R>) {
    shared.finish_read(shared.lock.read_recursive());
}

/// Writes, and leaves the lock to a waiter: then it cannot write again before that waiter has.
fn leaves_fairly<R: RawFair>(shared: &Shared<R>) {
    let token = shared.lock.write();
    let mine = shared.add();
    let awaited = shared.lock.is_awaited();
    // SAFETY: the token is from the acquisition above.
    unsafe { shared.lock.unlock_write_fair(token) };
    if let Some(token) = shared.lock.try_write() {
        assert!(!awaited || look(shared) > mine, "passed a thread that waits");
        // SAFETY: the token is from the acquisition just before.
        unsafe { shared.lock.unlock_write(token) };
    }
}

/// A writer whose attempt to read comes first. Loom runs it between the acquisition of [`leaves_fairly`] and its question: it
/// orders two accesses both ways only if nothing else has touched the word in between, as a newcomer's look at the queue does.
fn tries_and_writes<R: RawRwLock>(shared: &Shared<R>) {
    if let Some(token) = shared.lock.try_read() {
        // SAFETY: the token is from the acquisition just before.
        unsafe { shared.lock.unlock_read(token) };
    }
    writes(shared);
}

/// With few preemptions where waiters sleep, or where a slot and a lock are both to be waited for.
fn bound<R: RawRwLock>() -> usize {
    if R::INFO.blocking || R::INFO.name.starts_with("bravo") { 2 } else { 3 }
}

fn report<R: RawRwLock>(client: &str, run: impl FnOnce() -> String) {
    crate::report(R::INFO.name, || format!("{}, {}", client, run()));
}

/// A client of two threads, of a lock that is fresh and of one that is biased.
fn fresh_and_warm<R: RawRwLock<Machine = Loom>>(
    client: &str,
    threads: &[fn(&Shared<R>)],
    after: fn(&Shared<R>),
) {
    report::<R>(client, || Model::new(bound::<R>()).check(Shared::<R>::new, threads, after).to_string());
    if R::INFO.name.starts_with("bravo") {
        report::<R>(client, || {
            Model::new(bound::<R>()).check((Shared::<R>::new, warm::<R>), threads, after).to_string()
        });
    }
}

/// A client of three threads. Not every day where waiters also go to sleep, nor of an array of locks: that takes minutes.
fn trio<R: RawRwLock<Machine = Loom>>(client: &str, threads: &[fn(&Shared<R>)], after: fn(&Shared<R>)) {
    if !deep() && (R::INFO.blocking || R::INFO.name == "percpu") {
        return;
    }
    once(client, threads, after);
}

/// A client of a warm lock, with one preemption.
fn once<R: RawRwLock<Machine = Loom>>(client: &str, threads: &[fn(&Shared<R>)], after: fn(&Shared<R>)) {
    report::<R>(client, || Model::new(1).check((Shared::<R>::new, warm::<R>), threads, after).to_string());
}

/// A downgrade against a reader, which must get in beside it, a writer, and both.
#[test]
fn downgrade() {
    fn check<R: RawDowngrade<Machine = Loom>>() {
        fresh_and_warm("downgrade, read", &[downgrades::<R>, reads], free_after::<R, 1>);
        fresh_and_warm("downgrade, write", &[downgrades::<R>, writes], free_after::<R, 2>);
        fresh_and_warm("write, downgrade", &[writes::<R>, downgrades], free_after::<R, 2>);
        fresh_and_warm(
            "downgrade in company",
            &[downgrades_in_company::<R>, reads_and_counts],
            free_after::<R, 0>,
        );
        trio("downgrade, read, write", &[downgrades::<R>, reads, writes], free_after::<R, 2>);
    }
    check::<Sleeping>();
    check::<RawPfT<Loom>>();
    check::<RawPfQ<Loom>>();
    check::<RawRwSem<Loom>>();
    check::<RawCohortRw<Loom>>();
    check::<RawPerCpu<Loom>>();
    check::<RowsOfPfT>();
    check::<Table>();
}

/// An upgrade against a reader (also one in a slot), a writer, another upgrade, and attempts.
#[test]
fn upgrade() {
    fn check<R: RawUpgrade<Machine = Loom>>() {
        fresh_and_warm("upgrade, read", &[upgrades::<R>, reads], free_after::<R, 1>);
        fresh_and_warm("read, upgrade", &[reads::<R>, upgrades], free_after::<R, 1>);
        fresh_and_warm("upgrade, write", &[upgrades::<R>, writes], free_after::<R, 2>);
        fresh_and_warm("upgrade, upgrade", &[upgrades::<R>, upgrades], free_after::<R, 2>);
        fresh_and_warm("round, upgrade", &[goes_round::<R>, upgrades], free_after::<R, 2>);
        fresh_and_warm("round, write", &[goes_round::<R>, writes], free_after::<R, 2>);
        fresh_and_warm(
            "downgrade of an upgradable read in company",
            &[downgrades_upgradable_in_company::<R>, reads_upgradable_and_counts],
            free_after::<R, 0>,
        );
    }
    check::<Sleeping>();
    check::<RawPfT<Loom>>();
    check::<RawPfQ<Loom>>();
    check::<RowsOfPfT>();
    check::<Table>();
    check::<Columns<Loom, RawPfT<Loom>>>();
}

/// The lock that is recommended: the same, with one preemption, or two with `LATCHWORK_LOOM_DEEP`.
#[test]
fn upgrade_of_the_recommended_lock() {
    type R = Recommended;
    let check =
        |client: &str, threads: &[fn(&Shared<R>)], after: fn(&Shared<R>)| trio(client, threads, after);
    check("upgrade, read", &[upgrades, reads], free_after::<R, 1>);
    check("read, upgrade", &[reads, upgrades], free_after::<R, 1>);
    check("upgrade, write", &[upgrades, writes], free_after::<R, 2>);
    check("upgrade, upgrade", &[upgrades, upgrades], free_after::<R, 2>);
    check("round, upgrade", &[goes_round, upgrades], free_after::<R, 2>);
    check("downgrade, write", &[downgrades, writes], free_after::<R, 2>);
}

#[test]
fn upgrade_attempts() {
    fn check<R: RawUpgrade<Machine = Loom>>() {
        fresh_and_warm("try upgrade, read", &[tries_to_upgrade::<R>, reads], works_after);
        fresh_and_warm("try upgrade, try read", &[tries_to_upgrade::<R>, tries_read], works_after);
        fresh_and_warm("upgrade, try upgrade", &[upgrades::<R>, tries_to_upgrade], works_after);
        fresh_and_warm("upgrade, try write", &[upgrades::<R>, tries_write], works_after);
    }
    check::<Sleeping>();
    check::<RawPfT<Loom>>();
    check::<RawPfQ<Loom>>();
    check::<RowsOfPfT>();
    check::<Table>();
}

/// A timed upgrade against a reader and a writer; time may jump at any moment.
#[test]
fn upgrade_deadlines() {
    fn check<R: RawUpgrade<Machine = Loom>>() {
        for threads in [&[upgrades_until::<R>, reads] as &[fn(&Shared<R>)], &[upgrades_until, writes]] {
            report::<R>("timed upgrade", || {
                Model::new(1).with_clock().check((Shared::new, warm::<R>), threads, works_after).to_string()
            });
        }
    }
    check::<Sleeping>();
    check::<RawPfT<Loom>>();
    check::<RawPfQ<Loom>>();
    check::<RowsOfPfT>();
}

/// An upgradable reader that comes last may destroy the lock as soon as it has released it.
#[test]
fn destroyed_by_an_upgradable_reader() {
    fn ends<R: RawUpgrade>(shared: &Mortal<R>, timeout: Timeout) {
        let Some(held) = shared.lock.upgradable_within(timeout, &|| ()) else { return };
        let last = shared.look() == 1;
        // SAFETY: the token is from the acquisition above.
        unsafe { shared.lock.unlock_upgradable(held) };
        if last {
            destroy(shared);
        }
    }
    fn check<R: RawUpgrade<Machine = Loom>>() {
        let threads: [fn(&Mortal<R>); 2] =
            [|shared| ends(shared, Timeout::Never), |shared| ends(shared, Timeout::Immediate)];
        for thread in threads {
            report::<R>("write, upgradable read, destroy", || {
                Model::new(2).check(mortal::<R>, &[thread, writes_before_the_end], |_| ()).to_string()
            });
        }
    }
    check::<Sleeping>();
    check::<RawPfT<Loom>>();
    check::<RawPfQ<Loom>>();
}

/// An upgradable reader, a reader and a writer.
#[test]
fn upgrade_in_company() {
    fn check<R: RawUpgrade<Machine = Loom>>() {
        trio("upgrade, read, write", &[upgrades::<R>, reads, writes], free_after::<R, 2>);
        trio("upgrade, upgrade, read", &[upgrades::<R>, upgrades, reads], free_after::<R, 2>);
    }
    check::<Sleeping>();
    check::<RawPfT<Loom>>();
    check::<RawPfQ<Loom>>();
    check::<RowsOfPfT>();
}

/// A reader reads again, while a writer waits or an upgradable reader upgrades; or a reader comes that may pass waiters.
#[test]
fn recursive_read() {
    fn check<R: RawRecursive<Machine = Loom>>() {
        fresh_and_warm("read again, write", &[reads_again::<R>, writes], free_after::<R, 1>);
        fresh_and_warm("try to read again, write", &[tries_to_read_again::<R>, writes], free_after::<R, 1>);
        fresh_and_warm("read recursively, write", &[reads_recursively::<R>, writes], free_after::<R, 1>);
    }
    fn check_upgrade<R: RawRecursive<Machine = Loom> + RawUpgrade>() {
        fresh_and_warm("read again, upgrade", &[reads_again::<R>, upgrades], free_after::<R, 1>);
        fresh_and_warm("read recursively, upgrade", &[reads_recursively::<R>, upgrades], free_after::<R, 1>);
        fresh_and_warm(
            "try to read again, upgrade",
            &[tries_to_read_again::<R>, upgrades],
            free_after::<R, 1>,
        );
    }
    check::<Sleeping>();
    check::<RawRwSem<Loom>>();
    check_upgrade::<Sleeping>();
}

/// Ends the write acquisition that the lock began with. Then reads, past waiters, and stays inside until both other readers have
/// been.
fn leaves_and_reads_in_company<R: RawRecursive<Write = ()>>(shared: &Shared<R>) {
    // SAFETY: `writes_first` acquired it.
    unsafe { shared.lock.unlock_write(()) };
    let token = shared.lock.read_recursive();
    shared.await_readers(2);
    shared.finish_read(token);
}

/// The lock begins held for writing.
fn writes_first<R: RawRwLock<Write = ()>>(shared: &Shared<R>) {
    let () = shared.lock.write();
}

fn reads_and_counts<R: RawRwLock>(shared: &Shared<R>) {
    let token = shared.lock.read();
    shared.count_reader();
    shared.finish_read(token);
}

/// A writer leaves while a reader sleeps at the head of the queue and another one is about to turn back, and then a recursive
/// reader stays inside: the head is woken nevertheless. Two preemptions.
#[test]
fn a_reader_sleeps_beside_no_reader() {
    type R = RawRwSem<Loom>;
    report::<R>("leave and read again, read, read", || {
        Model::new(2)
            .check(
                (Shared::<R>::new, writes_first::<R>),
                &[leaves_and_reads_in_company, reads_and_counts, reads_and_counts],
                free_after::<R, 0>,
            )
            .to_string()
    });
}

/// The same of the recommended lock, where a writer that revokes holds the underlying lock until some time has passed.
#[test]
fn recursive_read_of_the_recommended_lock() {
    type R = Recommended;
    for (client, threads) in [
        ("read again, write", &[reads_again::<R>, writes] as &[fn(&Shared<R>)]),
        ("read again, upgrade", &[reads_again::<R>, upgrades]),
    ] {
        report::<R>(client, || {
            Model::new(2)
                .with_dozes()
                .check((Shared::<R>::new, warm::<R>), threads, free_after::<R, 1>)
                .to_string()
        });
    }
}

/// In `leave_fairly`, no writer gets in ahead of one that waits: found with 1 preemption.
const LEAVE_FAIRLY: usize = 1;

fn leave_fairly<R: RawFair<Machine = Loom>>() -> [fn(&Shared<R>); 2] {
    [leaves_fairly, tries_and_writes]
}

#[test]
fn fair_unlock() {
    fn check<R: RawFair<Machine = Loom>>() {
        fresh_and_warm("leaves fairly, write", &[leaves_fairly::<R>, writes], works_after);
        let threads = &leave_fairly::<R>();
        report::<R>("leaves fairly, try", || {
            Model::new(LEAVE_FAIRLY).check(Shared::<R>::new, threads, works_after).to_string()
        });
    }
    check::<Sleeping>();
}

/// A writer at the head of the queue that was robbed naps, and a fair unlock ends that: here a nap does not end by itself. The holder
/// comes again, and robs the head. Up to 2 preemptions.
#[test]
fn a_fair_unlock_ends_a_nap() {
    fn robs_and_leaves<R: RawFair>(shared: &Shared<R>) {
        let token = shared.lock.write();
        be_patient();
        shared.finish_write(token);
        let token = shared.lock.write();
        shared.add();
        // SAFETY: the token is from the acquisition above.
        unsafe { shared.lock.unlock_write_fair(token) };
    }
    type R = Sleeping;
    report::<R>("robs and leaves, write", || {
        Model::new(2)
            .with_lasting_naps()
            .check(Shared::<R>::new, &[robs_and_leaves, writes], free_after::<R, 3>)
            .to_string()
    });
}

/// Seeded: the same mistakes as for reading and writing. A downgrade that is not ordered before readers, an upgrade that is
/// not ordered after them or does not see them, and an upgrade that does not see readers in slots.
#[test]
fn finds_mistakes_of_order() {
    fn fails<R: RawRwLock<Machine = Loom>>(client: &str, mistake: Mistake, threads: &[fn(&Shared<R>)]) {
        report::<R>(client, || {
            Model::new(2).with_mistake(mistake).check_fails(
                (Shared::<R>::new, warm::<R>),
                threads,
                works_after,
            )
        });
    }
    fn check<R: RawUpgrade<Machine = Loom>>() {
        fails("relaxed release, downgrade", Mistake::RelaxedRelease, &[downgrades::<R>, reads]);
        fails("relaxed acquire, downgrade", Mistake::RelaxedAcquire, &[downgrades::<R>, reads]);
        fails("relaxed release, upgrade", Mistake::RelaxedRelease, &[upgrades::<R>, reads]);
        fails("relaxed acquire, upgrade", Mistake::RelaxedAcquire, &[upgrades::<R>, reads]);
        fails("relaxed release, upgrades", Mistake::RelaxedRelease, &[upgrades::<R>, upgrades]);
    }
    check::<Sleeping>();
    check::<RawPfT<Loom>>();
    check::<RawPfQ<Loom>>();
    check::<RowsOfPfT>();
    check::<Table>();
    fails("no order, upgrade", Mistake::NoSeqCst, &[upgrades::<Sleeping>, reads]);
    fails("no order, upgrade", Mistake::NoSeqCst, &[upgrades::<Table>, reads]);
    fails("blind, upgrade", Mistake::BlindScan, &[upgrades::<RowsOfPfT>, reads]);
    fails("blind, upgrade", Mistake::BlindScan, &[upgrades::<Table>, reads]);
    fails("no heavy fence, upgrade", Mistake::NoHeavyFence, &[upgrades::<RowsOfPfT>, reads]);
    fails("no light fence, upgrade", Mistake::NoLightFence, &[upgrades::<RowsOfPfT>, reads]);
    fails("dropped wake, upgrade", Mistake::DroppedWake, &[upgrades::<Sleeping>, writes]);
    fails("dropped wake, upgrades", Mistake::DroppedWake, &[upgrades::<Sleeping>, upgrades]);
}

/// A lock whose changes of mode are made of other operations, as an adapter might make them.
struct Twin<R>(R);

// SAFETY: the inner lock's.
unsafe impl<R: RawRwLock> RawRwLock for Twin<R> {
    type Machine = R::Machine;
    type Read = R::Read;
    type Write = R::Write;
    type Counted = Self;
    const INFO: Info = R::INFO;

    fn new_in() -> Self {
        Twin(R::new_in())
    }
    fn read(&self) -> R::Read {
        self.0.read()
    }
    fn try_read(&self) -> Option<R::Read> {
        self.0.try_read()
    }
    unsafe fn unlock_read(&self, token: R::Read) {
        // SAFETY: the token is from the caller's read acquisition.
        unsafe { self.0.unlock_read(token) }
    }
    fn write(&self) -> R::Write {
        self.0.write()
    }
    fn try_write(&self) -> Option<R::Write> {
        self.0.try_write()
    }
    unsafe fn unlock_write(&self, token: R::Write) {
        // SAFETY: the token is from the caller's write acquisition.
        unsafe { self.0.unlock_write(token) }
    }
    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
    fn is_write_locked(&self) -> bool {
        self.0.is_write_locked()
    }
}

// SAFETY: none: another writer may come in between. The clients are to find it.
unsafe impl<R: RawRwLock> RawDowngrade for Twin<R> {
    unsafe fn downgrade(&self, token: R::Write) -> R::Read {
        // SAFETY: the token is from the caller's write acquisition.
        unsafe { self.0.unlock_write(token) };
        self.0.read()
    }
}

// SAFETY: none: an upgradable reader is a reader, and another writer may come in before it writes.
unsafe impl<R: RawRwLock> RawUpgrade for Twin<R> {
    type Upgradable = R::Read;

    fn upgradable_within(&self, _: Timeout, _: &dyn Fn()) -> Option<R::Read> {
        Some(self.0.read())
    }
    unsafe fn unlock_upgradable(&self, token: R::Read) {
        // SAFETY: an upgradable token is a read token of the caller.
        unsafe { self.0.unlock_read(token) }
    }
    unsafe fn upgrade_within(&self, token: R::Read, _: Timeout) -> Result<R::Write, R::Read> {
        // SAFETY: an upgradable token is a read token of the caller.
        unsafe { self.0.unlock_read(token) };
        Ok(self.0.write())
    }
    unsafe fn downgrade_upgradable(&self, token: R::Read) -> R::Read {
        token
    }
    unsafe fn downgrade_to_upgradable(&self, token: R::Write) -> R::Read {
        // SAFETY: the token is from the caller's write acquisition.
        unsafe { self.downgrade(token) }
    }
}

// SAFETY: a recursive read is a read: it waits for a writer that waits for it.
unsafe impl<R: RawRwLock> RawRecursive for Twin<R> {
    fn read_recursive_within(&self, _: Timeout, _: &dyn Fn()) -> Option<R::Read> {
        Some(self.0.read())
    }
}

// SAFETY: as `RawRwLock`; it is not fair, although it says that there is a waiter.
unsafe impl<R: RawFair> RawFair for Twin<R> {
    fn is_awaited(&self) -> bool {
        self.0.is_awaited()
    }
}

#[test]
fn finds_changes_of_mode_that_are_not_atomic() {
    fn fails<R: RawRwLock<Machine = Loom>>(client: &str, threads: &[fn(&Shared<Twin<R>>)]) {
        report::<R>(client, || Model::new(2).check_fails(Shared::<Twin<R>>::new, threads, works_after));
    }
    fn check<R: RawRwLock<Machine = Loom>>() {
        fails::<R>("broken downgrade, write", &[downgrades, writes]);
        fails::<R>("broken upgrade, write", &[upgrades, writes]);
        fails::<R>("broken upgrade, upgrade", &[upgrades, upgrades]);
        fails::<R>("broken round, write", &[goes_round, writes]);
    }
    check::<RawPfT<Loom>>();
    check::<Sleeping>();
    fails::<Sleeping>("read again, queued", &[reads_again, writes]);
    report::<Sleeping>("unfair unlock", || {
        let model = Model::new(LEAVE_FAIRLY);
        model.check_fails(Shared::<Twin<Sleeping>>::new, &leave_fairly(), works_after)
    });
}
