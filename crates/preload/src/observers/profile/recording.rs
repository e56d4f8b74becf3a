//! A recording from its beginning to its end: the file, and all that is known of what is in it.

use super::file::{self, About};
use super::threads::HOLD_PERIODS;
use super::{clock, filter, modules, objects, stack, tallies};
use crate::observers::names::Names;
use latchwork_recording::layout::began;

static NAMES: Names = Names::new();

/// While the process starts. `mutex` and `rwlock` are the names of the locks that serve.
pub(super) fn prepare(mutex: &[u8], rwlock: &[u8]) {
    clock::prepare();
    NAMES.set([mutex, rwlock]);
}

/// Makes a file. An error says what failed. `began`: see the header.
pub(super) fn open(began: u32) -> Result<(), &'static str> {
    if began != began::FORK {
        clock::calibrate();
    }
    let names = NAMES.get();
    let [mutex, rwlock] = names.each_ref().map(|name| name.split(|byte| *byte == 0).next().unwrap_or(b""));
    file::open(&About { mutex, rwlock, hold_period: 1 << HOLD_PERIODS[1], began })
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
