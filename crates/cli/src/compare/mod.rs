//! `latchwork compare`: runs a program under several locks in turn, and says which one serves it best.

pub mod candidates;
pub mod child;
mod hooks;
mod json;
pub mod metric;
pub mod options;
mod output;
pub mod plan;
pub mod progress;
mod report;
pub mod results;
pub mod rounds;
mod server;
mod tables;
mod tail;
pub mod used;
pub mod verdict;

use candidates::Candidate;
use latchwork_console::ending;
use latchwork_console::failure::{Failure, Result};
use latchwork_console::output as file;
pub use options::Options;
use plan::{Length, Plan};
use progress::Progress;
use results::Results;
use std::path::Path;

/// After the options in `latchwork compare --help`.
pub const HELP: &str = "\
What is compared: glibc, and every combination of the named mutexes with the named reader-writer locks.
A kind that is not named is left to glibc. `all` stands for every lock of the kind (see `latchwork
list`). With neither option, a handful of well-known locks.

The runs are interleaved (A B C, B C A, ...), and each is set against glibc's run of the same
round, so that a machine that changes its speed meanwhile changes it for all locks. The program reads
nothing from standard input (see --input), its output is kept back, and what it leaves running is ended. A
run that exits with another status than 0 or takes too long is reported, with the end of its output, and
its lock is left out from there on. So is a lock that no process of the program has used.

The verdicts are exact sign tests, corrected for the number of locks: with more locks, more rounds must
agree. One lock takes at least 6 rounds, five take 8, all mutexes take 11. Below the table stands the rule.

The commands around the runs are run by the shell, untimed and without the preload library. If one fails,
the comparison ends.

A server: its command is split at spaces, and run by the shell if it contains a character that means
something to the shell, such as a quotation mark. At the end of a run the server and the processes of its group get SIGTERM, and
SIGKILL 5 seconds later. CPU time, memory and switches are the server's; wall time and the output in which
--metric is looked for are those of the load.

Exit status: 0; 1 if a lock failed, or glibc itself; 2 for wrong arguments; 126 or 127 if the program
cannot be run; 130 after Ctrl-C, when what was measured until then is printed. If nothing was measured,
no file is written.

Examples:
  latchwork compare                                  on the built-in key-value store
  latchwork compare -- ./bench --threads 8
  latchwork compare --mutex shfl,mcs --runs 20 -- ./bench
  latchwork compare --mutex shfl --rwlock bravo-2d-shfl-rw,glibc -- ./bench
  latchwork compare --metric 'ops/sec: ([0-9.]+)' -- ./bench
  latchwork compare --metric 'p99: (\\d+) us' --lower-is-better -- ./bench
  latchwork compare --prepare 'rm -rf db' --markdown table.md -- ./bench db
  latchwork compare --seconds 60 --json result.json -- ./bench
  latchwork compare --server './server -p 7000' --ready 7000 --load './client -p 7000' \\
                    --metric 'requests/s: ([0-9.]+)'";

/// Measures, prints, and returns the exit status.
pub fn compare(options: Options) -> Result<i32> {
    // Everything that can be wrong with the arguments is found before anything is run.
    let choices = candidates::choose(&options.mutex, &options.rwlock)?;
    let locks = choices.len() - 1;
    let [json, markdown, csv] =
        [&options.json, &options.markdown, &options.csv].map(|path| path.as_deref().map(Path::to_path_buf));
    let plan = options.plan(locks)?;
    let needed = verdict::rounds_needed(locks);
    if let Length::Rounds(rounds) = plan.length
        && rounds < needed
        && locks > 0
    {
        let of = if locks == 1 { "a lock".into() } else { format!("{locks} locks") };
        let note = format!("--runs {rounds} gives no verdict: to judge {of} takes at least {needed}");
        file::say(&format!("latchwork: note: {note}"));
    }
    let progress = Progress::new(&plan, choices.len());
    let candidates = choices.into_iter().map(Candidate::new).collect();
    let mut results = rounds::measure(&plan, candidates, &progress)?;
    ending::by_signals();

    // After Ctrl-C before the first run of glibc, a file of an earlier comparison is worth more.
    let nothing = results.candidates[0].runs.is_empty();
    let mut printed = false;
    // What cannot be written keeps nothing else from being written or printed.
    let mut failures = Vec::new();
    for (option, path, text) in [
        ("--json", json, json::text as fn(&Plan, &Results) -> String),
        ("--markdown", markdown, tables::markdown),
        ("--csv", csv, tables::csv),
    ] {
        match path {
            None => {}
            Some(path) if path == Path::new("-") => {
                failures.extend(file::print(&text(&plan, &results)).err());
                printed = true;
            }
            Some(_) if nothing => {}
            Some(path) => failures.extend(file::write(option, &path, &text(&plan, &results)).err()),
        }
    }
    if !printed {
        failures.extend(file::print(&report::text(&plan, &results)).err());
    }
    failures.splice(..0, results.failure.take());
    if !failures.is_empty() {
        return Err(all_of(failures));
    }
    let failed = results.candidates.iter().any(|candidate| candidate.failed.is_some());
    Ok(results.interrupted.map_or(i32::from(failed), |signal| 128 + signal))
}

/// One failure with the messages of all. If the reader of the output has gone away, SIGPIPE ends the process, so the others are said
/// before.
fn all_of(failures: Vec<Failure>) -> Failure {
    let (mut said, gone): (Vec<_>, Vec<_>) =
        failures.into_iter().partition(|failure| !failure.message.is_empty());
    match gone.into_iter().next() {
        None => {
            let mut first = said.remove(0);
            for failure in said {
                first.message += &format!("\nlatchwork: {}", failure.message);
            }
            first
        }
        Some(gone) => {
            said.iter().for_each(|failure| file::say(&format!("latchwork: {}", failure.message)));
            gone
        }
    }
}
