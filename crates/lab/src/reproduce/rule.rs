//! Rules: what has to come out for a claim to hold. They are data, so that the same thing is printed
//! and checked.

use super::probe::Probe;

// The papers say much in words. Each word means the same number everywhere.

/// "outperforms", "improves", "better": by a fifth.
pub const BETTER: f64 = 1.2;
/// "significantly", "by a wide margin", "substantial", "easily": by half.
pub const FAR_BETTER: f64 = 1.5;
/// "degrades", "hampered", "poorly": less than this is left.
pub const WORSE: f64 = 0.8;
/// "similar", "the same", "remains stable", "maintains".
pub const SIMILAR: Bound = Bound::Within(0.8, 1.25);
/// "competitive": it may be better, too.
pub const COMPETITIVE: Bound = Bound::AtLeast(0.8);
/// "exceeds", "the best", and every step of an order.
pub const EXCEEDS: Bound = Bound::AtLeast(1.0);
/// "tracks closely", "no harm", "no significant difference".
pub const CLOSE: Bound = Bound::Within(0.9, 1.1);
/// "flat", "broadly similar", "fairly similar".
pub const FLAT: Bound = Bound::Within(0.67, 1.5);
/// "linearly", "scales perfectly": of the rate of one thread, times the threads.
pub const LINEAR: f64 = 0.8;

/// A factor from a paper: ours has to be at least half of the gain.
pub fn gain(factor: f64) -> Bound {
    Bound::AtLeast(1.0 + (factor - 1.0) / 2.0)
}

/// A decrease from a paper, as a share: what remains may be twice as much as there.
pub fn decrease(share: f64) -> Bound {
    Bound::AtMost(2.0 * (1.0 - share))
}

/// The words above, for the reader.
pub const GLOSSARY: &[(&str, &str)] = &[
    ("better, outperforms, improves", "at least 1.2 times"),
    ("significantly, substantially, by a wide margin", "at least 1.5 times"),
    ("degrades, fares poorly", "0.8 at most is left"),
    ("tracks closely, no harm, no significant difference", "0.9 to 1.1"),
    ("similar, the same, stable, maintains", "0.8 to 1.25"),
    ("competitive", "at least 0.8 times"),
    ("exceeds, the best, in that order", "at least as much"),
    ("flat, broadly or fairly similar", "0.67 to 1.5"),
    ("linearly, scales perfectly", "0.8 of the ideal speedup at least"),
    ("N times better", "at least half of that gain: 1 + (N - 1) / 2"),
    ("a decrease by N%", "at most twice what remains in the paper"),
];

/// A point of an experiment under one lock.
#[derive(Clone, Debug, PartialEq)]
pub struct At {
    /// The experiment's id.
    pub experiment: &'static str,
    /// The lock.
    pub lock: &'static str,
    /// How many threads.
    pub threads: usize,
    /// The parameter that varies, as `name=value`; empty if none does.
    pub set: String,
}

