//! Threads that wait for each other since before they were observed.
//!
//! The recorder knows a wait that begins while it records. Of an earlier wait, the kernel says at which word the thread sleeps
//! (`/proc/PID/task/TID/syscall`), and glibc writes the holder beside that word: into a mutex, and into a reader-writer lock that a writer
//! holds. A thread that waits for the end of another one sleeps at a word with that thread's number. latchwork's own locks do not
//! name their holders.
//!
//! A thread that has not run between two looks has waited all that time. If all threads of a circle have not, they wait for each other.

use super::process::Process;
use crate::profile::symbols::{Module, Symbols};
use crate::profile::units::things;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Between the two looks.
const BETWEEN: Duration = Duration::from_millis(20);

/// The threads of a longer circle are counted.
const NAMED: usize = 4;

/// What a process says of the waits that have begun before.
#[derive(Clone, Debug, Default)]
pub struct Stuck {
    /// A sentence about threads that wait for each other.
    pub deadlock: Option<String>,
    /// Whether the kernel does not say where the threads sleep, because this process has no right to ask.
    pub refused: bool,
}

/// What a thread waits for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum For {
    /// The mutex or reader-writer lock at this address.
    Lock(u64),
    /// The end of the other thread.
    End,
}

/// A thread that waits for one other thread. Threads have the numbers that they have in the process's own container.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wait {
    thread: u32,
    name: String,
    what: For,
    holder: u32,
    /// How often the thread has lost or left its processor.
    switches: u64,
}

impl Stuck {
    /// Looks at the threads of the process.
    pub fn look(process: &Process) -> Self {
        let mut stuck = Self::default();
        let first = waits(process.pid, &mut stuck.refused);
        if circle(&first).is_empty() {
            return stuck;
        }
        thread::sleep(BETWEEN);
        let mut still = waits(process.pid, &mut stuck.refused);
        still.retain(|wait| first.contains(wait));
        let circle = circle(&still);
        if !circle.is_empty() {
            let modules = modules(process);
            let mut symbols = Symbols::default();
            let name = |address| match symbols.variable(&modules, address) {
                Some(variable) => variable.name,
                None => format!("the lock at {address:#x}"),
            };
            stuck.deadlock = Some(sentence(&circle, behind(&still, &circle), name));
        }
        stuck
    }
}

/// The threads that wait for one other thread each.
fn waits(pid: u32, refused: &mut bool) -> Vec<Wait> {
    let Ok(memory) = File::open(format!("/proc/{pid}/mem")) else {
        *refused = true;
        return Vec::new();
    };
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let threads: Vec<_> =
        entries.filter_map(|entry| Some((About::of(&entry.path())?, entry.path()))).collect();
    let lives: Vec<u32> = threads.iter().map(|(about, _)| about.number).collect();
    let mut waits = Vec::new();
    for (about, path) in threads {
        let call = match fs::read_to_string(path.join("syscall")) {
            Ok(call) => call,
            Err(error) => {
                *refused |= error.kind() == ErrorKind::PermissionDenied;
                continue;
            }
        };
        let word = |address: u64| {
            let mut bytes = [0; 4];
            memory.read_exact_at(&mut bytes, address).ok().map(|()| u32::from_ne_bytes(bytes))
        };
        if let Some((what, holder)) = waits_for(&call, word, &lives) {
            let About { number, name, switches } = about;
            waits.push(Wait { thread: number, name, what, holder, switches });
        }
    }
    waits
}

/// What the kernel says of a thread.
struct About {
    number: u32,
    name: String,
    switches: u64,
}

impl About {
    fn of(path: &Path) -> Option<Self> {
        let text = String::from_utf8_lossy(&fs::read(path.join("status")).ok()?).into_owned();
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let number = |name: &str| field(name)?.split_whitespace().next_back()?.parse::<u64>().ok();
        Some(Self {
            // The kernel lists the thread's number in each container around the thread's own one, and last in that one.
            number: number("NSpid").or_else(|| number("Pid"))?.try_into().ok()?,
            name: field("Name")?.trim().chars().filter(|char| !char.is_control()).collect(),
            switches: number("voluntary_ctxt_switches")?.wrapping_add(number("nonvoluntary_ctxt_switches")?),
        })
    }
}

