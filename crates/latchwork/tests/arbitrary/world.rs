//! What the threads of a round share, and what they do to it.

use super::Random;
use latchwork::machine::Native;
use latchwork::map::{self, Entry, RcuMap, RcuSet};
use latchwork::reclaim::hazard::{HazardDomain, HazardPointer};
use latchwork::reclaim::rcu::{RcuDomain, global};
use latchwork::reclaim::typed::{Atomic, Covering, Owned, Removed};
use latchwork::reclaim::{GracePeriod, Rcu, RcuArc, RcuOption, Reader, Reclaim, Ref};
use std::hash::{Hash, Hasher};
use std::mem::forget;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// Steps of a thread in a round.
const STEPS: u64 = 120;
/// Guards within guards.
const DEEPEST: u32 = 3;
const KEYS: u64 = 12;

/// A strategy whose sections the driver uses.
pub trait Strategy: GracePeriod<Machine = Native> + Covering {
    /// Sets the limit, and what happens there, by chance.
    fn settle(&self, random: &mut Random);
    /// Whether the calling thread is in a section of the strategy, or of RCU. The driver waits for no strategy then: a thread
    /// that waits for epochs within a section of RCU, and one that waits for RCU within a section of epochs, would wait for
    /// each other.
    fn inside(&self) -> bool;
}

/// Values that are alive.
#[derive(Default)]
struct Census {
    made: AtomicU64,
    dropped: AtomicU64,
    dropped_twice: AtomicU64,
}

const ALIVE: u64 = 0xa11e_a11e_a11e;
const DEAD: u64 = 0xdead_dead_dead;

/// A value that knows whether it has been dropped.
struct Canary {
    state: AtomicU64,
    number: u64,
    census: Arc<Census>,
}

impl Canary {
    fn check(&self) {
        assert_eq!(self.state.load(Relaxed), ALIVE, "a reader has a value that was dropped");
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        if self.state.swap(DEAD, Relaxed) != ALIVE {
            self.census.dropped_twice.fetch_add(1, Relaxed);
            // Its parts have been dropped as well: the twin has left the memory, and not what the value owned.
            forget(self.census.clone());
            return;
        }
        self.census.dropped.fetch_add(1, Relaxed);
        if self.number.is_multiple_of(16) {
            global().defer(|| ()); // destructors may retire
        }
    }
}

impl PartialEq for Canary {
    fn eq(&self, other: &Self) -> bool {
        self.check();
        other.check();
        self.number == other.number
    }
}
impl Eq for Canary {}
impl Hash for Canary {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.check();
        self.number.hash(state);
    }
}

pub struct World<D: Strategy> {
    domains: [D; 3],
    links: [Atomic<Canary, D>; 4],
    hazards: HazardDomain<Native>,
    hazardous: [Atomic<Canary, HazardDomain<Native>>; 2],
    cell: Rcu<Canary>,
    option: RcuOption<Canary>,
    shared: RcuArc<Canary>,
    maps: [RcuMap<u64, Canary>; 2],
    set: RcuSet<Canary>,
    census: Arc<Census>,
}

