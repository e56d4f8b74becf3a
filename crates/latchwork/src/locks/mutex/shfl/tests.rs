use super::*;
use core::sync::atomic::AtomicBool;
use std::thread;

/// After a fair release, the next attempt does not pass the waiter in the queue. (A later one may, if the waiter does
/// not run for `PROMISE_BOUND`.)
#[test]
fn a_fair_release_hands_over() {
    for _ in 0..100 {
        let (lock, served) = (RawShfl::<Native>::new(), AtomicBool::new(false));
        lock.lock();
        thread::scope(|scope| {
            scope.spawn(|| {
                lock.lock();
                served.store(true, Relaxed);
                // SAFETY: from the acquisition above.
                unsafe { lock.unlock(()) };
            });
            while lock.tail.load(Relaxed).is_null() {
                thread::yield_now();
            }
            // SAFETY: from the acquisition above.
            unsafe { lock.unlock_fair(()) };
            if lock.try_lock().is_some() {
                let in_order = served.load(Relaxed);
                // SAFETY: from the attempt above.
                unsafe { lock.unlock(()) };
                assert!(in_order, "the attempt passed the waiter");
            }
        });
        assert!(served.into_inner() && !lock.is_locked());
    }
}
