//! The report on the terminal: the verdict, the tables, what to try, and what profiling cost.

use super::advice;
use super::findings::{self, ratio};
use super::model::{Class, Condition, Error, Kind, Pair, Profile, Unfinished};
use super::units::{self, bytes, count, percent, things, time};
use latchwork_console::table::{self, right};
use std::collections::BTreeSet;

/// Lines of each table. The other reports have all.
const LINES: usize = 10;

/// Classes that cost less of all waiting than this are counted below the table.
const LEAST: f64 = 0.001;

/// Longest name in a table. A longer one would push the figures out of the terminal.
const WIDEST: usize = 44;

/// All of it.
pub fn text(profile: &Profile) -> String {
    let mut text = String::new();
    for sentence in findings::verdict(profile) {
        text += &fold(&sentence, "");
    }
    text += &locks(profile);
    text += &pairs(profile, profile.lost_ns(), ["lost", "blocked at"], |class| &class.pairs);
    // Less than that is not worth a table: the verdict says nothing of it, either.
    if findings::after_conditions(profile).is_some() {
        let again = ["to lock again", "after the condition at"];
        text += &pairs(profile, profile.reacquire_ns(), again, |class| &class.reacquire_pairs);
    }
    text += &conditions(profile);
    let advice = advice::advice(profile);
    if !advice.is_empty() {
        text += "\nWhat to try:\n";
        for advice in &advice {
            text += &fold(&format!("- {}", advice.text), "  ");
        }
    }
    text + "\n" + &cost(profile)
}

