//! Switching the recording of a live process on and off.
//!
//! An observer asks for it with a signal and a file ([`latchwork_recording::control`]); `startup::live` has the handler. While
//! nothing is recorded, the table has the functions below the layer, and a lock call executes the same instructions as in a
//! process that cannot be observed.
//!
//! # Sessions
//!
//! A *session* is the time from one switching on to the next switching off, and has a file of its own. Sessions have numbers;
//! [`session::number`] is that of the present one, or 0.
//!
//! A thread in a call of the layer is *inside* (`threads::Inside`), except while it waits for a lock, a condition or a unit.
//! The file stays mapped until no thread is inside. If a session has ended while a thread waited, the thread touches no record
//! after its wait ([`Inside::come_back`](super::threads::Inside::come_back)). So no thread writes to records of a later
//! session.
//!
//! | | happens before | because |
//! |---|---|---|
//! | (C) | a thread is seen inside, or it sees that the session has ended | it stores `inside`, issues a light fence and loads the session; the switching thread stores the session, issues a heavy fence and loads `inside` |
//! | (B) | what a thread wrote before it left happens before the file is unmapped | release store of `inside`, acquire load |
//!
//! # The state at the moment of switching
//!
//! A lock that was acquired before the session has no measured hold, because the thread's entry has no beginning of it. Its
//! release is recorded: if threads have begun to wait during the session, the holder is charged for their time. A wait
//! that began before the session is in no figure, and one that has not ended with it is known to the reader by
//! [`Thread::waits_for`](latchwork_recording::layout::Thread::waits_for).

use super::file::Path;
use super::{clock, file, homes, recording, session, threads};
use crate::state::kernel;
use crate::state::memory::quietly;
use crate::state::table::Slot;
use core::fmt::Write;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use latchwork::machine::{Clock, Machine, Native};
use latchwork_recording::control::{self, Control, answer, request};
use latchwork_recording::layout::{VERSION, began};

/// The control file of the observer whose session this is; null if the process is recorded from its start, or not at all. It
/// stays mapped as long as the recording.
static CONTROL: AtomicPtr<Control> = AtomicPtr::new(null_mut());
/// The number of that observer's directory.
static NUMBER: AtomicU64 = AtomicU64::new(0);
/// Puts the layer over what the program calls, or takes it off: set by `startup::live`, without which nothing is switched.
pub(crate) static SWITCH: Slot<fn(bool)> = Slot::new(|_| {});

/// The thread that switches; 0: none.
static SWITCHING: AtomicU32 = AtomicU32::new(0);

/// The right to switch. A thread that forks holds it, too, so that no child inherits a half-switched table.
pub(super) struct Switching(());

impl Switching {
    /// `None`: another thread switches, or this one does, in a call that a signal handler has interrupted.
    pub(super) fn begin() -> Option<Self> {
        // (E) pairs with itself: one thread switches after the other.
        SWITCHING.compare_exchange(0, homes::tid(), Acquire, Relaxed).ok().map(|_| Switching(()))
    }
}

impl Drop for Switching {
    fn drop(&mut self) {
        SWITCHING.store(0, Release); // (E)
    }
}

/// In a thread that is about to fork.
pub(crate) fn before_fork() {
    let me = homes::tid();
    // If a signal handler forks that has interrupted this very thread as it switches, the child gets what is there.
    while SWITCHING.compare_exchange(0, me, Acquire, Relaxed).is_err_and(|holder| holder != me) {
        Native::yield_now();
    }
}

/// In the parent and in the child.
pub(crate) fn after_fork() {
    SWITCHING.store(0, Release); // (E)
}

/// The control file of the present session. A forked child has that of its parent, and is recorded until the observer ends the
/// session.
fn control() -> Option<&'static Control> {
    let control = CONTROL.load(Acquire);
    // SAFETY: it stays mapped as long as the recording. The callers are inside, or may switch.
    (!control.is_null()).then(|| unsafe { &*control })
}

/// A thread in the layer has looked at the clock: ends the session if the observer is gone.
#[inline(always)]
pub(super) fn look(now: u64) {
    if let Some(control) = control()
        && control.deadline.load(Relaxed) < now
    {
        expire(control);
    }
}

/// Ends the session of an observer that is gone. The calling thread is inside, so the file stays mapped until an observer
/// asks again, or the process ends.
#[cold]
#[inline(never)]
fn expire(control: &Control) {
    // The recorder's own clock is not exactly the observer's.
    if control.deadline.load(Relaxed) >= Native::now(Clock::Monotonic) {
        return;
    }
    let Some(_switching) = Switching::begin() else { return };
    if session::number() == 0 {
        return;
    }
    quietly(|| {
        leave_session();
        // The observer's files, unless it belongs to the parent of this process.
        file::remove(NUMBER.load(Relaxed));
    });
}

