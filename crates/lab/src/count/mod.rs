//! `latchwork-lab count`: what the simulator counts of every lock, beside what the registry says of it.

mod simulated;

use crate::generated;
use clap::Args;
use comfy_table::{Row, Table};
use latchwork::registry::{Entry, Kind};
use latchwork_console::failure::Result;
use latchwork_console::{names, output, table};
use serde::Serialize;
use simulated::CROWD;
use std::path::PathBuf;

/// Before the examples in `latchwork-lab count --help`.
pub const HELP: &str = "\
Examples:
  latchwork-lab count                 atomic instructions and bytes of queue nodes of every lock
  latchwork-lab count --paper         beside Table 1 of the ShflLock paper
  latchwork-lab count --markdown count.md";

/// Options of `latchwork-lab count`.
#[derive(Args)]
pub struct Options {
    /// Print a JSON array instead of a table
    #[arg(long)]
    json: bool,
    /// Compare with Table 1 of the ShflLock paper, where it has the lock
    #[arg(long, conflicts_with = "json")]
    paper: bool,
    /// Write the table as Markdown to FILE as well
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    markdown: Option<PathBuf>,
}

/// A column of Table 1 of Kashyap et al., SOSP 2019: bytes, and atomic instructions per acquire and release
/// without and with contention.
#[derive(Copy, Clone, Serialize)]
struct Paper {
    name: &'static str,
    bytes: u32,
    waiter_bytes: u32,
    holder_bytes: u32,
    atomics: u32,
    /// Nothing: without a bound.
    contended_atomics: Option<u32>,
}

/// What the paper calls a lock, if it is in its table.
fn paper(name: &str) -> Option<Paper> {
    let (paper, [bytes, waiter_bytes, holder_bytes], atomics, contended_atomics) = match name {
        "tas" => ("TAS", [1, 0, 0], 1, None),
        "mcs" => ("MCS", [8, 12, 12], 2, Some(1)),
        "c-bo-mcs" => ("Cohort", [1152, 24, 24], 4, Some(2)),
        "cna" => ("CNA", [8, 28, 28], 2, Some(2)),
        "hybrid" => ("mutex", [40, 32, 0], 1, Some(4)),
        "cst" => ("CST", [1056, 24, 0], 6, Some(3)),
        "shfl" | "shfl-spin" => ("ShflLock", [12, 28, 0], 1, Some(2)),
        _ => return None,
    };
    Some(Paper { name: paper, bytes, waiter_bytes, holder_bytes, atomics, contended_atomics })
}

/// A lock, with what it says of itself (`atomics`, `waiter_bytes`, `holder_bytes`) and what was counted.
#[derive(Serialize)]
struct Lock {
    name: &'static str,
    kind: &'static str,
    bytes: usize,
    waiter_bytes: usize,
    holder_bytes: usize,
    atomics: u32,
    counted_atomics: f64,
    contended_atomics: f64,
    counted_waiter_bytes: usize,
    counted_holder_bytes: usize,
    paper: Option<Paper>,
}

/// Prints the counts.
pub fn count(options: &Options) -> Result<()> {
    if let Some(path) = &options.markdown {
        output::check("--markdown", path)?;
    }
    let counted = simulated::all()?;
    let lock = |Entry { kind, info, bytes }: Entry| {
        let count = counted.iter().find(|count| (count.kind, count.name) == (kind, info.name));
        let count = count.expect("both from the registry");
        Lock {
            name: info.name,
            kind: kind.name(),
            bytes,
            waiter_bytes: info.waiter_bytes,
            holder_bytes: info.holder_bytes,
            atomics: info.atomics,
            counted_atomics: count.alone,
            contended_atomics: count.contended,
            counted_waiter_bytes: count.waiter_bytes,
            counted_holder_bytes: count.holder_bytes,
            paper: paper(info.name).filter(|_| kind == Kind::Mutex),
        }
    };
    let mut locks: Vec<Lock> = names::registered().into_iter().map(&lock).collect();
    let semaphore = lock(names::semaphore());
    locks.push(Lock { kind: "semaphore", ..semaphore });
    if options.json {
        return output::print(&(serde_json::to_string_pretty(&locks).expect("plain data") + "\n"));
    }
    let (table, legend) = if options.paper { beside_the_paper(&locks) } else { beside_the_registry(&locks) };
    output::print(&format!("{}\n\n{legend}", table.trim_fmt()))?;
    if let Some(path) = &options.markdown {
        let machine = format!("{} (simulated)", simulated::MACHINE);
        output::write("--markdown", path, &(generated::head(&machine) + &markdown(&table, &legend)))?;
    }
    Ok(())
}

