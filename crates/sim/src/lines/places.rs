//! Where lines lie in the machine's memory: this decides which of them meet in the same set of a cache.
//!
//! Addresses differ from run to run, so they play no part. Each 64 lines whose first touches follow each other lie side by side,
//! as in a page of 4 KiB, and each such page lies at a random place. So lines at equal places of many pages do not meet in few
//! sets. For memory where that matters a body calls [`in_pages`](crate::in_pages): each of its lines keeps its offset
//! within its page, and only the pages lie at random places.

use crate::rng::Rng;
use std::ops::Range;

/// Lines of 64 bytes in a page of 4 KiB.
const PAGE: usize = 64;

/// Memory whose lines keep their offset within their page.
struct Paged {
    /// Its lines, as addresses divided by 64. The first one begins a page.
    lines: Range<usize>,
    /// What the random places of its pages follow from.
    salt: u64,
}

/// The places of all lines.
#[derive(Default)]
pub(super) struct Places {
    /// By the lines' numbers.
    of: Vec<u32>,
    paged: Vec<Paged>,
}

impl Places {
    /// Gives a place to the next line, whose address divided by 64 is `at`.
    pub(super) fn add(&mut self, at: usize) {
        let place = match self.paged.iter().rev().find(|memory| memory.lines.contains(&at)) {
            Some(memory) => {
                let offset = at - memory.lines.start;
                place(memory.salt.wrapping_add((offset / PAGE) as u64), offset)
            }
            None => place((self.of.len() / PAGE) as u64, self.of.len()),
        };
        self.of.push(place);
    }

    /// The place of a line.
    #[inline]
    pub(super) fn of(&self, line: u32) -> u32 {
        self.of[line as usize]
    }

    /// The lines of these addresses divided by 64 keep their offset within their page. Lines that were touched before stay
    /// where they are.
    pub(super) fn in_pages(&mut self, lines: Range<usize>, rng: &mut Rng) {
        self.paged.push(Paged { lines, salt: rng.next() });
    }

    /// Whether [`in_pages`](Places::in_pages) was called.
    pub(super) fn has_pages(&self) -> bool {
        !self.paged.is_empty()
    }
}

/// The place of a line in a page, which lies at a random place.
fn place(page: u64, line: usize) -> u32 {
    let mixed = page.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let frame = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 38;
    frame as u32 * PAGE as u32 + (line % PAGE) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_paged_memory_keep_their_offset_and_others_do_not() {
        let mut places = Places::default();
        places.in_pages(1007..1007 + 100 * PAGE, &mut Rng::new(1));
        (0..100).for_each(|page| places.add(1007 + page * PAGE + 5));
        (0..100).for_each(|page| places.add((1 << 20) + page * PAGE + 5));
        assert!((0..100).all(|line| places.of(line) as usize % PAGE == 5));
        assert!((100..200).all(|line| places.of(line) as usize % PAGE == line as usize % PAGE));
        let mut colours: Vec<usize> = (0..100).map(|line| places.of(line) as usize / PAGE % 32).collect();
        colours.sort_unstable();
        colours.dedup();
        assert!((25..=32).contains(&colours.len()), "{} of 32 colours", colours.len());
    }
}
