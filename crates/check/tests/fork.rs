//! Threads that fork at the same time keep their own cancellation states. A signal handler may fork.

use latchwork_check::{Wish, acquired, acquiring, after_fork, before_fork, found, problems, releasing};
use std::ffi::c_int;
use std::os::unix::thread::JoinHandleExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}
const ENABLE: c_int = 0;
const DISABLE: c_int = 1;

fn set_state(state: c_int) -> c_int {
    let mut old = -1;
    // SAFETY: there is room for the old state.
    assert_eq!(unsafe { pthread_setcancelstate(state, &mut old) }, 0);
    old
}

/// Long enough for another thread to come through the handlers.
extern "C" fn interrupt(_: c_int) {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_micros(100) {}
}

#[test]
fn each_thread_gets_its_own_state_back() {
    static ENDED: AtomicBool = AtomicBool::new(false);
    // SAFETY: the handler touches nothing but its own variables.
    unsafe { libc::signal(libc::SIGUSR1, interrupt as extern "C" fn(c_int) as libc::sighandler_t) };
    let threads = [ENABLE, DISABLE, DISABLE].map(|mine| {
        thread::spawn(move || {
            set_state(mine);
            let mut others = 0;
            while !ENDED.load(Relaxed) {
                // What the handlers of `fork` do in the parent.
                before_fork();
                after_fork(false);
                others += u32::from(set_state(mine) != mine);
            }
            others
        })
    });
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(3) {
        // SAFETY: the thread runs until `ENDED` is set.
        unsafe { libc::pthread_kill(threads[0].as_pthread_t(), libc::SIGUSR1) };
        thread::sleep(Duration::from_micros(200));
    }
    ENDED.store(true, Relaxed);
    assert_eq!(threads.map(|thread| thread.join().unwrap()), [0; 3], "states of other threads");
}

/// As if a signal handler forked that has interrupted a thread while it looks at the tables.
fn fork_while_interrupted() -> c_int {
    let lock = 0x1000;
    let mut child = -1;
    found(lock, || {
        before_fork();
        // SAFETY: the child takes no lock that another thread may hold.
        child = unsafe { libc::fork() };
        after_fork(child == 0);
        true
    });
    let asked = acquiring(lock, Wish::LOCK);
    acquired(lock, Wish::LOCK, asked);
    releasing(lock);
    before_fork();
    after_fork(false);
    // SAFETY: the child ends, and there is room for its status.
    unsafe {
        if child == 0 {
            libc::_exit(problems() as c_int);
        }
        let mut status = -1;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        status
    }
}

#[test]
fn a_signal_handler_may_fork() {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || send.send(fork_while_interrupted()));
    assert_eq!(
        receive.recv_timeout(Duration::from_secs(60)),
        Ok(0),
        "it waits for itself, or finds problems"
    );
    assert_eq!(problems(), 0);
}
