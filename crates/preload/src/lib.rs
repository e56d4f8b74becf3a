//! `liblatchwork_preload.so`: any unmodified program under latchwork's locks.
//!
//! ```text
//! LATCHWORK_MUTEX=shfl LATCHWORK_RWLOCK=bravo-pf-q LD_PRELOAD=/path/liblatchwork_preload.so ./prog
//! ```
//!
//! (`latchwork run` does this, after checking the names.) It exports the pthread mutex, rwlock,
//! spin lock and condition variable functions, their C11 counterparts, and unnamed semaphores. No algorithm lives here:
//! this is pthread semantics over the locks of the `latchwork` crate, found through its registry.
//!
//! # Environment
//!
//! | variable | meaning |
//! |---|---|
//! | `LATCHWORK_MUTEX` | the lock behind mutexes; spin locks follow it if it has 4 bytes, else they use `ttas`. Unset, empty or `glibc`: mutexes, spin locks, condition variables and semaphores stay with glibc |
//! | `LATCHWORK_RWLOCK` | the lock behind rwlocks; unset, empty or `glibc`: glibc |
//! | `LATCHWORK_STATS` | `1`: statistics to stderr when the process exits. `json:PATH`: one line of JSON, appended to PATH. Unset, empty or `0`: none, at no cost |
//! | `LATCHWORK_MEMBARRIER` | `0`: no call of `membarrier`, for programs that install a seccomp filter |
//! | `LATCHWORK_NEAR` | `0`: no copies of fast paths near the program |
//! | `LATCHWORK_CHECK` | `1`: deadlock and misuse detection, over whatever lock serves; reports on stderr |
//!
//! A process with raised privileges (`AT_SECURE`) ignores all of them, and is served nothing.
//!
//! An unknown lock name ends the process with status 127 and one line on stderr. Nothing is ever
//! written to stdout.
//!
//! The JSON line: `{"pid":N, FAMILY:{"lock":NAME,"objects":N,"calls":N,"contended":N}, ...,
//! "to_glibc":{REASON:{"objects":N,"calls":N}, ...}}`. FAMILY is `mutex`, `rwlock`, `condvar`,
//! `spin` or `semaphore`, present if it is served; `calls` are lock calls (for a condition variable, waits and
//! notifications), `contended` those that did not get the lock at the first attempt (waits). REASON
//! is `mutex_robust`, `mutex_priority`, `mutex_shared`, `rwlock_shared`, `condvar_shared`,
//! `semaphore_shared`, `spin_shared` or `rwlock_prefers_writers`. A
//! process and each child that it forks write a line each; `_exit` writes none.
//!
//! # How it is made
//!
//! - Every lock lives in the bytes of the pthread object (`abi`), or, if it does not fit, in
//!   memory that is made at the first use (`place`).
//! - An exported symbol is one jump through a `table` of functions that were compiled for the
//!   chosen lock; its fast path is inlined there.
//! - The fast paths of the recommended locks are copied to a page `near` the program, where calls are cheaper,
//!   and the program's own table of addresses is pointed there; `unwind` describes that page to libgcc.
//! - `keys` leaves all thread-specific keys to the program.
//! - `deep` notices libraries that bind past this one.
//! - `check` is a layer over the table that looks for deadlocks and misuse.
//! - `fork` repairs, except what `mapping` finds in memory that the child shares, `cancel` lets a thread die politely, `identity` numbers the threads, `holds` remembers what each
//!   thread reads.
//! - What cannot be served (robust, priority-inheriting or -protected, process-shared objects, rwlocks that ask for
//!   preference of writers) goes to glibc, object by object, and is counted.
//!
//! It must be built with `panic = "abort"`, as the workspace's release profile does: cancellation
//! may unwind through these functions, which then have no landing pads.

mod families;
mod observers;
mod startup;
mod state;
