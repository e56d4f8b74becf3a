//! How far NUMA nodes are apart: what the firmware has told the kernel.

use super::thread::read_file;
use core::ffi::CStr;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// NUMA nodes whose distances are read. Further nodes count as the farthest of all.
const NODES: usize = 16;
/// Not known yet.
const UNKNOWN: u8 = 0;
/// Hops between two nodes, plus one; or [`UNKNOWN`].
static HOPS: [[AtomicU8; NODES]; NODES] = [const { [const { AtomicU8::new(UNKNOWN) }; NODES] }; NODES];

/// How many distances from node `from` are shorter than that to node `to`.
pub(super) fn hops(from: u32, to: u32) -> u32 {
    let Some(known) = HOPS.get(from as usize).and_then(|row| row.get(to as usize)) else {
        return if from == to { 0 } else { NODES as u32 };
    };
    if known.load(Relaxed) == UNKNOWN {
        read(from as usize);
    }
    u32::from(known.load(Relaxed)) - 1
}

#[cold]
fn read(from: usize) {
    let mut path = *b"/sys/devices/system/node/node00/distance\0";
    let (tens, ones) = (from / 10, from % 10);
    let mut end = b"/sys/devices/system/node/node".len();
    for digit in [tens, ones].into_iter().skip(usize::from(tens == 0)) {
        path[end] = b'0' + digit as u8;
        end += 1;
    }
    path[end..end + 10].copy_from_slice(b"/distance\0");
    let mut text = [0; 256];
    let row = match CStr::from_bytes_until_nul(&path) {
        Ok(path) => levels(read_file(path, &mut text)),
        Err(_) => [0; NODES],
    };
    for (to, known) in HOPS[from].iter().enumerate() {
        let level = if to == from { 0 } else { row[to].max(1) };
        known.store(level + 1, Relaxed);
    }
}

/// A row of distances such as `10 21 31`, as levels: 0 1 2. What is missing is 0.
fn levels(row: &[u8]) -> [u8; NODES] {
    let mut distances = [0u32; NODES];
    let numbers = row.split(|b| !b.is_ascii_digit()).filter(|digits| !digits.is_empty());
    for (distance, digits) in distances.iter_mut().zip(numbers) {
        *distance = digits.iter().fold(0, |n: u32, d| n.saturating_mul(10) + u32::from(d - b'0'));
    }
    distances.map(|distance| {
        let mut level = 0;
        let mut last = 0;
        // The next larger one each time, until it is ours.
        while let Some(next) = distances.iter().copied().filter(|d| *d > last && *d < distance).min() {
            (last, level) = (next, level + 1);
        }
        level
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_of_distances() {
        assert_eq!(levels(b"10 21 31 21\n")[..5], [0, 1, 2, 1, 0]);
        assert_eq!(levels(b"32 16 10\n")[..3], [2, 1, 0]);
        assert_eq!(levels(b""), [0; NODES]);
    }

    #[test]
    fn a_node_is_nearest_to_itself() {
        assert_eq!(hops(0, 0), 0);
        assert!(hops(0, 1) >= 1 && hops(3, 99) > 1 && hops(99, 99) == 0);
    }
}
