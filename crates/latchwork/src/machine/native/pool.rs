//! Queue nodes from type-stable memory.
//!
//! A thread keeps a short list of free nodes in thread-local memory, so taking and returning a node is a few plain
//! instructions. The list is refilled from a global stack, and spills to it. Threads push chains onto the stack one by
//! one, but take all chains at once, and put all but the first back: without a pop of a single chain there is no ABA problem. Memory comes
//! from the kernel, a page of nodes at a time, and is never given back. Nothing here allocates.
//!
//! A thread that exits returns its list ([`Hook`]). Where its exit would not be noticed, a thread returns each node at
//! once when it releases the node.
//!
//! State of a node: free in a thread's list -> in use (`acquire`) -> free in a thread's list (`release`) -> in a chain of
//! the stack (`spill`, or the thread exits) -> free in another thread's list (`refill`). (A): the push of a chain pairs
//! with the exchange that takes it.

use super::super::QNode;
use super::exit::Hook;
use super::tls::Zero;
use super::{Native, memory};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

type Node = QNode<Native>;

/// Nodes that a thread keeps before it spills half of them: half a page. Not tuned.
const KEEP: usize = 32;
/// Nodes that are made at a time: one page.
const PAGE: usize = 4096 / size_of::<Node>();

/// A thread's list. Zero bytes are an empty list.
#[repr(C)]
struct Cache {
    head: *mut Node,
    length: usize,
    exit_hook: bool,
}

/// Chains of free nodes. The nodes of a chain are linked through `links[0]`, and the first nodes of the chains through `links[1]`.
static GLOBAL: AtomicPtr<Node> = AtomicPtr::new(null_mut());

// SAFETY: zero bytes are an empty list of a thread that has not asked for its exit to be noticed.
unsafe impl Zero for Cache {}

crate::thread_local_bytes!(
    /// The calling thread's list.
    Local: Cache = "node_cache"
);

/// Readies what happens when a thread exits.
pub(super) fn init() {
    Hook::NODES.create(thread_exit);
}

#[inline]
pub(super) fn acquire() -> &'static Node {
    let cache = Local::address();
    // SAFETY: the cache is this thread's own, and its nodes are free and never unmapped.
    unsafe {
        let head = (*cache).head;
        if head.is_null() {
            return refill(cache);
        }
        (*cache).head = (*head).links[0].load(Ordering::Relaxed);
        (*cache).length -= 1;
        &*head
    }
}

/// # Safety
///
/// As [`Machine::release_node`](super::super::Machine::release_node).
#[inline]
pub(super) unsafe fn release(node: &'static Node) {
    let cache = Local::address();
    // SAFETY: the cache is this thread's own. The node is free from now on, says the caller.
    unsafe {
        if !(*cache).exit_hook {
            return release_first(cache, node);
        }
        node.links[0].store((*cache).head, Ordering::Relaxed);
        (*cache).head = node.as_ptr();
        (*cache).length += 1;
        if (*cache).length > KEEP {
            spill(cache);
        }
    }
}

/// Releases a node of a thread that has not asked for its exit to be noticed; asks for that. If that fails, the thread
/// keeps no nodes.
#[cold]
#[inline(never)]
unsafe fn release_first(cache: *mut Cache, node: &'static Node) {
    init();
    // SAFETY: the cache is this thread's own, and the node is the caller's to give.
    unsafe {
        (*cache).exit_hook = Hook::NODES.set();
        if (*cache).exit_hook {
            return release(node);
        }
        node.links[0].store(null_mut(), Ordering::Relaxed);
        give(node.as_ptr());
    }
}

/// Takes every chain there is, keeps the first and puts the others back: at once, or another thread would find none, and map a
/// page.
#[cold]
unsafe fn refill(cache: *mut Cache) -> &'static Node {
    // (A) pairs with the push in `put`: this thread sees the links of the chains.
    let mut chain = GLOBAL.swap(null_mut(), Ordering::Acquire);
    // SAFETY: the chains are this thread's alone since the swap, and nodes are never unmapped.
    unsafe {
        if chain.is_null() {
            chain = map_page();
        } else {
            let others = (*chain).links[1].load(Ordering::Relaxed);
            // (A) passes on what this thread has seen. If chains have come meanwhile, these go before them.
            if !others.is_null()
                && GLOBAL.compare_exchange(null_mut(), others, Ordering::Release, Ordering::Relaxed).is_err()
            {
                put(others, last_chain(others));
            }
        }
        let mut length = 0;
        let mut node = (*chain).links[0].load(Ordering::Relaxed);
        (*cache).head = node;
        while !node.is_null() {
            node = (*node).links[0].load(Ordering::Relaxed);
            length += 1;
        }
        (*cache).length = length;
        &*chain
    }
}

