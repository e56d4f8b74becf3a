//! The beginning and the end of threads: which thread created which, and who waited for whose end.
//!
//! A thread's record and stream are there before its function runs, so the trace has the whole life of each thread, and threads
//! that make no lock call. The creating thread takes the record, and passes [`begin`] to the C library in place of the program's
//! function.

use super::stream::{self, Stream, Task, ticks};
use crate::state::table::Start;
use core::ptr::{null_mut, without_provenance_mut};
use latchwork_recording::trace::{self, op};
use libc::{ETIMEDOUT, c_int, c_void};

/// Creates a thread: `below` gets a function and its argument.
pub(super) fn create(
    start: Start,
    argument: *mut c_void,
    below: impl FnOnce(Start, *mut c_void) -> c_int,
) -> c_int {
    let Some(index) = stream::current().and_then(Stream::new_child) else {
        stream::unknown();
        return below(start, argument);
    };
    let since = ticks();
    // SAFETY: the index is this thread's until the call below.
    unsafe { stream::task(index).write(Task { start: Some(start), argument }) };
    let result = below(begin, without_provenance_mut(index as usize));
    if let Some(stream) = stream::current() {
        if result == 0 {
            stream.event(op::CREATE, index, Some(since));
            stream.make_room();
        } else {
            stream.keep_child(index);
        }
    }
    result
}

/// What a new thread runs: the program's function.
unsafe extern "C" fn begin(index: *mut c_void) -> *mut c_void {
    let index = index.addr() as u32;
    // SAFETY: the creating thread has put it there for this thread alone.
    let Task { start, argument } = unsafe { stream::task(index).read() };
    let Some(start) = start else { return null_mut() };
    stream::enter(index, start as usize);
    // SAFETY: the program's function and its argument.
    unsafe { start(argument) }
}

/// Waits for the end of a thread.
///
/// As in a wait for a condition, the thread may be cancelled below.
#[inline(always)]
pub(super) fn join(thread: libc::pthread_t, below: impl FnOnce() -> c_int) -> c_int {
    let since = ticks();
    let result = below();
    let handle = match result {
        0 => thread,
        ETIMEDOUT => 0,
        // It has not waited.
        _ => return result,
    };
    let Some(stream) = stream::current() else {
        stream::unknown();
        return result;
    };
    let (object, more) = trace::join::pack(handle);
    stream.event_with(op::JOIN, object, Some(since), more);
    stream.make_room();
    result
}
