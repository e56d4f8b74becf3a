//! `latchwork list`: every algorithm, from the registry.

use crate::count::{self, Counted};
use crate::failure::Result;
use crate::names;
use clap::Args;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use console::Term;
use latchwork::locks::mutex::RawMutex;
use latchwork::locks::semaphore::{Semaphore, Unit};
use latchwork::machine::Native;
use latchwork::reclaim;
use latchwork::registry::{Entry, Kind};
use serde::Serialize;

/// Options of `latchwork list`.
#[derive(Args)]
pub struct Options {
    /// Print a JSON array instead of a table
    #[arg(long)]
    json: bool,
    /// Compare with Table 1 of the ShflLock paper, where it has the lock
    #[arg(long, conflicts_with = "json")]
    paper: bool,
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
    /// Likewise.
    counted_waiter_bytes: usize,
    counted_holder_bytes: usize,
    paper: Option<Paper>,
    blocking: bool,
    suspension: &'static str,
    fairness: &'static str,
    source: &'static str,
}

impl Lock {
    fn new(Entry { kind, info, bytes }: Entry, counted: &Counted) -> Self {
        Self {
            name: info.name,
            kind: kind.name(),
            summary: info.summary,
            bytes,
            waiter_bytes: info.waiter_bytes,
            holder_bytes: info.holder_bytes,
            atomics: info.atomics,
            counted_atomics: counted.alone,
            contended_atomics: counted.contended,
            counted_waiter_bytes: counted.waiter_bytes,
            counted_holder_bytes: counted.holder_bytes,
            paper: paper(info.name).filter(|_| kind == Kind::Mutex),
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

/// A table without lines between its columns, as wide as the terminal.
fn table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    // Without a terminal, one line per lock, however long: that is what grep wants.
    table.set_width(Term::stdout().size_checked().map_or(400, |(_, columns)| columns.max(80)));
    table
}

/// Prints the list.
pub fn list(options: &Options) -> Result<()> {
    let counted = count::all()?;
    let lock = |entry: Entry| {
        let count = counted.iter().find(|c| (c.kind, c.name) == (entry.kind, entry.info.name));
        Lock::new(entry, count.expect("both from the registry"))
    };
    let mut locks: Vec<Lock> = names::registered().into_iter().map(&lock).collect();
    let bytes = size_of::<Semaphore>();
    let semaphore = lock(Entry { kind: Kind::Mutex, info: Unit::<Native>::INFO, bytes });
    locks.push(Lock { kind: "semaphore", ..semaphore });
    if options.json {
        let strategies = reclaim::STRATEGIES.map(|info| Line::Strategy(info.into()));
        let all: Vec<_> = locks.iter().map(Line::Lock).chain(strategies).collect();
        println!("{}", serde_json::to_string_pretty(&all).expect("plain data"));
        return Ok(());
    }
    if options.paper {
        print!("{}", beside_the_paper(&locks));
        return Ok(());
    }
    let mut table = table();
    table.set_header([
        "name",
        "kind",
        "bytes",
        "waiter",
        "holder",
        "atomics",
        "contended",
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
            lock.counted_waiter_bytes.to_string(),
            lock.counted_holder_bytes.to_string(),
            format!("{:.1}", lock.counted_atomics),
            format!("{:.1}", lock.contended_atomics),
            if lock.blocking { "sleep" } else { "spin" }.to_owned(),
            lock.suspension.to_owned(),
            lock.fairness.to_owned(),
            lock.source.to_owned(),
        ]);
    }
    for column in 2..=6 {
        table.column_mut(column).expect("eleven columns").set_cell_alignment(CellAlignment::Right);
    }
    println!("{}", table.trim_fmt());
    println!();
    println!(
        "bytes: of a lock, and beside it of queue nodes of each waiter and holder, as the simulator counts them"
    );
    println!(
        "atomics: atomic read-modify-writes per uncontended acquire and release (rwlock, seqlock: of a read), as the"
    );
    println!("    simulator counts them; contended: likewise, of {} threads on 8 sockets", count::CROWD);
    println!("waiters: whether they sleep after a bounded spin, or spin until they have the lock");
    println!(
        "suspended: whether the lock tolerates that one waiter stops running for ever (in a debugger, a signal"
    );
    println!(
        "    handler, a frozen control group): the others get it nevertheless; or whether that blocks some of them"
    );
    println!("The C library's own locks are called {} in --mutex and --rwlock.", names::GLIBC);
    println!();
    println!("Reading without locks, for programs that use the library (latchwork::reclaim):");
    println!();
    println!("{}", strategies().trim_fmt());
    println!();
    println!("atomics: of a reader, per pointer; garbage: what was removed and waits to be reclaimed");
    Ok(())
}

/// The locks of Table 1 of the ShflLock paper, here and there.
fn beside_the_paper(locks: &[Lock]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let heads = ["bytes", "waiter", "holder", "atomics", "contended"];
    table.set_header(
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
    for column in 2..=11 {
        table.column_mut(column).expect("twelve columns").set_cell_alignment(CellAlignment::Right);
    }
    format!(
        "{}\n\nhere: as in latchwork list; cst without its 128 bytes for each NUMA node in use.\n\
         paper: Kashyap et al. 2019 (ShflLock), table 1, on eight sockets; it counts the fields of a node, which\n    \
         here is a cache line of 64 bytes; of CST, what it says of holders is that they keep no node.\n",
        table.trim_fmt()
    )
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
