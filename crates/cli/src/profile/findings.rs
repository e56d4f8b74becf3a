//! The verdict in sentences.

use super::files::LOSSY;
use super::model::{Class, Process, Profile};
use super::units::{self, count, percent, time};
use super::{advice, conditions};
use crate::unseen::{self, FEW_CALLS, UNSEEN};

/// Below this share of the threads' time, without what they waited for conditions, locks are not what makes a program slow: nothing
/// that is done about them shows.
pub const NOTABLE: f64 = 0.01;

/// So many locks are named in a sentence.
const NAMED: usize = 3;

/// What the profile says, most important first.
pub fn verdict(profile: &Profile) -> Vec<String> {
    let mut sentences: Vec<String> = profile.deadlock.iter().chain(&profile.missing).cloned().collect();
    sentences.extend(still_waiting(profile));
    sentences.extend(conditions::locks(profile));
    sentences.extend(polled(profile));
    sentences.extend(locks(profile));
    sentences.extend(conditions::others(profile));
    sentences.extend(conditions::herd(profile));
    sentences
}

/// What it says of waits for locks.
fn locks(profile: &Profile) -> Vec<String> {
    let (waited, lived) = (profile.lost_ns(), profile.lifetime_ns());
    let whole = profile.missing.is_empty();
    let mut sentences = Vec::new();
    let calls = unseen::calls(profile);
    if calls == 0 {
        let lost = profile.dropped.iter().any(|dropped| LOSSY.contains(&dropped.what.as_str()));
        let none = match (whole, profile.attached) {
            (true, false) => "The program called no pthread lock.",
            (true, true) => "The program called no pthread lock while it was recorded.",
            (false, _) => "What was recorded called no pthread lock.",
        };
        if lost {
            sentences.push("There was no room to record the lock calls.".into());
        } else {
            sentences.push(none.into());
            // Threads that wait for each other do so at pthread locks, so the program uses them.
            sentences.extend(profile.deadlock.is_none().then(|| UNSEEN.into()));
        }
        return sentences;
    }
    let (share, idle) = (ratio(waited, lived), profile.idle_ns());
    let again = profile.reacquire_ns();
    if waited.saturating_add(again) == 0 {
        let none = match (whole, profile.attached) {
            (true, false) => "No thread ever waited for a mutex, reader-writer lock or spin lock",
            (true, true) => {
                "No thread waited for a mutex, reader-writer lock or spin lock while the program was recorded"
            }
            (false, _) => {
                "No thread that was recorded ever waited for a mutex, reader-writer lock or spin lock"
            }
        };
        sentences.push(format!("{none} ({} in all).", units::things(calls, "call")));
        sentences.extend((calls < FEW_CALLS).then(|| UNSEEN.into()));
        return sentences;
    }
    let total = format!("{} of their time waiting for locks ({} in all)", percent(share), time(waited));
    let cost = ratio(waited.saturating_add(again), lived.saturating_sub(idle));
    let is_polled = profile.locks.iter().any(advice::is_polled);
    let worst = worst_process(profile);
    sentences.push(if cost < NOTABLE && whole && !is_polled && worst.is_none() {
        // What else threads waited for may be locks, too.
        let which = if idle == 0 { "Locks" } else { "Mutexes, reader-writer locks and spin locks" };
        format!("{which} do not slow this program down: threads spent {total}.")
    } else {
        format!("Threads spent {total}.")
    });
    if waited == 0 {
        sentences.extend(after_conditions(profile));
        return sentences;
    }
    let top = &profile.locks[0];
    let mut sentence =
        format!("{} of that for {}{}", percent(ratio(top.lost_ns(), waited)), top.name, instances(top));
    if let Some(holder) = profile.top_holder(top) {
        sentence += &format!(
            "; {} of it while {} held it, {} at a time",
            percent(ratio(holder.caused_wait_ns, top.lost_ns())),
            holder.function,
            time(holder.at_a_time_ns())
        );
    }
    sentences.push(sentence + ".");
    sentences.extend(worst);
    sentences.extend(after_conditions(profile));
    let handover: u64 = profile.locks.iter().map(|class| class.handover_ns).sum();
    if ratio(handover, waited) >= 0.25 {
        sentences.push(format!(
            "During {} of the waiting no thread held the lock: a waiter had been woken, and did not run yet.",
            percent(ratio(handover, waited))
        ));
    }
    sentences.extend((calls < FEW_CALLS && cost < NOTABLE).then(|| UNSEEN.into()));
    sentences
}

