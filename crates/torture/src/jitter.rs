//! A machine on which a thread can be held up between any two steps of a lock.
//!
//! [`Jitter`] is the native machine with a small random delay before its operations: mostly none, sometimes a few spins,
//! now and then a yield or a sleep. A real thread is preempted between two given instructions once in a million times. Here
//! the two are a millisecond apart once in a while, so races show in seconds. The torture also runs on the native machine,
//! because code on this machine is not what the compiler makes of the lock in production.
//!
//! The machine can also break one of its promises ([`Flaw`]). A lock that relies on the promise must then fail in a way
//! that the torture notices.

use latchwork::machine::record::{Clocks, Record, Records};
use latchwork::machine::{Arith, Clock, Deadline, Group, Machine, Native, QNode, ReaderRow, Wait, Word};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Numbers for the promises that a [`Jitter`] can break.
pub struct Flaw;

impl Flaw {
    /// None.
    pub const NONE: u8 = 0;
    /// One wake in four wakes no thread.
    pub const DROPPED_WAKE: u8 = 1;
    /// `wait` compares the word and goes to sleep in two steps.
    pub const SLEEPS_UNSEEN: u8 = 2;
    /// A load of a slot in the table of visible readers sees no reader.
    pub const BLIND_SCAN: u8 = 3;
    /// A thread's queue node is allocated again at once, even if other threads still read it.
    pub const NODE_REUSED: u8 = 4;
    /// A scan of the threads' records does not see the record of one reading thread.
    pub const SKIPS_READER: u8 = 5;
    /// A store to a pointer-sized word is seen by others only with the thread's next access to one, and no
    /// heavy fence makes it so.
    pub const STORE_BUFFERED: u8 = 6;
    /// A release of a lock does not look whether a thread waits.
    pub const BLIND_RELEASE: u8 = 7;
}

/// The native machine, with delays, and the promise `FLAW` broken.
#[derive(Copy, Clone, Debug)]
pub struct Jitter<const FLAW: u8 = { Flaw::NONE }>;

/// Offers of the processor by a spinning thread before it naps.
const OFFERS: u32 = 1000;
/// Nanoseconds of a spinning thread's nap.
const SPINNERS_NAP: u64 = 50_000;

/// The deadline of a sleep that ends by itself only if a release of its word was torn, so that other lost wakeups show.
const WHEN_TORN: Deadline = Deadline { clock: Clock::Monotonic, nanos: u64::MAX };
/// Nanoseconds after which such a sleeper looks whether one was.
const TORN_LOOK: u64 = 1_000_000;
/// How many threads went to sleep at words with that deadline, how many releases of words were torn, and how many wakes there were.
/// Words share counters.
static SLEEPS: [AtomicU32; 256] = [const { AtomicU32::new(0) }; 256];
static TORN: [AtomicU32; 256] = [const { AtomicU32::new(0) }; 256];
static WAKES: [AtomicU32; 256] = [const { AtomicU32::new(0) }; 256];

/// The word's counter among `counters`.
fn counter(counters: &[AtomicU32; 256], address: usize) -> &AtomicU32 {
    &counters[address / 8 % 256]
}

/// Sleeps until a wake, or until a release of the word is torn. That the word has changed does not end the sleep.
fn wait_until_torn(word: &AtomicU32, mut expected: u32) -> Wait {
    let address = std::ptr::from_ref(word).addr();
    let counts = || [&TORN, &WAKES].map(|counters| counter(counters, address).load(Ordering::SeqCst));
    let [torn, wakes] = counts();
    counter(&SLEEPS, address).fetch_add(1, Ordering::SeqCst);
    loop {
        leave_if_abandoned();
        let end = Deadline::after::<Native>(TORN_LOOK);
        let outcome = Native::wait(word, expected, Some(end));
        let [torn_now, wakes_now] = counts();
        if outcome == Wait::Woken || wakes != wakes_now {
            return Wait::Woken;
        }
        if torn != torn_now {
            return Wait::TimedOut;
        }
        expected = word.load(Ordering::Relaxed);
    }
}

thread_local! {
    /// State of the random delays; 0 for threads that do not take part.
    static CHANCE: Cell<u64> = const { Cell::new(0) };
    /// When this is set, a spinning thread goes to sleep for ever.
    static ABANDONED: Cell<Option<&'static AtomicBool>> = const { Cell::new(None) };
    /// What this thread does before some of its steps in place of the delays.
    static PREEMPTS: Cell<Option<fn(u64)>> = const { Cell::new(None) };
    /// Whether this is the thread that [`Flaw::SKIPS_READER`] is about.
    static SKIPPED: Cell<bool> = const { Cell::new(false) };
}

