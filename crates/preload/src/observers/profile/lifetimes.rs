//! Calls that make and destroy objects.

use super::{objects, threads};
use libc::c_int;

/// The program makes an object.
pub(super) fn made(kind: u32, address: usize) {
    if let Some(local) = &mut threads::current() {
        gone(address);
        objects::find_or_make(kind, address, || local.stacks.capture());
    }
}

/// The program has destroyed an object.
pub(in crate::observers) fn gone(address: usize) {
    end(address, objects::retire);
}

/// The program has given an object a name: what is recorded from now on goes to the class of that name.
pub(in crate::observers) fn named(address: usize) {
    end(address, objects::forget);
}

fn end(address: usize, retire: impl FnOnce(usize)) {
    if let Some(local) = &mut threads::current() {
        if let Some(entry) = local.shared.entries.of(address) {
            local.empty(entry);
        }
        retire(address);
    }
}

/// A `destroy` call: the object is gone if the call succeeds.
pub(super) fn destroy(address: usize, call: impl FnOnce() -> c_int) -> c_int {
    let result = call();
    if result == 0 {
        gone(address);
    }
    result
}
