//! Which loads a prefetcher sees coming: those of a thread that goes through memory line by line.
//!
//! Such a thread does not wait for one line after the other. The processor executes loads ahead whose
//! addresses it knows, and the prefetcher fetches the line after two lines in a row before it is asked
//! for; so BRAVO's writer looks at 4096 slots in a few microseconds. What such loads cost is in
//! `lines.rs` (`Kind::Scan`); here they are told from others, by their addresses alone: a load goes on
//! from the line before after [`TRAINED`] steps from a line to the next, or it follows such a load in its
//! line, at a higher address.
//!
//! A walk whose next address is read from memory (from queue node to queue node) has to wait for each
//! load. It cannot be told from a scan if its nodes happen to lie in neighbouring lines, in order; but
//! the nodes of the simulated machine lie in every second line at most.
//!
//! Rows with larger steps, which some processors recognise too, count as walks here.

/// Steps from a line to the next before further ones are foreseen.
const TRAINED: u32 = 2;

/// Rows that are recognised at the same time.
const ROWS: usize = 4;

/// A row of loads: the last address, and how many times it has come to the next line.
#[derive(Copy, Clone, Default)]
struct Row {
    last: usize,
    steps: u32,
}

/// The rows of a thread, the latest first.
#[derive(Copy, Clone, Default)]
pub(crate) struct Streams([Row; ROWS]);

impl Streams {
    /// Notes a load; whether it was foreseen.
    #[inline]
    pub(crate) fn foresee(&mut self, address: usize) -> bool {
        let row = &mut self.0[0];
        if address >> 6 == row.last >> 6 {
            let ahead = address > row.last;
            row.last = address;
            return ahead && row.steps >= TRAINED;
        }
        self.step(address)
    }

    /// A load from another line than the last one.
    fn step(&mut self, address: usize) -> bool {
        let line = address >> 6;
        let found = self.0.iter().position(|row| line == row.last >> 6 || line == (row.last >> 6) + 1);
        let at = found.unwrap_or(ROWS - 1);
        let row = &mut self.0[at];
        let ahead = found.is_some() && address > row.last;
        if line == (row.last >> 6) + 1 {
            row.steps = row.steps.saturating_add(1);
        } else if found.is_none() {
            row.steps = 0;
        }
        row.last = address;
        let foreseen = ahead && row.steps > TRAINED;
        self.0[..=at].rotate_right(1);
        foreseen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn foreseen(addresses: impl IntoIterator<Item = usize>) -> Vec<bool> {
        let mut streams = Streams::default();
        addresses.into_iter().map(|address| streams.foresee(0x10000 + address)).collect()
    }

    #[test]
    fn line_by_line_from_the_third_step_on() {
        let seen = foreseen((0..6).map(|i| i * 64));
        assert_eq!(seen, [false, false, false, true, true, true]);
    }

    #[test]
    fn word_by_word() {
        let seen = foreseen((0..40).map(|i| i * 8));
        let first = seen.iter().position(|seen| *seen).unwrap();
        assert_eq!(first, 17, "in the third line");
        assert!(seen[first..].iter().all(|seen| *seen));
    }

    #[test]
    fn neither_walks_nor_spinning_nor_other_steps() {
        let walk = (0..64).map(|i| (i * 37 % 64) * 64);
        let spinning = (0..64).map(|_| 64);
        let nodes = (0..64).map(|i| i * 128);
        let backwards = (0..64).map(|i| (64 - i) * 64);
        for row in [walk.collect::<Vec<_>>(), spinning.collect(), nodes.collect(), backwards.collect()] {
            assert!(foreseen(row).iter().all(|seen| !seen));
        }
    }

    #[test]
    fn two_rows_and_something_else_between() {
        let seen = foreseen((0..8).flat_map(|i| [i * 64, 0x1000 + i * 64, 0x9000 + i * 7919]));
        for row in [0, 1] {
            assert_eq!(seen.iter().skip(row).step_by(3).filter(|seen| **seen).count(), 5);
        }
        assert!(seen.iter().skip(2).step_by(3).all(|seen| !seen));
    }
}
