//! liburcu's hash table (`cds_lfht`), in C, under its two cheapest flavours of readers.

use crate::tables::{Info, Reclaimed, Shape, Table};
use latchwork::machine::Native;
use std::ffi::c_void;
use std::hash::{BuildHasher, RandomState};
use std::marker::PhantomData;

type Visit = unsafe extern "C" fn(*mut c_void, u64, u64);

/// The C functions of one flavour. A thread registers before it calls any of them but `register` and `new`.
pub struct Calls {
    register: unsafe extern "C" fn(),
    unregister: unsafe extern "C" fn(),
    quiescent: unsafe extern "C" fn(),
    new: unsafe extern "C" fn(u64) -> *mut c_void,
    get: unsafe extern "C" fn(*mut c_void, u64, u64, *mut u64) -> i32,
    insert: unsafe extern "C" fn(*mut c_void, u64, u64, u64) -> i32,
    remove: unsafe extern "C" fn(*mut c_void, u64, u64) -> i32,
    each: unsafe extern "C" fn(*mut c_void, *mut c_void, Visit),
    destroy: unsafe extern "C" fn(*mut c_void),
}

/// One flavour of liburcu.
pub trait Flavour: Send + Sync + 'static {
    /// Its name.
    const NAME: &'static str;
    /// Its functions.
    const CALLS: Calls;
}

unsafe extern "C" {
    fn latchwork_urcu_memb_register();
    fn latchwork_urcu_memb_unregister();
    fn latchwork_urcu_memb_quiescent();
    fn latchwork_urcu_memb_new(buckets: u64) -> *mut c_void;
    fn latchwork_urcu_memb_get(table: *mut c_void, hash: u64, key: u64, value: *mut u64) -> i32;
    fn latchwork_urcu_memb_insert(table: *mut c_void, hash: u64, key: u64, value: u64) -> i32;
    fn latchwork_urcu_memb_remove(table: *mut c_void, hash: u64, key: u64) -> i32;
    fn latchwork_urcu_memb_each(table: *mut c_void, context: *mut c_void, each: Visit);
    fn latchwork_urcu_memb_destroy(table: *mut c_void);
    fn latchwork_urcu_qsbr_register();
    fn latchwork_urcu_qsbr_unregister();
    fn latchwork_urcu_qsbr_quiescent();
    fn latchwork_urcu_qsbr_new(buckets: u64) -> *mut c_void;
    fn latchwork_urcu_qsbr_get(table: *mut c_void, hash: u64, key: u64, value: *mut u64) -> i32;
    fn latchwork_urcu_qsbr_insert(table: *mut c_void, hash: u64, key: u64, value: u64) -> i32;
    fn latchwork_urcu_qsbr_remove(table: *mut c_void, hash: u64, key: u64) -> i32;
    fn latchwork_urcu_qsbr_each(table: *mut c_void, context: *mut c_void, each: Visit);
    fn latchwork_urcu_qsbr_destroy(table: *mut c_void);
}

/// The general flavour over `membarrier`.
pub struct Memb;

impl Flavour for Memb {
    const NAME: &'static str = "liburcu-memb";
    const CALLS: Calls = Calls {
        register: latchwork_urcu_memb_register,
        unregister: latchwork_urcu_memb_unregister,
        quiescent: latchwork_urcu_memb_quiescent,
        new: latchwork_urcu_memb_new,
        get: latchwork_urcu_memb_get,
        insert: latchwork_urcu_memb_insert,
        remove: latchwork_urcu_memb_remove,
        each: latchwork_urcu_memb_each,
        destroy: latchwork_urcu_memb_destroy,
    };
}

/// The flavour with quiescent states.
pub struct Qsbr;

impl Flavour for Qsbr {
    const NAME: &'static str = "liburcu-qsbr";
    const CALLS: Calls = Calls {
        register: latchwork_urcu_qsbr_register,
        unregister: latchwork_urcu_qsbr_unregister,
        quiescent: latchwork_urcu_qsbr_quiescent,
        new: latchwork_urcu_qsbr_new,
        get: latchwork_urcu_qsbr_get,
        insert: latchwork_urcu_qsbr_insert,
        remove: latchwork_urcu_qsbr_remove,
        each: latchwork_urcu_qsbr_each,
        destroy: latchwork_urcu_qsbr_destroy,
    };
}

/// A registered thread.
pub struct Registered<F: Flavour>(PhantomData<(F, *mut ())>);

impl<F: Flavour> Registered<F> {
    fn new() -> Self {
        // SAFETY: once, until this is dropped.
        unsafe { (F::CALLS.register)() };
        Registered(PhantomData)
    }
}