/// A number that a run or the registry gives.
#[derive(Clone, Debug, PartialEq)]
pub enum Figure {
    /// Operations a second.
    Rate(At),
    /// Operations a second, divided by the threads.
    PerThread(At),
    /// The fairness factor.
    Fairness(At),
    /// A figure that the workload or the simulator adds, by its name in the table.
    Extra(&'static str, At),
    /// Of the registry: bytes of a lock.
    LockBytes(&'static str),
    /// ... beside it, of a waiter.
    WaiterBytes(&'static str),
    /// ... of a holder.
    HolderBytes(&'static str),
    /// Of this machine's C library.
    PthreadMutexBytes,
    /// Of the simulator, beside the workloads.
    Probe(Probe),
    /// Of the comparison with measurements: the share of pairs in the same order.
    Agreement,
}

impl Figure {
    /// The point that it comes from.
    pub fn at(&self) -> Option<&At> {
        match self {
            Figure::Rate(at) | Figure::PerThread(at) | Figure::Fairness(at) | Figure::Extra(_, at) => {
                Some(at)
            }
            _ => None,
        }
    }

    /// The same, to be changed.
    pub fn at_mut(&mut self) -> Option<&mut At> {
        match self {
            Figure::Rate(at) | Figure::PerThread(at) | Figure::Fairness(at) | Figure::Extra(_, at) => {
                Some(at)
            }
            _ => None,
        }
    }

    fn what(&self) -> &'static str {
        match self {
            Figure::Rate(_) => "",
            Figure::PerThread(_) => "per-thread rate of ",
            Figure::Fairness(_) => "fairness factor of ",
            Figure::Extra("misses/op", _) => "cache misses per operation of ",
            Figure::Extra("atomics/op", _) => "atomic instructions per operation of ",
            Figure::Extra("fences/op", _) => "fences and barriers per operation of ",
            Figure::Extra("remote", _) => "share of handovers between sockets of ",
            Figure::Extra("late wakes", _) => "wake-ups on the critical path per acquisition of ",
            Figure::Extra("parked", _) => "share of time asleep of ",
            Figure::Extra("writes/s", _) => "writes a second of ",
            Figure::Extra("failed tries/op", _) => "failed tries per operation of ",
            Figure::Extra("reclaimed", _) => "share of removed elements that were reclaimed in the run by ",
            Figure::Extra(..) => "figure of ",
            Figure::LockBytes(_) => "bytes of ",
            Figure::WaiterBytes(_) => "bytes per waiter of ",
            Figure::HolderBytes(_) => "bytes per holder of ",
            Figure::PthreadMutexBytes => "bytes of pthread_mutex_t",
            Figure::Probe(_) => "",
            Figure::Agreement => "share of the pairs that are in the same order",
        }
    }

    /// The lock that it is of; empty if it is of none.
    pub fn lock(&self) -> &'static str {
        match self {
            Figure::LockBytes(lock) | Figure::WaiterBytes(lock) | Figure::HolderBytes(lock) => lock,
            Figure::Probe(probe) => probe.lock(),
            _ => self.at().map_or("", |at| at.lock),
        }
    }

    fn place(&self) -> String {
        self.at().map_or(String::new(), |at| {
            let plural = if at.threads == 1 { "" } else { "s" };
            let set = if at.set.is_empty() { String::new() } else { format!(", {}", at.set) };
            format!("{} thread{plural}{set}", at.threads)
        })
    }

    fn name(&self) -> String {
        if let Figure::Probe(probe) = self {
            return probe.text();
        }
        format!("{}{}", self.what(), self.lock())
    }

    fn text(&self) -> String {
        let place = self.place();
        let place = if place.is_empty() { place } else { format!(" ({place})") };
        format!("{}{place}", self.name())
    }
}

/// What is computed from figures.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// One of them.
    Of(Figure),
    /// The first over the second.
    Ratio(Figure, Figure),
    /// The first over the second, over how many times more threads the first has: 1 is ideal.
    Speedup(Figure, Figure),
    /// The first less the second.
    Difference(Figure, Figure),
    /// The ratio of the first two over that of the others.
    OfRatios((Figure, Figure), (Figure, Figure)),
}

impl Value {
    /// What it is computed from.
    pub fn figures(&self) -> Vec<&Figure> {
        match self {
            Value::Of(figure) => vec![figure],
            Value::Ratio(a, b) | Value::Speedup(a, b) | Value::Difference(a, b) => vec![a, b],
            Value::OfRatios((a, b), (c, d)) => vec![a, b, c, d],
        }
    }

    /// The same, to be changed.
    pub fn figures_mut(&mut self) -> Vec<&mut Figure> {
        match self {
            Value::Of(figure) => vec![figure],
            Value::Ratio(a, b) | Value::Speedup(a, b) | Value::Difference(a, b) => vec![a, b],
            Value::OfRatios((a, b), (c, d)) => vec![a, b, c, d],
        }
    }

    /// The number, from what `get` has.
    pub fn compute(&self, get: &dyn Fn(&Figure) -> Result<f64, String>) -> Result<f64, String> {
        let value = match self {
            Value::Of(figure) => get(figure)?,
            Value::Ratio(above, below) => get(above)? / get(below)?,
            Value::Speedup(many, few) => {
                let threads = |figure: &Figure| figure.at().map_or(1.0, |at| at.threads as f64);
                get(many)? / get(few)? * threads(few) / threads(many)
            }
            Value::Difference(more, less) => get(more)? - get(less)?,
            Value::OfRatios((a, b), (c, d)) => (get(a)? / get(b)?) / (get(c)? / get(d)?),
        };
        if value.is_finite() { Ok(value) } else { Err("nothing was done in the measured time".into()) }
    }

