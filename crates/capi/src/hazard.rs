//! Hazard pointers as C++26 has them: any number of them, each an object that may move from thread to thread.
//!
//! Source: Michael, "Hazard Pointers: Safe Memory Reclamation for Lock-Free Objects", TPDS 2004; the interface is that of
//! P2530 and the C++26 standard, [saferecl.hp].
//!
//! Each hazard pointer is a [`Slot`](slots::Slot). A slot holds the address of the head of the object that it protects, not an address
//! inside of the object: a head may lie anywhere in its object. So a scan looks for equal addresses. For an object without a
//! head, the slot holds the object's own address, and the head is in a box that names this address ([`Head::protected_as`]).
//!
//! Why this is not `latchwork::reclaim::hazard`, whose domains keep a list of garbage for each thread:
//!
//! - `lw_hazard_collect` reclaims every object that is not protected, whichever thread has retired it, and when. A domain's
//!   collector takes another thread's list only if that thread has left the list alone for a millisecond. To take the list
//!   sooner it would have to wait for that thread. Here one exchange takes the objects of all threads.
//! - Retirement waits for no thread. In a domain, a thread whose list is being taken pushes onto a shared stack. The thread that
//!   pushes a 256th object there waits for the collector, which may be in a callback.
//! - A scan looks at all slots, and C++ allows thousands. So here the number of objects between two scans grows with the
//!   number of slots. A domain scans after 256 objects, and once more through these for each 128 slots in use.
//! - The first retirement of a thread in a domain allocates its list. Here no retirement allocates, but for the box of an
//!   object without a head.
//! - ThreadSanitizer has to be told of each slot that a scan reads. The library knows nothing of ThreadSanitizer.
//!
//! State of an object: retired (on the stack [`Domain::retired`]) -> in a scan (the thread that has taken the stack) -> reclaimed, or
//! retired again, if a slot holds its address. For the state of a slot, see [`slots`].
//!
//! The slots are the process's: one protects an object whatever [`Domain`] it is retired in. A domain is a stack of retired
//! objects with counts. A callback that retires into the domain that its thread scans starts no scan of it: what it retires waits
//! for the next one, so a call ends even if callbacks always retire anew. Only `lw_hazard_domain_destroy` scans again. A
//! callback may start a scan of another domain. So scans nest, at most as deep as there are domains ([`SCANS`]).
//!
//! What pairs with what: (A) the owner stores a slot, fences lightly and loads the pointer again (`hazard.h`); a scan takes
//! the stack, issues the heavy fence, and loads the slots. So the scan sees the slot, or the owner sees that the object was
//! removed. (B) the push of an object onto the stack with the exchange that takes the stack. (E) the owner's release of a
//! slot with the scan's load. (D) the linking of a block of slots with the loads that look for blocks ([`slots::each`]).
//!
//! What is seldom retired is reclaimed soon: a thread that retires after a pause ([`Soon`]) scans, however few objects there are.
//!
//! Nothing here waits for a reader, or allocates for a retired object that has a head. Between two scans at most [`BATCH`]
//! objects, or twice the number of slots if that is more, are retired in a domain. So in each domain at most that many objects
//! for each thread that retires, and one for each slot, are garbage.
//!
//! Size: 64 bytes per slot, 32 per object, and 16 more for an object without a head. Atomic read-modify-writes: protection 0,
//! retirement 2.

use crate::boxed::Boxed;
use crate::rcu::{CGarbage, Callback};
use crate::{same_layout, thread};
use latchwork::machine::{Machine, Native};
use latchwork::reclaim::due::Soon;
use libc::{EBUSY, ENOMEM};
use std::alloc::{Layout, alloc, dealloc};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};

pub(crate) mod slots;

/// Objects that are retired between two scans, at least: enough to be worth the heavy fence.
const BATCH: u64 = 256;
/// Chains in a scan's table.
const CHAINS: usize = 512;

