//! How fast the simulator is: MCS handovers per second of real time, on one core.
//!
//!     cargo run --release -p latchwork-sim --example handovers [MACHINE [THREADS]]

use latchwork::locks::mutex::{RawMutex, mcs::RawMcs};
use latchwork::machine::{Arith, Word};
use latchwork_sim::{Error, Options, Profile, Sim, U64, acquired, released, run, work};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

#[repr(align(128))]
struct Padded<T>(T);

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let profile = Profile::find(&arguments.next().unwrap_or_else(|| "4x16".into()))?;
    let threads: usize = arguments.next().map_or(64, |n| n.parse().expect("a number of threads"));
    const ROUNDS: u64 = 2_000_000;
    let each = ROUNDS / threads as u64;

    let (lock, data) = (Padded(RawMcs::<Sim>::new_in()), Padded(U64::new(0)));
    let body = || {
        for _ in 0..each {
            let token = lock.0.lock();
            acquired(0);
            data.0.store(data.0.load(Relaxed) + 1, Relaxed);
            work(20);
            released(0);
            // SAFETY: the token is from the acquisition above.
            unsafe { lock.0.unlock(token) };
            work(100);
        }
    };
    let start = Instant::now();
    let report = run(
        &profile,
        &Options::default(),
        (0..threads).map(|_| Box::new(body) as Box<dyn FnOnce()>).collect(),
    )?;
    let seconds = start.elapsed().as_secs_f64();

    assert_eq!(data.0.fetch_add(0, Relaxed), report.acquisitions);
    println!(
        "{} handovers in {seconds:.2} s: {:.2} million a second; {:.1} events each; {:.0} ns of simulated time each, \
         {:.0}% of them remote; trace {:016x}",
        report.handovers,
        report.handovers as f64 / seconds / 1e6,
        report.events as f64 / report.acquisitions as f64,
        report.simulated_ns as f64 / report.acquisitions as f64,
        100.0 * report.remote_handover_fraction(),
        report.trace_hash,
    );
    Ok(())
}
