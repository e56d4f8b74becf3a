//! How an observer switches the recording of a live process on and off.
//!
//! The observer (`latchwork profile --pid`, `latchwork top`) makes a directory with a random number in its name
//! ([`directory`]), and in it a file with one [`Control`]. Then it *knocks*: it sends the process [`SIGNAL`] with that number.
//! The preload library's handler opens the file, does what [`Control::request`] asks, and writes its answer into the file. The
//! recording comes into the same directory.
//!
//! The kernel delivers a signal only from the same user or from root. The handler takes no file that another user owns or may
//! write to, and ignores the signal if it does not come from `sigqueue`. The default action of the signal is none, so a
//! process that has just executed another program does not die of it.
//!
//! While the process is recorded, the observer moves [`Control::deadline`] on. If the observer is killed, the process notices
//! that the deadline is over, and switches the recording off itself.

use core::fmt;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// The signal of a knock.
pub const SIGNAL: i32 = libc::SIGURG;
/// The first eight bytes of a control file.
pub const MAGIC: u64 = u64::from_le_bytes(*b"LWCONTRL");
/// The name of the file in the directory.
pub const FILE: &str = "control";
/// How far ahead of the clock an observer sets the deadline, in nanoseconds. An observer that is stopped for longer (Ctrl-Z)
/// loses the recording.
pub const AHEAD: u64 = 10_000_000_000;

/// This bit of the number says that the directory lies in `/tmp`, because the process sees no `/dev/shm`.
pub const IN_TMP: u64 = 1 << 63;

/// How the name of the directory begins. The number follows.
pub const DIRECTORY: &str = "latchwork-live-";

/// Writes the path of the directory with this number, as the process sees it.
pub fn directory(number: u64, out: &mut impl fmt::Write) -> fmt::Result {
    let parent = if number & IN_TMP != 0 { "/tmp" } else { "/dev/shm" };
    write!(out, "{parent}/{DIRECTORY}{number:016x}")
}

/// Values of [`Control::request`].
pub mod request {
    /// Record.
    pub const ON: u32 = 1;
    /// Stop recording.
    pub const OFF: u32 = 2;
}

/// Values of [`Control::answer`].
pub mod answer {
    /// The process records.
    pub const ON: u32 = 1;
    /// The process does not record, and has unmapped the recording.
    pub const OFF: u32 = 2;
    /// A thread still writes to an earlier recording. Ask again.
    pub const BUSY: u32 = 3;
    /// Another observer records the process: its number is in [`Control::detail`](super::Control::detail).
    pub const TAKEN: u32 = 4;
    /// The process cannot record. [`Control::why`](super::Control::why) says why.
    pub const FAILED: u32 = 5;
    /// The library has another version of the layout, which is in [`Control::detail`](super::Control::detail).
    pub const VERSION: u32 = 6;
}

/// What an observer and the process tell each other. The fields up to `detail` have the same place in every version.
#[repr(C)]
pub struct Control {
    /// [`MAGIC`].
    pub magic: u64,
    /// The observer's [`VERSION`](crate::layout::VERSION).
    pub version: u32,
    /// What the observer asks for: one of [`request`].
    pub request: AtomicU32,
    /// The number of the question. The observer changes it before each knock.
    pub question: AtomicU32,
    /// The question that the process has answered last. It stores this after the other fields of the answer, with release.
    pub answered: AtomicU32,
    /// One of [`answer`].
    pub answer: AtomicU32,
    /// See there.
    pub detail: AtomicU32,
    /// The observer's process number.
    pub observer: u32,
    /// For alignment.
    pub spare: u32,
    /// When the process shall stop recording by itself, on `CLOCK_MONOTONIC`.
    pub deadline: AtomicU64,
    /// Why the process cannot record, in UTF-8; zeroes behind it.
    pub why: [AtomicU8; 128],
}
