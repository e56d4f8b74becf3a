use super::*;
use crate::profile::model::{Bucket, Error, Lengths, Pair};
use crate::profile::sample;

/// The advice for the first class of the sample with this change.
fn changed(change: impl Fn(&mut Class)) -> Vec<Advice> {
    let mut profile = sample::profile();
    profile.locks.truncate(1);
    change(&mut profile.locks[0]);
    advice(&profile)
}

fn rules_of(change: impl Fn(&mut Class)) -> Vec<&'static str> {
    changed(change).iter().map(|advice| advice.rule).collect()
}

fn last_text(change: impl Fn(&mut Class)) -> String {
    changed(change).pop().expect("a rule speaks").text
}

fn holds(mean_ns: u64) -> Lengths {
    Lengths { count: 100, sum_ns: 100 * mean_ns, max_ns: 2 * mean_ns, buckets: Vec::new() }
}

/// Short sections, held most of the time, at the last threshold of each.
fn busy(class: &mut Class) {
    class.acquisitions = 1_250_000;
    (class.busiest.instances, class.busiest.holds) = (1, 1_250_000);
    class.holds = holds(4_000);
    class.handover_ns = 0;
    class.holders.iter_mut().for_each(|holder| holder.hold_ns = holder.holds * 4_000);
}

fn rarely_held(class: &mut Class) {
    busy(class);
    class.acquisitions = 100_000;
    class.busiest.holds = 100_000;
}

/// Calls that gave up are calls that waited.
fn gave_up(class: &mut Class) {
    busy(class);
    (class.contended, class.timeouts) = (2_500_000, 1_250_000);
}

#[test]
fn a_few_long_sections_are_not_the_section() {
    let text =
        &changed(|class| class.holds.buckets = vec![Bucket { start: 1_000, end: 1_200, count: 1 }])[0].text;
    assert!(text.contains("But 99 of 100 sections take at most 1.1 us"), "{text}");
}

#[test]
fn the_section_of_one_holder_is_to_be_shortened() {
    assert_eq!(rules_of(|class| class.busiest.instances = 1), ["shorten"]);
    // Half of the waiting has other reasons.
    let half = |class: &mut Class| class.holders[0].caused_wait_ns = class.waits.sum_ns / 2 - 1;
    assert_eq!(rules_of(half), ["skewed"]);
    // Most gave up, or the holder is not known and its sections are long.
    let in_vain = |class: &mut Class| {
        gave_up(class);
        class.timeouts += 1;
    };
    assert_eq!(rules_of(in_vain), [""; 0]);
    let behind_one = |class: &mut Class| {
        in_vain(class);
        class.holders[0].caused_wait_ns = 1_000;
        class.holders[0].hold_ns = class.holders[0].holds * 50_000_000;
    };
    assert_eq!(rules_of(behind_one), ["shorten"]);
    let text = last_text(behind_one);
    assert!(text.contains("50 ms at a time: 1.3 M calls gave up"), "{text}");
    // A third of the calls, with half of the waiting.
    let longer = |class: &mut Class| {
        behind_one(class);
        class.timeouts = class.contended / 3;
        let wait_ns = class.waits.sum_ns.div_ceil(2);
        let waiter = class.pairs[0].waiter;
        class.pairs.push(Pair { waiter, cause: Cause::StillHeld, wait_ns, error_ns: Error(0) });
    };
    assert_eq!(rules_of(longer), ["shorten"]);
    // Readers that gave up did not wait for other readers, whose holds are longest, but for the writer that made some of them wait.
    let for_a_writer = |class: &mut Class| {
        behind_one(class);
        class.kind = Kind::RwLock;
        class.pairs.remove(0);
        class.holders[1].hold_ns = class.holders[1].holds * 4_000_000;
    };
    assert_eq!(rules_of(for_a_writer), ["lock"]);
    let text = changed(|class| {
        for_a_writer(class);
        let waiter = class.pairs[0].waiter;
        let still = Pair { waiter, cause: Cause::StillHeld, wait_ns: 1_000, error_ns: Error(0) };
        class.pairs.push(still);
    });
    let text = &text[0].text;
    assert!(text.contains("shorten the section of Cache::get, which holds the lock for 4.0 ms"), "{text}");
    let unknown_holder = |class: &mut Class| {
        busy(class);
        class.holders.clear();
        class.holds = holds(1_000_000);
    };
    assert_eq!(rules_of(unknown_holder), [""; 0]);
}

#[test]
fn a_nested_acquisition_is_no_hold() {
    // Ten acquisitions for each hold, which takes 4 us: half of the time.
    let nested = |class: &mut Class| {
        busy(class);
        class.nested = class.acquisitions * 9;
        class.acquisitions *= 10;
    };
    let text = last_text(nested);
    assert_eq!(text, last_text(busy));
    assert!(text.contains("it is held 50% of the time"), "{text}");
}

