//! The condition variable over a mutex: a small shelf, on which some threads put what other threads take.
//!
//! A thread waits only while another thread is neither asleep nor gone, so during the run one thread can always go on. In
//! the end no thread is left to wake the waiters. Before the run sends them home, the shelf must be at rest: no thread waits
//! for goods while there are goods, or for room while there is room. If the shelf never comes to rest, a notification was
//! lost. A final broadcast would hide that.

use crate::chaos::beside;
use crate::lock::{Access, Class, Lock, Token, Way};
use crate::run::Subject;
use crate::worker::{Count, Crew, Doing, Worker};
use latchwork::locks::condvar::RawCondvar;
use latchwork::machine::{Deadline, Machine, Native, Wait};
use std::cell::UnsafeCell;
use std::sync::Arc;

/// Under the mutex; all plain data.
#[derive(Clone, Debug, Default)]
struct Shelf {
    /// Numbers on the shelf, oldest first.
    goods: Vec<u64>,
    put: u64,
    taken: u64,
    /// Sums of the numbers put and taken.
    sums: (u64, u64),
    /// Threads that wait for goods, and for room.
    asleep: (usize, usize),
    /// No thread is to wait any more.
    closed: bool,
}

/// The subject.
pub struct Market<M: Machine> {
    class: &'static Class,
    lock: Box<dyn Lock>,
    arrived: RawCondvar<M>,
    taken: RawCondvar<M>,
    shelf: UnsafeCell<Shelf>,
    room: usize,
    threads: usize,
    /// Whether every notification is for one.
    singly: bool,
}

// SAFETY: the shelf is only used with the mutex held. Unlike the ledger, the market relies on exclusion,
// so it is not for locks that do not exclude.
unsafe impl<M: Machine> Sync for Market<M> {}
// SAFETY: the shelf is only used with the mutex held; the other fields are shared words.
unsafe impl<M: Machine> Send for Market<M> {}

/// One of two sides.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Side {
    Goods,
    Room,
}

impl<M: Machine> Market<M> {
    /// A shelf for `threads` threads and up to `room` goods, with a lock of the class. `singly`: without broadcasts.
    pub fn new(class: &'static Class, threads: usize, room: usize, singly: bool) -> Self {
        Market {
            class,
            lock: class.make(),
            arrived: RawCondvar::new_in(),
            taken: RawCondvar::new_in(),
            shelf: UnsafeCell::default(),
            room,
            threads,
            singly,
        }
    }

    /// With the mutex held, and for one expression at a time.
    #[allow(clippy::mut_from_ref)]
    fn shelf(&self) -> &mut Shelf {
        // SAFETY: the mutex is held wherever this is called, and no reference outlives its expression.
        unsafe { &mut *self.shelf.get() }
    }

    fn condvar(&self, side: Side) -> &RawCondvar<M> {
        match side {
            Side::Goods => &self.arrived,
            Side::Room => &self.taken,
        }
    }

    fn asleep(&self, side: Side) -> &mut usize {
        match side {
            Side::Goods => &mut self.shelf().asleep.0,
            Side::Room => &mut self.shelf().asleep.1,
        }
    }

    fn there_is(&self, side: Side) -> bool {
        match side {
            Side::Goods => !self.shelf().goods.is_empty(),
            Side::Room => self.shelf().goods.len() < self.room,
        }
    }

    fn lock(&self, worker: &Worker) -> Token {
        worker.acquire(&*self.lock, Access::Write, Way::Wait).expect("it waits as long as it takes")
    }

    /// Waits, with the mutex held, which it is afterwards again. `None`: the deadline passed, or the
    /// wait was cancelled.
    fn wait(&self, worker: &mut Worker, side: Side, token: Token, limit: Limit) -> (Token, Option<Wait>) {
        let condvar = self.condvar(side);
        *self.asleep(side) += 1;
        worker.count(Count::ConditionWaits);
        let start = worker.doing(Doing::WaitsForCondition);
        // SAFETY: the token is this thread's acquisition, which ends here.
        let unlock = || unsafe { self.lock.release(token) };
        let reason = match limit {
            Limit::None => Some(condvar.wait(unlock, None)),
            Limit::Until(deadline) => Some(condvar.wait(unlock, Some(deadline))),
            Limit::Cancelled(after) => {
                let ticket = condvar.prepare();
                unlock();
                condvar.block(ticket, Some(after));
                condvar.abandon(ticket);
                None
            }
        };
        if limit == Limit::None {
            worker.waited(Count::LongestCondition, start);
        }
        let token = self.lock(worker);
        *self.asleep(side) -= 1;
        (token, reason)
    }

    fn notify(&self, worker: &mut Worker, side: Side) {
        if self.singly || worker.random.once_in(2) {
            self.condvar(side).notify_one();
        } else {
            self.condvar(side).notify_all();
        }
    }

    /// With the mutex held: takes or puts goods, which are there. Returns the side that another thread may wait for now.
    fn trade(&self, side: Side) -> Result<Side, String> {
        let room = self.room;
        let shelf = self.shelf();
        let result = match side {
            Side::Goods => {
                let number = shelf.goods.remove(0);
                shelf.taken += 1;
                shelf.sums.1 += number;
                Ok(Side::Room)
            }
            Side::Room => {
                shelf.put += 1;
                shelf.sums.0 += shelf.put;
                shelf.goods.push(shelf.put);
                Ok(Side::Goods)
            }
        };
        if shelf.goods.len() > room || shelf.put != shelf.taken + shelf.goods.len() as u64 {
            return Err(format!("the shelf has room for {room}: {shelf:?}"));
        }
        result
    }

