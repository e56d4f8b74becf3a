//! The report as one page for a browser. It needs no network, and is below a megabyte: what costs little is left out of a
//! large profile, and the page says how much.
//!
//! The page is `page/page.html` with the style sheet, the script and the data put into it.

use super::model::{Cause, Class, Condition, Holder, Lengths, Pair, Profile, StackId};
use super::symbols::wrappers;
use super::{advice, chains, findings};
use serde_json::{Value, json};
use std::collections::HashMap;

/// Longest page, in bytes.
const LONGEST: usize = 1_000_000;

/// Columns of the timeline: about as many as a screen has room for.
const COLUMNS: usize = 400;

/// Locks of the timeline that have a colour of their own. The others are shown together.
const COLOURED: usize = 8;

/// The page.
pub fn text(profile: &Profile) -> String {
    // Waits and stacks that are shown. Half as many until the page is short enough.
    let mut most = 8_192;
    loop {
        let page = page(profile, most);
        if page.len() <= LONGEST || most < 16 {
            return page;
        }
        most /= 2;
    }
}

fn page(profile: &Profile, most: usize) -> String {
    let data = serde_json::to_string(&data(profile, most)).expect("plain data");
    // In a script, only `</script` and `<!--` could end the data too early.
    let data = data.replace('<', "\\u003c");
    let mut page = String::new();
    for part in include_str!("page/page.html").split_inclusive("-->") {
        let (before, mark) = part.split_once("<!--").unwrap_or((part, ""));
        page += before;
        page += match mark.trim_end_matches("-->").trim() {
            "style" => include_str!("page/style.css"),
            "data" => &data,
            "script" => include_str!("page/script.js"),
            "drawings" => include_str!("page/drawings.js"),
            _ => "",
        };
    }
    page
}

/// What the script shows. Times are in nanoseconds; stacks and frames are numbers in lists.
fn data(profile: &Profile, most: usize) -> Value {
    let mut stacks = Stacks {
        profile,
        most,
        numbers: HashMap::new(),
        list: Vec::new(),
        naming: Vec::new(),
        frames: HashMap::new(),
        used: Vec::new(),
    };
    let locks: Vec<Value> = profile.locks.iter().take(most).map(|class| lock(class, &mut stacks)).collect();
    let conditions: Vec<Value> =
        profile.condvars.iter().take(most).map(|found| condition(found, &mut stacks)).collect();
    let mut longest: Vec<_> = profile.waits.iter().filter(|wait| wait.lock < locks.len()).collect();
    longest.sort_by_key(|wait| std::cmp::Reverse(wait.length_ns));
    longest.truncate(most);
    let waits: Vec<Value> = longest
        .into_iter()
        .map(|wait| {
            let (stack, cause) = (stacks.number(wait.stack), stacks.cause(wait.cause));
            json!([wait.thread, wait.lock, wait.start_ns, wait.length_ns, cause, stack])
        })
        .collect();
    let chains: Vec<Value> = chains::chains(profile)
        .iter()
        .map(|chain| {
            let (holder, waiter) = (profile.place(chain.holder), profile.place(chain.waiter));
            let names = [chain.outer, chain.inner].map(|lock| profile.locks[lock].name.as_str());
            json!([names[0], holder, names[1], waiter, chain.at_most_ns])
        })
        .collect();
    let dropped: Vec<_> =
        profile.dropped.iter().map(|dropped| json!([dropped.what, dropped.count])).collect();
    let left_out = (profile.locks.len() - locks.len()) + stacks.left_out();
    let mut data = json!({
        "command": profile.command.join(" "),
        "seconds": profile.seconds,
        "lifetime": profile.lifetime_ns(),
        "waited": profile.lost_ns(),
        "verdict": findings::verdict(profile),
        "advice": advice::advice(profile).iter().map(|advice| &advice.text).collect::<Vec<_>>(),
        "notes": profile.notes,
        "calls": profile.overhead.calls,
        "bytes": profile.overhead.memory_bytes,
        "unwinding": profile.overhead.unwinding_ns,
        "dropped": dropped,
        "leftOut": left_out,
        "chains": chains,
    });
    let threads = profile.threads.iter().take(most).map(|thread| {
        let pid = profile.processes.get(thread.process).map_or(0, |process| process.pid);
        json!([
            thread.name,
            pid,
            thread.tid,
            thread.lifetime_ns,
            thread.wait_ns,
            thread.waits,
            thread.idle_ns
        ])
    });
    data["threads"] = threads.collect();
    data["timeline"] = timeline(profile);
    data["locks"] = locks.into();
    data["conditions"] = conditions.into();
    data["waits"] = waits.into();
    data["stacks"] = json!(stacks.list);
    data["naming"] = json!(stacks.naming);
    data["frames"] = stacks
        .used
        .iter()
        .map(|frame| {
            let frame = &profile.frames[*frame];
            let file = frame.file.rsplit('/').next().expect("one part");
            json!([frame.function, file, frame.line, frame.module])
        })
        .collect();
    data
}

