//! What a client says about itself.

/// Runs a client of one lock, unless `LATCHWORK_LOCK` names others, and says on stderr which one and
/// what came of it.
pub fn report<R: std::fmt::Display>(lock: &str, client: impl FnOnce() -> R) {
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
    let start = std::time::Instant::now();
    let result = client();
    eprintln!("{lock:>12}: {result} ({:.1?})", start.elapsed());
}
