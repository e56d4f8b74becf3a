//! The machine that explores: [`Machine`] over loom 0.7.
//!
//! A [`Model`] runs a small client under every interleaving (up to a number of preemptions) that
//! loom's C11 memory model allows. All of the state is made anew for each execution and belongs to
//! the OS thread that runs the model; loom's own threads are coroutines on it.
//!
//! # What stands for what
//!
//! - **The asymmetric fence.** Each thread has a mutex, held while it executes an instruction that
//!   must not be torn. `heavy_fence` takes and releases the mutex of every thread in turn, as
//!   `membarrier` interrupts every processor in turn, between two instructions. So for each thread
//!   the heavy fence comes before or after each of its light fences and decrements, whole, and
//!   orders memory in that direction; two light fences are not ordered with each other.
//!   (`membarrier` is a full fence on the interrupted processors and, at both ends, on the caller.)
//! - **`release_dec`** is a load and a store, between which other threads run, under the thread's
//!   mutex: torn for everybody but a heavy fence. The portable path, one atomic decrement, is a
//!   special case.
//! - **`wait` and `wake`** are a futex: a queue for each address, behind its lock; the comparison
//!   and going to sleep are one step with respect to wakers. Each sleeper is woken by itself, first
//!   in, first out, so a wake that the wrong sleeper consumed is lost, and loom reports the
//!   deadlock. There are no spurious wake-ups: they would hide lost ones.
//! - **Time** stands still until the model's clock thread lets it jump past every deadline at once,
//!   at a point that loom chooses: every deadline passes early, late and in between.
//! - **Rows of slots** are made when a thread first asks for one, and linked with the same instructions as in production.
//!   The row of a thread that exits is used again when it is empty.
//! - **Queue nodes** are used again by the thread that released them, last in, first out. A node that is released while
//!   another thread may still write to it is reported, and so is a leak.

use super::words::{Cell, UsizeCell};
use latchwork::machine::{Clock, Deadline, Machine, QNode, ReaderRow, Wait, Word};
use loom::sync::Mutex;
use loom::sync::atomic::{self, Ordering, fence};
use loom::thread;
use std::cell::{Cell as StdCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// A seeded mistake: the machine breaks one promise, and loom has to notice what that does to the
/// algorithm that relies on it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// None: the machine keeps all its promises.
    None,
    /// Release stores, exchanges and decrements are relaxed.
    RelaxedRelease,
    /// Acquire loads and exchanges are relaxed.
    RelaxedAcquire,
    /// Acquire loads of words of so many bytes are relaxed.
    RelaxedLoadOf(usize),
    /// Release stores of words of so many bytes are relaxed.
    RelaxedStoreOf(usize),
    /// Sequentially consistent accesses are acquire and release.
    NoSeqCst,
    /// `heavy_fence` does nothing.
    NoHeavyFence,
    /// `light_fence` does nothing.
    NoLightFence,
    /// `full_fence` does nothing.
    NoFullFence,
    /// A thread that looks at a word of 32 bits after a light fence sees 0: as if it did not look.
    NoSecondLook,
    /// A thread's row of slots is linked when it is looked for with something in it.
    LateRow,
    /// The slots of a thread that exits are emptied, though a read acquisition may still be held through one.
    ExitEmptiesRow,
    /// A thread that looks at the records of all threads does not see the newest.
    SkipsReader,
    /// A thread gets a record that does not say that it is taken.
    UntakenRecord,
    /// A thread does not look at those below it in its group of records.
    BlindVoucher,
    /// A thread that exits gives its record back before it has left its section.
    EarlyReturn,
    /// A heavy fence may come between the load and the store of `release_dec`.
    TornDecrement,
    /// Other threads may write between the load and the store of `release_if`.
    TornRelease,
    /// `wake` wakes nobody.
    DroppedWake,
    /// `wait` does not compare the word.
    SleepsUnseen,
    /// A load of a slot in the table of visible readers sees nobody.
    BlindScan,
    /// A node counts as free from the moment it is handed out.
    NodeTooEarly,
    /// Each thread has a waiting array of its own.
    PrivateArray,
    /// A relaxed store of a pointer that is not null is lost. (Those that make a node known are releases.)
    LostLink,
    /// A pointer to the node that it is stored in is lost: a ring of one is not closed.
    OpenRing,
    /// A release store of 2 is lost: `mcs-tp` tells nobody that it was passed over.
    LostSkip,
    /// An exchange of null for null says that null was there.
    SeenCleared,
}

