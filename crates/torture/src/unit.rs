//! A semaphore with one unit is a mutex, and is tortured as one.

use crate::jitter::Jitter;
use crate::scenario::{Scenario, of_mutex};
pub use latchwork::locks::semaphore::Unit;
use latchwork::machine::Native;

/// What is done to it, on both machines.
pub fn scenarios() -> Vec<Scenario> {
    of_mutex::<Unit<Native>>().into_iter().chain(of_mutex::<Unit<Jitter>>()).collect()
}
