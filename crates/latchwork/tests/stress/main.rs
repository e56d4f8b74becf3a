//! Every algorithm on real threads: more of them than cores, coming and going, with short and
//! sleeping sections, attempts and deadlines mixed in. What loom cannot do: the machine's real
//! memory, the kernel's futex and `membarrier`, and time.
//!
//! Each lock runs for 0.2 seconds, or `LATCHWORK_STRESS_SECONDS`; `LATCHWORK_LOCK=name` runs one lock
//! only (or several, separated by commas). A lock that stands still is named
//! on stderr, and the process ends.
//!
//! The harness itself is tested with locks that are broken on purpose; see [`broken`].

#[path = "../example/futex.rs"]
mod example;

mod broken;
mod harness;
mod mutex;
mod rwlock;
