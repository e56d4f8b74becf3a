//! The elements of the chains, and the pool that they come from.
//!
//! All nodes of a table are made with it and freed with it. So a node that is reclaimed too early causes no undefined
//! behaviour: while it is free, its key is one of another bucket, and a thread that meets a node of another bucket in a
//! chain returns an error ([`Reclaimed`]). The pool also keeps the C library's allocator out of what is compared.

use super::table::Reclaimed;
use latchwork::locks::ShflMutex;
use latchwork::machine::{Machine, Word};
use latchwork::map::array::Array;
use latchwork::reclaim::{Header, Retire};
use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering, Ordering::*};

/// An element, alone in its cache line: as in large tables, where each is a cache miss of its own.
#[repr(C, align(64))]
pub struct Node<M: Machine> {
    header: UnsafeCell<Header>,
    /// The next of the chain. A strategy may use the lowest bit for itself.
    pub next: M::Ptr<Node<M>>,
    /// Its key.
    pub key: M::U64,
    /// Its value.
    pub value: M::U64,
    /// The pool that it came from: all that the thread needs that reclaims it.
    pool: *const Pool<M>,
    /// The list of free nodes that it goes back to.
    list: AtomicUsize,
}

// SAFETY: all that threads change are words; the pool's address is only used while the pool is there.
unsafe impl<M: Machine> Send for Node<M> {}
// SAFETY: all that threads change are words, and the header, which the domain has.
unsafe impl<M: Machine> Sync for Node<M> {}

// SAFETY: `repr(C)`, and the first field is the header's cell, which is laid out as the header.
unsafe impl<M: Machine> Retire for Node<M> {
    unsafe fn reclaim(this: *mut Self) {
        // SAFETY: the thread that retired it took it from a pool. No other thread uses the header of a retired node.
        unsafe {
            *(*this).header.get() = Header::new();
            give_back(this, Relaxed);
        }
    }
}

/// Lists of free nodes.
const LISTS: usize = 32;

/// A list of free nodes. A thread chooses which one it uses.
#[repr(align(128))]
struct Free<M: Machine>(ShflMutex<Vec<*mut Node<M>>>);

// SAFETY: the pointers are to nodes of the pool, which any thread may have.
unsafe impl<M: Machine> Sync for Free<M> {}
// SAFETY: the pointers are to nodes of the pool, which any thread may have.
unsafe impl<M: Machine> Send for Free<M> {}

/// All nodes of a table.
///
/// Taking and giving back costs no simulated time but that of the stores into the node, because what an allocator costs is
/// no part of the comparison. `order` is the ordering of these stores: relaxed where no thread can meet a free node.
pub struct Pool<M: Machine> {
    nodes: Array<Node<M>>,
    free: Array<Free<M>>,
}

impl<M: Machine> Pool<M> {
    /// A pool of `count` free nodes. It is a box, because the nodes know its address.
    pub fn new(count: usize) -> Box<Self> {
        let node = |_| Node {
            header: UnsafeCell::new(Header::new()),
            next: Word::new(null_mut()),
            key: Word::new(0),
            value: Word::new(0),
            pool: std::ptr::null(),
            list: AtomicUsize::new(0),
        };
        let free = Array::new(LISTS, |_| Free(ShflMutex::new(Vec::new())));
        let pool = Box::new(Pool { nodes: Array::new(count, node), free });
        let address: *const Self = &raw const *pool;
        for at in 0..count {
            let node = pool.nodes.pointer(at);
            // SAFETY: the node is valid, and no other thread has it yet.
            unsafe { (*node).pool = address };
        }
        // The last first, so that nodes are taken in the order of their addresses.
        *pool.free[0].0.lock() = (0..count).rev().map(|at| pool.nodes.pointer(at)).collect();
        pool
    }

    /// A node with this key and value, from list `list` if it has one. `None`: all are in use, or wait to
    /// be reclaimed.
    pub fn take(&self, list: usize, key: u64, value: u64, order: Ordering) -> Option<*mut Node<M>> {
        let own = list % LISTS;
        let node = (0..LISTS).find_map(|other| self.free[(own + other) % LISTS].0.lock().pop())?;
        // SAFETY: the node is in the pool, which is borrowed.
        let fields = unsafe { &*node };
        fields.list.store(own, Relaxed);
        fields.key.store(key, order);
        fields.value.store(value, order);
        Some(node)
    }
}

/// Makes a node free.
///
/// # Safety
///
/// The node came from [`Pool::take`] of a pool that is still there. (If the node is in a chain, or is given back twice, the
/// tables are wrong, but nothing is undefined: nodes consist of words, and live as long as the pool.)
pub unsafe fn give_back<M: Machine>(node: *mut Node<M>, order: Ordering) {
    // SAFETY: the pool is still there, says the caller, and so are its nodes.
    let (fields, pool) = unsafe { (&*node, &*(*node).pool) };
    // Its bits differ from those of any key of its bucket.
    fields.key.store(!fields.key.load(Relaxed), order);
    pool.free[fields.list.load(Relaxed)].0.lock().push(node);
}

