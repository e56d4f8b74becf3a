//! Table 2: measured.
//!
//! The method is that of section 3.2: a long series of the instruction, executed in a loop, less the same loop
//! with a single increment of a local variable. What moves a cache line needs two CPUs, which take turns at
//! changing it, each in a loop of its own.

use crate::calibrate::memory;
use crate::calibrate::places::Places;
use crate::calibrate::threads::{Helper, on};
use indicatif::{ProgressBar, ProgressStyle};
use latchwork::locks::mutex::RawMutex;
use latchwork::locks::mutex::ttas::RawTtas;
use latchwork::machine::{Machine, Native};
use latchwork::reclaim::{Reader, Reclaim, rcu::RcuDomain};
use latchwork_console::signals::Signals;
use latchwork_console::stats;
use latchwork_console::stats::order;
use serde::Serialize;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::*, fence};
use std::time::Instant;

/// What one operation costs.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    /// As the table has it.
    pub name: &'static str,
    /// In units of a plain instruction, if it can be had here.
    pub instructions: Option<f64>,
    /// In nanoseconds.
    pub ns: Option<f64>,
    /// Distance of the quartiles, relative to the median.
    pub spread: Option<f64>,
    /// What the paper has.
    pub power4: Option<f64>,
    /// What the paper has.
    pub xeon: Option<f64>,
}

/// Operations in a series.
const SERIES: u32 = 64;
/// Turns of the loop around it.
const TURNS: u32 = 200;

/// Words that the operations change.
#[derive(Default)]
#[repr(align(128))]
struct Words {
    word: AtomicU64,
    lock: RawTtas<Native>,
}

/// Nanoseconds that each of a series of `operation` takes, the loop's own time included.
#[inline(always)]
fn turns(turns: u32, mut body: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..turns {
        body();
    }
    start.elapsed().as_nanos() as f64
}

/// Repeats it as the paper's series does.
macro_rules! series {
    ($operation:expr) => {{
        let four = || {
            $operation;
            $operation;
            $operation;
            $operation;
        };
        move || {
            four();
            four();
            four();
            four();
            four();
            four();
            four();
            four();
            four();
            four();
            four();
            four();
            four();
            four();
            four();
            four();
        }
    }};
}

#[inline(always)]
fn nop() {
    // SAFETY: it does nothing.
    unsafe { std::arch::asm!("nop", options(nomem, nostack, preserves_flags)) };
}

/// The loop with a single local increment, for as many turns.
fn empty(count: u32) -> f64 {
    let mut local = 0u64;
    turns(count, || local = black_box(local).wrapping_add(1))
}

/// Nanoseconds of one operation of a series.
#[inline(always)]
fn each(count: u32, body: impl FnMut()) -> f64 {
    (turns(count, body) - empty(count)) / f64::from(count * SERIES)
}

/// An operation that is measured; in nanoseconds, unless this machine has no such thing.
struct Row {
    name: &'static str,
    power4: Option<f64>,
    xeon: Option<f64>,
    measure: Measure,
}

/// Nanoseconds of one operation.
type Measure = Box<dyn Fn(&Here) -> Option<f64>>;

/// Where it is measured.
struct Here {
    /// The CPU of the series, and another, as near as there is.
    cpu: usize,
    pair: Option<(usize, usize)>,
}

fn row(
    name: &'static str,
    power4: Option<f64>,
    xeon: Option<f64>,
    measure: impl Fn(&Here) -> Option<f64> + 'static,
) -> Row {
    Row { name, power4, xeon, measure: Box::new(measure) }
}

/// A row of a series on one CPU.
fn plain(name: &'static str, measure: impl Fn(&Words) -> f64 + Send + Sync + 'static) -> Row {
    paper(name, None, None, measure)
}

fn paper(
    name: &'static str,
    power4: impl Into<Option<f64>>,
    xeon: impl Into<Option<f64>>,
    measure: impl Fn(&Words) -> f64 + Send + Sync + 'static,
) -> Row {
    row(name, power4.into(), xeon.into(), move |here| {
        let words = Words::default();
        Some(on(here.cpu, || measure(&words)))
    })
}

