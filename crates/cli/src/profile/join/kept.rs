//! What kept the threads waiting that waited for locks when the recording ended.
//!
//! A deadlock is only what the holders of the locks show: a circle of threads, each of which waits for a lock that the next one
//! holds. A thread that holds a lock and calls `exit` keeps others waiting for ever, too, but that is the program's end.

use super::super::model::Kept;
use latchwork_recording::reader::Recording;
use std::collections::HashMap;

/// The end of a way from a waiting thread to the holder of its lock, to the holder of that one's lock, and so on.
enum End {
    /// The way comes back to this thread.
    Circle(usize),
    /// The holder has ended.
    Ended,
    /// The holder waits for no lock.
    Runs,
    Unknown,
}

/// Adds the threads of a recording.
pub fn count(recording: &Recording, kept: &mut Kept) {
    let by_number = by_number(recording);
    for thread in 0..recording.threads.len() {
        if !waits_for_lock(recording, thread) {
            continue;
        }
        let (way, end) = follow(recording, &by_number, thread);
        let number = match end {
            End::Circle(back) if back == thread && way == 1 => &mut kept.by_itself,
            End::Circle(back) if back == thread => &mut kept.in_circle,
            End::Ended if way == 1 => &mut kept.by_ended,
            End::Circle(_) | End::Ended => &mut kept.behind,
            End::Runs => &mut kept.by_running,
            End::Unknown => &mut kept.unknown,
        };
        *number += 1;
    }
}

/// How many holders there are on the way from a waiting thread, and where the way ends.
fn follow(recording: &Recording, by_number: &HashMap<u32, usize>, from: usize) -> (usize, End) {
    let (mut thread, mut way) = (from, vec![from]);
    loop {
        let holder = recording.threads[thread].waiting.as_ref().map_or(0, |wait| wait.held_by);
        let Some(&holder) = by_number.get(&holder) else { return (way.len(), End::Unknown) };
        match &recording.threads[holder] {
            _ if way.contains(&holder) => return (way.len(), End::Circle(holder)),
            ended if !ended.lives => return (way.len(), End::Ended),
            _ if !waits_for_lock(recording, holder) => return (way.len(), End::Runs),
            _ => (),
        }
        way.push(holder);
        thread = holder;
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
            let waiting = held_by.map(|held_by| Waiting { class: 0, stack: 0, since: 0, held_by });
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
}
