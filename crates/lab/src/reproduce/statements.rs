//! The ten statements that the document begins with. They matter to a reader who chooses a lock.

use super::document::{Answer, Document};

/// A statement, and how its plot is labelled.
pub struct Statement {
    /// The claim.
    pub id: &'static str,
    /// What it says, in words of this project.
    pub title: &'static str,
    /// What the plot's values are.
    pub value: &'static str,
    /// The paper's numbers, one for each part of the rule, or one for all; none if the paper has words only.
    pub paper: &'static [f64],
    /// Parts of the rule that belong together, in their order: a label, and a label of each part.
    pub groups: &'static [(&'static str, &'static [&'static str])],
}

const RW_BENCH: &[&str] = &["1", "2", "8", "18", "36", "72"];
const READERS: &[&str] = &["1", "8", "18", "36", "71"];
const GUARDS: &[&str] = &["N=1", "3", "9", "19"];
/// qspinlock, c-bo-mcs, cna.
const THREE_LOCKS: &[&str] = &["", "", ""];
const OVER: &[&str] = &["384", "576", "768"];

/// All of them, in their order.
pub const TEN: [Statement; 10] = [
    Statement {
        id: "bravo-rwbench-f",
        title: "BRAVO is ahead where writes are rare",
        value: "bravo-pf-q / pf-q",
        paper: &[],
        groups: &[("threads, 1 write in 10000", &["36", "72"])],
    },
    Statement {
        id: "bravo-no-harm",
        title: "BRAVO does no harm where writes are frequent",
        value: "bravo-pf-q / pf-q",
        paper: &[],
        groups: &[
            ("9/10 write", RW_BENCH),
            ("1/2", RW_BENCH),
            ("1/10", RW_BENCH),
            ("1/100", RW_BENCH),
            ("1/1000", RW_BENCH),
            ("1/10000", RW_BENCH),
        ],
    },
    Statement {
        id: "bravo-guard",
        title: "BRAVO's guard bounds what a writer loses",
        value: "writes/s with BRAVO / without",
        paper: &[],
        groups: &[("8 readers", GUARDS), ("35 readers", GUARDS), ("no inhibition", &["8 readers", "35"])],
    },
    Statement {
        id: "bravo-readwhilewriting",
        title: "BRAVO is ahead beside a writer that comes every few milliseconds",
        value: "bravo-pf-q / other",
        paper: &[],
        groups: &[("readers, / cohort-rw", READERS), ("readers, / pf-q", READERS)],
    },
    Statement {
        id: "bravo-page-fault-many",
        title: "BRAVO in the kernel speeds up page faults on many processors",
        value: "bravo-rwsem-4.20 / rwsem-4.20",
        paper: &[1.93],
        groups: &[("threads", &["142"])],
    },
    Statement {
        id: "shfl-best-everywhere",
        title: "ShflLock is the best spin lock at every number of threads",
        value: "shfl-spin / each of 3 locks",
        paper: &[],
        groups: &[
            ("1 thread", THREE_LOCKS),
            ("4", THREE_LOCKS),
            ("24", THREE_LOCKS),
            ("48", THREE_LOCKS),
            ("96", THREE_LOCKS),
            ("192", THREE_LOCKS),
        ],
    },
    Statement {
        id: "shfl-blocking-4x",
        title: "The blocking ShflLock keeps its throughput with four threads for each processor",
        value: "ratio of throughputs",
        paper: &[],
        groups: &[
            ("/ mcs", &["768"]),
            ("/ 192 threads", OVER),
            ("/ hybrid and cst", &["384", "", "576", "", "768", ""]),
        ],
    },
    Statement {
        id: "shfl-rw-stock",
        title: "The reader-writer ShflLock beats the kernel's rwsem",
        value: "shfl-rw / rwsem-4.19",
        paper: &[8.1, 3.7],
        groups: &[("192 threads, writes", &["1%", "50%"])],
    },
    Statement {
        id: "bueso-mcs",
        title: "A queue lock holds where a ticket lock collapses",
        value: "mcs / ticket",
        paper: &[2.4],
        groups: &[("threads", &["120"])],
    },
    Statement {
        id: "mckenney-deferred",
        title: "RCU and hazard pointers beat locks in a table that is mostly read",
        value: "strategy / spin lock per chain",
        paper: &[],
        groups: &[("8 threads", &["RCU", "hazard pointers"])],
    },
];

/// Those that were answered.
pub fn answered(document: &Document) -> impl Iterator<Item = (&'static Statement, &Answer)> {
    let answer =
        |id: &str| document.answers.iter().find(|answer| answer.claim.id == id && answer.judged.runs > 0);
    TEN.iter().filter_map(move |statement| Some((statement, answer(statement.id)?)))
}

impl Statement {
    /// The number of the group, and the label, of one part of the rule.
    pub fn labels(&self, part: usize) -> (usize, &'static str) {
        let mut first = 0;
        for (group, (_, parts)) in self.groups.iter().enumerate() {
            if let Some(label) = parts.get(part - first) {
                return (group, label);
            }
            first += parts.len();
        }
        (0, "")
    }

    /// The paper's number of a part.
    pub fn of_paper(&self, part: usize) -> Option<f64> {
        self.paper.get(part).or(self.paper.first().filter(|_| self.paper.len() == 1)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::super::claims;
    use super::*;

    #[test]
    fn every_statement_is_a_claim_and_labels_its_parts() {
        let all = claims::all();
        for statement in &TEN {
            let claim = all.iter().find(|claim| claim.id == statement.id).expect(statement.id);
            let labels: usize = statement.groups.iter().map(|(_, parts)| parts.len()).sum();
            assert_eq!(claim.checks.len(), labels, "{}", statement.id);
            assert!(
                statement.paper.len() <= 1 || statement.paper.len() == claim.checks.len(),
                "{}",
                statement.id
            );
        }
    }
    #[test]
    fn a_label_names_only_locks_that_its_rule_looks_at() {
        let all: Vec<&str> =
            claims::experiments().iter().flat_map(|experiment| experiment.locks).copied().collect();
        for statement in &TEN {
            let claim = claims::all().into_iter().find(|claim| claim.id == statement.id).unwrap();
            let figures = claim.checks.iter().flat_map(|check| check.value.figures());
            let used: Vec<&str> = figures.map(|figure| figure.lock()).collect();
            let labels = statement.groups.iter().map(|(label, _)| *label).chain([statement.value]);
            for word in labels.flat_map(str::split_whitespace).filter(|word| all.contains(word)) {
                assert!(used.contains(&word), "{}: {word} is not one of {used:?}", statement.id);
            }
        }
    }
}
