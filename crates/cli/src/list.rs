//! `latchwork list`: every algorithm, from the registry.

use crate::count::{self, Atomics};
use crate::failure::Result;
use crate::names;
use clap::Args;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use console::Term;
use latchwork::registry::{Entry, Kind};
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
    /// Counted by the simulator.
    counted_atomics: f64,
    contended_atomics: f64,
    blocking: bool,
    fairness: &'static str,
    source: &'static str,
}

impl Lock {
    fn new(Entry { kind, info, bytes }: Entry, counted: &Atomics) -> Self {
        Self {
            name: info.name,
            kind: match kind {
                Kind::Mutex => "mutex",
                Kind::RwLock => "rwlock",
            },
            summary: info.summary,
            bytes,
            waiter_bytes: info.waiter_bytes,
            holder_bytes: info.holder_bytes,
            atomics: info.atomics,
            counted_atomics: counted.alone,
            contended_atomics: counted.contended,
            blocking: info.blocking,
            fairness: info.fairness,
            source: info.source,
        }
    }
}

/// Prints the list.
pub fn list(options: &Options) -> Result<()> {
    let counted = count::all()?;
    let lock = |entry: Entry| {
        let count = counted.iter().find(|c| (c.kind, c.name) == (entry.kind, entry.info.name));
        Lock::new(entry, count.expect("both from the registry"))
    };
    let locks: Vec<Lock> = names::registered().into_iter().map(lock).collect();
    if options.json {
        println!("{}", serde_json::to_string_pretty(&locks).expect("plain data"));
        return Ok(());
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    // Without a terminal, one line per lock, however long: that is what grep wants.
    table.set_width(Term::stdout().size_checked().map_or(400, |(_, columns)| columns.max(80)));
    table.set_header([
        "name",
        "kind",
        "bytes",
        "waiter",
        "holder",
        "atomics",
        "contended",
        "waiters",
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
            format!("{:.1}", lock.counted_atomics),
            format!("{:.1}", lock.contended_atomics),
            if lock.blocking { "sleep" } else { "spin" }.to_owned(),
            lock.fairness.to_owned(),
            lock.source.to_owned(),
        ]);
    }
    for column in 2..=6 {
        table.column_mut(column).expect("ten columns").set_cell_alignment(CellAlignment::Right);
    }
    println!("{}", table.trim_fmt());
    println!();
    println!("bytes: of a lock, and beside it of each waiter and holder");
    println!(
        "atomics: atomic read-modify-writes per uncontended acquire and release (rwlock: of a read), as the"
    );
    println!("    simulator counts them; contended: likewise, of {} threads on 8 sockets", count::CROWD);
    println!("waiters: whether they sleep after a bounded spin, or spin until they have the lock");
    println!("The C library's own locks are called {} in --mutex and --rwlock.", names::GLIBC);
    Ok(())
}