#[test]
fn a_lock_that_is_held_much_is_to_be_split() {
    assert_eq!(rules_of(busy), ["split"]);
    assert_eq!(rules_of(rarely_held), [""; 0]);
    assert!(last_text(busy).contains("With 32 locks"), "{}", last_text(busy));
    // Its parts may be known already.
    let two = last_text(|class| {
        busy(class);
        for holder in &mut class.holders {
            holder.caused_wait_ns = class.waits.sum_ns / 4;
        }
    });
    assert!(
        two.ends_with("If Cache::evict and Cache::get use different data, give each a lock of its own."),
        "{two}"
    );
    // What is predicted is a share of what was counted.
    let text = last_text(|class| {
        busy(class);
        class.contended = 1250;
    });
    assert!(text.contains("one acquisition in 1000 waits") && text.contains("one in 32 k would"), "{text}");
    // Four readers at a time: the lock is held for a quarter of what their holds add up to.
    let together = |class: &mut Class| {
        busy(class);
        (class.kind, class.reads, class.readers_max) = (Kind::RwLock, class.acquisitions, 4);
        (class.read_holds, class.read_hold_ns) = (1_000, 4_000_000);
    };
    let split = changed(together).into_iter().find(|one| one.rule == "split").unwrap().text;
    assert!(
        split.contains("it is held at least 12% of the time") && split.contains("With 8 locks"),
        "{split}"
    );
    assert!(last_text(gave_up).contains("and most acquisitions wait. With"));
    // Holds of 40 ms that each stand for 64: what is left is sure.
    let uncertain = |class: &mut Class| {
        busy(class);
        let bucket = |length, count| Bucket { start: length, end: length, count };
        class.holds.buckets = vec![bucket(2_000, 125_000), bucket(40_000_000, 64)];
        (class.holds.count, class.holds.sum_ns) = (125_064, 125_064 * 4_000);
    };
    assert_eq!(rules_of(uncertain), [""; 0]);
    let text = last_text(|class| {
        uncertain(class);
        class.holds.buckets[1].start = 2_000_000;
        class.holds.buckets[1].end = 2_000_000;
    });
    assert!(text.contains("it is held at least 24% of the time"), "{text}");
}

/// Advice is worth what it can gain.
#[test]
fn what_gains_nothing_is_not_advised() {
    let seldom = |one_in| {
        move |class: &mut Class| {
            busy(class);
            class.contended = class.acquisitions / one_in;
        }
    };
    assert_eq!(rules_of(seldom(1_000)), ["split"]);
    // A few long waits, which parts of the lock would have, too.
    assert_eq!(rules_of(seldom(1_001)), [""; 0]);
    // A lock with a twentieth of the waiting, where threads wait for a hundredth of their time.
    let mut profile = sample::profile();
    profile.locks.truncate(1);
    busy(&mut profile.locks[0]);
    let mut rest = profile.locks[0].clone();
    (rest.kind, rest.holds, rest.holders) = (Kind::Spin, Lengths::default(), Vec::new());
    let whole = profile.lifetime_ns().saturating_sub(profile.idle_ns()) / 50;
    for (part, advised) in [(whole / 8, true), (whole / 12, false)] {
        profile.locks[0].waits.sum_ns = part;
        rest.waits.sum_ns = whole - part;
        profile.locks.truncate(1);
        profile.locks.push(rest.clone());
        let of_first = advice(&profile).iter().any(|advice| advice.lock == 0);
        assert_eq!(of_first, advised, "{part}");
    }
}

#[test]
fn a_lock_that_is_split_already_may_be_skewed() {
    // Nearly all waiting is for one of three locks.
    assert_eq!(rules_of(|_| ()), ["shorten", "skewed"]);
    let many = |class: &mut Class| {
        busy(class);
        class.busiest.instances = 16;
        class.busiest.longest_instance_ns = class.busiest.wait_ns;
    };
    assert_eq!(rules_of(many), ["skewed"]);
    let two = |class: &mut Class| {
        busy(class);
        class.busiest.instances = 2;
        class.busiest.longest_instance_ns = class.busiest.wait_ns * 3 / 4;
    };
    assert_eq!(rules_of(two), ["skewed"]);
    let even = |class: &mut Class| {
        two(class);
        class.busiest.longest_instance_ns -= 1;
    };
    assert_eq!(rules_of(even), ["split"]);
    // One lock in each of 16 processes.
    let forked = |class: &mut Class| {
        busy(class);
        class.instances = 16;
        class.instance_wait_ns = vec![class.waits.sum_ns];
    };
    assert_eq!(rules_of(forked), ["split"]);
}

