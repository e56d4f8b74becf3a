//! docs/reproduction.md.

use super::claims::Paper;
use super::document::{Answer, Document};
use super::estimates;
use super::headlines;
use super::judge::Verdict;
use super::papers;
use super::picture;
use super::rule::{Check, GLOSSARY, number};
use super::statements;
use super::table::{self, tightest};
use super::validate::Comparison;
use crate::generated;
use latchwork_console::failure::{Failure, Result};
use latchwork_console::output;
use std::collections::BTreeMap;
use std::path::Path;

const INTRODUCTION: &str = "\
# The papers' claims

Do the results of the papers hold, and where? First ten statements that matter to a reader who chooses a lock, then all claims.
[simulator.md](simulator.md) says how well the simulator agrees with machines, [which-lock.md](which-lock.md) which lock is the
fastest for what on simulated machines of today.

The laboratory prints this page (`latchwork-lab reproduce --markdown docs/reproduction.md`); do not edit it. Each claim
of the papers that the locks of this library can show has a rule, which was stated before the run in
`crates/lab/src/reproduce/claims`.

## How to read the verdicts

| verdict | means |
|---|---|
| holds | every run meets all parts of the rule |
| depends | on a parameter that the paper does not give, on costs of the machine that are estimates, or on chance: the page says where it holds |
| contradicted | no run meets all parts, and the model covers what matters |
| different by design | no run does, because a lock of ours differs on purpose |
| cannot be shown here | no run does, and what decides it is outside of the model or of this machine |
| input | a parameter was fitted to the claim; it is counted nowhere |

A row shows the part of the rule that is missed by most or met by least, and our number there. `on` says what the claim
was tested on: a simulated machine, whose runs differ in their seed, or `here`, the machine named below, whose runs are
rounds in which all locks take turns. What a row says after its verdict is computed from this run, but for what follows
\"explanation\".

`space` is the share of a space in which the claim holds. Its points are the claim as it is, eight runs in which every cost that
the machine's profile calls an estimate is halved or doubled, and one run for each further value of a parameter of the workload
that the paper does not give. After the share stands what decides: such a parameter, or a cost. The cost is found by a search
between the claim as it is and a run with the other verdict, in which the costs change one after the other; `x2` or `/2` says how
it changed. `alone` says that the verdict turns with this cost by itself: the claim hangs on one estimate. These runs have one seed
and last for a quarter of the time; for all of it where the claim as it is has another verdict in a quarter.
";

/// Where the part of the introduction begins that comes after the ten statements.
const VERDICTS: &str = "## How to read the verdicts";

/// To repeat the run.
const REPEAT: &str = "
To repeat the run:

    cargo run --release --bin latchwork-lab -- reproduce --sensitivity --markdown docs/reproduction.md --report report --json claims.json

`--report` writes a page with all parts of the rules and the plots, `--json` every number. `--state FILE` resumes, `--shard`
and `--merge` divide the work, `--from-state FILE` prints the page again. `--sensitivity headlines` runs the space of the headlines
only, which takes about two thirds of the time. The simulated claims come out the same on every machine, as long as locks, simulator and seeds
are the same; `latchwork-lab reproduce --only ID` repeats one of them. What is tested `here` depends on the machine and on the
other programs that use it.
";

/// Writes the page and, into a directory of the page's name without its ending, the plots.
pub fn write(document: &Document, path: &Path) -> Result<()> {
    output::write("--markdown", path, &text(document, &plots(path)))?;
    let directory = path.with_extension("");
    for (statement, answer) in statements::answered(document) {
        std::fs::create_dir_all(&directory)
            .map_err(|error| Failure::usage(format!("--markdown {}: {error}", directory.display())))?;
        let svg = picture::svg(statement, answer)
            .map_err(|error| Failure::new(format!("--markdown {}: {error}", path.display())))?;
        output::write("--markdown", &directory.join(format!("{}.svg", statement.id)), &svg)?;
    }
    Ok(())
}

/// How the page at `path` refers to the directory of its plots.
fn plots(path: &Path) -> String {
    path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
}

