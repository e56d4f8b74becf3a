//! Statistics, for `LATCHWORK_STATS`: what the report says, and where it goes.
//!
//! The families count in [`counters`]. This prints everything when the process exits: to stderr or, with
//! `LATCHWORK_STATS=json:PATH`, as one line of JSON appended to PATH.

use crate::state::choice::{self, Choice};
use crate::state::counters::{self, FAMILIES, Family, REASONS};
use crate::state::executed;
use crate::state::line::Line;
use crate::state::log::Log;
use crate::state::stderr;
use core::fmt::{self, Display, Formatter, Write};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};
use latchwork::locks::mutex::RawMutex;
use latchwork::locks::rwlock::RawRwLock;
use latchwork::locks::rwlock::bravo::count::Counts;
use latchwork::machine::Native;
use latchwork::registry::{Visitor, visit};

/// The families, in the order of the report, and how it names them.
const NAMES: [(Family, &str); FAMILIES] = [
    (Family::Mutex, "mutex"),
    (Family::RwLock, "rwlock"),
    (Family::Cond, "condvar"),
    (Family::Spin, "spin"),
    (Family::Sem, "semaphore"),
];

/// The reasons, in the order of [`Reason`](counters::Reason): the name in JSON, and what the text calls an object.
const REASON_NAMES: [(&str, &str); REASONS] = [
    ("mutex_robust", "robust mutex"),
    ("mutex_priority", "priority-inheriting or -protected mutex"),
    ("mutex_shared", "process-shared mutex"),
    ("rwlock_shared", "process-shared rwlock"),
    ("condvar_shared", "process-shared condition variable"),
    ("semaphore_shared", "process-shared semaphore"),
    ("spin_shared", "process-shared spin lock"),
    ("rwlock_prefers_writers", "rwlock that prefers writers"),
    ("mutex_choice", "mutex, by --config or because it was used before the library was ready"),
    ("rwlock_choice", "rwlock, by --config or because it was used before the library was ready"),
];

/// So many things: `1 call`, `2 calls`.
struct Things(u64, &'static str);

impl Display for Things {
    fn fmt(&self, out: &mut Formatter) -> fmt::Result {
        let Things(number, what) = *self;
        write!(out, "{number} {what}{}", if number == 1 { "" } else { "s" })
    }
}

/// The first 64 characters of the program's name. A character that JSON or a terminal takes for something else is `?`.
struct Program;

impl Display for Program {
    fn fmt(&self, out: &mut Formatter) -> fmt::Result {
        let plain =
            |character: char| !character.is_control() && !matches!(character, '"' | '\\' | '\u{fffd}');
        // Each line of the text has the name, and all lines together fit into a `Line`.
        executed::name()
            .utf8_chunks()
            .flat_map(|chunk| {
                let wrong = (!chunk.invalid().is_empty()).then_some('?');
                chunk
                    .valid()
                    .chars()
                    .map(move |character| if plain(character) { character } else { '?' })
                    .chain(wrong)
            })
            .take(64)
            .try_for_each(|character| out.write_char(character))
    }
}

/// Where the report goes as JSON. If there is none, it goes to stderr, as text.
static LOG: Log = Log::new("statistics");

/// The name of a lock in use, as pointer and length.
struct Name(AtomicPtr<u8>, AtomicUsize);
/// Those of mutexes, rwlocks and spin locks.
static SERVES: [Name; 3] = [const { Name(AtomicPtr::new(core::ptr::null_mut()), AtomicUsize::new(0)) }; 3];

impl Name {
    fn set(&self, name: &'static str) {
        self.0.store(name.as_ptr().cast_mut(), Relaxed);
        self.1.store(name.len(), Relaxed);
    }

    fn get(&self) -> Option<&'static str> {
        let start = self.0.load(Relaxed);
        if start.is_null() {
            return None;
        }
        // SAFETY: `set` stored the pointer and the length of one `&'static str`, before there was another thread.
        Some(unsafe {
            core::str::from_utf8_unchecked(core::slice::from_raw_parts(start, self.1.load(Relaxed)))
        })
    }
}

/// The lock called `name` serves mutexes, rwlocks or spin locks.
pub(crate) fn name(family: Family, name: &'static str) {
    match family {
        Family::RwLock => SERVES[1].set(name),
        Family::Spin => SERVES[2].set(name),
        _ => SERVES[0].set(name),
    }
}

/// The lock that serves a family.
fn served_by(family: Family) -> Option<&'static str> {
    match family {
        Family::Mutex => SERVES[0].get(),
        Family::RwLock => SERVES[1].get(),
        Family::Spin => SERVES[2].get(),
        Family::Sem => SERVES[0].get().map(|_| "semaphore"),
        Family::Cond => SERVES[0].get().map(|_| "futex"),
    }
}

/// Takes the value of `LATCHWORK_STATS`; returns whether to count.
pub(crate) fn configure(value: Option<&'static [u8]>) -> bool {
    let Some(value) = value.filter(|value| *value != b"0") else { return false };
    if let Some(path) = value.strip_prefix(b"json:") {
        LOG.begin(path);
    }
    counters::set(true);
    true
}

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = report;

extern "C" fn report() {
    // A process that forks and exits in the child prints once for each of the two processes, but none prints twice.
    if !counters::set(false) {
        return;
    }
    if LOG.is_asked_for() {
        LOG.append(json().as_bytes());
    } else {
        stderr::write(text().as_bytes());
    }
}

/// How readers of `lock` got in, if the lock counts that.
fn readers(family: Family, lock: &str) -> Option<Counts> {
    (family == Family::RwLock && lock.starts_with("bravo-")).then(Counts::of_process)
}

