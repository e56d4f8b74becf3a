//! The handlers of `fork`. The child must not inherit the tables while another thread is changing them.

use crate::cancel::Uncancelled;
use crate::{graph, names, report};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

// What the thread that forks has to give back. Written and read under the lock of the graph.
/// The turn to print.
static TURN: AtomicBool = AtomicBool::new(false);
/// The lock of the names.
static NAMES: AtomicBool = AtomicBool::new(false);
/// Forks by signal handlers that have interrupted the thread that has the lock of the graph. They have nothing to give back.
static INTERRUPTED: AtomicU32 = AtomicU32::new(0);

/// Before a `fork`. Names may be given without any check.
pub fn before_fork() {
    if graph::LOCK.is_mine() {
        // The interrupted function goes on in the parent and in the child.
        INTERRUPTED.fetch_add(1, Relaxed);
        return;
    }
    let uncancelled = Uncancelled::new();
    // First, because the thread that prints may still need the other two.
    let turn = report::before_fork();
    // The thread does not have it, so this succeeds.
    let _ = graph::LOCK.acquire();
    TURN.store(turn, Relaxed);
    NAMES.store(names::CHANGING.acquire(), Relaxed);
    uncancelled.keep();
}

/// After it, in the parent and in the child. Other threads' locks are nobody's in the child.
pub fn after_fork(child: bool) {
    if child {
        graph::LOCK.forget_others_at_release();
        names::CHANGING.release_if_orphaned();
        report::in_child();
    }
    if INTERRUPTED.load(Relaxed) != 0 {
        INTERRUPTED.fetch_sub(1, Relaxed);
        return;
    }
    // Read before the lock of the graph is released: then another thread that forks may keep its own.
    let (_uncancelled, turn) = (Uncancelled::kept(), TURN.load(Relaxed));
    // SAFETY: `before_fork` has acquired them.
    unsafe {
        if NAMES.load(Relaxed) {
            names::CHANGING.release();
        }
        graph::LOCK.release();
    }
    if turn {
        report::give_turn_back();
    }
}
