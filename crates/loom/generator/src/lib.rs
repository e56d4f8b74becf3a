//! Coroutines for loom, in the place of the crate `generator`: what loom uses of it, under the same names.
//!
//! loom makes a coroutine for each thread of each execution, and explores millions of executions. `generator` ends a coroutine by a
//! panic, and so unwinds its stack: a third of the processor time of a model. It also maps and unmaps a stack each time, which takes
//! as long as all the rest. Here a coroutine ends by returning, and its stack stays with the OS thread for the next one.

use corosensei::stack::{DefaultStack, Stack};
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::marker::PhantomData;

/// What loom hands to a coroutine: a thread's body.
type Task = Option<Box<dyn FnOnce()>>;

/// Bytes of a stack.
const STACK: usize = 64 * 1024;

thread_local! {
    /// The way out of the coroutine that runs. Null outside of all.
    static RUNNING: Cell<*const Yielder<Option<Task>, ()>> = const { Cell::new(std::ptr::null()) };
    /// How many stacks this OS thread has made.
    static MADE: Cell<usize> = const { Cell::new(0) };
    /// The stacks that no coroutine uses, by number. The lowest is taken first, so that a thread of a model has in each execution
    /// the stack that it had in the last one.
    static FREE: RefCell<BTreeMap<usize, DefaultStack>> = const { RefCell::new(BTreeMap::new()) };
}

/// Sets `RUNNING` when it is dropped.
struct Back(*const Yielder<Option<Task>, ()>);

impl Drop for Back {
    fn drop(&mut self) {
        RUNNING.set(self.0);
    }
}

/// A coroutine.
pub struct Generator<'a, A, T> {
    /// None while it is dropped.
    coroutine: Option<Coroutine<Option<Task>, (), ()>>,
    /// Of its stack.
    number: usize,
    next: Option<Task>,
    kind: PhantomData<(&'a (), A, T)>,
}

/// Makes coroutines.
pub struct Gn;

impl Gn {
    /// A coroutine that runs `body` when it is first resumed.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(body: impl FnOnce() + 'static) -> Generator<'static, Task, ()> {
        Self::new_opt(STACK / size_of::<usize>(), body)
    }

    /// The same with a stack of so many words.
    pub fn new_opt(words: usize, body: impl FnOnce() + 'static) -> Generator<'static, Task, ()> {
        let bytes = STACK.max(words * size_of::<usize>());
        let free = (bytes == STACK).then(|| FREE.with_borrow_mut(BTreeMap::pop_first)).flatten();
        let (number, stack) = free.unwrap_or_else(|| {
            let stack = DefaultStack::new(bytes).expect("memory for a stack");
            (MADE.replace(MADE.get() + 1), stack)
        });
        let coroutine = Coroutine::with_stack(stack, |yielder, _| {
            RUNNING.set(yielder);
            body();
        });
        Generator { coroutine: Some(coroutine), number, next: None, kind: PhantomData }
    }
}

impl Generator<'_, Task, ()> {
    /// What `yield_` returns in the coroutine when it is resumed next.
    pub fn set_para(&mut self, task: Task) {
        self.next = Some(task);
    }

    /// Runs the coroutine until it yields or ends. Panics if it does.
    pub fn resume(&mut self) -> Option<()> {
        let _back = Back(RUNNING.get());
        let coroutine = self.coroutine.as_mut().expect("it is not dropped");
        match coroutine.resume(self.next.take()) {
            CoroutineResult::Yield(()) => Some(()),
            CoroutineResult::Return(()) => None,
        }
    }

    /// Whether it has ended.
    pub fn is_done(&self) -> bool {
        self.coroutine.as_ref().is_some_and(Coroutine::done)
    }
}

impl<A, T> Drop for Generator<'_, A, T> {
    fn drop(&mut self) {
        let coroutine = self.coroutine.take().expect("dropped once");
        if coroutine.done() {
            let stack = coroutine.into_stack();
            if stack.base().get() - stack.limit().get() >= STACK {
                // While the OS thread ends, the stack is unmapped.
                let _ = FREE.try_with(|free| free.borrow_mut().insert(self.number, stack));
            }
        } else if std::thread::panicking() {
            // An execution has failed, and its other threads stay where they are: their destructors would use what is gone.
            std::mem::forget(coroutine);
        } else {
            // Its destructors run, and may not yield.
            let _back = Back(RUNNING.replace(std::ptr::null()));
            drop(coroutine);
        }
    }
}

/// Leaves the coroutine until it is resumed. Returns what [`Generator::set_para`] was given meanwhile.
pub fn yield_((): ()) -> Option<Task> {
    let running = RUNNING.get();
    assert!(!running.is_null(), "outside of a coroutine");
    // SAFETY: the coroutine that runs has set it, or `resume` to that of the coroutine that it returned to. The yielder lives as long
    // as the coroutine.
    let task = unsafe { &*running }.suspend(());
    RUNNING.set(running);
    task
}

/// The same, where nothing is expected.
pub fn yield_with((): ()) {
    yield_(());
}

/// Ends the coroutine.
#[macro_export]
macro_rules! done {
    () => {
        return
    };
}