/// What a thread in this system call waits for, and which thread keeps it waiting, if that is one of the process's. `word`
/// reads the process's memory.
fn waits_for(call: &str, word: impl Fn(u64) -> Option<u32>, lives: &[u32]) -> Option<(For, u32)> {
    const WAIT: u32 = libc::FUTEX_WAIT as u32;
    const WAIT_BITSET: u32 = libc::FUTEX_WAIT_BITSET as u32;
    const LOCK_PI: [u32; 2] = [libc::FUTEX_LOCK_PI as u32, 13];
    const PRIVATE: u32 = libc::FUTEX_PRIVATE_FLAG as u32;
    /// In a mutex of glibc's: a thread holds it, and others wait.
    const CONTENDED: u32 = 2;
    /// In the words of a reader-writer lock of glibc's at which threads sleep while a writer holds it.
    const WRITING: u32 = 3;
    let mut fields = call.split_whitespace();
    if fields.next()?.parse() != Ok(libc::SYS_futex) {
        return None;
    }
    let mut argument = || u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok();
    let (address, operation, value) = (argument()?, argument()? as u32, argument()? as u32);
    let is_private = operation & PRIVATE != 0;
    let operation = operation & !(PRIVATE | libc::FUTEX_CLOCK_REALTIME as u32);
    let known = |what: For, holder: u32| lives.contains(&holder).then_some((what, holder));
    // Priority-inheriting and robust mutexes have the holder in the word itself.
    let holder = |word: u32| word & libc::FUTEX_TID_MASK;
    if LOCK_PI.contains(&operation) {
        return known(For::Lock(address), holder(word(address)?));
    }
    if ![WAIT, WAIT_BITSET].contains(&operation) || word(address)? != value {
        return None;
    }
    match value {
        // `__owner` stands 8 bytes behind `__lock`.
        CONTENDED => known(For::Lock(address), word(address.checked_add(8)?)?),
        WRITING => {
            // `__wrphase_futex` and `__writers_futex` stand 8 and 12 bytes behind the beginning, `__cur_writer` 24.
            let lock = address.checked_sub(if address % 8 == 0 { 8 } else { 12 })?;
            known(For::Lock(lock), word(lock.checked_add(24)?)?)
        }
        value if value & libc::FUTEX_WAITERS != 0 => known(For::Lock(address), holder(value)),
        // The kernel clears the number of a thread when the thread ends, and wakes those that wait for that.
        value if !is_private => known(For::End, value),
        _ => None,
    }
}

/// A circle of threads each of which waits for the next one; none: there is no circle.
fn circle(waits: &[Wait]) -> Vec<Wait> {
    let of: HashMap<u32, &Wait> = waits.iter().map(|wait| (wait.thread, wait)).collect();
    for first in waits {
        let mut circle = vec![first.clone()];
        while let Some(next) = of.get(&circle[circle.len() - 1].holder) {
            if next.thread == first.thread {
                return circle;
            }
            // It leads into a circle that this thread is no part of.
            if circle.len() > waits.len() {
                break;
            }
            circle.push((*next).clone());
        }
    }
    Vec::new()
}

/// How many other threads wait for the threads of the circle, or for those that do.
fn behind(waits: &[Wait], circle: &[Wait]) -> usize {
    let mut stuck: Vec<u32> = circle.iter().map(|wait| wait.thread).collect();
    loop {
        let before = stuck.len();
        let more = waits.iter().filter(|wait| stuck.contains(&wait.holder) && !stuck.contains(&wait.thread));
        let more: Vec<u32> = more.map(|wait| wait.thread).collect();
        stuck.extend(more);
        if stuck.len() == before {
            return stuck.len() - circle.len();
        }
    }
}

/// What is said of the circle. `name` names the lock at an address.
fn sentence(circle: &[Wait], behind: usize, mut name: impl FnMut(u64) -> String) -> String {
    let waits = match circle.len() {
        1 => "a thread waited for a lock that it held itself".into(),
        many => format!("{many} threads waited for each other"),
    };
    let mut each = Vec::new();
    for wait in circle.iter().take(NAMED) {
        let Wait { thread, name: called, holder, .. } = wait;
        each.push(match wait.what {
            For::Lock(address) => {
                format!("thread {thread} ({called}) waits for {}, which thread {holder} holds", name(address))
            }
            For::End => format!("thread {thread} ({called}) waits for the end of thread {holder}"),
        });
    }
    if circle.len() > NAMED {
        each.push(format!("and {} more", circle.len() - NAMED));
    }
    let behind = match behind {
        0 => String::new(),
        1 => " 1 more thread waited behind these.".into(),
        many => format!(" {} waited behind these.", things(many as u64, "more thread")),
    };
    format!("When the recording began, {waits}, a deadlock: {}.{behind}", each.join("; "))
}

/// The files that the process has mapped.
fn modules(process: &Process) -> Vec<Module> {
    let maps = process.maps().unwrap_or_default();
    let root = process.root();
    let mut modules: Vec<Module> = Vec::new();
    for line in maps.lines() {
        let mut fields = line.split_whitespace();
        let Some((start, end)) = fields.next().and_then(|range| range.split_once('-')) else { continue };
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (Some(start), Some(end)) = (number(start), number(end)) else { continue };
        let is_first = fields.nth(1).and_then(number) == Some(0);
        // A name may have spaces.
        let path = line.find('/').map(|begin| &line[begin..]);
        match (path, modules.last_mut()) {
            // The data that is 0 at first has no file.
            (None, Some(last)) if last.end == start && !line.ends_with(']') => last.end = end,
            (Some(path), Some(last)) if last.path.ends_with(&path[1..]) => last.end = end,
            (Some(path), _) if is_first => {
                let path = root.join(&path[1..]);
                let bias = if is_position_independent(&path) { start } else { 0 };
                modules.push(Module { path, build_id: Vec::new(), start, end, bias });
            }
            _ => {}
        }
    }
    modules
}

