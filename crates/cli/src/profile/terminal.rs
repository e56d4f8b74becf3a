//! The report on the terminal: the verdict, the tables, what to try, and what profiling cost.

use super::advice;
use super::findings::{self, ratio};
use super::model::{Class, Condition, Error, Kind, Pair, Profile, Unfinished};
use super::units::{self, bytes, count, percent, things, time};
use latchwork_console::fold::fold;
use latchwork_console::table::{self, right};
use std::collections::BTreeSet;

/// Lines of each table. The other reports have all.
const LINES: usize = 10;

/// Classes that cost less of all waiting than this are counted below the table.
const LEAST: f64 = 0.001;

/// Longest name in a table. C++ has names of thousands of characters.
const WIDEST: usize = 200;

/// Names are not cut below this width. In a narrower terminal a table has fewer columns, and another table the others.
const NARROW: usize = 24;

/// Three names in a line have at least this width each, or a line each.
const THIRD: usize = 32;

/// Longest line of a sentence.
const SENTENCE: usize = 100;

/// Spaces between two columns, in which the first one begins.
const GAP: usize = 2;

/// All of it, for a terminal with so many columns. `None`: for a file, with whole names.
pub fn text(profile: &Profile, width: Option<usize>) -> String {
    let width = Width(width);
    let mut text = String::new();
    for sentence in findings::verdict(profile) {
        text += &width.fold(&sentence, "");
    }
    text += &locks(profile, width);
    text += &pairs(profile, profile.lost_ns(), ["lost", "blocked at"], |class| &class.pairs, width);
    // Less than that is not worth a table: the verdict says nothing of it, either.
    if findings::after_conditions(profile).is_some() {
        let again = ["to lock again", "after the condition at"];
        text += &pairs(profile, profile.reacquire_ns(), again, |class| &class.reacquire_pairs, width);
    }
    text += &conditions(profile, width);
    let advice = advice::advice(profile);
    if !advice.is_empty() {
        text += "\nWhat to try:\n";
        for advice in &advice {
            text += &width.fold(&format!("- {}", advice.text), "  ");
        }
    }
    text + "\n" + &cost(profile, width)
}

/// The columns of the terminal; `None` for a file.
#[derive(Copy, Clone)]
struct Width(Option<usize>);

impl Width {
    /// A sentence in lines. Those after the first begin with `indent`.
    fn fold(self, sentence: &str, indent: &str) -> String {
        fold(sentence, indent, self.0.map_or(SENTENCE, |width| width.min(SENTENCE)))
    }

    /// The most characters of a name, beside so many of other columns.
    fn of_names(self, others: usize) -> usize {
        self.0.map_or(WIDEST, |width| width.saturating_sub(others).clamp(NARROW, WIDEST))
    }
}

fn chars(text: &str) -> usize {
    text.chars().count()
}

/// The width of a column with these cells.
fn wide<'a>(cells: impl Iterator<Item = &'a str>) -> usize {
    GAP + cells.map(chars).max().unwrap_or(0)
}

/// A table with a name in the first column. What does not fit beside the name comes in further tables below, with the name again.
struct Columns {
    head: Vec<&'static str>,
    /// So many columns from the first on have words; the others have figures.
    words: usize,
    rows: Vec<Vec<String>>,
}

impl Columns {
    /// Heads of columns that say something of the column before, and stay beside it.
    const BOUND: [&str; 5] = ["", "±", "at most", "other CPU", "other node"];

    fn text(&self, width: Width) -> String {
        let cells = |column: usize| self.rows.iter().map(move |row| &*row[column]);
        let wide = |column: &usize| wide(cells(*column).chain([self.head[*column]]));
        // Columns that stay together.
        let mut bundles: Vec<Vec<usize>> = Vec::new();
        for column in 1..self.head.len() {
            match bundles.last_mut() {
                Some(bundle) if Self::BOUND.contains(&self.head[column]) => bundle.push(column),
                _ => bundles.push(vec![column]),
            }
        }
        let least = cells(0).map(chars).max().unwrap_or(0).min(NARROW);
        // The columns of each table, and their width with the space before the name.
        let mut tables: Vec<(Vec<usize>, usize)> = Vec::new();
        for bundle in bundles {
            let more: usize = bundle.iter().map(wide).sum();
            match tables.last_mut() {
                Some((columns, used)) if width.0.is_none_or(|width| least + *used + more <= width) => {
                    columns.extend(bundle);
                    *used += more;
                }
                _ => tables.push((bundle, 1 + more)),
            }
        }
        let table = |(columns, used): (Vec<usize>, usize)| {
            let room = width.of_names(used);
            let title = fold(self.head[0], "", room);
            let head = columns.iter().map(|column| self.head[*column]);
            let mut table = table::new([title.trim_end()].into_iter().chain(head).collect::<Vec<_>>());
            for row in &self.rows {
                let others = columns.iter().map(|column| row[*column].clone());
                table.add_row([units::cut(&row[0], room)].into_iter().chain(others));
            }
            let figures = (1..).zip(&columns).filter(|(_, column)| **column >= self.words);
            right(&mut table, figures.map(|(place, _)| place));
            format!("\n{}\n", table.trim_fmt())
        };
        tables.into_iter().map(table).collect()
    }
}

