//! The profile as JSON, for scripts.

use super::model::{Class, Condition, Lengths, Pair, Profile, StackId, Waiter, place};
use super::{advice, findings};
use serde_json::{Value, json};

/// The document, with a line end.
pub fn text(profile: &Profile) -> String {
    let dropped: u64 = profile.dropped.iter().map(|dropped| dropped.count).sum();
    let document = json!({
        "latchwork": env!("CARGO_PKG_VERSION"),
        "command": profile.command,
        "seconds": profile.seconds,
        "threads": profile.threads.len(),
        "thread_ns": profile.lifetime_ns(),
        "wait_ns": profile.lost_ns(),
        "verdict": findings::verdict(profile),
        "advice": advice::advice(profile).iter().map(|advice| json!({
            "rule": advice.rule,
            "lock": profile.locks[advice.lock].name,
            "text": advice.text,
        })).collect::<Vec<_>>(),
        "overhead": {
            "calls": profile.overhead.calls,
            "stacks": profile.overhead.stacks,
            "unwinding_ns": profile.overhead.unwinding_ns,
            "memory_bytes": profile.overhead.memory_bytes,
        },
        "locks": profile.locks.iter().map(|class| one_lock(profile, class)).collect::<Vec<_>>(),
        "condvars": profile.condvars.iter().map(|condition| one_condition(profile, condition)).collect::<Vec<_>>(),
        "processes": profile.processes.iter().map(|process| json!({
            "pid": process.pid,
            "program": process.program,
            "seconds": process.seconds,
        })).collect::<Vec<_>>(),
        "thread_list": profile.threads.iter().map(|thread| json!({
            "pid": profile.processes.get(thread.process).map(|process| process.pid),
            "tid": thread.tid,
            "name": thread.name,
            "lifetime_ns": thread.lifetime_ns,
            "wait_ns": thread.wait_ns,
            "waits": thread.waits,
            "condition_wait_ns": thread.idle_ns,
        })).collect::<Vec<_>>(),
        "dropped": dropped,
        "dropped_what": profile.dropped.iter().map(|dropped| (dropped.what.clone(), dropped.count.into()))
            .collect::<serde_json::Map<String, Value>>(),
        "notes": profile.notes,
    });
    serde_json::to_string_pretty(&document).expect("plain data") + "\n"
}

fn one_lock(profile: &Profile, class: &Class) -> Value {
    let (waits, holds) = (&class.waits, &class.holds);
    let mut lock = json!({
        "name": class.name,
        "kind": class.kind.key(),
        "class": class.origin,
        "served_by": class.served_by,
        "instances": class.instances,
        "acquisitions": class.acquisitions,
        "reads": class.reads,
        "nested": class.nested,
        "read_share": findings::ratio(class.reads, class.acquisitions),
        "contended": class.contended,
        "failed_tries": class.failed_tries,
        "timeouts": class.timeouts,
        "wait_ns": class.waits.sum_ns,
        "handover_ns": class.handover_ns,
        "reacquires": class.reacquires,
        "reacquire_ns": class.reacquire_ns,
        "waiting": class.waiting.threads,
        "waiting_ns": class.waiting.wait_ns,
        "waiters_max": class.waiters_max,
        "waiters_mean": class.waiters_mean(profile.seconds),
        "readers_max": class.readers_max,
        "readers_mean": class.readers_mean(profile.seconds),
        "spin_share": known_ratio(class.spun_ns, class.timed_ns),
        "thread_change_share": known_ratio(class.successions.by_thread, class.successions.compared),
        "cpu_change_share": known_ratio(class.successions.by_cpu, class.successions.compared),
        "node_change_share": known_ratio(class.successions.by_node, class.successions.compared),
        "hold_ns": known(holds, |_| class.mean_hold_ns(profile.seconds)),
        "hold_error_ns": known(holds, |holds| holds.sampling_error_ns().0),
        "hold_samples": class.holds.count,
    });
    let more = [
        ("wait_p50_ns", waits.quantile_ns(0.5).into()),
        ("wait_p99_ns", waits.quantile_ns(0.99).into()),
        ("wait_p999_ns", waits.quantile_ns(0.999).into()),
        ("wait_max_ns", waits.max_ns.into()),
        ("hold_p50_ns", known(holds, |holds| holds.quantile_ns(0.5)).into()),
        ("hold_p99_ns", known(holds, |holds| holds.quantile_ns(0.99)).into()),
        ("hold_max_ns", known(holds, |holds| holds.max_ns).into()),
        ("wait_histogram", histogram(waits)),
        ("hold_histogram", histogram(holds)),
        (
            "waiters",
            class
                .waiters
                .iter()
                .map(|found| {
                    let mut one = waiter(profile, found);
                    one["error_ns"] = found.error_ns.0.into();
                    one
                })
                .collect(),
        ),
        (
            "holders",
            class
                .holders
                .iter()
                .map(|holder| {
                    json!({
                        "stack": stack(profile, holder.stack),
                        "waits": holder.waits,
                        "caused_wait_ns": holder.caused_wait_ns,
                        "error_ns": holder.error_ns.0,
                        "holds": holder.holds,
                        "hold_ns": holder.mean_hold_ns(),
                    })
                })
                .collect(),
        ),
        ("pairs", pairs(profile, &class.pairs)),
        ("reacquire_pairs", pairs(profile, &class.reacquire_pairs)),
    ];
    for (key, value) in more {
        lock[key] = value;
    }
    lock
}

fn pairs(profile: &Profile, pairs: &[Pair]) -> Value {
    let pair = |pair: &Pair| {
        json!({
            "waiter": profile.place(pair.waiter),
            "holder": pair.cause.place(profile),
            "wait_ns": pair.wait_ns,
            "error_ns": pair.error_ns.0,
        })
    };
    pairs.iter().map(pair).collect()
}

