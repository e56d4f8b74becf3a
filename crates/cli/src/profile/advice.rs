//! What to try.
//!
//! Each rule of [`advice`] states its threshold with its reason. A rule looks only at classes that matter: at locks that
//! cost the program a noticeable part of its time.

use super::findings::{NOTABLE, ratio};
use super::model::{Cause, Class, Kind, OWN, Profile};
use super::top_holders::TopHolder;
use super::units::{count, percent, things, time};
use latchwork_console::names::GLIBC;

/// Classes with a smaller share of all waiting are left out of the advice: most of the time is lost elsewhere.
const MATTERS: f64 = 0.05;

/// Classes with a smaller share of the threads' time are left out, too: ending all of this waiting would gain less than any comparison
/// of two runs can show.
const GAIN: f64 = 0.002;

/// If fewer acquisitions wait, what costs time is a few long waits: for a holder that lost its CPU, or of a waiter that others pass. A part
/// of the lock would have them, too.
const WAIT: f64 = 0.001;

/// One holder that causes so much of a lock's waiting is worth a look of its own: shortening another one helps less.
const MOST: f64 = 0.5;

/// Sections that are held shorter are shorter than a wakeup, which takes some microseconds: how the lock waits and hands
/// over matters more than what the section does.
const SHORT_NS: u64 = 5_000;

/// Sections that are held longer contain a system call, a sleep or a loop over data, which may be moved out.
const LONG_NS: u64 = 1_000_000;

/// If 99 of 100 sections are so many times as short as the mean, a few long ones have most of the time.
const OUTLIERS: u64 = 4;

/// Two functions that each hold a lock for this part of the waiting may use different data.
const SHARED: f64 = 0.2;

/// A lock that is held for so much of the run makes threads wait whichever lock serves.
const BUSY: f64 = 0.05;

/// Splitting a lock shall leave this chance that a thread finds its part held.
const LEFT_OVER: f64 = 0.02;

/// Parts beyond this number help no program with as many threads as CPUs, and cost memory.
const MOST_PARTS: u64 = 64;

/// So many reads make it worth while that readers do not write to the lock (the BRAVO paper gains from nine in ten on).
const MOSTLY_READ: f64 = 0.9;

/// Fewer comparisons say nothing about who gets a lock next.
const COMPARED: u64 = 100;

/// If the next thread is another one more seldom than this, the waiters starve: of two threads that take turns it always is.
const SELDOM: f64 = 0.05;

/// A waiter that waits for as many holds has been passed over. A queue of so many threads has another thread next.
const PASSED: u64 = 20;

/// A thing to try, for one class of locks.
#[derive(Debug, PartialEq)]
pub struct Advice {
    /// A word for scripts.
    pub rule: &'static str,
    /// A number in [`Profile::locks`].
    pub lock: usize,
    /// What to do and why, in a sentence or two.
    pub text: String,
}

/// What to try, in the order of the locks.
pub fn advice(profile: &Profile) -> Vec<Advice> {
    let mut advice = Vec::new();
    let (waited, reacquired) = (profile.lost_ns(), profile.reacquire_ns());
    let busy = profile.lifetime_ns().saturating_sub(profile.idle_ns());
    // Whether so much of what all locks cost in this way is worth a rule.
    let matters = |part: u64, whole: u64| {
        ratio(whole, busy) >= NOTABLE
            && ratio(part, whole) >= MATTERS
            && ratio(part, busy) >= GAIN
            && part > 0
    };
    for (lock, class) in profile.locks.iter().enumerate() {
        let mut add = |rule, text: String| advice.push(Advice { rule, lock, text });
        let wakeups = is_wakeups(class) && matters(class.reacquire_ns, waited + reacquired);
        if wakeups {
            match after_conditions(profile, class) {
                Some(text) => add("shorten", text),
                None => add(
                    "wakeups",
                    format!(
                        "{}: {} went to acquiring it again after a wait for a condition. Signal one thread in place of all, \
                         and after unlocking.",
                        class.name,
                        time(class.reacquire_ns)
                    ),
                ),
            }
        }
        if matters(class.lost_ns(), waited) {
            if let Some(text) = starved_writers(profile, class) {
                add("lock", text);
            } else {
                if let Some(text) = shorten(profile, class).or_else(|| given_up(profile, class)) {
                    add("shorten", text);
                }
                if let Some(text) = skewed(class) {
                    add("skewed", text);
                } else if let Some(text) = split(profile, class) {
                    add("split", text);
                }
                if !wakeups && let Some(text) = other_lock(class) {
                    add("lock", text);
                }
            }
        }
        // A thread that polls does not wait in a call.
        if is_polled(class) {
            add("polling", polling(class));
        }
    }
    advice
}

