//! The middle layer: the semantics of each family of pthread functions, over the raw locks of the crate `latchwork`.
//!
//! | module | functions |
//! |---|---|
//! | [`mutex`] | `pthread_mutex_*` |
//! | [`rwlock`] | `pthread_rwlock_*` |
//! | [`cond`], and `cond.c` | `pthread_cond_*` |
//! | [`sem`], and `sem.c` | `sem_*` |
//! | [`spin`] | `pthread_spin_*` |
//! | [`c11`] | `mtx_*` and `cnd_*`, through the functions above |
//!
//! `install` of each module puts its functions into the table. A function that is generic over the raw lock exists once for
//! each of some forty locks, so only what a fast path inlines is generic. All other code exists once; it reaches the raw
//! lock through pointers ([`mutex::raw`], [`rwlock::raw`]).
//!
//! Each family imports only the layer [`state`](crate::state), and these from one another: `cond` and `c11` import `mutex`.

pub(crate) mod c11;
pub(crate) mod cond;
pub(crate) mod mutex;
pub(crate) mod rwlock;
pub(crate) mod sem;
pub(crate) mod spin;
pub(crate) mod timeout;
