//! Cells: a value that is read without locks and replaced as a whole.

use super::Work;
use arc_swap::ArcSwap;
use latchwork::reclaim::{Rcu, RcuArc};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};

pub fn all() -> Vec<(&'static str, Work)> {
    vec![
        ("no protection", unprotected as Work),
        ("Rcu::get", |times| repeat(times, Rcu::new(7), read)),
        ("arc-swap load", |times| repeat(times, ArcSwap::from_pointee(7), load)),
        ("RcuArc::snapshot", |times| repeat(times, RcuArc::new(Arc::new(7)), |cell, _| *cell.snapshot())),
        ("arc-swap load_full", |times| repeat(times, ArcSwap::from_pointee(7), |cell, _| *cell.load_full())),
        ("Rcu::replace", |times| repeat(times, Rcu::new(7), replace)),
        ("arc-swap store", |times| repeat(times, ArcSwap::from_pointee(7), store)),
        ("Rcu::get beside a writer", |times| contended(times, Rcu::new(7), read, replace)),
        ("arc-swap load beside a writer", |times| contended(times, ArcSwap::from_pointee(7), load, store)),
        ("Rcu::replace beside a reader", |times| contended(times, Rcu::new(7), replace, read)),
        ("arc-swap store beside a reader", |times| contended(times, ArcSwap::from_pointee(7), store, load)),
    ]
}

fn unprotected(times: u64) -> u64 {
    let mut value = 7;
    let cell = AtomicPtr::new(&raw mut value);
    // SAFETY: the value stays.
    repeat(times, cell, |cell, _| unsafe { *cell.load(Acquire) })
}

fn read(cell: &Rcu<u64>, _: u64) -> u64 {
    *cell.get()
}

fn load(cell: &ArcSwap<u64>, _: u64) -> u64 {
    **cell.load()
}

fn replace(cell: &Rcu<u64>, value: u64) -> u64 {
    cell.replace(value);
    0
}

fn store(cell: &ArcSwap<u64>, value: u64) -> u64 {
    cell.store(Arc::new(value));
    0
}

fn repeat<C>(times: u64, cell: C, work: impl Fn(&C, u64) -> u64) -> u64 {
    (0..times).fold(0, |sum, number| sum.wrapping_add(black_box(work(black_box(&cell), number))))
}

/// `work` in this thread, beside one that does `other` all the time.
fn contended<C: Sync>(times: u64, cell: C, work: fn(&C, u64) -> u64, other: fn(&C, u64) -> u64) -> u64 {
    let over = &AtomicBool::new(false);
    let cell = &cell;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while !over.load(Relaxed) {
                (0..100).for_each(|number| _ = black_box(other(cell, number)));
            }
        });
        let sum = (0..times).fold(0, |sum: u64, number| sum.wrapping_add(work(cell, number)));
        over.store(true, Relaxed);
        sum
    })
}
