//! What is explored: a client, by a model of the machine, with a seeded mistake or without.

use super::names::{LINE, Place};
use super::{EAGER_SPINS, execution};
use loom::sync::atomic::Ordering;
use loom::thread;

/// A seeded mistake: the machine breaks one promise, and loom has to notice what that does to the
/// algorithm that relies on it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// None: the machine keeps all its promises.
    None,
    /// Release stores and exchanges are relaxed.
    RelaxedRelease,
    /// Acquire loads and exchanges are relaxed.
    RelaxedAcquire,
    /// Acquire loads of words of so many bytes are relaxed.
    RelaxedLoadOf(usize),
    /// Release stores of words of so many bytes are relaxed.
    RelaxedStoreOf(usize),
    /// Exchanges of words of so many bytes that acquire and release only acquire.
    RelaxedSwapOf(usize),
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
    /// A thread gets a row of slots that does not say that it is taken.
    UntakenRow,
    /// A thread that looks at the records of all threads does not see the newest.
    SkipsReader,
    /// A thread gets a record that does not say that it is taken.
    UntakenRecord,
    /// A thread does not look at those below it in its group of records.
    BlindVoucher,
    /// A thread that exits gives its record back before it has left its section, and its row with something in it.
    EarlyReturn,
    /// A sleep that misses its wakeup because a release was torn does not end by itself.
    NoTornTimeout,
    /// A release of a lock does not look whether a thread waits.
    BlindRelease,
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