/// What a thread has, and drops in any order.
enum Hand<'w, D: Strategy> {
    Cell(Ref<'w, Canary>),
    Element(map::Ref<'w, u64, Canary>),
    Member(map::set::SetRef<'w, Canary>),
    Snapshot(Arc<Canary>),
    Removed(Removed<'w, Canary, D>),
    RemovedGlobally(Removed<'static, Canary, RcuDomain<Native>>),
    RemovedHazardously(Removed<'w, Canary, HazardDomain<Native>>),
    Owned(Owned<Canary>),
}

impl<D: Strategy> Hand<'_, D> {
    /// Whether it keeps a section of RCU open.
    fn is_section(&self) -> bool {
        matches!(self, Hand::Cell(_) | Hand::Element(_) | Hand::Member(_))
    }

    fn check(&self) {
        match self {
            Hand::Cell(value) => value.check(),
            Hand::Element(value) => value.check(),
            Hand::Member(value) => value.check(),
            Hand::Snapshot(value) => value.check(),
            Hand::Removed(value) => value.check(),
            Hand::RemovedGlobally(value) => value.check(),
            Hand::RemovedHazardously(value) => value.check(),
            Hand::Owned(value) => value.check(),
        }
    }
}

/// What the guards that are open protect: a list from the innermost outwards.
#[derive(Copy, Clone)]
struct Seen<'a> {
    canary: Option<&'a Canary>,
    outer: Option<&'a Seen<'a>>,
}

impl Seen<'_> {
    fn check(&self) {
        let mut at = Some(self);
        while let Some(seen) = at {
            seen.canary.inspect(|canary| canary.check());
            at = seen.outer;
        }
    }
}

struct Thread<'w, D: Strategy> {
    world: &'w World<D>,
    random: Random,
    steps: u64,
    /// Whether hands keep no section of RCU open, and the thread seldom enters one: else it is in one nearly always, and few
    /// grace periods of RCU end in a round.
    brief: bool,
    hands: Vec<Hand<'w, D>>,
}

fn canary(census: &Arc<Census>, number: u64) -> Canary {
    census.made.fetch_add(1, Relaxed);
    Canary { state: AtomicU64::new(ALIVE), number, census: census.clone() }
}

impl<D: Strategy> World<D> {
    /// Some threads do what `seed` says, in a world of their own.
    pub fn round(seed: u64, threads: u64) {
        let census = Arc::<Census>::default();
        let make = || canary(&census, 1);
        let mut world = World::<D> {
            domains: std::array::from_fn(|_| D::new_in()),
            links: std::array::from_fn(|at| Atomic::new_in((at % 2 == 0).then(|| Owned::new(make())))),
            hazards: HazardDomain::new(),
            hazardous: std::array::from_fn(|_| Atomic::new_in(None)),
            cell: Rcu::new(make()),
            option: RcuOption::none(),
            shared: RcuArc::new(Arc::new(make())),
            maps: [RcuMap::new(), RcuMap::with_capacity(200)],
            set: RcuSet::new(),
            census: census.clone(),
        };
        world.domains.iter().for_each(|domain| domain.settle(&mut Random::new(seed)));
        std::thread::scope(|scope| {
            let world = &world;
            let run = |thread| {
                move || {
                    let random = Random::new(seed * 64 + thread + 1);
                    let brief = seed / 3 % 2 == 1;
                    let mut this = Thread { world, random, steps: STEPS, brief, hands: Vec::new() };
                    let mut reader = world.domains[0].reader();
                    while this.steps > 0 {
                        this.sections(&reader, Seen { canary: None, outer: None }, 0);
                        if this.random.below(2) == 0 {
                            this.hands.clear();
                            reader.offline(|| this.waits());
                        }
                        reader.quiescent();
                    }
                }
            };
            let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(run(thread))).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        _ = world.option.get_mut().map(|value| value.number += 1);
        world.maps[0].get_mut(&0).inspect(|value| value.check());
        world.domains.iter().for_each(D::barrier);
        world.hazards.barrier();
        drop(world);
        global().barrier();
        let count = |word: &AtomicU64| word.load(Relaxed);
        assert_eq!(count(&census.dropped_twice), 0, "values were dropped twice");
        assert_eq!(count(&census.made), count(&census.dropped), "not everything was dropped");
    }
}

impl<'w, D: Strategy> Thread<'w, D> {
    fn make(&mut self) -> Canary {
        canary(&self.world.census, self.random.below(KEYS))
    }

    fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.random.below(all.len() as u64) as usize]
    }

    /// Whether the thread begins a section of RCU now.
    fn enters(&mut self) -> bool {
        !self.brief || self.random.below(8) == 0
    }

    /// Outside of all sections.
    fn waits(&mut self) {
        let world = self.world;
        match self.random.below(5) {
            0 => self.pick(&world.domains).barrier(),
            1 => self.pick(&world.domains).synchronize(),
            2 => global().barrier(),
            3 => world.hazards.barrier(),
            _ => self.pick(&world.domains).throttle(),
        }
    }

    /// Some steps, in some sections within each other.
    fn sections(&mut self, reader: &D::Reader<'_>, seen: Seen<'_>, depth: u32) {
        let world = self.world;
        for _ in 0..1 + self.random.below(6) {
            self.steps = self.steps.saturating_sub(1);
            match self.random.below(8) {
                0 | 1 if depth < DEEPEST => {
                    let guard = reader.enter();
                    let canary = self.pick(&world.links).load(&guard).as_ref();
                    self.sections(reader, Seen { canary, outer: Some(&seen) }, depth + 1);
                    self.exchanges(&guard);
                }
                2 if depth < DEEPEST => {
                    let mut hazard = HazardPointer::new();
                    let canary = hazard.protect(self.pick(&world.hazardous));
                    self.sections(reader, Seen { canary, outer: Some(&seen) }, depth + 1);
                }
                3 if depth < DEEPEST && self.enters() => {
                    let map = self.pick(&world.maps);
                    let reading = map.read();
                    let canary = reading.get(&self.random.below(KEYS));
                    reading.iter().for_each(|(_, value)| value.check());
                    self.sections(reader, Seen { canary, outer: Some(&seen) }, depth + 1);
                }
                4 if depth < DEEPEST && self.enters() => {
                    let guard = global().enter();
                    let read = Seen { canary: Some(world.cell.read(&guard)), outer: Some(&seen) };
                    let canary = world.option.read(&guard);
                    self.sections(reader, Seen { canary, outer: Some(&read) }, depth + 1);
                }
                5 if !self.hands.is_empty() => {
                    let at = self.random.below(self.hands.len() as u64) as usize;
                    drop(self.hands.swap_remove(at));
                }
                6 => self.pick(&world.domains).collect(),
                _ => self.updates(),
            }
            if self.random.below(30) == 0 && !world.domains[0].inside() {
                self.pick(&world.domains).barrier();
            }
            seen.check();
            self.hands.iter().for_each(Hand::check);
        }
    }

    /// What needs the caller's guard.
    fn exchanges(&mut self, guard: &<D::Reader<'_> as Reader>::Guard<'_>) {
        let world = self.world;
        let (link, domain) = (self.pick(&world.links), self.pick(&world.domains));
        let before = link.load(guard);
        let new = (self.random.below(3) > 0).then(|| Owned::new(self.make()).with_tag(3));
        match link.compare_exchange(before, new, domain, guard) {
            Ok(removed) => self.hands.extend(removed.map(Hand::Removed)),
            Err(unchanged) => {
                unchanged.current.as_ref().inspect(|canary| canary.check());
                self.hands.extend(unchanged.new.map(Hand::Owned));
            }
        }
        _ = link.compare_exchange_tag(link.load(guard), self.random.below(9) as usize, guard);
        before.as_ref().inspect(|canary| canary.check());
    }

    /// One operation on something.
    fn updates(&mut self) {
        let world = self.world;
        let (new, key) = (self.make(), self.random.below(KEYS));
        let map = self.pick(&world.maps);
        let census = &world.census;
        let hand = match self.random.below(26) {
            0 | 1 => {
                let new = match self.hands.pop() {
                    Some(Hand::Owned(old)) => Some(old),
                    other => {
                        self.hands.extend(other);
                        Some(Owned::new(new))
                    }
                };
                let (link, domain) = (self.pick(&world.links), self.pick(&world.domains));
                link.swap(new, domain).map(Hand::Removed)
            }
            2 => self.pick(&world.links).swap(None, self.pick(&world.domains)).map(Hand::Removed),
            3 => {
                let link = self.pick(&world.hazardous);
                link.swap(Some(Owned::new(new)), &world.hazards).map(Hand::RemovedHazardously)
            }
            4 => Some(Hand::Cell(world.cell.get())),
            5 => Some(Hand::RemovedGlobally(world.cell.swap(new))),
            6 => {
                world.cell.update(|old| canary(census, old.number));
                world.option.get().map(Hand::Cell)
            }
            7 => world.option.swap(Some(new)).map(Hand::RemovedGlobally),
            8 => world.option.take().map(Hand::RemovedGlobally),
            9 => Some(Hand::Snapshot(world.shared.snapshot())),
            10 => {
                world.shared.replace(Arc::new(new));
                None
            }
            11 => {
                map.insert(key, new);
                map.get(&key).map(Hand::Element)
            }
            12 => map.replace(key, new).map(Hand::Element),
            13 => {
                map.remove(&key);
                None
            }
            14 => map.remove_entry(&key).map(Hand::Element),
            15 => map.remove_if(&key, |_, value| value.number % 2 == 0).map(Hand::Element),
            16 => Some(Hand::Element(map.get_or_insert(key, new))),
            17 => map.alter(&key, |old| canary(census, old.number + 1)).map(Hand::Element),
            18 => Some(Hand::Element(map.insert_or_update(key, new, |old| canary(census, old.number)))),
            19 => match map.try_insert(key, new) {
                Ok(element) => Some(Hand::Element(element)),
                Err(error) => Some(Hand::Element(error.current)),
            },
            20 => match map.entry(key) {
                Entry::Vacant(entry) => Some(Hand::Element(entry.insert(new))),
                Entry::Occupied(mut entry) => {
                    entry.get().check();
                    entry.insert(new);
                    Some(Hand::Element(if key % 2 == 0 { entry.get_ref() } else { entry.remove_entry() }))
                }
            },
            21 => {
                world.set.insert(new);
                world.set.iter().next().map(Hand::Member)
            }
            22 => world.set.take(&new).map(Hand::Member),
            23 => {
                world.set.retain(|member| member.number != key);
                map.retain(|other, value| *other != key || value.number == key);
                None
            }
            24 => {
                map.iter().for_each(|element| element.check());
                map.reserve(key as usize * 20);
                map.shrink_to_fit();
                None
            }
            _ => {
                let domain = self.pick(&world.domains);
                domain.defer(move || new.check());
                if self.random.below(40) == 0 {
                    map.clear();
                }
                None
            }
        };
        hand.iter().for_each(Hand::check);
        self.hands.extend(hand.filter(|hand| !self.brief || !hand.is_section()));
        if self.hands.len() > 8 {
            let at = self.random.below(8) as usize;
            drop(self.hands.swap_remove(at));
        }
    }
}
