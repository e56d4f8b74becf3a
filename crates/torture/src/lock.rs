//! Mutexes and reader-writer locks behind one trait, so that each scenario is written and compiled once.
//!
//! Tokens cross the trait as words, as they do in adapters that have no room for a typed token. Words also let one
//! thread release a lock that another thread acquired.

pub use crate::access::{Access, Token, Way};
use crate::modes::{self, Modes, OfMutex, OfRwLock, Plain};
use latchwork::locks::mutex::{RawMutex, Token as _};
use latchwork::locks::rwlock::RawRwLock;
use latchwork::machine::Machine;
use std::marker::PhantomData;

/// A lock under torture, whatever its type.
///
/// The torture calls every lock through this trait's function pointers, so each scenario is compiled once and not
/// once for each lock. The price: the compiler sees no lock together with the section that it guards, so the torture
/// cannot find an ordering that is missing for the compiler alone. Loom and the workloads, which inline the locks,
/// find those. Orderings of the processor, races and lost wakeups are as visible as without the pointers.
pub trait Lock: Send + Sync {
    /// Acquires the lock. Returns `None` only for a try or after a deadline.
    fn acquire(&self, access: Access, way: Way) -> Option<Token>;
    /// Releases the lock.
    ///
    /// # Safety
    ///
    /// The token is from the acquisition that this call ends.
    unsafe fn release(&self, token: Token);
    /// Releases the lock, and leaves it to a waiter if it can do that ([`Modes::fair`]).
    ///
    /// # Safety
    ///
    /// The token is from the acquisition that this call ends.
    unsafe fn release_fairly(&self, token: Token);
    /// Turns an acquisition into one of another kind. If that fails, the caller has its acquisition back.
    ///
    /// # Safety
    ///
    /// The token is from an acquisition of the caller, of which the lock can make `to` ([`Modes`]).
    unsafe fn change(&self, token: Token, to: Access, way: Way) -> Result<Token, Token>;
    /// Whether the lock says that it is held.
    fn is_locked(&self) -> bool;
    /// Whether the lock says that a writer holds it.
    fn is_write_locked(&self) -> bool;
    /// The lock's memory as it is now, to find out why a lock stands still.
    fn words(&self) -> String;
}

/// A type of locks.
pub trait Made: Lock + Sized + 'static {
    /// The machine that the locks run on.
    type Machine: Machine;
    /// Whether the lock has readers; without readers, every access is [`Access::Write`].
    const READERS: bool;
    /// Whether two readers can always hold the lock together.
    const SHARES: bool;
    /// What the lock can do beyond that.
    const MODES: Modes;

    /// An unlocked lock.
    fn new() -> Self;
}

/// A type of locks as a value: what a scenario needs to make locks of that type.
pub struct Class {
    /// [`Made::READERS`]
    pub readers: bool,
    /// [`Made::SHARES`]
    pub shares: bool,
    /// [`Made::MODES`]
    pub modes: Modes,
    /// Size of a lock.
    pub bytes: usize,
    new: fn() -> Box<dyn Lock>,
    write: unsafe fn(*mut u8),
    at: fn(*mut u8) -> *const dyn Lock,
}

impl Class {
    /// The class of the locks of type `L`.
    pub fn of<L: Made>() -> &'static Class {
        const {
            &Class {
                readers: L::READERS,
                shares: L::SHARES,
                modes: L::MODES,
                bytes: size_of::<L>(),
                new: || Box::new(L::new()),
                // SAFETY: the caller of `Class::write` passes memory that is large enough, aligned and its own.
                write: |memory| unsafe { memory.cast::<L>().write(L::new()) },
                at: |memory| memory.cast::<L>(),
            }
        }
    }

    /// An unlocked lock.
    pub fn make(&self) -> Box<dyn Lock> {
        (self.new)()
    }

    /// Writes an unlocked lock to `memory`.
    ///
    /// # Safety
    ///
    /// `memory` has [`bytes`](Class::bytes) bytes, is aligned to a page, and belongs to the caller.
    pub unsafe fn write(&self, memory: *mut u8) {
        // SAFETY: forwarded from the caller.
        unsafe { (self.write)(memory) };
    }

    /// The lock that [`write`](Class::write) wrote to `memory`.
    pub fn at(&self, memory: *mut u8) -> *const dyn Lock {
        (self.at)(memory)
    }
}

/// A mutex.
#[repr(transparent)]
pub struct Exclusive<L, F = Plain>(L, PhantomData<F>);

impl<L: RawMutex, F: OfMutex<L>> Made for Exclusive<L, F> {
    type Machine = L::Machine;
    const READERS: bool = false;
    const SHARES: bool = false;
    const MODES: Modes = Modes { downgrades: false, upgrades: false, fair: F::UNLOCK_FAIR.is_some() };