/// The table as Markdown, with the legend below.
fn markdown(table: &Table, legend: &str) -> String {
    let cells = |row: &Row| -> Vec<String> { row.cell_iter().map(|cell| cell.content()).collect() };
    let head = table.header().map_or_else(Vec::new, cells);
    let mut text = table::markdown_head(&head, |column| column >= 2);
    table.row_iter().for_each(|row| text += &table::markdown_row(&cells(row)));
    format!("{text}\n{legend}")
}

/// The table of all locks, and its legend.
fn beside_the_registry(locks: &[Lock]) -> (Table, String) {
    let mut table =
        table::new(["name", "kind", "bytes", "waiter", "holder", "atomics", "contended", "declared atomics"]);
    for lock in locks {
        table.add_row([
            lock.name.to_owned(),
            lock.kind.to_owned(),
            lock.bytes.to_string(),
            lock.counted_waiter_bytes.to_string(),
            lock.counted_holder_bytes.to_string(),
            format!("{:.1}", lock.counted_atomics),
            format!("{:.1}", lock.contended_atomics),
            lock.atomics.to_string(),
        ]);
    }
    table::right(&mut table, 2..=7);
    let legend = format!(
        "bytes: of a lock; waiter, holder: bytes of queue nodes beside it, counted by the simulator\n\
         atomics: atomic read-modify-writes per uncontended acquire and release (rwlock, seqlock: of a read),\n    \
         counted by the simulator; contended: the same for {CROWD} threads on 8 sockets\n"
    );
    (table, legend)
}

/// The locks of Table 1 of the ShflLock paper, here and there, and the table's legend.
fn beside_the_paper(locks: &[Lock]) -> (Table, String) {
    let heads = ["bytes", "waiter", "holder", "atomics", "contended"];
    let mut table = table::new(
        ["name", "paper"]
            .into_iter()
            .map(str::to_owned)
            .chain(["here", "paper"].iter().flat_map(|whose| heads.map(|head| format!("{head}, {whose}")))),
    );
    for (lock, paper) in locks.iter().filter_map(|lock| Some((lock, lock.paper?))) {
        table.add_row([
            lock.name.to_owned(),
            paper.name.to_owned(),
            lock.bytes.to_string(),
            lock.counted_waiter_bytes.to_string(),
            lock.counted_holder_bytes.to_string(),
            format!("{:.1}", lock.counted_atomics),
            format!("{:.1}", lock.contended_atomics),
            paper.bytes.to_string(),
            paper.waiter_bytes.to_string(),
            paper.holder_bytes.to_string(),
            paper.atomics.to_string(),
            paper.contended_atomics.map_or("no bound".into(), |atomics| atomics.to_string()),
        ]);
    }
    table::right(&mut table, 2..=11);
    let legend = "\
         here: as in latchwork-lab count; cst without its 128 bytes for each NUMA node in use.\n\
         paper: Kashyap et al. 2019 (ShflLock), table 1, on eight sockets; it counts the fields of a node, which\n    \
         here is a cache line of 64 bytes; of CST, what it says of holders is that they keep no node.\n"
        .to_owned();
    (table, legend)
}
