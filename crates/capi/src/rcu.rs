//! RCU, epochs and quiescent-state-based RCU.
//!
//! The domains of C have no limit of garbage unless the program sets one ([`stalls`](crate::stalls)), so retiring never waits: a
//! program may retire while it holds a lock that a reader wants in its section. What C retires is a [`Head`] in the object, or one in a box of its own.
//!
//! A callback may wait for a grace period, unless its own thread would be in the way: that ends the process ([`synchronize`],
//! [`thread::reader_at_rest`]). Grace periods that C waits for are those of a domain without garbage
//! ([`Flavoured::waiting`]), which runs no callbacks.

use crate::boxed::Boxed;
use crate::probe::probe;
use crate::{same_layout, thread};
use latchwork::Mutex;
use latchwork::machine::record::{NEEDS_FULL_FENCE, NESTING};
use latchwork::machine::{Machine, Native, Records};
use latchwork::reclaim::domain::{Cookie, Domain, Flavour};
use latchwork::reclaim::epoch::Epoch;
use latchwork::reclaim::qsbr::Qsbr;
use latchwork::reclaim::rcu::{self, General};
use latchwork::reclaim::{Header, Limit, Reader, Reclaim, Retire};
use libc::ENOMEM;
use std::alloc::{Layout, alloc};
use std::collections::HashSet;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::*};

/// `lw_rcu_head`.
#[repr(C)]
pub(crate) struct Head {
    header: Header,
    callback: Callback<Head>,
}

/// `lw_rcu_callback`.
pub(crate) type Callback<H> = unsafe extern "C" fn(*mut H);

same_layout!(Head, 32, 8);

// SAFETY: `repr(C)`, and the header comes first. The callback ends the object's life: so C promises.
unsafe impl Retire for Head {
    unsafe fn reclaim(this: *mut Self) {
        thread::lw_tsan_acquire(thread::clocks().cast());
        thread::lw_tsan_acquire(this.cast());
        is_reclaimed(this);
        // SAFETY: no thread uses the object, and this is called once, says the caller.
        thread::run_callback(|| unsafe { ((*this).callback)(this) });
        // For the thread that waits for it in a barrier.
        thread::lw_tsan_release(thread::clocks().cast());
    }
}

/// A flavour, with the domains that the process has.
pub(crate) trait Flavoured: Flavour {
    /// The domain that null stands for.
    fn default_domain() -> &'static AtomicPtr<Domain<Native, Self>>;
    /// C waits for the grace periods of this domain, which never has garbage.
    fn waiting_domain() -> &'static AtomicPtr<Domain<Native, Self>>;

    fn waiting() -> &'static Domain<Native, Self> {
        once(Self::waiting_domain())
    }

    /// Waits for a domain's reclamation.
    fn barrier(domain: &Domain<Native, Self>) {
        domain.barrier();
    }

    /// Does what waits for readers of this flavour, for the function `name`.
    fn wait(_name: &str, work: impl FnOnce()) {
        work();
    }
}

macro_rules! flavoured {
    ($flavour:ty { $($more:tt)* }) => {
        impl Flavoured for $flavour {
            fn default_domain() -> &'static AtomicPtr<Domain<Native, Self>> {
                static DOMAIN: AtomicPtr<Domain<Native, $flavour>> = AtomicPtr::new(null_mut());
                &DOMAIN
            }
            fn waiting_domain() -> &'static AtomicPtr<Domain<Native, Self>> {
                static DOMAIN: AtomicPtr<Domain<Native, $flavour>> = AtomicPtr::new(null_mut());
                &DOMAIN
            }
            $($more)*
        }
    };
}
flavoured!(General {
    fn barrier(domain: &Domain<Native, Self>) {
        domain.barrier_anywhere();
    }
});
flavoured!(Epoch {});
flavoured!(Qsbr {
    fn wait(name: &str, work: impl FnOnce()) {
        offline(name, work);
    }
});

/// A domain in which retiring never waits.
fn domain<F: Flavour>() -> Domain<Native, F> {
    let domain = Domain::new_in();
    domain.set_limit(Limit { objects: u64::MAX, bytes: u64::MAX });
    domain
}

