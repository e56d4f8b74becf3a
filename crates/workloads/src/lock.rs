//! What a workload knows of a lock.
//!
//! One trait for mutexes, reader-writer locks and the locks of other libraries, with guards, since
//! some of those libraries have nothing else.

use latchwork::locks::condvar::RawCondvar;
use latchwork::locks::mutex::RawMutex;
use latchwork::locks::rwlock::RawRwLock;
use latchwork::locks::semaphore::RawSemaphore;
use latchwork::machine::Machine;

/// A lock with readers and writers; for a mutex, reading and writing are the same.
pub trait Lock: Send + Sync + Sized + 'static {
    /// What it runs on.
    type Machine: Machine;
    /// Ends a read acquisition when dropped.
    type Read<'a>
    where
        Self: 'a;
    /// Ends a write acquisition when dropped.
    type Write<'a>
    where
        Self: 'a;

    /// The condition variable that a program uses with this lock.
    type Condvar: Condvar<Self>;
    /// The semaphore that a program uses beside this lock.
    type Semaphore: Semaphore;

    /// Whether readers can be inside together.
    const SHARED: bool;

    /// An unlocked lock.
    fn new() -> Self;
    /// Acquires for reading.
    fn read(&self) -> Self::Read<'_>;
    /// Acquires for writing.
    fn write(&self) -> Self::Write<'_>;
    /// Acquires for writing, if that is possible without waiting.
    fn try_write(&self) -> Option<Self::Write<'_>>;
    /// [`RawMutex::wants_offers`]; `false` where that is not known.
    fn wants_offers(&self) -> bool {
        false
    }
    /// Bytes of a lock, with what it allocates for itself.
    fn bytes() -> usize {
        size_of::<Self>()
    }
}

/// A condition variable of the lock `L`, which waiters hold for writing.
pub trait Condvar<L: Lock>: Send + Sync {
    /// A condition variable without waiters.
    fn new() -> Self;
    /// Releases the lock, waits for a notification, and acquires the lock again. May return without a notification.
    fn wait<'l>(&self, lock: &'l L, held: L::Write<'l>) -> L::Write<'l>;
    /// Wakes one waiter, if there is one.
    fn notify_one(&self);
    /// Wakes all waiters.
    fn notify_all(&self);
}

/// A counting semaphore.
pub trait Semaphore: Send + Sync {
    /// A semaphore with so many units.
    fn new(units: u32) -> Self;
    /// Takes a unit, and waits for one if there is none.
    fn acquire(&self);
    /// Takes a unit if there is one.
    fn try_acquire(&self) -> bool;
    /// Gives a unit.
    fn release(&self);
}

/// This library's condition variable, which works with every lock.
impl<L: Lock> Condvar<L> for RawCondvar<L::Machine> {
    fn new() -> Self {
        RawCondvar::new_in()
    }
    #[inline]
    fn wait<'l>(&self, lock: &'l L, held: L::Write<'l>) -> L::Write<'l> {
        RawCondvar::wait(self, || drop(held), None);
        Self::offer_processor(|| lock.wants_offers());
        lock.write()
    }
    #[inline]
    fn notify_one(&self) {
        RawCondvar::notify_one(self);
    }
    #[inline]
    fn notify_all(&self) {
        RawCondvar::notify_all(self);
    }
}

/// This library's semaphore.
impl<M: Machine> Semaphore for RawSemaphore<M> {
    fn new(units: u32) -> Self {
        RawSemaphore::new_in(units)
    }
    #[inline]
    fn acquire(&self) {
        RawSemaphore::acquire(self);
    }
    #[inline]
    fn try_acquire(&self) -> bool {
        RawSemaphore::try_acquire(self)
    }
    #[inline]
    fn release(&self) {
        RawSemaphore::release(self).expect("a workload releases few units");
    }
}

/// A registered mutex.
pub struct Exclusive<L>(L);

/// Holds an [`Exclusive`].
pub struct Held<'a, L: RawMutex> {
    lock: &'a L,
    token: L::Token,
}

impl<L: RawMutex> Drop for Held<'_, L> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: a guard is made with the token of an acquisition, and dropped once.
        unsafe { self.lock.unlock(self.token) }
    }
}

impl<L: RawMutex> Lock for Exclusive<L> {
    type Machine = L::Machine;
    type Read<'a> = Held<'a, L>;
    type Write<'a> = Held<'a, L>;
    type Condvar = RawCondvar<L::Machine>;
    type Semaphore = RawSemaphore<L::Machine>;
    const SHARED: bool = false;

    fn new() -> Self {
        Exclusive(L::new_in())
    }
    #[inline]
    fn read(&self) -> Held<'_, L> {
        self.write()
    }
    #[inline]
    fn write(&self) -> Held<'_, L> {
        Held { lock: &self.0, token: self.0.lock() }
    }
    #[inline]
    fn try_write(&self) -> Option<Held<'_, L>> {
        Some(Held { lock: &self.0, token: self.0.try_lock()? })
    }
    fn wants_offers(&self) -> bool {
        self.0.wants_offers()
    }
}

/// A registered reader-writer lock.
pub struct Shared<R>(R);

/// Holds a [`Shared`] for reading.
pub struct Reading<'a, R: RawRwLock> {
    lock: &'a R,
    token: R::Read,
}

/// Holds a [`Shared`] for writing.
pub struct Writing<'a, R: RawRwLock> {
    lock: &'a R,
    token: R::Write,
}

impl<R: RawRwLock> Drop for Reading<'_, R> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: a guard is made with the token of an acquisition, and dropped once.
        unsafe { self.lock.unlock_read(self.token) }
    }
}

impl<R: RawRwLock> Drop for Writing<'_, R> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: a guard is made with the token of an acquisition, and dropped once.
        unsafe { self.lock.unlock_write(self.token) }
    }
}

impl<R: RawRwLock> Lock for Shared<R> {
    type Machine = R::Machine;
    type Read<'a> = Reading<'a, R>;
    type Write<'a> = Writing<'a, R>;
    type Condvar = RawCondvar<R::Machine>;
    type Semaphore = RawSemaphore<R::Machine>;
    const SHARED: bool = true;

    fn new() -> Self {
        Shared(R::new_in())
    }
    #[inline]
    fn read(&self) -> Reading<'_, R> {
        Reading { lock: &self.0, token: self.0.read() }
    }
    #[inline]
    fn write(&self) -> Writing<'_, R> {
        Writing { lock: &self.0, token: self.0.write() }
    }
    #[inline]
    fn try_write(&self) -> Option<Writing<'_, R>> {
        Some(Writing { lock: &self.0, token: self.0.try_write()? })
    }
}
