//! A recording from its beginning to its end: the file, and all that is known of what is in it.

use super::file::{self, About};
use super::threads::HOLD_PERIODS;
use super::{clock, filter, modules, objects, stack, tallies};
use core::sync::atomic::{AtomicU8, Ordering::*};

/// The names of the locks that serve mutexes and rwlocks: a copy for forked children.
static NAMES: [Name; 2] = [const { Name([const { AtomicU8::new(0) }; 48]) }; 2];
struct Name([AtomicU8; 48]);
impl Name {
    fn set(&self, name: &[u8]) {
        self.0.iter().zip(name).for_each(|(to, byte)| to.store(*byte, Relaxed));
    }

    fn get(&self) -> [u8; 48] {
        core::array::from_fn(|index| self.0[index].load(Relaxed))
    }
}

/// While the process starts. `mutex` and `rwlock` are the names of the locks that serve.
pub(super) fn prepare(mutex: &[u8], rwlock: &[u8]) {
    clock::prepare();
    NAMES[0].set(mutex);
    NAMES[1].set(rwlock);
}

/// Makes a file. An error says what failed. `forked`: this is a forked child, whose parent was recorded.
pub(super) fn open(forked: bool) -> Result<(), &'static str> {
    if !forked {
        clock::calibrate();
    }
    let names = [NAMES[0].get(), NAMES[1].get()];
    let [mutex, rwlock] = names.each_ref().map(|name| name.split(|byte| *byte == 0).next().unwrap_or(b""));
    file::open(&About { mutex, rwlock, hold_period: 1 << HOLD_PERIODS[1], forked })
}

/// Unmaps the file, and forgets all that was in it. No thread is in a call of the layer.
pub(super) fn discard() {
    file::close();
    objects::clear_all();
    tallies::clear_all();
    stack::clear_all();
    modules::clear_all();
    filter::clear_all();
}