fn lock(class: &Class, stacks: &mut Stacks) -> Value {
    let (pairs, reacquires) = (pairs(&class.pairs, stacks), pairs(&class.reacquire_pairs, stacks));
    let waiters = class.waiters.iter().take(stacks.most);
    let waiters: Vec<Value> = waiters
        .map(|waiter| json!([stacks.number(waiter.stack), waiter.count, waiter.wait_ns, waiter.error_ns.0]))
        .collect();
    let causes = |holder: &&Holder| holder.caused_wait_ns > 0;
    let holders = class.holders.iter().filter(causes).take(stacks.most);
    let holders: Vec<Value> = holders
        .map(|holder| {
            let stack = stacks.number(holder.stack);
            let (error, holds) = (holder.error_ns.0, holder.holds);
            json!([stack, holder.waits, holder.caused_wait_ns, error, holds, holder.hold_ns])
        })
        .collect();
    json!({
        "name": class.name,
        "kind": class.kind.text(),
        "origin": class.origin,
        "served": class.served_by.join(", "),
        "instances": class.instances,
        "parts": class.instance_wait_ns.iter().take(32).collect::<Vec<_>>(),
        "acquired": class.acquisitions,
        "reads": class.reads,
        "contended": class.contended,
        "failed": class.failed_tries,
        "timeouts": class.timeouts,
        "handover": class.handover_ns,
        "again": class.reacquire_ns,
        "lost": class.lost_ns(),
        "still": [class.waiting.threads, class.waiting.wait_ns],
        "most": class.waiters_max,
        "waiting": class.waiters_mean(stacks.profile.seconds),
        "readers": [class.readers_mean(stacks.profile.seconds), class.readers_max],
        "spun": [class.spun_ns, class.timed_ns],
        "next": [
            class.successions.by_thread,
            class.successions.by_cpu,
            class.successions.by_node,
            class.successions.compared,
        ],
        "wait": lengths(&class.waits),
        "hold": lengths(&class.holds),
        "waiters": waiters,
        "holders": holders,
        "pairs": pairs,
        "reacquires": reacquires,
    })
}

fn pairs(pairs: &[Pair], stacks: &mut Stacks) -> Vec<Value> {
    let pairs = pairs.iter().take(stacks.most);
    pairs
        .map(|pair| {
            let (waiter, cause) = (stacks.number(pair.waiter), stacks.cause(pair.cause));
            json!([waiter, cause, pair.wait_ns, pair.error_ns.0])
        })
        .collect()
}

fn condition(condition: &Condition, stacks: &mut Stacks) -> Value {
    let waiters: Vec<Value> = condition
        .waiters
        .iter()
        .take(stacks.most)
        .map(|waiter| json!([stacks.number(waiter.stack), waiter.count, waiter.wait_ns]))
        .collect();
    json!({
        "name": condition.name,
        "kind": condition.kind(),
        "origin": condition.origin,
        "waits": condition.waits,
        "still": condition.waiting.threads,
        "wait": condition.idle_ns(),
        "timeouts": condition.timeouts,
        "notified": condition.notifications,
        "waiters": waiters,
    })
}

fn lengths(lengths: &Lengths) -> Value {
    let buckets: Vec<_> =
        lengths.buckets.iter().map(|bucket| [bucket.start, bucket.end, bucket.count]).collect();
    json!({
        "count": lengths.count,
        "sum": lengths.sum_ns,
        "max": lengths.max_ns,
        "p50": lengths.quantile_ns(0.5),
        "p99": lengths.quantile_ns(0.99),
        "p999": lengths.quantile_ns(0.999),
        "buckets": buckets,
    })
}

/// How many threads waited for each lock at each time.
fn timeline(profile: &Profile) -> Value {
    let whole_ns = profile.seconds * 1e9;
    if profile.waits.is_empty() || whole_ns <= 0.0 {
        return Value::Null;
    }
    let column_ns = whole_ns / COLUMNS as f64;
    let mut rows = vec![vec![0.0; COLUMNS]; COLOURED + 1];
    for wait in &profile.waits {
        let row = &mut rows[wait.lock.min(COLOURED)];
        let (start, length) = (wait.start_ns as f64, wait.length_ns.max(1) as f64);
        let end = start + length;
        // The wait stands for others at about the same time that were not chosen.
        let weight = wait.stands_for_ns as f64 / length;
        let first = (start / column_ns) as usize;
        for (column, sum) in row.iter_mut().enumerate().skip(first) {
            let (from, to) = (column as f64 * column_ns, (column + 1) as f64 * column_ns);
            if from >= end {
                break;
            }
            *sum += (end.min(to) - start.max(from)).max(0.0) * weight / column_ns;
        }
    }
    let rounded = |value: &f64| (value * 100.0).round() / 100.0;
    let rows: Vec<Vec<f64>> = rows.iter().map(|row| row.iter().map(rounded).collect()).collect();
    json!({ "column": column_ns, "rows": rows })
}

