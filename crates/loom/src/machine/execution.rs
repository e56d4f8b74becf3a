//! The state of one execution, and how the threads of the model reach it.

use super::names::{Names, Place};
use super::{Grouping, Loom, Mistake, Model};
use crate::records;
use crate::words::UsizeCell;
use latchwork::machine::{QNode, ReaderRow, Wait, Word};
use loom::sync::Mutex;
use loom::sync::atomic::{self, Ordering};
use loom::thread;
use std::cell::{Cell as StdCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// A sleeping thread.
pub(super) struct Sleeper {
    pub(super) thread: thread::Thread,
    pub(super) timed: bool,
    pub(super) is_real_time: bool,
    pub(super) outcome: StdCell<Option<Wait>>,
}

impl Sleeper {
    pub(super) fn end(&self, outcome: Wait) {
        self.outcome.set(Some(outcome));
        self.thread.unpark();
    }
}

/// The sleepers on one address.
pub(super) type Bucket = Mutex<VecDeque<Rc<Sleeper>>>;

/// What one execution consists of.
pub struct State {
    pub(super) mistake: Mistake,
    /// Whether a release of a lock is one atomic step.
    pub(super) whole_release: bool,
    /// The threads that went to sleep until a release is torn, with the word and the time.
    pub(super) until_torn: RefCell<Vec<(usize, usize, Rc<Sleeper>)>>,
    /// That time: how many of those sleeps and of the looks of releases there were.
    pub(super) looks: StdCell<usize>,
    pub(super) clock: bool,
    pub(super) is_late: bool,
    pub(super) names: Names,
    pub(super) numa_nodes: usize,
    /// One per thread; see the module documentation.
    pub(super) instructions: Vec<Mutex<()>>,
    pub(super) buckets: RefCell<Vec<(usize, Rc<Bucket>)>>,
    /// Whether time has jumped: as threads that only look at the clock see it ...
    pub(super) late: atomic::AtomicBool,
    /// ... and as the clock thread knows it.
    pub(super) jumped: StdCell<bool>,
    pub(super) nodes: RefCell<Vec<*mut QNode<Loom>>>,
    /// Whether a thread has spun for so long that only one schedule was followed from there on.
    pub(super) cut_short: StdCell<bool>,
    /// Per thread.
    pub(super) free_nodes: RefCell<Vec<Vec<*mut QNode<Loom>>>>,
    pub(super) nodes_out: StdCell<isize>,
    pub(super) readers: *mut [UsizeCell],
    /// The waiting array, once a thread has asked for it.
    pub(super) waiting: Mutex<Option<&'static [QNode<Loom>]>>,
    pub(super) rows: records::Roll<ReaderRow<Loom>>,
    /// None in a model without records.
    pub(super) records: Option<records::All>,
    /// Per thread: a sequentially consistent store since the last fence.
    pub(super) fences_owed: RefCell<Vec<bool>>,
    /// Whether a light fence was the last thing that a thread has done.
    pub(super) fenced: StdCell<Option<usize>>,
    /// How often each thread has spun.
    pub(super) spins: RefCell<Vec<u32>>,
    /// How many heavy fences are still refused.
    pub(super) refusals: StdCell<u32>,
    /// The thread that is woken before all others.
    pub(super) real_time: Option<usize>,
    /// Whether threads are preempted where they [`stay`], and nowhere else.
    yields: bool,
    /// Whether a waiter gives the others a turn before it looks at its word.
    pub(super) late_looks: bool,
    /// Whether a nap at a word ends only when another thread ends it.
    pub(super) naps_last: bool,
    /// Turns of spin loops for which a thread does not yield.
    pub(super) eager_spins: u32,
    /// How long each thread has dozed, if a doze takes time.
    pub(super) dozed: Option<RefCell<Vec<u64>>>,
}

impl State {
    fn new(model: &Model, threads: usize, place: Place) -> Self {
        let readers: Box<[_]> = (0..model.reader_slots).map(|_| UsizeCell::new(0)).collect();
        State {
            mistake: model.mistake,
            whole_release: model.whole_release,
            until_torn: RefCell::default(),
            looks: StdCell::new(0),
            clock: model.clock,
            is_late: model.late,
            cut_short: StdCell::new(false),
            names: Names::new(place),
            numa_nodes: model.nodes,
            instructions: (0..threads).map(|_| Mutex::new(())).collect(),
            buckets: RefCell::default(),
            late: atomic::AtomicBool::new(false),
            jumped: StdCell::new(false),
            nodes: RefCell::default(),
            free_nodes: RefCell::new(vec![Vec::new(); threads]),
            nodes_out: StdCell::new(0),
            readers: Box::into_raw(readers),
            waiting: Mutex::new(None),
            rows: records::Roll::new(threads, Grouping::Apart, |_| ReaderRow::new()),
            records: model.records.map(|grouping| records::All::new(threads, grouping)),
            fences_owed: RefCell::new(vec![false; threads]),
            fenced: StdCell::new(None),
            spins: RefCell::new(vec![0; threads]),
            refusals: StdCell::new(model.refusals),
            real_time: model.real_time,
            yields: model.has_turns_only(),
            late_looks: model.late_looks,
            naps_last: model.naps_last,
            eager_spins: model.eager_spins,
            dozed: model.dozes.then(|| RefCell::new(vec![0; threads])),
        }
    }

    pub fn records(&self) -> &records::All {
        self.records.as_ref().expect("the client needs `Model::with_records`")
    }

    pub fn is_reader_slot(&self, word: *const UsizeCell) -> bool {
        let slots = self.readers as *mut UsizeCell;
        (slots.cast_const()..slots.wrapping_add(self.readers.len()).cast_const()).contains(&word)
    }

    pub fn is_row_slot(&self, word: *const UsizeCell) -> bool {
        self.rows.any(|row| row.slots.as_ptr_range().contains(&word))
    }

    pub(super) fn bucket(&self, word: usize) -> Rc<Bucket> {
        let mut buckets = self.buckets.borrow_mut();
        if let Some((_, bucket)) = buckets.iter().find(|(address, _)| *address == word) {
            return bucket.clone();
        }
        let bucket = Rc::new(Mutex::new(VecDeque::new()));
        buckets.push((word, bucket.clone()));
        bucket
    }

    /// The time of a look, or of a thread's going to sleep: a number that grows.
    pub(super) fn look(&self) -> usize {
        self.looks.update(|looks| looks + 1);
        self.looks.get()
    }

    /// A store has released the word. It is torn for a thread that went to sleep after the look: that sleep ends by itself.
    pub(super) fn tear(&self, word: usize, looked: usize) {
        let mut all = self.until_torn.borrow_mut();
        let torn: Vec<_> = all.extract_if(.., |(at, slept, _)| *at == word && *slept > looked).collect();
        drop(all);
        for (_, _, sleeper) in torn {
            let bucket = self.bucket(word);
            let mut sleepers = bucket.lock().unwrap();
            if let Some(at) = sleepers.iter().position(|other| Rc::ptr_eq(other, &sleeper)) {
                sleepers.remove(at);
                sleeper.end(Wait::TimedOut);
            }
        }
    }

    /// The end of an execution, when all threads but the first have been joined.
    fn end(&self) {
        for slot in 0..self.readers.len() {
            // SAFETY: the table was leaked in `new` and is alive.
            let slot = unsafe { &(&(*self.readers))[slot] };
            assert_eq!(slot.load(Ordering::Relaxed), 0, "a reader is still in the table");
        }
        assert_eq!(self.nodes_out.get(), 0, "queue nodes were not given back");
        for node in self.nodes.borrow_mut().drain(..) {
            // SAFETY: leaked in `acquire_node`; the threads that used it are gone.
            drop(unsafe { Box::from_raw(node) });
        }
        // SAFETY: leaked in `new`; the threads that used it are gone.
        drop(unsafe { Box::from_raw(self.readers) });
        if let Some(array) = self.waiting.lock().unwrap().take() {
            // SAFETY: leaked in `waiting_array`; the threads that used it are gone.
            drop(unsafe { Box::from_raw(std::ptr::from_ref(array).cast_mut()) });
        }
        self.rows.end(|_| ());
        self.records.iter().for_each(records::All::end);
    }
}

/// Ends the life of the running thread as far as its row of slots and its record are concerned; what it
/// does then, another thread does.
pub fn exit_thread() {
    let state = shared_state();
    state.rows.leave();
    state.records.iter().for_each(records::All::leave);
}

std::thread_local! {
    static STATE: RefCell<Option<Rc<State>>> = const { RefCell::new(None) };
    /// How many executions of the present exploration were cut short.
    pub(super) static CUT_SHORT: StdCell<usize> = const { StdCell::new(0) };
}

loom::thread_local! {
    static THREAD: StdCell<usize> = StdCell::new(usize::MAX);
}

/// Begins an execution with so many threads, of which the caller is the first. What they share is in `place`.
pub(super) fn begin(model: &Model, threads: usize, place: Place) {
    STATE.set(None);
    STATE.set(Some(Rc::new(State::new(model, threads, place))));
    be_thread(0);
}

/// Gives the running thread its number.
pub(super) fn be_thread(number: usize) {
    THREAD.with(|this| this.set(number));
}

/// Ends the execution. All threads but the caller have been joined.
pub(super) fn end() {
    let state = shared_state();
    state.end();
    CUT_SHORT.set(CUT_SHORT.get() + usize::from(state.cut_short.get()));
    drop(state);
    STATE.set(None);
}

/// Whether the caller runs in an execution that has not ended.
pub fn in_model() -> bool {
    STATE.with_borrow(Option::is_some)
}

/// Looks at the execution's state. `look` must not switch threads.
pub fn state<R>(look: impl FnOnce(&State) -> R) -> R {
    STATE.with_borrow(|state| look(state.as_ref().expect("a lock over Loom is used outside of a Model")))
}

pub fn shared_state() -> Rc<State> {
    STATE.with_borrow(|state| state.clone().expect("a lock over Loom is used outside of a Model"))
}

/// The mistake of the running model.
pub fn mistake() -> Mistake {
    state(|s| s.mistake)
}

/// The running thread has made a sequentially consistent store.
pub fn owe_fence() {
    state(|s| s.fences_owed.borrow_mut()[thread_number()] = true);
}

/// Whether it has, since this was last asked.
pub fn take_fence_owed() -> bool {
    state(|s| std::mem::take(&mut s.fences_owed.borrow_mut()[thread_number()]))
}

/// Whether the running thread has just issued a light fence, and is not to see what it looks at next.
pub fn is_blind() -> bool {
    mistake() == Mistake::NoSecondLook && state(|s| s.fenced.take()) == Some(thread_number())
}

/// The number of the running thread, from 0.
pub fn thread_number() -> usize {
    THREAD.with(|number| number.get())
}

/// In a section: gives other threads turns if they have none otherwise. Without preemptions, threads whose sections end at once would
/// run one after the other, and never meet.
pub fn stay() {
    const TURNS: u32 = 2;
    if shared_state().yields {
        (0..TURNS).for_each(|_| loom::thread::yield_now());
    }
}

/// Lets time jump past every deadline.
pub(super) fn let_time_jump() {
    let state = shared_state();
    state.jumped.set(true);
    state.late.store(true, Ordering::Relaxed);
    for next in 0.. {
        // Buckets may be added while this waits for one of them.
        let Some((_, bucket)) = state.buckets.borrow().get(next).cloned() else { return };
        let mut sleepers = bucket.lock().unwrap();
        for sleeper in sleepers.iter().filter(|sleeper| sleeper.timed) {
            sleeper.end(Wait::TimedOut);
        }
        sleepers.retain(|sleeper| !sleeper.timed);
    }
}