/// More than half of what the lock costs is getting it back after a condition.
fn is_wakeups(class: &Class) -> bool {
    class.reacquire_ns > class.waits.sum_ns
}

/// The function that has most of the time for which the lock is held, if its sections are longer than a wakeup.
fn long_holder(profile: &Profile, class: &Class) -> Option<TopHolder> {
    let holder = profile.longest_holder(class)?;
    let all: u64 = class.holders.iter().map(|holder| holder.hold_ns).sum();
    (ratio(holder.hold_ns, all) >= MOST && holder.at_a_time_ns() >= SHORT_NS).then_some(holder)
}

/// Threads that were woken wait for one holder, rather than for each other.
fn after_conditions(profile: &Profile, class: &Class) -> Option<String> {
    let holder = long_holder(profile, class)?;
    Some(format!(
        "{}: shorten the section of {}, which holds the lock for {} at a time: {} went to acquiring it again after a wait for a \
         condition.",
        class.name,
        holder.function,
        time(holder.at_a_time_ns()),
        time(class.reacquire_ns)
    ))
}

/// Most calls give up before the holder releases the lock, or most of the waiting is theirs, so that no holder pays for it. It is probably the holder for which
/// calls at the same places waited that did not give up, or else the one with the longest holds.
fn given_up(profile: &Profile, class: &Class) -> Option<String> {
    let still_held = class.pairs.iter().filter(|pair| pair.cause == Cause::StillHeld);
    let in_vain = ratio(still_held.map(|pair| pair.wait_ns).sum(), class.waits.sum_ns) >= MOST;
    if !in_vain && class.timeouts <= class.contended / 2 {
        return None;
    }
    let holder = match profile.holder_at_deadlines(class) {
        Some(holder) => Some(holder).filter(|holder| holder.at_a_time_ns() >= SHORT_NS),
        // Whether readers or writers gave up is not known.
        None if class.kind == Kind::RwLock => None,
        None => long_holder(profile, class),
    }?;
    Some(format!(
        "{}: shorten the section of {}, which holds the lock for {} at a time: {} gave up meanwhile, at a deadline.",
        class.name,
        holder.function,
        time(holder.at_a_time_ns()),
        things(class.timeouts, "call")
    ))
}

/// One holder causes most of the waiting: its section is what to shorten. What else it does there depends on its length.
fn shorten(profile: &Profile, class: &Class) -> Option<String> {
    let holder = profile.top_holder(class)?;
    let share = ratio(holder.caused_wait_ns, class.waits.sum_ns);
    if share < MOST || holder.at_a_time_ns() < SHORT_NS {
        return None;
    }
    let most_ns = class.holds.quantile_ns(0.99);
    let hint = if class.holds.count > 0 && most_ns < holder.at_a_time_ns() / OUTLIERS {
        format!(
            " But 99 of 100 sections take at most {}: in the others the holder sleeps, or loses its CPU to another thread. If the \
             program has more threads than CPUs, try fewer.",
            time(most_ns)
        )
    } else if holder.at_a_time_ns() >= LONG_NS {
        " Sections of that length sleep, read files or walk through data: move that out of the lock.".into()
    } else {
        String::new()
    };
    Some(format!(
        "{}: shorten the section of {}: it caused {} of the waiting, and holds the lock for {} at a time.{hint}",
        class.name,
        holder.function,
        percent(share),
        time(holder.at_a_time_ns())
    ))
}

