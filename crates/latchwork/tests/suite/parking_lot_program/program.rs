// A print shop. Customers hand in orders, presses print them, clerks look up prices, and the till counts. `run` returns
// what can be said for certain, whatever the threads' order.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything here takes. A wait of this time is a lost wakeup.
const MINUTE: Duration = Duration::from_secs(60);
const MOMENT: Duration = Duration::from_millis(2);

const CUSTOMERS: u32 = 4;
const PRESSES: usize = 3;
const ORDERS: u32 = 200;

/// Counts all shops of the process.
static SHOPS: Mutex<u32> = Mutex::new(0);
/// What every shop charges for a sheet.
static SHEET: RwLock<u32> = RwLock::new(3);

#[derive(Debug, Clone, PartialEq)]
struct Order {
    customer: u32,
    format: String,
    sheets: u32,
}

/// A queue with room for a few orders.
#[derive(Debug, Default)]
struct Desk {
    orders: Mutex<VecDeque<Order>>,
    arrived: Condvar,
    taken: Condvar,
    closed: Mutex<bool>,
}

impl Desk {
    const ROOM: usize = 8;

    fn hand_in(&self, order: Order) {
        let mut orders = self.orders.lock();
        self.taken.wait_while(&mut orders, |orders| orders.len() >= Self::ROOM);
        orders.push_back(order);
        drop(orders);
        self.arrived.notify_one();
    }

    /// The next order; `None` when the desk is closed and empty.
    fn take(&self) -> Option<Order> {
        let mut orders: MutexGuard<'_, VecDeque<Order>> = self.orders.lock();
        loop {
            if let Some(order) = orders.pop_front() {
                MutexGuard::unlock_fair(orders);
                self.taken.notify_all();
                return Some(order);
            }
            if *self.closed.lock() {
                return None;
            }
            assert!(!self.arrived.wait_for(&mut orders, MINUTE).timed_out(), "no order and no closing");
        }
    }

    fn close(&self) {
        *self.closed.lock() = true;
        // A press that has just looked at `closed` holds the orders until it waits.
        drop(self.orders.lock());
        self.arrived.notify_all();
    }
}

/// Prices by format. Most of the time they are only looked up.
#[derive(Debug)]
struct Prices {
    table: RwLock<BTreeMap<String, u32>>,
    misses: AtomicU32,
}

impl Prices {
    fn new() -> Self {
        Prices { table: RwLock::new(BTreeMap::from([("A4".into(), 1)])), misses: AtomicU32::new(0) }
    }

    /// The price of a format, which is worked out when it is asked for the first time.
    fn of(&self, format: &str) -> u32 {
        if let Some(price) = self.table.read().get(format) {
            return *price;
        }
        // One thread at a time comes here; others go on reading.
        let table = self.table.upgradable_read();
        if let Some(price) = table.get(format) {
            return *price;
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        let mut table = RwLockUpgradableReadGuard::upgrade(table);
        table.insert(format.into(), format.len() as u32);
        // Nobody can change the price before it is read.
        let table: RwLockReadGuard<'_, _> = RwLockWriteGuard::downgrade(table);
        table[format]
    }

    fn dearest(&self) -> MappedRwLockReadGuard<'_, u32> {
        RwLockReadGuard::map(self.table.read(), |table| table.values().max().expect("there is A4"))
    }

    fn formats(&self) -> usize {
        self.table.read().len()
    }
}

/// Money, and how many orders it was for.
#[derive(Debug, Default)]
struct Till {
    content: Mutex<(u64, u32)>,
    full: Condvar,
}

impl Till {
    fn pay(&self, amount: u64) {
        let mut content = self.content.lock();
        content.0 += amount;
        content.1 += 1;
        if content.1 == CUSTOMERS * ORDERS {
            self.full.notify_all();
        }
    }

    fn money(&self) -> MappedMutexGuard<'_, u64> {
        MutexGuard::map(self.content.lock(), |(money, _)| money)
    }

    /// Waits until all orders are paid for.
    fn wait(&self) -> u64 {
        let mut content = self.content.lock();
        let end = Instant::now() + MINUTE;
        while content.1 < CUSTOMERS * ORDERS {
            assert!(!self.full.wait_until(&mut content, end).timed_out(), "{content:?}");
        }
        content.0
    }
}

struct Shop {
    desk: Desk,
    prices: Prices,
    till: Till,
    ledger: Arc<Mutex<Vec<Order>>>,
}

impl Shop {
    fn open() -> Self {
        *SHOPS.lock() += 1;
        Shop { desk: Desk::default(), prices: Prices::new(), till: Till::default(), ledger: Arc::default() }
    }

    fn visit(&self, customer: u32) {
        for number in 0..ORDERS {
            let format = if number % 50 == 0 { format!("A{}", 5 + number / 50) } else { "A4".into() };
            self.desk.hand_in(Order { customer, format, sheets: number % 7 + 1 });
        }
    }