/// Calls `each` with every lock that was chosen for objects of the family, and how many objects.
fn chosen(family: Family, each: impl FnMut(&str, u64)) {
    struct Chosen<F> {
        family: Family,
        position: usize,
        each: F,
    }
    impl<F: FnMut(&str, u64)> Chosen<F> {
        fn see(&mut self, family: Family, name: &str) {
            if self.family == family {
                self.report(name, Choice::registered(self.position));
                self.position += 1;
            }
        }

        fn report(&mut self, name: &str, choice: Choice) {
            let objects = choice::objects(self.family, choice.number());
            if objects != 0 {
                (self.each)(name, objects);
            }
        }
    }
    impl<F: FnMut(&str, u64)> Visitor<Native> for Chosen<F> {
        fn mutex<L: RawMutex<Machine = Native>>(&mut self) {
            self.see(Family::Mutex, L::INFO.name);
        }
        fn rwlock<R: RawRwLock<Machine = Native>>(&mut self) {
            self.see(Family::RwLock, R::INFO.name);
        }
    }
    if !choice::is_on() || !matches!(family, Family::Mutex | Family::RwLock) {
        return;
    }
    let mut chosen = Chosen { family, position: 0, each };
    visit(&mut chosen);
    chosen.report("glibc", Choice::GLIBC);
}

fn text() -> Line {
    let mut out = Line::new();
    // SAFETY: `getpid` takes nothing and always succeeds.
    let pid = unsafe { libc::getpid() };
    let is_used = |family| counters::of(family).iter().any(|count| *count != 0);
    if [Family::Mutex, Family::RwLock].into_iter().all(|family| served_by(family).is_none()) {
        let _ =
            writeln!(out, "latchwork[{pid}]: {Program}: mutex, rwlock: glibc's own, which are not counted");
    }
    // Most programs use one or two kinds of objects, and of a shell script each of a hundred processes reports.
    for (family, name) in NAMES.into_iter().filter(|(family, _)| is_used(*family)) {
        let Some(lock) = served_by(family) else { continue };
        let [objects, calls, contended] = counters::of(family);
        let (objects, calls) = (Things(objects, "object"), Things(calls, "call"));
        let _ = write!(out, "latchwork[{pid}]: {Program}: {name} ({lock}): {objects}, {calls}, ");
        let _ = match family {
            Family::Cond => writeln!(out, "{}", Things(contended, "wait")),
            _ => writeln!(out, "{contended} had to wait"),
        };
        chosen(family, |lock, objects| {
            let objects = Things(objects, "object");
            let _ = writeln!(out, "latchwork[{pid}]: {Program}: {name}: {lock} serves {objects}");
        });
        if let Some(Counts { fast, unbiased, collisions, in_vain, revocations, revoking }) =
            readers(family, lock)
        {
            let _ = writeln!(
                out,
                "latchwork[{pid}]: {Program}: {name} readers: {fast} fast, {} slow ({unbiased} without bias, {collisions} \
                 without a free slot), {in_vain} left a slot because a writer had ended the bias; {} in {} us",
                unbiased + collisions,
                Things(revocations, "revocation"),
                revoking / 1000
            );
        }
    }
    // That the library was loaded, and with which locks, is said of a process without calls too.
    let unused = NAMES.into_iter().filter(|(family, _)| {
        matches!(family, Family::Mutex | Family::RwLock) && served_by(*family).is_some() && !is_used(*family)
    });
    for (position, (family, name)) in unused.clone().enumerate() {
        let _ = match position {
            0 => write!(out, "latchwork[{pid}]: {Program}: "),
            _ => write!(out, ", "),
        };
        let _ = write!(out, "{name} ({})", served_by(family).unwrap_or_default());
    }
    if unused.count() != 0 {
        let _ = writeln!(out, ": no calls");
    }
    for (reason, (_, name)) in REASON_NAMES.iter().enumerate() {
        let [objects, calls] = counters::to_glibc(reason);
        if objects + calls != 0 {
            let _ = writeln!(
                out,
                "latchwork[{pid}]: {Program}: left to glibc: {name}: {}, {}",
                Things(objects, "object"),
                Things(calls, "call")
            );
        }
    }
    out
}

fn json() -> Line {
    let mut out = Line::new();
    // SAFETY: `getpid` takes nothing and always succeeds.
    let _ = write!(out, "{{\"pid\":{},\"program\":\"{Program}\"", unsafe { libc::getpid() });
    for (family, name) in NAMES {
        let Some(lock) = served_by(family) else { continue };
        let [objects, calls, contended] = counters::of(family);
        let _ = write!(
            out,
            ",\"{name}\":{{\"lock\":\"{lock}\",\"objects\":{objects},\"calls\":{calls},\
             \"contended\":{contended}"
        );
        if let Some(Counts { fast, unbiased, collisions, in_vain, revocations, revoking }) =
            readers(family, lock)
        {
            let _ = write!(
                out,
                ",\"readers\":{{\"fast\":{fast},\"unbiased\":{unbiased},\"collisions\":{collisions},\
                 \"in_vain\":{in_vain},\"revocations\":{revocations},\"revoking_ns\":{revoking}}}"
            );
        }
        let mut separator = ",\"chosen\":{";
        chosen(family, |lock, objects| {
            let _ = write!(out, "{separator}\"{lock}\":{objects}");
            separator = ",";
        });
        out.bytes(if separator == "," { b"}}" } else { b"}" });
    }
    let _ = write!(out, ",\"to_glibc\":{{");
    for (reason, (name, _)) in REASON_NAMES.iter().enumerate() {
        let comma = if reason == 0 { "" } else { "," };
        let [objects, calls] = counters::to_glibc(reason);
        let _ = write!(out, "{comma}\"{name}\":{{\"objects\":{objects},\"calls\":{calls}}}");
    }
    let _ = writeln!(out, "}}}}");
    out
}