/// All rows; the first is the unit.
fn rows() -> Vec<Row> {
    vec![
        paper("plain instruction (nop)", 1.0, 1.0, |_| each(TURNS * 50, series!(nop()))),
        plain("load that hits", |words| each(TURNS, series!(black_box(words.word.load(Relaxed))))),
        plain("store", |words| each(TURNS, series!(words.word.store(1, Relaxed)))),
        paper("atomic increment", 183.1, 402.3, |words| {
            each(TURNS, series!(words.word.fetch_add(1, Relaxed)))
        }),
        plain("exchange", |words| each(TURNS, series!(words.word.swap(1, AcqRel)))),
        plain("CAS that succeeds, line here", |words| {
            each(TURNS, series!(_ = black_box(words.word.compare_exchange(0, 0, AcqRel, Relaxed))))
        }),
        paper("write barrier (release fence)", 328.6, 0.0, |words| {
            each(
                TURNS,
                series!({
                    fence(Release);
                    words.word.store(1, Relaxed)
                }),
            ) - each(TURNS, series!(words.word.store(1, Relaxed)))
        }),
        paper("read barrier (acquire fence)", 328.9, 402.3, |words| {
            each(
                TURNS,
                series!({
                    black_box(words.word.load(Relaxed));
                    fence(Acquire)
                }),
            ) - each(TURNS, series!(black_box(words.word.load(Relaxed))))
        }),
        paper("full barrier (seq_cst fence) after a store", 400.9, None, |words| {
            // Without the store between them the compiler makes one of all.
            each(
                TURNS,
                series!({
                    words.word.store(1, Relaxed);
                    fence(SeqCst)
                }),
            ) - each(TURNS, series!(words.word.store(1, Relaxed)))
        }),
        plain("light fence", |words| {
            each(
                TURNS,
                series!({
                    Native::light_fence();
                    words.word.store(1, Relaxed)
                }),
            ) - each(TURNS, series!(words.word.store(1, Relaxed)))
        }),
        row("heavy fence (membarrier), one other CPU busy", None, None, |here| {
            let fences = || turns(20, || _ = black_box(Native::heavy_fence())) / 20.0;
            // The helper looks for work all the time.
            Some(here.pair.map_or_else(fences, |(one, other)| Helper::with(other, |_| on(one, fences))))
        }),
        paper("local lock round trip (ttas)", 1057.5, 1138.8, |words| {
            each(
                TURNS,
                series!({
                    words.lock.lock();
                    // SAFETY: locked just above.
                    unsafe { words.lock.unlock(()) }
                }),
            )
        }),
        plain("RCU section (general purpose)", |_| {
            let domain = RcuDomain::<Native>::new_in();
            let reader = domain.reader();
            each(TURNS, series!(drop(reader.enter())))
        }),
        row("load from memory", None, None, |here| Some(stats::median(&memory::memory(here.cpu, here.cpu)?))),
        row("load from another CPU's cache", None, None, |here| {
            let (from, to) = here.pair?;
            Some(stats::median(&memory::transfer(from, to, true)?))
        }),
        row("CAS cache transfer", Some(247.1), Some(847.1), |here| bounce(here, false)),
        row("CAS blind cache transfer", Some(257.1), Some(993.9), |here| bounce(here, true)),
        plain("system call (getppid)", |_| {
            // SAFETY: it has no arguments, and no effect.
            turns(TURNS, || _ = black_box(unsafe { libc::getppid() })) / f64::from(TURNS)
        }),
    ]
}

/// Two CPUs change a line in turn, with a CAS each: from the value just read, or (`blind`) from a constant.
fn bounce(here: &Here, blind: bool) -> Option<f64> {
    const CHANGES: u64 = 4000;
    let (one, other) = here.pair?;
    let words = Words::default();
    // A waiting thread reads nothing but the line, so that its loop runs while the line is on its way.
    let take_turns = |mine: u64| {
        for _ in 0..CHANGES / 2 {
            let mut tries = 0u32;
            loop {
                let expected = if blind { mine } else { words.word.load(Relaxed) };
                if expected == mine
                    && words.word.compare_exchange(expected, 1 - mine, AcqRel, Relaxed).is_ok()
                {
                    break;
                }
                tries += 1;
                // The other thread may not be running.
                if tries.is_multiple_of(10_000) {
                    std::thread::yield_now();
                }
            }
        }
    };
    let ns = Helper::with(other, |helper| {
        on(one, || {
            helper.while_running(&|| take_turns(1), || {
                let start = Instant::now();
                take_turns(0);
                start.elapsed().as_nanos() as f64
            })
        })
    });
    Some(ns / CHANGES as f64)
}

/// Measures each row in each round. And the signal that ended it early, if one did.
pub fn measure(rounds: u32, signals: &Signals) -> (Vec<Cost>, Option<i32>) {
    let places = Places::here();
    let here = Here { cpu: places.cpus.first().map_or(0, |cpu| cpu.id), pair: places.nearest() };
    let _ = Native::prepare_fences();
    let rows = rows();
    let bar = ProgressBar::new(u64::from(rounds) * rows.len() as u64).with_style(
        ProgressStyle::with_template("{wide_msg} {bar:30} {pos}/{len}").expect("a valid template"),
    );
    let mut values: Vec<Vec<f64>> = rows.iter().map(|_| Vec::new()).collect();
    let mut interrupted = None;
    'rounds: for round in 0..rounds {
        for at in order(round as usize, rows.len()) {
            if let Some(signal) = signals.take() {
                interrupted = Some(signal);
                break 'rounds;
            }
            bar.set_message(rows[at].name);
            values[at].extend((rows[at].measure)(&here).map(|ns| ns.max(0.0)));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let unit = (!values[0].is_empty()).then(|| stats::median(&values[0]));
    let costs = rows.iter().zip(&values).map(|(row, values)| {
        let ns = (!values.is_empty()).then(|| stats::median(values));
        Cost {
            name: row.name,
            instructions: ns.zip(unit).map(|(ns, unit)| ns / unit),
            ns,
            spread: ns.map(|_| stats::spread(values)),
            power4: row.power4,
            xeon: row.xeon,
        }
    });
    (costs.collect(), interrupted)
}
