//! Whether a trace can be replayed: what it must not contain, and what the replay on its own machine must give.

use super::load::Load;
use super::plan::Point;
use serde::Serialize;

/// The most that the replay's throughput may differ from the recorded one (a share).
pub const THROUGHPUT: f64 = 0.10;
/// The most that the share of waiting may differ.
pub const WAITING: f64 = 0.05;
/// With less waiting than this in the recording, its replay says nothing about how long threads wait.
const NEVER: f64 = 0.005;
/// The largest share of the threads' time that may pass outside of what is replayed: see [`Check`].
const OUTSIDE: f64 = 0.30;
/// From this share on it is mentioned.
const MENTIONED: f64 = 0.05;
/// The largest share of events that may be missing.
const DROPPED: f64 = 0.01;

/// The result of the check.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Check {
    /// Acquisitions a second, as recorded and in the replay.
    pub recorded_throughput: f64,
    /// See `recorded_throughput`.
    pub replayed_throughput: f64,
    /// Share of the threads' time spent waiting for locks, as recorded and in the replay.
    pub recorded_waiting: f64,
    /// See `recorded_waiting`.
    pub replayed_waiting: f64,
    /// Share of it spent waiting for what other threads do outside of locks, as recorded and in the replay: see
    /// [`Shares::sleeping`](super::load::Shares::sleeping).
    pub recorded_sleeping: f64,
    /// See `recorded_sleeping`.
    pub replayed_sleeping: f64,
    /// Why there is no prediction. Empty: there is one.
    pub refusals: Vec<String>,
    /// What may make the prediction worse.
    pub warnings: Vec<String>,
}

/// How to record a part of a program's run in which it does the same all the time, and waits for nothing else. Seconds are an example.
const STEADY: &str = "latchwork record --delay 10 --seconds 5 -- PROG";

