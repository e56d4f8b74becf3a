//! Threads on chosen CPUs.

use latchwork_workloads::topology::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::mpsc;

/// Runs `f` on a thread of its own on that CPU.
pub fn on<R: Send>(cpu: usize, f: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            pin(cpu);
            f()
        });
        thread.join().expect("measuring does not panic")
    })
}

/// Spins for a while (a system call between two measurements would be seen in them), then yields.
#[derive(Default)]
struct Patience(u32);

impl Patience {
    fn wait(&mut self) {
        self.0 += 1;
        if self.0.is_multiple_of(2000) {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

type Task<'a> = &'a (dyn Fn() + Sync);

/// A thread on another CPU that does what it is told.
pub struct Helper {
    tasks: std::sync::Mutex<mpsc::Sender<Task<'static>>>,
    done: AtomicUsize,
    begun: AtomicUsize,
    told: AtomicUsize,
}

impl Helper {
    /// Calls `f` with a helper on `cpu`.
    pub fn with<R>(cpu: usize, f: impl FnOnce(&Helper) -> R) -> R {
        let (tasks, inbox) = mpsc::channel::<Task<'static>>();
        let helper = Helper {
            tasks: std::sync::Mutex::new(tasks),
            done: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            told: AtomicUsize::new(0),
        };
        let over = AtomicBool::new(false);
        let (shared, end) = (&helper, &over);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                pin(cpu);
                // It looks for work instead of sleeping, so that its caches stay what they are.
                let mut patience = Patience::default();
                while !end.load(Acquire) {
                    match inbox.try_recv() {
                        Ok(task) => {
                            patience = Patience::default();
                            shared.begun.fetch_add(1, Release);
                            task();
                            shared.done.fetch_add(1, Release);
                        }
                        Err(_) => patience.wait(),
                    }
                }
            });
            let result = f(&helper);
            over.store(true, Release);
            result
        })
    }

    fn tell(&self, task: Task<'_>) {
        // SAFETY: only the lifetime changes; `run` and `while_running` return only when the task has ended.
        let task: Task<'static> = unsafe { std::mem::transmute(task) };
        self.told.fetch_add(1, Relaxed);
        let _ = self.tasks.lock().expect("no thread panics while it holds the mutex").send(task);
    }

    fn await_count(&self, count: &AtomicUsize) {
        let mut patience = Patience::default();
        while count.load(Acquire) != self.told.load(Relaxed) {
            patience.wait();
        }
    }

    /// Has the helper do `task`, and waits for the end.
    pub fn run(&self, task: Task<'_>) {
        self.tell(task);
        self.await_count(&self.done);
    }

    /// Does `f` while the helper is doing `task`, which `f` has to end.
    pub fn while_running<R>(&self, task: Task<'_>, f: impl FnOnce() -> R) -> R {
        self.tell(task);
        self.await_count(&self.begun);
        let result = f();
        self.await_count(&self.done);
        result
    }
}
