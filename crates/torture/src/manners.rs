//! What a lock promises to one thread, without chance: tries that must fail and tries that must not,
//! readers in company, deadlines, and what it says about itself.

use crate::lock::{Access, Class, Lock, Token, Way};
use crate::run::Subject;
use crate::worker::{Crew, Worker};
use std::sync::Arc;

/// The subject. Each operation makes a lock of its own.
pub struct Manners(pub &'static Class);

fn expect(lock: &dyn Lock, what: &str, condition: bool) -> Result<(), String> {
    if condition { Ok(()) } else { Err(format!("{what} (memory: {})", lock.words())) }
}

fn take(worker: &mut Worker, lock: &dyn Lock, access: Access, way: Way) -> Result<Token, String> {
    let token = worker.acquire(lock, access, way);
    token.ok_or_else(|| format!("{way:?} for {access:?} of a lock that nothing speaks against fails"))
}

fn refuse(worker: &mut Worker, lock: &dyn Lock, access: Access) -> Result<(), String> {
    for way in [Way::Try, Way::Until(worker.deadline())] {
        let token = worker.acquire(lock, access, way);
        expect(lock, "the lock was given to two who exclude each other", token.is_none())?;
    }
    Ok(())
}

/// From an upgradable reader to a writer and back, with a reader in the way at first.
fn changes(worker: &mut Worker, lock: &dyn Lock) -> Result<(), String> {
    let reader = take(worker, lock, Access::Read, Way::Wait)?;
    let held = take(worker, lock, Access::Upgradable, Way::Wait)?;
    refuse(worker, lock, Access::Upgradable)?;
    refuse(worker, lock, Access::Write)?;
    let change = |token, to, way| {
        // SAFETY: each token is from the acquisition or the change before it.
        unsafe { worker.change(lock, token, to, way) }
    };
    let Err(held) = change(held, Access::Write, Way::Try) else {
        return Err("a reader became a writer beside another reader".to_owned());
    };
    // SAFETY: acquired above.
    unsafe { lock.release(reader) };
    let fails = |_| "a change that nothing speaks against fails".to_owned();
    let token = change(held, Access::Write, Way::Wait).map_err(fails)?;
    expect(lock, "an upgraded reader does not count as a writer", lock.is_write_locked())?;
    let held = change(token, Access::Upgradable, Way::Wait).map_err(fails)?;
    let token = change(held, Access::Read, Way::Wait).map_err(fails)?;
    refuse(worker, lock, Access::Write)?;
    // SAFETY: each is from the acquisition or the change just before.
    unsafe {
        worker.release_fairly(lock, token);
        let token = take(worker, lock, Access::Write, Way::Wait)?;
        worker.release_fairly(lock, token);
    }
    expect(lock, "a released lock says that it is held", !lock.is_locked())
}

impl Subject for Manners {
    fn operate(self: &Arc<Self>, worker: &mut Worker) -> Result<(), String> {
        let lock = &*self.0.make();
        expect(lock, "a new lock says that it is held", !lock.is_locked() && !lock.is_write_locked())?;
        // Some locks serve readers another way once they have seen a few.
        for _ in 0..if self.0.readers { worker.random.pick(&[0, 40]) } else { 0 } {
            let token = take(worker, lock, Access::Read, Way::Wait)?;
            // SAFETY: acquired just now.
            unsafe { worker.release(lock, token) };
        }
        for _ in 0..3 {
            let way = worker.way();
            let token = take(worker, lock, Access::Write, way)?;
            expect(lock, "a held lock says that it is free", lock.is_locked() && lock.is_write_locked())?;
            refuse(worker, lock, Access::Write)?;
            if self.0.readers {
                refuse(worker, lock, Access::Read)?;
            }
            // SAFETY: acquired just now.
            unsafe { worker.release(lock, token) };
            expect(lock, "a released lock says that it is held", !lock.is_locked())?;
            if !self.0.readers {
                continue;
            }
            let way = worker.way();
            let first = take(worker, lock, Access::Read, way)?;
            refuse(worker, lock, Access::Write)?;
            if !self.0.shares {
                // SAFETY: acquired just now.
                unsafe { worker.release(lock, first) };
                continue;
            }
            let way = worker.way();
            let second = take(worker, lock, Access::Read, way)?;
            let says = lock.is_locked() && !lock.is_write_locked();
            expect(lock, "a lock with readers says that it is free, or written", says)?;
            // SAFETY: acquired just now.
            unsafe { worker.release(lock, first) };
            refuse(worker, lock, Access::Write)?;
            // SAFETY: acquired just now.
            unsafe { worker.release(lock, second) };
            expect(lock, "a released lock says that it is held", !lock.is_locked())?;
            if self.0.modes.upgrades {
                changes(worker, lock)?;
            }
        }
        Ok(())
    }

    fn balance(&self, _crew: &Crew) -> Result<(), String> {
        Ok(())
    }

    fn describe(&self) -> Vec<String> {
        vec!["each thread has a lock of its own".to_owned()]
    }
}