fn text(document: &Document, plots: &str) -> String {
    let (beginning, verdicts) = INTRODUCTION.split_once(VERDICTS).expect("both parts are above");
    let mut text = generated::head(&document.machine.line()) + beginning;
    let seeds = document.effort.runs;
    let first = document.effort.seed;
    let counts = [document.alike(), document.over_space(), estimates::sentence(&document.answers)].join(" ");
    text += &format!(
        "**{}**\n\n{}\n\nlatchwork {}, {seeds} runs, seeds from {first}. Rates are medians over the runs. Points \
         that no rule looks at have one run.\n\n",
        document.summary(),
        counts.trim_end(),
        env!("CARGO_PKG_VERSION")
    );
    if document.interrupted.is_some() {
        text += "The run was interrupted.\n\n";
    }
    text += &ten(document, plots);
    text += VERDICTS;
    text += verdicts;
    text += "\n";
    text += &headlines(document);
    text += &papers::text(document);
    text += &estimates::text(&document.answers);
    text += &index(document);
    text += REPEAT;
    text += "\nThe papers say much in words. They mean the same numbers everywhere:\n\n| words | means |\n|---|---|\n";
    for (words, meaning) in GLOSSARY {
        text += &format!("| {words} | {meaning} |\n");
    }
    for paper in Paper::ALL {
        let answers = document.of(paper);
        if answers.is_empty() {
            continue;
        }
        text += &format!("\n## {}\n\n{}\n\n", paper.title(), paper.setting());
        text += "| claim | on | the paper | its number | ours | rule | space | verdict |\n|---|---|---|---|---|---|---|---|\n";
        for answer in &answers {
            text += &row(answer);
        }
        if let Some(here) = document.here().filter(|_| paper == Paper::McKenneyHere) {
            text += &format!("\n{here}\n");
        }
        for one in document.comparisons.iter().filter(|_| paper == Paper::Simulator) {
            text += &comparison(one);
        }
    }
    text + &format!("\n{}\n", document.duration())
}

/// The statements with their plots.
fn ten(document: &Document, plots: &str) -> String {
    let mut text = String::new();
    for (at, (statement, answer)) in statements::answered(document).enumerate() {
        if at == 0 {
            text += "## Ten statements\n\nA dot is the median of the runs, with their range, and a grey bar is the range over \
                     uncertain costs and unknown parameters. A green field is what the rule allows; a blue line is the paper's \
                     number.\n\n";
        }
        let Answer { claim, verdict, space, .. } = answer;
        let space =
            space.as_ref().map_or_else(String::new, |space| format!(" It holds in {}.", space.sentence()));
        let missed = missed(answer);
        text += &format!(
            "### {}. {}: {}\n\n{}, {}: \"{}\" On {}: **{}**{missed}.{space} ({})\n\n![{}]({plots}/{}.svg)\n\n",
            at + 1,
            statement.title,
            verdict.text(),
            claim.paper.name(),
            claim.place,
            claim.sentence(),
            claim.on().join(", "),
            verdict.text(),
            claim.id,
            statement.value,
            claim.id
        );
    }
    text
}

/// How many parts of a rule are missed, if it has several.
fn missed(answer: &Answer) -> String {
    let checks = &answer.judged.checks;
    let missed = checks.iter().filter(|check| check.met < check.runs.len()).count();
    match checks.len() {
        1 => String::new(),
        2 if missed == 0 => ", both parts of the rule".into(),
        parts if missed == 0 => format!(", all {parts} parts of the rule"),
        parts => format!(", {missed} of {parts} parts of the rule are missed"),
    }
}

/// What the papers say to a reader who chooses a lock.
fn headlines(document: &Document) -> String {
    let mut text = String::new();
    let answers: Vec<&Answer> =
        document.answers.iter().filter(|answer| headlines::is_one(answer.claim.id)).collect();
    if answers.is_empty() {
        return text;
    }
    text += "## Abstracts and introductions\n\nWhat a reader has in mind who takes a lock from a paper.\n\n\
             | the paper | its number | ours | over the space | verdict | claim |\n|---|---|---|---|---|---|\n";
    for answer in answers {
        let (_, ours) = tightest(answer);
        let band = answer.space.as_ref().and_then(|space| {
            let (least, most) = space.band()?;
            let share = table::space(answer);
            Some(format!("{} to {}; holds in {share}", number(least), number(most)))
        });
        let claim = &answer.claim;
        text += &format!(
            "| {}: {} | {} | {ours} | {} | **{}** | {} |\n",
            claim.paper.name(),
            cell(&claim.sentence()),
            cell(claim.number),
            cell(&band.unwrap_or_default()),
            answer.verdict.text(),
            claim.id
        );
    }
    text + "\n"
}

