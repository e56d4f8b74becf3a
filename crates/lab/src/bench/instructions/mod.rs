//! `latchwork-lab bench instructions`: what synchronization costs, in plain instructions.
//!
//! Two tables of McKenney, Hart and Walpole, "Practical Concerns for Scalable Synchronization", 2005: Table 2,
//! measured on this machine, and Table 7, counted in the simulator.

mod cost;
mod operations;

use super::Options;
use crate::generated;
use crate::measure::options::SEED;
use cost::Cost;
use latchwork_console::failure::{Failure, Result};
use latchwork_console::machine::Machine;
use latchwork_console::output;
use latchwork_console::signals::Signals;
use latchwork_console::table;
use operations::Operations;
use serde::Serialize;

/// What the user types where a workload's name stands otherwise.
pub const NAME: &str = "instructions";

/// Rounds unless the user says.
const ROUNDS: u32 = 21;

#[derive(Serialize)]
struct Document<'a> {
    latchwork: &'static str,
    command: &'static str,
    machine: &'a Machine,
    rounds: u32,
    interrupted: bool,
    /// Table 2.
    costs: &'a [Cost],
    /// Table 7; empty after Ctrl-C.
    operations: &'a [Operations],
}

/// Measures, prints, and returns the exit status.
pub fn run(options: &Options) -> Result<i32> {
    let common = &options.common;
    if common.list {
        output::print(&format!(
            "{NAME}: no workload, but what single operations cost: no locks, and no parameters\n"
        ))?;
        return Ok(0);
    }
    let unwanted = [
        ("--locks", !common.locks.is_empty()),
        ("--threads", common.threads.is_some()),
        ("--set", !common.set.is_empty()),
        ("--plot", common.plot.is_some()),
        ("--against", common.against.is_some()),
        ("--seconds", options.seconds.is_some()),
        ("--warm-up", options.warm_up.is_some()),
        ("--placement", options.placement.is_some()),
        ("--cut", options.cut.is_some()),
        ("--seed", common.seed != SEED),
    ];
    if let Some((option, _)) = unwanted.iter().find(|(_, given)| *given) {
        return Err(Failure::usage(format!(
            "{option} is for workloads; {NAME} has --runs, --json and --markdown only"
        )));
    }
    common.check_files()?;
    let signals = Signals::watch()?;
    let machine = Machine::here();
    let rounds = common.runs.unwrap_or(ROUNDS);
    let (costs, interrupted) = cost::measure(rounds, &signals);
    drop(signals);
    let operations = if interrupted.is_some() { Vec::new() } else { operations::count()? };
    let document = || {
        let document = Document {
            latchwork: env!("CARGO_PKG_VERSION"),
            command: "bench instructions",
            machine: &machine,
            rounds,
            interrupted: interrupted.is_some(),
            costs: &costs,
            operations: &operations,
        };
        serde_json::to_string_pretty(&document).expect("plain data") + "\n"
    };
    let text = || text(&machine, rounds, &costs, &operations);
    output::report(common.json.as_deref(), text, document)?;
    if let Some(path) = &common.markdown {
        let page = format!("{}```text\n{}```\n", generated::head(&machine.line()), text());
        output::write("--markdown", path, &page)?;
    }
    Ok(interrupted.map_or(0, |signal| 128 + signal))
}

/// Both tables; only the first one, of what was measured until Ctrl-C, without `operations`.
fn text(machine: &Machine, rounds: u32, costs: &[Cost], operations: &[Operations]) -> String {
    let interrupted = operations.is_empty();
    let mut text =
        String::from(if interrupted { "Interrupted; what was measured until then:\n" } else { "" });
    text += &format!(
        "What synchronization costs (McKenney, Hart and Walpole 2005, Table 2)\n{}\n\n",
        machine.line()
    );
    let mut table = table::new(["operation", "instructions", "ns", "+-", "POWER4", "Xeon"]);
    for cost in costs {
        let paper = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.1}"));
        table.add_row([
            cost.name.to_owned(),
            cost.instructions.map_or("-".into(), |value| format!("{value:.1}")),
            cost.ns.map_or("-".into(), |value| format!("{value:.2}")),
            cost.spread.map_or(String::new(), |spread| format!("{:.0}%", spread * 100.0)),
            paper(cost.power4),
            paper(cost.xeon),
        ]);
    }
    table::right(&mut table, 1..=5);
    text += &format!("{}\n\n", table.trim_fmt());
    text += &format!(
        "instructions: in units of the first line. ns: median of {rounds} rounds{}; +-: distance of the quartiles.\n\
         POWER4, Xeon: what the paper has for 1.45 GHz and 3.06 GHz, where it has the operation. -: not on this\n\
         machine.\n\n",
        if interrupted { " at most" } else { "" }
    );
    if interrupted {
        return text;
    }
    text += "What an operation on the hash table executes (Table 7, counted in the simulator)\n\n";
    let mut table =
        table::new(["strategy", "accesses", "atomics", "misses", "accesses", "atomics", "misses"]);
    for one in operations {
        let mut row = vec![one.strategy.to_owned()];
        for counts in [&one.lookup, &one.update] {
            row.extend([counts.accesses, counts.atomics, counts.misses].map(|value| format!("{value:.2}")));
        }
        table.add_row(row);
    }
    table::right(&mut table, 1..=6);
    text += &format!("{}\n\n", table.trim_fmt());
    text += "The first three columns are of lookups alone, the others what an update has more; on 8 CPUs, of a table\n\
             that fits the caches. accesses: words read and written, those of the chain included, which `ideal`\n\
             has too. misses: a cache line came from elsewhere. Fences are none in all of them: the asymmetric\n\
             ones are free for readers, and reclaimers pay (membarrier).\n";
    text
}