    fn rest(&self) -> Option<String> {
        let shelf = self.shelf();
        let lost = |what, have, asleep| {
            (have > 0 && asleep > 0).then(|| format!("{asleep} threads wait for {what}, and there is {have}"))
        };
        lost("goods", shelf.goods.len(), shelf.asleep.0)
            .or_else(|| lost("room", self.room - shelf.goods.len(), shelf.asleep.1))
    }
}

/// How long a wait may take.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Limit {
    None,
    Until(Deadline),
    Cancelled(Deadline),
}

impl<M: Machine> Subject for Market<M> {
    fn operate(self: &Arc<Self>, worker: &mut Worker) -> Result<(), String> {
        let mut side = if worker.random.once_in(2) { Side::Goods } else { Side::Room };
        let limit = match worker.random.below(16) {
            0 => Limit::Cancelled(worker.deadline()),
            1..=4 => Limit::Until(worker.deadline()),
            _ => Limit::None,
        };
        let mut token = self.lock(worker);
        let mut last = None;
        while !self.there_is(side) {
            let (goods, room) = self.shelf().asleep;
            let late = matches!(limit, Limit::Until(deadline) if deadline.passed::<Native>());
            let leaves = match last {
                Some(None | Some(Wait::TimedOut)) => true,
                Some(Some(Wait::Woken)) => late,
                None => false,
            };
            if leaves || self.shelf().closed {
                // SAFETY: `token` is of the acquisition above, or of the one with which `wait` ended.
                unsafe { worker.release(&*self.lock, token) };
                return Ok(());
            }
            if goods + room + 1 >= self.threads {
                // All other threads wait.
                side = if side == Side::Goods { Side::Room } else { Side::Goods };
                if !self.there_is(side) {
                    let shelf = self.shelf().clone();
                    // SAFETY: `token` is of the acquisition above, or of the one with which `wait` ended.
                    unsafe { worker.release(&*self.lock, token) };
                    return Err(format!("neither goods nor room: {shelf:?}"));
                }
                continue;
            }
            let reason;
            (token, reason) = self.wait(worker, side, token, limit);
            last = Some(reason);
        }
        let other = self.trade(side);
        worker.dwell();
        let early = worker.random.once_in(2);
        if let Ok(other) = other
            && early
        {
            self.notify(worker, other);
        }
        // SAFETY: `token` is of the acquisition above, or of the one with which `wait` ended.
        unsafe { worker.release(&*self.lock, token) };
        if let Ok(other) = other
            && !early
        {
            self.notify(worker, other);
        }
        other.map(|_| ())
    }

    fn send_home(&self, crew: &Crew) {
        let Some(token) = self.lock.acquire(Access::Write, Way::Try) else { return };
        let (goods, room) = self.shelf().asleep;
        let quiet = goods + room == crew.alive() && self.rest().is_none();
        // A failed run has nothing to prove.
        if (quiet || crew.failure().is_some()) && !self.shelf().closed {
            self.shelf().closed = true;
            self.arrived.notify_all();
            self.taken.notify_all();
        }
        // SAFETY: acquired above.
        unsafe { self.lock.release(token) };
    }

    fn balance(&self, _crew: &Crew) -> Result<(), String> {
        let shelf = self.shelf();
        let left: u64 = shelf.goods.iter().sum();
        if shelf.put != shelf.taken + shelf.goods.len() as u64 || shelf.sums.0 != shelf.sums.1 + left {
            return Err(format!("the shelf does not add up: {shelf:?}"));
        }
        if shelf.asleep != (0, 0) || self.arrived.has_waiters() || self.taken.has_waiters() {
            return Err(format!("waiters are left when every thread has left: {shelf:?}"));
        }
        if self.lock.is_locked() {
            return Err("the mutex is held when every thread has left".to_owned());
        }
        Ok(())
    }

    fn describe(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "mutex {}; memory: {}",
            if self.lock.is_locked() { "held" } else { "free" },
            self.lock.words()
        )];
        if let Some(token) = self.lock.acquire(Access::Write, Way::Try) {
            let lost = self.rest().map_or(String::new(), |what| format!("; a notification was lost: {what}"));
            lines.push(format!("{:?}{lost}", self.shelf()));
            // SAFETY: acquired above.
            unsafe { self.lock.release(token) };
        }
        lines
    }

    fn works_in_child(&self) -> bool {
        let market = Market::<M>::new(self.class, 2, 1, true);
        let soon = Deadline::after::<M>(200_000);
        let Some(token) = market.lock.acquire(Access::Write, Way::Try) else { return false };
        // SAFETY: acquired above.
        let timed_out = market.arrived.wait(|| unsafe { market.lock.release(token) }, Some(soon));
        let close = || {
            let Some(token) = market.lock.acquire(Access::Write, Way::Wait) else { return };
            market.shelf().closed = true;
            // SAFETY: acquired above.
            unsafe { market.lock.release(token) };
            market.arrived.notify_one();
        };
        let woken = beside(close, || {
            while let Some(token) = market.lock.acquire(Access::Write, Way::Wait) {
                if market.shelf().closed {
                    // SAFETY: acquired above.
                    unsafe { market.lock.release(token) };
                    return true;
                }
                // SAFETY: acquired above.
                market.arrived.wait(|| unsafe { market.lock.release(token) }, None);
            }
            false
        });
        timed_out == Wait::TimedOut && woken
    }
}
