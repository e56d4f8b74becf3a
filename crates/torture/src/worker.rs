//! A thread that the run watches: what it does, since when, and what it has done.

use crate::arena;
use crate::lock::{Access, Lock, Token, Way};
use crate::naps;
use crate::random::Random;
use latchwork::machine::{Clock, Machine, Native};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use std::time::Duration;

/// What a thread can be at.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Doing {
    /// Between two operations.
    Elsewhere,
    /// In an acquisition for reading.
    WaitsToRead,
    /// In an acquisition for writing (or of a mutex).
    WaitsToWrite,
    /// In a timed acquisition for reading.
    WaitsToReadUntil,
    /// In a timed acquisition for writing.
    WaitsToWriteUntil,
    /// In a try.
    Tries,
    /// Holds it for reading.
    Reads,
    /// Holds it for writing.
    Writes,
    /// In the release.
    Releases,
    /// In a wait on a condition variable.
    WaitsForCondition,
    /// Has left.
    Gone,
}

impl Doing {
    const ALL: [(Doing, &str); 11] = [
        (Doing::Elsewhere, "is between two operations"),
        (Doing::WaitsToRead, "waits to read"),
        (Doing::WaitsToWrite, "waits to write"),
        (Doing::WaitsToReadUntil, "waits to read, with a deadline"),
        (Doing::WaitsToWriteUntil, "waits to write, with a deadline"),
        (Doing::Tries, "tries"),
        (Doing::Reads, "holds it, reading"),
        (Doing::Writes, "holds it, writing"),
        (Doing::Releases, "is releasing it"),
        (Doing::WaitsForCondition, "waits for a condition"),
        (Doing::Gone, "has left"),
    ];

    fn text(code: u32) -> &'static str {
        Self::ALL.iter().find(|(doing, _)| *doing as u32 == code).map_or("?", |(_, text)| text)
    }
}

/// What is counted, per thread.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Count {
    /// Operations, whatever came of them.
    Operations,
    /// Read sections.
    Reads,
    /// Write sections.
    Writes,
    /// Tries that found the lock taken.
    Refused,
    /// Timed acquisitions that gave up.
    TimedOut,
    /// Waits on a condition variable.
    ConditionWaits,
    /// Locks released by another thread than the one that acquired them.
    HandedOver,
    /// Locks destroyed by the last one to release them.
    Destroyed,
    /// Threads that exited and were replaced.
    Replaced,
    /// Most nanoseconds that an untimed wait to read took; the next two likewise.
    LongestRead,
    /// To write.
    LongestWrite,
    /// For a condition.
    LongestCondition,
}

/// How many there are.
const COUNTS: usize = 12;

/// Where a thread reports; its successors use the same one.
pub struct Post {
    thread: AtomicI32,
    doing: AtomicU32,
    since: AtomicU64,
    counts: [AtomicU64; COUNTS],
}

impl Post {
    fn new() -> Self {
        Post {
            thread: AtomicI32::new(0),
            doing: AtomicU32::new(Doing::Gone as u32),
            since: AtomicU64::new(0),
            counts: [const { AtomicU64::new(0) }; COUNTS],
        }
    }

    /// The kernel's number of the thread, 0 while there is none.
    pub fn thread(&self) -> i32 {
        self.thread.load(Relaxed)
    }

    fn is_gone(&self) -> bool {
        self.doing.load(Relaxed) == Doing::Gone as u32
    }

    /// A count as it is now.
    pub fn get(&self, count: Count) -> u64 {
        self.counts[count as usize].load(Relaxed)
    }

    /// Only the thread at the post writes, so this needs no read-modify-write. The fence of one would hide an order that
    /// the lock fails to create.
    fn set(&self, count: Count, value: u64) {
        self.counts[count as usize].store(value, Relaxed);
    }

    fn enter(&self, doing: Doing) -> u64 {
        let now = Native::now(Clock::Monotonic);
        self.since.store(now, Relaxed);
        self.doing.store(doing as u32, Relaxed);
        now
    }