/// Nodes in the waiting array.
const WAITING_ARRAY: usize = 4;

/// Turns of spin loops that do not yield, and that are explored, per thread and execution.
const EAGER_SPINS: u32 = 2;
const SPINS: u32 = 6;

/// Before the jump, and the deadline that passes with it.
const EARLY: u64 = 1_000_000;
const LATE: u64 = 10_000_000_000;
/// A deadline that has not passed before the clock thread has let time jump.
pub const DEADLINE: Deadline = Deadline { clock: Clock::Monotonic, nanos: LATE };

/// A sleeping thread.
struct Sleeper {
    thread: thread::Thread,
    timed: bool,
    outcome: StdCell<Option<Wait>>,
}

impl Sleeper {
    fn end(&self, outcome: Wait) {
        self.outcome.set(Some(outcome));
        self.thread.unpark();
    }
}

/// The sleepers on one address.
type Bucket = Mutex<VecDeque<Rc<Sleeper>>>;

/// What one execution consists of.
pub struct State {
    mistake: Mistake,
    clock: bool,
    numa_nodes: usize,
    /// One per thread; see the module documentation.
    instructions: Vec<Mutex<()>>,
    buckets: RefCell<Vec<(usize, Rc<Bucket>)>>,
    /// Whether time has jumped: as threads that only look at the clock see it ...
    late: atomic::AtomicBool,
    /// ... and as the clock thread knows it.
    jumped: StdCell<bool>,
    nodes: RefCell<Vec<*mut QNode<Loom>>>,
    /// Per thread.
    free_nodes: RefCell<Vec<Vec<*mut QNode<Loom>>>>,
    nodes_out: StdCell<isize>,
    readers: *mut [UsizeCell],
    /// The waiting array, once a thread has asked for it.
    waiting: Mutex<Option<&'static [QNode<Loom>]>>,
    rows: Rows,
    /// None in a model without records.
    records: Option<super::records::All>,
    /// Per thread: a sequentially consistent store since the last fence.
    fences_owed: RefCell<Vec<bool>>,
    /// Whether a light fence was the last thing that a thread has done.
    fenced: StdCell<Option<usize>>,
    /// How often each thread has spun.
    spins: RefCell<Vec<u32>>,
    /// How long each thread has dozed, if a doze takes time.
    dozed: Option<RefCell<Vec<u64>>>,
}

impl State {
    fn new(model: &Model, threads: usize) -> Self {
        let readers: Box<[_]> = (0..model.reader_slots).map(|_| UsizeCell::new(0)).collect();
        State {
            mistake: model.mistake,
            clock: model.clock,
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
            rows: Rows::new(threads),
            records: model.records.map(|grouping| super::records::All::new(threads, grouping)),
            fences_owed: RefCell::new(vec![false; threads]),
            fenced: StdCell::new(None),
            spins: RefCell::new(vec![0; threads]),
            dozed: model.dozes.then(|| RefCell::new(vec![0; threads])),
        }
    }

    pub fn records(&self) -> &super::records::All {
        self.records.as_ref().expect("the client needs `Model::with_records`")
    }

    pub fn is_reader_slot(&self, word: *const UsizeCell) -> bool {
        let slots = self.readers as *mut UsizeCell;
        (slots.cast_const()..slots.wrapping_add(self.readers.len()).cast_const()).contains(&word)
    }

    pub fn is_row_slot(&self, word: *const UsizeCell) -> bool {
        self.rows.all.borrow().iter().any(|row| {
            // SAFETY: rows live until the end of the execution.
            unsafe { (**row).slots.as_ptr_range().contains(&word) }
        })
    }

    fn bucket(&self, word: usize) -> Rc<Bucket> {
        let mut buckets = self.buckets.borrow_mut();
        if let Some((_, bucket)) = buckets.iter().find(|(address, _)| *address == word) {
            return bucket.clone();
        }
        let bucket = Rc::new(Mutex::new(VecDeque::new()));
        buckets.push((word, bucket.clone()));
        bucket
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
        for row in self.rows.all.borrow_mut().drain(..) {
            // SAFETY: leaked in `Rows::own`; the threads that used it are gone.
            let row = unsafe { Box::from_raw(row) };
            assert!(row.is_empty(), "a reader is still in its row");
        }
        self.records.iter().for_each(super::records::All::end);
    }
}