/// The stacks and frames that the page has, with their numbers there.
struct Stacks<'a> {
    profile: &'a Profile,
    most: usize,
    numbers: HashMap<StackId, usize>,
    list: Vec<Vec<usize>>,
    /// Which frame names each stack.
    naming: Vec<usize>,
    frames: HashMap<usize, usize>,
    used: Vec<usize>,
}

impl Stacks<'_> {
    fn number(&mut self, stack: StackId) -> usize {
        if let Some(number) = self.numbers.get(&stack) {
            return *number;
        }
        let frames = self.profile.stacks.get(stack).map_or(&[][..], Vec::as_slice);
        // A stack for which there is no room is shown by the frame that names it.
        let named = self.list.len() >= self.most;
        let naming = wrappers::naming(frames, &self.profile.frames);
        let kept = if named { frames.get(naming..=naming).unwrap_or_default() } else { frames };
        let frames: Vec<usize> = kept.iter().map(|frame| self.frame(*frame)).collect();
        self.list.push(frames);
        self.naming.push(if named { 0 } else { naming });
        self.numbers.insert(stack, self.list.len() - 1);
        self.list.len() - 1
    }

    fn frame(&mut self, frame: usize) -> usize {
        *self.frames.entry(frame).or_insert_with(|| {
            self.used.push(frame);
            self.used.len() - 1
        })
    }

    /// A stack's number, or a negative one.
    fn cause(&mut self, cause: Cause) -> i64 {
        match cause {
            Cause::Holder(stack) => self.number(stack) as i64,
            Cause::Handover => -1,
            Cause::Others => -2,
            Cause::Unknown => -3,
            Cause::StillHeld => -4,
        }
    }

    fn left_out(&self) -> usize {
        self.list.len().saturating_sub(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::model::{Bucket, Lengths, Wait};
    use crate::profile::sample;

    /// The data that a page holds.
    fn data_of(page: &str) -> Value {
        let (_, rest) = page.split_once("type=\"application/json\">").expect("data");
        serde_json::from_str(rest.split_once("</script>").expect("an end").0).expect("JSON")
    }

    /// A damaged recording may have any numbers.
    #[test]
    fn numbers_that_overflow_end_in_no_panic() {
        let mut profile = sample::profile();
        profile.waits[0].start_ns = u64::MAX;
        profile.waits[0].length_ns = u64::MAX;
        let bucket = |start| Bucket { start, end: start + 1, count: u64::MAX };
        let mut lengths = Lengths { buckets: vec![bucket(1), bucket(2)], ..Lengths::default() };
        lengths.add(&lengths.clone());
        profile.locks[0].waits = lengths;
        data_of(&text(&profile));
    }

    #[test]
    fn the_page_is_whole_and_asks_for_nothing() {
        let page = text(&sample::profile());
        let data = data_of(&page);
        assert_eq!(data["locks"][1]["name"], "mutex <\"table\"> & more");
        assert_eq!(page.matches("</script>").count(), page.matches("<script").count());
        for outside in ["http:", "https:", "//cdn", "@import", "url(", "fetch("] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(!page.contains("<!--"), "a mark was not replaced");
        assert!(page.len() < LONGEST);
    }

    #[test]
    fn the_timeline_holds_all_waiting() {
        let profile = sample::profile();
        let timeline = timeline(&profile);
        let column = timeline["column"].as_f64().unwrap();
        let rows = timeline["rows"].as_array().unwrap();
        let values = rows.iter().flat_map(|row| row.as_array().unwrap()).map(|value| value.as_f64().unwrap());
        let waited: u64 = profile.waits.iter().map(|wait| wait.stands_for_ns).sum();
        assert!((values.sum::<f64>() * column / waited as f64 - 1.0).abs() < 0.01);
    }

    #[test]
    fn a_large_profile_fits() {
        let mut profile = sample::profile();
        let one = profile.waits[0].clone();
        profile.waits =
            (0..10_000).map(|number| Wait { start_ns: number * 1_000_000, ..one.clone() }).collect();
        let class = profile.locks[0].clone();
        profile.locks.extend((0..1_500).map(|_| class.clone()));
        let page = text(&profile);
        assert!(page.len() < LONGEST, "{}", page.len());
        assert!(data_of(&page)["leftOut"].as_u64().unwrap() > 0);
    }
}
