//! Memory that notices when it is used after it was freed.
//!
//! Each block is a page of its own. A freed page loses its access rights, and is allocated again only after many other
//! pages. A thread that touches the page meanwhile gets SIGSEGV. The handler notes that for the thread, gives the page its
//! rights back, and lets the access happen. So the run can end in good order and name the thread. A futex call on a freed
//! page is not noticed, and is allowed: the kernel reports an error, which lock code ignores.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Mutex, Once};

const PAGE: usize = 4096;

/// First address and length of each arena, for the signal handler.
static ARENAS: [(AtomicUsize, AtomicUsize); 64] = [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; 64];

/// Pages.
pub struct Arena {
    base: usize,
    length: usize,
    entry: usize,
    /// Free ones, the longest free first.
    free: Mutex<VecDeque<usize>>,
}

impl Arena {
    /// One of `pages` pages.
    pub fn new(pages: usize) -> Self {
        catch_trespassers();
        let length = pages * PAGE;
        // SAFETY: a fresh private mapping, checked below.
        let base = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), length, libc::PROT_NONE, flags, -1, 0)
        };
        assert!(base != libc::MAP_FAILED, "no memory for {pages} pages");
        let base = base.expose_provenance();
        let entry =
            ARENAS.iter().position(|(start, _)| start.compare_exchange(0, base, Relaxed, Relaxed).is_ok());
        let entry = entry.expect("64 tortures in one process are enough");
        ARENAS[entry].1.store(length, Release);
        let free = (0..pages).map(|page| base + page * PAGE).collect();
        Arena { base, length, entry, free: Mutex::new(free) }
    }

    /// A page that has been free for the longest, zeroed.
    pub fn allocate(&self) -> *mut u8 {
        let page = self.free.lock().unwrap().pop_front().expect("an arena is larger than its use");
        protect(page, libc::PROT_READ | libc::PROT_WRITE);
        let page: *mut u8 = std::ptr::with_exposed_provenance_mut(page);
        // SAFETY: the page is the caller's from here on.
        unsafe { page.write_bytes(0, PAGE) };
        page
    }

    /// Gives a page back.
    ///
    /// # Safety
    ///
    /// The page came from [`allocate`](Arena::allocate), and no thread is to use it any more.
    pub unsafe fn free(&self, page: *mut u8) {
        protect(page.addr(), libc::PROT_NONE);
        self.free.lock().unwrap().push_back(page.addr());
    }

    /// The pages that are not free.
    pub fn used(&self) -> Vec<*mut u8> {
        let free = self.free.lock().unwrap();
        let all = (self.base..self.base + self.length).step_by(PAGE);
        all.filter(|page| !free.contains(page)).map(std::ptr::with_exposed_provenance_mut).collect()
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        ARENAS[self.entry].1.store(0, Relaxed);
        ARENAS[self.entry].0.store(0, Release);
        // SAFETY: mapped in `new`; the owner that drops the arena uses no page of it any more.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(self.base), self.length) };
    }
}

fn protect(page: usize, rights: i32) {
    // SAFETY: a page of an arena: no access rights change but its own.
    let done = unsafe { libc::mprotect(std::ptr::with_exposed_provenance_mut(page), PAGE, rights) };
    assert!(done == 0, "mprotect: {}", std::io::Error::last_os_error());
}

thread_local! {
    /// The address that the signal handler saw this thread touch, plus one; 0 if it saw none.
    static TRESPASS: Cell<usize> = const { Cell::new(0) };
}

/// Where in its page the calling thread touched freed memory, if it did since the last call.
pub fn take_trespass() -> Option<usize> {
    TRESPASS.replace(0).checked_sub(1).map(|address| address % PAGE)
}

/// What handled SIGSEGV before.
static BEFORE: Mutex<Option<libc::sigaction>> = Mutex::new(None);

fn catch_trespassers() {
    static ONCE: Once = Once::new();
    // SAFETY: the handler only calls what a signal handler may; the structures are valid.
    ONCE.call_once(|| unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut before: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGSEGV, std::ptr::null(), &mut before);
        *BEFORE.lock().unwrap() = Some(before);
        libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut());
    });
}

extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes valid information about a fault; `mprotect` and `sigaction` may be
    // called here. `errno` is restored.
    unsafe {
        let errno = *libc::__errno_location();
        let address = (*info).si_addr().addr();
        let ours = ARENAS.iter().any(|(base, length)| {
            address.wrapping_sub(base.load(Relaxed)) < length.load(Relaxed) && base.load(Relaxed) != 0
        });
        if ours {
            TRESPASS.set(address + 1);
            let page: *mut libc::c_void = std::ptr::with_exposed_provenance_mut(address & !(PAGE - 1));
            libc::mprotect(page, PAGE, libc::PROT_READ | libc::PROT_WRITE);
        } else {
            // The access happens again, and then the handler that was installed before this one gets the signal.
            let before = BEFORE.try_lock().ok().and_then(|before| *before);
            let mut default: libc::sigaction = std::mem::zeroed();
            default.sa_sigaction = libc::SIG_DFL;
            libc::sigaction(signal, &before.unwrap_or(default), std::ptr::null_mut());
        }
        *libc::__errno_location() = errno;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_notices_a_late_access_and_only_that() {
        let arena = Arena::new(8);
        let page = arena.allocate();
        // SAFETY: the page is ours; then, on purpose, it is not any more: the handler makes the
        // access harmless.
        unsafe {
            page.add(5).write_volatile(1);
            assert_eq!(take_trespass(), None);
            arena.free(page);
            page.add(9).write_volatile(1);
        }
        assert_eq!(take_trespass(), Some(9));
        assert_eq!(take_trespass(), None);
        let again: Vec<_> = (0..8).map(|_| arena.allocate()).collect();
        assert_eq!(again.last(), Some(&page), "not the longest free page first");
        // SAFETY: the page is ours again, and zeroed.
        assert_eq!(unsafe { page.add(9).read() }, 0);
    }
}