/// Says which process waits far more than the others, whose idle threads make its share small.
fn worst_process(profile: &Profile) -> Option<String> {
    let mut sums = vec![(0_u64, 0_u64); profile.processes.len()];
    for thread in &profile.threads {
        let (waited, lived) = sums.get_mut(thread.process)?;
        *waited = waited.saturating_add(thread.wait_ns);
        *lived = lived.saturating_add(thread.lifetime_ns);
    }
    let waited: u64 = sums.iter().map(|sum| sum.0).sum();
    let (process, most) = sums.iter().enumerate().max_by_key(|(_, sum)| sum.0)?;
    let (share, of_all) = (ratio(most.0, most.1), ratio(waited, profile.lifetime_ns()));
    // It has most of the waiting, and at least twice the share of all processes together.
    let is_worst = most.0 > waited / 2 && share >= NOTABLE && share >= 2.0 * of_all;
    let Process { program, pid, .. } = &profile.processes[process];
    is_worst.then(|| {
        let has_others = profile.processes.iter().any(|other| other.program != *program);
        let advice =
            if has_others { format!("; --only {program} leaves out other programs") } else { String::new() };
        format!("In {program} (process {pid}) alone it was {} of their time{advice}.", percent(share))
    })
}

/// Says for how long threads waited for mutexes after waiting for conditions, if that is a noticeable part of their time.
pub fn after_conditions(profile: &Profile) -> Option<String> {
    let (again, busy) = (profile.reacquire_ns(), profile.lifetime_ns().saturating_sub(profile.idle_ns()));
    let top = profile.locks.iter().max_by_key(|class| class.reacquire_ns)?;
    (ratio(again, busy) >= NOTABLE).then(|| {
        let holder = profile.top_reacquire_holder(top).map_or_else(String::new, |(function, ns)| {
            format!("; {} of it while {function} held it", percent(ratio(ns, top.reacquire_ns)))
        });
        format!(
            "Besides, they spent {} of their time acquiring mutexes again after a wait for a condition ({} in all, {} of that for \
             {}{holder}).",
            percent(ratio(again, profile.lifetime_ns())),
            time(again),
            percent(ratio(top.reacquire_ns, again)),
            top.name
        )
    })
}

/// Says which lock threads poll. The recorder does not see how long they wait between their attempts.
fn polled(profile: &Profile) -> Option<String> {
    let polled = profile.locks.iter().filter(|class| advice::is_polled(class));
    let most = polled.max_by_key(|class| class.failed_tries)?;
    Some(format!(
        "Threads poll {}: {} attempts (trylock) failed for {} acquisitions. How long threads wait in this way is not known.",
        most.name,
        count(most.failed_tries),
        count(most.acquisitions)
    ))
}

/// Threads that have waited for a lock for so long, and still do when the recording ends, are worth the first sentence: perhaps they
/// wait for each other. A shorter wait at the end is one of many waits for a busy lock.
const STUCK_NS: u64 = 100_000_000;

/// Says which locks threads still waited for at the end.
fn still_waiting(profile: &Profile) -> Option<String> {
    let mut classes: Vec<&Class> = profile.locks.iter().filter(|class| class.waiting.threads > 0).collect();
    classes.sort_by_key(|class| std::cmp::Reverse((class.waiting.threads, class.waiting.longest_ns)));
    let longest_ns = classes.iter().map(|class| class.waiting.longest_ns).max()?;
    if longest_ns < STUCK_NS {
        return None;
    }
    let threads: u64 = classes.iter().map(|class| class.waiting.threads).sum();
    let mut locks: Vec<String> = classes
        .iter()
        .map(|class| {
            let place = profile.place(class.waiting.stack);
            format!("{} for {} at {place}", count(class.waiting.threads), class.name)
        })
        .collect();
    if locks.len() > NAMED {
        let rest: u64 = classes[NAMED..].iter().map(|class| class.waiting.threads).sum();
        locks.truncate(NAMED);
        locks.push(format!("{} for other locks", count(rest)));
    }
    Some(format!(
        "At the end {} still waited for {} ({}), one of them for {}.{}",
        if threads == 1 { "a thread".into() } else { units::things(threads, "thread") },
        if threads == 1 { "a lock" } else { "locks" },
        locks.join(", "),
        time(longest_ns),
        why(profile)
    ))
}