/// A figure of lengths; `None` if none was measured.
fn known(lengths: &Lengths, figure: impl Fn(&Lengths) -> u64) -> Option<u64> {
    (lengths.count > 0).then(|| figure(lengths))
}

/// `None` if nothing was measured.
fn known_ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| findings::ratio(part, whole))
}

fn one_condition(profile: &Profile, condition: &Condition) -> Value {
    json!({
        "name": condition.name,
        "kind": if condition.is_semaphore { "semaphore" } else { "condvar" },
        "class": condition.origin,
        "instances": condition.instances,
        "waits": condition.waits,
        "wait_ns": condition.wait_ns,
        "waiting": condition.waiting.threads,
        "waiting_ns": condition.waiting.wait_ns,
        "timeouts": condition.timeouts,
        "notifications": condition.notifications,
        "returned": condition.is_semaphore.then_some(condition.returned),
        "waiters": condition.waiters.iter().map(|found| waiter(profile, found)).collect::<Vec<_>>(),
    })
}

fn waiter(profile: &Profile, waiter: &Waiter) -> Value {
    json!({
        "stack": stack(profile, waiter.stack),
        "count": waiter.count,
        "wait_ns": waiter.wait_ns,
    })
}

/// The frames, innermost first.
fn stack(profile: &Profile, stack: StackId) -> Vec<String> {
    profile.frames_of(stack).map(place).collect()
}

/// Of each bucket: the first length, the first that is too long, and how many were in it.
fn histogram(lengths: &Lengths) -> Value {
    lengths.buckets.iter().map(|bucket| json!([bucket.start, bucket.end, bucket.count])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::sample;

    /// The keys of objects, with those of the first object of each list.
    fn keys(value: &Value, path: &str, found: &mut Vec<String>) {
        match value {
            Value::Object(object) => {
                for (key, value) in object {
                    let path = format!("{path}{key}");
                    // Its keys are names of sections.
                    if path != "dropped_what" {
                        keys(value, &format!("{path}."), found);
                    }
                    found.push(path);
                }
            }
            Value::Array(list) if list.first().is_some_and(Value::is_object) => keys(&list[0], path, found),
            _ => {}
        }
    }

    /// The page for users names every key, and scripts find each that it names.
    #[test]
    fn the_document_has_the_keys_of_the_page() {
        let document: Value = serde_json::from_str(&text(&sample::profile())).unwrap();
        let mut found = Vec::new();
        keys(&document, "", &mut found);
        found.sort();
        let page = include_str!("../../../../docs/cli.md");
        let (_, table) = page.split_once("| key of the JSON file |").expect("the table of keys");
        let (table, _) = table.split_once("\n\n").expect("its end");
        let mut named = Vec::new();
        for line in table.lines().skip(2) {
            let cell = line.split('|').nth(1).expect("a cell");
            named.extend(cell.split('`').skip(1).step_by(2).map(String::from));
        }
        named.sort();
        assert_eq!(found, named);
    }

    #[test]
    fn scripts_find_their_keys() {
        let document: Value = serde_json::from_str(&text(&sample::profile())).unwrap();
        // These names never change.
        let has = |value: &Value, keys: &str| {
            for key in keys.split(' ') {
                assert!(!value[key].is_null(), "{key}");
            }
        };
        has(&document, "seconds threads overhead locks condvars dropped");
        assert!(document["overhead"].is_object() && document["dropped"].is_u64());
        assert_eq!(document["threads"], 10);
        assert_eq!(document["dropped"], 12);
        let lock = &document["locks"][0];
        has(lock, "name kind class instances acquisitions contended wait_ns wait_p99_ns wait_max_ns");
        has(lock, "hold_ns hold_p99_ns read_share waiters holders");
        has(&lock["waiters"][0], "stack wait_ns");
        has(&lock["holders"][0], "stack caused_wait_ns");
        assert_eq!(lock["hold_ns"], 1_200_000);
        assert_eq!(lock["holders"][0]["hold_ns"], 1_200_000);
        assert_eq!(lock["holders"][0]["error_ns"], 40_000_000);
        assert_eq!(lock["spin_share"], 0.125);
        assert_eq!(lock["thread_change_share"], 0.9);
        assert_eq!(lock["wait_p99_ns"], 29_000_000);
        assert_eq!(lock["waiters"][0]["stack"][1], "Cache::get (cache.cc:31)");
        let holders = lock["holders"].as_array().unwrap();
        let caused: u64 = holders.iter().map(|holder| holder["caused_wait_ns"].as_u64().unwrap()).sum();
        assert_eq!(caused + lock["handover_ns"].as_u64().unwrap(), lock["wait_ns"].as_u64().unwrap());
        let waited: Vec<_> =
            document["locks"].as_array().unwrap().iter().map(|lock| lock["wait_ns"].as_u64()).collect();
        assert!(waited.is_sorted_by(|first, second| first >= second), "{waited:?}");
        let table = &document["locks"][1];
        assert_eq!(table["read_share"], 0.97);
        // 970,000 holds of a microsecond in ten seconds.
        assert_eq!(table["readers_mean"], 0.097);
        assert!(table["spin_share"].is_null(), "no wait was timed");
        let mut profile = sample::profile();
        profile.locks[0].holds = Lengths::default();
        let document: Value = serde_json::from_str(&text(&profile)).unwrap();
        let lock = &document["locks"][0];
        for key in ["hold_ns", "hold_p50_ns", "hold_p99_ns", "hold_max_ns"] {
            assert!(lock[key].is_null(), "no hold was measured: {key}");
        }
        assert_eq!(lock["hold_samples"], 0);
    }
}