/// Delays the calling thread from now on. The thread stops spinning once `abandoned` is set, because threads of a stuck
/// lock must not take the processors away from later runs. `skipped`: the thread is the one that
/// [`Flaw::SKIPS_READER`] is about.
pub(crate) fn take_part(seed: u64, abandoned: &'static AtomicBool, skipped: bool) {
    CHANCE.set(seed | 1);
    ABANDONED.set(Some(abandoned));
    SKIPPED.set(skipped);
}

/// From now on the calling thread is not delayed. Instead it calls `preempt`, with a random number, before one in four of
/// its steps: a thread that this wakes preempts the caller there.
pub(crate) fn preempt_with(preempt: fn(u64)) {
    PREEMPTS.set(Some(preempt));
}

fn chance() -> u64 {
    let mut x = CHANCE.get();
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    CHANCE.set(x);
    x.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32
}

/// Delays the calling thread between two steps, with a small probability.
#[inline(never)]
fn shake() {
    let x = chance();
    if x == 0 {
        return; // not one of ours
    }
    if let Some(preempt) = PREEMPTS.get() {
        if x.is_multiple_of(4) {
            preempt(x / 4);
        }
        return;
    }
    if x.is_multiple_of(16384) {
        std::thread::sleep(Duration::from_micros(20 + x % 128));
    } else if x.is_multiple_of(512) {
        std::thread::yield_now();
    } else if x.is_multiple_of(16) {
        Native::pause(x as u32 / 16 % 64);
    }
}

/// Before a step that is a system call anyway, and rare: there are few of them, and much depends on
/// what happens in between.
fn shake_well() {
    shake();
    let x = chance();
    if x != 0 && x.is_multiple_of(32) && PREEMPTS.get().is_none() {
        std::thread::sleep(Duration::from_micros(x / 32 % 512));
    }
}

fn leave_if_abandoned() {
    if ABANDONED.get().is_some_and(|abandoned| abandoned.load(Ordering::Relaxed)) {
        loop {
            // SAFETY: sleeps until a signal; no memory is involved.
            unsafe { libc::pause() };
        }
    }
}

/// A word of the native machine, with a delay before each access.
#[repr(transparent)]
pub struct Shaken<A>(A);

impl<T: Copy, A: Word<T>> Word<T> for Shaken<A> {
    fn new(value: T) -> Self {
        Shaken(A::new(value))
    }
    fn load(&self, order: Ordering) -> T {
        shake();
        self.0.load(order)
    }
    fn store(&self, value: T, order: Ordering) {
        shake();
        self.0.store(value, order);
    }
    fn swap(&self, value: T, order: Ordering) -> T {
        shake();
        self.0.swap(value, order)
    }
    fn compare_exchange(&self, current: T, new: T, ok: Ordering, err: Ordering) -> Result<T, T> {
        shake();
        self.0.compare_exchange(current, new, ok, err)
    }
}

impl<T: Copy, A: Arith<T>> Arith<T> for Shaken<A> {
    fn fetch_add(&self, value: T, order: Ordering) -> T {
        shake();
        self.0.fetch_add(value, order)
    }
    fn fetch_sub(&self, value: T, order: Ordering) -> T {
        shake();
        self.0.fetch_sub(value, order)
    }
    fn fetch_or(&self, value: T, order: Ordering) -> T {
        shake();
        self.0.fetch_or(value, order)
    }
    fn fetch_and(&self, value: T, order: Ordering) -> T {
        shake();
        self.0.fetch_and(value, order)
    }
}

thread_local! {
    /// A store that no other thread sees yet.
    static BUFFER: Cell<Option<(*const AtomicUsize, usize)>> = const { Cell::new(None) };
}

/// Makes the buffered store visible to other threads.
fn flush<const FLAW: u8>() {
    if FLAW == Flaw::STORE_BUFFERED
        && let Some((word, value)) = BUFFER.take()
    {
        // SAFETY: the words that hold addresses are in records and in domains; both are there for as long
        // as the thread uses them.
        unsafe { (*word).store(value, Ordering::Release) };
    }
}

/// A pointer-sized word: what the table of visible readers is made of.
#[repr(transparent)]
pub struct Slot<const FLAW: u8>(Shaken<AtomicUsize>);