    /// The number in a run of so many turns: it is computed in each turn, and the median counts. The turns of a run follow each
    /// other in what `get` has.
    pub fn over_turns(
        &self,
        run: usize,
        turns: usize,
        get: &dyn Fn(&Figure, usize) -> Result<f64, String>,
    ) -> Result<f64, String> {
        let of = |turn| self.compute(&|figure| get(figure, run * turns + turn));
        let values = (0..turns).map(of).collect::<Result<Vec<f64>, String>>()?;
        Ok(latchwork_console::stats::median(&values))
    }

    /// As the reader sees it.
    pub fn text(&self) -> String {
        let (what, place) = self.parts();
        if place.is_empty() { what } else { format!("{what}, {place}") }
    }

    /// What it is, and, where all of it is at one point, where that is.
    fn parts(&self) -> (String, String) {
        let (a, b, sign) = match self {
            Value::Of(figure) => return (figure.name(), figure.place()),
            Value::Ratio(a, b) => (a, b, "/"),
            Value::Speedup(a, b) => (a, b, "/ ideal speedup over"),
            Value::Difference(a, b) => (a, b, "-"),
            Value::OfRatios(above, below) => {
                let ratio = |(a, b): &(Figure, Figure)| {
                    let experiment = a.at().map_or("", |at| at.experiment);
                    format!("({} in {experiment})", Value::Ratio(a.clone(), b.clone()).text())
                };
                return (format!("{} / {}", ratio(above), ratio(below)), String::new());
            }
        };
        let probe = matches!(a, Figure::Probe(_));
        let (same_what, same_place) = (!probe && a.what() == b.what(), a.place() == b.place());
        let same_experiment = a.at().map(|at| at.experiment) == b.at().map(|at| at.experiment);
        match () {
            () if same_what && same_place && same_experiment => {
                (format!("{} {sign} {}", a.name(), b.lock()), a.place())
            }
            () if same_what && a.lock() == b.lock() && same_experiment => {
                (format!("{}, {} {sign} {}", a.name(), a.place(), b.place()), String::new())
            }
            () if !same_experiment && a.at().is_some() && b.at().is_some() => {
                let of = |figure: &Figure| figure.at().map_or("", |at| at.experiment);
                (format!("{} in {} {sign} {} in {}", a.text(), of(a), b.text(), of(b)), String::new())
            }
            () => (format!("{} {sign} {}", a.text(), b.text()), String::new()),
        }
    }
}

/// Where a value has to be.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Bound {
    /// Not below.
    AtLeast(f64),
    /// Not above.
    AtMost(f64),
    /// Neither below the first nor above the second.
    Within(f64, f64),
}

impl Bound {
    /// Whether a value is where it has to be.
    pub fn allows(self, value: f64) -> bool {
        match self {
            Bound::AtLeast(least) => value >= least,
            Bound::AtMost(most) => value <= most,
            Bound::Within(least, most) => (least..=most).contains(&value),
        }
    }

    /// How far from the bound: less than 0 is outside. Only to find the tightest of several.
    pub fn slack(self, value: f64) -> f64 {
        let over = |least: f64| value - least;
        let under = |most: f64| most - value;
        match self {
            Bound::AtLeast(least) => over(least) / least.abs().max(0.01),
            Bound::AtMost(most) => under(most) / most.abs().max(0.01),
            Bound::Within(least, most) => over(least).min(under(most)) / least.abs().max(0.01),
        }
    }

    /// By which factor a value misses it; 1 and less if it does not.
    pub fn miss(self, value: f64) -> f64 {
        match self {
            Bound::AtLeast(least) => least / value,
            Bound::AtMost(most) => value / most,
            Bound::Within(least, most) => (least / value).max(value / most),
        }
    }