/// The head of a retired object: `lw_rcu_head`, as hazard pointers use it.
#[repr(C)]
pub(crate) struct Head {
    next: *mut Head,
    callback: Option<Callback<Head>>,
    is_protected: bool,
    /// Whether the head is that of a [`Boxed`].
    is_boxed: bool,
    /// What a slot holds that protects the object: the address of this head, or that of an object without a head.
    protected_as: usize,
}

same_layout!(Head, 32, 8);

/// `lw_hazard_domain`: objects that are retired together.
pub(crate) struct Domain {
    retired: AtomicPtr<Head>,
    /// How many objects have been retired since a thread took the stack.
    incoming: AtomicU64,
    /// How many objects are retired and not reclaimed.
    garbage: AtomicU64,
    /// How many of these are in boxes.
    boxes: AtomicU64,
    soon: Soon<Native>,
}

/// The domain that null stands for.
static DEFAULT: Domain = Domain::new();

/// The scan of a domain that a thread runs.
struct Scan {
    domain: *const Domain,
    /// Null, or the scan whose callback started this one.
    outer: *const Scan,
    /// Whether a callback of the scan has retired into the domain.
    has_more: Cell<bool>,
}

thread_local! {
    /// The innermost scan that the thread runs.
    static SCANS: Cell<*const Scan> = const { Cell::new(null()) };
}

impl Domain {
    const fn new() -> Self {
        Domain {
            retired: AtomicPtr::new(null_mut()),
            incoming: AtomicU64::new(0),
            garbage: AtomicU64::new(0),
            boxes: AtomicU64::new(0),
            soon: Soon::native(),
        }
    }

    /// Calls `with` with the scan of the domain that the calling thread runs, if it runs one.
    fn scanned_here<R>(&self, with: impl FnOnce(&Scan) -> R) -> Option<R> {
        let mut at = SCANS.get();
        // SAFETY: null, or a scan in a frame of this thread further up its stack.
        while let Some(scan) = unsafe { at.as_ref() } {
            if core::ptr::eq(scan.domain, self) {
                return Some(with(scan));
            }
            at = scan.outer;
        }
        None
    }

    /// Whether the calling thread runs a scan of the domain.
    fn is_scanned_here(&self) -> bool {
        self.scanned_here(|_| ()).is_some()
    }
}

/// The domain that C means.
///
/// # Safety
///
/// The pointer is null, or to a live domain.
unsafe fn at<'a>(domain: *const Domain) -> &'a Domain {
    // SAFETY: the caller's pointer is null or to a live domain.
    unsafe { domain.as_ref() }.unwrap_or(&DEFAULT)
}

/// Has `callback` called with a head when no slot holds its address.
///
/// # Safety
///
/// As `lw_hazard_domain_retire`.
unsafe fn retire(domain: &Domain, head: *mut Head, callback: Callback<Head>) {
    let callback = Some(callback);
    let (is_protected, is_boxed, protected_as) = (false, false, head.addr());
    // SAFETY: the program passes room for a head in an object that it has removed, and retires it once.
    unsafe { domain.retire(head, Head { next: null_mut(), callback, is_protected, is_boxed, protected_as }) };
}

/// Has `reclaim` called with an object when no slot holds its address. Returns 0 or ENOMEM.
///
/// # Safety
///
/// As `lw_hazard_domain_retire_ptr`.
unsafe fn retire_ptr(
    domain: &Domain,
    object: *mut c_void,
    reclaim: unsafe extern "C" fn(*mut c_void),
) -> c_int {
    let Some(head) = Boxed::<Head>::allocate(object, reclaim) else { return ENOMEM };
    domain.boxes.fetch_add(1, Relaxed);
    let callback: Option<Callback<Head>> = Some(Boxed::<Head>::reclaim);
    let (is_protected, is_boxed, protected_as) = (false, true, object.addr());
    // SAFETY: the head is in the box. The program has removed the object, and retires it once.
    unsafe { domain.retire(head, Head { next: null_mut(), callback, is_protected, is_boxed, protected_as }) };
    0
}

