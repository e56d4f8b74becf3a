//! Safe functions with hostile arguments. No argument may cause undefined behaviour. A function may panic, refuse, or
//! wait for a while. It must not touch memory that was freed or never allocated.
//!
//! The cases run natively, and under valgrind's memcheck, which reports each access to memory that is not the program's.
//! [`every_safe_function_is_listed`] reads the sources, so no function is left out.
//!
//! Miri would report more: data races, references that alias or have the wrong type, uninitialised or invalid values that
//! the program does not depend on, and pointers without provenance. But Miri cannot run the inline assembly and the
//! system calls of the native machine.

use latchwork::locks::CondvarOver;
use latchwork::locks::condvar::RawCondvar;
use latchwork::locks::mutex;
use latchwork::locks::mutex::RawMutex;
use latchwork::locks::mutex::shfl::RawShfl;
use latchwork::locks::mutex::stacked::{Local, Name};
use latchwork::locks::rwlock::RawRwLock;
use latchwork::locks::rwlock::bravo::{self, bias, count, publish, revoke, table};
use latchwork::locks::semaphore::RawSemaphore;
use latchwork::locks::seqlock::{RawSeqLock, SeqLock};
use latchwork::machine::group;
use latchwork::machine::record::{Clocks, Hazards};
use latchwork::machine::{Arith, Clock, Deadline, Group, Machine, Native, QNode, ReaderRow, Record, Records};
use latchwork::map::array::Array;
use latchwork::map::growing::Node;
use latchwork::map::growing::{Count, Growing};
use latchwork::map::tree::Tree;
use latchwork::map::{Entry, Operation, RcuMap, RcuSet, RcuTreeMap, RcuTreeSet};
use latchwork::reclaim::counted::CountedDomain;
use latchwork::reclaim::domain::{Domain, Flavour};
use latchwork::reclaim::epoch::{Epoch, EpochDomain};
use latchwork::reclaim::grace::{Grace, Periods};
use latchwork::reclaim::hazard::{HazardDomain, HazardPointer};
use latchwork::reclaim::interval::IntervalDomain;
use latchwork::reclaim::qsbr::{Qsbr, QsbrDomain};
use latchwork::reclaim::rcu::{General, RcuDomain, global};
use latchwork::reclaim::typed::{Atomic, Owned, Shared};
use latchwork::reclaim::{
    AtLimit, GracePeriod, Guard, Header, Limit, Pace, Rcu, RcuOption, Reader, Reclaim, Ref, Retire, Sections,
    Stall, stall,
};
use latchwork::registry::{self, Kind, Visitor};
use latchwork::{Condvar, Mutex, RwLock, Semaphore};
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::ptr::{null, without_provenance, without_provenance_mut};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

mod locks;
mod machine;
mod maps;
mod ordered;
mod reclaim;

/// The environment variable that tells the child process of [`run`] what to do.
const SUBJECT: &str = "LATCHWORK_HOSTILE";
/// Tells the child to run all cases, without valgrind.
const NATIVELY: &str = "natively";
/// Tells the child to run [`locks::panics_in_a_wait`] alone.
const MOODY: &str = "moody";
/// The subject for a thread that makes as many readers as can be counted while one is offline.
const OFFLINE: &str = "offline";
/// The exit status of valgrind after an error.
const CAUGHT: i32 = 99;
/// An address where there is no memory.
const NOWHERE: usize = 0x40;

/// Whether `attempt` panics. A panic is no undefined behaviour.
fn refused(attempt: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(attempt)).is_err()
}

/// A deadline in the past on either clock, and one in the near future.
fn deadlines() -> [Deadline; 3] {
    let past = |clock| Deadline { clock, nanos: 0 };
    [past(Clock::Monotonic), past(Clock::Realtime), Deadline::after::<Native>(1000)]
}

