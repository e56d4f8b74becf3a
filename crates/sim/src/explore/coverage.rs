//! Which states of the locks have been seen: schedules that come to a rare one are worth going on from.
//!
//! A state is what the words of the locks hold, as far as a few bits tell, and how many threads sleep and spin.

use super::client::THREADS;

/// States that are told apart.
const STATES: usize = 1 << 16;
/// Schedules that come to a state before it is rare no more.
const RARE: u8 = 4;

pub(super) struct Coverage {
    seen: Vec<u8>,
    words: u64,
    /// The last step at which a rare state was come to in this schedule, or 0.
    pub rare_at: u32,
    /// The operations that threads were in then.
    pub operations: [u8; THREADS],
}

impl Coverage {
    pub(super) fn new() -> Coverage {
        Coverage { seen: vec![0; STATES], words: 0, rare_at: 0, operations: [0; THREADS] }
    }

    /// Another lock is explored.
    pub(super) fn forget(&mut self) {
        self.seen.fill(0);
    }

    pub(super) fn begin(&mut self) {
        (self.words, self.rare_at) = (0, 0);
    }

    /// A word of a lock changes. Returns whether that comes to a rare state.
    #[inline]
    pub(super) fn change(&mut self, offset: usize, old: u64, new: u64, waiting: u32) -> bool {
        self.words ^= mix(offset, old) ^ mix(offset, new);
        let state = (self.words ^ u64::from(waiting)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
        let seen = &mut self.seen[state as usize];
        let rare = *seen < RARE;
        *seen += u8::from(rare);
        rare
    }
}

/// What is remembered of a value: of an address that it is one, of a number the bits that are flags in most locks.
#[inline]
fn mix(offset: usize, value: u64) -> u64 {
    let kept = match value {
        0 => 0,
        _ if value > u64::from(u32::MAX) => 1,
        _ => 2 | (value & 7) << 2 | (value >> 29) << 5,
    };
    ((offset as u64) << 16 | kept)
        .wrapping_mul(0xd6e8_feb8_6659_fd93)
        .rotate_left(29)
        .wrapping_mul(0xa076_1d64_78bd_642f)
}
