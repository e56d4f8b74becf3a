//! Identities of addresses that are the same in every run.
//!
//! Algorithms hash an identity, for example to choose a reader's slot. With addresses in place of identities, a client would meet
//! other cases in each run, because the kernel and the allocator choose the addresses.

use std::cell::RefCell;

/// Bytes of a line. An identity has the same offset in its line as the address.
pub(super) const LINE: usize = 64;

/// The memory of the value that the threads share. It begins with a line, and is the same in all executions of a model.
#[derive(Copy, Clone, Debug)]
pub(super) struct Place {
    pub(super) start: usize,
    pub(super) size: usize,
}

/// The identities of an execution.
pub(super) struct Names {
    place: Place,
    /// Lines outside of the place, in the order of the first question. That order follows from the schedule alone.
    others: RefCell<Vec<usize>>,
}

impl Names {
    pub(super) fn new(place: Place) -> Names {
        assert_eq!(place.start % LINE, 0, "the place begins within a line");
        Names { place, others: RefCell::default() }
    }

    /// Line 0 has no identity, so none is 0. The lines of the place come next, and then the others.
    pub(super) fn identity(&self, address: usize) -> usize {
        let Place { start, size } = self.place;
        if (start..start + size).contains(&address) {
            return LINE + (address - start);
        }
        let mut others = self.others.borrow_mut();
        let line = address / LINE;
        let known = others.iter().position(|other| *other == line);
        let number = known.unwrap_or_else(|| {
            others.push(line);
            others.len() - 1
        });
        (1 + size.div_ceil(LINE) + number) * LINE + address % LINE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { start: 100 * LINE, size: 2 * LINE + 8 };

    #[test]
    fn what_is_shared_is_named_by_its_offset() {
        let moved = Place { start: 7000 * LINE, ..PLACE };
        for offset in [0, 8, LINE, 2 * LINE] {
            let identity = Names::new(PLACE).identity(PLACE.start + offset);
            assert_eq!(identity, LINE + offset);
            assert_eq!(identity, Names::new(moved).identity(moved.start + offset));
        }
    }

    #[test]
    fn other_lines_are_numbered_in_order() {
        let names = Names::new(PLACE);
        let first = names.identity(9000 * LINE + 24);
        assert_eq!(first, names.identity(PLACE.start + 2 * LINE) + LINE + 24);
        assert_eq!(names.identity(5 * LINE), first - 24 + LINE);
        assert_eq!(names.identity(9000 * LINE + 24), first);
        assert_eq!(names.identity(9000 * LINE), first - 24);
    }
}