impl<const FLAW: u8> Word<usize> for Slot<FLAW> {
    fn new(value: usize) -> Self {
        Slot(Shaken::new(value))
    }
    fn load(&self, order: Ordering) -> usize {
        flush::<FLAW>();
        // Shaken less: a scan reads thousands of them.
        let value = self.0.0.load(order);
        if FLAW == Flaw::BLIND_SCAN { 0 } else { value }
    }
    fn store(&self, value: usize, order: Ordering) {
        flush::<FLAW>();
        // Addresses only: what is still buffered when a thread exits is lost.
        if FLAW == Flaw::STORE_BUFFERED && value > 0xffff {
            return BUFFER.set(Some((&raw const self.0.0, value)));
        }
        self.0.store(value, order);
    }
    fn swap(&self, value: usize, order: Ordering) -> usize {
        flush::<FLAW>();
        self.0.swap(value, order)
    }
    fn compare_exchange(
        &self,
        current: usize,
        new: usize,
        ok: Ordering,
        err: Ordering,
    ) -> Result<usize, usize> {
        self.0.compare_exchange(current, new, ok, err)
    }
}

impl<const FLAW: u8> Arith<usize> for Slot<FLAW> {
    fn fetch_add(&self, value: usize, order: Ordering) -> usize {
        self.0.fetch_add(value, order)
    }
    fn fetch_sub(&self, value: usize, order: Ordering) -> usize {
        self.0.fetch_sub(value, order)
    }
    fn fetch_or(&self, value: usize, order: Ordering) -> usize {
        self.0.fetch_or(value, order)
    }
    fn fetch_and(&self, value: usize, order: Ordering) -> usize {
        self.0.fetch_and(value, order)
    }
}

// SAFETY: with FLAW none, every operation is the native machine's, which keeps the promises; delays
// before them change nothing. With another flaw it is unsafe on purpose, and what a lock over it
// protects is only accessed volatilely. Nodes and rows have the same layout on both machines: they are
// `repr(C)`, and `Shaken` and `Slot` are transparent.
unsafe impl<const FLAW: u8> Machine for Jitter<FLAW> {
    type U8 = Shaken<AtomicU8>;
    type U32 = Shaken<AtomicU32>;
    type U64 = Shaken<AtomicU64>;
    type Usize = Slot<FLAW>;
    type Ptr<T: Send + Sync + 'static> = Shaken<AtomicPtr<T>>;

    fn spin_until<T: Copy, W: Word<T>>(word: &W, order: Ordering, mut done: impl FnMut(T) -> bool) -> T {
        // The native machine naps after more offers. Here the looks take longer.
        for _ in 0..OFFERS {
            if let Some(value) = Self::spin_for(word, order, 64, &mut done) {
                return value;
            }
            Self::yield_now();
        }
        loop {
            if let Some(value) = Self::spin_for(word, order, 64, &mut done) {
                return value;
            }
            Self::doze(SPINNERS_NAP);
        }
    }

    fn spin_for<T: Copy, W: Word<T>>(
        word: &W,
        order: Ordering,
        spins: u32,
        mut done: impl FnMut(T) -> bool,
    ) -> Option<T> {
        leave_if_abandoned();
        for _ in 0..spins {
            let value = word.load(order);
            if done(value) {
                return Some(value);
            }
            std::hint::spin_loop();
        }
        None
    }

    fn hints(nanos: u32) -> u32 {
        Native::hints(nanos)
    }

    fn pause(spins: u32) {
        leave_if_abandoned();
        Native::pause(spins);
    }

    fn yield_now() {
        leave_if_abandoned();
        Native::yield_now();
    }

    fn wait(word: &Self::U32, expected: u32, deadline: Option<Deadline>) -> Wait {
        shake_well();
        let word = &word.0;
        if FLAW == Flaw::SLEEPS_UNSEEN {
            if word.load(Ordering::Relaxed) != expected {
                return Wait::Woken;
            }
            // The gap that the futex does not have, wide enough that a wake falls into it.
            if chance().is_multiple_of(2) {
                std::thread::sleep(Duration::from_micros(200));
            }
            return Native::wait(word, word.load(Ordering::Relaxed), deadline);
        }
        if deadline == Some(WHEN_TORN) {
            return wait_until_torn(word, expected);
        }
        Native::wait(word, expected, deadline)
    }

    fn wake(word: *const Self::U32, count: u32) -> usize {
        shake_well();
        if FLAW == Flaw::DROPPED_WAKE && chance().is_multiple_of(4) {
            return 0;
        }
        counter(&WAKES, word.addr()).fetch_add(1, Ordering::SeqCst);
        Native::wake(word.cast(), count)
    }

    fn is_real_time() -> bool {
        Native::is_real_time()
    }

    fn requeue(from: *const Self::U32, expected: u32, to: &Self::U32) {
        shake_well();
        Native::requeue(from.cast(), expected, &to.0);
    }

