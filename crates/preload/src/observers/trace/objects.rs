//! The records of objects, threads' stacks and modules.
//!
//! An object keeps its record for ever: one that is destroyed, and another one of the same kind that is made at the same
//! address, count as one. They never exist at the same time, so a replay does not confuse them; but the second has the name of
//! the first.

use super::file;
use crate::state::unwind::{self, modules};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use latchwork_recording::trace::*;

/// Slots of the table. At most half of them are used.
const SLOTS: usize = 2 * OBJECTS;
/// Slots that are searched from the one that the hash says.
const PROBES: usize = 64;

/// The index of an object plus one; 0: empty. An object never leaves its slot.
static TABLE: [AtomicU32; SLOTS] = [const { AtomicU32::new(0) }; SLOTS];

fn slots(address: usize) -> impl Iterator<Item = &'static AtomicU32> {
    let hash = (address as u64 >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (0..PROBES).map(move |probe| &TABLE[(hash as usize + probe) % SLOTS])
}

fn is(index: u32, kind: u32, address: usize) -> bool {
    let object = file::object(index);
    object.address.load(Relaxed) == address as u64 && object.kind.load(Relaxed) == kind
}

/// The index of an object, which gets a record if it has none. `None`: there is no room.
#[inline(always)]
pub(super) fn find(kind: u32, address: usize) -> Option<u32> {
    for slot in slots(address) {
        // (A) pairs with the exchange in `make`: the record is complete.
        match slot.load(Acquire) {
            0 => break,
            value if is(value - 1, kind, address) => return Some(value - 1),
            _ => {}
        }
    }
    make(kind, address)
}

#[cold]
#[inline(never)]
fn make(kind: u32, address: usize) -> Option<u32> {
    let index = file::new_object()?;
    let object = file::object(index);
    object.kind.store(kind, Relaxed);
    object.address.store(address as u64, Relaxed);
    object.is_static.store(u32::from(modules::of(address).is_some_and(|module| note(&module))), Relaxed);
    object.depth.store(capture(&object.frames), Relaxed);
    object.state.store(1, Release);
    for slot in slots(address) {
        // (A) publishes the record.
        match slot.compare_exchange(0, index + 1, AcqRel, Acquire) {
            Ok(_) => return Some(index),
            Err(other) if is(other - 1, kind, address) => {
                // Another thread was faster.
                object.state.store(0, Relaxed);
                return Some(other - 1);
            }
            Err(_) => {}
        }
    }
    object.state.store(0, Relaxed);
    None
}

/// Captures the calling thread's stack, without the frames of this library. Returns how many frames there are.
pub(super) fn capture(frames: &[AtomicU64; FRAMES]) -> u32 {
    let Some(registers) = unwind::Registers::here() else { return 0 };
    let (mut depth, mut window) = (0, unwind::Window::EMPTY);
    unwind::each(&registers, &mut window, |_, address, ours| {
        if !ours || depth > 0 {
            frames[depth].store(address as u64, Relaxed);
            // The address is behind the call, which may be the last instruction of the module.
            if let Some(module) = modules::of(address - 1) {
                note(&module);
            }
            depth += 1;
        }
        depth < FRAMES
    });
    depth as u32
}

/// Gives a module a record, if it has none. Returns whether it has one. Two threads may make two records of one module, which
/// does no harm.
fn note(module: &modules::Object) -> bool {
    let known = (file::header().modules.load(Relaxed) as usize).min(MODULES) as u32;
    if (0..known).any(|index| file::module(index).start.load(Acquire) == module.start as u64) {
        return true;
    }
    let Some(index) = file::new_module() else { return false };
    let record = file::module(index);
    // SAFETY: the module's code is running or its data in use, so it stays loaded meanwhile.
    unsafe {
        let bias = module.bias();
        record.bias.store(bias as u64, Relaxed);
        record.path[..record.path.len() - 1]
            .iter()
            .zip(module.name())
            .for_each(|(to, byte)| to.store(*byte, Relaxed));
        if let Some(id) = modules::build_id(module, bias) {
            let length = id.len().min(record.build_id.len());
            record.build_id.iter().zip(id).for_each(|(to, byte)| to.store(*byte, Relaxed));
            record.build_id_length.store(length as u32, Relaxed);
        }
    }
    record.end.store(module.end as u64, Relaxed);
    record.state.store(1, Relaxed);
    record.start.store(module.start as u64, Release);
    true
}

/// Forgets all objects. In a forked child, which has one thread.
pub(super) fn clear() {
    TABLE.iter().for_each(|slot| slot.store(0, Relaxed));
}
