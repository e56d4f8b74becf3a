//! Clients of reader-writer locks that destroy their lock.

use crate::machine::{DEADLINE, Loom, Model};
use crate::rwlock::{Shared, WARM_UP, for_each_rwlock, is_array, is_bravo, thorough};
use latchwork::locks::rwlock::RawRwLock;
use latchwork::registry::{self, Visitor};
use loom::sync::atomic::Ordering::Relaxed;
use std::mem::ManuallyDrop;

/// A lock that one of the threads destroys.
pub type Mortal<R> = Shared<ManuallyDrop<R>>;

pub fn mortal<R: RawRwLock>() -> Mortal<R> {
    let Shared { lock, writes, readers } = Shared::<R>::new();
    Shared { lock: ManuallyDrop::new(lock), writes, readers }
}

fn warm_mortal<R: RawRwLock>(shared: &Mortal<R>) {
    for _ in 0..=WARM_UP {
        let token = shared.lock.read();
        // SAFETY: acquired just now.
        unsafe { shared.lock.unlock_read(token) };
    }
}

pub fn destroy<R: RawRwLock>(shared: &Mortal<R>) {
    let lock = std::ptr::from_ref(&*shared.lock).cast_mut();
    // SAFETY: the other thread's section is over, so it must not touch the lock any more; the words
    // report it if it does. Nobody looks at the lock afterwards, or drops it again.
    unsafe { lock.drop_in_place() };
}

/// Writes; if the other thread's section, of either kind, is over, destroys the lock as soon as it
/// has released it.
fn writes_and_destroys<R: RawRwLock>(shared: &Mortal<R>) {
    let token = shared.lock.write();
    // SAFETY: the lock is held for writing.
    let writes = shared.writes.with_mut(|writes| unsafe {
        *writes += 1;
        *writes
    });
    let last = shared.readers.load(Relaxed) == 1 || writes == 2;
    // SAFETY: the token is from the acquisition above.
    unsafe { shared.lock.unlock_write(token) };
    if last {
        destroy(shared);
    }
}

/// Ends an acquisition for writing. If the other thread's section is over, destroys the lock as soon as it has released it.
fn ends_write_and_destroys<R: RawRwLock>(shared: &Mortal<R>, token: R::Write) {
    let last = shared.look() == 1;
    // SAFETY: the token is from the caller's acquisition.
    unsafe { shared.lock.unlock_write(token) };
    if last {
        destroy(shared);
    }
}

fn tries_write_and_destroys<R: RawRwLock>(shared: &Mortal<R>) {
    if let Some(token) = shared.lock.try_write() {
        ends_write_and_destroys(shared, token);
    }
}

fn writes_until_and_destroys<R: RawRwLock>(shared: &Mortal<R>) {
    if let Some(token) = shared.lock.write_until(DEADLINE) {
        ends_write_and_destroys(shared, token);
    }
}

fn reads_before_the_end<R: RawRwLock>(shared: &Mortal<R>) {
    let token = shared.lock.read();
    shared.readers.fetch_add(1, Relaxed);
    // SAFETY: the lock is held for reading.
    shared.writes.with(|writes| unsafe { *writes });
    // SAFETY: the token is from the acquisition above.
    unsafe { shared.lock.unlock_read(token) };
}

/// Reads; if the writer has been, destroys the lock as soon as it has released it.
fn reads_and_destroys<R: RawRwLock>(shared: &Mortal<R>) {
    ends_read_and_destroys(shared, shared.lock.read());
}

fn tries_read_and_destroys<R: RawRwLock>(shared: &Mortal<R>) {
    if let Some(token) = shared.lock.try_read() {
        ends_read_and_destroys(shared, token);
    }
}

fn reads_until_and_destroys<R: RawRwLock>(shared: &Mortal<R>) {
    if let Some(token) = shared.lock.read_until(DEADLINE) {
        ends_read_and_destroys(shared, token);
    }
}

fn ends_read_and_destroys<R: RawRwLock>(shared: &Mortal<R>, token: R::Read) {
    let last = shared.look() == 1;
    // SAFETY: the token is from the caller's acquisition.
    unsafe { shared.lock.unlock_read(token) };
    if last {
        destroy(shared);
    }
}

pub fn writes_before_the_end<R: RawRwLock>(shared: &Mortal<R>) {
    let token = shared.lock.write();
    // SAFETY: the lock is held for writing.
    shared.writes.with_mut(|writes| unsafe { *writes += 1 });
    // SAFETY: the token is from the acquisition above.
    unsafe { shared.lock.unlock_write(token) };
}

/// A writer that comes last may destroy the lock as soon as it has released it; as [`thorough`].
#[test]
fn destroyed_by_the_last_writer() {
    for_each_rwlock!(R => thorough::<R>().check(
        (mortal::<R>, warm_mortal::<R>),
        &[reads_before_the_end::<R>, writes_and_destroys::<R>],
        |_| ()
    ));
    for_each_rwlock!(R => thorough::<R>().check(
        (mortal::<R>, warm_mortal::<R>),
        &[writes_and_destroys::<R>, writes_and_destroys::<R>],
        |_| ()
    ));
}

/// A reader that comes last may do so too; as [`thorough`].
#[test]
fn destroyed_by_the_last_reader() {
    for_each_rwlock!(R => thorough::<R>().check(
        (mortal::<R>, warm_mortal::<R>),
        &[reads_and_destroys::<R>, writes_before_the_end::<R>],
        |_| ()
    ));
}

/// So may an attempt that succeeds, and a thread whose deadline has just not passed. Of a fresh lock; up to 2 preemptions, or 1 with a
/// clock where waiters also go to sleep and with an array of locks.
#[test]
fn destroyed_by_an_attempt() {
    for_each_rwlock!(R if !is_bravo::<R>() => Model::new(2).check(
        mortal::<R>,
        &[tries_write_and_destroys::<R>, writes_before_the_end::<R>],
        |_| ()
    ));
    for_each_rwlock!(R if !is_bravo::<R>() => Model::new(2).check(
        mortal::<R>,
        &[tries_read_and_destroys::<R>, writes_before_the_end::<R>],
        |_| ()
    ));
    fn timed<R: RawRwLock>() -> Model {
        Model::new(if R::INFO.blocking || is_array::<R>() { 1 } else { 2 }).with_clock()
    }
    for_each_rwlock!(R if !is_bravo::<R>() => timed::<R>().check(
        mortal::<R>,
        &[reads_until_and_destroys::<R>, writes_before_the_end::<R>],
        |_| ()
    ));
    for_each_rwlock!(R if !is_bravo::<R>() => timed::<R>().check(
        mortal::<R>,
        &[writes_until_and_destroys::<R>, writes_before_the_end::<R>],
        |_| ()
    ));
}