    fn light_fence() {
        Native::light_fence();
    }

    fn heavy_fence() -> bool {
        shake_well();
        Native::heavy_fence()
    }

    fn full_fence() {
        Native::full_fence();
    }

    fn prepare_fences() -> bool {
        Native::prepare_fences()
    }

    fn acquire_swap(word: &Self::U32, value: u32) -> u32 {
        shake();
        Native::acquire_swap(&word.0, value)
    }

    /// The steps of the native machine. The release is torn if a thread goes to sleep between the look and the store.
    fn release_if(queue: &Self::Ptr<QNode<Self>>, word: &Self::U32, expected: u32) -> bool {
        let address = std::ptr::from_ref(word).addr(); // the lock may be gone after the store
        let sleeps = || counter(&SLEEPS, address).load(Ordering::SeqCst);
        let mut before = sleeps();
        let is_empty = FLAW == Flaw::BLIND_RELEASE || queue.load(Ordering::Relaxed).is_null();
        if !is_empty {
            before = sleeps();
            if word.load(Ordering::Relaxed) != expected {
                return false;
            }
        }
        // An exchange, so that it comes before the look at the counter.
        word.swap(0, Ordering::Release);
        if sleeps() != before {
            counter(&TORN, address).fetch_add(1, Ordering::SeqCst);
        }
        true
    }

    fn torn_timeout(_nanos: u64) -> Option<Deadline> {
        Some(WHEN_TORN)
    }

    fn now(clock: Clock) -> u64 {
        Native::now(clock)
    }

    fn thread_id() -> usize {
        Native::thread_id()
    }

    // Two nodes, whatever the machine has, so that queues are shuffled; threads change theirs with
    // the processor, as they do on a real one.
    fn numa_node() -> u32 {
        // SAFETY: no arguments, no memory.
        (unsafe { libc::sched_getcpu() }) as u32 % 2
    }

    fn numa_nodes() -> u32 {
        2
    }

    fn acquire_node() -> &'static QNode<Self> {
        thread_local! {
            static OWN: Cell<Option<&'static QNode<Native>>> = const { Cell::new(None) };
        }
        let node = if FLAW == Flaw::NODE_REUSED {
            OWN.get().unwrap_or_else(|| {
                let node = Native::acquire_node();
                OWN.set(Some(node));
                node
            })
        } else {
            Native::acquire_node()
        };
        // SAFETY: the layouts are the same, see above.
        unsafe { &*core::ptr::from_ref(node).cast::<QNode<Self>>() }
    }

    unsafe fn release_node(node: &'static QNode<Self>) {
        shake();
        if FLAW != Flaw::NODE_REUSED {
            // SAFETY: it came from `Native::acquire_node`; the rest is forwarded from the caller.
            unsafe { Native::release_node(&*core::ptr::from_ref(node).cast::<QNode<Native>>()) };
        }
    }

    unsafe fn visible_readers() -> &'static [Self::Usize] {
        // SAFETY: forwarded from the caller.
        let table = unsafe { Native::visible_readers() };
        // SAFETY: `Slot` and `Shaken` are transparent around the native word.
        unsafe { std::slice::from_raw_parts(table.as_ptr().cast(), table.len()) }
    }

    unsafe fn waiting_array() -> &'static [QNode<Self>] {
        // SAFETY: forwarded from the caller.
        let array = unsafe { Native::waiting_array() };
        // SAFETY: the layouts are the same, see above.
        unsafe { std::slice::from_raw_parts(array.as_ptr().cast(), array.len()) }
    }

    unsafe fn reader_row() -> Option<&'static ReaderRow<Self>> {
        // SAFETY: forwarded from the caller.
        unsafe { Native::reader_row() }.map(same_row)
    }

    unsafe fn reader_rows() -> Option<&'static Group<Self, ReaderRow<Self>>> {
        // SAFETY: forwarded from the caller.
        let newest = unsafe { Native::reader_rows() };
        // SAFETY: as in `same_row`; `Group` is `repr(C)` as well.
        newest.map(|group| unsafe { &*core::ptr::from_ref(group).cast() })
    }

    /// None: a lost wakeup must show.
    fn safety_timeout(_nanos: u64) -> Option<Deadline> {
        None
    }

    fn doze(nanos: u64) {
        leave_if_abandoned();
        Native::doze(nanos);
    }
}