#[test]
fn another_lock_may_serve_better() {
    let slow_handover = |class: &mut Class| {
        busy(class);
        class.handover_ns = class.waits.sum_ns / 2;
    };
    assert_eq!(rules_of(slow_handover), ["split", "lock"]);
    assert!(last_text(slow_handover).ends_with("latchwork compare."));
    let own = last_text(|class| {
        slow_handover(class);
        class.served_by = vec![OWN.into()];
    });
    assert!(own.ends_with("lw_any_mutex_t takes its name."));
    // The threads that wait are passed over: 345 ms each, for holds of 4 us.
    let starving = |class: &mut Class| {
        busy(class);
        class.contended = 100;
        class.waits.count = 100;
        class.successions.by_thread = 49;
    };
    assert_eq!(rules_of(starving), ["lock"]);
    let text = last_text(starving);
    assert!(text.contains("at most 5 of a hundred acquisitions follow one of another thread"), "{text}");
    let text = last_text(|class| {
        starving(class);
        class.successions.by_thread = 0;
    });
    assert!(text.contains("takes it again: none of a hundred acquisitions follow"), "{text}");
    // The lock that is advised serves already.
    let served = |class: &mut Class| {
        starving(class);
        class.served_by = vec!["shfl".into()];
    };
    assert_eq!(rules_of(served), [""; 0]);
    let in_turn = |class: &mut Class| {
        starving(class);
        class.successions.by_thread = 50;
    };
    assert_eq!(rules_of(in_turn), [""; 0]);
    let reading = |class: &mut Class| {
        rarely_held(class);
        class.kind = Kind::RwLock;
        class.reads = 90_000;
    };
    assert_eq!(rules_of(reading), ["lock"]);
    assert!(last_text(reading).contains("90% of its holders only read"));
    let biased = |class: &mut Class| {
        reading(class);
        class.served_by = vec!["bravo-2d-shfl-rw".into()];
    };
    assert_eq!(rules_of(biased), [""; 0]);
    // Three readers hold it on average, for 4 us each, and a writer waits for 345 ms.
    let starved = |class: &mut Class| {
        reading(class);
        (class.acquisitions, class.reads) = (7_500_100, 7_500_000);
        class.waits.count = 100;
        (class.read_holds, class.read_hold_ns, class.readers_max) = (1_000, 4_000_000, 4);
        class.served_by = vec![GLIBC.into()];
    };
    assert_eq!(rules_of(starved), ["lock"]);
    let text = last_text(starved);
    assert!(
        text.contains("3.0 readers hold it on average, for 4.0 us at a time") && text.contains("346 ms"),
        "{text}"
    );
    // A writer that waits for the readers inside, a lock that is free at times, and one of latchwork.
    let served = last_text(|class| {
        starved(class);
        class.waits.count = 1_000_000;
    });
    let paused = last_text(|class| {
        starved(class);
        class.reads = 2_400_000;
    });
    let other = last_text(|class| {
        starved(class);
        class.served_by = vec!["shfl-rw".into()];
    });
    for text in [served, paused, other] {
        assert!(!text.contains("pass waiting writers"), "{text}");
    }
    let writing = |class: &mut Class| {
        reading(class);
        class.reads = 60_000;
    };
    assert_eq!(rules_of(writing), [""; 0]);
}

#[test]
fn waits_for_conditions_may_cost_more_than_the_lock() {
    let conditions = |class: &mut Class| {
        rarely_held(class);
        class.reacquire_ns = class.waits.sum_ns + 1;
    };
    assert_eq!(rules_of(conditions), ["wakeups"]);
    // The woken threads wait for a thread that sleeps with the lock, and for no other reason.
    let sleeper = |class: &mut Class| {
        rarely_held(class);
        class.reacquire_ns = class.waits.sum_ns;
        class.waits.sum_ns = 1_000;
        class.holders[0].hold_ns = class.holders[0].holds * 1_100_000;
    };
    assert_eq!(rules_of(sleeper), ["shorten"]);
    let text = last_text(sleeper);
    assert!(text.contains("Cache::evict, which holds the lock for 1.1 ms at a time"), "{text}");
    // It is for the wakeups that this class matters, and not for what it is held.
    let only_woken = |class: &mut Class| {
        busy(class);
        class.reacquire_ns = class.waits.sum_ns;
        class.waits.sum_ns = 1_000;
    };
    assert_eq!(rules_of(only_woken), ["wakeups"]);
}

#[test]
fn threads_that_poll_are_to_call_lock() {
    let trying = |class: &mut Class| {
        rarely_held(class);
        class.failed_tries = 1_000_001;
    };
    assert_eq!(rules_of(trying), ["polling"]);
}