/// The lock is split already, but most threads want the same part: one and a half times its even share, and half of all waiting.
fn skewed(class: &Class) -> Option<String> {
    // Locks of other processes are no parts of this one's data.
    let process = &class.busiest;
    let share = ratio(process.longest_instance_ns, process.wait_ns);
    (process.instances >= 2 && share >= MOST.max(1.5 / process.instances as f64)).then(|| {
        format!(
            "{}: {} of the waiting is for one of the {} locks: spread what they protect more evenly.",
            class.name,
            percent(share),
            count(process.instances)
        )
    })
}

/// The lock is held for much of the run by sections that each are short: more locks, each for a part of the data.
fn split(profile: &Profile, class: &Class) -> Option<String> {
    let process = &class.busiest;
    let held_ns =
        class.mean_hold_ns(profile.seconds) as f64 * process.holds as f64 / process.instances.max(1) as f64;
    // What is sure if the sample of the holds has more long ones than it should.
    let margin = ratio(class.holds.sampling_error_ns().margin_ns(), class.holds.mean_ns());
    let alone = alone(class);
    let busy = (held_ns * alone / (profile.seconds * 1e9)).min(1.0) * (1.0 - margin).max(0.0);
    // With the parts of a long section a thread would have to hold many parts.
    let at_a_time_ns =
        profile.top_holder(class).map_or(class.holds.mean_ns(), |holder| holder.at_a_time_ns());
    let long = at_a_time_ns >= LONG_NS;
    // Most threads give up: the holder keeps the lock beyond their deadlines, and would keep a part of it.
    let in_vain = class.timeouts > class.acquisitions;
    let seldom = ratio(class.contended, class.calls()) < WAIT;
    if in_vain || long || seldom || busy < BUSY || class.holds.count == 0 {
        return None;
    }
    let parts = ((busy / LEFT_OVER).ceil() as u64).next_power_of_two().min(MOST_PARTS);
    let one_in = class.calls().checked_div(class.contended).filter(|one_in| *one_in >= 1)?;
    let waits = match one_in {
        1 => "most acquisitions wait".into(),
        more => format!("one acquisition in {} waits", count(more)),
    };
    Some(format!(
        "{}: split it, if its data can be: it is held {}{} of the time, and {waits}. With {parts} locks for parts of the data, \
         about one in {} would, if all parts are used alike.{}",
        class.name,
        // A tenth is within what two digits say.
        if margin < 0.1 && alone > 0.9 { "" } else { "at least " },
        percent(busy),
        count(one_in * parts),
        shared(profile, class)
    ))
}

/// Two functions hold the lock while threads wait: perhaps each has data of its own.
fn shared(profile: &Profile, class: &Class) -> String {
    let whole = class.waits.sum_ns;
    let mut holders = profile.holders(class, |holder| holder.caused_wait_ns).collect::<Vec<_>>();
    holders.retain(|holder| ratio(holder.caused_wait_ns, whole) >= SHARED);
    holders.sort_by(|first, second| first.function.cmp(&second.function));
    match &holders[..] {
        [first, second] => format!(
            " If {} and {} use different data, give each a lock of its own.",
            first.function, second.function
        ),
        _ => String::new(),
    }
}

/// At least so much of the time for which holders hold a lock, one after another do. Readers hold it together: as many as were seen.
fn alone(class: &Class) -> f64 {
    let read_ns = class.read_hold_ns.checked_div(class.read_holds).unwrap_or(0).saturating_mul(class.reads);
    let all_ns = class.holds.mean_ns().saturating_mul(class.acquisitions);
    let reading = ratio(read_ns, all_ns).min(1.0);
    1.0 - reading + reading / class.readers_max.max(1) as f64
}