/// Whether the addresses in this file count from where it is loaded.
fn is_position_independent(path: &Path) -> bool {
    /// `e_type` and its value, `ET_DYN`.
    const TYPE: (u64, [u8; 2]) = (16, 3_u16.to_ne_bytes());
    let mut found = [0; 2];
    let read = |file: File| file.read_exact_at(&mut found, TYPE.0).is_ok();
    // A device may have no end, and a pipe no writer.
    fs::metadata(path).is_ok_and(|found| found.is_file())
        && File::open(path).is_ok_and(read)
        && found == TYPE.1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(thread: u32, holder: u32) -> Wait {
        let what = if thread == 9 { For::End } else { For::Lock(u64::from(holder) * 0x100) };
        Wait { thread, name: format!("t{thread}"), what, holder, switches: 7 }
    }

    fn said(waits: &[(u32, u32)]) -> Option<String> {
        let waits: Vec<Wait> = waits.iter().map(|(thread, holder)| wait(*thread, *holder)).collect();
        let circle = circle(&waits);
        let name = |address: u64| format!("lock{}", address / 0x100);
        (!circle.is_empty()).then(|| sentence(&circle, behind(&waits, &circle), name))
    }

    #[test]
    fn a_circle_is_told_from_a_queue() {
        assert_eq!(said(&[]), None);
        assert_eq!(said(&[(1, 2), (2, 3), (4, 3)]), None);
        let two = "When the recording began, 2 threads waited for each other, a deadlock: thread 2 (t2) waits for lock3, which thread 3 \
                   holds; thread 3 (t3) waits for lock2, which thread 2 holds. 2 more threads waited behind these.";
        assert_eq!(said(&[(1, 2), (2, 3), (3, 2), (4, 1)]).as_deref(), Some(two));
        let itself = "When the recording began, a thread waited for a lock that it held itself, a deadlock: thread 5 (t5) waits for \
                      lock5, which thread 5 holds. 1 more thread waited behind these.";
        assert_eq!(said(&[(6, 5), (5, 5)]).as_deref(), Some(itself));
        assert!(
            said(&[(9, 8), (8, 9)])
                .is_some_and(|text| text.contains("thread 9 (t9) waits for the end of thread 8"))
        );
        let many = said(&[(1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 1)]).expect("a circle");
        assert!(
            many.contains("6 threads") && many.contains("and 2 more") && !many.contains("lock1"),
            "{many}"
        );
    }

    #[test]
    fn the_kernel_says_what_a_thread_waits_for() {
        let lives = [70, 71];
        let memory = |words: &'static [(u64, u32)]| {
            move |at: u64| words.iter().find(|(address, _)| *address == at).map(|(_, word)| *word)
        };
        let call = |operation: u32, value: u32| {
            format!("{} 0x1000 {operation:#x} {value:#x} 0x0 0x0 0x0 0x7ffc 0x7f00\n", libc::SYS_futex)
        };
        let mutex = memory(&[(0x1000, 2), (0x1008, 71)]);
        assert_eq!(waits_for(&call(128, 2), mutex, &lives), Some((For::Lock(0x1000), 71)));
        // The word has changed, or the holder is not known: what looks like one is no thread.
        for words in [&[(0x1000, 1), (0x1008, 71)], &[(0x1000, 2), (0x1008, 0)], &[(0x1000, 2), (0x1008, 72)]]
        {
            assert_eq!(waits_for(&call(128, 2), memory(words), &lives), None);
        }
        let rwlock = memory(&[(0x1000, 3), (0x1010, 70)]);
        assert_eq!(waits_for(&call(0x189, 3), rwlock, &lives), Some((For::Lock(0xff8), 70)));
        let inheriting = memory(&[(0x1000, 0x8000_0047)]);
        assert_eq!(waits_for(&call(0x86, 0), inheriting, &lives), Some((For::Lock(0x1000), 71)));
        assert_eq!(waits_for(&call(0x80, 0x8000_0047), inheriting, &lives), Some((For::Lock(0x1000), 71)));
        let thread = memory(&[(0x1000, 70)]);
        assert_eq!(waits_for(&call(0x109, 70), thread, &lives), Some((For::End, 70)));
        // A condition variable's words have small numbers, too.
        assert_eq!(waits_for(&call(0x189, 70), thread, &lives), None);
        for other in ["running", "", "0 0x3 0x1 0x2", "-1 0x7ffc 0x7f00"] {
            assert_eq!(waits_for(other, thread, &lives), None);
        }
    }
}
