//! The functions below the layer, and the slots of the table that lead to the layer or past it.

use crate::families::mutex;
use crate::state::abi::Mutex;
use crate::state::table::{Slot, Table};
use libc::c_int;

/// The table without the layer.
pub(super) static WITHOUT: Table = Table::EMPTY;
/// The same, but what tries a lock here is the first attempt of a call that may wait: under the checks that differs from a call
/// of the program that only tries ([`check::first_attempts`](crate::observers::check::first_attempts)).
pub(super) static BELOW: Table = Table::EMPTY;
/// The first attempt of `pthread_mutex_lock`.
pub(super) static TRY_MUTEX: Slot<unsafe extern "C" fn(*mut Mutex) -> c_int> = Slot::new(mutex::try_weak);

/// Sets slots of the table to functions of the layer, or to those without it: `over!(on; name => function, ...)`.
macro_rules! over {
    ($on:expr; $($name:ident => $function:expr),* $(,)?) => {
        $($crate::state::table::TABLE.$name.set(
            if $on { $function } else { $crate::observers::profile::below::WITHOUT.$name.get() }
        );)*
    };
}
pub(super) use over;
