//! The stream of a thread's events, and the clock.

use super::super::clocks::{self, Moment, passed_since};
use super::{file, objects};
use crate::state::kernel;
use crate::state::memory::quietly;
use crate::state::table::Start;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::*, compiler_fence};
use latchwork::machine::native::tls::thread_local_word;
use latchwork::machine::{Clock, Machine, Native};
use latchwork_recording::trace::*;

/// Events of the present chunk that are left when a thread makes the next one.
const SOON: usize = 16;

/// Pairs of acquisition and release with which the recorder measures what it costs itself.
pub(super) const CALIBRATION: usize = 300;

/// What a thread needs to write its events. The calling thread is the only one that uses it.
pub(super) struct Stream {
    /// The thread's index in the file.
    thread: u32,
    /// The present chunk.
    chunk: &'static Chunk,
    /// Its events.
    events: &'static [[AtomicU64; 2]],
    /// How many of them are in use. If all are, the next event needs a new chunk.
    used: usize,
    /// The next chunk's index plus one; 0: it has not been made.
    next: u32,
    /// When the last event ended: ticks. 0: there was none.
    last: u64,
    /// The condition variable that the thread waits for, and since when, until it takes its mutex again; 0: none.
    pub(super) sleeps: (usize, u64),
    /// The index plus one of a thread that the thread could not create; 0: there is none.
    child: u32,
    /// Whether the thread is writing an event. A signal handler that interrupts it writes none.
    busy: bool,
}

/// What the library has for a thread of the file beside its record there.
#[repr(C)]
struct Own {
    stream: MaybeUninit<Stream>,
    task: Task,
}

/// What a new thread is to do. Zero bytes are nothing.
#[repr(C)]
pub(super) struct Task {
    pub(super) start: Option<Start>,
    pub(super) argument: *mut c_void,
}

/// An [`Own`] for each thread of the file, by its index. Each is used by one thread at a time: the one that has taken the index from
/// `new_thread`, and then the one that it creates. A page of it is there when its first thread uses it.
static OWN: AtomicPtr<Own> = AtomicPtr::new(null_mut());

/// Before a file is made: takes the memory for its threads. An error says what failed.
pub(super) fn prepare() -> Result<(), &'static str> {
    if OWN.load(Relaxed).is_null() {
        // SAFETY: a new mapping, which replaces nothing.
        let memory =
            unsafe { kernel::map(null_mut(), THREADS * size_of::<Own>(), libc::MAP_NORESERVE, None) };
        if memory == libc::MAP_FAILED {
            return Err("the limit on memory (ulimit -v) leaves no room for a trace");
        }
        OWN.store(memory.cast(), Relaxed);
    }
    Ok(())
}

/// The [`Own`] of the thread with this index, which is below [`THREADS`]. Only while a file is open.
fn own(index: u32) -> *mut Own {
    OWN.load(Relaxed).wrapping_add(index as usize)
}

/// The task of the thread with this index, as [`own`].
pub(super) fn task(index: u32) -> *mut Task {
    // SAFETY: `prepare` has mapped the element.
    unsafe { &raw mut (*own(index)).task }
}

thread_local_word! {
    /// Null until the thread has one; [`DENIED`] if it gets none.
    Current: *mut Stream = "trace_thread"
}

thread_local_word! {
    /// The stream of a thread that has begun and made no call yet.
    Entered: *mut Stream = "trace_entered"
}

/// In place of a thread's stream: it gets none.
const DENIED: *mut Stream = core::ptr::without_provenance_mut(1);

/// When events are written: from the first moment on, for so many ticks.
static BEGIN: AtomicU64 = AtomicU64::new(0);
/// See [`BEGIN`].
static LENGTH: AtomicU64 = AtomicU64::new(u64::MAX);
/// From so many ticks on the thread's CPU time is read.
static LONG: AtomicU64 = AtomicU64::new(u64::MAX);
/// Whether the time-stamp counter runs at one rate.
static COUNTER: AtomicBool = AtomicBool::new(false);

/// The clock: see [`latchwork_recording::trace`].
#[inline(always)]
pub(super) fn ticks() -> u64 {
    if COUNTER.load(Relaxed) { clocks::counter() } else { Native::now(Clock::Monotonic) }
}

/// How many ticks a millisecond has, measured from an earlier moment on both clocks on.
pub(super) fn ticks_per_ms(from: Moment) -> u64 {
    let Moment { ticks, nanos } = passed_since(from, self::ticks);
    // From one gigahertz to five.
    ((u128::from(ticks) * 1_000_000 / u128::from(nanos)) as u64).clamp(1_000_000, 5_000_000)
}