/// The last of some chains that belong to the caller alone.
unsafe fn last_chain(mut chain: *mut Node) -> *mut Node {
    loop {
        // SAFETY: the caller's, and never unmapped.
        let next = unsafe { (*chain).links[1].load(Ordering::Relaxed) };
        if next.is_null() {
            return chain;
        }
        chain = next;
    }
}

/// Gives half of the list to other threads.
#[cold]
unsafe fn spill(cache: *mut Cache) {
    // SAFETY: the list is this thread's own and longer than half of KEEP.
    unsafe {
        let chain = (*cache).head;
        let mut last = chain;
        for _ in 1..KEEP / 2 {
            last = (*last).links[0].load(Ordering::Relaxed);
        }
        (*cache).head = (*last).links[0].load(Ordering::Relaxed);
        (*cache).length -= KEEP / 2;
        (*last).links[0].store(null_mut(), Ordering::Relaxed);
        give(chain);
    }
}

/// Pushes a chain that belongs to the caller alone.
unsafe fn give(chain: *mut Node) {
    // SAFETY: forwarded from the caller.
    unsafe { put(chain, chain) };
}

/// Pushes chains that belong to the caller alone, from the first to the last.
unsafe fn put(first: *mut Node, last: *mut Node) {
    let mut head = GLOBAL.load(Ordering::Relaxed);
    loop {
        // SAFETY: the caller's, and never unmapped.
        unsafe { (*last).links[1].store(head, Ordering::Relaxed) };
        // (A) publishes the links to the thread that takes the chains.
        match GLOBAL.compare_exchange(head, first, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

/// Maps a page of nodes, and links them into a chain.
fn map_page() -> *mut Node {
    let page: *mut Node = memory::map(PAGE * size_of::<Node>());
    // SAFETY: the page was mapped above, is large enough, and no other thread knows it.
    unsafe {
        for i in 0..PAGE {
            page.add(i).write(Node::zeroed());
            let next = if i + 1 < PAGE { page.add(i + 1) } else { null_mut() };
            (*page.add(i)).links[0].store(next, Ordering::Relaxed);
        }
    }
    page
}

/// Runs when a thread exits, and once more if destructors that run later release nodes.
fn thread_exit() {
    let cache = Local::address();
    // SAFETY: the cache is this thread's own.
    unsafe {
        let head = (*cache).head;
        *cache = Cache { head: null_mut(), length: 0, exit_hook: false };
        if !head.is_null() {
            give(head);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::alone::alone;
    use std::collections::HashSet;
    use std::vec::Vec;

    /// The test runs itself in a process of its own: else threads of other tests would take some of the nodes that come back.
    #[test]
    fn nodes_are_distinct_and_reused_across_threads() {
        let name = concat!(module_path!(), "::nodes_are_distinct_and_reused_across_threads");
        let (_, name) = name.split_once("::").expect("the crate's name comes first");
        alone(name, reuses_nodes);
    }

    fn reuses_nodes() {
        let round = || {
            std::thread::spawn(|| {
                let nodes: Vec<_> = (0..200).map(|_| acquire()).collect();
                let set: HashSet<_> = nodes.iter().map(|n| n.as_ptr() as usize).collect();
                assert_eq!(set.len(), nodes.len());
                for node in nodes {
                    // SAFETY: each was acquired above and is released once.
                    unsafe { release(node) };
                }
                set
            })
            .join()
            .unwrap()
        };
        let mut all = HashSet::new();
        for _ in 0..50 {
            all.extend(round());
        }
        // 50 threads of 200 nodes each: 10,000 if none came back.
        assert!(all.len() < 2000, "thread exit does not return nodes: {} seen", all.len());

        // Threads that come and go at the same time. If one that takes a chain keeps the others from the rest, they map pages, of
        // which a hundred came in this test.
        let one_each = || {
            let mut seen = HashSet::new();
            for _ in 0..5000 {
                let node = std::thread::spawn(|| {
                    let node = acquire();
                    // SAFETY: acquired above, and released once.
                    unsafe { release(node) };
                    node.as_ptr() as usize
                });
                seen.insert(node.join().unwrap());
            }
            seen
        };
        let spawners: Vec<_> = (0..4).map(|_| std::thread::spawn(one_each)).collect();
        spawners.into_iter().for_each(|spawner| all.extend(spawner.join().unwrap()));
        assert!(
            all.len() < 4000,
            "a thread that refills its list keeps others from the rest: {} seen",
            all.len()
        );
    }
}
