//! Clients of the reader-writer locks in which an attempt, or a deadline, meets readers and a writer.

use crate::machine::{Loom, Model};
use crate::rwlock::{Shared, for_each_rwlock, is_bravo, tries_write, works_after, writes};
use latchwork::registry::{self, Visitor};
use latchwork::rwlock::RawRwLock;

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
    for_each_rwlock!(R if !is_bravo::<R>() => few::<R>().check(
        Shared::<R>::new,
        &[tries_write, reads_with_a_guest, writes],
        works_after
    ));
}