fn locks(profile: &Profile, width: Width) -> String {
    let waited = profile.lost_ns();
    let shown = |class: &&Class| waited > 0 && ratio(class.lost_ns(), waited) >= LEAST;
    let classes: Vec<&Class> = profile.locks.iter().filter(shown).take(LINES).collect();
    if classes.is_empty() {
        return String::new();
    }
    let row = |class: &&Class| {
        let margin = class.holds.sampling_error_ns().margin_ns();
        let known = |ns: u64| if class.holds.count == 0 { "-".into() } else { time(ns) };
        vec![
            class.name.clone(),
            match class.kind {
                Kind::RwLock => format!("rw, {} read", percent(ratio(class.reads, class.acquisitions))),
                kind => kind.key().into(),
            },
            count(class.instances),
            count(class.acquisitions),
            percent(ratio(class.contended, class.calls())),
            time(class.lost_ns()),
            percent(ratio(class.lost_ns(), waited)),
            time(class.waits.quantile_ns(0.99)),
            time(class.waits.max_ns),
            known(class.mean_hold_ns(profile.seconds)),
            if margin == 0 { String::new() } else { time(margin) },
            known(class.holds.quantile_ns(0.99)),
        ]
    };
    let table = Columns {
        head: vec![
            "lock", "", "locks", "acquired", "waited", "lost", "", "wait 99%", "longest", "held", "±",
            "held 99%",
        ],
        words: 2,
        rows: classes.iter().map(row).collect(),
    };
    let mut text = table.text(width);
    let rest = profile.locks.len() - classes.len();
    if rest > 0 {
        let shown = classes.iter().map(|class| class.lost_ns()).sum::<u64>();
        let lost = profile.lost_ns().saturating_sub(shown);
        let lost =
            if lost == 0 { "no thread waited".into() } else { format!("threads waited {}", time(lost)) };
        text += &format!("and {} more, for which {lost}\n", things(rest as u64, "class"));
    }
    for class in classes.iter().filter(|class| class.waiting.threads > 0) {
        text += &width.fold(
            &format!("Of the time lost for {}, {}.", class.name, still_waiting(profile, class.waiting)),
            "",
        );
    }
    text + &manners(profile, &classes, width)
}

/// Says how many waits had not ended.
fn still_waiting(profile: &Profile, waiting: Unfinished) -> String {
    let (verb, example) = if waiting.threads == 1 { ("was", "") } else { ("were", "for example ") };
    format!(
        "{} is in waits that had not ended: {} {verb} still waiting, {example}at {}",
        time(waiting.wait_ns),
        things(waiting.threads, "thread"),
        profile.place(waiting.stack)
    )
}

/// How threads waited for these classes, and where the locks went.
fn manners(profile: &Profile, classes: &[&Class], width: Width) -> String {
    let share = |part, whole| if whole == 0 { "-".into() } else { percent(ratio(part, whole)) };
    let is_shared = |class: &Class| class.kind == Kind::RwLock;
    let any_shared = classes.iter().any(|class| is_shared(class));
    let mut head = vec!["how", "spinning", "handover", "waiting", "at most"];
    head.extend(any_shared.then_some(["readers", "at most"]).into_iter().flatten());
    head.extend(["next: other thread", "other CPU", "other node"]);
    let row = |class: &&Class| {
        let next = class.successions;
        let of_readers = |text: String| if is_shared(class) { text } else { String::new() };
        let mut row = vec![
            class.name.clone(),
            share(class.spun_ns, class.timed_ns),
            share(class.handover_ns, class.waits.sum_ns),
            format!("{:.2}", class.waiters_mean(profile.seconds)),
            count(class.waiters_max),
        ];
        if any_shared {
            row.push(of_readers(format!("{:.2}", class.readers_mean(profile.seconds))));
            row.push(of_readers(count(class.readers_max)));
        }
        row.extend([next.by_thread, next.by_cpu, next.by_node].map(|part| share(part, next.compared)));
        row
    };
    Columns { head, words: 1, rows: classes.iter().map(row).collect() }.text(width)
}

