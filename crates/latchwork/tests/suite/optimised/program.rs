// A program that uses what has thread-local words: locks, their queue nodes, reclamation and maps, from four threads.

use latchwork::Mutex;
use latchwork::RwLock;
use latchwork::locks::mutex::{RawMutex, mcs::RawMcs};
use latchwork::machine::Native;
use latchwork::map::{RcuMap, RcuTreeMap};
use latchwork::reclaim::Rcu;

const THREADS: u32 = 4;
const ROUNDS: u32 = 1000;

static SUM: Mutex<u32> = Mutex::new(0);
static LATEST: RwLock<u32> = RwLock::new(0);
static QUEUE: RawMcs<Native> = RawMcs::new();

fn main() {
    let (map, tree, value) = (RcuMap::new(), RcuTreeMap::new(), Rcu::new(0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    *SUM.lock() += 1;
                    let token = QUEUE.lock();
                    // SAFETY: the token is from the call above.
                    unsafe { QUEUE.unlock(token) };
                    if round % 100 == 0 {
                        *LATEST.write() += 1;
                    }
                    assert!(*LATEST.read() <= THREADS * ROUNDS / 100);
                    map.insert(round % 10, round);
                    tree.insert(round % 10, round);
                    value.replace(round);
                    assert!(*value.get() < ROUNDS);
                }
            });
        }
    });
    println!("{} {} {} {}", *SUM.lock(), *LATEST.read(), map.len(), tree.len());
}
