//! Which function of a stack names the place: the first one that is more than a way to call the lock.
//!
//! Programs lock through `std::lock_guard`, `leveldb::MutexLock`, `inline_mysql_mutex_lock` and the like. A report that said
//! "blocked in MutexLock::MutexLock" would help nobody.

use super::Frame;

/// Name spaces of the libraries that wrap locks. Each function in them is one.
const LIBRARIES: &str = "std::sync:: std::sys:: std::sys_common:: std::thread::park std::thread::lifecycle core:: alloc:: \
    lock_api:: parking_lot:: parking_lot_core:: latchwork lw_ lw:: __gnu_cxx:: boost::posix:: pthread_ \
    __pthread_ __gthread_ __glibcxx_rwlock_";

/// Types of the C++ libraries that wrap locks.
const CPP_TYPES: &str = "mutex timed_mutex recursive_mutex recursive_timed_mutex shared_mutex shared_timed_mutex \
    __shared_mutex_pthread __shared_timed_mutex_base __timed_mutex_impl lock_guard unique_lock \
    scoped_lock shared_lock condition_variable condition_variable_any _V2::condition_variable_any \
    __condvar __mutex_base";

/// Functions of the C++ libraries that wrap locks, or that such functions call.
const CPP_FUNCTIONS: &str = "lock try_lock call_once apply __apply_impl invoke __invoke __invoke_impl";

/// Words of which a wrapper's name has at least one.
const ESSENTIAL: &str = "rwmutex unlock mutex lock locks locker guard acquire rdlock wrlock spinlock rwlock spin mtx sem \
    semaphore cond condition condvar cv critical enter timedwait wait cs locked shared exclusive signal \
    broadcast unique rw monitor";

/// The other words that a wrapper's name may have. A function whose name has a word that is in neither list is no wrapper.
const OTHERS: &str = "alloc allocate create new free unlocker release leave destroy init initialize scoped rd wr read write \
    reader writer auto try timed until var variable section raw rec impl slow inline noninlined contended without safepoint check \
    platform";

/// Libraries and programs whose wrappers begin with these words: libuv, GLib, Ruby, APR, OpenSSL, CPython, QEMU, PulseAudio, SDL, BIND,
/// nginx, the Java VM and others.
const PREFIXES: &str =
    "my mysql psi native sqlite3 pthread uv g rb nativethread apr thread crypto py qemu pa sdl isc ngx posix";

/// Whether `word` is one of `words`.
pub(super) fn is_among(words: &str, word: &str) -> bool {
    words.split_whitespace().any(|one| one == word)
}

/// Whether the function is only a way to call the lock.
pub fn is_wrapper(function: &str) -> bool {
    if LIBRARIES.split_whitespace().any(|library| function.starts_with(library))
        || function.starts_with('<') && is_rust_library(function)
    {
        return true;
    }
    let plain = without_arguments(function);
    if let Some(rest) = plain.strip_prefix("std::") {
        let class = rest.rsplit_once("::").map_or(rest, |(class, _)| class);
        if is_among(CPP_TYPES, class) || is_among(CPP_FUNCTIONS, rest) || rest.starts_with("__detail") {
            return true;
        }
    }
    let last = plain.rsplit("::").next().expect("one part");
    let words = words(last);
    let is_essential = |word: &String| is_among(ESSENTIAL, word);
    let is_other = |word: &String| is_among(OTHERS, word) || is_among(PREFIXES, word);
    words.iter().any(is_essential) && words.iter().all(|word| is_essential(word) || is_other(word))
}

/// Which frame of a stack, whose frames are numbers in `frames`, names the place: the first that is no wrapper. A stack of
/// nothing else is named by its last frame.
pub fn naming(stack: &[usize], frames: &[Frame]) -> usize {
    let known = |frame: &usize| !is_wrapper(&frames[*frame].function);
    let named = |frame: &usize| known(frame) && !is_system(&frames[*frame].module);
    let position = stack.iter().position(named).or_else(|| stack.iter().position(known));
    position.unwrap_or(stack.len().saturating_sub(1))
}

/// Implementations of traits: `<std::sync::Mutex<T> as ...>::...`.
fn is_rust_library(function: &str) -> bool {
    ["<std::sync", "<core::", "<alloc::", "<lock_api::", "<parking_lot"]
        .iter()
        .any(|start| function.starts_with(start))
}

