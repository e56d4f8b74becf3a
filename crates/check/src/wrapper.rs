//! Any lock, checked.

use crate::{Wish, acquired, acquiring, destroying, forget, releasing};
use latchwork::locks::CondvarOver;
use latchwork::locks::mutex::shfl::RawShfl;
use latchwork::locks::mutex::{Api, ConstNew, Fair, Info, RawMutex};
use latchwork::locks::rwlock::shfl_rw::RawShflRw;
use latchwork::locks::rwlock::{self, RawDowngrade, RawFair, RawRecursive, RawRwLock, RawUpgrade, Timeout};
use latchwork::machine::{Deadline, Native};

/// A lock that is checked. See the [crate](crate)'s documentation.
///
/// It has the address of the lock inside, so BRAVO cannot be over it if that is BRAVO:
///
/// ```compile_fail,E0080
/// use latchwork::locks::rwlock::{bravo::Rows, shfl_rw::RawShflRw};
/// use latchwork::machine::Native;
/// use latchwork_check::Checked;
///
/// static TWICE: Rows<Native, Checked<Rows<Native, RawShflRw<Native>>>> = Rows::new();
/// ```
#[derive(Debug, Default)]
pub struct Checked<L>(L);

/// A checked mutex.
pub type CheckedMutex<T, L = RawShfl<Native>> = lock_api::Mutex<Api<Checked<L>>, T>;
/// A condition variable for a [`CheckedMutex`].
pub type CheckedCondvar<L = RawShfl<Native>> = CondvarOver<Checked<L>>;
/// A checked reader-writer lock.
pub type CheckedRwLock<T, R = RawShflRw<Native>> = lock_api::RwLock<rwlock::Api<Checked<R>>, T>;

impl<L> Checked<L> {
    fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    fn wait<T>(&self, wish: Wish, lock: impl FnOnce() -> T) -> T {
        let asked = acquiring(self.address(), wish);
        let token = lock();
        acquired(self.address(), wish, asked);
        token
    }

    fn attempt<T>(&self, wish: Wish, lock: impl FnOnce() -> Option<T>) -> Option<T> {
        let asked = acquiring(self.address(), wish);
        let token = lock()?;
        acquired(self.address(), wish, asked);
        Some(token)
    }

    /// The calling thread has held the lock alone, and reads it from now on.
    fn reads_on(&self) {
        releasing(self.address());
        acquired(self.address(), TRY_READ, acquiring(self.address(), TRY_READ));
    }
}

impl<L> Drop for Checked<L> {
    fn drop(&mut self) {
        destroying(self.address());
        forget(self.address());
    }
}

const LOCK: Wish = Wish::LOCK;
/// With a deadline.
const TIMED: Wish = Wish { forever: false, ..LOCK };
const TRY: Wish = Wish { waits: false, ..TIMED };
// An upgradable reader counts as a writer here, and does not keep readers waiting.
const READ: Wish = Wish { shared: true, ..TIMED };
const TRY_READ: Wish = Wish { shared: true, ..TRY };

// SAFETY: everything is the lock's inside.
unsafe impl<L: RawMutex<Machine = Native>> RawMutex for Checked<L> {
    type Machine = Native;
    type Token = L::Token;
    const INFO: Info = L::INFO;

    fn new_in() -> Self {
        Checked(L::new_in())
    }
    fn lock(&self) -> L::Token {
        self.wait(LOCK, || self.0.lock())
    }
    fn try_lock(&self) -> Option<L::Token> {
        self.attempt(TRY, || self.0.try_lock())
    }
    fn lock_until(&self, deadline: Deadline) -> Option<L::Token> {
        self.attempt(TIMED, || self.0.lock_until(deadline))
    }
    unsafe fn unlock(&self, token: L::Token) {
        releasing(self.address());
        // SAFETY: forwarded from the caller.
        unsafe { self.0.unlock(token) }
    }
    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

impl<L: Fair<Machine = Native>> Fair for Checked<L> {
    unsafe fn unlock_fair(&self, token: L::Token) {
        releasing(self.address());
        // SAFETY: forwarded from the caller.
        unsafe { self.0.unlock_fair(token) }
    }
}

impl<L: ConstNew> ConstNew for Checked<L> {
    #[allow(clippy::declare_interior_mutable_const)]
    const NEW: Self = Checked(L::NEW);
}

impl<R: rwlock::ConstNew> rwlock::ConstNew for Checked<R> {
    #[allow(clippy::declare_interior_mutable_const)]
    const NEW: Self = Checked(R::NEW);
}

// SAFETY: everything is the lock's inside.
unsafe impl<R: RawRwLock<Machine = Native>> RawRwLock for Checked<R> {
    type Machine = Native;
    type Read = R::Read;
    type Write = R::Write;
    type Counted = R::Counted;
    const INFO: Info = R::INFO;
    const SHARES: bool = R::SHARES;
    const PREFERS_READERS: bool = R::PREFERS_READERS;
    // A release by another thread is reported.
    const RELEASED_BY_ANY: bool = false;
    const HAS_SLOTS: bool = R::HAS_SLOTS;