/// Chooses the clock, and returns from how many ticks on the CPU time is read.
pub(super) fn choose_clock() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::__cpuid;
        const ADVANCED: u32 = 0x8000_0007;
        // "Invariant TSC": the counter runs at one rate, whatever the processor's frequency, and does not stop.
        COUNTER.store(__cpuid(0x8000_0000).eax >= ADVANCED && __cpuid(ADVANCED).edx >> 8 & 1 == 1, Relaxed);
    }
    // 10 to 20 us, for counters of 2 to 4 GHz. A thread that is taken off its processor is away for longer, mostly; and
    // reading its CPU time costs 2% of that, at most.
    let long = if COUNTER.load(Relaxed) { 40_000 } else { 15_000 };
    LONG.store(long, Relaxed);
    long
}

/// Events are written from so many nanoseconds from now on, for so many. `u64::MAX`: for ever.
pub(super) fn set_window(ticks_per_ms: u64, delay_ms: u64, length_ms: u64) {
    BEGIN.store(ticks() + delay_ms * ticks_per_ms, Relaxed);
    LENGTH.store(if length_ms == 0 { u64::MAX } else { length_ms * ticks_per_ms }, Relaxed);
}

/// Whether events of this moment are written.
#[inline(always)]
fn in_window(now: u64) -> bool {
    let begin = BEGIN.load(Relaxed);
    now >= begin && now - begin <= LENGTH.load(Relaxed)
}

/// Counts an event for which the calling thread, or the object, has no record.
#[cold]
#[inline(never)]
pub(super) fn unknown() {
    if file::is_open() && in_window(ticks()) {
        file::header().unknown.fetch_add(1, Relaxed);
    }
}

/// The calling thread's stream. `None`: nothing is recorded, or the thread gets none; each of its events is [`unknown`].
#[inline(always)]
pub(super) fn current() -> Option<&'static mut Stream> {
    let stream = Current::get();
    if stream.addr() > DENIED.addr() && file::is_open() {
        // SAFETY: only this thread uses it. (A signal handler of the thread looks at `busy` first.)
        return Some(unsafe { &mut *stream });
    }
    make(stream)
}

#[cold]
#[inline(never)]
fn make(mut stream: *mut Stream) -> Option<&'static mut Stream> {
    // SAFETY: as in `current`. The event that a signal handler has interrupted would go on in another file.
    let may_leave = || stream.is_null() || stream != DENIED && unsafe { !(*stream).busy };
    if file::is_of_parent() && may_leave() {
        super::after_fork();
        stream = Current::get();
    }
    if stream == DENIED || !file::is_open() {
        return None;
    }
    // A signal handler of this thread finds the thread denied meanwhile.
    Current::set(DENIED);
    let (entered, start) = (Entered::get(), ticks());
    let made = quietly(|| {
        let made = if entered.is_null() { open(file::new_thread()?)? } else { entered };
        // SAFETY: as in `current`.
        let thread = file::thread(unsafe { (*made).thread });
        thread.depth.store(objects::capture(&thread.frames), Relaxed);
        thread.replaced.store(objects::replaced(), Relaxed);
        thread.state.store(1, Release);
        Some(made)
    });
    // SAFETY: as in `current`.
    let stream = unsafe { &mut *made? };
    if stream.last != 0 {
        stream.push(op::COST, NO_OBJECT, 0, pack(ticks() - start), 0);
    }
    Current::set(stream);
    Native::notice_exit();
    Some(stream)
}

/// Makes the calling thread's stream. `index`: its record, which no other thread has.
fn open(index: u32) -> Option<*mut Stream> {
    // The first one measures what the recorder costs: its events must lie in one chunk.
    let units = if file::has_no_chunk() { MOST_UNITS } else { 1 };
    let chunk = file::new_chunk(units)?;
    let events = file::events(chunk, units);
    let thread = file::thread(index);
    // SAFETY: the calls take nothing and always succeed.
    unsafe {
        thread.tid.store(libc::syscall(libc::SYS_gettid) as u32, Relaxed);
        thread.handle.store(libc::pthread_self() as u64, Relaxed);
    }
    thread.first.store(chunk + 1, Relaxed);
    let chunk = file::chunk(chunk);
    chunk.thread.store(index + 1, Relaxed);
    // SAFETY: `prepare` has mapped the element. The index is this thread's, so that no other thread has it.
    unsafe {
        let stream = (&raw mut (*own(index)).stream).cast::<Stream>();
        stream.write(Stream {
            thread: index,
            chunk,
            events,
            used: 0,
            next: 0,
            last: 0,
            sleeps: (0, 0),
            child: 0,
            busy: false,
        });
        Some(stream)
    }
}

