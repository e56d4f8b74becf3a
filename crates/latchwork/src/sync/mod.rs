//! The public root of the crate: one file for each type, with what a user of it has to know.

mod condvar;
mod mutex;
mod reentrant;
mod rwlock;
mod semaphore;
mod seqlock;

pub use condvar::*;
pub use mutex::*;
pub use reentrant::*;
pub use rwlock::*;
pub use semaphore::*;
pub use seqlock::*;
