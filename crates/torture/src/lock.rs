//! Mutexes and reader-writer locks behind one face, so that what is done to them is written once.
//!
//! Tokens cross it as words. That is how adapters without room for a typed token keep them, and it
//! is what lets one thread release what another acquired.

use latchwork::locks::mutex::{Info, RawMutex, Token as _};
use latchwork::locks::rwlock::RawRwLock;
use latchwork::machine::{Deadline, Machine};

/// What an acquisition allows.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Shared with other readers.
    Read,
    /// Alone.
    Write,
}

/// How to ask for it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// As long as it takes.
    Wait,
    /// The same in two steps, as the preloaded library does it.
    WeakTryThenWait,
    /// Without waiting.
    Try,
    /// Until a deadline.
    Until(Deadline),
}

/// What is needed to release.
#[derive(Copy, Clone, Debug)]
pub struct Token {
    access: Access,
    word: usize,
}

/// A lock under torture.
pub trait Lock: Send + Sync + 'static {
    /// The machine it runs on.
    type Machine: Machine;
    /// Its description.
    const INFO: Info;
    /// Whether it has readers; without, every access is [`Access::Write`].
    const READERS: bool;
    /// Whether its readers always share it.
    const SHARES: bool;

    /// An unlocked one.
    fn new() -> Self;
    /// Acquires. `None` only for a try or after a deadline.
    fn acquire(&self, access: Access, way: Way) -> Option<Token>;
    /// Releases.
    ///
    /// # Safety
    ///
    /// The token is from the acquisition that this ends.
    unsafe fn release(&self, token: Token);
    /// What the lock says about itself.
    fn is_locked(&self) -> bool;
    /// What the lock says about writers.
    fn is_write_locked(&self) -> bool;
}

/// A mutex.
#[repr(transparent)]
pub struct Exclusive<L>(L);

impl<L: RawMutex> Lock for Exclusive<L> {
    type Machine = L::Machine;
    const INFO: Info = L::INFO;
    const READERS: bool = false;
    const SHARES: bool = false;

    fn new() -> Self {
        Exclusive(L::new_in())
    }

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

    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }

    fn is_write_locked(&self) -> bool {
        self.0.is_locked()
    }
}

/// A reader-writer lock.
#[repr(transparent)]
pub struct Shared<R>(R);

impl<R: RawRwLock> Lock for Shared<R> {
    type Machine = R::Machine;
    const INFO: Info = R::INFO;
    const READERS: bool = true;
    const SHARES: bool = R::SHARES;

    fn new() -> Self {
        Shared(R::new_in())
    }

    fn acquire(&self, access: Access, way: Way) -> Option<Token> {
        let word = match access {
            Access::Read => match way {
                Way::Wait | Way::WeakTryThenWait => Some(self.0.read()),
                Way::Try => self.0.try_read(),
                Way::Until(deadline) => self.0.read_until(deadline),
            }
            .map(|token| token.into_word()),
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
        // SAFETY: the word is this acquisition's token, of the kind that its access says.
        unsafe {
            match token.access {
                Access::Read => self.0.unlock_read(R::Read::from_word(token.word)),
                Access::Write => self.0.unlock_write(R::Write::from_word(token.word)),
            }
        }
    }

    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }

    fn is_write_locked(&self) -> bool {
        self.0.is_write_locked()
    }
}

/// The lock's memory as it is now, for whoever has to find out why it stands still.
pub fn words<L>(lock: &L) -> String {
    let count = size_of::<L>() / 4;
    let first = core::ptr::from_ref(lock).cast::<u32>();
    let word = |index| {
        // SAFETY: inside the lock, which is live and consists of words of at least this alignment;
        // others write it meanwhile, hence volatile.
        format!("{:08x}", unsafe { first.add(index).read_volatile() })
    };
    if align_of::<L>() < 4 {
        return "not made of words".to_owned();
    }
    (0..count).map(word).collect::<Vec<_>>().join(" ")
}
