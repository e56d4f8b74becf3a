//! A machine that you do not have: latchwork's locks on a simulated NUMA machine.
//!
//! [`Sim`] implements [`latchwork::machine::Machine`], so the source of a lock that runs in production
//! runs here unchanged, while every access to a word, every spin, sleep, wake-up and fence takes
//! simulated time. The simulation is a discrete-event one, with one coroutine per thread (up to 1024,
//! on up to 512 processors), and deterministic: the same machine, options and bodies give the same
//! trace. The hash of the trace is in the [`Report`].
//!
//! ```
//! use latchwork::locks::mutex::{RawMutex, mcs::RawMcs};
//! use latchwork_sim::{Options, Profile, Sim, run, work};
//!
//! let lock = RawMcs::<Sim>::new_in();
//! let body = || {
//!     for _ in 0..10 {
//!         let token = lock.lock();
//!         work(50);
//!         unsafe { lock.unlock(token) };
//!         work(200);
//!     }
//! };
//! let profile = Profile::find("8x24")?;
//! let bodies = (0..100).map(|_| Box::new(body) as Box<dyn FnOnce()>).collect();
//! let report = run(&profile, &Options::default(), bodies)?;
//! assert!(report.simulated_ns > 100 * 10 * 50);
//! # Ok::<(), latchwork_sim::Error>(())
//! ```
//!
//! # The model
//!
//! | what | where |
//! |---|---|
//! | requests for a line queue behind one ordering point | `lines.rs` (1), `access.rs` |
//! | ownership occupies the line for the whole transfer, further reads are short | `lines.rs` (2) |
//! | invalidating sharers: the farthest acknowledgement and a little for each | `lines.rs` (3) |
//! | a write wakes all spinners, in random order with jitter | `access.rs` |
//! | third-party home, 128-byte pairs, SMT siblings | `lines.rs` (5), `topology.rs` |
//! | the section's data are simulated lines: use `Sim`'s own words for them | `words.rs` |
//! | quantum, wake-up cost, more threads than processors, `membarrier` | `scheduler.rs`, `futex.rs` |
//! | who wins a contended line: [`Arbitration`] | `options.rs`, `access.rs` |
//! | spread starts: `Options::spread_ns` | `options.rs` |
//! | what a machine costs, and the sources of the numbers | [`Profile`], `profiles/*.toml` |
//! | random preemption: [`Adversary`] | `options.rs`, `scheduler.rs` |
//!
//! # What a workload has to do itself
//!
//! - Compute a little (10 ns at least) between an operation and the next, inside the section and outside:
//!   without, the lock's last holder is always the first to be back, and a collapse does not show.
//! - Warm up before it counts, and look at [`Report::remote_handover_fraction`]: around a fair lock,
//!   threads come back in the order in which they came first.
//! - Mark [`acquiring`], [`acquired`] and [`released`], if the report is to know about handovers.
//!
//! # Schedules instead of costs
//!
//! [`explore`] is another machine, for the same locks: nothing there takes time, and many schedules are tried.
//!
//! # Speed
//!
//! About 2 million MCS handovers a second with 64 processors, on one core of a Zen 4
//! (`cargo run --release -p latchwork-sim --example handovers`). Simulations on different OS threads do not
//! share anything.
//!
//! # What it leaves out
//!
//! - Memory is sequentially consistent: weak orders are what the loom suite is for. The *cost* of fences
//!   and of draining the store buffer is there.
//! - Translations (TLBs). With a profile that has no [`Memory`], caches have no size (what was read once
//!   stays), and bandwidth has no limit but each line's own. First-level caches are there if that has [`Memory::first`].
//! - A line's number, and with it the whole trace, follows from the order of first touch, not from the
//!   address. What shares a line does depend on the layout: give objects whole lines (`align(128)`). Which lines meet in a set of a
//!   cache is left to chance, but for memory given to [`in_pages`].

#[macro_use]
mod every_word;

mod access;
mod body;
mod error;
mod events;
pub mod explore;
mod futex;
mod lines;
mod machine;
mod options;
mod profile;
mod report;
mod rng;
mod run;
mod scheduler;
mod simulation;
mod state;
mod streams;
mod thread;
mod topology;
mod words;

pub use body::{
    acquired, acquiring, cpu, fail, in_pages, never_suspend, now, released, set_home, suspend_in, thread,
    work,
};
pub use error::Error;
pub use machine::Sim;
pub use machine::resources::{most_nodes, nodes};
pub use options::{Adversary, Arbitration, Options, Placement};
pub use profile::{
    Eevdf, Kernel, Lines, Links, MAX_CLUSTERS, MAX_CPUS, MAX_THREADS, Memory, Number, Processor, Profile,
    Shape, THIS_MACHINE, this_machine_path,
};
pub use report::{Counts, Report};
pub use run::run;
pub use words::{Ptr, U8, U32, U64, Usize};

/// The example of the README is a test as well.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