    fn describe(&self, place: usize, now: u64) -> String {
        let thread = self.thread();
        let seconds = now.saturating_sub(self.since.load(Relaxed)) as f64 / 1e9;
        let doing = Doing::text(self.doing.load(Relaxed));
        let operations = self.get(Count::Operations);
        format!(
            "place {place:2} (thread {thread}) {doing} since {seconds:.1} s; {operations} operations; {}",
            kernel_state(thread)
        )
    }
}

/// What the kernel says about a thread.
fn kernel_state(thread: i32) -> String {
    let file = |name| std::fs::read_to_string(format!("/proc/self/task/{thread}/{name}")).unwrap_or_default();
    // "42 (name) S ...": the name may hold anything, so from behind.
    let stat = file("stat");
    let state = match stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()) {
        Some('R') => "runs",
        Some('S') => "sleeps",
        Some('D') => "sleeps uninterruptibly",
        Some('T' | 't') => "is stopped",
        _ => "is not there",
    };
    let call = file("syscall");
    let mut parts = call.split_whitespace();
    match (parts.next().and_then(|number| number.parse::<i64>().ok()), parts.next()) {
        (Some(libc::SYS_futex), Some(address)) => format!("{state} in futex({address})"),
        (Some(number), _) if number >= 0 => format!("{state} in system call {number}"),
        _ => state.to_owned(),
    }
}

/// What the threads of a run share, whatever they do.
pub struct Crew {
    posts: Vec<Post>,
    pub(crate) stop: AtomicBool,
    /// See [`jitter`](crate::jitter).
    pub(crate) abandoned: &'static AtomicBool,
    failure: std::sync::Mutex<Option<String>>,
    /// Threads that may still touch the lock, those on errands included.
    pub(crate) alive: AtomicUsize,
    /// Of these, on errands.
    errands: AtomicUsize,
    seeds: AtomicU64,
}

impl Crew {
    pub(crate) fn new(threads: usize, seed: u64) -> Self {
        Crew {
            posts: (0..threads).map(|_| Post::new()).collect(),
            stop: AtomicBool::new(false),
            // A word per run is left behind: threads of a stuck lock look at it for ever.
            abandoned: Box::leak(Box::default()),
            failure: std::sync::Mutex::new(None),
            alive: AtomicUsize::new(0),
            errands: AtomicUsize::new(0),
            seeds: AtomicU64::new(seed),
        }
    }

    /// Their reports.
    pub fn posts(&self) -> &[Post] {
        &self.posts
    }

    /// Whether every thread is to leave.
    pub fn is_over(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// A seed that no other thread gets.
    pub fn seed(&self) -> u64 {
        self.seeds.fetch_add(0x9E37_79B9_7F4A_7C15, Relaxed)
    }

    /// Ends the run. The first failure is the one that is reported.
    pub fn fail(&self, what: String) {
        self.failure.lock().unwrap().get_or_insert(what);
        self.stop.store(true, Relaxed);
    }

    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap().clone()
    }

    /// The sum of a count; of the longest waits, the longest.
    pub fn total(&self, count: Count) -> u64 {
        let values = self.posts.iter().map(|post| post.get(count));
        if count as usize >= Count::LongestRead as usize { values.max().unwrap_or(0) } else { values.sum() }
    }

    /// Threads that may still touch the lock.
    pub fn alive(&self) -> usize {
        self.alive.load(Acquire) // (A) pairs with the departures
    }

    /// The threads that have not left, the longest waiter first.
    pub(crate) fn dump(&self) -> Vec<String> {
        let now = Native::now(Clock::Monotonic);
        let mut present: Vec<_> = self.posts.iter().enumerate().filter(|(_, post)| !post.is_gone()).collect();
        present.sort_by_key(|(_, post)| post.since.load(Relaxed));
        let mut lines: Vec<_> = present.iter().map(|(place, post)| post.describe(*place, now)).collect();
        let errands = self.errands.load(Relaxed);
        if errands > 0 {
            lines.push(format!("{errands} threads on errands: they release what others acquired"));
        }
        lines
    }
}

