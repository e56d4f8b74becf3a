//! How long a thread waits for the default mutex while another thread takes the lock over and over.

use latchwork::locks::mutex::RawMutex;
use latchwork::locks::mutex::shfl::RawShfl;
use latchwork_sim::{Options, Profile, Sim, acquired, acquiring, now, released, run, work};

#[repr(align(128))]
struct Padded<T>(T);

/// The head of the queue demands the lock after a turn of 1 ms. Then the other thread must not keep it away: also if that thread
/// asks how long the turn has lasted at the moment at which the head takes the lock.
#[test]
fn a_turn_ends_the_wait() {
    const SIMULATED_NS: u64 = 300_000_000;
    const MOST: u64 = 8_000_000;
    let profile = Profile::find("emerald-rapids-2").unwrap();
    for section in [200, 500, 1000, 2000] {
        let lock = Padded(RawShfl::<Sim>::new_in());
        let body = || {
            while now() < SIMULATED_NS {
                acquiring();
                let () = lock.0.lock();
                acquired(0);
                work(section);
                released(0);
                // SAFETY: the thread has just acquired it.
                unsafe { lock.0.unlock(()) };
                work(2);
            }
        };
        let options = Options { limit_ns: 2 * SIMULATED_NS, ..Options::default() };
        let threads = (0..2).map(|_| Box::new(body) as Box<dyn FnOnce()>).collect();
        let longest = run(&profile, &options, threads).unwrap().longest_wait();
        eprintln!("sections of {section} ns: the longest wait was {longest} ns");
        assert!(longest < MOST, "sections of {section} ns: a thread waited for {longest} ns");
    }
}