/// The threads' rows of slots.
struct Rows {
    newest: atomic::AtomicPtr<ReaderRow<Loom>>,
    /// Per thread: its row, once it has one.
    own: RefCell<Vec<*mut ReaderRow<Loom>>>,
    /// Per thread: whether that is linked.
    linked: RefCell<Vec<bool>>,
    all: RefCell<Vec<*mut ReaderRow<Loom>>>,
    /// Rows of threads that have exited.
    left: RefCell<Vec<*mut ReaderRow<Loom>>>,
}

impl Rows {
    fn new(threads: usize) -> Self {
        Rows {
            newest: atomic::AtomicPtr::new(std::ptr::null_mut()),
            own: RefCell::new(vec![std::ptr::null_mut(); threads]),
            linked: RefCell::new(vec![false; threads]),
            all: RefCell::default(),
            left: RefCell::default(),
        }
    }

    /// The running thread's row: its own, or one that was left behind, or a new one.
    fn own(&self, mistake: Mistake) -> &'static ReaderRow<Loom> {
        let me = thread_number();
        let mut row = self.own.borrow()[me];
        if row.is_null() {
            let left = self.left.borrow().clone();
            // SAFETY: rows live until the end of the execution.
            let found = left.iter().position(|row| unsafe { (**row).is_empty() });
            // Another thread may have been faster while this one looked.
            let reused = found.and_then(|i| {
                let mut now = self.left.borrow_mut();
                now.iter().position(|row| *row == left[i]).map(|i| now.remove(i))
            });
            row = reused.unwrap_or_else(|| {
                let row = Box::into_raw(Box::new(ReaderRow::new()));
                self.all.borrow_mut().push(row);
                row
            });
            self.own.borrow_mut()[me] = row;
            self.linked.borrow_mut()[me] = reused.is_some();
        }
        // SAFETY: rows live until the end of the execution.
        if mistake == Mistake::LateRow && unsafe { &*row }.is_empty() {
            // SAFETY: rows live until the end of the execution.
            return unsafe { &*row };
        }
        if !std::mem::replace(&mut self.linked.borrow_mut()[me], true) {
            self.link(row);
        }
        // SAFETY: rows live until the end of the execution.
        unsafe { &*row }
    }

    fn link(&self, row: *mut ReaderRow<Loom>) {
        let mut newest = self.newest.load(Ordering::Relaxed);
        loop {
            // SAFETY: rows live until the end of the execution.
            unsafe { (*row).link(newest.as_ref()) };
            match self.newest.compare_exchange(newest, row, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => newest = now,
            }
        }
    }

    /// The running thread exits: what is in its row stays there.
    fn leave(&self, mistake: Mistake) {
        let row = std::mem::replace(&mut self.own.borrow_mut()[thread_number()], std::ptr::null_mut());
        if mistake == Mistake::ExitEmptiesRow {
            // SAFETY: rows live until the end of the execution.
            unsafe { &*row }.slots.iter().for_each(|slot| slot.store(0, Ordering::Release));
        }
        if !row.is_null() && self.linked.borrow()[thread_number()] {
            self.left.borrow_mut().push(row);
        }
    }
}

/// Ends the life of the running thread as far as its row of slots and its record are concerned; what it
/// does then, another thread does.
pub fn exit_thread() {
    let state = shared_state();
    state.rows.leave(state.mistake);
    state.records.iter().for_each(super::records::All::leave);
}

std::thread_local! {
    static STATE: RefCell<Option<Rc<State>>> = const { RefCell::new(None) };
}

loom::thread_local! {
    static THREAD: StdCell<usize> = StdCell::new(usize::MAX);
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

/// A turn of a spin loop. If `eager`, the first few do nothing, so that a waiter can get to the end of its
/// patience, and go to sleep, while the holder has not moved. Then each turn lets the others go on.
/// Two spinners could take turns for ever while the holder waits, so beyond [`SPINS`] turns loom
/// only follows one schedule, which is fair, instead of exploring them all.
fn spin(eager: bool) {
    let turns = state(|s| {
        let turns = &mut s.spins.borrow_mut()[thread_number()];
        *turns += 1;
        *turns
    });
    if turns > SPINS {
        loom::skip_branch();
    }
    if !eager || turns > EAGER_SPINS {
        thread::yield_now();
    }
}

/// Lets time jump past every deadline.
fn let_time_jump() {
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

/// How much was explored.
pub struct Outcome(usize);

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} executions", self.0)
    }
}