/// The thread itself.
pub struct Worker {
    crew: Arc<Crew>,
    place: usize,
    /// Its chance.
    pub random: Random,
}

impl Worker {
    pub(crate) fn new(crew: Arc<Crew>, place: usize) -> Self {
        let seed = crew.seed();
        crate::jitter::take_part(seed, crew.abandoned, place == 0);
        let worker = Worker { crew, place, random: Random::new(seed) };
        // SAFETY: no arguments, no memory.
        worker.post().thread.store(unsafe { libc::gettid() }, Relaxed);
        worker.post().enter(Doing::Elsewhere);
        worker
    }

    pub(crate) fn leave(&self) {
        self.post().enter(Doing::Gone);
        self.post().thread.store(0, Relaxed);
    }

    /// Which of the run's threads this is.
    pub fn place(&self) -> usize {
        self.place
    }

    /// The run.
    pub fn crew(&self) -> &Arc<Crew> {
        &self.crew
    }

    fn post(&self) -> &Post {
        &self.crew.posts[self.place]
    }

    /// Says what it does now. Returns the time.
    pub fn doing(&self, doing: Doing) -> u64 {
        self.post().enter(doing)
    }

    /// Adds one.
    pub fn count(&self, count: Count) {
        self.post().set(count, self.post().get(count) + 1);
    }

    /// Notes how long an untimed wait took that began at `start`.
    pub fn waited(&self, count: Count, start: u64) {
        let nanos = Native::now(Clock::Monotonic).saturating_sub(start);
        if nanos > self.post().get(count) {
            self.post().set(count, nanos);
        }
    }

    /// Acquires the lock, and reports what the thread does.
    pub fn acquire(&self, lock: &dyn Lock, access: Access, way: Way) -> Option<Token> {
        let read = access != Access::Write;
        let start = self.doing(match way {
            Way::Wait | Way::WeakTryThenWait if read => Doing::WaitsToRead,
            Way::Wait | Way::WeakTryThenWait => Doing::WaitsToWrite,
            Way::Until(_) if read => Doing::WaitsToReadUntil,
            Way::Until(_) => Doing::WaitsToWriteUntil,
            Way::Try => Doing::Tries,
        });
        let token = lock.acquire(access, way);
        self.look_for_trespass("an acquisition");
        match (&token, way) {
            (Some(_), Way::Wait | Way::WeakTryThenWait) => {
                self.waited(if read { Count::LongestRead } else { Count::LongestWrite }, start);
            }
            (None, Way::Try) => self.count(Count::Refused),
            (None, _) => self.count(Count::TimedOut),
            _ => (),
        }
        if token.is_some() {
            self.count(if read { Count::Reads } else { Count::Writes });
            self.doing(if read { Doing::Reads } else { Doing::Writes });
        } else {
            self.doing(Doing::Elsewhere);
        }
        token
    }

    /// Releases the lock, and reports what the thread does.
    ///
    /// # Safety
    ///
    /// The token is from the acquisition of this lock that this ends.
    pub unsafe fn release(&self, lock: &dyn Lock, token: Token) {
        self.doing(Doing::Releases);
        // SAFETY: forwarded from the caller.
        unsafe { lock.release(token) };
        self.doing(Doing::Elsewhere);
        self.look_for_trespass("a release");
    }

    /// Releases the lock as [`release`](Worker::release) does, and leaves it to a waiter.
    ///
    /// # Safety
    ///
    /// The token is from the acquisition of this lock that this ends.
    pub unsafe fn release_fairly(&self, lock: &dyn Lock, token: Token) {
        self.doing(Doing::Releases);
        // SAFETY: forwarded from the caller.
        unsafe { lock.release_fairly(token) };
        self.doing(Doing::Elsewhere);
        self.look_for_trespass("a release");
    }