/// The calling thread begins, and is about to run the function at this address. `index`: the record that its creator has taken for it.
pub(super) fn enter(index: u32, function: usize) {
    if !file::is_open() {
        return;
    }
    Current::set(DENIED);
    let entered = quietly(|| {
        let stream = open(index)?;
        let thread = file::thread(index);
        objects::only(&thread.frames, function);
        thread.depth.store(1, Relaxed);
        thread.replaced.store(objects::replaced(), Relaxed);
        thread.state.store(1, Release);
        Some(stream)
    });
    let Some(entered) = entered else { return };
    let now = ticks();
    if in_window(now) {
        // SAFETY: as in `current`.
        unsafe { &mut *entered }.begin(now);
    }
    Entered::set(entered);
    Current::set(null_mut());
    Native::notice_exit();
}

/// The calling thread has no stream any more, and may get another one.
pub(super) fn leave() {
    Current::set(null_mut());
    Entered::set(null_mut());
}

/// Runs when a thread exits. Destructors that run later may make lock calls: these are recorded all the same.
pub(super) fn exits() {
    let mut stream = Current::get();
    if stream.is_null() {
        // It has made no call.
        stream = Entered::get();
    }
    if stream.addr() > DENIED.addr() && file::is_open() {
        // SAFETY: as in `current`.
        unsafe { &mut *stream }.event(op::EXIT, NO_OBJECT, None);
    }
}

impl Stream {
    /// Writes an event that ends now. `since`: when the call began to wait.
    #[inline(always)]
    pub(super) fn event(&mut self, op: u32, object: u32, since: Option<u64>) {
        self.event_with(op, object, since, 0);
    }

    /// The index of a new thread that the calling thread is about to create. `None`: there is no room.
    pub(super) fn new_child(&mut self) -> Option<u32> {
        core::mem::take(&mut self.child).checked_sub(1).or_else(file::new_thread)
    }

    /// The thread was not created: the next one gets the index.
    pub(super) fn keep_child(&mut self, index: u32) {
        self.child = index + 1;
    }

    /// As [`event`](Self::event), with [`Event::more`].
    #[inline(always)]
    pub(super) fn event_with(&mut self, op: u32, object: u32, since: Option<u64>, more: u32) {
        let (now, begin) = (ticks(), BEGIN.load(Relaxed));
        if now < begin || now - begin > LENGTH.load(Relaxed) {
            return;
        }
        if core::mem::replace(&mut self.busy, true) {
            return self.drop_one();
        }
        compiler_fence(SeqCst);
        if self.last < begin {
            self.begin(since.unwrap_or(now).max(begin));
        }
        let since = since.unwrap_or(now).max(self.last);
        let (mut gap, wait) = (since - self.last, now.saturating_sub(since));
        let long = LONG.load(Relaxed);
        self.last = now;
        if gap.max(wait) < long {
            self.push(op, object, gap, pack(wait), more);
        } else {
            // The readings of the CPU time lie in the next gap, from which the reader of the file takes them: so the times of a
            // thread add up, and events of several threads can be put in order.
            if gap >= long {
                self.clock(gap);
                gap = 0;
            }
            self.push(op, object, gap, pack(wait), more);
            if wait >= long {
                self.clock(0);
            }
        }
        compiler_fence(SeqCst);
        self.busy = false;
    }

    /// The first event of the thread in the window.
    #[cold]
    fn begin(&mut self, now: u64) {
        file::thread(self.thread).started.store(now, Relaxed);
        self.clock(0);
        self.last = now;
    }

    /// Writes down how much CPU time the thread has had.
    #[cold]
    #[inline(never)]
    fn clock(&mut self, gap: u64) {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: there is room for the answer. The call fails for no clock that every kernel has.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
        let nanos = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
        // SAFETY: zero bytes are a value, and there is room for the answer.
        let usage = unsafe {
            let mut usage = core::mem::zeroed::<libc::rusage>();
            libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
            usage
        };
        let more = clock::pack(nanos, usage.ru_nvcsw as u64, usage.ru_nivcsw as u64);
        self.push(op::CLOCK, NO_OBJECT, gap, nanos as u32, more);
    }

