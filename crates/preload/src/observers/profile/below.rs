//! The functions below the layer, and the slots of the table that lead to the layer or past it.

use crate::families::mutex;
use crate::state::abi::Mutex;
use crate::state::table::{Slot, Table};
use libc::c_int;

/// The functions that the layer calls.
pub(super) static BELOW: Table = Table::EMPTY;
/// How a mutex is tried before a call waits for it.
pub(super) static TRY_MUTEX: Slot<unsafe extern "C" fn(*mut Mutex) -> c_int> = Slot::new(mutex::try_weak);

/// Sets slots of the table to functions of the layer, or to those below it: `over!(on; name => function, ...)`.
macro_rules! over {
    ($on:expr; $($name:ident => $function:expr),* $(,)?) => {
        $($crate::state::table::TABLE.$name.set(
            if $on { $function } else { $crate::observers::profile::below::BELOW.$name.get() }
        );)*
    };
}
pub(super) use over;