    /// Turns an acquisition into one of another kind, and reports what the thread does.
    ///
    /// # Safety
    ///
    /// The token is from an acquisition of this lock, of which the lock can make `to`.
    pub unsafe fn change(&self, lock: &dyn Lock, token: Token, to: Access, way: Way) -> Result<Token, Token> {
        self.doing(match (to, way) {
            (Access::Write, Way::Until(_)) => Doing::WaitsToWriteUntil,
            (Access::Write, Way::Try) => Doing::Tries,
            (Access::Write, _) => Doing::WaitsToWrite,
            _ => Doing::Releases,
        });
        // SAFETY: forwarded from the caller.
        let changed = unsafe { lock.change(token, to, way) };
        let writes = changed.is_ok() && to == Access::Write;
        if writes {
            self.count(Count::Writes);
        }
        self.doing(if writes { Doing::Writes } else { Doing::Reads });
        changed
    }

    fn look_for_trespass(&self, what: &str) {
        if let Some(offset) = arena::take_trespass() {
            self.crew.fail(format!(
                "use after free: {what} touched the lock, at byte {offset} of its memory, after another \
                 thread's release had returned, which was the last, and that thread had freed the lock"
            ));
        }
    }

    /// Has another thread do something, which need not be finished when this returns, but will be
    /// when the run ends.
    pub fn errand(&self, what: impl FnOnce() + Send + 'static) {
        let crew = Arc::clone(&self.crew);
        crew.alive.fetch_add(1, Relaxed);
        crew.errands.fetch_add(1, Relaxed);
        spawn(move || {
            crate::jitter::take_part(crew.seed(), crew.abandoned, false);
            what();
            crew.errands.fetch_sub(1, Relaxed);
            // (A) what was done happens before the books are looked at.
            crew.alive.fetch_sub(1, Release);
        });
    }

    /// What a section does in its middle: mostly next to nothing, sometimes it lets others run, now
    /// and then it is long, and once in a while it sleeps.
    pub fn dwell(&mut self) {
        if naps::nap(&mut self.random, 4) {
            return;
        }
        let chance = self.random.below(1024);
        match chance {
            0 => std::thread::sleep(Duration::from_micros(50 + self.random.below(450))),
            1 => std::thread::sleep(Duration::from_millis(1)),
            2..=9 => Native::pause(1000 + self.random.below(2000) as u32),
            10..=99 => std::thread::yield_now(),
            100..=399 => Native::pause(self.random.below(64) as u32),
            _ => (),
        }
    }

    /// What comes between two operations.
    pub fn rest(&mut self) {
        if naps::nap(&mut self.random, 2) {
            return;
        }
        match self.random.below(256) {
            0 => std::thread::sleep(Duration::from_micros(self.random.below(200))),
            1..=15 => std::thread::yield_now(),
            16..=127 => Native::pause(self.random.below(128) as u32),
            _ => (),
        }
    }

    /// A way to acquire: mostly to wait, but every other way often.
    pub fn way(&mut self) -> Way {
        match self.random.below(16) {
            0..=1 => Way::Try,
            2..=5 => Way::Until(self.deadline()),
            6..=8 => Way::WeakTryThenWait,
            _ => Way::Wait,
        }
    }

    /// A way to acquire for a thread that gives up often.
    pub fn impatient_way(&mut self) -> Way {
        if self.random.once_in(8) { self.way() } else { Way::Until(self.deadline()) }
    }

    /// Some have passed, most pass while queued, some are far.
    pub fn deadline(&mut self) -> latchwork::machine::Deadline {
        let nanos = match self.random.below(8) {
            0 => 0,
            1..=3 => self.random.below(20_000),
            4..=6 => self.random.below(500_000),
            _ => 20_000_000,
        };
        latchwork::machine::Deadline::after::<Native>(nanos)
    }
}

/// A thread with a small stack, as there may be thousands in a run.
pub(crate) fn spawn(body: impl FnOnce() + Send + 'static) {
    let builder = std::thread::Builder::new().stack_size(256 << 10);
    builder.spawn(body).expect("the system has no more threads: use fewer --threads");
}