/// The chain of the table that an object is in which slots protect that hold this address.
fn chain_of(protected_as: usize) -> usize {
    // Heads are 8 bytes apart at least, and so are most objects. The multiplier is 2^64 divided by the golden ratio.
    ((protected_as >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) % CHAINS
}

impl Domain {
    /// Retires an object of which `head` is valid for writes, until the callback is called.
    ///
    /// # Safety
    ///
    /// The object is removed, and is retired once. It lives until the callback is called.
    unsafe fn retire(&self, head: *mut Head, new: Head) {
        thread::lw_tsan_release(head.cast());
        // SAFETY: the caller's `head` is valid for writes.
        unsafe { head.write(new) };
        self.garbage.fetch_add(1, Relaxed);
        self.push(head, head);
        let incoming = self.incoming.fetch_add(1, Relaxed) + 1;
        let in_callback = self.scanned_here(|scan| scan.has_more.set(true)).is_some();
        if !in_callback && self.is_due(incoming) {
            self.scan();
        }
    }

    /// Whether enough objects have come since the last scan, or whether that was long ago. A look at the clock takes 25 ns. So a
    /// thread looks with each of the first objects, then with each second one, and so on, at last with each 64th: with 27 of 256.
    fn is_due(&self, incoming: u64) -> bool {
        if incoming >= BATCH.max(2 * slots::made()) {
            return true;
        }
        let each = (1_u64 << incoming.ilog2().saturating_sub(2)).min(64);
        incoming.is_multiple_of(each) && self.soon.has_come()
    }

    /// Puts a chain of objects on the stack.
    fn push(&self, first: *mut Head, last: *mut Head) {
        let mut newest = self.retired.load(Relaxed);
        loop {
            // SAFETY: the chain is the caller's alone, and retired objects live until they are reclaimed.
            unsafe { (*last).next = newest };
            // (B) pairs with the exchange in `scan`. There is no pop of a single object, so no ABA problem.
            match self.retired.compare_exchange(newest, first, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => newest = now,
            }
        }
    }

    /// Reclaims each object that was retired before and that no slot protects. Returns whether a callback has retired into the
    /// domain meanwhile. The caller is no callback of a scan of this domain.
    fn scan(&self) -> bool {
        let scan = Scan { domain: self, outer: SCANS.get(), has_more: Cell::new(false) };
        SCANS.set(&raw const scan);
        self.soon.reclaim(|| self.reclaim());
        SCANS.set(scan.outer);
        scan.has_more.get()
    }

    /// As `lw_hazard_domain_collect`.
    fn collect(&self) {
        if !self.is_scanned_here() {
            self.scan();
        }
    }

    fn garbage(&self) -> CGarbage {
        let (objects, boxes) = (self.garbage.load(Relaxed), self.boxes.load(Relaxed));
        let bytes = objects * size_of::<Head>() as u64
            + boxes * (size_of::<Boxed<Head>>() - size_of::<Head>()) as u64;
        CGarbage::new(objects, bytes, 0)
    }

    /// What [`scan`](Self::scan) does while it is noted as the thread's.
    fn reclaim(&self) {
        self.incoming.store(0, Relaxed);
        // (B) pairs with `push`: what was done before the retirement happens before this.
        let mut objects = self.retired.swap(null_mut(), Acquire);
        if objects.is_null() {
            return;
        }
        let mut table = [null_mut::<Head>(); CHAINS];
        while !objects.is_null() {
            // SAFETY: the objects are this thread's alone since the exchange, and live until they are reclaimed.
            unsafe {
                let next = (*objects).next;
                let chain = &mut table[chain_of((*objects).protected_as)];
                (*objects).next = *chain;
                *chain = objects;
                objects = next;
            }
        }
        // (A) pairs with the light fence of a slot's owner.
        let fenced = Native::heavy_fence();
        slots::each(|protected| {
            let mut at = table[chain_of(protected)];
            while !at.is_null() {
                // SAFETY: as above, the objects are this thread's alone.
                unsafe {
                    (*at).is_protected |= (*at).protected_as == protected;
                    at = (*at).next;
                }
            }
        });
        let (mut kept, mut last) = (null_mut(), null_mut::<Head>());
        for mut at in table {
            while !at.is_null() {
                // SAFETY: as above, the objects are this thread's alone. A slot that does not hold the address now never
                // will: the object was removed before it was retired, and an owner that stores the address later sees
                // that (A).
                unsafe {
                    let object = at;
                    at = (*object).next;
                    if (*object).is_protected || !fenced {
                        (*object).is_protected = false;
                        (*object).next = kept;
                        kept = object;
                        if last.is_null() {
                            last = object;
                        }
                        continue;
                    }
                    let callback = (*object).callback.expect("a retired object has one");
                    if (*object).is_boxed {
                        self.boxes.fetch_sub(1, Relaxed);
                    }
                    thread::lw_tsan_acquire(object.cast());
                    thread::run_callback(|| callback(object));
                }
                self.garbage.fetch_sub(1, Release);
            }
        }
        if !kept.is_null() {
            self.push(kept, last);
        }
    }
}

// SAFETY, for the functions below: the program passes null or a live domain, and what the header asks for.

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_hazard_retire(head: *mut Head, callback: Callback<Head>) {
    // SAFETY: see above.
    unsafe { retire(&DEFAULT, head, callback) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_hazard_retire_ptr(
    object: *mut c_void,
    reclaim: unsafe extern "C" fn(*mut c_void),
) -> c_int {
    // SAFETY: see above.
    unsafe { retire_ptr(&DEFAULT, object, reclaim) }
}

#[unsafe(no_mangle)]
extern "C" fn lw_hazard_collect() {
    DEFAULT.collect();
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_hazard_garbage(garbage: *mut CGarbage) {
    // SAFETY: the program passes room.
    unsafe { garbage.write(DEFAULT.garbage()) };
}

#[unsafe(no_mangle)]
extern "C" fn lw_hazard_domain_create() -> *mut Domain {
    // SAFETY: the layout is not empty; the memory is written before it is used.
    unsafe {
        let place: *mut Domain = alloc(Layout::new::<Domain>()).cast();
        if !place.is_null() {
            place.write(Domain::new());
        }
        place
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_hazard_domain_destroy(domain: *mut Domain) -> c_int {
    if domain.is_null() {
        return 0;
    }
    // SAFETY: see above. `lw_hazard_domain_create` allocated the domain.
    unsafe {
        // Until callbacks retire nothing more: else the domain could not end.
        while !(*domain).is_scanned_here() && (*domain).scan() {}
        // Not the count of the garbage: after a fork it may count objects that the child has lost.
        if (*domain).is_scanned_here() || !(*domain).retired.load(Acquire).is_null() {
            return EBUSY;
        }
        dealloc(domain.cast(), Layout::new::<Domain>());
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_hazard_domain_retire(
    domain: *const Domain,
    head: *mut Head,
    callback: Callback<Head>,
) {
    // SAFETY: see above.
    unsafe { retire(at(domain), head, callback) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_hazard_domain_retire_ptr(
    domain: *const Domain,
    object: *mut c_void,
    reclaim: unsafe extern "C" fn(*mut c_void),
) -> c_int {
    // SAFETY: see above.
    unsafe { retire_ptr(at(domain), object, reclaim) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_hazard_domain_collect(domain: *const Domain) {
    // SAFETY: see above.
    unsafe { at(domain) }.collect();
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_hazard_domain_garbage(domain: *const Domain, garbage: *mut CGarbage) {
    // SAFETY: see above; the program passes room.
    unsafe { garbage.write(at(domain).garbage()) };
}
