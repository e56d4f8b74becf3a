//! Garbage while a reader stays in its section: objects that wait, and what an update costs meanwhile.

use indicatif::ProgressBar;
use latchwork::machine::Native;
use latchwork::reclaim::epoch::EpochDomain;
use latchwork::reclaim::hazard::HazardDomain;
use latchwork::reclaim::interval::IntervalDomain;
use latchwork::reclaim::qsbr::QsbrDomain;
use latchwork::reclaim::rcu::RcuDomain;
use latchwork::reclaim::{Guard, Header, Limit, Reader, Reclaim, Retire};
use latchwork_workloads::peers::reclamation::{Crossbeam, Haphazard, Seize};
use std::sync::Barrier;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};
use std::time::Instant;

/// Objects that are linked at a time.
const LIVE: usize = 1024;

static MADE: AtomicU64 = AtomicU64::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);

#[repr(C)]
struct Object {
    header: Header,
    value: u64,
}

// SAFETY: `repr(C)`, the header first.
unsafe impl Retire for Object {}

impl Drop for Object {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Relaxed);
    }
}

fn make<D: Reclaim>(value: u64) -> *mut Object {
    MADE.fetch_add(1, Relaxed);
    let mut object = Box::new(Object { header: Header::new(), value });
    D::note_new(&mut *object);
    Box::into_raw(object)
}

/// Objects that wait, and nanoseconds of an update.
#[derive(Copy, Clone, Default)]
struct Figures {
    waiting: u64,
    nanos: f64,
}

/// Replaces so many objects, one after the other.
fn update<D: Reclaim<Machine = Native>>(domain: &D, roots: &[AtomicPtr<Object>], updates: u64) -> Figures {
    let mut reader = domain.reader();
    let start = Instant::now();
    for value in 0..updates {
        let old = roots[value as usize % LIVE].swap(make::<D>(value), AcqRel);
        // SAFETY: removed here, by no other thread.
        unsafe { domain.retire(old) };
        if value % 64 == 0 {
            reader.quiescent();
        }
    }
    let nanos = start.elapsed().as_nanos() as f64 / updates as f64;
    Figures { waiting: MADE.load(Relaxed) - DROPPED.load(Relaxed) - LIVE as u64, nanos }
}

/// Without a stalled reader, and with one.
fn measure<D: Reclaim<Machine = Native>>(updates: u64) -> [Figures; 2] {
    [false, true].map(|stalls| {
        MADE.store(0, Relaxed);
        DROPPED.store(0, Relaxed);
        let domain = D::new_in();
        // No update waits: what is asked is how much garbage there would be.
        domain.set_limit(Limit { objects: u64::MAX, bytes: u64::MAX });
        let roots: Vec<_> = (0..LIVE).map(|_| AtomicPtr::new(make::<D>(0))).collect();
        let (inside, leave) = (Barrier::new(2), Barrier::new(2));
        let figures = std::thread::scope(|scope| {
            scope.spawn(|| {
                // A reader that is there at all keeps QSBR from reclaiming, because it announces nothing.
                let reader = stalls.then(|| domain.reader());
                let guard = reader.as_ref().map(|reader| reader.enter());
                let seen = guard.as_ref().map(|guard| guard.protect(0, &roots[0]));
                inside.wait();
                leave.wait();
                // SAFETY: the guard protects it.
                assert_eq!(seen.map_or(0, |seen| unsafe { (*seen).value }), 0);
            });
            inside.wait();
            let figures = update(&domain, &roots, updates);
            leave.wait();
            figures
        });
        domain.barrier();
        // SAFETY: no other thread uses them.
        roots.into_iter().for_each(|root| drop(unsafe { Box::from_raw(root.into_inner()) }));
        figures
    })
}

/// Measures all strategies in turn, and prints the table.
pub fn stalled(rounds: u32, updates: u64, json: bool) {
    type Measure = fn(u64) -> [Figures; 2];
    let all: [(&str, Measure); 8] = [
        ("qsbr", measure::<QsbrDomain<Native>>),
        ("rcu", measure::<RcuDomain<Native>>),
        ("epoch", measure::<EpochDomain<Native>>),
        ("interval", measure::<IntervalDomain<Native>>),
        ("hazard", measure::<HazardDomain<Native>>),
        ("crossbeam-epoch", measure::<Crossbeam>),
        ("seize", measure::<Seize>),
        ("haphazard", measure::<Haphazard>),
    ];
    let bar = ProgressBar::new(u64::from(rounds) * all.len() as u64);
    let mut found = vec![Vec::new(); all.len()];
    for _ in 0..rounds {
        for ((_, measure), found) in all.iter().zip(&mut found) {
            found.push(measure(updates));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let middle = |found: &[[Figures; 2]], stalls: usize, of: fn(&Figures) -> f64| {
        let figures = super::sorted(found.iter().map(|one| of(&one[stalls])).collect());
        figures[figures.len() / 2]
    };
    let rows = all.iter().zip(&found).map(|((name, _), found)| {
        let waiting = [0, 1].map(|stalls| middle(found, stalls, |one| one.waiting as f64));
        (*name, waiting, [0, 1].map(|stalls| middle(found, stalls, |one| one.nanos)))
    });
    if json {
        let rows: Vec<_> = rows
            .map(|(name, waiting, nanos)| {
                serde_json::json!({ "name": name, "waiting": waiting, "nanos": nanos })
            })
            .collect();
        let all = serde_json::json!({ "stalled": rows, "updates": updates, "rounds": rounds });
        return println!("{all}");
    }
    println!("| | objects that wait | with a stalled reader | ns of an update | with a stalled reader |");
    println!("|---|---|---|---|---|");
    for (name, waiting, nanos) in rows {
        println!("| {name} | {} | {} | {:.1} | {:.1} |", waiting[0], waiting[1], nanos[0], nanos[1]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_stalled_reader_keeps_objects_from_being_reclaimed() {
        let [without, with] = measure::<QsbrDomain<Native>>(200_000);
        assert!(without.waiting < 100_000, "{}", without.waiting);
        assert_eq!(with.waiting, 200_000);
    }
}