/// The functions that the cases call, by source file.
const LISTED: &[(&str, &str)] = &[
    (
        "locks/condvar.rs",
        "value new_in wait prepare word is_notified block finish abandon offer_processor notify notify_one \
         notify_all announce wake_announced wake_claimed has_waiters wait_until_quiet",
    ),
    (
        "machine/group.rs",
        "new entries as_ptr link groups owners index_of taken owned take claim give_back forget take_idle leave left \
         is_idle",
    ),
    (
        "machine/mod.rs",
        "spin_until spin_for pause prefetch patience yield_now wait wake requeue light_fence \
         heavy_fence prepare_fences lightest_fence full_fence acquire_swap now \
         thread_id identity numa_node numa_nodes cpu cpus numa_hops acquire_node note_node find safety_timeout \
         doze doze_at hints acquire_zero release_if torn_timeout is_real_time has_one_processor",
    ),
    ("machine/native/mod.rs", "init avoid_membarrier set_exit notice_exit give_up_key has_light_fences"),
    ("machine/native/tls.rs", "reader_row_offset"),
    ("machine/qnode.rs", "as_ptr"),
    ("machine/record.rs", "place generation report_stall all blocks as_ptr is_idle reset"),
    ("machine/row.rs", "as_ptr is_empty"),
    ("machine/time.rs", "after passed left"),
    ("machine/word.rs", "new load store swap compare_exchange fetch_add fetch_sub fetch_or fetch_and"),
    ("map/array.rs", "new into_first pointer"),
    (
        "map/growing.rs",
        "new enter iter count capacity throttle find lock lock_around fit clear bucket remove_found split_of split_all parts_list hasher node \
         protected as_ptr set remove",
    ),
    (
        "map/rcu_map.rs",
        "new key value pair get get_key_value contains_key iter keys values with_capacity with_capacity_and_hasher \
         with_hasher hasher statistics len is_empty capacity read get_mut",
    ),
    (
        "map/update.rs",
        "insert replace try_insert get_or_insert get_or_insert_with update alter insert_or_update compute remove \
         remove_entry remove_if entry retain clear reserve shrink_to_fit",
    ),
    (
        "map/entry.rs",
        "key or_insert or_insert_with or_insert_with_key or_default and_modify insert_entry get get_ref insert remove \
         remove_entry into_key",
    ),
    (
        "map/tree.rs",
        "new enter snapshot updates throttle lock lock_end remove_found clear fill drain node protected set remove count find rank at walk range",
    ),
    (
        "map/tree_map.rs",
        "contains_key len is_empty iter range read get first last iter_cloned clear pop_first pop_last remove remove_entry \
         remove_if insert replace try_insert get_or_insert get_or_insert_with update retain",
    ),
    (
        "map/tree_reading.rs",
        "get get_key_value contains_key len is_empty first_key_value last_key_value iter range keys values",
    ),
    (
        "map/tree_set.rs",
        "get contains len is_empty first last iter range as_map read pop_first pop_last remove take clear insert retain",
    ),
    ("map/iter.rs", "iter iter_cloned"),
    ("map/with_rayon.rs", "par_iter"),
    (
        "map/set.rs",
        "new get contains iter with_capacity with_capacity_and_hasher with_hasher as_map hasher len is_empty capacity \
         statistics read insert remove take retain clear iter_cloned is_subset is_superset is_disjoint",
    ),
    ("locks/mod.rs", "name into_word"),
    ("locks/for_assembly.rs", "restore"),
    (
        "locks/mutex/mod.rs",
        "new_in lock try_lock try_lock_weak lock_contended lock_until is_locked wants_offers",
    ),
    ("locks/mutex/local.rs", "has_waiters"),
    ("locks/mutex/osq.rs", "new_in"),
    ("locks/mutex/stacked.rs", "cohort"),
    (
        "reclaim/cell.rs",
        "new get new_in read replace update update_with try_update swap get_mut into_inner snapshot none is_none take map",
    ),
    (
        "reclaim/typed.rs",
        "new into_inner tag with_tag null is_null as_ref new_in swap store get_mut into_owned load compare_exchange \
         compare_exchange_tag",
    ),
    (
        "reclaim/domain.rs",
        "reader new_in is_inside synchronize synchronize_expedited start_poll poll stall set_stall_nanos \
         set_at_limit on_stall set_limit throttle collect barrier serve is_clean garbage is_reclaiming",
    ),
    ("reclaim/due.rs", "native has_come reclaim"),
    ("reclaim/epoch.rs", "enter"),
    ("reclaim/grace.rs", "word clock reached new start is_over poll wait stall set_patience rest"),
    ("reclaim/hazard.rs", "clear bound is_clean"),
    ("reclaim/ordered.rs", "barrier_anywhere"),
    ("reclaim/interval.rs", "is_inside"),
    ("reclaim/pointer.rs", "new_in protect protect_raw try_protect_raw set_raw reset protected"),
    ("reclaim/stall.rs", "to_stderr"),
    (
        "reclaim/strategy.rs",
        "new_in reader covers throttle set_limit collect barrier garbage synchronize enter \
         try_enter quiescent offline protect defer note_new protect_seen",
    ),
    ("reclaim/rcu.rs", "global enter"),
    ("registry.rs", "mutex rwlock seqlock fair_mutex downgradable upgradable visit name for_each find"),
    ("locks/rwlock/bravo.rs", "new_warm_in is_biased"),
    (
        "locks/rwlock/bravo/around.rs",
        "read_in_first_slot read_in_other_slot read_in_further_slot is_biased may_have_slot_readers \
         is_being_revoked must_revoke",
    ),
    ("locks/rwlock/bravo/bias.rs", "revoked may_return"),
    ("locks/rwlock/bravo/count.rs", "add of_process"),
    ("locks/rwlock/bravo/publish.rs", "fence note_unbiased prepare"),
    ("locks/rwlock/bravo/table.rs", "first second column"),
    ("locks/rwlock/bravo/token.rs", "new"),
    (
        "locks/rwlock/mod.rs",
        "new_in read try_read try_read_weak read_until is_recorded has_own_recorded_read has_recorded_read write \
         try_write write_until is_locked is_write_locked",
    ),
    (
        "locks/rwlock/api_optional.rs",
        "read_recursive try_read_recursive try_read_recursive_for try_read_recursive_until",
    ),
    (
        "locks/rwlock/optional.rs",
        "upgradable_within upgradable try_upgradable upgradable_until read_recursive_within read_recursive \
         try_read_recursive read_recursive_until is_awaited",
    ),
    ("locks/rwlock/wait.rs", "until"),
    ("locks/seqlock.rs", "new new_in read try_read write load store"),
    (
        "locks/semaphore.rs",
        "spin new new_in value acquire try_acquire acquire_until step word forsake release release_many",
    ),
    (
        "sync/semaphore.rs",
        "new acquire try_acquire try_acquire_for try_acquire_until release release_many available",
    ),
];

