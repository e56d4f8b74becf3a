//! `--list`: every workload, or everything about one.

use super::options::HARM;
use super::{plan, suite};
use latchwork_console::failure::Result;
use latchwork_console::table;
use latchwork_workloads::candidate::Candidate;
use latchwork_workloads::registry;

/// The text for `--list`, with or without a workload's name.
pub fn text(workload: Option<&str>, candidates: &[Candidate]) -> Result<String> {
    match workload {
        None => Ok(all()),
        Some(HARM) => Ok(format!(
            "{}: workloads in which a lock that spins does harm: {}\n",
            HARM,
            suite::WORKLOADS.join(", ")
        )),
        Some(name) => one(name, candidates),
    }
}

fn all() -> String {
    let mut table = table::new(["name", "locks", "summary", "source"]);
    table::fit(&mut table, 400);
    for info in registry::all() {
        table.add_row([info.name, &info.locks.to_string(), info.summary, info.source]);
    }
    format!(
        "{}\n\nlocks: which kind of lock it is for. Everything about one: latchwork-lab bench NAME --list\n\
         For short: {}.\n\
         latchwork-lab bench {}: {} in one run.\n\
         latchwork-lab bench instructions: no workload, but what single operations cost.\n",
        table.trim_fmt(),
        registry::SHORT
            .iter()
            .map(|(short, name)| format!("{short} for {name}"))
            .collect::<Vec<_>>()
            .join(", "),
        HARM,
        suite::WORKLOADS.join(", "),
    )
}

fn one(name: &str, candidates: &[Candidate]) -> Result<String> {
    let info = plan::workload(name)?;
    let mut text = format!("{}: {}\n", info.name, info.summary);
    text += &format!("  shows:     {}\n", info.shows);
    text += &format!("  operation: {}\n", info.operation);
    text += &format!("  source:    {}\n", info.source);
    let names: Vec<_> = plan::fitting(&info, candidates).iter().map(|lock| lock.name).collect();
    text += &format!("  locks:     {}\n", names.join(", "));
    if info.parameters.is_empty() {
        return Ok(text + "  It has no parameters.\n");
    }
    text += "  parameters (--set NAME=VALUE):\n";
    for parameter in info.parameters {
        text += &format!(
            "    {} [{}]: {}; {}\n",
            parameter.name, parameter.default, parameter.help, parameter.values
        );
    }
    Ok(text)
}
