//! `liblatchwork_preload.so`: any unmodified program under latchwork's locks.
//!
//! ```text
//! LATCHWORK_MUTEX=shfl LATCHWORK_RWLOCK=bravo-pf-q LD_PRELOAD=/path/liblatchwork_preload.so ./prog
//! ```
//!
//! (`latchwork run` does this, after checking the names.) The library exports the pthread functions for mutexes, rwlocks,
//! spin locks and condition variables, their C11 counterparts, and the functions for unnamed semaphores; and, for the recorder of
//! traces, those that create and join threads and those of barriers. It has no lock
//! algorithm of its own: it gives pthread semantics to the locks of the `latchwork` crate, which it finds through the
//! registry.
//!
//! # Environment
//!
//! | variable | meaning |
//! |---|---|
//! | `LATCHWORK_MUTEX` | the lock behind mutexes; spin locks get `tas` if it is the chosen one, else `ttas` (`families/spin.rs` says why no other). Unset, empty or `glibc`: mutexes, spin locks, condition variables and semaphores stay with glibc |
//! | `LATCHWORK_RWLOCK` | the lock behind rwlocks; unset, empty or `glibc`: glibc |
//! | `LATCHWORK_LOCKS` | a lock per lock: which other locks serve which objects (`latchwork run --config` makes the value; `startup/locks.rs` has its form). Unset or empty: the two above serve all |
//! | `LATCHWORK_ONLY` | patterns with `*` and `?`, separated by commas, for the names of executables (without directories): processes of other programs ignore all these variables. Unset or empty: no process does |
//! | `LATCHWORK_NOT` | the same for the programs whose processes ignore the variables |
//! | `LATCHWORK_STATS` | `1`: statistics to stderr when the process exits. `json:PATH`: one line of JSON, appended to PATH. Unset, empty or `0`: none, at no cost |
//! | `LATCHWORK_MEMBARRIER` | `0`: no call of `membarrier`, for programs that install a seccomp filter |
//! | `LATCHWORK_NEAR` | `0`: no copies of fast paths near the program |
//! | `LATCHWORK_CHECK` | `1`: deadlock and misuse detection, whichever lock serves; reports on stderr. `exit:N`: the same, and a process in which a problem was found exits with the status N, from 1 to 255, when it ends by `exit` or by the return of `main` |
//! | `LATCHWORK_CHECK_JSON` | a file, to which each report is appended as well, as one line of JSON |
//! | `LATCHWORK_CHECK_IGNORE` | a file of patterns with `*` and `?`, one in each line, for the names of functions and of files with code: problems are left out that have one in their stacks |
//! | `LATCHWORK_PROFILE` | a directory: each process records there how it waits for locks, in a file `PID.N.recording`, whichever lock serves (`latchwork profile` reads them). Unset, empty or `0`: nothing is recorded, at no cost |
//! | `LATCHWORK_TRACE` | a directory: each process records every lock call there, and which threads are created, joined and meet at barriers, in a file `PID.N.trace`, whichever lock serves (`latchwork record` reads them). Unset, empty or `0`: nothing is recorded, at no cost. It takes precedence over `LATCHWORK_PROFILE` |
//! | `LATCHWORK_TRACE_WINDOW` | three numbers, separated by commas: milliseconds until calls are recorded, milliseconds for which they are (0: to the end), and MiB of calls that are kept for each process |
//! | `LATCHWORK_USED` | a file of two bytes, in which a process notes that it has used a lock (`latchwork compare`, `tune` and `check` make it) |
//! | `LATCHWORK_LIVE` | `1`: the process listens for SIGURG from an observer, who switches the recording on and off (`latchwork profile --pid`, `latchwork top`). Unset, empty or `0`: it does not listen |
//!
//! A process with raised privileges (`AT_SECURE`) ignores all of them, and this library serves none of its locks.
//!
//! An unknown lock name ends the process with status 127 and one line on stderr. The library never writes to stdout.
//!
//! The JSON line: `{"pid":N, FAMILY:{"lock":NAME,"objects":N,"calls":N,"contended":N}, ...,
//! "to_glibc":{REASON:{"objects":N,"calls":N}, ...}}`. FAMILY is `mutex`, `rwlock`, `condvar`, `spin` or `semaphore`; it is
//! present if this library serves it. `calls` are lock calls (for a condition variable: waits and notifications).
//! `contended` are those that did not get the lock at the first attempt (for a condition variable: waits).
//! With `LATCHWORK_LOCKS`, FAMILY also has `"chosen":{NAME:N, ...}`: for how many objects another lock was chosen. REASON is
//! `mutex_robust`, `mutex_priority`, `mutex_shared`, `rwlock_shared`, `condvar_shared`, `semaphore_shared`, `spin_shared`,
//! `rwlock_prefers_writers`, `mutex_choice` or `rwlock_choice`. An object that glibc has served before set-up counts as
//! `mutex_choice`, `rwlock_choice` or `condvar_shared`. A process and each child that it forks write a line each; `_exit` writes none.
//!
//! # Layers
//!
//! Each layer imports only layers below it.
//!
//! | layer | what it has |
//! |---|---|
//! | `startup` | what happens once at the start of the process; the exported symbols; the fork handlers |
//! | `observers` | lock-order checks and the recorder of profiles, two layers over the table of functions; the report of the statistics |
//! | `families` | the semantics of mutexes, rwlocks, condition variables, semaphores, spin locks and C11 locks, one module each |
//! | `state` | the bytes of the pthread objects, the table of functions, fork generations, numbers of threads, counters |
//!
//! A call of the program takes this way:
//!
//! 1. An exported symbol jumps to the function of the chosen lock (`startup::entry`), or inlines it (`startup::hot`), or
//!    the program calls a copy near itself (`startup::near`).
//! 2. That function (in `families`) compares one word of the object with the word that a usual object has. If they are
//!    equal, it runs the raw lock's fast path, which is inlined.
//! 3. Otherwise a slow path, which exists once for all locks, brings the object up to date, finds out what kind it is, and
//!    waits if need be.
//!
//! Every raw lock lies in the bytes of the pthread object (`state::abi`). One that does not fit gets memory at its first
//! use (`state::place`).
//!
//! Two locks, `bravo-glibc` and `bravo-2d-glibc`, are BRAVO over glibc's own rwlock. glibc's lock stays in the bytes that
//! glibc uses, and this library calls glibc's functions (`families::rwlock::over_glibc`).
//!
//! This library leaves to glibc what its locks cannot do: robust, priority-inheriting, priority-protected and process-shared
//! objects, and rwlocks that ask for preference of writers. It decides object by object, and counts them.
//!
//! The library must be built with `panic = "abort"`, as the workspace's release profile does. Cancellation may unwind
//! through its functions, which then have no landing pads.

mod families;
mod observers;
mod startup;
mod state;
