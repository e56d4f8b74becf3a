//! `latchwork list`: every algorithm, from the registry, and the locks that only the preloaded library has.

use clap::Args;
use comfy_table::{ColumnConstraint, ContentArrangement, Table, Width};
use latchwork::reclaim;
use latchwork::registry::Entry;
use latchwork_console::failure::Result;
use latchwork_console::output::print;
use latchwork_console::{names, table};
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
bytes: of a lock; waiter, holder: bytes of the queue nodes that each of them
    occupies beside it
atomics: atomic read-modify-writes of an uncontended acquire and release
    (rwlock, seqlock: of a read)
waiters: they sleep after a bounded spin, or they spin until they have the lock
suspended: if one waiter stops for ever (in a debugger, a signal handler, a
    frozen control group), the lock tolerates it and the other threads still
    get the lock, or the waiter blocks some of them";

/// Below that, on a narrow terminal.
const OMITTED: &str = "\
This terminal is too narrow for the columns fairness and source: use a wider
one, or latchwork list --json.

";

/// Characters that a column of sentences needs, to be read and not to make a line of the table many lines.
const TEXT: u16 = 40;

/// Width of a table without a terminal: each lock is one line, so that grep finds all of it.
const LONGEST: u16 = 400;

/// A table without lines between its columns, of this width. The last `texts` columns are sentences, which are broken between
/// words; where they would be too narrow, the last `optional` columns are left out. Returns whether they were.
fn table<const N: usize>(
    width: u16,
    header: [&str; N],
    rows: &[[String; N]],
    texts: usize,
    optional: usize,
) -> (Table, bool) {
    let words = N - texts;
    let longest = |column: usize, of: &dyn Fn(&str) -> usize| {
        let cells = rows.iter().map(|row| row[column].as_str()).chain([header[column]]);
        cells.map(of).max().unwrap_or(0) as u16
    };
    // A space on both sides of each.
    let taken: u16 = (0..words).map(|column| longest(column, &str::len) + 2).sum();
    let room = width.saturating_sub(taken) / texts.max(1) as u16;
    let omits = room < TEXT + 2;
    let shown = if omits { N - optional } else { N };
    let mut table = table::new(&header[..shown]);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(width);
    for row in rows {
        table.add_row(&row[..shown]);
    }
    for column in 0..shown {
        let longest_word = |text: &str| text.split(' ').map(str::len).max().unwrap_or(0);
        let least = if column < words { longest(column, &str::len) } else { longest(column, &longest_word) };
        let column = table.column_mut(column).expect("a column that is shown");
        if omits {
            column.set_padding((0, 1));
        }
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(least + 2 - u16::from(omits))));
    }
    (table, omits)
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
    let header = [
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
    ];
    let row = |lock: &Lock| {
        [
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
        ]
    };
    let rows: Vec<_> = locks.iter().map(row).collect();
    let (mut table, omits) = table(table::columns(LONGEST), header, &rows, 2, 2);
    table::right(&mut table, 2..=5);
    print(&format!(
        "{}\n\n{LEGEND}\nThe C library's own locks are called {} in --mutex and --rwlock.\n\n\
         {}Reading without locks, for programs that use the library (latchwork::reclaim):\n\n{}\n\n\
         atomics: of a reader, per pointer\ngarbage: removed memory that waits to be reclaimed\n",
        table.trim_fmt(),
        names::GLIBC,
        if omits { OMITTED } else { "" },
        strategies().trim_fmt()
    ))
}

fn strategies() -> Table {
    let header = ["name", "atomics", "a reader pays", "garbage is bounded by", "source"];
    let row = |reclaim::Info { name, reader, atomics, bound, source, .. }| {
        [name, &atomics.to_string(), reader, bound, source].map(str::to_owned)
    };
    let (mut table, _) = table(table::columns(LONGEST), header, &reclaim::STRATEGIES.map(row), 3, 1);
    table::right(&mut table, [1]);
    table
}