/// Files whose functions are not called, and why.
const EXCUSED: &[(&str, &str)] = &[
    ("locks/mutex/policies.rs", "traits that a program implements, and does not call"),
    ("locks/mutex/shuffle.rs", "a trait that a program implements, and does not call"),
];

const CASES: &[(&str, fn())] = &[
    ("machine", machine::native),
    ("records", machine::records),
    ("raw locks", locks::raw),
    ("guards", locks::guards),
    ("changes of mode", locks::modes),
    ("bravo", locks::bravo),
    ("condition variables, semaphores, sequence locks", locks::waiting),
    ("strategies", reclaim::strategies),
    ("cells", reclaim::cells),
    ("keys", maps::keys),
    ("drops", maps::drops),
    ("growing", maps::growing),
    ("ordered keys", ordered::keys),
    ("trees", ordered::trees),
    ("arrays", maps::arrays),
    // Nothing is reclaimed after a guard was forgotten, so these come last.
    ("forgotten guards", reclaim::forgotten),
    ("forgotten guards of maps", maps::forgotten),
];

/// The body of the child process, which the tests below start natively and under valgrind.
#[test]
#[ignore = "run by the others"]
fn subject() {
    let Ok(subject) = std::env::var(SUBJECT) else { return };
    // SAFETY: ends a process that hangs.
    unsafe { libc::alarm(580) };
    std::panic::set_hook(Box::new(|_| ()));
    match subject.as_str() {
        MOODY => return locks::panics_in_a_wait(),
        OFFLINE => return reclaim::too_many_while_offline(),
        _ => {}
    }
    for (name, case) in CASES {
        println!("{name}");
        if let Err(payload) = catch_unwind(case) {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            println!("{}", text.or(payload.downcast_ref::<&str>().copied()).unwrap_or_default());
            std::process::exit(1);
        }
    }
    if subject == "dangling" {
        let freed = Box::into_raw(Box::new(7));
        // SAFETY: it is not: that is what is to be caught.
        unsafe {
            drop(Box::from_raw(freed));
            std::hint::black_box(freed.read_volatile());
        }
    }
}

/// Runs [`subject`] in a process of its own, as arguments of the command `before`. Returns the exit status and the output.
fn run(before: &[&str], subject: &str) -> (Option<i32>, String) {
    let exe = std::env::current_exe().unwrap();
    let mut words = before.iter().map(|word| word.to_string()).chain([exe.to_str().unwrap().to_string()]);
    let output = Command::new(words.next().unwrap())
        .args(words)
        .args(["--exact", "hostile::subject", "--ignored", "--test-threads=1", "--nocapture"])
        .env(SUBJECT, subject)
        .env("RUST_BACKTRACE", "0")
        .output();
    let output = output.expect("it runs; where valgrind is missing: sudo apt-get install valgrind");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned() + &text)
}

#[test]
fn nothing_undefined_happens() {
    let (status, said) = run(&[], NATIVELY);
    assert!(status == Some(0) && said.contains("1 passed"), "{status:?} {said}");
}

#[test]
fn a_wait_that_cannot_lock_again_ends_the_process() {
    let (status, said) = run(&[], MOODY);
    assert!(status.is_none() && !said.contains("two holders"), "{status:?} {said}");
}

#[test]
fn a_reader_that_cannot_come_back_online_ends_the_process() {
    let (status, said) = run(&[], OFFLINE);
    assert!(status.is_none() && !said.contains("offline with a guard"), "{status:?} {said}");
}