/// How an execution begins: what makes the shared value, and what is done to it in the place where
/// it then stays, before there are other threads.
pub trait Start<T>: Send + Sync + 'static {
    fn make(&self) -> T;
    fn prepare(&self, _shared: &T) {}
}

impl<T, F: Fn() -> T + Send + Sync + 'static> Start<T> for F {
    fn make(&self) -> T {
        self()
    }
}

impl<T, F, P> Start<T> for (F, P)
where
    F: Fn() -> T + Send + Sync + 'static,
    P: Fn(&T) + Send + Sync + 'static,
{
    fn make(&self) -> T {
        self.0()
    }
    fn prepare(&self, shared: &T) {
        self.1(shared);
    }
}

/// The groups of the threads' records.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// A thread makes a group for itself when it first asks for a record.
    Apart,
    /// One group of all threads is made before they run.
    Together,
}

/// How a client is explored.
#[derive(Copy, Clone, Debug)]
pub struct Model {
    /// The promise that the machine breaks.
    pub mistake: Mistake,
    /// Preemptions per execution at most; `None` explores every interleaving.
    pub preemptions: Option<usize>,
    /// Slots in the table of visible readers, a power of two.
    pub reader_slots: usize,
    /// Whether time jumps.
    pub clock: bool,
    /// Whether a thread that dozes finds that time has passed.
    pub dozes: bool,
    /// NUMA nodes, between which threads alternate.
    pub nodes: usize,
    /// Whether there are records for reclamation. Other models do without, because loom spends time on each of their words.
    pub records: Option<Grouping>,
}

impl Model {
    /// A model in which time stands still.
    pub const fn new(preemptions: usize) -> Self {
        Model {
            mistake: Mistake::None,
            preemptions: Some(preemptions),
            reader_slots: 2,
            clock: false,
            dozes: false,
            nodes: 2,
            records: None,
        }
    }

    /// The same with a smaller or larger table of visible readers. Which readers share a slot depends
    /// on addresses, and so on the run; with one slot all do.
    pub const fn with_reader_slots(self, reader_slots: usize) -> Self {
        Model { reader_slots, ..self }
    }

    /// A model without a bound on preemptions.
    pub const fn exhaustive() -> Self {
        Model { preemptions: None, ..Model::new(0) }
    }

    /// The same with a mistake.
    pub const fn with_mistake(self, mistake: Mistake) -> Self {
        Model { mistake, ..self }
    }

    /// The same with all threads on one NUMA node.
    pub const fn on_one_node(self) -> Self {
        Model { nodes: 1, ..self }
    }

    /// The same with records for reclamation, each in a group of its own.
    pub const fn with_records(self) -> Self {
        Model { records: Some(Grouping::Apart), ..self }
    }

    /// The same with all threads' records in one group.
    pub const fn grouped(self) -> Self {
        Model { records: Some(Grouping::Together), ..self }
    }

    /// The same with a clock.
    pub const fn with_clock(self) -> Self {
        Model { clock: true, ..self }
    }

    /// The same where a doze takes a second on the clock of the thread that dozes: for waits that end by themselves.
    pub const fn with_dozes(self) -> Self {
        Model { dozes: true, ..self }
    }