    fn press(&self) {
        while let Some(order) = self.desk.take() {
            let price = self.prices.of(&order.format) * order.sheets * *SHEET.read();
            self.till.pay(price.into());
            self.note(order);
        }
    }

    /// Writes the order down, with a guard that could be given to a structure of its own.
    fn note(&self, order: Order) {
        let mut ledger: OwnedGuard<Vec<Order>> = self.ledger.lock_arc();
        ledger.push(order);
    }

    fn work(&self) -> u64 {
        thread::scope(|scope| {
            let presses = [(); PRESSES].map(|()| scope.spawn(|| self.press()));
            let customers: Vec<_> =
                (0..CUSTOMERS).map(|customer| scope.spawn(move || self.visit(customer))).collect();
            for customer in customers {
                customer.join().expect("a customer");
            }
            self.desk.close();
            for press in presses {
                press.join().expect("a press");
            }
            self.till.wait()
        })
    }
}

/// The forms that give up.
fn impatient(said: &mut Vec<String>) {
    let (mutex, rwlock) = (Mutex::new(1), RwLock::new(vec![1, 2]));
    let held = mutex.lock();
    let tries = [
        mutex.try_lock().is_none(),
        mutex.try_lock_for(MOMENT).is_none(),
        mutex.try_lock_until(Instant::now() + MOMENT).is_none(),
        mutex.is_locked(),
    ];
    drop(held);
    said.push(format!("mutex {tries:?} {}", mutex.try_lock_for(MINUTE).is_some()));
    let read = rwlock.read();
    let tries = [
        rwlock.try_write().is_none(),
        rwlock.try_write_for(MOMENT).is_none(),
        rwlock.try_write_until(Instant::now()).is_none(),
        rwlock.try_read().is_some(),
        rwlock.try_read_for(MOMENT).is_some(),
        rwlock.is_locked(),
        rwlock.is_locked_exclusive(),
    ];
    drop(read);
    said.push(format!("rwlock {tries:?} {}", rwlock.try_write_for(MINUTE).is_some()));
    let upgradable = rwlock.upgradable_read();
    let beside = rwlock.try_read().is_some() && rwlock.try_upgradable_read().is_none();
    let upgraded = RwLockUpgradableReadGuard::try_upgrade(upgradable).is_ok();
    said.push(format!("upgradable {beside} {upgraded}"));
    let condvar = Condvar::new();
    let mut guard = mutex.lock();
    let late = condvar.wait_for(&mut guard, MOMENT).timed_out();
    let later = condvar.wait_while_for(&mut guard, |value| *value == 1, MOMENT).timed_out();
    said.push(format!("condvar {late} {later}"));
}

/// A panic unlocks, and poisons nothing.
fn panics(said: &mut Vec<String>) {
    let mutex = Arc::new(Mutex::new(vec![1]));
    let clone = Arc::clone(&mutex);
    let result = thread::spawn(move || {
        let mut guard = clone.lock();
        guard.push(2);
        std::panic::resume_unwind(Box::new("a jam"));
    })
    .join();
    said.push(format!("panicked {} {:?}", result.is_err(), mutex.lock()));
}

/// Access without locking, and with the lock let go for a while.
fn owners(said: &mut Vec<String>) {
    let mut mutex = Mutex::from(String::from("pa"));
    mutex.get_mut().push('p');
    let mut guard = mutex.lock();
    MutexGuard::unlocked(&mut guard, || mutex.lock().push('e'));
    MutexGuard::bump(&mut guard);
    guard.push('r');
    drop(guard);
    said.push(mutex.into_inner());
    let mut rwlock = RwLock::new([1, 2]);
    rwlock.get_mut()[0] = 5;
    said.push(format!("{rwlock:?} {:?}", RwLock::<[u8; 2]>::default().into_inner()));
}

pub fn run() -> Vec<String> {
    let mut said = Vec::new();
    let shop = Shop::open();
    said.push(format!("earned {}", shop.work()));
    said.push(format!("till {}", *shop.till.money()));
    said.push(format!("formats {} dearest {}", shop.prices.formats(), *shop.prices.dearest()));
    said.push(format!("looked up {}", shop.prices.misses.load(Ordering::Relaxed)));
    let ledger = shop.ledger.lock();
    for customer in 0..CUSTOMERS {
        let orders = ledger.iter().filter(|order| order.customer == customer);
        said.push(format!("customer {customer}: {}", orders.map(|order| order.sheets).sum::<u32>()));
    }
    drop(ledger);
    said.push(format!("shops {} {:?}", *SHOPS.lock(), shop.desk.orders));
    impatient(&mut said);
    panics(&mut said);
    owners(&mut said);
    said
}