/// Memcheck reports no error in the cases, and reports the error that is made on purpose.
#[test]
fn nothing_undefined_is_seen_by_memcheck() {
    let exit = format!("--error-exitcode={CAUGHT}");
    let valgrind = ["valgrind", "--leak-check=no", "--fair-sched=yes", &exit];
    let (status, said) = run(&valgrind, "under memcheck");
    assert!(status == Some(0) && said.contains("ERROR SUMMARY: 0 errors"), "{status:?} {said}");
    let (status, said) = run(&valgrind, "dangling");
    assert!(status == Some(CAUGHT) && said.contains("Invalid read"), "{status:?} {said}");
}

/// Each safe `pub fn` and each safe method of a public trait is called here, or its file is excused. Constructors without
/// arguments do not count, nor do private modules whose items are not exported.
#[test]
fn every_safe_function_is_listed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/hostile");
    let files = std::fs::read_dir(tests).unwrap().map(|entry| entry.unwrap().path());
    let here: String = files.map(|file| std::fs::read_to_string(file).unwrap()).collect();
    let mut missing = Vec::new();
    let mut seen = 0;
    let sources = sources(&root, &root);
    for (file, text) in &sources {
        let functions = functions(text);
        if functions.is_empty()
            || !is_reachable(&root, file, &sources)
            || EXCUSED.iter().any(|(excused, _)| excused == file)
        {
            continue;
        }
        let listed = LISTED.iter().find(|(listed, _)| listed == file).map_or("", |(_, names)| names);
        for name in functions {
            seen += 1;
            let called = here.match_indices(&name).any(|(at, _)| {
                let (before, after) = (&here[..at], &here[at + name.len()..]);
                let whole =
                    !before.ends_with(|c: char| c.is_alphanumeric() || c == '_') && !before.ends_with("fn ");
                whole && ["(", "::<", ")", ","].iter().any(|next| after.starts_with(next))
            });
            // A visitor has a method of that name.
            let method = here.contains(&format!("fn {name}<"));
            if !listed.split_whitespace().any(|listed| listed == name) || !(called || method) {
                missing.push(format!("{file}: {name}"));
            }
        }
    }
    assert!(seen > 200, "{seen} functions: the sources were not read");
    assert!(missing.is_empty(), "neither called nor excused in tests/suite/hostile: {missing:#?}");
    for (file, _) in
        LISTED.iter().map(|(file, _)| (file, ())).chain(EXCUSED.iter().map(|(file, _)| (file, ())))
    {
        assert!(root.join(file).exists(), "{file} is gone");
    }
}

/// Whether a program can name the items of `file`: each module on the way to it is public, or its items are exported by the
/// module above it or by a module beside it.
fn is_reachable(root: &Path, file: &str, sources: &[(String, String)]) -> bool {
    let mut parent = root.to_path_buf();
    let mut declares = std::fs::read_to_string(root.join("lib.rs")).unwrap();
    let module = file.trim_end_matches(".rs").trim_end_matches("/mod");
    module.split('/').all(|name| {
        let is_public = declares.lines().any(|line| line == format!("pub mod {name};"));
        let exports = |line: &str, from: &str| line.starts_with(&format!("pub use {from}{name}::"));
        let beside = |file: &str| root.join(file).parent().is_some_and(|folder| folder == parent);
        let is_exported = declares.lines().any(|line| exports(line, ""))
            || sources
                .iter()
                .filter(|(file, _)| beside(file))
                .any(|(_, text)| text.lines().any(|line| exports(line, "super::")));
        parent.push(name);
        let files = [parent.with_extension("rs"), parent.join("mod.rs")];
        declares = files.iter().find_map(|file| std::fs::read_to_string(file).ok()).unwrap();
        is_public || is_exported
    })
}

/// The source files below `folder`, and what is in them.
fn sources(root: &Path, folder: &Path) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(sources(root, &path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            all.push((path.strip_prefix(root).unwrap().to_str().unwrap().to_string(), text));
        }
    }
    all
}

/// The safe public functions in the text of a file.
fn functions(text: &str) -> Vec<String> {
    let (mut names, mut in_trait) = (Vec::new(), false);
    for line in text.lines().take_while(|line| !line.starts_with("mod tests")) {
        match line {
            "}" => in_trait = false,
            _ if line.starts_with("pub trait ") || line.starts_with("pub unsafe trait ") => in_trait = true,
            _ => (),
        }
        let code = line.trim_start();
        let public = code.strip_prefix("pub const fn ").or(code.strip_prefix("pub fn "));
        let method = line.strip_prefix("    fn ").filter(|_| in_trait);
        let Some(rest) = public.or(method) else { continue };
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if !rest.starts_with("new()") {
            names.push(name);
        }
    }
    names
}