    /// Explores: `start` makes what the threads share, each of `threads` runs in a thread, and
    /// `after` looks at the result. Panics if an execution does, deadlocks, races or leaks.
    /// Says how many executions there were; it is one, which shows nothing, if the first thread only loads
    /// what the others store: loom does not notice then that they meet.
    pub fn check<T: Send + Sync + 'static>(
        self,
        start: impl Start<T>,
        threads: &[fn(&T)],
        after: fn(&T),
    ) -> Outcome {
        self.explore(Client::new(start, threads, after))
    }

    /// Explores a client that must fail, and says how it did.
    ///
    /// # Panics
    ///
    /// If it does not.
    pub fn check_fails<T: Send + Sync + 'static>(
        self,
        start: impl Start<T>,
        threads: &[fn(&T)],
        after: fn(&T),
    ) -> String {
        let client = Client::new(start, threads, after);
        fails(|| self.explore(client))
    }

    fn explore(self, client: Client) -> Outcome {
        let mut builder = loom::model::Builder::new();
        if !deep() || self.mistake != Mistake::None {
            builder.preemption_bound = self.preemptions;
        } else {
            builder.preemption_bound = self.preemptions.map(|bound| bound + 1);
        }
        builder.max_branches = 4_000;
        let all = client.threads.len() + usize::from(self.clock);
        builder.max_threads = all;
        let executions = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counter = executions.clone();
        // One place for all executions: what an algorithm computes from a lock's address (a hash)
        // must not change from one to the next.
        // SAFETY: the layout is not of size zero.
        let place = unsafe { std::alloc::alloc(client.layout) }.expose_provenance();
        builder.check(move || {
            counter.fetch_add(1, Ordering::Relaxed);
            STATE.set(None);
            STATE.set(Some(Rc::new(State::new(&self, all))));
            THREAD.with(|this| this.set(0));
            let at = || std::ptr::with_exposed_provenance_mut::<()>(place);
            (client.start)(at());
            // The first thread is the clock, or runs the first part of the client itself.
            let here = usize::from(!self.clock);
            let handles: Vec<_> = (1..)
                .zip(&client.threads[here..])
                .map(|(number, body)| {
                    let body = *body;
                    thread::spawn(move || {
                        THREAD.with(|this| this.set(number));
                        // SAFETY: `start` has written the value, and it is dropped below when this thread is joined.
                        unsafe { body(std::ptr::with_exposed_provenance(place)) };
                    })
                })
                .collect();
            if self.clock {
                let_time_jump();
            } else {
                // SAFETY: `start` has written the value, and it is dropped below.
                unsafe { client.threads[0](at()) };
            }
            for handle in handles {
                handle.join().unwrap();
            }
            // SAFETY: the threads are gone, and nothing refers to the value after it is dropped.
            unsafe {
                (client.after)(at());
                (client.end)(at());
            }
            shared_state().end();
            STATE.set(None);
        });
        Outcome(executions.load(Ordering::Relaxed))
    }
}

/// A client without its type, so that what explores it is compiled once, and not for each client of each lock.
struct Client {
    /// Of the value that the threads share. Not of size zero.
    layout: std::alloc::Layout,
    /// Makes the value in its place.
    start: Box<dyn Fn(*mut ()) + Send + Sync>,
    threads: Vec<unsafe fn(*const ())>,
    after: unsafe fn(*const ()),
    /// Drops the value.
    end: unsafe fn(*mut ()),
}

impl Client {
    fn new<T: Send + Sync + 'static>(start: impl Start<T>, threads: &[fn(&T)], after: fn(&T)) -> Client {
        /// The same function, to be called with a pointer to a valid `T`.
        fn erased<T>(body: fn(&T)) -> unsafe fn(*const ()) {
            // SAFETY: a reference and a pointer, both to sized types, are passed alike.
            unsafe { std::mem::transmute::<fn(&T), unsafe fn(*const ())>(body) }
        }
        let layout = std::alloc::Layout::new::<T>();
        assert!(layout.size() > 0, "threads that share nothing");
        Client {
            layout,
            start: Box::new(move |place| {
                let place = place.cast::<T>();
                // SAFETY: `explore` passes its unused place of this layout.
                unsafe { place.write(start.make()) };
                // SAFETY: written above.
                start.prepare(unsafe { &*place });
            }),
            threads: threads.iter().map(|body| erased(*body)).collect(),
            after: erased(after),
            // SAFETY: two pointers to sized types are passed alike.
            end: unsafe {
                std::mem::transmute::<unsafe fn(*mut T), unsafe fn(*mut ())>(std::ptr::drop_in_place::<T>)
            },
        }
    }
}

/// Explores a client that must fail, and says how it did.
///
/// # Panics
///
/// If it does not.
pub fn fails<R: std::fmt::Display>(explore: impl FnOnce() -> R) -> String {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(explore)) {
        Ok(outcome) => panic!("{outcome} did not notice the mistake"),
        Err(payload) => payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied())
            .unwrap_or("(a panic without text)")
            .trim()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned(),
    }
}

/// Whether deeper bounds were asked for.
pub fn deep() -> bool {
    std::env::var_os("LATCHWORK_LOOM_DEEP").is_some_and(|value| value != "0")
}

/// The machine. See the [module documentation](self).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Loom;