/// What the evidence says of each lock.
fn index(document: &Document) -> String {
    let mut locks: BTreeMap<&str, Vec<&Answer>> = BTreeMap::new();
    for answer in &document.answers {
        let of_check = |check: &Check| check.value.figures().first().map(|figure| figure.lock());
        let mut about: Vec<&str> = answer.claim.checks.iter().filter_map(of_check).collect();
        about.sort_unstable();
        about.dedup();
        for lock in about.into_iter().filter(|lock| !lock.is_empty()) {
            locks.entry(lock).or_default().push(answer);
        }
    }
    let words = &Verdict::WORDS[..5];
    let mut text =
        String::from("## By lock\n\nThe claims whose rule has the lock's figure over another one.\n\n");
    text += &families(&locks, words);
    text += "| lock |";
    for word in words {
        text += &format!(" {word} |");
    }
    text += "\n|---|---|---|---|---|---|\n";
    for (lock, answers) in locks {
        text += &format!("| `{lock}` |");
        for word in words {
            let of = answers.iter().filter(|answer| answer.verdict.text() == *word);
            let ids: Vec<&str> = of.map(|answer| answer.claim.id).collect();
            text += &format!(" {} |", ids.join(", "));
        }
        text += "\n";
    }
    text
}

/// How a name begins, and what its locks are together.
const FAMILIES: &[(&str, &[&str])] = &[
    ("bravo", &["bravo-"]),
    ("shfl", &["shfl"]),
    ("rcu", &["qsbr-", "rcu-"]),
    ("hazard pointers", &["hpbr-"]),
    ("queue locks", &["mcs", "clh", "qspinlock", "cna", "hmcs"]),
    ("spinning on one word", &["tas", "ttas", "ticket"]),
];

/// How many claims there are about locks that belong together. A claim about two of them counts once.
fn families(locks: &BTreeMap<&str, Vec<&Answer>>, words: &[&str]) -> String {
    let mut text = format!("| family | {} |\n|---|{}\n", words.join(" | "), "---|".repeat(words.len()));
    for (family, prefixes) in FAMILIES {
        let of_family = |lock: &&str| prefixes.iter().any(|prefix| lock.starts_with(prefix));
        let answers = locks.iter().filter(|(lock, _)| of_family(lock)).flat_map(|(_, answers)| answers);
        let mut ids: Vec<(&str, &str)> =
            answers.map(|answer| (answer.claim.id, answer.verdict.text())).collect();
        ids.sort_unstable();
        ids.dedup();
        let count = |word: &&str| ids.iter().filter(|(_, verdict)| verdict == word).count().to_string();
        let counts: Vec<String> = words.iter().map(count).collect();
        if !ids.is_empty() {
            text += &format!("| {family} | {} |\n", counts.join(" | "));
        }
    }
    text + "\n"
}

fn row(answer: &Answer) -> String {
    let (rule, ours) = tightest(answer);
    let why = answer.why();
    let why = if why.is_empty() { why } else { format!(": {why}") };
    let claim = &answer.claim;
    format!(
        "| {} | {} | {} ({}) | {} | {} | {} | {} | **{}**{} |\n",
        claim.id,
        claim.on().join(", "),
        cell(&claim.sentence()),
        cell(claim.place),
        cell(claim.number),
        ours,
        cell(&rule),
        cell(&table::space(answer)),
        answer.verdict.text(),
        cell(&why)
    )
}

/// Text in a cell of a table.
pub fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn comparison(comparison: &Comparison) -> String {
    let mut text = format!("\n{}\n", comparison.sentence());
    if comparison.disagree.is_empty() {
        return text;
    }
    text += "\nThe pairs that disagree (ratios of the first to the second):\n\n\
             | workload | threads | measured faster | measured slower | measured | simulated |\n\
             |---|---|---|---|---|---|\n";
    for pair in &comparison.disagree {
        text += &format!(
            "| {} | {} | {} | {} | {} | {} |\n",
            pair.workload,
            pair.threads,
            pair.faster,
            pair.slower,
            number(pair.measured),
            number(pair.simulated)
        );
    }
    text
}