// SAFETY: the native machine's records, which keep the promises; with a flaw it is unsafe on purpose.
unsafe impl<const FLAW: u8> Records for Jitter<FLAW> {
    unsafe fn record() -> &'static Record<Self> {
        // SAFETY: forwarded from the caller.
        let record = same_record(unsafe { Native::record() });
        if FLAW == Flaw::SKIPS_READER && SKIPPED.get() { unlinked(record) } else { record }
    }

    unsafe fn records() -> Option<&'static Group<Self, Record<Self>>> {
        // SAFETY: forwarded from the caller.
        let newest = unsafe { Native::records() };
        // SAFETY: as in `same_record`; `Group` is `repr(C)` as well.
        newest.map(|group| unsafe { &*core::ptr::from_ref(group).cast() })
    }

    unsafe fn clocks() -> &'static Clocks<Self> {
        // SAFETY: `Clocks` is `repr(C)`, and `Shaken` is transparent around native words.
        unsafe { &*core::ptr::from_ref(Native::clocks()).cast() }
    }

    fn generation() -> u32 {
        Native::generation()
    }
}

/// A record of the calling thread that no scan finds, in place of the thread's own record.
fn unlinked<const FLAW: u8>(own: &'static Record<Jitter<FLAW>>) -> &'static Record<Jitter<FLAW>> {
    thread_local! {
        static UNLINKED: Cell<Option<&'static Record<Native>>> = const { Cell::new(None) };
    }
    let record = UNLINKED.get().unwrap_or_else(|| {
        // Left behind when the thread exits; there are not many of these threads.
        let new: &Record<Native> = Box::leak(Box::default());
        for (word, own) in
            [(&new.section, &own.section), (&new.online, &own.online), (&new.pinned, &own.pinned)]
        {
            word.store(own.0.load(Ordering::Relaxed), Ordering::Relaxed); // with or without light fences
        }
        UNLINKED.set(Some(new));
        new
    });
    same_record(record)
}

fn same_record<const FLAW: u8>(record: &'static Record<Native>) -> &'static Record<Jitter<FLAW>> {
    // SAFETY: `Record` is `repr(C)`, and `Slot` and `Shaken` are transparent around native words.
    unsafe { &*core::ptr::from_ref(record).cast() }
}

fn same_row<const FLAW: u8>(row: &'static ReaderRow<Native>) -> &'static ReaderRow<Jitter<FLAW>> {
    // SAFETY: `ReaderRow` is `repr(C)`, and `Slot` and `Shaken` are transparent around native words.
    unsafe { &*core::ptr::from_ref(row).cast() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use latchwork::locks::mutex::RawMutex;
    use latchwork::locks::mutex::shfl::RawShfl;

    const _: () = assert!(size_of::<QNode<Jitter>>() == size_of::<QNode<Native>>());
    const _: () = assert!(size_of::<ReaderRow<Jitter>>() == size_of::<ReaderRow<Native>>());
    const _: () = assert!(size_of::<Record<Jitter>>() == size_of::<Record<Native>>());
    const _: () =
        assert!(size_of::<Group<Jitter, Record<Jitter>>>() == size_of::<Group<Native, Record<Native>>>());
    const _: () = assert!(size_of::<RawShfl<Jitter>>() == size_of::<RawShfl<Native>>());

    #[test]
    fn its_flaws_are_where_they_are_said_to_be() {
        static NEVER: AtomicBool = AtomicBool::new(false);
        let slot = Slot::<{ Flaw::BLIND_SCAN }>::new(7);
        assert_eq!(slot.load(Ordering::SeqCst), 0);
        assert_eq!(Slot::<{ Flaw::NONE }>::new(7).load(Ordering::SeqCst), 7);

        type Reuses = Jitter<{ Flaw::NODE_REUSED }>;
        assert!(std::ptr::eq(Reuses::acquire_node(), Reuses::acquire_node()));
        assert!(!std::ptr::eq(<Jitter>::acquire_node(), <Jitter>::acquire_node()));

        type Skips = Jitter<{ Flaw::SKIPS_READER }>;
        let is_seen = || {
            // SAFETY: they are only compared.
            let (own, newest) = unsafe { (std::ptr::from_ref(Skips::record()), Skips::records()) };
            newest.is_some_and(|newest| newest.owned().any(|record| std::ptr::eq(record, own)))
        };
        assert!(is_seen());
        take_part(1, &NEVER, true);
        assert!(!is_seen());
        // SAFETY: the records are only compared, not read.
        assert!(unsafe { std::ptr::eq(Skips::record(), Skips::record()) });

        let lock = RawShfl::<Jitter>::new_in();
        lock.lock();
        assert!(lock.try_lock().is_none());
        // SAFETY: acquired above.
        unsafe { lock.unlock(()) };
        assert!(!lock.is_locked());
    }
}