/// Another lock may serve better: readers that do not write to the lock, or a cheaper handover.
fn other_lock(class: &Class) -> Option<String> {
    let reads = ratio(class.reads, class.acquisitions);
    // `compare` does not change the locks of latchwork.h, whose reader-writer lock is bravo already.
    let own = class.served_by.iter().any(|lock| lock == OWN);
    // No lock is advised that serves already.
    let served_by = |name: &str| class.served_by.iter().any(|lock| lock.starts_with(name));
    if class.kind == Kind::RwLock && reads >= MOSTLY_READ {
        let is_biased = own || served_by("bravo-");
        return (!is_biased).then(|| {
            format!(
                "{}: {} of its holders only read. It is a candidate for bravo, whose readers do not write to the lock: \
                 latchwork compare --rwlock bravo-2d-shfl-rw.",
                class.name,
                percent(reads)
            )
        });
    }
    if class.kind == Kind::RwLock && reads < 0.5 {
        return Some(format!(
            "{}: only {} of its holders read. A mutex has less to do than a reader-writer lock.",
            class.name,
            percent(reads)
        ));
    }
    let next = class.successions;
    let passed = class.waits.mean_ns() / class.holds.mean_ns().max(1);
    if class.kind == Kind::Mutex
        && !served_by("shfl")
        && class.holds.count > 0
        && next.compared >= COMPARED
        && ratio(next.by_thread, next.compared) < SELDOM
        && passed >= PASSED
    {
        return Some(format!(
            "{}: the thread that releases it takes it again: {} of a hundred acquisitions follow one of another thread, and a \
             waiter waits for {} on average. A lock that lets no waiter be passed over without bound ends that: {}.",
            class.name,
            match (100 * next.by_thread).div_ceil(next.compared) {
                0 => "none".into(),
                most => format!("at most {most}"),
            },
            time(class.waits.mean_ns()),
            if own { "lw_any_mutex_t takes its name" } else { "latchwork compare --mutex shfl" }
        ));
    }
    let handover = ratio(class.handover_ns, class.waits.sum_ns);
    // A quarter: below that, a lock that hands over at no cost would still leave most of the waiting.
    (class.kind == Kind::Mutex && handover >= 0.25 && class.holds.mean_ns() < SHORT_NS).then(|| {
        format!(
            "{}: its sections are short ({}), and {} of the waiting goes to handing it over. Another lock may do that \
             faster: {}.",
            class.name,
            time(class.holds.mean_ns()),
            percent(handover),
            if own { "lw_any_mutex_t takes its name" } else { "latchwork compare" }
        )
    })
}

/// Readers hold a lock of glibc without pause. Its default kind lets a new reader pass a waiting writer.
fn starved_writers(profile: &Profile, class: &Class) -> Option<String> {
    let read_ns = class.read_hold_ns.checked_div(class.read_holds).filter(|ns| *ns > 0)?;
    let waits = class.waits.count.saturating_add(class.waiting.threads);
    let wait_ns = class.lost_ns().checked_div(waits)?;
    let readers = class.readers_mean(profile.seconds);
    let is_glibc = class.served_by.iter().any(|lock| lock == GLIBC);
    // A writer that no reader may pass waits for the readers that are inside: for one section.
    (class.kind == Kind::RwLock && is_glibc && readers >= 1.0 && wait_ns / read_ns >= PASSED).then(|| {
        format!(
            "{}: new readers pass waiting writers. {readers:.1} readers hold it on average, for {} at a time, and a call that waits \
             waits for {} on average. glibc's default kind allows that without bound. Initialise the lock as \
             PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP if no thread holds it twice, or try another: latchwork compare --rwlock \
             bravo-2d-shfl-rw,shfl-rw.",
            class.name,
            time(read_ns),
            time(wait_ns)
        )
    })
}

/// Threads try again and again. Ten failures for one success are no accident.
pub fn is_polled(class: &Class) -> bool {
    // A hundred acquisitions: fewer say nothing about the program.
    class.failed_tries > 10 * class.acquisitions.max(100)
}

fn polling(class: &Class) -> String {
    format!(
        "{}: {} attempts failed for {} acquisitions. A loop around trylock takes CPU time from the holder, or sleeps while the lock \
         is free. Call lock, or its form with a deadline.",
        class.name,
        count(class.failed_tries),
        count(class.acquisitions)
    )
}

#[cfg(test)]
pub fn rules(profile: &Profile) -> Vec<&'static str> {
    advice(profile).iter().map(|advice| advice.rule).collect()
}

#[cfg(test)]
mod tests;
