//! Downgrades, upgradable reads and fair unlocks, of the locks that have them.
//!
//! | operation | must hold |
//! |---|---|
//! | downgrade | no writer between the write section and the end of the read |
//! | upgradable read | no writer and no other upgradable reader beside it |
//! | upgrade | no write section between the upgradable read and the writer that comes of it |
//! | attempt to upgrade | if it fails, the thread is still the upgradable reader; it succeeds if no other thread uses the lock |
//! | fair unlock | no thread waits for ever |

use super::super::client::{Operation, What};
use super::super::machine::Explore;
use super::super::subject::{Going, TIMEOUTS, check, here, hold, me, note, waiting};
use super::RwLock;
use latchwork::locks::rwlock::{RawDowngrade, RawFair, RawRwLock, RawUpgrade, Timeout};
use latchwork::machine::Deadline;

/// What a lock can do beyond [`RawRwLock`].
pub(in super::super) trait Forms<R: RawRwLock<Machine = Explore>>: Sized {
    /// The operations, for clients to have.
    const MORE: &'static [What] = &[];

    /// Carries out one of [`MORE`](Forms::MORE).
    fn operate(_: &RwLock<R, Self>, operation: Operation, _: &Going) {
        unreachable!("no client of this lock has {operation:?}");
    }
}

/// Nothing more.
pub(in super::super) struct Plain;

impl<R: RawRwLock<Machine = Explore>> Forms<R> for Plain {}

/// Downgrades.
pub(in super::super) struct Downgrades;

impl<R: RawDowngrade<Machine = Explore>> Forms<R> for Downgrades {
    const MORE: &'static [What] = &[What::Downgrade];

    fn operate(this: &RwLock<R, Self>, operation: Operation, _: &Going) {
        this.downgrades(operation.hold);
    }
}

/// All three.
pub(in super::super) struct Upgrades;

impl<R: RawUpgrade<Machine = Explore> + RawFair> Forms<R> for Upgrades {
    const MORE: &'static [What] = &[
        What::Downgrade,
        What::Upgrade,
        What::TryUpgrade,
        What::TimedUpgrade,
        What::Round,
        What::ReadFair,
        What::LockFair,
    ];

    fn operate(this: &RwLock<R, Self>, Operation { what, hold: how, .. }: Operation, going: &Going) {
        let lock = this.lock();
        match what {
            What::Downgrade => this.downgrades(how),
            What::Upgrade => this.upgrades(how, || Timeout::Never, going),
            What::TryUpgrade => this.upgrades(how, || Timeout::Immediate, going),
            What::TimedUpgrade => {
                let deadline = || Deadline::after::<Explore>(TIMEOUTS[usize::from(how) % 4]);
                this.upgrades(how, || Timeout::At(deadline()), going);
            }
            What::Round => this.goes_round(how),
            What::ReadFair => {
                let token = waiting(|| lock.read());
                this.begin_read();
                hold(how);
                this.end_read();
                // SAFETY: the token is from the acquisition above.
                unsafe { lock.unlock_read_fair(token) };
            }
            _ => {
                let token = waiting(|| lock.write());
                this.section(how);
                // SAFETY: the token is from the acquisition above.
                unsafe { lock.unlock_write_fair(token) };
            }
        }
    }
}

impl<R: RawDowngrade<Machine = Explore>, F: Forms<R>> RwLock<R, F> {
    fn downgrades(&self, how: u8) {
        let token = waiting(|| self.lock().write());
        self.section(how);
        // From here on the thread counts as a reader: others may read before the call returns.
        self.begin_read();
        // SAFETY: the token is from the acquisition above.
        let token = unsafe { self.lock().downgrade(token) };
        self.reads_on(token, how);
    }

    /// The rest of a read that has begun.
    fn reads_on(&self, token: R::Read, how: u8) {
        hold(how);
        self.end_read();
        // SAFETY: the token is from the caller's acquisition.
        unsafe { self.lock().unlock_read(token) };
    }
}

impl<R: RawUpgrade<Machine = Explore> + RawFair, F: Forms<R>> RwLock<R, F> {
    /// Reads upgradably, and then writes if it gets that far.
    fn upgrades(&self, how: u8, timeout: impl Fn() -> Timeout, going: &Going) {
        let lock = self.lock();
        let Some(held) = waiting(|| lock.upgradable_within(timeout(), &|| ())) else {
            return going.failed("an attempt to read upgradably");
        };
        self.begin_upgradable();
        let before = self.writes.get();
        hold(how);
        // SAFETY: the token is from the acquisition above.
        match unsafe { lock.upgrade_within(held, timeout()) } {
            Ok(token) => {
                self.end_upgradable();
                check(self.writes.get() == before, || {
                    "a writer came between an upgradable read and its upgrade".into()
                });
                self.writes(token, how);
            }
            Err(held) => {
                going.failed("an attempt to upgrade");
                hold(how);
                self.end_upgradable();
                // SAFETY: the token is from the acquisition above, and came back.
                unsafe { lock.unlock_upgradable_fair(held) };
            }
        }
    }

    /// From a writer to an upgradable reader to a reader.
    fn goes_round(&self, how: u8) {
        let lock = self.lock();
        let token = waiting(|| lock.write());
        self.section(how);
        self.begin_upgradable();
        // SAFETY: the token is from the acquisition above.
        let held = unsafe { lock.downgrade_to_upgradable(token) };
        hold(how);
        self.end_upgradable();
        self.begin_read();
        // SAFETY: the token is from the call above.
        let token = unsafe { lock.downgrade_upgradable(held) };
        self.reads_on(token, how);
    }

    fn begin_upgradable(&self) {
        self.begin_read();
        if let Some(other) = self.upgradable.replace(Some(me())) {
            here().fail(format!("threads {other} and {} read upgradably at the same time", me()));
        }
        note(|| "may upgrade".into());
    }

    fn end_upgradable(&self) {
        self.upgradable.set(None);
        self.end_read();
    }
}