impl<F: Flavour> Drop for Registered<F> {
    fn drop(&mut self) {
        // SAFETY: registered in `new`.
        unsafe { (F::CALLS.unregister)() };
    }
}

/// The table. One that grows hashes its keys; one of fixed size does not, as ours of fixed size.
pub struct Lfht<F: Flavour> {
    table: *mut c_void,
    hasher: RandomState,
    flavour: PhantomData<F>,
}

// SAFETY: the table is for all threads.
unsafe impl<F: Flavour> Send for Lfht<F> {}
// SAFETY: the table is made for all threads.
unsafe impl<F: Flavour> Sync for Lfht<F> {}

impl<F: Flavour> Lfht<F> {
    fn with(buckets: u64) -> Self {
        // SAFETY: a power of two, or 0.
        let table = unsafe { (F::CALLS.new)(buckets) };
        assert!(!table.is_null(), "cds_lfht_new");
        Lfht { table, hasher: RandomState::new(), flavour: PhantomData }
    }

    #[inline(always)]
    fn look(&self, hash: u64, key: u64) -> Option<u64> {
        let mut value = 0;
        // SAFETY: the table is there, and the calling thread has joined.
        unsafe { (F::CALLS.get)(self.table, hash, key, &raw mut value) != 0 }.then_some(value)
    }
}

impl<F: Flavour> Drop for Lfht<F> {
    fn drop(&mut self) {
        let _registered = Registered::<F>::new();
        // SAFETY: nobody uses it any more.
        unsafe { (F::CALLS.destroy)(self.table) };
    }
}

impl<F: Flavour> super::maps::Map for Lfht<F> {
    type Joined = Registered<F>;
    const NAME: &'static str = F::NAME;
    fn new() -> Self {
        Lfht::with(0)
    }
    fn join() -> Registered<F> {
        Registered::new()
    }
    fn rest() {
        // SAFETY: the thread has joined.
        unsafe { (F::CALLS.quiescent)() };
    }
    fn get(&self, key: u64) -> Option<u64> {
        self.look(self.hasher.hash_one(key), key)
    }
    fn insert(&self, key: u64, value: u64) -> bool {
        // SAFETY: the table is there, and the calling thread has joined.
        unsafe { (F::CALLS.insert)(self.table, self.hasher.hash_one(key), key, value) != 0 }
    }
    fn remove(&self, key: u64) -> bool {
        // SAFETY: the table is there, and the calling thread has joined.
        unsafe { (F::CALLS.remove)(self.table, self.hasher.hash_one(key), key) != 0 }
    }
    fn each(&self, mut each: impl FnMut(u64, u64)) {
        unsafe extern "C" fn visit<E: FnMut(u64, u64)>(each: *mut c_void, key: u64, value: u64) {
            // SAFETY: what was given to `Calls::each` below.
            unsafe { (*each.cast::<E>())(key, value) };
        }
        fn visitor<E: FnMut(u64, u64)>(_: &E) -> Visit {
            visit::<E>
        }
        let (_registered, visit) = (Registered::<F>::new(), visitor(&each));
        // SAFETY: `visit` is the one of this closure.
        unsafe { (F::CALLS.each)(self.table, (&raw mut each).cast(), visit) };
    }
}

// SAFETY: liburcu frees what was removed after a grace period.
unsafe impl<F: Flavour> Table for Lfht<F> {
    type Machine = Native;
    type Handle<'a> = Registered<F>;
    const INFO: Info = Info {
        name: F::NAME,
        summary: "liburcu's cds_lfht",
        source: "liburcu",
        concurrent: true,
        blocking: true,
    };

    fn new(shape: &Shape) -> Self {
        Lfht::with(shape.buckets as u64)
    }
    fn join(&self, _: usize) -> Registered<F> {
        Registered::new()
    }
    #[inline(always)]
    unsafe fn get(&self, _: &mut Registered<F>, key: u64) -> Result<Option<u64>, Reclaimed> {
        Ok(self.look(key, key))
    }
    fn insert(&self, _: &mut Registered<F>, key: u64, value: u64) -> Result<bool, Reclaimed> {
        // SAFETY: the table is there, and the thread registered.
        Ok(unsafe { (F::CALLS.insert)(self.table, key, key, value) != 0 })
    }
    fn remove(&self, _: &mut Registered<F>, key: u64) -> Result<bool, Reclaimed> {
        // SAFETY: the table is there, and the thread is registered.
        Ok(unsafe { (F::CALLS.remove)(self.table, key, key) != 0 })
    }
    fn quiescent(&self, _: &mut Registered<F>) {
        // SAFETY: the thread has joined.
        unsafe { (F::CALLS.quiescent)() };
    }
    fn each(&mut self, each: impl FnMut(u64, u64)) {
        super::maps::Map::each(self, each);
    }
}