/// What to try after a replay that does not fit.
fn steady() -> String {
    format!("Try a steady phase of the program, on a machine that does nothing else: {STEADY}")
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// What the trace itself says, before any replay.
pub fn of_trace(load: &Load, cpus: usize) -> Check {
    let mut check = Check {
        recorded_throughput: load.throughput,
        recorded_waiting: load.shares.waiting,
        recorded_sleeping: load.shares.sleeping,
        ..Check::default()
    };
    if load.roles.is_empty() {
        check.refusals.push(
            "It has no acquisition of a lock. To see which calls the program makes at all: latchwork run --stats -- PROG".into(),
        );
        return check;
    }
    if load.dropped > DROPPED {
        check.refusals.push(format!(
            "{} of the calls were dropped. Record a shorter time, or into more memory (in MiB): latchwork record --seconds 5 --size 2048 \
             -- PROG",
            percent(load.dropped)
        ));
    }
    let outside = [
        (
            load.shares.off,
            "asleep in system calls, or in locks that are not pthread's (I/O, timers, the futexes of a language's runtime). A \
             bigger machine changes that time in ways that no lock decides",
        ),
        (
            load.shares.timed,
            "in waits that end at a deadline, or for condition variables and semaphores that no recorded thread signals. The replay \
             keeps these waits as long as they were, but on a bigger machine they may change",
        ),
    ];
    for (share, what) in outside {
        let text = format!("The threads spent {} of their time {what}.", percent(share));
        if share > OUTSIDE {
            // The beginning of a program, which reads files, and its idle times are the usual reason.
            check.refusals.push(format!("{text} Try a phase in which the program has much to do: {STEADY}"));
        } else if share > MENTIONED {
            check.warnings.push(text);
        }
    }
    if load.shares.joining > MENTIONED {
        check.warnings.push(format!(
            "The threads spent {} of their time waiting for the end of other threads, once or for a thread whose beginning was not \
             recorded. The replay keeps these waits as long as they were.",
            percent(load.shares.joining)
        ));
    }
    if load.shares.preempted > MENTIONED && load.threads() <= cpus {
        check.warnings.push(format!(
            "The threads could run for {} of their time and had no processor, although there are enough: other programs used \
             the machine. Record on an idle one.",
            percent(load.shares.preempted)
        ));
    }
    if (load.second_half - 1.0).abs() > THROUGHPUT {
        check.warnings.push(format!(
            "The second half of the recording has {} {} acquisitions than the first: the program has phases, or something else \
             changed. The prediction is for the mean of both. To record one phase: {STEADY}",
            percent((load.second_half - 1.0).abs()),
            if load.second_half > 1.0 { "more" } else { "fewer" },
        ));
    }
    if !load.left_out.is_empty() {
        let names = load.left_out.join(", ");
        check.warnings.push(format!("Left out, because they hardly use locks: threads that run {names}."));
    }
    check
}

/// Compares the replay on the recording machine with the recording.
pub fn compare(check: &mut Check, load: &Load, replayed: &Point) {
    let throughput = replayed.throughput[1];
    (check.replayed_throughput, check.replayed_waiting) = (throughput, replayed.waiting);
    check.replayed_sleeping = replayed.sleeping;
    // What is left of such a recording has gaps. That its replay differs says nothing more.
    if load.dropped > DROPPED {
        return;
    }
    if replayed.is_stuck() {
        return is_stuck(check, "the recorded number of threads", replayed);
    }
    let off = throughput / check.recorded_throughput.max(1e-9) - 1.0;
    if off.abs() > THROUGHPUT {
        check.refusals.push(format!(
            "The replay on the recording machine has {} {} acquisitions a second than the recording ({} instead of {}); {} are \
             allowed. {}",
            percent(off.abs()),
            if off > 0.0 { "more" } else { "fewer" },
            super::report::rate(throughput),
            super::report::rate(check.recorded_throughput),
            percent(THROUGHPUT),
            steady()
        ));
    }
    for (what, replayed, recorded) in [
        ("locks", replayed.waiting, check.recorded_waiting),
        ("conditions, semaphores, barriers and joins", replayed.sleeping, check.recorded_sleeping),
    ] {
        if (replayed - recorded).abs() > WAITING {
            // Making a thread and ending it cost nothing in the simulator.
            let makes = replayed < recorded && load.forked.iter().any(Option::is_some);
            let made = if makes {
                "The program makes threads for pieces of its work, and the replay does not know what making a thread costs. "
            } else {
                ""
            };
            check.refusals.push(format!(
                "In the replay on the recording machine threads wait for {what} for {} of their time, in the recording for {}; a \
                 difference of {:.0} points is allowed. {made}{}",
                percent(replayed),
                percent(recorded),
                WAITING * 100.0,
                steady()
            ));
        }
    }
}

/// A prediction in which threads wait for locks for this share of their time, at most.
pub fn not_recorded(check: &mut Check, waiting: f64) {
    if check.recorded_waiting < NEVER && waiting > WAITING {
        check.warnings.push(format!(
            "In the prediction threads wait for locks for up to {} of their time, in the recording for {}. So the waiting of the \
             replay has not been checked. Record with more threads.",
            percent(waiting),
            percent(check.recorded_waiting)
        ));
    }
}

/// Every thread of a replay waits for another one.
pub fn is_stuck(check: &mut Check, what: &str, replayed: &Point) {
    if replayed.deadlocked {
        check.refusals.push(format!(
            "The replay of {what} comes to a stand: threads wait for locks that others of them hold. The program takes some locks in \
             different orders at different times, and in the replay these times meet. To see where: latchwork check -- PROG"
        ));
        return;
    }
    check.refusals.push(format!(
        "The replay of {what} comes to a stand: every thread waits for what another one of them should do: signal a condition, \
         post a semaphore, come to a barrier, or end (waits for locks: {}). The copies of the recorded threads wait in another order than the program's threads would. \
         Record the program with as many threads as you ask about, or a steady phase of it: {STEADY}",
        percent(replayed.waiting)
    ));
}
