//! The maps that [`map`](super::map) explores, as its clients use them.

use super::client::What;
use super::machine::Explore;
use super::map::{Few, Value};
use latchwork::locks::mutex::RawMutex;
use latchwork::map::growing::{Change, Count, Growing, Node};
use latchwork::map::tree::Tree;
use latchwork::reclaim::rcu::{RcuDomain, RcuGuard};
use std::hash::BuildHasherDefault;
use std::ops::Range;

/// An element.
pub(super) type Element = Node<u8, Value>;

/// A map from small numbers to values.
pub(super) trait Table: Sized + 'static {
    /// What threads do with it.
    const OPERATIONS: &'static [What];
    /// Whether its walks are in ascending order.
    const SORTED: bool;
    /// Keys that are there from the beginning beside those that clients update.
    const OTHERS: Range<u8>;
    fn make(domain: &'static RcuDomain<Explore>) -> Self;
    fn enter(&self) -> RcuGuard<'_, Explore>;
    fn throttle(&self);
    fn find<'g>(&'g self, guard: &'g RcuGuard<'_, Explore>, key: u8) -> Option<&'g Element>;
    /// Does with a key what `decide` says of its element, under the key's lock.
    fn update(&self, key: u8, decide: impl FnOnce(Option<&Element>) -> Change<Value>);
    fn remove_found(&self, guard: &RcuGuard<'_, Explore>, element: &Element) -> bool;
    fn walk<'g>(&'g self, guard: &'g RcuGuard<'_, Explore>) -> Vec<&'g Element>;
    /// A part of a walk with sections in between, and where the next part begins. The first one begins at 0.
    fn part<'g>(&'g self, guard: &'g RcuGuard<'_, Explore>, begin: u64) -> (Vec<&'g Element>, Option<u64>);
    fn count(&self) -> usize;
    fn clear(&self);
    /// Grows, shrinks or splits.
    fn reshape(&self, what: What);
}

/// The hash map.
pub(super) type Hashed<L> = Growing<L, u8, Value, BuildHasherDefault<Few>>;

impl<L: RawMutex<Machine = Explore>> Table for Hashed<L> {
    const OPERATIONS: &'static [What] = &[
        What::Read,
        What::Insert,
        What::Alter,
        What::Remove,
        What::RemoveFound,
        What::Walk,
        What::WalkByBuckets,
        What::Grow,
        What::Shrink,
        What::Split,
        What::Clear,
        What::Collect,
        What::Barrier,
        What::Exit,
    ];
    const SORTED: bool = false;
    const OTHERS: Range<u8> = 0..0;

    fn make(domain: &'static RcuDomain<Explore>) -> Self {
        Growing::new(domain, Count { first: 1, most: 4 }, 1, Default::default())
    }
    fn enter(&self) -> RcuGuard<'_, Explore> {
        Growing::enter(self)
    }
    fn throttle(&self) {
        Growing::throttle(self);
    }
    fn find<'g>(&'g self, guard: &'g RcuGuard<'_, Explore>, key: u8) -> Option<&'g Element> {
        Growing::find(self, guard, &key)
    }
    fn update(&self, key: u8, decide: impl FnOnce(Option<&Element>) -> Change<Value>) {
        let mut slot = self.lock(&key);
        match decide(slot.node()) {
            Change::Keep => (),
            Change::Set(value) => slot.set(key, value),
            Change::Remove => slot.remove(),
        }
    }
    fn remove_found(&self, guard: &RcuGuard<'_, Explore>, element: &Element) -> bool {
        Growing::remove_found(self, guard, element)
    }
    fn walk<'g>(&'g self, guard: &'g RcuGuard<'_, Explore>) -> Vec<&'g Element> {
        self.iter(guard).collect()
    }
    fn part<'g>(&'g self, guard: &'g RcuGuard<'_, Explore>, begin: u64) -> (Vec<&'g Element>, Option<u64>) {
        let (bucket, next) = self.bucket(guard, begin);
        (bucket.collect(), next)
    }
    fn count(&self) -> usize {
        Growing::count(self)
    }
    fn clear(&self) {
        Growing::clear(self);
    }
    fn reshape(&self, what: What) {
        match what {
            What::Grow => self.fit(9, false),
            What::Shrink => self.fit(1, true),
            _ => self.split_all(),
        }
    }
}

/// The ordered map, with four entries in a page: the keys are in two pages or in three.
pub(super) type Ordered<L> = Tree<L, u8, Value, 4>;

impl<L: RawMutex<Machine = Explore>> Table for Ordered<L> {
    const OPERATIONS: &'static [What] = &[
        What::Read,
        What::Insert,
        What::Alter,
        What::Remove,
        What::RemoveFound,
        What::Walk,
        What::WalkByBuckets,
        What::Clear,
        What::Collect,
        What::Barrier,
        What::Exit,
    ];
    const SORTED: bool = true;
    const OTHERS: Range<u8> = 100..103;

    fn make(domain: &'static RcuDomain<Explore>) -> Self {
        Tree::new(domain)
    }
    fn enter(&self) -> RcuGuard<'_, Explore> {
        Tree::enter(self)
    }
    fn throttle(&self) {
        Tree::throttle(self);
    }
    fn find<'g>(&'g self, guard: &'g RcuGuard<'_, Explore>, key: u8) -> Option<&'g Element> {
        self.snapshot(guard).find(&key)
    }
    fn update(&self, key: u8, decide: impl FnOnce(Option<&Element>) -> Change<Value>) {
        let slot = self.lock(&key);
        match decide(slot.node()) {
            Change::Keep => (),
            Change::Set(value) => slot.set(Box::new(Node { key, value })),
            Change::Remove => slot.remove(),
        }
    }
    fn remove_found(&self, guard: &RcuGuard<'_, Explore>, element: &Element) -> bool {
        Tree::remove_found(self, guard, element)
    }
    fn walk<'g>(&'g self, guard: &'g RcuGuard<'_, Explore>) -> Vec<&'g Element> {
        self.snapshot(guard).walk(0, usize::MAX).collect()
    }
    fn part<'g>(&'g self, guard: &'g RcuGuard<'_, Explore>, begin: u64) -> (Vec<&'g Element>, Option<u64>) {
        let part: Vec<_> = self.snapshot(guard).range(&(begin as u8..)).take(2).collect();
        let next = part.last().map(|last| u64::from(last.key) + 1);
        (part, next)
    }
    fn count(&self) -> usize {
        self.snapshot(&self.enter()).count()
    }
    fn clear(&self) {
        Tree::clear(self);
    }
    fn reshape(&self, _: What) {}
}
