//! Stacks of the calling thread, and their records.
//!
//! A thread remembers where the return addresses of its recent stacks lay. If the stack pointer is the same, and those words
//! still have the same values, the stack is the same: that takes one load for each frame. Otherwise the stack is unwound
//! ([`unwind`](super::unwind)).

use super::file::{append, header, record};
use super::index::{Index, mix};
use super::modules;
use super::threads::Local;
use super::unwind::{self, MOST, Window};
use core::sync::atomic::Ordering::*;
use latchwork_recording::layout::*;

static BY_HASH: Index<{ 128 << 10 }> = Index::new();

/// Stacks that a thread remembers: so many sets, one for each hash of a stack pointer.
const SETS: usize = 16;
/// Stacks of a set. A function that locks at several places has the same stack pointer at each.
const WAYS: usize = 4;

/// What a thread keeps for its stacks. Zero bytes are an empty one.
pub(super) struct Cache {
    stacks: [[Remembered; WAYS]; SETS],
    /// The place in its set that the next new stack takes.
    turn: usize,
    window: Window,
    /// Whether the thread is capturing a stack. A signal handler that interrupts it gets none.
    busy: bool,
}

struct Remembered {
    /// The stack pointer; 0: nothing is remembered.
    sp: usize,
    /// The index of the record.
    stack: u32,
    /// Frames of this library, the innermost ones.
    own: u32,
    count: u32,
    /// How far above the stack pointer each return address lies, and its value.
    offsets: [u32; MOST],
    values: [usize; MOST],
}

/// The record of the calling thread's stack; 0: there is none.
#[inline(never)]
pub(super) fn capture(local: &mut Local) -> u32 {
    let Some(registers) = unwind::Registers::here() else { return 0 };
    if core::mem::replace(&mut local.stacks.busy, true) {
        return 0;
    }
    let stack = known(local, &registers).stack;
    local.stacks.busy = false;
    stack
}

/// The record of the stack at which the calling thread made an earlier call, from which it has returned: `caller` is the
/// return address of that call, and `slot` the low half of where it lay. The frames above are taken from the present stack. So
/// the result is exact if the functions above have not returned since, and is usually close if they have. 0: there is none.
#[cold]
#[inline(never)]
pub(super) fn capture_earlier(local: &mut Local, caller: usize, slot: u32) -> u32 {
    let Some(registers) = unwind::Registers::here() else { return 0 };
    if core::mem::replace(&mut local.stacks.busy, true) {
        return 0;
    }
    let known = known(local, &registers);
    let sp = registers.sp();
    // The offset may be negative: the call was made further down.
    let above = slot.wrapping_sub(sp as u32) as i32;
    let mut stack = known.stack;
    if caller != 0 && known.sp != 0 && (-BELOW..unwind::REACH as i32).contains(&above) {
        let mut frames = [caller as u64; FRAMES];
        let mut depth = 1;
        for index in known.own as usize..known.count as usize {
            if i64::from(known.offsets[index]) > i64::from(above) && depth < FRAMES {
                frames[depth] = known.values[index] as u64;
                depth += 1;
            }
        }
        stack = find_or_make(&frames[..depth]);
    }
    local.stacks.busy = false;
    stack
}

/// The farthest below the stack pointer that an earlier call may have been made, in bytes. Farther away is another stack.
const BELOW: i32 = 64 << 10;

/// The present stack, from the cache if it is there.
fn known<'a>(local: &'a mut Local, registers: &unwind::Registers) -> &'a Remembered {
    let sp = registers.sp();
    let set = mix(sp as u64 >> 3) as usize % SETS;
    let way = local.stacks.stacks[set].iter().position(|known| known.sp == sp && is_same(known));
    let way = match way {
        Some(way) => {
            // One call in 64 counts, and for all.
            if local.one_in(64) {
                header().cached.fetch_add(64, Relaxed);
            }
            way
        }
        None => {
            local.stacks.turn = local.stacks.turn.wrapping_add(1);
            let way = local.stacks.turn % WAYS;
            unwound(local, set, way, registers);
            way
        }
    };
    &local.stacks.stacks[set][way]
}

/// Whether the thread is still in the calls that it was in.
fn is_same(known: &Remembered) -> bool {
    (0..known.count as usize).all(|index| {
        let slot = core::ptr::with_exposed_provenance::<usize>(known.sp + known.offsets[index] as usize);
        // SAFETY: `unwind` found these words readable, in the stack above the stack pointer, where the thread is again.
        unsafe { slot.read_volatile() == known.values[index] }
    })
}

#[cold]
#[inline(never)]
fn unwound(local: &mut Local, set: usize, way: usize, registers: &unwind::Registers) {
    let begin = super::now();
    let sp = registers.sp();
    let Cache { stacks, window, .. } = &mut local.stacks;
    let known = &mut stacks[set][way];
    known.sp = 0;
    known.count = 0;
    known.own = 0;
    let mut frames = [0_u64; FRAMES];
    let mut depth = 0;
    unwind::each(registers, window, |slot, address, ours| {
        if known.count as usize == MOST {
            return false;
        }
        let Ok(offset) = u32::try_from(slot.wrapping_sub(sp)) else { return false };
        known.offsets[known.count as usize] = offset;
        known.values[known.count as usize] = address;
        known.count += 1;
        if ours && depth == 0 {
            known.own += 1;
        } else {
            frames[depth] = address as u64;
            depth += 1;
        }
        depth < FRAMES
    });
    let stack = find_or_make(&frames[..depth]);
    known.stack = stack;
    if known.count != 0 {
        known.sp = sp;
    }
    header().unwound.fetch_add(1, Relaxed);
    header().unwinding_nanos.fetch_add(super::now().saturating_sub(begin), Relaxed);
}

/// The record of a stack; 0: there is no room.
fn find_or_make(frames: &[u64]) -> u32 {
    if frames.is_empty() {
        return 0;
    }
    let hash = frames.iter().fold(0, |hash: u64, frame| mix(hash.rotate_left(5) ^ frame));
    let is = |index| {
        let stack = record::<Stack>(index);
        stack.hash.load(Relaxed) == hash && stack.frames[0].load(Relaxed) == frames[0]
    };
    let make = || {
        let index = append::<Stack>(1)?;
        let stack = record::<Stack>(index);
        stack.hash.store(hash, Relaxed);
        stack.depth.store(frames.len() as u32, Relaxed);
        for (to, frame) in stack.frames.iter().zip(frames) {
            to.store(*frame, Relaxed);
            // The address is behind the call, which may be the last instruction of the module.
            modules::contains(*frame as usize - 1);
        }
        stack.state.store(READY, Release);
        Some(index)
    };
    let discard = |index| record::<Stack>(index).state.store(0, Relaxed);
    BY_HASH.find_or_insert(mix(hash), is, make, discard).unwrap_or(0)
}

/// Forgets all stacks. In a forked child, which has one thread.
pub(super) fn clear_all() {
    BY_HASH.clear();
}
