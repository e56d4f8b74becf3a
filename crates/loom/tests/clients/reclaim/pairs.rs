//! Clients each of which needs one ordering that the other clients of the strategies can do without.

use super::*;
use loom::thread::yield_now;

/// Starts a grace period, and looks later whether others have ended it.
fn starts_and_looks(shared: &Epoch) {
    let object = remove(shared, null_mut());
    let cookie = shared.domain.start_poll();
    yield_now();
    if shared.domain.poll(cookie) {
        // SAFETY: no reader has it any more.
        unsafe { Object::reclaim(object) };
    } else {
        // SAFETY: this thread's exchange has removed it.
        unsafe { shared.domain.retire(object) };
    }
}

fn starts_and_polls(shared: &Epoch) {
    let cookie = shared.domain.start_poll();
    yield_now();
    shared.domain.poll(cookie);
}

/// A thread waits for a grace period that other threads end. (What `advance` acquires with its load of the epoch takes four threads
/// to be missed, one that waits, two that advance the epoch once each, and a reader: too many for every interleaving.)
#[test]
fn epochs_of_others() {
    check("epoch", bounded(1), start, &[starts_and_looks, starts_and_polls, reads as fn(&Epoch)], clean);
}
