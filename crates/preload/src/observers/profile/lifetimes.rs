//! Calls that make and destroy objects.

use super::calls::Call;
use super::objects::Spare;
use super::threads::{self, Inside};
use super::{filter, modules, objects};
use libc::c_int;

/// An `init` call of a lock: the lock is a new one if the call succeeds.
///
/// # Safety
///
/// The program passes memory for a lock.
#[inline(always)]
pub(super) unsafe fn init(call: Call, below: impl FnOnce() -> c_int) -> c_int {
    let result = below();
    if result == 0 {
        // SAFETY: the lock is there.
        made(call, Some(unsafe { call.is_recursive() }));
    }
    result
}

/// The program makes an object. `recursive`: whether a lock is a recursive mutex. `None`: the object is no lock, and a thread's
/// first call takes the long way.
#[inline(never)]
pub(super) fn made(call: Call, recursive: Option<bool>) {
    let (kind, address) = (call.kind(), call.address);
    if let Some(local) = &mut threads::current() {
        objects::prefetch(address);
        local.shared.entries.prefetch(address);
        let module = local.module.replaced_at(address);
        let birth = local.stacks.capture_birth();
        end(local, address, objects::retire);
        let filter = filter::value(address);
        if let Some(found) = objects::make(kind, address, module, birth, local.spare())
            && let Some(recursive) = recursive
        {
            // Most probably this thread uses the object first.
            local.expect(address, found, filter, recursive);
        }
    }
}

/// The program has destroyed an object.
pub(in crate::observers) fn gone(address: usize) {
    if let Some(local) = &mut threads::current() {
        end(local, address, objects::retire);
    }
}

/// The program has given an object a name: what is recorded from now on goes to the class of that name.
pub(in crate::observers) fn named(address: usize) {
    if let Some(local) = &mut threads::current() {
        if let Some(entry) = local.shared.entries.of(address) {
            local.empty(entry);
        }
        end(local, address, objects::forget);
    }
}

/// The program may have unloaded a library, with locks in its data.
pub(crate) fn unloaded() {
    if let Some(local) = &mut threads::current() {
        modules::unloaded();
        objects::retire_unloaded(|address| end(local, address, objects::retire));
    }
}

/// The object's record goes first: then what the thread has counted is added to the class at once.
#[inline(always)]
fn end(local: &mut Inside, address: usize, retire: impl FnOnce(usize, Option<&mut Spare>)) {
    retire(address, local.spare());
    if let Some(entry) = local.shared.entries.of(address) {
        local.empty(entry);
    }
}

/// A `destroy` call: the object is gone if the call succeeds.
pub(super) fn destroy(address: usize, call: impl FnOnce() -> c_int) -> c_int {
    objects::prefetch(address);
    let result = call();
    if result == 0 {
        gone(address);
    }
    result
}
