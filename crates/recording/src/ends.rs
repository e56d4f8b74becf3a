//! Which thread each creation and each join of a raw trace is about.
//!
//! A creation has the index of the new thread's record. A join has a `pthread_t`, which a later thread may get when its owner has
//! been joined. The joined thread is the youngest one with this `pthread_t` that was born before the join began: its creator's call
//! had begun by then.

use crate::trace_raw::RawThread;
use std::collections::HashMap;

/// The threads of a raw trace, in the order in which they are read.
#[derive(Default)]
pub(crate) struct Ends {
    pub(crate) threads: Vec<Thread>,
}

/// What is known of a thread.
pub(crate) struct Thread {
    /// Its index in the raw trace.
    pub(crate) record: u32,
    /// Its `pthread_t`.
    pub(crate) handle: u64,
    /// When its first event began.
    pub(crate) start_ns: u64,
    /// Creations: the step, when the call began, and the record of the new thread.
    pub(crate) creates: Vec<(usize, u64, u32)>,
    /// Joins: the step, when the call began, and the `pthread_t`; 0: it gave up at its deadline.
    pub(crate) joins: Vec<(usize, u64, u64)>,
}

impl Ends {
    /// Brings the threads into the order of their first calls, and has their creations and joins name them.
    pub(crate) fn resolve(self, threads: &mut Vec<RawThread>) {
        let mut order: Vec<usize> = (0..threads.len()).collect();
        order.sort_by_key(|thread| (threads[*thread].start_ns, threads[*thread].tid));
        let mut place = vec![0_u32; threads.len()];
        order.iter().enumerate().for_each(|(new, old)| place[*old] = new as u32);
        let by_record: HashMap<u32, usize> =
            self.threads.iter().enumerate().map(|(thread, known)| (known.record, thread)).collect();
        let mut is_created = vec![false; threads.len()];
        let mut born: Vec<u64> = self.threads.iter().map(|thread| thread.start_ns).collect();
        for (creator, known) in self.threads.iter().enumerate() {
            for (step, begun, record) in &known.creates {
                if let Some(created) = by_record.get(record) {
                    is_created[*created] = true;
                    born[*created] = born[*created].min(*begun);
                    threads[creator].steps[*step].object = place[*created];
                }
            }
        }
        let mut owners: HashMap<u64, Vec<usize>> = HashMap::new();
        for (thread, known) in self.threads.iter().enumerate().filter(|(_, known)| known.handle != 0) {
            owners.entry(known.handle).or_default().push(thread);
        }
        owners.values_mut().for_each(|owners| owners.sort_by_key(|thread| born[*thread]));
        let mut joins: Vec<(u64, usize, usize, u64)> = Vec::new();
        for (joiner, known) in self.threads.iter().enumerate() {
            joins.extend(known.joins.iter().map(|(step, begun, handle)| (*begun, joiner, *step, *handle)));
        }
        joins.sort_unstable();
        for (begun, joiner, step, handle) in joins {
            let Some(owners) = owners.get_mut(&handle) else { continue };
            let older = owners.partition_point(|thread| born[*thread] <= begun);
            // If the recording began after the thread's creation, its first event may come after the join's beginning.
            let late = owners.first().is_some_and(|thread| !is_created[*thread]);
            let found = older.checked_sub(1).or(late.then_some(0));
            if let Some(found) = found {
                threads[joiner].steps[step].object = place[owners[found]];
                // The older ones had been joined, or were detached and are gone.
                owners.drain(..=found);
            }
        }
        let mut sorted: Vec<Option<RawThread>> = threads.drain(..).map(Some).collect();
        threads.extend(order.into_iter().filter_map(|old| sorted[old].take()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::op;
    use crate::trace_file::{NO_THREAD, Step};

    fn raw(start_ns: u64, steps: &[u32]) -> RawThread {
        let step = |op: &u32| Step { op: *op, object: NO_THREAD, ..Step::default() };
        RawThread {
            tid: 0,
            stack: 0,
            start_ns,
            end_ns: start_ns,
            steps: steps.iter().map(step).collect(),
            times: vec![0; steps.len()],
            dropped: 0,
            preempted_ns: 0,
        }
    }

    fn known(record: u32, handle: u64, start_ns: u64) -> Thread {
        Thread { record, handle, start_ns, creates: Vec::new(), joins: Vec::new() }
    }

    /// Two threads that have one `pthread_t` after each other, the first of which makes its first call late.
    #[test]
    fn a_join_is_of_the_thread_that_has_the_handle_then() {
        let main = [op::CREATE, op::JOIN, op::CREATE, op::JOIN, op::JOIN];
        let mut threads =
            vec![raw(5, &main), raw(0, &[op::EXIT]), raw(45, &[op::EXIT]), raw(35, &[op::EXIT])];
        let mut first = known(0, 100, 5);
        first.creates = vec![(0, 10, 7), (2, 30, 9)];
        first.joins = vec![(1, 20, 200), (3, 40, 200), (4, 50, 0)];
        // The first one had called nothing when it was joined. (A trace whose clocks disagree a bit.)
        let ends = Ends { threads: vec![first, known(3, 300, 0), known(7, 200, 45), known(9, 200, 35)] };
        ends.resolve(&mut threads);
        let starts: Vec<u64> = threads.iter().map(|thread| thread.start_ns).collect();
        assert_eq!(starts, [0, 5, 35, 45]);
        let objects: Vec<u32> = threads[1].steps.iter().map(|step| step.object).collect();
        assert_eq!(objects, [3, 3, 2, 2, NO_THREAD]);
    }

    /// The window of the recording began when the thread was waiting already for one that has no event yet.
    #[test]
    fn a_thread_that_was_created_before_the_recording() {
        let mut threads = vec![raw(5, &[op::JOIN]), raw(30, &[op::EXIT])];
        let mut first = known(0, 100, 5);
        first.joins = vec![(0, 10, 200)];
        Ends { threads: vec![first, known(1, 200, 30)] }.resolve(&mut threads);
        assert_eq!(threads[0].steps[0].object, 1);
    }
}
