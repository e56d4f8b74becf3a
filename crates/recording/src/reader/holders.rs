//! Which threads hold the locks for which others wait, as their tables say.
//!
//! A thread's table has an entry for each lock that it used lately, and the entry says whether the thread holds the lock. A thread
//! that holds a lock may have no entry for it any more, or may have acquired the lock before the recording: then its holder is not
//! known.

use super::bytes::get;
use super::file::Reader;
use super::sums::Threads;
use crate::layout::{self, Entry, NONE, READY};
use std::collections::HashMap;
use std::mem::offset_of;

/// How the entry of a lock says that its thread holds it.
#[derive(Copy, Clone)]
pub(super) enum Held {
    /// The entry's depth is not 0. The lock may have several holders.
    ByDepth,
    /// See [`Entry::holds`]. The lock has one holder.
    ByStamp,
}

/// Finds the holders of the locks for which threads wait. `held` says how the entries for a class are to be read; `None`: they do not say
/// it.
pub(super) fn find(reader: &Reader, threads: &mut Threads, held: impl Fn(usize) -> Option<Held>) {
    // The locks for which threads wait: their addresses, and the low bytes of their serial numbers.
    let mut waited_for = HashMap::new();
    let of = |thread: usize| threads.list[thread].waiting.as_ref().map(|waiting| waiting.class);
    for (number, thread) in &threads.numbers {
        let record = reader.records(layout::THREADS).nth(*number as usize).expect("the thread has a record");
        if let Some(held) = of(*thread).and_then(&held)
            && let Some(object) = waits_for(record)
            && let Some(lock) = reader.records(layout::OBJECTS).nth(object as usize)
            && get!(lock, layout::Object, state, u32) == READY
        {
            let identity =
                (get!(lock, layout::Object, address, u64), get!(lock, layout::Object, serial, u32) as u8);
            waited_for.entry((object, identity)).or_insert((held, Vec::new())).1.push(*thread);
        }
    }
    if waited_for.is_empty() {
        return;
    }
    let mut holders: HashMap<_, Vec<usize>> = HashMap::new();
    for (table, thread) in tables(reader, threads) {
        for entry in entries(reader, table) {
            let identity = (get!(entry, Entry, address, u64), entry[offset_of!(Entry, serial)]);
            let key = (get!(entry, Entry, object, u32), identity);
            if let Some((held, _)) = waited_for.get(&key)
                && holds(entry, *held)
            {
                holders.entry(key).or_default().push(thread);
            }
        }
    }
    for (key, (held, waiting)) in waited_for {
        let mut holders = holders.remove(&key).unwrap_or_default();
        // If another thread has unlocked the mutex of a thread, the table of that thread still says that it holds the mutex.
        if matches!(held, Held::ByStamp) && holders.len() > 1 {
            continue;
        }
        holders.sort_unstable();
        for thread in waiting {
            if let Some(waiting) = &mut threads.list[thread].waiting {
                waiting.holders = holders.clone();
            }
        }
    }
}

/// The object for which a thread waits, which waits for a lock.
fn waits_for(thread: &[u8]) -> Option<u32> {
    let pending = &thread[offset_of!(layout::Thread, pending)..];
    let object = get!(pending, layout::Pending, object, u32);
    (get!(pending, layout::Pending, class, u32) == 0 && object != NONE).then_some(object)
}

/// Which thread has each table: the number of the table and that of its extension, each plus one.
fn tables(reader: &Reader, threads: &Threads) -> Vec<((u16, u16), usize)> {
    let mut tables = HashMap::new();
    for (number, record) in reader.records(layout::THREADS).enumerate() {
        let pending = &record[offset_of!(layout::Thread, pending)..];
        let both = get!(pending, layout::Pending, tables, u32);
        // A later thread may have the table of one that has ended.
        if let Some(thread) = threads.numbers.get(&(number as u32))
            && both as u16 != 0
        {
            tables.insert(both as u16, ((both >> u16::BITS) as u16, *thread));
        }
    }
    tables.into_iter().map(|(table, (more, thread))| ((table, more), thread)).collect()
}

/// The entries that are in use.
fn entries(reader: &Reader, (table, more): (u16, u16)) -> impl Iterator<Item = &[u8]> {
    let record = |section, number: u16| {
        number.checked_sub(1).and_then(|number| reader.records(section).nth(usize::from(number)))
    };
    let table = record(layout::TABLES, table).map(|table| &table[..offset_of!(layout::Table, tallies)]);
    let all = table.into_iter().chain(record(layout::MORE, more));
    all.flat_map(|entries| entries.chunks_exact(size_of::<Entry>()))
        .filter(|entry| get!(entry, Entry, address, u64) != 0)
}

fn holds(entry: &[u8], held: Held) -> bool {
    let depth = entry[offset_of!(Entry, depth)];
    match held {
        Held::ByDepth => depth != 0,
        Held::ByStamp => Entry::holds(
            depth,
            entry[offset_of!(Entry, open)],
            entry[offset_of!(Entry, weight)],
            get!(entry, Entry, acquisitions, u64),
        ),
    }
}