/// Says whether the threads that still wait are in a deadlock: only if the holders of their locks show that.
fn why(profile: &Profile) -> String {
    let kept = &profile.kept;
    let waits = |threads: u64| match threads {
        1 => "One waits".into(),
        many => format!("{} wait", count(many)),
    };
    let mut why = String::new();
    if kept.in_circle > 0 {
        why += &format!(" {} for each other: a deadlock.", waits(kept.in_circle));
    }
    if kept.by_itself > 0 {
        why += &format!(" {} for what the thread holds itself: a deadlock.", waits(kept.by_itself));
    }
    if kept.by_ended > 0 {
        why += &format!(" {} for a lock whose holder has ended.", waits(kept.by_ended));
    }
    if kept.behind > 0 {
        why += &format!(" {} behind these.", waits(kept.behind));
    }
    if why.is_empty() {
        let what = if profile.attached { "recording" } else { "process" };
        why = format!(" These waits had not ended when the {what} did");
        why += match (kept.by_running, kept.unknown) {
            (0, _) => "; which threads held the locks is not known.",
            (_, 0) => ": threads that waited for no lock held these.",
            _ => ": threads that waited for no lock held some of these.",
        };
    }
    why
}

fn instances(class: &Class) -> String {
    match class.instances {
        0 | 1 => String::new(),
        many => format!(" ({} instances)", count(many)),
    }
}

