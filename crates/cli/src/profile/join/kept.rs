//! What kept the threads waiting that waited for locks when the recording ended.
//!
//! A deadlock is only what the holders of the locks show: a circle of threads, each of which waits for a lock that the next one
//! holds, or is one of the readers that hold it. A thread that holds a lock and calls `exit` keeps others waiting for ever, too, but that is the program's end.

use super::super::model::Kept;
use latchwork_recording::reader::Recording;
use std::collections::HashMap;

/// What is found of a waiting thread, on the ways to the holders of its lock, to the holders of the locks for which these wait, and so
/// on. The first that is true of any way is what keeps the thread: a thread that waits for several readers waits for each.
#[derive(Default)]
struct Ways {
    /// A way comes back to the thread: it holds what it waits for.
    itself: bool,
    /// A way comes back to the thread, through others.
    circle: bool,
    /// The holder has ended.
    ended: bool,
    /// A way comes to a circle that the thread is not in, or, further away, to a holder that has ended.
    behind: bool,
    /// Some holder waits for no lock.
    runs: bool,
}

/// Adds the threads of a recording.
pub fn count(recording: &Recording, kept: &mut Kept) {
    let by_number = by_number(recording);
    for thread in 0..recording.threads.len() {
        if !waits_for_lock(recording, thread) {
            continue;
        }
        let ways = follow(recording, &by_number, thread);
        let number = match () {
            () if ways.itself => &mut kept.by_itself,
            () if ways.circle => &mut kept.in_circle,
            () if ways.ended => &mut kept.by_ended,
            () if ways.behind => &mut kept.behind,
            () if ways.runs => &mut kept.by_running,
            () => &mut kept.unknown,
        };
        *number += 1;
    }
}

/// Follows all ways from a waiting thread.
fn follow(recording: &Recording, by_number: &HashMap<u32, usize>, from: usize) -> Ways {
    let (mut ways, mut seen) = (Ways::default(), vec![from]);
    // The threads of the way to the present one, and for each which of its holders is the next.
    let mut way = vec![(from, holders(recording, by_number, from).into_iter())];
    while let Some((_, next)) = way.last_mut() {
        let Some(holder) = next.next() else {
            way.pop();
            continue;
        };
        let length = way.len();
        match &recording.threads[holder] {
            _ if holder == from && length == 1 => ways.itself = true,
            _ if holder == from => ways.circle = true,
            _ if way.iter().any(|(thread, _)| *thread == holder) => ways.behind = true,
            ended if !ended.lives && length == 1 => ways.ended = true,
            ended if !ended.lives => ways.behind = true,
            _ if !waits_for_lock(recording, holder) => ways.runs = true,
            _ if seen.contains(&holder) => (),
            _ => {
                seen.push(holder);
                way.push((holder, holders(recording, by_number, holder).into_iter()));
            }
        }
    }
    ways
}

/// The holders of the lock for which a thread waits, as far as they are known: glibc's mutex names its holder.
fn holders(recording: &Recording, by_number: &HashMap<u32, usize>, thread: usize) -> Vec<usize> {
    match &recording.threads[thread].waiting {
        Some(wait) if wait.held_by != 0 => by_number.get(&wait.held_by).copied().into_iter().collect(),
        Some(wait) => wait.holders.clone(),
        None => Vec::new(),
    }
}

/// The threads by their numbers; of several that had the same number, the last one. Nothing has the number 0.
fn by_number(recording: &Recording) -> HashMap<u32, usize> {
    let mut threads: Vec<_> =
        recording.threads.iter().enumerate().filter(|(_, thread)| thread.tid != 0).collect();
    threads.sort_by_key(|(_, thread)| thread.started);
    threads.into_iter().map(|(index, thread)| (thread.tid, index)).collect()
}

fn waits_for_lock(recording: &Recording, thread: usize) -> bool {
    let thread = &recording.threads[thread];
    thread.lives && thread.waiting.as_ref().is_some_and(|wait| recording.classes[wait.class].kind.is_lock())
}

#[cfg(test)]
mod tests {
    use super::*;
    use latchwork_recording::reader::{Class, Kind, Thread, Waiting};

    /// Threads with these numbers, each of which waits for a lock that another one holds, if that is not 0.
    fn recording(threads: &[(u32, Option<u32>)]) -> Recording {
        let thread = |(tid, held_by): &(u32, Option<u32>)| {
            let wait = |held_by| Waiting { class: 0, stack: 0, since: 0, held_by, holders: Vec::new() };
            let waiting = held_by.map(wait);
            Thread { tid: *tid, lives: true, waiting, ..Thread::default() }
        };
        let threads = threads.iter().map(thread).collect();
        Recording { threads, classes: vec![Class::new(Kind::Mutex)], ..Recording::default() }
    }

    fn kept(recording: &Recording) -> Kept {
        let mut kept = Kept::default();
        count(recording, &mut kept);
        kept
    }

    #[test]
    fn holders_tell_what_keeps_a_thread() {
        let circle = recording(&[(1, Some(2)), (2, Some(3)), (3, Some(1)), (4, Some(1)), (5, Some(4))]);
        assert_eq!(kept(&circle), Kept { in_circle: 3, behind: 2, ..Kept::default() });
        let of_main = recording(&[(1, None), (2, Some(1)), (3, Some(2)), (4, Some(0)), (5, Some(9))]);
        assert_eq!(kept(&of_main), Kept { by_running: 2, unknown: 2, ..Kept::default() });
        assert_eq!(kept(&recording(&[(1, Some(1))])), Kept { by_itself: 1, ..Kept::default() });
        let mut ended = recording(&[(1, None), (2, Some(1)), (3, Some(2))]);
        ended.threads[0].lives = false;
        assert_eq!(kept(&ended), Kept { by_ended: 1, behind: 1, ..Kept::default() });
        // A later thread has the number now.
        ended.threads.push(Thread { tid: 1, lives: true, started: 1, ..Thread::default() });
        assert_eq!(kept(&ended), Kept { by_running: 2, ..Kept::default() });
    }

    #[test]
    fn a_thread_waits_for_all_readers() {
        // The first waits to write, the second and the third read. The third waits for the mutex of the first.
        let mut readers = recording(&[(1, Some(0)), (2, None), (3, Some(1)), (4, Some(3))]);
        let wait = readers.threads[0].waiting.as_mut().unwrap();
        wait.holders = vec![1, 2];
        assert_eq!(kept(&readers), Kept { in_circle: 2, behind: 1, ..Kept::default() });
        // Without it, they only run.
        readers.threads[2].waiting = None;
        assert_eq!(kept(&readers), Kept { by_running: 2, ..Kept::default() });
        readers.threads[1].lives = false;
        assert_eq!(kept(&readers), Kept { by_ended: 1, by_running: 1, ..Kept::default() });
        // A reader waits to write.
        readers.threads[0].waiting.as_mut().unwrap().holders = vec![0, 2];
        assert_eq!(kept(&readers), Kept { by_itself: 1, by_running: 1, ..Kept::default() });
    }
}
