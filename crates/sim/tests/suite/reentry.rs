//! A reader that read-locks again while it holds a read lock: each lock does what its header says under
//! "Re-entry". Without a writer it enters; with one that waits it waits for that, which waits for it; shfl-rw
//! lets it pass for a while, and bravo-2d if the first acquisition was a fast one. Attempts and timed forms come back in any case.
//!
//! `LATCHWORK_LOCK=name` runs one lock only.

use latchwork::locks::rwlock::RawRwLock;
use latchwork::machine::Deadline;
use latchwork::registry::{Visitor, visit};
use latchwork_sim::{Error, Options, Profile, Sim, work};

/// How the second acquisition is made.
#[derive(Copy, Clone, Debug)]
enum Again {
    Waits,
    Tries,
    Until,
}

/// When the reader comes again: the writer comes after 100 microseconds, and spins for 10 before it queues.
const BEFORE: u64 = 20_000;
const SOON: u64 = 105_000;
const LATE: u64 = 50_000_000;

/// One thread reads, and reads again at a time; another writes. Whether the second acquisition was had.
fn enters_again<R: RawRwLock<Machine = Sim>>(when: u64, again: Again) -> Result<bool, Error> {
    let lock = R::new_in();
    let had = std::sync::atomic::AtomicBool::new(false);
    let reader = || {
        // Enough for a bias.
        for _ in 0..32 {
            // SAFETY: the token is from the acquisition in the same expression.
            unsafe { lock.unlock_read(lock.read()) };
        }
        let first = lock.read();
        work(when);
        let second = match again {
            Again::Waits => Some(lock.read()),
            Again::Tries => lock.try_read(),
            Again::Until => lock.read_until(Deadline::after::<Sim>(1_000_000)),
        };
        had.store(second.is_some(), std::sync::atomic::Ordering::Relaxed);
        for token in [Some(first), second].into_iter().flatten() {
            // SAFETY: from the acquisitions above.
            unsafe { lock.unlock_read(token) };
        }
    };
    let writer = || {
        work(100_000);
        let token = lock.write();
        // SAFETY: acquired above.
        unsafe { lock.unlock_write(token) };
    };
    let profile = Profile::find("2x4").expect("a shorthand");
    let options = Options { limit_ns: 1_000_000_000, spread_ns: Some(0), ..Options::default() };
    latchwork_sim::run(&profile, &options, vec![Box::new(reader), Box::new(writer)])?;
    Ok(had.into_inner())
}

/// Whether both wait for ever.
fn stuck(result: &Result<bool, Error>) -> bool {
    matches!(result, Err(Error::Deadlock { .. } | Error::TimeLimit { .. }))
}

#[test]
fn every_rwlock_does_as_documented() {
    struct Each;
    impl Visitor<Sim> for Each {
        fn rwlock<R: RawRwLock<Machine = Sim>>(&mut self) {
            let name = R::INFO.name;
            if !crate::wanted(name) {
                return;
            }
            let enters = |when, again| enters_again::<R>(when, again);
            for again in [Again::Waits, Again::Tries, Again::Until] {
                let result = enters(BEFORE, again);
                assert!(result.as_ref().is_ok_and(|had| *had), "{name}, no writer, {again:?}: {result:?}");
            }
            for when in [SOON, LATE] {
                for again in [Again::Tries, Again::Until] {
                    let result = enters(when, again);
                    assert!(result.is_ok(), "{name}, at {when} ns, {again:?}: {result:?}");
                }
            }
            let (soon, late) = (enters(SOON, Again::Waits), enters(LATE, Again::Waits));
            println!("{name}: soon {soon:?}, late {late:?}");
            // Of shfl-rw, readers pass a writer that does not keep them out yet. Of bravo-2d, readers pass a writer that waits for
            // a reader in its slot.
            let always = name.starts_with("bravo-2d-") || R::PREFERS_READERS;
            let passes = (name == "shfl-rw" || always, always);
            assert_eq!(stuck(&soon), !passes.0, "{name}, soon: {soon:?}");
            assert_eq!(stuck(&late), !passes.1, "{name}, late: {late:?}");
        }
    }
    visit(&mut Each);
}