/// 0 of nothing.
pub fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::advice::rules;
    use crate::profile::model::{Kept, Thread};
    use crate::profile::sample;

    #[test]
    fn the_verdict_names_lock_and_holder() {
        let text = verdict(&sample::profile()).join(" ");
        for part in [
            "Threads spent 38% of their time waiting for locks",
            "waiting for conditions: for work, or for locks that are built from them (Java's monitors are)",
            "91% of that for cache.mutex_ (3 instances)",
            "84% of it while Cache::evict held it, 1.2 ms at a time",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_program_without_waiting_is_told_so() {
        assert_eq!(verdict(&Profile::default()), ["The program called no pthread lock.", UNSEEN]);
        let mut profile = sample::profile();
        for class in &mut profile.locks {
            (class.waits, class.reacquire_ns) = Default::default();
        }
        let none = "No thread ever waited for a mutex, reader-writer lock or spin lock";
        assert_eq!(verdict(&profile)[0], format!("{none} (1.0 M calls in all)."));
        // What is not known is not denied.
        assert!(
            verdict(&profile)[1].contains("The recording does not tell which"),
            "{:?}",
            verdict(&profile)
        );
        profile.condvars.clear();
        assert_eq!(verdict(&profile).len(), 1);
        profile.locks.truncate(1);
        profile.locks[0].acquisitions = 1;
        assert_eq!(verdict(&profile), [format!("{none} (1 call in all)."), UNSEEN.into()]);
        assert_eq!(rules(&profile), [""; 0]);
    }

    #[test]
    fn threads_that_poll_do_not_wait() {
        let mut profile = sample::profile();
        for class in &mut profile.locks {
            class.waits = Default::default();
        }
        (profile.locks[0].acquisitions, profile.locks[0].failed_tries) = (704, 20_680);
        let text = &verdict(&profile)[0];
        assert!(
            text.starts_with("Threads poll cache.mutex_: 21 k attempts (trylock) failed for 704 acq"),
            "{text}"
        );
        assert_eq!(rules(&profile), ["polling"]);
        profile.locks[0].failed_tries = 7_040;
        assert_eq!(rules(&profile), [""; 0]);
    }

    /// Only under latchwork's locks is that time apart.
    #[test]
    fn the_mutex_after_a_condition_counts() {
        let mut profile = sample::profile();
        for class in &mut profile.locks {
            class.waits = Default::default();
        }
        (profile.locks[1].reacquires, profile.locks[1].reacquire_ns) = (9_000, 40_000_000_000);
        profile.locks[1].reacquire_pairs = profile.locks[0].reacquire_pairs.clone();
        profile.locks[1].reacquire_pairs[0].wait_ns = 30_000_000_000;
        let text = verdict(&profile).join(" ");
        assert!(text.contains("they spent 40% of their time acquiring mutexes again after a wait"), "{text}");
        assert!(text.contains("75% of it while Cache::evict held it)."), "{text}");
        assert!(!text.contains("do not slow") && !text.contains("No thread ever"), "{text}");
        assert_eq!(rules(&profile), ["wakeups"]);
        // A condition that wakes fifteen threads for each job.
        assert!(!text.contains("signal one thread"), "{text}");
        (profile.condvars[0].waits, profile.condvars[0].notifications) = (302_000, 20_000);
        let text = verdict(&profile).join(" ");
        assert!(
            text.contains("pool.ready wakes 15 threads for each notification (302 k for 20 k)"),
            "{text}"
        );
        let served = |lock: &str, profile: &mut Profile| {
            profile.locks[0].served_by = vec![lock.into()];
            verdict(profile).join(" ").contains("--mutex shfl tells it apart")
        };
        assert!(served("glibc", &mut profile) && !served("shfl", &mut profile));
    }

    #[test]
    fn a_deadlock_is_the_first_sentence() {
        let mut profile = sample::profile();
        // A moment's wait at the end is one of many.
        profile.locks[0].waiting.add(1_000, 0);
        assert!(verdict(&profile)[0].starts_with("Threads spent 38%"));
        // The lock with most threads is named first, even if a thread waited longer for another.
        profile.locks[0].waiting.add(3_000_000_000, 1);
        profile.locks[1].waiting.add(3_900_000_000, 2);
        let name = &profile.locks[1].name;
        let waited = format!(
            "At the end 3 threads still waited for locks (2 for cache.mutex_ at Cache::evict (cache.cc:120), 1 for \
             {name} at Cache::put (cache.cc:64)), one of them for 3.9 s."
        );
        for (kept, why) in [
            (
                Kept::default(),
                "These waits had not ended when the process did; which threads held the locks is not known.",
            ),
            (
                Kept { by_running: 3, ..Kept::default() },
                "These waits had not ended when the process did: threads that waited for no lock held these.",
            ),
            (
                Kept { by_running: 2, unknown: 1, ..Kept::default() },
                "These waits had not ended when the process did: threads that waited for no lock held some of these.",
            ),
            (
                Kept { in_circle: 2, behind: 1, ..Kept::default() },
                "2 wait for each other: a deadlock. One waits behind these.",
            ),
            (
                Kept { by_itself: 1, by_ended: 2, ..Kept::default() },
                "One waits for what the thread holds itself: a deadlock. 2 wait for a lock whose holder has ended.",
            ),
        ] {
            profile.kept = kept;
            assert_eq!(verdict(&profile)[0], format!("{waited} {why}"));
        }
        // (38 s + 6.9 s) of 100 s.
        assert!(verdict(&profile)[1].starts_with("Threads spent 45%"), "{:?}", verdict(&profile));
        // Nothing else happened.
        for class in &mut profile.locks {
            *class = Class { name: "m".into(), waiting: class.waiting, ..Class::default() };
        }
        assert!(verdict(&profile)[1].starts_with("Threads spent 6.9%"), "{:?}", verdict(&profile));
    }

    #[test]
    fn an_idle_process_does_not_hide_another_one() {
        let mut profile = sample::profile();
        profile.processes.push(Process { pid: 1001, program: "pool".into(), seconds: 500.0 });
        let idle = Thread { process: 1, lifetime_ns: 100_000_000_000, ..Thread::default() };
        profile.threads.push(idle.clone());
        // 19% of the whole: half of 38%.
        let named = "In server (process 1000) alone it was 38% of their time; --only server leaves out other programs.";
        assert_eq!(verdict(&profile)[2], named);
        // No option tells processes of one program apart.
        profile.processes[1].program = "server".into();
        assert_eq!(verdict(&profile)[2], "In server (process 1000) alone it was 38% of their time.");
        profile.processes[1].program = "pool".into();
        profile.threads.last_mut().unwrap().lifetime_ns = 99_000_000_000;
        assert!(!verdict(&profile).contains(&named.to_owned()));
        // 0.9% of the whole.
        profile.threads.resize(60, idle);
        assert!(verdict(&profile)[0].starts_with("Threads spent 0.7%"), "{:?}", verdict(&profile));
        assert_eq!(verdict(&profile)[2], named);
    }

    /// Threads without work do not make the others' waiting small.
    #[test]
    fn idle_threads_do_not_count() {
        let mut profile = sample::profile();
        let idle: Vec<_> = (0..1_000)
            .map(|_| Thread { lifetime_ns: 10_000_000_000, idle_ns: 10_000_000_000, ..Thread::default() })
            .collect();
        profile.threads.extend(idle);
        (0..1_000).for_each(|_| profile.condvars[0].waiting.add(10_000_000_000, 0));
        let text = verdict(&profile).join(" ");
        assert!(text.starts_with("Threads spent 0.4% of their time waiting for locks"), "{text}");
        assert!(text.contains("99% of their time waiting for conditions"), "{text}");
        profile.locks.iter_mut().for_each(|class| class.waits.sum_ns /= 1_000);
        let slow = "Mutexes, reader-writer locks and spin locks do not slow this program down";
        assert!(verdict(&profile)[0].starts_with(slow), "{:?}", verdict(&profile));
        profile.locks.iter_mut().for_each(|class| class.waits.sum_ns *= 1_000);
        assert_eq!(rules(&profile), rules(&sample::profile()));
    }

    /// A lock that no thread ever got has been used all the same.
    #[test]
    fn waits_in_vain_are_calls_of_a_lock() {
        let class = |change: &dyn Fn(&mut Class)| {
            let mut class = Class::default();
            change(&mut class);
            verdict(&Profile { locks: vec![class], ..Profile::default() })
        };
        let tried = class(&|class| class.failed_tries = 1);
        assert!(tried[0].starts_with("No thread ever waited for a mutex"), "{tried:?}");
        let timed = class(&|class| {
            (class.contended, class.timeouts, class.waits.sum_ns) = (1, 1, 5_000_000);
        });
        assert!(timed[0].ends_with("waiting for locks (5.0 ms in all)."), "{timed:?}");
        let attached = |class| verdict(&Profile { locks: vec![class], attached: true, ..Profile::default() });
        assert_eq!(
            attached(Class::default()),
            ["The program called no pthread lock while it was recorded.", UNSEEN]
        );
        assert_eq!(
            attached(Class { acquisitions: 1, ..Class::default() }),
            [
                "No thread waited for a mutex, reader-writer lock or spin lock while the program was recorded (1 call in all).",
                UNSEEN
            ]
        );
    }

    #[test]
    fn the_verdict_says_what_is_missing() {
        let missing = || vec!["Not in this report: a process.".to_owned()];
        let of = |profile: &Profile| verdict(profile).join(" ");
        let none = of(&Profile { missing: missing(), ..Profile::default() });
        assert_eq!(
            none,
            format!("Not in this report: a process. What was recorded called no pthread lock. {UNSEEN}")
        );
        let mut profile = Profile { missing: missing(), ..sample::profile() };
        assert!(of(&profile).starts_with("Not in this report: a process. Threads spent 38%"));
        profile.locks.iter_mut().for_each(|class| (class.waits, class.reacquire_ns) = Default::default());
        assert!(of(&profile).contains("No thread that was recorded ever waited for a mutex"));
    }
}
