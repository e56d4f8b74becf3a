//! `latchwork list`: every algorithm, from the registry, and the locks that only the preloaded library has.

use clap::Args;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use console::Term;
use latchwork::reclaim;
use latchwork::registry::Entry;
use latchwork_console::failure::Result;
use latchwork_console::names;
use latchwork_console::output::print;
use serde::Serialize;

/// Options of `latchwork list`.
#[derive(Args)]
pub struct Options {
    /// Print a JSON array instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Lock {
    name: &'static str,
    kind: &'static str,
    summary: &'static str,
    bytes: usize,
    waiter_bytes: usize,
    holder_bytes: usize,
    atomics: u32,
    blocking: bool,
    suspension: &'static str,
    fairness: &'static str,
    source: &'static str,
}

impl From<Entry> for Lock {
    fn from(Entry { kind, info, bytes }: Entry) -> Self {
        Self {
            name: info.name,
            kind: kind.name(),
            summary: info.summary,
            bytes,
            waiter_bytes: info.waiter_bytes,
            holder_bytes: info.holder_bytes,
            atomics: info.atomics,
            blocking: info.blocking,
            suspension: info.suspension.name(),
            fairness: info.fairness,
            source: info.source,
        }
    }
}

/// A reclamation strategy.
#[derive(Serialize)]
struct Strategy {
    name: &'static str,
    kind: &'static str,
    summary: &'static str,
    atomics: u32,
    reader: &'static str,
    bound: &'static str,
    source: &'static str,
}

impl From<reclaim::Info> for Strategy {
    fn from(info: reclaim::Info) -> Self {
        let reclaim::Info { name, summary, reader, atomics, bound, source } = info;
        Self { name, kind: "reclamation", summary, atomics, reader, bound, source }
    }
}

/// In the order of the library, after the locks.
#[derive(Serialize)]
#[serde(untagged)]
enum Line<'a> {
    Lock(&'a Lock),
    Strategy(Strategy),
}

/// Below the table of locks.
const LEGEND: &str = "\
bytes: of a lock; waiter, holder: bytes of the queue nodes that each of them occupies beside it
atomics: atomic read-modify-writes of an uncontended acquire and release (rwlock, seqlock: of a read)
waiters: they sleep after a bounded spin, or they spin until they have the lock
suspended: if one waiter stops for ever (in a debugger, a signal handler, a frozen control group), the lock
    tolerates it and the other threads still get the lock, or the waiter blocks some of them";

/// A table without lines between its columns, as wide as the terminal.
fn table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    // Without a terminal, each lock is one line, however long, so that grep finds all of it.
    table.set_width(Term::stdout().size_checked().map_or(400, |(_, columns)| columns.max(80)));
    table
}

/// Prints the list.
pub fn list(options: &Options) -> Result<()> {
    let mut locks: Vec<Lock> = names::runnable().into_iter().map(Lock::from).collect();
    let semaphore = Lock::from(names::semaphore());
    locks.push(Lock { kind: "semaphore", ..semaphore });
    if options.json {
        let strategies = reclaim::STRATEGIES.map(|info| Line::Strategy(info.into()));
        let all: Vec<_> = locks.iter().map(Line::Lock).chain(strategies).collect();
        return print(&(serde_json::to_string_pretty(&all).expect("plain data") + "\n"));
    }
    let mut table = table();
    table.set_header([
        "name",
        "kind",
        "bytes",
        "waiter",
        "holder",
        "atomics",
        "waiters",
        "suspended",
        "fairness",
        "source",
    ]);
    for lock in &locks {
        table.add_row([
            lock.name.to_owned(),
            lock.kind.to_owned(),
            lock.bytes.to_string(),
            lock.waiter_bytes.to_string(),
            lock.holder_bytes.to_string(),
            lock.atomics.to_string(),
            if lock.blocking { "sleep" } else { "spin" }.to_owned(),
            lock.suspension.to_owned(),
            lock.fairness.to_owned(),
            lock.source.to_owned(),
        ]);
    }
    for column in 2..=5 {
        table.column_mut(column).expect("ten columns").set_cell_alignment(CellAlignment::Right);
    }
    print(&format!(
        "{}\n\n{LEGEND}\nThe C library's own locks are called {} in --mutex and --rwlock.\n\n\
         Reading without locks, for programs that use the library (latchwork::reclaim):\n\n{}\n\n\
         atomics: of a reader, per pointer; garbage: removed memory that waits to be reclaimed\n",
        table.trim_fmt(),
        names::GLIBC,
        strategies().trim_fmt()
    ))
}

fn strategies() -> Table {
    let mut table = table();
    table.set_header(["name", "atomics", "a reader pays", "garbage is bounded by", "source"]);
    for reclaim::Info { name, reader, atomics, bound, source, .. } in reclaim::STRATEGIES {
        table.add_row([name, &atomics.to_string(), reader, bound, source]);
    }
    table.column_mut(1).expect("five columns").set_cell_alignment(CellAlignment::Right);
    table
}