    fn text(self) -> String {
        match self {
            Bound::AtLeast(least) => format!(">= {}", number(least)),
            Bound::AtMost(most) => format!("<= {}", number(most)),
            Bound::Within(least, most) => format!("in {} .. {}", number(least), number(most)),
        }
    }
}

/// A number as a table shows it.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 || (value.fract() == 0.0 && size < 1e15) => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => trim(format!("{value:.3}")),
        _ => trim(format!("{value:.4}")),
    }
}

fn trim(text: String) -> String {
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A value and where it has to be. A rule is a list of these; all of them have to be met.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// What is looked at.
    pub value: Value,
    /// Where it has to be.
    pub bound: Bound,
}

impl Check {
    /// As the reader sees it before the run.
    pub fn text(&self) -> String {
        format!("{} {}", self.value.text(), self.bound.text())
    }
}

/// All parts of a rule, a line for those that differ only in where they are looked at.
pub fn lines(checks: &[Check]) -> Vec<String> {
    let mut lines: Vec<(String, String, Vec<String>)> = Vec::new();
    for check in checks {
        let ((what, place), bound) = (check.value.parts(), check.bound.text());
        match lines.iter_mut().find(|(other, limit, _)| (other, limit) == (&what, &bound)) {
            Some((.., places)) => places.push(place),
            None => lines.push((what, bound, vec![place])),
        }
    }
    let line = |(what, bound, places): (String, String, Vec<String>)| match places.join("; ") {
        places if places.is_empty() => format!("{what} {bound}"),
        places => format!("{what} {bound} with {places}"),
    };
    lines.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(lock: &'static str, threads: usize) -> Figure {
        Figure::Rate(At { experiment: "made-up", lock, threads, set: String::new() })
    }

    #[test]
    fn rules_are_printed_as_they_are_checked() {
        let over = |value| Check { value, bound: Bound::Within(0.8, 1.25) }.text();
        assert_eq!(over(Value::Ratio(rate("new", 8), rate("old", 8))), "new / old, 8 threads in 0.8 .. 1.25");
        assert_eq!(
            over(Value::Ratio(rate("new", 8), rate("new", 1))),
            "new, 8 threads / 1 thread in 0.8 .. 1.25"
        );
        assert_eq!(over(Value::Of(Figure::LockBytes("mcs"))), "bytes of mcs in 0.8 .. 1.25");
        let more = Value::Difference(Figure::LockBytes("mcs"), Figure::LockBytes("tas"));
        assert_eq!(over(more), "bytes of mcs - tas in 0.8 .. 1.25");
    }

    #[test]
    fn a_ratio_of_ratios_says_both_and_where() {
        let pair = |threads| (rate("new", threads), rate("old", threads));
        let value = Value::OfRatios(pair(8), pair(1));
        assert_eq!(value.text(), "(new / old, 8 threads in made-up) / (new / old, 1 thread in made-up)");
        assert_eq!(value.figures().len(), 4);
        let get = |figure: &Figure| match figure.at().map(|at| (at.lock, at.threads)) {
            Some(("new", 8)) => Ok(12.0),
            Some(("new", _)) => Ok(2.0),
            _ => Ok(4.0),
        };
        assert_eq!(value.compute(&get), Ok(6.0));
    }

    #[test]
    fn parts_that_differ_only_in_their_place_share_a_line() {
        let over =
            |threads, bound| Check { value: Value::Ratio(rate("new", threads), rate("old", threads)), bound };
        let checks = [over(2, FLAT), over(8, FLAT), over(8, SIMILAR)];
        assert_eq!(
            lines(&checks),
            ["new / old in 0.67 .. 1.5 with 2 threads; 8 threads", "new / old in 0.8 .. 1.25 with 8 threads"]
        );
    }

    #[test]
    fn factors_of_the_papers_become_bounds() {
        assert_eq!(gain(2.0), Bound::AtLeast(1.5));
        assert_eq!(decrease(0.75), Bound::AtMost(0.5));
        assert_eq!(number(2.4), "2.4");
        assert_eq!(number(0.0012), "0.0012");
        assert_eq!(number(128.0), "128");
        assert_eq!(number(100.0), "100");
    }
}