    #[inline(always)]
    fn push(&mut self, op: u32, object: u32, gap: u64, wait: u32, more: u32) {
        if self.used == self.events.len() && !self.next_chunk() {
            return;
        }
        let what = op << OBJECT_BITS | object;
        let [first, second] = &self.events[self.used];
        first.store(u64::from(what) | u64::from(pack(gap)) << 32, Relaxed);
        second.store(u64::from(wait) | u64::from(more) << 32, Relaxed);
        self.used += 1;
        // (A) a reader that sees the number sees the event. The reader of a file in which a process still writes pairs with it.
        self.chunk.used.store(self.used as u32, Release);
    }

    /// Makes the next chunk, if it will be needed soon. The thread has just released a lock.
    #[inline(always)]
    pub(super) fn make_room(&mut self) {
        if self.used + SOON >= self.events.len() && self.next == 0 {
            self.make_chunk();
        }
    }

    /// A chunk of twice as many units as the present one.
    fn new_chunk(&self) -> Option<u32> {
        file::new_chunk((2 * self.chunk.units.load(Relaxed)).min(MOST_UNITS))
    }

    #[cold]
    #[inline(never)]
    fn make_chunk(&mut self) {
        if core::mem::replace(&mut self.busy, true) {
            return;
        }
        compiler_fence(SeqCst);
        let start = ticks();
        if let Some(index) = self.new_chunk() {
            self.next = index + 1;
            if self.used < self.events.len() {
                self.push(op::COST, NO_OBJECT, 0, pack(ticks() - start), 0);
            }
        }
        compiler_fence(SeqCst);
        self.busy = false;
    }

    #[cold]
    #[inline(never)]
    fn next_chunk(&mut self) -> bool {
        let start = ticks();
        let made = core::mem::take(&mut self.next).checked_sub(1);
        let late = made.is_none();
        let Some(index) = made.or_else(|| self.new_chunk()) else {
            self.drop_one();
            return false;
        };
        let chunk = file::chunk(index);
        chunk.thread.store(self.thread + 1, Relaxed);
        self.chunk.next.store(index + 1, Release);
        self.chunk = chunk;
        self.events = file::events(index, chunk.units.load(Relaxed));
        self.used = 0;
        if late {
            self.push(op::COST, NO_OBJECT, 0, pack(ticks() - start), 0);
        }
        true
    }

    #[cold]
    fn drop_one(&self) {
        file::thread(self.thread).dropped.fetch_add(1, Relaxed);
    }

    /// What one reading of the CPU time takes, in ticks: the median of some.
    pub(super) fn clock_cost(&mut self) -> u32 {
        let mut costs = [0; 9];
        for cost in &mut costs {
            let start = ticks();
            self.clock(0);
            *cost = ticks() - start;
        }
        costs.sort_unstable();
        pack(costs[costs.len() / 2])
    }

    /// The mean hold, the mean gap and the mean release of the calling thread's events, which are pairs of acquisition and
    /// release of one object, in ticks. Forgets the events, the thread and the object.
    ///
    /// Means, because the counter may advance by more than what is measured.
    pub(super) fn calibrated(&mut self) -> [u32; 3] {
        let mean = |wanted: u32, of: fn(u64, u64) -> u32| {
            let mut ticks = [0; CALIBRATION];
            let mut count = 0;
            for [first, second] in &self.events[..self.used] {
                let (first, second) = (first.load(Relaxed), second.load(Relaxed));
                let op = (first as u32) >> OBJECT_BITS;
                if !matches!(op, op::CLOCK | op::COST) {
                    file::object(first as u32 & NO_OBJECT).state.store(0, Relaxed);
                }
                if op == wanted && count < CALIBRATION {
                    ticks[count] = of(first, second);
                    count += 1;
                }
            }
            let ticks = &mut ticks[..count];
            ticks.sort_unstable();
            // Without those in which the thread was interrupted, or met a line or a page for the first time.
            let most = ticks.get(count * 9 / 10).copied().unwrap_or(0).saturating_mul(2);
            let usual = ticks.iter().filter(|ticks| **ticks <= most);
            let (sum, count) = usual.fold((0, 0), |(sum, count), ticks| (sum + u64::from(*ticks), count + 1));
            (sum / u64::max(count, 1)) as u32
        };
        let gap = |first: u64, _: u64| (first >> 32) as u32;
        let wait = |_: u64, second: u64| second as u32;
        let result = [mean(op::RELEASE, gap), mean(op::ACQUIRE, gap), mean(op::RELEASE, wait)];
        self.chunk.used.store(0, Relaxed);
        file::thread(self.thread).state.store(0, Relaxed);
        leave();
        result
    }
}
