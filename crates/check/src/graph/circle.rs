//! Deadlocks that have happened: threads that wait for each other's locks.
//!
//! A thread that is about to wait says so here, with what it holds, and looks whether it closes a circle. Each thread of a circle holds a
//! lock for which the one before it asks, and asks for a lock that the next one holds. What a thread is known to hold here, it
//! holds: it says that it has a lock after it got it, and that it releases it before it does. So none of them can get what it asks for. The
//! last one to ask sees the circle, and reports it before it waits.
//!
//! A reader waits for a writer only. (It may also wait behind a writer that waits for readers: such circles are not found.)

use super::{Tables, Thread};
use crate::Wish;
use crate::report::{Circle, Wait};
use crate::stack::Stack;

/// What a thread asks for.
#[derive(Copy, Clone)]
pub(super) struct Ask {
    shared: bool,
    at: Stack,
}

impl Tables {
    /// The thread asks for a lock, and goes on only with it. Returns whether it closes a circle.
    pub(crate) fn asks(&mut self, me: usize, lock: usize, wish: Wish, here: &Stack) -> bool {
        let Some(index) = self.index(me) else { return false };
        let Thread { used, holds, .. } = &self.threads[index];
        // No thread waits for one that holds nothing. One that asks again for its own lock gets it, or an error, or waits for itself.
        if *used == 0 || holds[..*used].iter().any(|hold| hold.lock == lock) {
            return false;
        }
        self.asked[index] = lock;
        self.threads[index].asks = Ask { shared: wish.shared, at: *here };
        let waits_for_me = |other: &usize| {
            let lock = self.asked[*other];
            lock != 0 && self.holds(index).iter().any(|hold| hold.lock == lock)
        };
        (0..self.known).any(|other| waits_for_me(&other)) && self.last_of_circle(index).is_some()
    }

    /// A shortest circle that this thread is in, from it on. It takes kilobytes.
    pub(crate) fn circle(&mut self, me: usize) -> Option<Circle> {
        let index = self.index(me).filter(|index| self.asked[*index] != 0)?;
        let last = self.last_of_circle(index)?;
        Some(self.describe(index, last))
    }

    /// The thread asks for nothing any more.
    pub(crate) fn asks_no_more(&mut self, me: usize) {
        if let Some(index) = self.index(me) {
            self.asked[index] = 0;
        }
    }

    /// The last thread of a shortest circle of threads that wait, from this one on.
    fn last_of_circle(&mut self, start: usize) -> Option<usize> {
        self.circles += 1;
        let (mut done, mut end) = (0, 1);
        self.reached[0] = start as u16;
        while done < end {
            let from = usize::from(self.reached[done]);
            done += 1;
            for holder in 0..self.known {
                if self.asked[holder] == 0 || holder == from || !self.keeps_waiting(holder, from) {
                    continue;
                }
                if holder == start {
                    return Some(from);
                }
                if self.circle_of[holder] != self.circles {
                    self.circle_of[holder] = self.circles;
                    self.came_from[holder] = from as u16;
                    self.reached[end] = holder as u16;
                    end += 1;
                }
            }
        }
        None
    }

    /// Whether a thread holds what another one asks for.
    fn keeps_waiting(&self, holder: usize, waiter: usize) -> bool {
        let (lock, shared) = (self.asked[waiter], self.threads[waiter].asks.shared);
        self.holds(holder).iter().any(|hold| hold.lock == lock && !(shared && hold.shared))
    }

    /// The circle that the search has found, which ends at this thread.
    fn describe(&self, start: usize, last: usize) -> Circle {
        let before = |thread: &usize| (*thread != start).then(|| usize::from(self.came_from[*thread]));
        let back = || std::iter::successors(Some(last), before);
        let length = back().count();
        let mut circle = Circle { length, waits: [const { None }; Circle::MOST] };
        let mut holder = start;
        for (number, thread) in back().enumerate() {
            if let Some(place) = circle.waits.get_mut(length - 1 - number) {
                *place = Some(self.wait(thread, holder));
            }
            holder = thread;
        }
        circle
    }

    /// A thread waits for another one.
    fn wait(&self, thread: usize, holder: usize) -> Wait {
        let (lock, Ask { shared, at }) = (self.asked[thread], self.threads[thread].asks);
        let hold = self.holds(holder).iter().rfind(|hold| hold.lock == lock);
        Wait {
            thread: self.ids[thread],
            lock,
            shared,
            at,
            holder: self.ids[holder],
            read: hold.is_some_and(|hold| hold.shared),
            held: hold.map_or(Stack::NONE, |hold| hold.taken),
        }
    }
}
