//! What each client prints.

/// Runs a client of one lock, unless `LATCHWORK_LOCK` names others. Prints on stderr the test, the lock, what came of the
/// client, and the processor time that it took.
pub fn report<R: std::fmt::Display>(lock: &str, client: impl FnOnce() -> R) {
    let mut client = Some(client);
    report_text(lock, &mut || client.take().expect("called once")().to_string());
}

fn report_text(lock: &str, client: &mut dyn FnMut() -> String) {
    if std::env::var("LATCHWORK_LOCK").is_ok_and(|only| only.split(',').all(|name| name != lock)) {
        return;
    }
    struct Named<'a>(&'a str);
    impl Drop for Named<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("{:>12}: failed", self.0);
            }
        }
    }
    let _named = Named(lock);
    let start = own_time();
    let result = client();
    let time = own_time() - start;
    // libtest names the thread after the test, unless all tests run in the main thread.
    let thread = std::thread::current();
    eprintln!("{} {lock}: {result} ({time:.1?} of processor time)", thread.name().unwrap_or_default());
}

/// Processor time of the calling thread. loom runs a whole model on it.
fn own_time() -> std::time::Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes during the call.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(result, 0, "Linux has this clock");
    std::time::Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