/// Stops recording. The file stays mapped.
fn leave_session() {
    SWITCH.get()(false);
    file::header().ended.store(clock::now(), Relaxed);
    session::end();
}

/// Unmaps the recording and the control file. No thread is inside.
fn retire() {
    if file::is_open() {
        recording::discard();
    }
    let control = CONTROL.swap(null_mut(), Relaxed);
    if !control.is_null() {
        unmap(control);
    }
}

/// An observer has knocked: does what its control file says, and answers. In a signal handler.
pub(crate) fn knock(number: u64) {
    quietly(|| {
        // An observer that gets no answer asks again.
        let Some(_switching) = Switching::begin() else { return };
        let known = CONTROL.load(Relaxed);
        if !known.is_null() && NUMBER.load(Relaxed) == number {
            // SAFETY: it is mapped until `retire`, which `serve` calls last.
            return serve(unsafe { &*known }, number, true);
        }
        let control = map(number);
        if control.is_null() {
            return;
        }
        // SAFETY: `map` has mapped it.
        serve(unsafe { &*control }, number, false);
        if CONTROL.load(Relaxed) != control {
            unmap(control);
        }
    });
}

fn serve(control: &Control, number: u64, known: bool) {
    let question = control.question.load(Acquire); // (F) pairs with the observer's store
    let reply = |what, detail| {
        control.answer.store(what, Relaxed);
        control.detail.store(detail, Relaxed);
        control.answered.store(question, Release); // (F) pairs with the observer's load
    };
    if control.version != VERSION {
        return reply(answer::VERSION, VERSION);
    }
    if control.request.load(Relaxed) == request::OFF {
        if known && session::number() != 0 {
            leave_session();
        }
        if !known {
            return reply(answer::OFF, 0);
        }
        if !threads::are_outside() {
            return reply(answer::BUSY, 0);
        }
        // A thread that was inside may have measured something since the session ended.
        if file::is_open() {
            file::header().ended.store(clock::now(), Relaxed);
        }
        // The control file is unmapped with the recording.
        reply(answer::OFF, 0);
        retire();
        return;
    }
    if session::number() != 0 {
        if known {
            return reply(answer::ON, 0);
        }
        let Some(other) = self::control() else { return reply(answer::TAKEN, 0) };
        if other.deadline.load(Relaxed) >= Native::now(Clock::Monotonic) {
            return reply(answer::TAKEN, other.observer);
        }
        leave_session();
    }
    if !threads::are_outside() {
        return reply(answer::BUSY, 0);
    }
    // The question may come from the observer of the session that is over: then its file stays.
    let kept = if known { CONTROL.swap(null_mut(), Relaxed) } else { null_mut() };
    retire();
    let mut directory = Path::new();
    let _ = control::directory(number, &mut directory);
    file::set_directory(directory.as_bytes());
    if let Err(why) = recording::open(began::LATE) {
        control.why.iter().zip(why.bytes().chain([0])).for_each(|(to, byte)| to.store(byte, Relaxed));
        if !kept.is_null() {
            CONTROL.store(kept, Relaxed);
        }
        return reply(answer::FAILED, 0);
    }
    NUMBER.store(number, Relaxed);
    CONTROL.store(core::ptr::from_ref(control).cast_mut(), Release);
    session::begin();
    SWITCH.get()(true);
    reply(answer::ON, 0);
}

/// Maps the control file with this number; null if it is not there, or is not to be trusted.
fn map(number: u64) -> *mut Control {
    let mut path = Path::new();
    let _ = control::directory(number, &mut path);
    let _ = write!(path, "/{}\0", control::FILE);
    let flags = libc::O_RDWR | libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    // SAFETY: the path ends in a zero byte; the mapping is a new one.
    unsafe {
        let file = kernel::open(path.as_bytes().as_ptr().cast(), flags, 0);
        if file < 0 {
            return null_mut();
        }
        let length = size_of::<Control>();
        let mut control = null_mut::<Control>();
        if let Some(found) = kernel::status(file)
            && found.st_mode & libc::S_IFMT == libc::S_IFREG
            && found.st_mode & 0o022 == 0
            && [0, libc::geteuid()].contains(&found.st_uid)
            && found.st_size >= length as i64
        {
            let mapped = kernel::map(null_mut(), length, 0, Some(file));
            if mapped != libc::MAP_FAILED {
                control = mapped.cast();
            }
        }
        kernel::close(file);
        if !control.is_null() && (*control).magic != control::MAGIC {
            unmap(control);
            return null_mut();
        }
        control
    }
}

fn unmap(control: *mut Control) {
    // SAFETY: `map` has mapped it, and no thread uses it any more.
    unsafe { kernel::unmap(control.cast(), size_of::<Control>()) };
}