/// The domain in `place`, which the first thread makes. It lives for ever.
fn once<F: Flavour>(place: &'static AtomicPtr<Domain<Native, F>>) -> &'static Domain<Native, F> {
    // (A) pairs with the exchange below. SAFETY: the domain that is stored there is never freed.
    if let Some(domain) = unsafe { place.load(Acquire).as_ref() } {
        return domain;
    }
    let new = Box::into_raw(Box::new(domain()));
    match place.compare_exchange(null_mut(), new, AcqRel, Acquire) {
        // SAFETY: made above, and leaked.
        Ok(_) => unsafe { &*new },
        Err(first) => {
            // SAFETY: `new` was made above, and no other thread has it. `first` is leaked by another thread.
            unsafe {
                drop(Box::from_raw(new));
                &*first
            }
        }
    }
}

/// The domain that C means.
///
/// # Safety
///
/// The pointer is null, or to a live domain.
pub(crate) unsafe fn at<'a, F: Flavoured>(domain: *const Domain<Native, F>) -> &'a Domain<Native, F> {
    // SAFETY: the caller's pointer is null or to a live domain.
    unsafe { domain.as_ref() }.unwrap_or_else(|| once(F::default_domain()))
}

/// # Safety
///
/// As `lw_rcu_call`.
unsafe fn call<F: Flavoured>(domain: *const Domain<Native, F>, head: *mut Head, callback: Callback<Head>) {
    thread::record(); // before the domain asks for it: see there
    // SAFETY: the program passes room for a head in an object that it has removed, and retires it once.
    unsafe {
        head.write(Head { header: Header::new(), callback });
        thread::lw_tsan_release(head.cast());
        at(domain).retire(head);
    }
}

unsafe extern "C-unwind" fn reclaim(header: *mut Header) {
    // SAFETY: `lw_rcu_call_ordered` put this function into the header of a `Head`, and this is called once.
    unsafe { Head::reclaim(header.cast()) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_rcu_call_ordered(
    domain: *const Domain<Native, General>,
    head: *mut Head,
    callback: Callback<Head>,
) {
    thread::record(); // before the domain asks for it: see there
    // SAFETY: as `call`.
    unsafe {
        head.write(Head { header: Header::new(), callback });
        thread::lw_tsan_release(head.cast());
        at(domain).retire_ordered(head.cast(), size_of::<Head>() as u32, reclaim);
    }
}

/// # Safety
///
/// As `lw_rcu_retire`.
unsafe fn retire<F: Flavoured>(
    domain: *const Domain<Native, F>,
    object: *mut c_void,
    reclaim: unsafe extern "C" fn(*mut c_void),
) -> c_int {
    thread::record(); // before the domain asks for it: see there
    let Some(head) = Boxed::<Head>::allocate(object, reclaim) else { return ENOMEM };
    // SAFETY: the head is in the box. The program has removed the object, and retires it once.
    unsafe {
        head.write(Head { header: Header::new(), callback: Boxed::<Head>::reclaim });
        thread::lw_tsan_release(head.cast());
        at(domain).retire(head);
    }
    0
}

/// Objects that were retired in programs with debug checks, and are not reclaimed: the addresses of their heads.
static RETIRED: Mutex<Option<HashSet<usize>>> = Mutex::new(None);
/// Whether [`RETIRED`] has ever been used.
static CHECKS: AtomicBool = AtomicBool::new(false);

/// Takes an object that is being reclaimed out of [`RETIRED`].
pub(crate) fn is_reclaimed<H>(head: *mut H) {
    if CHECKS.load(Relaxed) {
        RETIRED.lock().as_mut().map(|retired| retired.remove(&head.addr()));
    }
}

#[unsafe(no_mangle)]
extern "C" fn lw_rcu_is_first_retirement(head: *const Head) -> c_int {
    CHECKS.store(true, Relaxed);
    c_int::from(RETIRED.lock().get_or_insert_default().insert(head.addr()))
}

/// `lw_garbage`.
#[repr(C)]
pub(crate) struct CGarbage {
    objects: u64,
    bytes: u64,
    oldest_nanos: u64,
}

impl CGarbage {
    pub(crate) fn new(objects: u64, bytes: u64, oldest_nanos: u64) -> Self {
        CGarbage { objects, bytes, oldest_nanos }
    }
}

/// Defines the functions of C that each flavour has. SAFETY, for all of them: the program passes null or a live domain,
/// and what the header asks for.
macro_rules! functions {
    ($flavour:ty: $call:ident $retire:ident $barrier:ident $collect:ident $garbage:ident $create:ident $destroy:ident) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $call(
            domain: *const Domain<Native, $flavour>,
            head: *mut Head,
            callback: Callback<Head>,
        ) {
            // SAFETY: see the macro.
            unsafe { call(domain, head, callback) };
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $retire(
            domain: *const Domain<Native, $flavour>,
            object: *mut c_void,
            reclaim: unsafe extern "C" fn(*mut c_void),
        ) -> c_int {
            // SAFETY: see the macro.
            unsafe { retire(domain, object, reclaim) }
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $barrier(domain: *const Domain<Native, $flavour>) {
            // SAFETY: see the macro.
            let domain = unsafe { at(domain) };
            <$flavour as Flavoured>::wait(stringify!($barrier), || <$flavour as Flavoured>::barrier(domain));
            thread::lw_tsan_acquire(thread::clocks().cast());
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $collect(domain: *const Domain<Native, $flavour>) {
            // SAFETY: see the macro.
            unsafe { at(domain) }.collect();
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $garbage(domain: *const Domain<Native, $flavour>, garbage: *mut CGarbage) {
            // SAFETY: see the macro.
            unsafe {
                let now = at(domain).garbage();
                garbage.write(CGarbage::new(now.objects, now.bytes, now.oldest_nanos));
            }
        }
        #[unsafe(no_mangle)]
        extern "C" fn $create() -> *mut Domain<Native, $flavour> {
            // SAFETY: the layout is not empty; the memory is written before it is used.
            unsafe {
                let place: *mut Domain<Native, $flavour> =
                    alloc(Layout::new::<Domain<Native, $flavour>>()).cast();
                if !place.is_null() {
                    place.write(domain());
                }
                place
            }
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $destroy(domain: *mut Domain<Native, $flavour>) {
            if domain.is_null() {
                return;
            }
            // SAFETY: see the macro. `create` allocated the domain as a box would.
            unsafe {
                assert!(
                    !(*domain).is_reclaiming(),
                    concat!(stringify!($destroy), " in a callback: it would wait for that callback for ever")
                );
                <$flavour as Flavoured>::wait(stringify!($destroy), || {
                    // There, dropping the domain would leak the objects, because it cannot wait for the caller.
                    let cannot_wait = Domain::<Native, $flavour>::is_inside();
                    let leaks = cannot_wait && (*domain).garbage().objects != 0;
                    assert!(
                        !leaks,
                        "a domain with retired objects is destroyed in a section of its own thread"
                    );
                    drop(Box::from_raw(domain));
                });
            }
        }
    };
}

functions!(General: lw_rcu_call lw_rcu_retire lw_rcu_barrier lw_rcu_collect lw_rcu_garbage
    lw_rcu_domain_create lw_rcu_domain_destroy);
functions!(Epoch: lw_epoch_call lw_epoch_retire lw_epoch_barrier lw_epoch_collect lw_epoch_garbage
    lw_epoch_domain_create lw_epoch_domain_destroy);
functions!(Qsbr: lw_qsbr_call lw_qsbr_retire lw_qsbr_barrier lw_qsbr_collect lw_qsbr_garbage
    lw_qsbr_domain_create lw_qsbr_domain_destroy);

#[unsafe(no_mangle)]
extern "C" fn lw_rcu_default_domain() -> &'static Domain<Native, General> {
    once(General::default_domain())
}

#[unsafe(no_mangle)]
extern "C" fn lw_rcu_ordered_domain() -> &'static Domain<Native, General> {
    static DOMAIN: AtomicPtr<Domain<Native, General>> = AtomicPtr::new(null_mut());
    once(&DOMAIN)
}

/// The domains of the general flavour that a process has by itself.
pub(crate) fn own_domains() -> [&'static Domain<Native, General>; 4] {
    [lw_rcu_default_domain(), lw_rcu_ordered_domain(), General::waiting(), rcu::global()]
}

/// Waits for a grace period of the general flavour.
fn synchronize(wait: impl FnOnce(&Domain<Native, General>)) {
    assert!(
        !Domain::<Native, General>::is_inside(),
        "lw_rcu_synchronize in a section of the calling thread, for which it would wait for ever. A callback runs in the \
         section in which its thread retires: use lw_rcu_call in its place there"
    );
    probe!("synchronize_begin", 0_usize, 0_u32);
    wait(General::waiting());
    probe!("synchronize_end", 0_usize, 0_u32);
    thread::lw_tsan_acquire(thread::clocks().cast());
}

#[unsafe(no_mangle)]
extern "C" fn lw_rcu_synchronize() {
    synchronize(Domain::synchronize);
}

#[unsafe(no_mangle)]
extern "C" fn lw_rcu_synchronize_expedited() {
    synchronize(Domain::synchronize_expedited);
}

// `Cookie` is one number, which C keeps.
fn start_poll<F: Flavoured>() -> u64 {
    // SAFETY: a cookie is a number, and nothing else.
    unsafe { core::mem::transmute::<Cookie, u64>(F::waiting().start_poll()) }
}

fn poll<F: Flavoured>(number: u64) -> c_int {
    // SAFETY: a cookie is a number. One that was never given out makes the answer meaningless, and harms nothing else.
    let cookie = unsafe { core::mem::transmute::<u64, Cookie>(number) };
    let over = F::waiting().poll(cookie);
    if over {
        thread::lw_tsan_acquire(thread::clocks().cast());
    }
    c_int::from(over)
}

#[unsafe(no_mangle)]
extern "C" fn lw_rcu_start_poll() -> u64 {
    start_poll::<General>()
}

#[unsafe(no_mangle)]
extern "C" fn lw_rcu_poll(number: u64) -> c_int {
    poll::<General>(number)
}

#[unsafe(no_mangle)]
extern "C" fn lw_qsbr_start_poll() -> u64 {
    start_poll::<Qsbr>()
}

#[unsafe(no_mangle)]
extern "C" fn lw_qsbr_poll(number: u64) -> c_int {
    poll::<Qsbr>(number)
}

/// Begins a section that the header could not begin itself: the thread has no record yet, the section is nested, or the
/// thread rests or has no light fences. As `enter_slowly` in `reclaim::section`, over the record that the header uses.
fn enter(word: &AtomicU64, clock: &AtomicU64) {
    let now = word.load(Relaxed);
    if now & NESTING != 0 {
        assert!(now & NESTING < NESTING, "32767 nested sections: some are never ended");
        word.store(now + 1, Release);
        return;
    }
    let fenced = if Native::prepare_fences() { 0 } else { NEEDS_FULL_FENCE };
    // The orders are those of `lw_section_enter_` in rcu.h; here the fence is a full one, as in `enter_slowly`.
    word.store(clock.load(Acquire) | fenced, Release);
    Native::full_fence();
}

#[unsafe(no_mangle)]
extern "C" fn lw_rcu_read_lock_slow() {
    // SAFETY: only read.
    enter(&thread::record().section, unsafe { &Native::clocks().grace });
}

#[unsafe(no_mangle)]
extern "C" fn lw_epoch_enter_slow() {
    // SAFETY: only read.
    enter(&thread::record().pinned, unsafe { &Native::clocks().epoch });
}

/// Does something that may wait, for the function `name`, while the calling thread is offline. Callbacks that run meanwhile
/// may go online and offline.
fn offline(name: &str, work: impl FnOnce()) {
    let was_online = thread::reader_at_rest(name).and_then(Option::take).is_some();
    work();
    if was_online {
        lw_qsbr_online();
    }
}

#[unsafe(no_mangle)]
extern "C" fn lw_qsbr_online() {
    thread::record();
    let own = thread::own();
    // SAFETY: the words are the thread's own.
    let slot = unsafe {
        if (*own).reader.is_null() {
            (*own).reader = Box::into_raw(Box::new(None));
            thread::notice_exit(); // a record that the thread has kept after its exit does not do that
        }
        &mut *(*own).reader
    };
    slot.get_or_insert_with(|| once(Qsbr::default_domain()).reader());
}

#[unsafe(no_mangle)]
extern "C" fn lw_qsbr_offline() {
    thread::reader_at_rest("lw_qsbr_offline").map(Option::take);
}

#[unsafe(no_mangle)]
extern "C" fn lw_qsbr_quiescent_slow() {
    if let Some(reader) = thread::reader_at_rest("lw_qsbr_quiescent").and_then(Option::as_mut) {
        reader.quiescent();
    }
}

#[unsafe(no_mangle)]
extern "C" fn lw_qsbr_synchronize() {
    probe!("synchronize_begin", 0_usize, 0_u32);
    offline("lw_qsbr_synchronize", || Qsbr::waiting().synchronize());
    probe!("synchronize_end", 0_usize, 0_u32);
    thread::lw_tsan_acquire(thread::clocks().cast());
}

#[cfg(test)]
mod tests {
    use super::*;
    use latchwork::machine::record::STEP;

    /// What the headers leave to [`enter`]: nested sections, up to as many as can be counted, and threads that rest.
    #[test]
    fn sections_that_the_header_does_not_begin() {
        let clock = AtomicU64::new((7 * STEP) | 1);
        let entered = |before: u64| {
            let word = AtomicU64::new(before);
            std::panic::catch_unwind(|| enter(&word, &clock)).ok().map(|()| word.load(Relaxed))
        };
        assert_eq!(entered(0), Some((7 * STEP) | 1));
        let fenced = if Native::prepare_fences() { 0 } else { NEEDS_FULL_FENCE };
        assert_eq!(entered(NEEDS_FULL_FENCE), Some((7 * STEP) | fenced | 1));
        assert_eq!(entered((3 * STEP) | 1), Some((3 * STEP) | 2), "a nested section keeps its stamp");
        assert_eq!(entered((3 * STEP) | NESTING), None);
    }
}
