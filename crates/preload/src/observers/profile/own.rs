//! The locks of `latchwork.h`, in programs that are compiled with `LW_DEBUG`: [`foreign`](crate::observers::foreign) calls these
//! functions. Where the program made a call is found out when its stack is captured.

use super::calls::{Call, Origin};
pub(in crate::observers) use super::lifetimes::{gone, named};
use super::{acquire as acquiring, attempts, release as releasing, session};
use latchwork_recording::layout::kind::{MUTEX, OWN, RWLOCK};
use libc::c_int;

/// Whether something is recorded.
#[inline]
pub(in crate::observers) fn is_on() -> bool {
    session::number() != 0 || session::is_of_parent()
}

/// What a lock is, and what is asked of it.
#[derive(Copy, Clone)]
pub(in crate::observers) struct Wish {
    pub(in crate::observers) rwlock: bool,
    pub(in crate::observers) read: bool,
    /// The call does not wait.
    pub(in crate::observers) tries: bool,
}

impl Wish {
    fn kind(self) -> u32 {
        OWN | if self.rwlock { RWLOCK } else { MUTEX }
    }
}

const UNKNOWN: Origin = Origin { caller: 0, slot: 0 };

/// Acquires a lock: `try_lock` does not wait, `block` does what the program has asked for.
pub(in crate::observers) fn acquire(
    address: usize,
    wish: Wish,
    try_lock: impl Fn() -> c_int,
    block: impl Fn() -> c_int,
) -> c_int {
    let call = Call::new(wish.kind(), address, wish.read);
    // SAFETY: for an object of this kind, the recorder uses the address only as a number.
    unsafe {
        if wish.tries {
            attempts::attempt(call, UNKNOWN, block)
        } else {
            acquiring::acquire(call, UNKNOWN, try_lock, block)
        }
    }
}

/// Releases a lock.
pub(in crate::observers) fn release(address: usize, wish: Wish, below: impl FnMut() -> c_int) -> c_int {
    // SAFETY: as in `acquire`.
    unsafe { releasing::release::<true>(wish.kind(), address, below) }
}