/// Libraries that only pass calls on.
fn is_system(module: &str) -> bool {
    ["libc.so", "libpthread", "libstdc++", "libc++", "ld-linux", "liblatchwork_preload", "liblatchwork.so"]
        .iter()
        .any(|start| module.starts_with(start))
}

fn without_arguments(name: &str) -> String {
    let (mut text, mut depth) = (String::new(), 0_u32);
    for char in name.chars() {
        match char {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            '(' if depth == 0 => break,
            char if depth == 0 => text.push(char),
            _ => {}
        }
    }
    text
}

/// `pthreadMutexEnter`, `pthread_mutex_enter` and `PTHREAD_MUTEX_ENTER` have the same words. `~` of a destructor stays out.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before_is_lower = false;
    for char in name.chars() {
        if char == '_' || char == '~' || char.is_uppercase() && before_is_lower {
            words.push(String::new());
        }
        if char != '_' && char != '~' {
            words.last_mut().expect("never empty").extend(char.to_lowercase());
        }
        before_is_lower = char.is_lowercase() || char.is_numeric();
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrappers_are_told_from_functions_that_do_something() {
        for name in [
            "std::mutex::lock",
            "std::lock_guard<std::mutex>::lock_guard",
            // The destructor of a `scoped_lock` of several mutexes calls these.
            "std::scoped_lock<..>::~scoped_lock()::{lambda(auto:1&)#1}::operator()<..> const",
            "std::__invoke_impl<..>",
            "std::__apply_impl<..>",
            "std::apply<..>",
            "std::unique_lock<std::shared_mutex>::unique_lock",
            "std::condition_variable::wait",
            "__gthread_mutex_lock",
            "pthread_mutex_lock",
            "std::sync::poison::mutex::Mutex<T>::lock",
            "lock_api::mutex::Mutex<R,T>::lock",
            "<lock_api::mutex::RawMutex as x>::lock",
            "leveldb::port::Mutex::Lock",
            "leveldb::MutexLock::MutexLock",
            "kyotocabinet::ScopedMutex::ScopedMutex",
            "kyotocabinet::RWLock::lock_reader",
            "inline_mysql_mutex_lock",
            "psi_mutex_lock",
            "pthreadMutexEnter",
            "sqlite3_mutex_enter",
            "pthreadMutexAlloc",
            "kyotocabinet::RWLock::unlock",
            "rocksdb::port::RWMutex::RWMutex",
            "leveldb::MutexLock::~MutexLock",
            "uv_mutex_lock",
            "uv_sem_init",
            "g_mutex_lock",
            "g_rec_mutex_lock",
            "g_rw_lock_reader_lock",
            "rb_native_mutex_initialize",
            "apr_thread_mutex_lock",
            "CRYPTO_THREAD_write_lock",
            "PyThread_allocate_lock",
            "PyCOND_TIMEDWAIT",
            "qemu_mutex_lock_impl",
            "pa_mutex_lock",
            "SDL_LockMutex",
            "ngx_thread_mutex_create",
            "Mutex::lock_without_safepoint_check",
            "Mutex::lock_contended",
            "MonitorLocker::MonitorLocker",
            "os::PlatformMonitor::PlatformMonitor",
        ] {
            assert!(is_wrapper(name), "{name}");
        }
        for name in [
            "main",
            "Cache::evict",
            "leveldb::DBImpl::Get",
            "item_lock_hashtable_for",
            "std::vector<int>::push_back",
            "lock_sys_resize",
            "do_slabs_alloc",
            "read",
            "write",
            "kyotocabinet::CacheDB::accept",
            "take_gil",
            "qemu_main_loop",
            "g_thread_pool_push",
            "apr_queue_push",
            "ngx_thread_pool_cycle",
            "uv_queue_work",
            "CompileBroker::compile_method_base",
        ] {
            assert!(!is_wrapper(name), "{name}");
        }
    }

    #[test]
    fn the_first_frame_that_does_something_names_the_place() {
        let frame = |function: &str, module: &str| Frame {
            function: function.into(),
            module: module.into(),
            ..Frame::default()
        };
        let frames = [
            frame("__gthread_mutex_lock", "server"),
            frame("std::mutex::lock", "server"),
            frame("Cache::get", "server"),
            frame("main", "server"),
        ];
        assert_eq!(naming(&[0, 1, 2, 3], &frames), 2);
        assert_eq!(naming(&[0, 1], &frames), 1);
        assert_eq!(naming(&[], &frames), 0);
    }
}
