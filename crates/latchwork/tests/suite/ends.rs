//! Locks before `main`, in destructors of a thread that exits, in the child of a fork, and while the process exits.

use latchwork::{Condvar, Mutex, MutexGuard, ReentrantMutex, RwLock, RwLockReadGuard, Semaphore, SeqLock};
use std::cell::{Cell, RefCell};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::thread;
use std::time::Duration;

/// In the environment of the child process, whose locks are used before `main` as well.
const VARIABLE: &str = "LATCHWORK_TEST_ENDS";

static MUTEX: Mutex<u32> = Mutex::new(0);
static RWLOCK: RwLock<u32> = RwLock::new(0);
static CONDVAR: Condvar = Condvar::new();
static UNITS: Semaphore = Semaphore::new(0);
static WORDS: SeqLock<1> = SeqLock::new([0]);
static REENTRANT: ReentrantMutex<Cell<u32>> = ReentrantMutex::new(Cell::new(0));

/// Uses every kind of lock, so often that the reader-writer lock becomes biased.
fn use_locks() {
    *MUTEX.lock() += 1;
    (0..100).for_each(|_| drop(RWLOCK.read()));
    *RWLOCK.write() += 1;
    drop(RWLOCK.upgradable_read());
    UNITS.release().unwrap();
    UNITS.acquire();
    WORDS.write(|[word]| *word += 1);
    assert!(WORDS.read() > [0]);
    let (outer, inner) = (REENTRANT.lock(), REENTRANT.lock());
    inner.set(outer.get() + 1);
    assert!(CONDVAR.wait_for(&mut MUTEX.lock(), Duration::from_micros(10)).timed_out());
    CONDVAR.notify_all();
}

/// The same, when the calling thread has waited for the mutex: that takes a node of its pool.
fn use_contended_locks() {
    let holder = MUTEX.lock();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(1));
            use_locks();
        });
        scope.spawn(use_locks);
        drop(holder);
        use_locks();
    });
}

static BEFORE_MAIN: AtomicU32 = AtomicU32::new(0);

extern "C" fn before_main() {
    if std::env::var_os(VARIABLE).is_some() {
        use_locks();
        BEFORE_MAIN.store(1, Relaxed);
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn() = before_main;

extern "C" fn at_exit() {
    use_locks();
    println!("used at exit");
}

/// Guards that a thread keeps until its destructors run.
struct Last {
    guards: Option<(MutexGuard<'static, u32>, RwLockReadGuard<'static, u32>)>,
}

static KEPT: (Mutex<u32>, RwLock<u32>) = (Mutex::new(0), RwLock::new(0));
static DROPPED: AtomicU32 = AtomicU32::new(0);

impl Drop for Last {
    fn drop(&mut self) {
        self.guards = None;
        use_contended_locks();
        DROPPED.fetch_add(1, Relaxed);
    }
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// The key of destructors that run after those of `thread_local!`, and after the library's own.
static KEY: AtomicU32 = AtomicU32::new(0);

extern "C" fn destructor(round: *mut libc::c_void) {
    use_contended_locks();
    DROPPED.fetch_add(1, Relaxed);
    // POSIX calls it as long as there is a value, four times at most.
    // SAFETY: the key exists.
    unsafe { libc::pthread_setspecific(KEY.load(Relaxed), round) };
}

fn ends() {
    assert_eq!(BEFORE_MAIN.load(Relaxed), 1);
    let mut key = 0;
    // SAFETY: the functions live as long as the process, and `key` is valid for the call.
    unsafe {
        libc::alarm(300);
        assert_eq!(libc::pthread_key_create(&mut key, Some(destructor)), 0);
        assert_eq!(libc::atexit(at_exit), 0);
    }
    KEY.store(key, Relaxed);
    let threads = (0..20_u32).map(|number| {
        thread::spawn(move || {
            if number % 2 == 0 {
                use_contended_locks();
            }
            // SAFETY: the key exists.
            unsafe { libc::pthread_setspecific(key, std::ptr::without_provenance(1)) };
            (0..100).for_each(|_| drop(KEPT.1.read()));
            let guards = Some((KEPT.0.lock(), KEPT.1.read()));
            LAST.with(|last| *last.borrow_mut() = Some(Last { guards }));
        })
    });
    threads.for_each(|thread| thread.join().unwrap());
    assert_eq!(DROPPED.load(Relaxed), 20 + 20 * 4);
    assert!(KEPT.0.try_lock().is_some() && KEPT.1.try_write().is_some());
    forks();
}

/// A child drops the guards of the thread that forked. A thread of the parent used other locks meanwhile.
fn forks() {
    static OTHERS: Mutex<u32> = Mutex::new(0);
    static DONE: AtomicU32 = AtomicU32::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while DONE.load(Relaxed) == 0 {
                *OTHERS.lock() += 1;
            }
        });
        for _ in 0..20 {
            let (mutex, reentrant) = (MUTEX.lock(), REENTRANT.lock());
            let (read, upgradable) = (KEPT.1.read(), RWLOCK.upgradable_read());
            // SAFETY: the child uses no other locks than those that the parent's other thread leaves alone.
            let child = unsafe { libc::fork() };
            drop((mutex, reentrant, read, upgradable));
            if child == 0 {
                // SAFETY: the call touches no memory.
                unsafe { libc::alarm(300) };
                let free = KEPT.1.try_write().is_some() && MUTEX.try_lock().is_some();
                use_contended_locks();
                // SAFETY: the child ends without what the parent does at exit.
                unsafe { libc::_exit(if free { 7 } else { 1 }) };
            }
            let mut status = 0;
            // SAFETY: `status` is valid for the call.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(libc::WEXITSTATUS(status), 7, "status {status}");
        }
        DONE.store(1, Relaxed);
    });
}

#[test]
fn locks_work_from_the_first_constructor_to_the_last_destructor() {
    if std::env::var_os(VARIABLE).is_some() {
        return ends();
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args([
        "--exact",
        "ends::locks_work_from_the_first_constructor_to_the_last_destructor",
        "--nocapture",
    ]);
    let output = child.env(VARIABLE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && said.contains("1 passed") && said.contains("used at exit"), "{said}");
}
