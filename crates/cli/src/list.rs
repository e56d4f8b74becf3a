//! `latchwork list`: every algorithm, from the registry.

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
    blocking: bool,
    fairness: &'static str,
    source: &'static str,
}

impl From<Entry> for Lock {
    fn from(Entry { kind, info, bytes }: Entry) -> Self {
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
            blocking: info.blocking,
            fairness: info.fairness,
            source: info.source,
        }
    }
}

/// Prints the list.
pub fn list(options: &Options) -> Result<()> {
    let locks: Vec<Lock> = names::registered().into_iter().map(Lock::from).collect();
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
        "name", "kind", "bytes", "waiter", "holder", "atomics", "waiters", "fairness", "source",
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
            lock.fairness.to_owned(),
            lock.source.to_owned(),
        ]);
    }
    for column in 2..=5 {
        table.column_mut(column).expect("nine columns").set_cell_alignment(CellAlignment::Right);
    }
    println!("{}", table.trim_fmt());
    println!();
    println!("bytes: of a lock, and beside it of each waiter and holder");
    println!("atomics: atomic read-modify-writes per uncontended acquire and release (rwlock: of a read)");
    println!("waiters: whether they sleep after a bounded spin, or spin until they have the lock");
    println!("The C library's own locks are called {} in --mutex and --rwlock.", names::GLIBC);
    Ok(())
}