/// Where a search ended: at the first node whose key is not below the one that was looked for, or at the end.
pub struct Place<'a, M: Machine> {
    /// The link that led to the node.
    pub link: &'a M::Ptr<Node<M>>,
    /// The node, or null at the end.
    pub node: *mut Node<M>,
    /// Whether the node has the key.
    pub hit: bool,
}

/// What a node's key says about where a search is.
pub enum Step {
    /// The key is further on.
    Below,
    /// At the key; or, with `false`, beyond where it would be.
    End(bool),
}

/// Compares the key that was found with the one that is looked for: chains are sorted.
#[inline(always)]
pub fn step(found: u64, key: u64, mask: u64) -> Result<Step, Reclaimed> {
    if found == key {
        Ok(Step::End(true))
    } else if (found ^ key) & mask != 0 {
        Err(Reclaimed)
    } else if found > key {
        Ok(Step::End(false))
    } else {
        Ok(Step::Below)
    }
}

/// Follows a chain from its head to `key`. The calling thread has the chain alone. `first` is the first node, `mask` has the bits of
/// a key that choose the bucket.
///
/// # Safety
///
/// Links lead to nodes of a pool that outlives them, and carry no marks.
#[inline(always)]
pub unsafe fn search<'a, M: Machine>(
    head: &'a M::Ptr<Node<M>>,
    first: *mut Node<M>,
    key: u64,
    mask: u64,
) -> Result<Place<'a, M>, Reclaimed> {
    let (mut link, mut node) = (head, first);
    loop {
        // SAFETY: links lead to nodes, says the caller.
        let Some(fields) = (unsafe { node.as_ref() }) else { return Ok(Place { link, node, hit: false }) };
        if let Step::End(hit) = step(fields.key.load(Relaxed), key, mask)? {
            return Ok(Place { link, node, hit });
        }
        link = &fields.next;
        node = link.load(Relaxed);
    }
}

/// The value of `key` in a chain without marks, from its first node on. `follow` reads a link; the node that it leads to is not
/// reclaimed meanwhile. All tables without marks share this function, so that they differ in what is compared, and in nothing else.
///
/// # Safety
///
/// `first` and the links lead to nodes of a pool that outlives them, and carry no marks.
#[inline(always)]
pub unsafe fn look<M: Machine>(
    first: *mut Node<M>,
    key: u64,
    mask: u64,
    follow: impl Fn(&M::Ptr<Node<M>>) -> *mut Node<M>,
) -> Result<Option<u64>, Reclaimed> {
    let mut at = first;
    loop {
        // SAFETY: links lead to nodes, says the caller.
        let Some(node) = (unsafe { at.as_ref() }) else { return Ok(None) };
        if let Step::End(hit) = step(node.key.load(Relaxed), key, mask)? {
            return Ok(hit.then(|| node.value.load(Relaxed)));
        }
        at = follow(&node.next);
    }
}

/// A link with the lowest bit set: the node that it is in has been removed, or the chain is locked whose head it is.
#[inline(always)]
pub fn marked<T>(link: *mut T) -> *mut T {
    link.map_addr(|address| address | 1)
}

/// Whether the link carries the mark.
#[inline(always)]
pub fn is_marked<T>(link: *mut T) -> bool {
    link.addr() & 1 != 0
}

/// The link without the mark.
#[inline(always)]
pub fn unmarked<T>(link: *mut T) -> *mut T {
    link.map_addr(|address| address & !1)
}

/// Calls `each` with every key and value of these chains, which no other thread uses. Follows marked links, and leaves out
/// the nodes that they are in.
///
/// # Safety
///
/// Links lead to nodes of a pool that outlives them.
pub unsafe fn each<'a, M: Machine>(
    heads: impl Iterator<Item = &'a M::Ptr<Node<M>>>,
    each: &mut impl FnMut(u64, u64),
) {
    for head in heads {
        let mut at = head;
        // SAFETY: links lead to nodes, says the caller.
        while let Some(node) = unsafe { unmarked(at.load(Relaxed)).as_ref() } {
            at = &node.next;
            if !is_marked(at.load(Relaxed)) {
                each(node.key.load(Relaxed), node.value.load(Relaxed));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use latchwork::machine::Native;

    #[test]
    fn a_node_goes_back_to_the_list_it_was_taken_for_and_is_of_no_bucket_meanwhile() {
        let pool = Pool::<Native>::new(3);
        let nodes: Vec<_> = (0..3).map(|key| pool.take(5, key, 10 + key, Relaxed).unwrap()).collect();
        assert!(pool.take(5, 9, 9, Relaxed).is_none());
        for (key, node) in nodes.iter().enumerate() {
            // SAFETY: taken above, in no chain, given back once.
            unsafe {
                assert_eq!((**node).value.load(Relaxed), 10 + key as u64);
                give_back(*node, Relaxed);
                assert_eq!((**node).key.load(Relaxed), !(key as u64));
            }
        }
        assert_eq!(pool.free[5].0.lock().len(), 3);
    }
}