/// The places of a waiter and of the holder, and how long the waiter waited for it, with the error of that.
type Part = ((String, String), (u64, Error));

/// The pairs of a waiter and the holder that it waited for. `waited`: all of that waiting; `titles`: those of its column and of the place.
/// Where three names do not fit into a line, each has a line.
fn pairs(
    profile: &Profile,
    waited: u64,
    [lost, place]: [&str; 2],
    of: impl Fn(&Class) -> &[Pair],
    width: Width,
) -> String {
    let mut all = Vec::new();
    for class in &profile.locks {
        let mut parts: Vec<Part> = Vec::new();
        for pair in of(class) {
            let key = (profile.place(pair.waiter), pair.cause.place(profile));
            match parts.iter_mut().find(|part| part.0 == key) {
                Some((_, (ns, error))) => (*ns, *error) = (*ns + pair.wait_ns, error.and(pair.error_ns)),
                None => parts.push((key, (pair.wait_ns, pair.error_ns))),
            }
        }
        all.extend(parts.into_iter().map(|part| (class, part)));
    }
    all.sort_by_key(|(_, (_, (ns, _)))| std::cmp::Reverse(*ns));
    all.retain(|(_, (_, (ns, _)))| ratio(*ns, waited) >= LEAST);
    if all.is_empty() {
        return String::new();
    }
    all.truncate(LINES);
    let row = |(class, ((waiter, holder), (ns, error))): (&Class, Part)| {
        let margin = if error == Error::default() { String::new() } else { time(error.margin_ns()) };
        ([time(ns), margin, percent(ratio(ns, waited))], [waiter, holder, class.name.clone()])
    };
    let rows: Vec<([String; 3], [String; 3])> = all.into_iter().map(row).collect();
    let (heads, titles) = ([lost, "±", ""], [place, "because it was held from", "lock"]);
    let column =
        |column: usize| rows.iter().map(move |(figures, _)| &*figures[column]).chain([heads[column]]);
    let used = 1 + (0..heads.len()).map(|number| wide(column(number))).sum::<usize>();
    let longest = rows.iter().flat_map(|(_, names)| names).map(|name| chars(name)).max().unwrap_or(0);
    let third = width.0.map_or(WIDEST, |width| (width.saturating_sub(used) / 3).saturating_sub(GAP));
    let mut table = if third >= longest.min(THIRD) {
        let mut table = table::new([heads, titles].concat());
        for (figures, names) in rows {
            table.add_row(figures.into_iter().chain(names.map(|name| units::cut(&name, third))));
        }
        table
    } else {
        let room = width.of_names(used + wide(titles.into_iter()));
        let mut table = table::new([heads[0], heads[1], heads[2], "", ""]);
        for (figures, names) in rows {
            let names = names.map(|name| units::cut(&name, room)).join("\n");
            table.add_row(figures.into_iter().chain([titles.join("\n"), names]));
        }
        table
    };
    right(&mut table, 0..=2);
    format!("\n{}\n", table.trim_fmt())
}

fn conditions(profile: &Profile, width: Width) -> String {
    let waits = |condition: &&Condition| condition.waits + condition.waiting.threads > 0;
    let conditions: Vec<_> = profile.condvars.iter().filter(waits).take(LINES / 2).collect();
    if conditions.is_empty() {
        return String::new();
    }
    let row = |condition: &&Condition| {
        vec![
            condition.name.clone(),
            condition.kind().into(),
            count(condition.waits),
            count(condition.waiting.threads),
            time(condition.idle_ns()),
            count(condition.notifications),
        ]
    };
    let head =
        vec!["waiting for conditions and semaphores", "", "waits", "still waiting", "time", "notified"];
    Columns { head, words: 2, rows: conditions.iter().map(row).collect() }.text(width)
}

