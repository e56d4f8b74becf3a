//! What some locks can do beyond acquiring and releasing: downgrade, upgradable reads, fair unlock.
//!
//! [`Exclusive`](crate::lock::Exclusive) and [`Shared`](crate::lock::Shared) take one of the types below, which says what
//! the lock can do and does it.

use crate::access::{Access, Token, Way};
use latchwork::locks::mutex::{Fair, RawMutex, Token as _};
use latchwork::locks::rwlock::{RawDowngrade, RawFair, RawRwLock, RawUpgrade, Timeout};

/// Which of them a lock can do.
#[derive(Copy, Clone, Debug, Default)]
pub struct Modes {
    /// A writer becomes a reader.
    pub downgrades: bool,
    /// An upgradable reader becomes a writer or a reader, and a writer an upgradable reader.
    pub upgrades: bool,
    /// A release leaves the lock to a waiter.
    pub fair: bool,
}

/// What a mutex can do.
pub trait OfMutex<L: RawMutex>: Send + Sync + 'static {
    /// Releases the lock, and leaves it to a waiter.
    const UNLOCK_FAIR: Option<unsafe fn(&L, L::Token)> = None;
}

/// What a reader-writer lock can do.
pub trait OfRwLock<R: RawRwLock>: Send + Sync + 'static {
    /// As a value.
    const MODES: Modes = Modes { downgrades: false, upgrades: false, fair: false };

    /// Acquires an upgradable read; returns the token's word.
    fn upgradable(_: &R, _: Way) -> Option<usize> {
        None
    }

    /// Turns the caller's acquisition into one of another kind. Otherwise the caller has its acquisition back.
    ///
    /// # Safety
    ///
    /// The token is from an acquisition of this lock, which this ends if it returns another token.
    unsafe fn change(_: &R, token: Token, _to: Access, _: Way) -> Result<Token, Token> {
        Err(token)
    }

    /// Ends an upgradable acquisition.
    ///
    /// # Safety
    ///
    /// The word is the token of the upgradable acquisition that this ends.
    unsafe fn unlock_upgradable(_: &R, _word: usize) {
        unreachable!("such a lock has none");
    }

    /// Ends a read or write acquisition, and leaves the lock to a waiter.
    ///
    /// # Safety
    ///
    /// The token is from the read or write acquisition that this ends.
    unsafe fn unlock_fair(lock: &R, token: Token) {
        // SAFETY: forwarded from the caller.
        unsafe { unlock(lock, token) };
    }
}

/// Nothing more.
pub struct Plain;

impl<L: RawMutex> OfMutex<L> for Plain {}
impl<R: RawRwLock> OfRwLock<R> for Plain {}

/// Fair unlock.
pub struct Leaves;

impl<L: Fair> OfMutex<L> for Leaves {
    const UNLOCK_FAIR: Option<unsafe fn(&L, L::Token)> = Some(L::unlock_fair);
}

/// Downgrade.
pub struct Downgrades;

impl<R: RawDowngrade> OfRwLock<R> for Downgrades {
    const MODES: Modes = Modes { downgrades: true, upgrades: false, fair: false };

    unsafe fn change(lock: &R, token: Token, _to: Access, _: Way) -> Result<Token, Token> {
        // SAFETY: the word is this acquisition's token; the torture changes nothing but writers of such a lock.
        let read = unsafe { lock.downgrade(R::Write::from_word(token.word)) };
        Ok(Token { access: Access::Read, word: read.into_word() })
    }
}

/// All of them.
pub struct Upgrades;

impl<R: RawUpgrade + RawFair> OfRwLock<R> for Upgrades {
    const MODES: Modes = Modes { downgrades: true, upgrades: true, fair: true };

    fn upgradable(lock: &R, way: Way) -> Option<usize> {
        Some(lock.upgradable_within(timeout(way), &|| ())?.into_word())
    }

    unsafe fn change(lock: &R, token: Token, to: Access, way: Way) -> Result<Token, Token> {
        // SAFETY: the word is the token of an acquisition of the kind that its access says.
        let word = unsafe {
            match (token.access, to) {
                (Access::Write, Access::Upgradable) => {
                    lock.downgrade_to_upgradable(R::Write::from_word(token.word)).into_word()
                }
                (Access::Write, _) => lock.downgrade(R::Write::from_word(token.word)).into_word(),
                (_, Access::Write) => {
                    match lock.upgrade_within(R::Upgradable::from_word(token.word), timeout(way)) {
                        Ok(write) => write.into_word(),
                        Err(held) => return Err(Token { word: held.into_word(), ..token }),
                    }
                }
                _ => lock.downgrade_upgradable(R::Upgradable::from_word(token.word)).into_word(),
            }
        };
        Ok(Token { access: to, word })
    }

    unsafe fn unlock_upgradable(lock: &R, word: usize) {
        // SAFETY: forwarded from the caller.
        unsafe { lock.unlock_upgradable_fair(R::Upgradable::from_word(word)) };
    }

    unsafe fn unlock_fair(lock: &R, token: Token) {
        // SAFETY: the word is this acquisition's token, of the kind that its access says.
        unsafe {
            match token.access {
                Access::Write => lock.unlock_write_fair(R::Write::from_word(token.word)),
                _ => lock.unlock_read_fair(R::Read::from_word(token.word)),
            }
        }
    }
}

/// Ends a read or write acquisition.
///
/// # Safety
///
/// The token is from the read or write acquisition that this ends.
pub(crate) unsafe fn unlock<R: RawRwLock>(lock: &R, token: Token) {
    // SAFETY: the word is this acquisition's token, of the kind that its access says.
    unsafe {
        match token.access {
            Access::Write => lock.unlock_write(R::Write::from_word(token.word)),
            _ => lock.unlock_read(R::Read::from_word(token.word)),
        }
    }
}

fn timeout(way: Way) -> Timeout {
    match way {
        Way::Wait | Way::WeakTryThenWait => Timeout::Never,
        Way::Try => Timeout::Immediate,
        Way::Until(deadline) => Timeout::At(deadline),
    }
}
