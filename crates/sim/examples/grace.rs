//! How long a grace period takes on a simulated machine, by the number of threads that read.
//!
//!     cargo run --release -p latchwork-sim --example grace [MACHINE [THREADS,..]]

use latchwork::machine::{Machine, Word};
use latchwork::reclaim::qsbr::QsbrDomain;
use latchwork::reclaim::rcu::RcuDomain;
use latchwork::reclaim::{Reader, Reclaim};
use latchwork_sim::{Error, Options, Profile, Sim, now, run, work};
use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;

/// Grace periods in a row.
const ROW: u64 = 50;

#[repr(align(128))]
struct Padded<T>(T);

/// Nanoseconds of a grace period, or of something else, while `readers` read: sections of 100 ns, and 100 ns and a
/// quiescent state between them.
fn measure<D: Reclaim<Machine = Sim>>(
    profile: &Profile,
    readers: usize,
    work_of: fn(&D),
) -> Result<f64, Error> {
    let domain = D::new_in();
    let left = Padded(<Sim as Machine>::U32::new(1));
    let took = Cell::new(0.0);
    let read = || {
        let mut reader = domain.reader();
        while left.0.load(Relaxed) != 0 {
            let guard = reader.enter();
            work(100);
            drop(guard);
            reader.quiescent();
            work(100);
        }
    };
    let wait = || {
        work(20_000); // until all read
        let start = now();
        (0..ROW).for_each(|_| work_of(&domain));
        took.set((now() - start) as f64 / ROW as f64);
        left.0.store(0, Relaxed);
    };
    let mut bodies: Vec<Box<dyn FnOnce()>> = vec![Box::new(wait)];
    bodies.extend((0..readers).map(|_| Box::new(read) as Box<dyn FnOnce()>));
    run(profile, &Options::default(), bodies)?;
    Ok(took.get())
}

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let profile = Profile::find(&arguments.next().unwrap_or_else(|| "8x24".into()))?;
    let threads = arguments.next().unwrap_or_else(|| "1,2,8,24,48,96,191".into());
    println!("| readers | membarrier, ns | rcu | qsbr |\n|---|---|---|---|");
    for readers in threads.split(',').map(|n| n.parse().expect("a number of threads")) {
        let rcu = measure::<RcuDomain<Sim>>(&profile, readers, |domain| domain.synchronize_expedited())?;
        let fence = measure::<RcuDomain<Sim>>(&profile, readers, |_| assert!(Sim::heavy_fence()))?;
        let qsbr = measure::<QsbrDomain<Sim>>(&profile, readers, |domain| domain.synchronize_expedited())?;
        println!("| {readers} | {fence:.0} | {rcu:.0} | {qsbr:.0} |");
    }
    Ok(())
}
