//! A plugin that uses a lock.

static COUNT: latchwork::RwLock<u64> = latchwork::RwLock::new(0);

#[unsafe(no_mangle)]
pub extern "C" fn plugin_count() -> u64 {
    *COUNT.write() += 1;
    *COUNT.read()
}
