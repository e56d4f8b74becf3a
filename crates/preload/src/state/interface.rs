//! The list of functions that this library exports.
//!
//! One line for each: its arguments and result, its symbols with their versions, and the symbol and version under which
//! the next library has it. Two modules make something of the list: [`table`](super::table) makes a slot for each function,
//! `startup::entry` the exported symbols.

/// Calls the macro `$make` with the list.
macro_rules! interface {
    ($make:ident) => {
        $make! {
            mutex_init(m: MutexPtr, attr: AttrPtr) -> c_int =
                pthread_mutex_init ["@@GLIBC_2.2.5"] __pthread_mutex_init ["@GLIBC_2.2.5"],
                real "pthread_mutex_init" "GLIBC_2.2.5";
            mutex_destroy(m: MutexPtr) -> c_int =
                pthread_mutex_destroy ["@@GLIBC_2.2.5"] __pthread_mutex_destroy ["@GLIBC_2.2.5"],
                real "pthread_mutex_destroy" "GLIBC_2.2.5";
            // `startup::hot` has the symbols of `mutex_lock`, `mutex_unlock`, `rwlock_rdlock` and `rwlock_unlock`.
            mutex_lock(m: MutexPtr) -> c_int =,
                real "pthread_mutex_lock" "GLIBC_2.2.5";
            mutex_trylock(m: MutexPtr) -> c_int =
                pthread_mutex_trylock ["@@GLIBC_2.34", "@GLIBC_2.2.5"] __pthread_mutex_trylock ["@GLIBC_2.2.5"],
                real "pthread_mutex_trylock" "GLIBC_2.2.5";
            mutex_timedlock(m: MutexPtr, time: Time) -> c_int =
                pthread_mutex_timedlock ["@@GLIBC_2.34", "@GLIBC_2.2.5"],
                real "pthread_mutex_timedlock" "GLIBC_2.2.5";
            mutex_clocklock(m: MutexPtr, clock: ClockId, time: Time) -> c_int =
                pthread_mutex_clocklock ["@@GLIBC_2.34", "@GLIBC_2.30"],
                real "pthread_mutex_clocklock" "GLIBC_2.30";
            mutex_unlock(m: MutexPtr) -> c_int =,
                real "pthread_mutex_unlock" "GLIBC_2.2.5";

            rwlock_init(l: RwLockPtr, attr: AttrPtr) -> c_int =
                pthread_rwlock_init ["@@GLIBC_2.34", "@GLIBC_2.2.5"] __pthread_rwlock_init ["@GLIBC_2.2.5"],
                real "pthread_rwlock_init" "GLIBC_2.2.5";
            rwlock_destroy(l: RwLockPtr) -> c_int =
                pthread_rwlock_destroy ["@@GLIBC_2.34", "@GLIBC_2.2.5"] __pthread_rwlock_destroy ["@GLIBC_2.2.5"],
                real "pthread_rwlock_destroy" "GLIBC_2.2.5";
            rwlock_rdlock(l: RwLockPtr) -> c_int =,
                real "pthread_rwlock_rdlock" "GLIBC_2.2.5";
            rwlock_wrlock(l: RwLockPtr) -> c_int =
                pthread_rwlock_wrlock ["@@GLIBC_2.34", "@GLIBC_2.2.5"] __pthread_rwlock_wrlock ["@GLIBC_2.2.5"],
                real "pthread_rwlock_wrlock" "GLIBC_2.2.5";
            rwlock_tryrdlock(l: RwLockPtr) -> c_int =
                pthread_rwlock_tryrdlock ["@@GLIBC_2.34", "@GLIBC_2.2.5"]
                __pthread_rwlock_tryrdlock ["@GLIBC_2.2.5"],
                real "pthread_rwlock_tryrdlock" "GLIBC_2.2.5";
            rwlock_trywrlock(l: RwLockPtr) -> c_int =
                pthread_rwlock_trywrlock ["@@GLIBC_2.34", "@GLIBC_2.2.5"]
                __pthread_rwlock_trywrlock ["@GLIBC_2.2.5"],
                real "pthread_rwlock_trywrlock" "GLIBC_2.2.5";
            rwlock_timedrdlock(l: RwLockPtr, time: Time) -> c_int =
                pthread_rwlock_timedrdlock ["@@GLIBC_2.34", "@GLIBC_2.2.5"],
                real "pthread_rwlock_timedrdlock" "GLIBC_2.2.5";
            rwlock_timedwrlock(l: RwLockPtr, time: Time) -> c_int =
                pthread_rwlock_timedwrlock ["@@GLIBC_2.34", "@GLIBC_2.2.5"],
                real "pthread_rwlock_timedwrlock" "GLIBC_2.2.5";
            rwlock_clockrdlock(l: RwLockPtr, clock: ClockId, time: Time) -> c_int =
                pthread_rwlock_clockrdlock ["@@GLIBC_2.34", "@GLIBC_2.30"],
                real "pthread_rwlock_clockrdlock" "GLIBC_2.30";
            rwlock_clockwrlock(l: RwLockPtr, clock: ClockId, time: Time) -> c_int =
                pthread_rwlock_clockwrlock ["@@GLIBC_2.34", "@GLIBC_2.30"],
                real "pthread_rwlock_clockwrlock" "GLIBC_2.30";
            rwlock_unlock(l: RwLockPtr) -> c_int =,
                real "pthread_rwlock_unlock" "GLIBC_2.2.5";

            spin_init(s: SpinPtr, shared: Int) -> c_int =
                pthread_spin_init ["@@GLIBC_2.34", "@GLIBC_2.2.5"], real "pthread_spin_init" "GLIBC_2.2.5";
            spin_destroy(s: SpinPtr) -> c_int =
                pthread_spin_destroy ["@@GLIBC_2.34", "@GLIBC_2.2.5"], real "pthread_spin_destroy" "GLIBC_2.2.5";
            spin_lock(s: SpinPtr) -> c_int =
                pthread_spin_lock ["@@GLIBC_2.34", "@GLIBC_2.2.5"], real "pthread_spin_lock" "GLIBC_2.2.5";
            spin_trylock(s: SpinPtr) -> c_int =
                pthread_spin_trylock ["@@GLIBC_2.34", "@GLIBC_2.2.5"], real "pthread_spin_trylock" "GLIBC_2.2.5";
            spin_unlock(s: SpinPtr) -> c_int =
                pthread_spin_unlock ["@@GLIBC_2.34", "@GLIBC_2.2.5"], real "pthread_spin_unlock" "GLIBC_2.2.5";

            cond_init(c: CondPtr, attr: AttrPtr) -> c_int =
                pthread_cond_init ["@@GLIBC_2.3.2", "@GLIBC_2.2.5"], real "pthread_cond_init" "GLIBC_2.3.2";
            cond_destroy(c: CondPtr) -> c_int =
                pthread_cond_destroy ["@@GLIBC_2.3.2", "@GLIBC_2.2.5"], real "pthread_cond_destroy" "GLIBC_2.3.2";
            cond_wait(c: CondPtr, m: MutexPtr) -> c_int =
                pthread_cond_wait ["@@GLIBC_2.3.2", "@GLIBC_2.2.5"], real "pthread_cond_wait" "GLIBC_2.3.2";
            cond_timedwait(c: CondPtr, m: MutexPtr, time: Time) -> c_int =
                pthread_cond_timedwait ["@@GLIBC_2.3.2", "@GLIBC_2.2.5"], real "pthread_cond_timedwait" "GLIBC_2.3.2";
            cond_clockwait(c: CondPtr, m: MutexPtr, clock: ClockId, time: Time) -> c_int =
                pthread_cond_clockwait ["@@GLIBC_2.34", "@GLIBC_2.30"], real "pthread_cond_clockwait" "GLIBC_2.30";
            cond_signal(c: CondPtr) -> c_int =
                pthread_cond_signal ["@@GLIBC_2.3.2", "@GLIBC_2.2.5"], real "pthread_cond_signal" "GLIBC_2.3.2";
            cond_broadcast(c: CondPtr) -> c_int =
                pthread_cond_broadcast ["@@GLIBC_2.3.2", "@GLIBC_2.2.5"], real "pthread_cond_broadcast" "GLIBC_2.3.2";

            mtx_init(m: MutexPtr, kind: Int) -> c_int =
                mtx_init ["@@GLIBC_2.34", "@GLIBC_2.28"], real "mtx_init" "GLIBC_2.28";
            mtx_destroy(m: MutexPtr) -> () =
                mtx_destroy ["@@GLIBC_2.34", "@GLIBC_2.28"], real "mtx_destroy" "GLIBC_2.28";
            mtx_lock(m: MutexPtr) -> c_int =
                mtx_lock ["@@GLIBC_2.34", "@GLIBC_2.28"], real "mtx_lock" "GLIBC_2.28";
            mtx_trylock(m: MutexPtr) -> c_int =
                mtx_trylock ["@@GLIBC_2.34", "@GLIBC_2.28"], real "mtx_trylock" "GLIBC_2.28";
            mtx_timedlock(m: MutexPtr, time: Time) -> c_int =
                mtx_timedlock ["@@GLIBC_2.34", "@GLIBC_2.28"], real "mtx_timedlock" "GLIBC_2.28";
            mtx_unlock(m: MutexPtr) -> c_int =
                mtx_unlock ["@@GLIBC_2.34", "@GLIBC_2.28"], real "mtx_unlock" "GLIBC_2.28";

            cnd_init(c: CondPtr) -> c_int =
                cnd_init ["@@GLIBC_2.34", "@GLIBC_2.28"], real "cnd_init" "GLIBC_2.28";
            cnd_destroy(c: CondPtr) -> () =
                cnd_destroy ["@@GLIBC_2.34", "@GLIBC_2.28"], real "cnd_destroy" "GLIBC_2.28";
            cnd_wait(c: CondPtr, m: MutexPtr) -> c_int =
                cnd_wait ["@@GLIBC_2.34", "@GLIBC_2.28"], real "cnd_wait" "GLIBC_2.28";
            cnd_timedwait(c: CondPtr, m: MutexPtr, time: Time) -> c_int =
                cnd_timedwait ["@@GLIBC_2.34", "@GLIBC_2.28"], real "cnd_timedwait" "GLIBC_2.28";
            cnd_signal(c: CondPtr) -> c_int =
                cnd_signal ["@@GLIBC_2.34", "@GLIBC_2.28"], real "cnd_signal" "GLIBC_2.28";
            cnd_broadcast(c: CondPtr) -> c_int =
                cnd_broadcast ["@@GLIBC_2.34", "@GLIBC_2.28"], real "cnd_broadcast" "GLIBC_2.28";

            sem_init(s: SemPtr, shared: Int, value: Value) -> c_int =
                sem_init ["@@GLIBC_2.34", "@GLIBC_2.2.5"], real "sem_init" "GLIBC_2.2.5";
            sem_destroy(s: SemPtr) -> c_int =
                sem_destroy ["@@GLIBC_2.34", "@GLIBC_2.2.5"], real "sem_destroy" "GLIBC_2.2.5";
            sem_post(s: SemPtr) -> c_int =
                sem_post ["@@GLIBC_2.34", "@GLIBC_2.2.5"], real "sem_post" "GLIBC_2.2.5";
            sem_getvalue(s: SemPtr, value: IntPtr) -> c_int =
                sem_getvalue ["@@GLIBC_2.34", "@GLIBC_2.2.5"], real "sem_getvalue" "GLIBC_2.2.5";
            sem_wait(s: SemPtr) -> c_int =
                sem_wait ["@@GLIBC_2.34", "@GLIBC_2.2.5"], real "sem_wait" "GLIBC_2.2.5";
            sem_trywait(s: SemPtr) -> c_int =
                sem_trywait ["@@GLIBC_2.34", "@GLIBC_2.2.5"], real "sem_trywait" "GLIBC_2.2.5";
            sem_timedwait(s: SemPtr, time: Time) -> c_int =
                sem_timedwait ["@@GLIBC_2.34", "@GLIBC_2.2.5"], real "sem_timedwait" "GLIBC_2.2.5";
            sem_clockwait(s: SemPtr, clock: ClockId, time: Time) -> c_int =
                sem_clockwait ["@@GLIBC_2.34", "@GLIBC_2.30"], real "sem_clockwait" "GLIBC_2.30";

            // This library does not serve keys. It gives up its own one if the program needs all of them: see `startup::keys`.
            key_create(key: KeyPtr, destructor: Destructor) -> c_int =
                pthread_key_create ["@@GLIBC_2.34", "@GLIBC_2.2.5"] __pthread_key_create ["@@GLIBC_2.34", "@GLIBC_2.2.5"],
                real "pthread_key_create" "GLIBC_2.2.5";
            tss_create(key: KeyPtr, destructor: Destructor) -> c_int =
                tss_create ["@@GLIBC_2.34", "@GLIBC_2.28"], real "tss_create" "GLIBC_2.28";

            // Only the recorder of traces has functions of its own for these: see `observers::trace`.
            thread_create(thread: ThreadPtr, attr: AttrPtr, start: Start, argument: Handle) -> c_int =
                pthread_create ["@@GLIBC_2.34", "@GLIBC_2.2.5"], real "pthread_create" "GLIBC_2.2.5";
            thread_join(thread: Thread, result: ResultPtr) -> c_int =
                pthread_join ["@@GLIBC_2.34", "@GLIBC_2.2.5"], real "pthread_join" "GLIBC_2.2.5";
            thread_tryjoin(thread: Thread, result: ResultPtr) -> c_int =
                pthread_tryjoin_np ["@@GLIBC_2.34", "@GLIBC_2.3.3"], real "pthread_tryjoin_np" "GLIBC_2.3.3";
            thread_timedjoin(thread: Thread, result: ResultPtr, time: Time) -> c_int =
                pthread_timedjoin_np ["@@GLIBC_2.34", "@GLIBC_2.3.3"], real "pthread_timedjoin_np" "GLIBC_2.3.3";
            thread_clockjoin(thread: Thread, result: ResultPtr, clock: ClockId, time: Time) -> c_int =
                pthread_clockjoin_np ["@@GLIBC_2.34", "@GLIBC_2.31"], real "pthread_clockjoin_np" "GLIBC_2.31";
            thrd_create(thread: ThreadPtr, start: Start, argument: Handle) -> c_int =
                thrd_create ["@@GLIBC_2.34", "@GLIBC_2.28"], real "thrd_create" "GLIBC_2.28";
            thrd_join(thread: Thread, result: IntPtr) -> c_int =
                thrd_join ["@@GLIBC_2.34", "@GLIBC_2.28"], real "thrd_join" "GLIBC_2.28";
            barrier_init(b: BarrierPtr, attr: AttrPtr, count: Value) -> c_int =
                pthread_barrier_init ["@@GLIBC_2.34", "@GLIBC_2.2.5"], real "pthread_barrier_init" "GLIBC_2.2.5";
            barrier_wait(b: BarrierPtr) -> c_int =
                pthread_barrier_wait ["@@GLIBC_2.34", "@GLIBC_2.2.5"], real "pthread_barrier_wait" "GLIBC_2.2.5";

            // `startup::deep` has the symbols of these two.
            dlopen(name: Name, flags: Int) -> *mut c_void =, real "dlopen" "GLIBC_2.2.5";
            dlmopen(namespace: Namespace, name: Name, flags: Int) -> *mut c_void =, real "dlmopen" "GLIBC_2.3.4";

            // This library does not serve fork handlers. It sees to it that its own are registered first: see `startup::fork`.
            register_atfork(prepare: AtFork, parent: AtFork, child: AtFork, object: Handle) -> c_int =
                __register_atfork ["@@GLIBC_2.3.2"], real "__register_atfork" "GLIBC_2.3.2";
        }
    };
}
pub(crate) use interface;