// SAFETY: words are loom's; the other promises are argued in the module documentation.
unsafe impl Machine for Loom {
    type U8 = Cell<atomic::AtomicU8>;
    type U32 = Cell<atomic::AtomicU32>;
    type U64 = Cell<atomic::AtomicU64>;
    type Usize = UsizeCell;
    type Ptr<T: Send + Sync + 'static> = Cell<atomic::AtomicPtr<T>>;

    #[track_caller]
    fn spin_until<T: Copy, W: Word<T>>(word: &W, order: Ordering, mut done: impl FnMut(T) -> bool) -> T {
        loop {
            let value = word.load(order);
            if done(value) {
                return value;
            }
            spin(false);
        }
    }

    /// One look: a second would only add executions in which the waiter was luckier.
    #[track_caller]
    fn spin_for<T: Copy, W: Word<T>>(
        word: &W,
        order: Ordering,
        _spins: u32,
        mut done: impl FnMut(T) -> bool,
    ) -> Option<T> {
        let value = word.load(order);
        done(value).then_some(value)
    }

    fn pause(_spins: u32) {
        spin(true);
    }

    /// The algorithms' own loops around `pause` are cut short like `spin_for`.
    /// One atomic step: a lost wakeup must show, and a torn release may lose one.
    fn release_if(word: &Self::U32, expected: u32) -> bool {
        if state(|s| s.mistake == Mistake::TornRelease) {
            let held = word.load(Ordering::Relaxed) == expected;
            if held {
                word.store(0, Ordering::Release);
            }
            return held;
        }
        word.compare_exchange(expected, 0, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    fn doze_at(_word: &Self::U32, _expected: u32, nanos: u64) {
        Self::doze(nanos);
    }

    fn torn_timeout(_nanos: u64) -> Option<Deadline> {
        None
    }

    fn hints(_nanos: u32) -> u32 {
        1
    }

    fn patience(_looks: u32) -> u32 {
        1
    }

    fn yield_now() {
        spin(true);
    }

    #[track_caller]
    fn wait(word: &Self::U32, expected: u32, deadline: Option<Deadline>) -> Wait {
        let state = shared_state();
        let bucket = state.bucket(std::ptr::from_ref(word).addr());
        fence(Ordering::SeqCst);
        let mut sleepers = bucket.lock().unwrap();
        if word.load(Ordering::Relaxed) != expected && state.mistake != Mistake::SleepsUnseen {
            return Wait::Woken;
        }
        let timed = deadline.is_some_and(|deadline| deadline.nanos <= LATE);
        if timed && (state.jumped.get() || deadline.is_some_and(|deadline| deadline.nanos <= EARLY)) {
            drop(sleepers);
            spin(false);
            return Wait::TimedOut;
        }
        let me = Rc::new(Sleeper { thread: thread::current(), timed, outcome: StdCell::new(None) });
        sleepers.push_back(me.clone());
        drop(sleepers);
        loop {
            if let Some(outcome) = me.outcome.get() {
                return outcome;
            }
            thread::park();
        }
    }

    #[track_caller]
    fn wake(word: *const Self::U32, count: u32) -> usize {
        if mistake() == Mistake::DroppedWake {
            return 0;
        }
        let bucket = shared_state().bucket(word.addr());
        fence(Ordering::SeqCst);
        let mut sleepers = bucket.lock().unwrap();
        let count = sleepers.len().min(count as usize);
        sleepers.drain(..count).for_each(|sleeper| sleeper.end(Wait::Woken));
        count
    }

    #[track_caller]
    fn requeue(from: *const Self::U32, expected: u32, to: &Self::U32) {
        let state = shared_state();
        let source = state.bucket(from.addr());
        let target = state.bucket(std::ptr::from_ref(to).addr());
        fence(Ordering::SeqCst);
        // Always in this order, and no other operation takes two.
        let (mut source, mut target) = (source.lock().unwrap(), target.lock().unwrap());
        // SAFETY: a sleeper is in the middle of a call on the word, so the word is there. Without
        // one it may be gone, and there is nothing to move.
        if !source.is_empty() && unsafe { &*from }.load(Ordering::Relaxed) == expected {
            target.extend(source.pop_front());
        }
    }

    #[track_caller]
    fn light_fence() {
        if mistake() == Mistake::NoLightFence {
            return;
        }
        drop(shared_state().instructions[thread_number()].lock());
        state(|s| s.fenced.set(Some(thread_number())));
    }

    #[track_caller]
    fn heavy_fence() -> bool {
        let state = shared_state();
        if state.mistake == Mistake::NoHeavyFence {
            return true;
        }
        fence(Ordering::SeqCst);
        for instruction in &state.instructions {
            drop(instruction.lock());
        }
        fence(Ordering::SeqCst);
        true
    }

    #[track_caller]
    fn full_fence() {
        if mistake() != Mistake::NoFullFence {
            fence(Ordering::SeqCst);
        }
    }

    #[track_caller]
    fn acquire_swap(word: &Self::U32, value: u32) -> u32 {
        word.swap(value, Ordering::Acquire)
    }

    #[track_caller]
    fn release_dec(word: &Self::U32) -> bool {
        let state = shared_state();
        let instruction = &state.instructions[thread_number()];
        let whole = (state.mistake != Mistake::TornDecrement).then(|| instruction.lock());
        let left = word.load(Ordering::Relaxed).wrapping_sub(1);
        word.store(left, Ordering::Release);
        drop(whole);
        (left as i32) < 0
    }

    #[track_caller]
    fn now(_clock: Clock) -> u64 {
        let state = shared_state();
        // Without a clock the load would be a point at which loom might switch threads, for nothing.
        let time = if state.clock && state.late.load(Ordering::Relaxed) { LATE } else { EARLY };
        time + state.dozed.as_ref().map_or(0, |dozed| dozed.borrow()[thread_number()])
    }

    fn doze(_nanos: u64) {
        if let Some(dozed) = &shared_state().dozed {
            dozed.borrow_mut()[thread_number()] += 1_000_000_000;
        }
        Self::yield_now();
    }

    fn thread_id() -> usize {
        thread_number() + 1
    }

    /// Threads alternate between the nodes.
    fn numa_node() -> u32 {
        (thread_number() % state(|s| s.numa_nodes)) as u32
    }

    fn numa_nodes() -> u32 {
        2
    }

    /// None: a lost wakeup must show.
    fn safety_timeout(_nanos: u64) -> Option<Deadline> {
        None
    }

    fn acquire_node() -> &'static QNode<Self> {
        let state = shared_state();
        let free = state.free_nodes.borrow_mut()[thread_number()].pop();
        let node = free.unwrap_or_else(|| {
            let node = Box::into_raw(Box::new(QNode::new()));
            state.nodes.borrow_mut().push(node);
            node
        });
        state.nodes_out.update(|out| out + 1);
        if state.mistake == Mistake::NodeTooEarly {
            state.free_nodes.borrow_mut()[thread_number()].push(node);
        }
        // SAFETY: freed at the end of the execution only, when no thread runs any more.
        unsafe { &*node }
    }

    unsafe fn release_node(node: &'static QNode<Self>) {
        let state = shared_state();
        state.nodes_out.update(|out| out - 1);
        if state.mistake != Mistake::NodeTooEarly {
            state.free_nodes.borrow_mut()[thread_number()].push(node.as_ptr());
        }
    }

    unsafe fn visible_readers() -> &'static [Self::Usize] {
        // SAFETY: leaked in `State::new`; freed at the end of the execution only.
        state(|s| unsafe { &*s.readers })
    }

    /// The first caller makes the array. The mutex orders that before the calls of the others.
    unsafe fn waiting_array() -> &'static [QNode<Self>] {
        let state = shared_state();
        let mut array = state.waiting.lock().unwrap();
        let private = state.mistake == Mistake::PrivateArray;
        let arrays = if private { state.instructions.len() } else { 1 };
        let nodes = || (0..arrays * WAITING_ARRAY).map(|_| QNode::new()).collect::<Box<[_]>>();
        let all: &'static [_] = array.get_or_insert_with(|| Box::leak(nodes()));
        let first = if private { thread_number() * WAITING_ARRAY } else { 0 };
        &all[first..first + WAITING_ARRAY]
    }

    unsafe fn reader_row() -> Option<&'static ReaderRow<Self>> {
        let state = shared_state();
        Some(state.rows.own(state.mistake))
    }

    unsafe fn reader_rows() -> Option<&'static ReaderRow<Self>> {
        // SAFETY: leaked in `Rows::own`; freed at the end of the execution only.
        unsafe { shared_state().rows.newest.load(Ordering::Acquire).as_ref() }
    }
}