/// How much was explored.
pub struct Outcome {
    executions: usize,
    /// Those in which a thread spun for so long that only one schedule was followed from there on.
    cut_short: usize,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} executions", self.executions)?;
        if self.cut_short > 0 { write!(f, " ({} cut short)", self.cut_short) } else { Ok(()) }
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
    /// As `Apart`, and no thread has been in a section before: its first one begins with a full fence.
    Fresh,
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
    /// Whether it is late from the beginning, for threads that only look at the clock.
    pub late: bool,
    /// Whether a thread that dozes finds that time has passed.
    pub dozes: bool,
    /// Whether a waiter gives the others a turn before it looks at its word.
    pub late_looks: bool,
    /// Whether a nap at a word ends only when another thread ends it.
    pub naps_last: bool,
    /// Turns of spin loops for which a thread does not let the others go on.
    pub eager_spins: u32,
    /// How many heavy fences are refused, from the first on.
    pub refusals: u32,
    /// The number of a thread with a real-time priority, if there is one: it is woken before all others.
    pub real_time: Option<usize>,
    /// NUMA nodes, between which threads alternate.
    pub nodes: usize,
    /// Whether a release of a lock is one atomic step, as in the kernel.
    pub whole_release: bool,
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
            late: false,
            dozes: false,
            late_looks: false,
            naps_last: false,
            eager_spins: EAGER_SPINS,
            refusals: 0,
            real_time: None,
            nodes: 2,
            whole_release: false,
            records: None,
        }
    }

    /// The same with a smaller or larger table of visible readers. Which readers share a slot follows from the lock's place in what
    /// the threads share, and from the threads' numbers; with one slot all do.
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

    /// The same where a release of a lock is one atomic step. No sleep has to end by itself then.
    pub const fn with_whole_releases(self) -> Self {
        Model { whole_release: true, ..self }
    }

    /// The same with records for reclamation, each in a group of its own.
    pub const fn with_records(self) -> Self {
        Model { records: Some(Grouping::Apart), ..self }
    }

    /// The same for threads that have not been in a section before.
    pub const fn with_fresh_records(self) -> Self {
        Model { records: Some(Grouping::Fresh), ..self }
    }

    /// The same with all threads' records in one group.
    pub const fn grouped(self) -> Self {
        Model { records: Some(Grouping::Together), ..self }
    }

    /// The same with a clock.
    pub const fn with_clock(self) -> Self {
        Model { clock: true, ..self }
    }

    /// The same with a real-time priority for the thread of this number.
    pub const fn with_real_time(self, thread: usize) -> Self {
        Model { real_time: Some(thread), ..self }
    }

    /// The same where nothing has been reclaimed for long: what a thread retires first is reclaimed soon.
    pub const fn after_a_pause(self) -> Self {
        Model { late: true, ..self }
    }

    /// The same where a doze takes a second on the clock of the thread that dozes: for waits that end by themselves.
    pub const fn with_dozes(self) -> Self {
        Model { dozes: true, ..self }
    }

    /// The same where a waiter gives the others a turn before it looks at its word: so it may be the head before it looks.
    pub const fn with_late_looks(self) -> Self {
        Model { late_looks: true, ..self }
    }

    /// The same where a nap at a word does not end by itself: for threads that must end it. A waiter that naps has spun often, so it
    /// yields late.
    pub const fn with_lasting_naps(self) -> Self {
        Model { naps_last: true, eager_spins: 16, ..self }
    }

    /// The same where the first heavy fences are refused.
    pub const fn refusing(self, refusals: u32) -> Self {
        Model { refusals, ..self }
    }

    /// Explores: `start` makes what the threads share, each of `threads` runs in a thread, and
    /// `after` looks at the result. Panics if an execution does, deadlocks, races or leaks.
    /// Also panics if there was one execution, which shows nothing if threads are preempted: the first thread only loads what the others
    /// store, so that loom does not notice that they meet. Says how many executions there were. (Without preemptions there may be one
    /// way to take turns, in sections that [`stay`](super::stay).)
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

    /// Whether no thread is preempted.
    pub(super) fn has_turns_only(&self) -> bool {
        self.preemptions == Some(0) && (!deep() || self.mistake != Mistake::None)
    }

    fn explore(self, client: Client) -> Outcome {
        let mut builder = loom::model::Builder::new();
        if !deep() || self.mistake != Mistake::None {
            builder.preemption_bound = self.preemptions;
        } else {
            builder.preemption_bound = self.preemptions.map(|bound| bound + 1);
        }
        builder.max_branches = 4_000;
        let alone = client.threads.len() == 1;
        let all = client.threads.len() + usize::from(self.clock);
        builder.max_threads = all;
        execution::CUT_SHORT.set(0);
        let executions = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counter = executions.clone();
        // One place for all executions: what an algorithm computes from a lock's identity (a hash)
        // must not change from one to the next.
        let layout = client.layout.align_to(LINE).expect("a line is a power of two");
        // SAFETY: the layout is not of size zero.
        let place = unsafe { std::alloc::alloc(layout) }.expose_provenance();
        assert_ne!(place, 0, "no memory for what the threads share");
        let shared = Place { start: place, size: layout.size() };
        builder.check(move || {
            counter.fetch_add(1, Ordering::Relaxed);
            execution::begin(&self, all, shared);
            let at = || std::ptr::with_exposed_provenance_mut::<()>(place);
            (client.start)(at());
            // The first thread is the clock, or runs the first part of the client itself.
            let here = usize::from(!self.clock);
            let handles: Vec<_> = (1..)
                .zip(&client.threads[here..])
                .map(|(number, body)| {
                    let body = *body;
                    thread::spawn(move || {
                        execution::be_thread(number);
                        // SAFETY: `start` has written the value, and it is dropped below when this thread is joined.
                        unsafe { body(std::ptr::with_exposed_provenance(place)) };
                    })
                })
                .collect();
            if self.clock {
                execution::stay();
                execution::let_time_jump();
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
            execution::end();
        });
        let executions = executions.load(Ordering::Relaxed);
        assert!(
            executions > 1 || alone || self.has_turns_only() || self.mistake != Mistake::None,
            "one execution shows nothing: the threads do not meet"
        );
        Outcome { executions, cut_short: execution::CUT_SHORT.get() }
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
        Err(payload) => {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
            let first = text.unwrap_or("(a panic without text)").trim().lines().next().unwrap_or_default();
            // The mistake must fail, and not what looks for it.
            for own in ["RefCell", "already borrowed", "already mutably borrowed", "[loom internal bug]"] {
                assert!(!first.contains(own), "the model failed, and not the client: {first}");
            }
            first.to_owned()
        }
    }
}

/// Whether the clients that take longest run as well. CI asks for them.
pub fn thorough() -> bool {
    deep() || std::env::var_os("LATCHWORK_THOROUGH").is_some_and(|value| value != "0")
}

/// A number of preemptions: as many as that in CI, one fewer every day. For the clients that would take seconds.
pub fn one_fewer_daily(preemptions: usize) -> usize {
    if thorough() { preemptions } else { preemptions - 1 }
}

/// Whether deeper bounds were asked for.
pub fn deep() -> bool {
    std::env::var_os("LATCHWORK_LOOM_DEEP").is_some_and(|value| value != "0")
}
