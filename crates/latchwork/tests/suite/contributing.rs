//! The example lock of `CONTRIBUTING.md`: the page shows the file that the tests run, and the lock works behind `lock_api`
//! as the library's own locks do.

#[path = "../example/futex.rs"]
mod futex;

use futex::RawFutex;
use latchwork::locks::mutex::Api;
use latchwork::machine::Native;

type FutexMutex<T> = lock_api::Mutex<Api<RawFutex<Native>>, T>;

#[test]
fn the_page_shows_the_tested_file() {
    let page = include_str!("../../../../CONTRIBUTING.md");
    let file = include_str!("../example/futex.rs");
    assert!(
        page.contains(&format!("```rust\n{file}```\n")),
        "copy crates/latchwork/tests/example/futex.rs into CONTRIBUTING.md, or the other way round"
    );
}

#[test]
fn the_example_works_as_a_mutex() {
    static COUNT: FutexMutex<u32> = FutexMutex::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..1000).for_each(|_| *COUNT.lock() += 1));
        }
    });
    assert_eq!(*COUNT.lock(), 4000);
    let held = COUNT.lock();
    assert!(COUNT.try_lock().is_none());
    assert!(COUNT.try_lock_for(std::time::Duration::from_millis(1)).is_none());
    drop(held);
    assert!(COUNT.try_lock().is_some());
}
