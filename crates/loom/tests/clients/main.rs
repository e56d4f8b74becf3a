//! Every algorithm under loom: all interleavings of small clients, up to a number of preemptions,
//! under the C11 memory model.
//!
//! The clients know the algorithms only through the registry, so a new lock is covered by its line
//! there. Protected data stands in loom's `UnsafeCell`: sections that do not overlap but are not
//! ordered either (a missing acquire or release) are reported as well.
//!
//! `LATCHWORK_LOCK=name` runs one lock only (or several, separated by commas).
//! `LATCHWORK_LOOM_DEEP=1` allows one preemption more everywhere (hours rather than minutes).

mod stacks;

mod anonymous;
mod at_length;
mod bravo;
mod condvar;
mod destroyed;
mod map;
mod modes;
mod moved;
mod mutex;
mod osq;
mod qspinlock;
mod reclaim;
mod rwlock;
mod semaphore;
mod seqlock;
mod tables;
mod tree;

#[path = "../../../sim/tests/suite/broken/announces.rs"]
mod announces;
#[path = "../../../latchwork/tests/example/futex.rs"]
mod example;

use latchwork_loom::{machine, report};