fn locks(profile: &Profile) -> String {
    let waited = profile.lost_ns();
    let shown = |class: &&Class| waited > 0 && ratio(class.lost_ns(), waited) >= LEAST;
    let classes: Vec<&Class> = profile.locks.iter().filter(shown).take(LINES).collect();
    if classes.is_empty() {
        return String::new();
    }
    let mut table = table::new([
        "lock", "", "locks", "acquired", "waited", "lost", "", "wait 99%", "longest", "held", "±", "held 99%",
    ]);
    for class in &classes {
        let margin = class.holds.sampling_error_ns().margin_ns();
        let known = |ns: u64| if class.holds.count == 0 { "-".into() } else { time(ns) };
        table.add_row([
            cut(&class.name),
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
        ]);
    }
    right(&mut table, 2..=11);
    let mut text = format!("\n{}\n", table.trim_fmt());
    let rest = profile.locks.len() - classes.len();
    if rest > 0 {
        let shown = classes.iter().map(|class| class.lost_ns()).sum::<u64>();
        let lost = profile.lost_ns().saturating_sub(shown);
        let lost =
            if lost == 0 { "no thread waited".into() } else { format!("threads waited {}", time(lost)) };
        text += &format!("and {} more, for which {lost}\n", things(rest as u64, "class"));
    }
    for class in classes.iter().filter(|class| class.waiting.threads > 0) {
        text += &fold(
            &format!("Of the time lost for {}, {}.", class.name, still_waiting(profile, class.waiting)),
            "",
        );
    }
    text + &manners(profile, &classes)
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
fn manners(profile: &Profile, classes: &[&Class]) -> String {
    let mut table = table::new([
        "how",
        "spinning",
        "handover",
        "waiting",
        "at most",
        "readers",
        "at most",
        "next: other thread",
        "other CPU",
        "other node",
    ]);
    let share = |part, whole| if whole == 0 { "-".into() } else { percent(ratio(part, whole)) };
    for class in classes {
        let next = class.successions;
        let is_shared = class.kind == Kind::RwLock;
        let of_readers = |text: String| if is_shared { text } else { String::new() };
        table.add_row([
            cut(&class.name),
            share(class.spun_ns, class.timed_ns),
            share(class.handover_ns, class.waits.sum_ns),
            format!("{:.2}", class.waiters_mean(profile.seconds)),
            count(class.waiters_max),
            of_readers(format!("{:.2}", class.readers_mean(profile.seconds))),
            of_readers(count(class.readers_max)),
            share(next.by_thread, next.compared),
            share(next.by_cpu, next.compared),
            share(next.by_node, next.compared),
        ]);
    }
    right(&mut table, 1..=9);
    format!("\n{}\n", table.trim_fmt())
}

/// The pairs of a waiter and the holder that it waited for. `waited`: all of that waiting; `titles`: those of its column and of the place.
fn pairs(profile: &Profile, waited: u64, [lost, place]: [&str; 2], of: impl Fn(&Class) -> &[Pair]) -> String {
    let mut all = Vec::new();
    for class in &profile.locks {
        let mut parts: Vec<((String, String), (u64, Error))> = Vec::new();
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
    let mut table = table::new([lost, "±", "", place, "because it was held from", "lock"]);
    for (class, ((waiter, holder), (ns, error))) in all.iter().take(LINES) {
        let margin = if *error == Error::default() { String::new() } else { time(error.margin_ns()) };
        let share = percent(ratio(*ns, waited));
        table.add_row([time(*ns), margin, share, cut(waiter), cut(holder), cut(&class.name)]);
    }
    right(&mut table, 0..=2);
    format!("\n{}\n", table.trim_fmt())
}

fn conditions(profile: &Profile) -> String {
    let waits = |condition: &&Condition| condition.waits + condition.waiting.threads > 0;
    let conditions: Vec<_> = profile.condvars.iter().filter(waits).take(LINES / 2).collect();
    if conditions.is_empty() {
        return String::new();
    }
    let mut table = table::new([
        "waiting for conditions and semaphores",
        "",
        "waits",
        "still waiting",
        "time",
        "notified",
    ]);
    for condition in conditions {
        table.add_row([
            cut(&condition.name),
            condition.kind().into(),
            count(condition.waits),
            count(condition.waiting.threads),
            time(condition.idle_ns()),
            count(condition.notifications),
        ]);
    }
    right(&mut table, 2..=5);
    format!("\n{}\n", table.trim_fmt())
}

fn cost(profile: &Profile) -> String {
    let overhead = &profile.overhead;
    // A process that executes another program has several recordings.
    let processes: BTreeSet<u32> = profile.processes.iter().map(|process| process.pid).collect();
    let processes = match processes.len() {
        1 => String::new(),
        many => format!(" in {many} processes"),
    };
    let mut text = fold(
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
        text += &fold(&format!("There was no room for {} {}.", count(dropped.count), dropped.what), "");
    }
    for note in &profile.notes {
        text += &fold(note, "");
    }
    text
}

/// A name as wide as the tables allow.
fn cut(name: &str) -> String {
    units::cut(name, WIDEST)
}

/// A sentence in lines of at most 100 characters. Lines after the first begin with `indent`.
fn fold(sentence: &str, indent: &str) -> String {
    let (mut text, mut width) = (String::new(), 0);
    for word in sentence.split_whitespace() {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > 100 {
            text += "\n";
            text += indent;
            width = indent.len();
        } else if width > 0 {
            text.push(' ');
            width += 1;
        }
        text += word;
        width += length;
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::sample;

    #[test]
    fn the_verdict_comes_first_and_the_cost_last() {
        let text = text(&sample::profile());
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
        assert!(!text(&profile).contains("to lock again"));
        let class = &mut profile.locks[0];
        (class.reacquire_ns, class.reacquire_pairs[0].wait_ns) = (20_000_000_000, 15_000_000_000);
        let text = text(&profile);
        let line = text.lines().skip_while(|line| !line.contains("to lock again")).nth(1).expect("a table");
        let cells: Vec<_> = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        let expected =
            ["15 s", "75%", "Cache::put (cache.cc:64)", "Cache::evict (cache.cc:120)", "cache.mutex_"];
        assert_eq!(cells, expected, "{text}");
    }

    /// A hundred calls gave up at their deadlines, and one got the lock.
    #[test]
    fn no_share_is_larger_than_all() {
        let mut profile = sample::profile();
        let class = &mut profile.locks[0];
        (class.acquisitions, class.contended, class.timeouts) = (1, 100, 100);
        let text = text(&profile);
        let line = text
            .lines()
            .find(|line| line.trim_start().starts_with("cache.mutex_"))
            .expect("a line for the lock");
        assert!(line.contains(" 99% "), "{line}");
    }
}
