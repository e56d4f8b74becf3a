//! A thread pool's queue: a mutex and a condition variable, at which workers sleep while there are no tasks.
//!
//! Source: ours, after the pools of web servers and task queues. Thread 0 makes a task, puts it into the queue and notifies a
//! worker, with the mutex held. The other threads take tasks and work on them. Thread 0 waits while the queue is full.
//!
//! With few workers the queue is full and thread 0 sleeps. With many, workers sleep, and each task wakes one. Then the mutex is
//! free nearly always, but a worker asks for it just after it was woken, while thread 0 may still hold it.

use crate::data::{Cell, Line};
use crate::lock::{Condvar, Lock};
use crate::measure::{self, Outcome};
use crate::stage::Stage;
use crate::thread::Thread;
use crate::workload::{Info, Locks, Parameter, Settings, Threads, Workload};
use latchwork::machine::Machine;

/// See the [module documentation](self).
pub struct ThreadPool {
    task: u64,
    arrival: u64,
    capacity: u64,
}

struct Queue<M: Machine, L: Lock> {
    mutex: Line<L>,
    /// Tasks that wait for a worker.
    tasks: Cell<M>,
    /// Tasks that were taken.
    taken: Cell<M>,
    /// Set by the first thread that leaves; no thread waits any more then.
    over: Cell<M>,
    not_empty: Line<L::Condvar>,
    not_full: Line<L::Condvar>,
}

impl<M: Machine, L: Lock<Machine = M>> Queue<M, L> {
    /// Puts a task into the queue, unless the run is over.
    fn put<S: Stage<Machine = M>>(&self, thread: &mut Thread<S>, capacity: u64) {
        let mut held = thread.write(&*self.mutex);
        while self.tasks.get() == capacity && self.over.get() == 0 {
            held = thread.wait(&*self.mutex, held, &self.not_full);
        }
        if self.over.get() == 0 {
            self.tasks.add(1);
            self.not_empty.notify_one();
        }
        drop(held);
    }

    /// Takes a task; returns whether there was one before the run was over.
    fn take<S: Stage<Machine = M>>(&self, thread: &mut Thread<S>, capacity: u64) -> bool {
        let mut held = thread.write(&*self.mutex);
        while self.tasks.get() == 0 && self.over.get() == 0 {
            held = thread.wait(&*self.mutex, held, &self.not_empty);
        }
        let tasks = self.tasks.get();
        if tasks > 0 {
            self.tasks.set(tasks - 1);
            self.taken.add(1);
            if tasks == capacity {
                self.not_full.notify_one();
            }
        }
        drop(held);
        tasks > 0
    }

    fn end<S: Stage<Machine = M>>(&self, thread: &mut Thread<S>) {
        let held = thread.write(&*self.mutex);
        self.over.set(1);
        self.not_empty.notify_all();
        self.not_full.notify_all();
        drop(held);
    }
}

impl Workload for ThreadPool {
    const INFO: Info = Info {
        name: "thread-pool",
        summary: "one thread puts tasks into a queue; workers take them, and sleep when there are none",
        source: "ours, after the thread pools of servers",
        shows: "what a mutex adds to a condition variable: a worker that was just woken and finds the mutex held for an instant",
        operation: "task",
        locks: Locks::Mutex,
        parameters: &[
            Parameter::time("task", "10us", "average computation of a task"),
            Parameter::time("arrival", "5us", "average computation before thread 0 puts the next task"),
            Parameter::count("capacity", "64", 1..=1 << 32, "tasks that the queue has room for"),
        ],
        threads: Threads::Each(&[2, 4, 8, 16]),
        all_threads: |threads| threads,
        log_threads: true,
        simulated_us: 20_000,
    };

    fn new(settings: &Settings) -> Self {
        ThreadPool {
            task: settings.ns("task"),
            arrival: settings.ns("arrival"),
            capacity: settings.count("capacity") as u64,
        }
    }

    fn run<S: Stage, L: Lock<Machine = S::Machine>>(&self, stage: &S, threads: usize) -> Outcome {
        let queue: Queue<S::Machine, L> = Queue {
            mutex: Line(L::new()),
            tasks: Cell::new(0),
            taken: Cell::new(0),
            over: Cell::new(0),
            not_empty: Line(L::Condvar::new()),
            not_full: Line(L::Condvar::new()),
        };
        let measured = measure::run(stage, threads, &|thread| {
            let (puts, takes) = (thread.index == 0, thread.index > 0 || threads == 1);
            if !takes {
                thread.apart();
            }
            while thread.running() {
                if puts {
                    let arrival = thread.below(2 * self.arrival + 1);
                    thread.work(arrival);
                    queue.put(thread, self.capacity);
                }
                if takes && queue.take(thread, self.capacity) {
                    let task = thread.below(2 * self.task + 1);
                    thread.work(task);
                    thread.done();
                }
            }
            queue.end(thread);
        })?;
        let total = measured.total;
        measured.expect("tasks taken", queue.taken.get(), total)
    }
}
