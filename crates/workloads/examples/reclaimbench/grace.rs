//! Grace periods: what one costs with so many threads that have read, and are idle or gone.

use indicatif::ProgressBar;
use latchwork::machine::{Machine, Native};
use latchwork::reclaim::rcu::{self, RcuDomain};
use std::sync::Barrier;
use std::time::Instant;

/// Grace periods that are measured in a row.
const ROW: u32 = 100;

/// Medians, in microseconds.
struct Figures {
    fence: f64,
    normal: f64,
}

fn median(rounds: u32, mut work: impl FnMut()) -> f64 {
    let mut micros: Vec<f64> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            (0..ROW).for_each(|_| work());
            start.elapsed().as_nanos() as f64 / 1000.0 / f64::from(ROW)
        })
        .collect();
    micros.sort_by(f64::total_cmp);
    micros[micros.len() / 2]
}

fn measure(rounds: u32) -> Figures {
    let domain = RcuDomain::<Native>::new_in();
    Figures {
        fence: median(rounds, || assert!(Native::heavy_fence())),
        normal: median(rounds, || domain.synchronize()),
    }
}

/// Measures with each number of threads, and prints the table.
pub fn grace(rounds: u32, threads: &[usize], json: bool) {
    let bar = ProgressBar::new(threads.len() as u64 * 2);
    let mut rows = Vec::new();
    for &threads in threads {
        let (inside, leave) = (Barrier::new(threads + 1), Barrier::new(threads + 1));
        let idle = std::thread::scope(|scope| {
            let body = || {
                drop(rcu::global().enter()); // has a record from now on
                inside.wait();
                leave.wait();
            };
            let all: Vec<_> = (0..threads)
                .map(|_| {
                    let builder = std::thread::Builder::new().stack_size(64 << 10);
                    builder.spawn_scoped(scope, body).expect("a thread")
                })
                .collect();
            inside.wait();
            std::thread::sleep(std::time::Duration::from_millis(50)); // until they sleep
            let idle = measure(rounds);
            leave.wait();
            all.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
            idle
        });
        bar.inc(1);
        rows.push((threads, idle, measure(rounds)));
        bar.inc(1);
    }
    bar.finish_and_clear();
    if json {
        let object = |f: &Figures| serde_json::json!({ "fence_us": f.fence, "grace_period_us": f.normal });
        let rows: Vec<_> = rows
            .iter()
            .map(|(threads, idle, gone)| {
                serde_json::json!({ "threads": threads, "idle": object(idle), "exited": object(gone) })
            })
            .collect();
        return println!("{}", serde_json::json!({ "grace_periods": rows, "rounds": rounds }));
    }
    println!("| threads | fence (us) | grace period, all idle | fence (us) | grace period, all exited |");
    println!("|---|---|---|---|---|");
    for (threads, idle, gone) in &rows {
        println!(
            "| {threads} | {:.2} | {:.2} | {:.2} | {:.2} |",
            idle.fence, idle.normal, gone.fence, gone.normal
        );
    }
}
