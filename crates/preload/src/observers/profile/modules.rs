//! The records of modules: the files that addresses belong to. A module gets its record when its first address is met.

use super::file::{append, record, text};
use super::index::{Index, mix};
use crate::state::unwind::modules::{Object, build_id, of};
use core::sync::atomic::Ordering::*;
use latchwork_recording::layout::*;

static BY_START: Index<{ 8 << 10 }> = Index::new();

/// Whether a module has this address. Gives the module a record.
pub(super) fn contains(address: usize) -> bool {
    let found = of(address);
    if let Some(module) = &found {
        note(module);
    }
    found.is_some()
}

/// Gives the module a record, if it has none.
fn note(module: &Object) {
    let is = |index| {
        let known = record::<Module>(index);
        known.start.load(Relaxed) == module.start as u64 && known.end.load(Relaxed) == module.end as u64
    };
    let make = || {
        let index = append::<Module>(1)?;
        let known = record::<Module>(index);
        // SAFETY: the module's code is running or its data in use, so it stays loaded meanwhile. The strings of the dynamic
        // linker end in NUL.
        unsafe {
            let (bias, name) = (module.bias(), module.name());
            let path = text(name);
            known.path.store(path.start, Relaxed);
            known.path_length.store(path.length, Relaxed);
            known.bias.store(bias as u64, Relaxed);
            if let Some(id) = build_id(module, bias) {
                let length = id.len().min(known.build_id.len());
                known.build_id.iter().zip(id).for_each(|(to, byte)| to.store(*byte, Relaxed));
                known.build_id_length.store(length as u32, Relaxed);
            }
        }
        known.start.store(module.start as u64, Relaxed);
        known.end.store(module.end as u64, Relaxed);
        known.state.store(READY, Release);
        Some(index)
    };
    let discard = |index| record::<Module>(index).state.store(0, Relaxed);
    BY_START.find_or_insert(mix(module.start as u64), is, make, discard);
}

/// Forgets all modules. In a forked child, which has one thread.
pub(super) fn clear_all() {
    BY_START.clear();
}
