//! What the descriptions of code say of the frames that were met, in a form that is quick to apply.
//!
//! Most frames are plain: the caller's frame lies at a distance from the stack pointer or from the frame pointer, and saved
//! registers lie below it. Reading that from `.eh_frame` takes about a microsecond for each frame, so that all threads share a
//! table of the results. Frames of another sort are read each time.
//!
//! No lock guards a record. Its key is mixed from its content too, so that a record that two threads write at the same
//! time matches no address.

use super::modules;
use core::sync::atomic::{AtomicU64, Ordering::*};
use gimli::{CfaRule, Register, RegisterRule, UnwindContextStorage, UnwindTableRow};

/// Records of the table.
const RECORDS: usize = 4096;

/// In DWARF's numbers: rbx, rbp, r12 to r15, and the return address, which comes last.
const SAVED: [u16; 7] = [3, 6, 12, 13, 14, 15, 16];
const RBP: u16 = 6;
const RSP: u16 = 7;

static TABLE: [[AtomicU64; 3]; RECORDS] = [const { [const { AtomicU64::new(0) }; 3] }; RECORDS];

/// How to get from a frame to its caller's.
#[derive(Clone, Copy)]
pub(super) struct Rule {
    /// From the base register to the caller's frame, in bytes; in the highest bit, whether the base is the frame pointer.
    frame: u64,
    /// A byte for each of [`SAVED`]: how many words below the caller's frame it lies; 0: it has not changed.
    saved: [u8; 8],
}

const BY_FRAME_POINTER: u64 = 1 << 63;

impl Rule {
    /// The rule of an outermost frame: it has no caller.
    pub(super) const END: Self = Rule { frame: 0, saved: [0; 8] };

    /// Whether the frame is an outermost one.
    pub(super) fn is_end(&self) -> bool {
        self.saved[SAVED.len() - 1] == 0
    }

    /// The rule of a row of the description. `None`: it is not plain.
    pub(super) fn new<S: UnwindContextStorage<usize>>(row: &UnwindTableRow<usize, S>) -> Option<Self> {
        let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else { return None };
        let base = match register.0 {
            RSP => 0,
            RBP => BY_FRAME_POINTER,
            _ => return None,
        };
        let offset = u32::try_from(*offset).ok()?;
        let mut saved = [0; 8];
        for number in 0..=16 {
            let below = match row.register(Register(number)) {
                None | Some(RegisterRule::SameValue) => continue,
                Some(RegisterRule::Offset(offset)) => {
                    u8::try_from(offset / -8).ok().filter(|_| offset % 8 == 0)?
                }
                Some(_) => return None,
            };
            let index = SAVED.iter().position(|saved| *saved == number)?;
            // Nothing is saved at the frame's own address.
            saved[index] = Some(below).filter(|below| *below != 0)?;
        }
        (saved[SAVED.len() - 1] != 0).then_some(Rule { frame: base | u64::from(offset), saved })
    }

    /// Whether the caller's frame is found by the frame pointer.
    pub(super) fn is_by_frame_pointer(&self) -> bool {
        self.frame & BY_FRAME_POINTER != 0
    }

    /// The caller's frame.
    pub(super) fn frame(&self, registers: &[u64]) -> u64 {
        let base = if self.is_by_frame_pointer() { RBP } else { RSP };
        registers[base as usize].wrapping_add(self.frame & !BY_FRAME_POINTER)
    }

    /// The registers that were saved, and where. The return address comes last.
    pub(super) fn saved(&self, frame: u64) -> impl Iterator<Item = (usize, u64)> {
        let place = move |below: u8| frame.wrapping_sub(8 * u64::from(below));
        let all = SAVED.into_iter().zip(self.saved).filter(|(_, below)| *below != 0);
        all.map(move |(number, below)| (usize::from(number), place(below)))
    }

    fn key(&self, name: u64) -> u64 {
        name ^ mix(self.frame) ^ mix(u64::from_ne_bytes(self.saved).rotate_left(17))
    }
}

/// Mixes the bits of a key.
#[inline(always)]
pub(crate) fn mix(key: u64) -> u64 {
    let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 32
}

/// What names an address. Another module may be mapped where one was before.
fn name(module: &modules::Object, address: u64) -> u64 {
    mix(address) ^ mix(module.start as u64 ^ (module.eh_frame_header.addr() as u64).rotate_left(32)) | 1
}

/// The rule for an address of a module, if it is known.
pub(super) fn find(module: &modules::Object, address: u64) -> Option<Rule> {
    let name = name(module, address);
    let [key, frame, saved] = &TABLE[(name >> 8) as usize % RECORDS];
    let rule = Rule { frame: frame.load(Relaxed), saved: saved.load(Relaxed).to_ne_bytes() };
    (key.load(Relaxed) == rule.key(name)).then_some(rule)
}

/// Remembers the rule for an address of a module.
pub(super) fn remember(module: &modules::Object, address: u64, rule: Rule) {
    let name = name(module, address);
    let [key, frame, saved] = &TABLE[(name >> 8) as usize % RECORDS];
    frame.store(rule.frame, Relaxed);
    saved.store(u64::from_ne_bytes(rule.saved), Relaxed);
    key.store(rule.key(name), Relaxed);
}