fn cost(profile: &Profile, width: Width) -> String {
    let overhead = &profile.overhead;
    // A process that executes another program has several recordings.
    let processes: BTreeSet<u32> = profile.processes.iter().map(|process| process.pid).collect();
    let processes = match processes.len() {
        1 => String::new(),
        many => format!(" in {many} processes"),
    };
    let mut text = width.fold(
        &format!(
            "Recorded {:.1} s, {}{processes}. Profiling: {} recorded, {} of file, {} for {}.",
            profile.seconds,
            things(profile.threads.len() as u64, "thread"),
            things(overhead.calls, "lock call"),
            bytes(overhead.memory_bytes),
            time(overhead.unwinding_ns),
            things(overhead.stacks, "stack")
        ),
        "",
    );
    for dropped in &profile.dropped {
        text += &width.fold(&format!("There was no room for {} {}.", count(dropped.count), dropped.what), "");
    }
    for note in &profile.notes {
        text += &width.fold(note, "");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::sample;

    #[test]
    fn the_verdict_comes_first_and_the_cost_last() {
        let text = text(&sample::profile(), None);
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part:?} in:\n{text}"));
        let order = [
            "Threads spent 38%",
            "wait 99%",
            "spinning",
            "blocked at",
            "Cache::evict (cache.cc:120)",
            "waiting for conditions and",
            "What to try:",
            "Profiling: 1.0 M lock calls",
            "no room for 12 stacks",
            "This is a sample.",
        ];
        for pair in order.windows(2) {
            assert!(at(pair[0]) < at(pair[1]), "{pair:?}:\n{text}");
        }
        assert!(text.contains("(handover: nobody held it)"), "{text}");
        assert!(text.contains("rw, 97% read"), "{text}");
        let line = text.lines().find(|line| line.contains("Cache::put (cache.cc:64)  Cache::get"));
        assert!(line.is_some_and(|line| line.contains("3.5 s") && line.contains("60 ms")), "{text}");
    }

    /// Waits for a mutex after a condition have a table if the verdict speaks of them.
    #[test]
    fn who_keeps_a_mutex_from_woken_threads() {
        let mut profile = sample::profile();
        assert!(!text(&profile, None).contains("to lock again"));
        let class = &mut profile.locks[0];
        (class.reacquire_ns, class.reacquire_pairs[0].wait_ns) = (20_000_000_000, 15_000_000_000);
        let text = text(&profile, None);
        let line = text.lines().skip_while(|line| !line.contains("to lock again")).nth(1).expect("a table");
        let cells: Vec<_> = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        let expected =
            ["15 s", "75%", "Cache::put (cache.cc:64)", "Cache::evict (cache.cc:120)", "cache.mutex_"];
        assert_eq!(cells, expected, "{text}");
    }

    /// A terminal shows every line whole, and a file has whole names.
    #[test]
    fn tables_fit_the_terminal() {
        let mut profile = sample::profile();
        let long = format!("server::{}::mutex_", "storage_engine::".repeat(3));
        profile.locks[0].name.clone_from(&long);
        let class = &mut profile.locks[0];
        (class.reacquire_ns, class.reacquire_pairs[0].wait_ns) = (20_000_000_000, 15_000_000_000);
        let file = text(&profile, None);
        assert!(file.matches(&long).count() >= 4 && !file.contains('…'), "{file}");
        for width in [80, 100, 132, 200] {
            let text = text(&profile, Some(width));
            let longest = text.lines().map(chars).max().unwrap_or(0);
            assert!(longest <= width, "{longest} for {width}:\n{text}");
            // Nothing is left out but parts of names.
            let figures = |text: &str| {
                let words =
                    text.split_whitespace().filter(|word| word.bytes().any(|byte| byte.is_ascii_digit()));
                words.map(str::to_owned).collect::<BTreeSet<_>>()
            };
            assert_eq!(figures(&text), figures(&file), "{width}:\n{text}");
            for head in ["wait 99%", "held 99%", "spinning", "other node", "blocked at", "notified"] {
                assert!(text.contains(head), "{head} for {width}:\n{text}");
            }
        }
    }

    /// A hundred calls gave up at their deadlines, and one got the lock.
    #[test]
    fn no_share_is_larger_than_all() {
        let mut profile = sample::profile();
        let class = &mut profile.locks[0];
        (class.acquisitions, class.contended, class.timeouts) = (1, 100, 100);
        let text = text(&profile, None);
        let line = text
            .lines()
            .find(|line| line.trim_start().starts_with("cache.mutex_"))
            .expect("a line for the lock");
        assert!(line.contains(" 99% "), "{line}");
    }
}
