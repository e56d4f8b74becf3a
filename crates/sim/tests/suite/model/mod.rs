//! The cost model on cases that are computed by hand, with the round numbers of `round.toml`.

mod capacity;
mod eevdf;
mod lines;
mod processors;
mod requests;
mod runs;
mod scans;

use latchwork::machine::{Arith, Word};
use latchwork_sim::{Arbitration, Options, Profile, Report, U64, now, run, work};
use std::sync::atomic::Ordering::Relaxed;

/// A line of its own, and no neighbour in the pair.
#[repr(align(128))]
pub struct Padded<T>(pub T);

/// A word in a line of its own.
pub type Line = Padded<U64>;

/// One of them.
pub fn line() -> Line {
    Padded(U64::new(0))
}

/// The machine of round numbers with another shape: (sockets, clusters, cores, smt).
pub fn machine((sockets, clusters, cores, smt): (usize, usize, usize, usize)) -> Profile {
    let mut profile = Profile::parse(include_str!("round.toml"), "round.toml").unwrap();
    profile.topology.sockets = sockets;
    profile.topology.clusters = clusters;
    profile.topology.cores = cores;
    profile.topology.smt = smt;
    profile
}

/// Nothing random: all start at once, first come, first served.
pub fn exact() -> Options {
    Options { spread_ns: Some(0), arbitration: Arbitration::Fifo, ..Options::default() }
}

/// Runs one body per thread, with nothing random; thread `i` starts on processor `i`.
pub trait Play {
    fn play(&self, bodies: Vec<&dyn Fn()>) -> Report;
}

impl Play for Profile {
    fn play(&self, bodies: Vec<&dyn Fn()>) -> Report {
        play(self, &exact(), bodies)
    }
}

/// The same with other options.
pub fn play(profile: &Profile, options: &Options, bodies: Vec<&dyn Fn()>) -> Report {
    let bodies = bodies.into_iter().map(|body| Box::new(body) as Box<dyn FnOnce()>).collect();
    run(profile, options, bodies).unwrap()
}

/// Waits until the given time.
pub fn at(time: u64) {
    work(time.checked_sub(now()).expect("too late"));
}

/// How long something takes.
pub fn timed<R>(f: impl FnOnce() -> R) -> u64 {
    let start = now();
    f();
    now() - start
}

/// How long a load takes.
pub fn load(line: &Line) -> u64 {
    timed(|| line.0.load(Relaxed))
}

/// How long a store takes.
pub fn store(line: &Line) -> u64 {
    timed(|| line.0.store(now() + 1, Relaxed))
}

/// How long an atomic addition takes.
pub fn rmw(line: &Line) -> u64 {
    timed(|| line.0.fetch_add(1, Relaxed))
}

/// Makes a statement of an expression.
pub fn ignore<T>(_: T) {}
