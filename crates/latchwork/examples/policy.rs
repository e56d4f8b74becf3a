//! A shuffling policy of your own: interactive requests come before batch work.
//!
//!     cargo run --release -p latchwork --example policy
//!
//! Two interactive threads and six batch threads share a lock. The example prints how long each kind
//! waited for it, under the default policy and under ours. `docs/policies.md` explains the rules.

use latchwork::locks::MutexOver;
use latchwork::locks::mutex::ConstNew;
use latchwork::locks::mutex::policies::NumaPolicy;
use latchwork::locks::mutex::shfl::RawShfl;
use latchwork::locks::mutex::shuffle::Policy;
use latchwork::machine::{Machine, Native};
use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

thread_local! {
    /// Whether the calling thread serves interactive requests.
    static INTERACTIVE: Cell<bool> = const { Cell::new(false) };
}

/// The whole policy.
struct InteractiveFirst;

impl Policy for InteractiveFirst {
    // The head of the queue looks at every waiter before it takes the lock, and no newcomer passes the queue.
    const THOROUGH: bool = true;
    const STEALING: bool = false;

    /// The key of the calling thread, which is about to queue.
    fn key<M: Machine>() -> u32 {
        u32::from(!INTERACTIVE.get())
    }

    /// Interactive threads (rank 0) move up. The others stay where they are.
    fn rank<M: Machine>(_shuffler: u32, waiter: u32) -> usize {
        waiter as usize
    }
}

type Mutex<T, P> = MutexOver<RawShfl<Native, P>, T>;

/// The median wait and the longest wait of the interactive threads, and the number of batch jobs done.
fn serve<P: Policy>() -> (Duration, Duration, u64)
where
    RawShfl<Native, P>: ConstNew,
{
    let jobs: Mutex<u64, P> = Mutex::new(0);
    let end = Instant::now() + Duration::from_secs(1);
    let mut waits = Vec::new();
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                while Instant::now() < end {
                    let mut jobs = jobs.lock();
                    *jobs += 1;
                    busy(Duration::from_micros(50));
                }
            });
        }
        let interactive = [(); 2].map(|()| {
            scope.spawn(|| {
                INTERACTIVE.set(true);
                let mut waits = Vec::new();
                while Instant::now() < end {
                    thread::sleep(Duration::from_millis(2));
                    let start = Instant::now();
                    let _jobs = jobs.lock();
                    waits.push(start.elapsed());
                }
                waits
            })
        });
        waits = interactive.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect();
    });
    waits.sort();
    (waits[waits.len() / 2], *waits.last().expect("a second is long enough"), jobs.into_inner())
}

fn busy(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

fn main() {
    for (name, (median, longest, jobs)) in
        [("default", serve::<NumaPolicy>()), ("interactive first", serve::<InteractiveFirst>())]
    {
        println!(
            "{name:>18}: interactive threads waited {median:?} (median), {longest:?} (longest); {jobs} batch jobs"
        );
    }
}