    fn new_in() -> Self {
        Checked(R::new_in())
    }
    fn read(&self) -> R::Read {
        self.wait(READ, || self.0.read())
    }
    fn try_read(&self) -> Option<R::Read> {
        self.attempt(TRY_READ, || self.0.try_read())
    }
    fn read_until(&self, deadline: Deadline) -> Option<R::Read> {
        self.attempt(READ, || self.0.read_until(deadline))
    }
    unsafe fn unlock_read(&self, token: R::Read) {
        releasing(self.address());
        // SAFETY: forwarded from the caller.
        unsafe { self.0.unlock_read(token) }
    }
    fn write(&self) -> R::Write {
        self.wait(LOCK, || self.0.write())
    }
    fn try_write(&self) -> Option<R::Write> {
        self.attempt(TRY, || self.0.try_write())
    }
    fn write_until(&self, deadline: Deadline) -> Option<R::Write> {
        self.attempt(TIMED, || self.0.write_until(deadline))
    }
    unsafe fn unlock_write(&self, token: R::Write) {
        releasing(self.address());
        // SAFETY: forwarded from the caller.
        unsafe { self.0.unlock_write(token) }
    }
    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
    fn is_write_locked(&self) -> bool {
        self.0.is_write_locked()
    }
}

// SAFETY: everything is the lock's inside.
unsafe impl<R: RawDowngrade<Machine = Native>> RawDowngrade for Checked<R> {
    unsafe fn downgrade(&self, token: R::Write) -> R::Read {
        // SAFETY: forwarded from the caller.
        let token = unsafe { self.0.downgrade(token) };
        self.reads_on();
        token
    }
}

// An upgradable reader counts as a writer: it keeps writers and other upgradable readers out, and is about to be one.
// SAFETY: everything is the lock's inside.
unsafe impl<R: RawUpgrade<Machine = Native>> RawUpgrade for Checked<R> {
    type Upgradable = R::Upgradable;

    fn upgradable_within(&self, timeout: Timeout, watch: &dyn Fn()) -> Option<R::Upgradable> {
        let wish = if matches!(timeout, Timeout::Immediate) { TRY } else { TIMED };
        self.attempt(wish, || self.0.upgradable_within(timeout, watch))
    }
    unsafe fn unlock_upgradable(&self, token: R::Upgradable) {
        releasing(self.address());
        // SAFETY: forwarded from the caller.
        unsafe { self.0.unlock_upgradable(token) }
    }
    unsafe fn unlock_upgradable_fair(&self, token: R::Upgradable) {
        releasing(self.address());
        // SAFETY: forwarded from the caller.
        unsafe { self.0.unlock_upgradable_fair(token) }
    }
    unsafe fn upgrade_within(
        &self,
        token: R::Upgradable,
        timeout: Timeout,
    ) -> Result<R::Write, R::Upgradable> {
        // SAFETY: forwarded from the caller.
        unsafe { self.0.upgrade_within(token, timeout) }
    }
    unsafe fn downgrade_upgradable(&self, token: R::Upgradable) -> R::Read {
        // SAFETY: forwarded from the caller.
        let token = unsafe { self.0.downgrade_upgradable(token) };
        self.reads_on();
        token
    }
    unsafe fn downgrade_to_upgradable(&self, token: R::Write) -> R::Upgradable {
        // SAFETY: forwarded from the caller.
        unsafe { self.0.downgrade_to_upgradable(token) }
    }
}

// SAFETY: everything is the lock's inside.
unsafe impl<R: RawRecursive<Machine = Native>> RawRecursive for Checked<R> {
    fn read_recursive_within(&self, timeout: Timeout, watch: &dyn Fn()) -> Option<R::Read> {
        let wish = if matches!(timeout, Timeout::Immediate) { TRY_READ } else { READ };
        self.attempt(wish, || self.0.read_recursive_within(timeout, watch))
    }
}

// SAFETY: everything is the lock's inside.
unsafe impl<R: RawFair<Machine = Native>> RawFair for Checked<R> {
    fn is_awaited(&self) -> bool {
        self.0.is_awaited()
    }
    unsafe fn unlock_read_fair(&self, token: R::Read) {
        releasing(self.address());
        // SAFETY: forwarded from the caller.
        unsafe { self.0.unlock_read_fair(token) }
    }
    unsafe fn unlock_write_fair(&self, token: R::Write) {
        releasing(self.address());
        // SAFETY: forwarded from the caller.
        unsafe { self.0.unlock_write_fair(token) }
    }
}
