//! The layer over the families: it watches what they serve, and serves nothing itself.
//!
//! | module | what it watches |
//! |---|---|
//! | [`check`] | lock order and misuse: its functions lie over those in the table, and call them |
//! | [`foreign`] | the locks of `latchwork.h`, for the checks and the profile; names |
//! | [`profile`] | contention: waits, and who caused them. It is a layer as well |
//! | [`trace`] | every lock call, for `latchwork record`. It is a layer, too |
//! | [`names`], [`clocks`], [`losses`], [`mapped`] | nothing: what the two recorders share |
//! | [`statistics`] | how many objects and calls there were: it reports what the families have counted |
//!
//! Statistics are counted within the families and not by a layer over the table, because only the family sees whether the
//! first attempt of a call failed. A layer could only make an attempt of its own before the call, and that attempt would
//! barge past waiting threads.

use crate::families::mutex;
use latchwork_recording::layout::kind;
use libc::c_int;

/// Makes the functions of a layer over the table, one for each line: its name, its arguments, and what it does with the function
/// below it, `call`, which the layer keeps in its table `BELOW`.
macro_rules! layer {
    ($($name:ident($first:ident: $type:ty $(, $arg:ident: $arg_type:ty)*) -> $ret:ty = |$call:ident| $body:expr;)*) => {
        $(unsafe extern "C" fn $name($first: $type $(, $arg: $arg_type)*) -> $ret {
            // SAFETY: the program's own arguments.
            let $call = move || unsafe { BELOW.$name.get()($first $(, $arg)*) };
            #[allow(unused_unsafe)]
            // SAFETY: the program passes a live lock.
            unsafe { $body }
        })*
    };
}

/// The result of a lock call with this error, if it is the error of an attempt that the program has not made: the recorders try a lock
/// before they wait for it.
fn after_first_attempt(kind: u32, address: usize, error: c_int) -> c_int {
    if kind != kind::MUTEX {
        return error;
    }
    // SAFETY: the address is a live mutex's, and was exposed.
    unsafe { mutex::after_first_attempt(core::ptr::with_exposed_provenance(address), error) }
}

pub(crate) mod check;
mod clocks;
mod foreign;
mod losses;
mod mapped;
mod names;
pub(crate) mod profile;
pub(crate) mod statistics;
pub(crate) mod trace;
