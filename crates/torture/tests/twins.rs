//! The torture is itself tested: it must catch every lock that is broken on purpose. `LATCHWORK_TWIN=name`
//! tries one only (or several, separated by commas).

use latchwork_torture::twins::{self, Verdict};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Rounds go on until a twin is caught; one that is not by then counts as missed. On an idle machine all are caught in 4 s, on a busy
/// one it took 80.
const AT_MOST: Duration = Duration::from_secs(900);

/// Catching one is mostly waiting for its threads to stand still, so that many are tried at a time.
const AT_A_TIME: usize = 6;

#[test]
fn every_twin_is_caught() {
    let mut twins = twins::all();
    if let Ok(only) = std::env::var("LATCHWORK_TWIN") {
        for name in only.split(',') {
            assert!(twins.iter().any(|twin| twin.name == name), "LATCHWORK_TWIN: there is no twin {name:?}");
        }
        twins.retain(|twin| only.split(',').any(|name| name == twin.name));
    }
    let twins = Mutex::new(twins.into_iter());
    let missed = Mutex::new(Vec::new());
    let try_them = || {
        while let Some(twin) = { twins.lock().unwrap().next() } {
            let start = Instant::now();
            match twin.check(1, AT_MOST) {
                Verdict::Caught(failed) => {
                    eprintln!("{:>20}: {:.1} s: {}", twin.name, start.elapsed().as_secs_f64(), failed.what);
                }
                other => {
                    missed.lock().unwrap().push(format!("{}, which {}: {other:?}", twin.name, twin.mistake))
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(try_them);
        }
    });
    let missed = missed.into_inner().unwrap();
    assert!(missed.is_empty(), "not caught:\n{}", missed.join("\n"));
}