    fn new() -> Self {
        Exclusive(L::new_in(), PhantomData)
    }
}

impl<L: RawMutex, F: OfMutex<L>> Lock for Exclusive<L, F> {
    fn acquire(&self, access: Access, way: Way) -> Option<Token> {
        let token = match way {
            Way::Wait => Some(self.0.lock()),
            Way::WeakTryThenWait => Some(self.0.try_lock_weak().unwrap_or_else(|| self.0.lock_contended())),
            Way::Try => self.0.try_lock(),
            Way::Until(deadline) => self.0.lock_until(deadline),
        };
        token.map(|token| Token { access, word: token.into_word() })
    }

    unsafe fn release(&self, token: Token) {
        // SAFETY: the word is this acquisition's token, forwarded from the caller.
        unsafe { self.0.unlock(L::Token::from_word(token.word)) };
    }

    unsafe fn release_fairly(&self, token: Token) {
        let unlock = F::UNLOCK_FAIR.unwrap_or(L::unlock);
        // SAFETY: the word is this acquisition's token, forwarded from the caller.
        unsafe { unlock(&self.0, L::Token::from_word(token.word)) };
    }

    unsafe fn change(&self, token: Token, _to: Access, _: Way) -> Result<Token, Token> {
        Err(token)
    }

    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }

    fn is_write_locked(&self) -> bool {
        self.0.is_locked()
    }

    fn words(&self) -> String {
        words(self)
    }
}

/// A reader-writer lock.
#[repr(transparent)]
pub struct Shared<R, F = Plain>(R, PhantomData<F>);

impl<R: RawRwLock, F: OfRwLock<R>> Made for Shared<R, F> {
    type Machine = R::Machine;
    const READERS: bool = true;
    const SHARES: bool = R::SHARES;
    const MODES: Modes = F::MODES;

    fn new() -> Self {
        Shared(R::new_in(), PhantomData)
    }
}

impl<R: RawRwLock, F: OfRwLock<R>> Lock for Shared<R, F> {
    fn acquire(&self, access: Access, way: Way) -> Option<Token> {
        let word = match access {
            Access::Read => match way {
                Way::Wait => Some(self.0.read()),
                Way::WeakTryThenWait => Some(self.0.try_read_weak().unwrap_or_else(|| self.0.read())),
                Way::Try => self.0.try_read(),
                Way::Until(deadline) => self.0.read_until(deadline),
            }
            .map(|token| token.into_word()),
            Access::Upgradable => F::upgradable(&self.0, way),
            Access::Write => match way {
                Way::Wait | Way::WeakTryThenWait => Some(self.0.write()),
                Way::Try => self.0.try_write(),
                Way::Until(deadline) => self.0.write_until(deadline),
            }
            .map(|token| token.into_word()),
        };
        word.map(|word| Token { access, word })
    }

    unsafe fn release(&self, token: Token) {
        // SAFETY: forwarded from the caller; the word is that of a token of this access.
        unsafe {
            match token.access {
                Access::Upgradable => F::unlock_upgradable(&self.0, token.word),
                _ => modes::unlock(&self.0, token),
            }
        }
    }

    unsafe fn release_fairly(&self, token: Token) {
        // SAFETY: as in `release`.
        unsafe {
            match token.access {
                Access::Upgradable => F::unlock_upgradable(&self.0, token.word),
                _ => F::unlock_fair(&self.0, token),
            }
        }
    }

    unsafe fn change(&self, token: Token, to: Access, way: Way) -> Result<Token, Token> {
        // SAFETY: forwarded from the caller.
        unsafe { F::change(&self.0, token, to, way) }
    }

    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }

    fn is_write_locked(&self) -> bool {
        self.0.is_write_locked()
    }

    fn words(&self) -> String {
        words(self)
    }
}

/// The 32-bit words of `object` as they are now.
pub(crate) fn words<T>(object: &T) -> String {
    if align_of::<T>() < 4 {
        return "not made of words".to_owned();
    }
    hexadecimal(core::ptr::from_ref(object).cast(), size_of::<T>() / 4)
}

/// `count` words from `first` on, which is aligned and inside a live object.
fn hexadecimal(first: *const u32, count: usize) -> String {
    let word = |index| {
        // SAFETY: `words` passes the address and the length of a live object. Other threads write it meanwhile,
        // so the read is volatile.
        format!("{:08x}", unsafe { first.add(index).read_volatile() })
    };
    (0..count).map(word).collect::<Vec<_>>().join(" ")
}
