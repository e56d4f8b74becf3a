//! A lock per lock: the variable `LATCHWORK_LOCKS`, which `latchwork run --config` sets.
//!
//! ```text
//! locks  = entry *(";" entry)
//! entry  = "B" hex                          a module, by its build id; modules are numbered from 0
//!        | "P" path *(" " path)             a module without build id, by any of its paths; %XX stands for a byte
//!        | family "@" lock " " span         a lock for static objects that lie within the span
//!        | family "<" lock *(" " span)      a lock for objects that are initialised, or else first used, from there: a
//!                                           span for each frame, the innermost first
//!        | family "*" lock                  a lock for all other objects of the family
//!        | family "?" number                for all other objects a lock by chance, the same for all objects of a site
//!        | family "!" number                the same without glibc's
//! family = "m" | "r"                        mutexes, rwlocks
//! span   = number ":" hex "-" hex           a module, and addresses in its file: the first, and the first behind them
//! ```
//!
//! The first entry that fits an object decides. A frame lies where its call instruction ends: at the return address minus
//! one. `*` stands last if it is given; without it, the other objects get the lock of the family (`LATCHWORK_MUTEX`,
//! `LATCHWORK_RWLOCK`).
//!
//! The choice is made within the lock call or initialisation that needs it, so nothing here allocates or takes a lock: the
//! dynamic linker says without one which module an address belongs to, and the stack is unwound as the recorder does it.

use super::environment::refuse;
use crate::state::choice::{self, Choice};
use crate::state::counters::Family;
use crate::state::memory;
use crate::state::table::Slot;
use crate::state::unwind::{self, modules};
use core::mem::MaybeUninit;
use core::ops::Range;
use latchwork::locks::mutex::RawMutex;
use latchwork::locks::rwlock::RawRwLock;
use latchwork::machine::Native;
use latchwork::registry::{Visitor, visit};

const VARIABLE: &str = "LATCHWORK_LOCKS";

/// Most frames of a rule. A site of the profile is named by its first frame that is not a wrapper; deeper chains of wrappers
/// than this are matched by their innermost frames.
const DEPTH: usize = 6;

/// Addresses of a module's file.
#[derive(Clone)]
struct Span {
    module: usize,
    addresses: Range<usize>,
}

#[derive(Clone, Copy)]
enum Module {
    BuildId { bytes: [u8; 32], length: usize },
    Paths(&'static [u8]),
}

enum Where {
    Static(Span),
    Site {
        spans: [Span; DEPTH],
        depth: usize,
    },
    Anywhere,
    /// By chance, with this seed, and with or without glibc's lock.
    Chance(u64, bool),
}

struct Rule {
    family: Family,
    lock: Choice,
    place: Where,
}

/// What the variable says.
struct Locks {
    modules: &'static [Module],
    rules: &'static [Rule],
    /// Whether a rule for mutexes, or for rwlocks, asks for the stack.
    sites: [bool; 2],
    /// The path of the program, if a module is named by its path.
    program: &'static [u8],
}

static LOCKS: Slot<&'static Locks> =
    Slot::new(&Locks { modules: &[], rules: &[], sites: [false; 2], program: &[] });

/// For which families locks are chosen one by one.
#[derive(Copy, Clone, Default)]
pub(super) struct Families {
    pub mutex: bool,
    pub rwlock: bool,
    /// Whether mutexes that no entry names are glibc's. Then so are spin locks and semaphores.
    pub leaves_rest_to_glibc: bool,
}

/// Reads the value of the variable. A value that is not understood ends the process.
pub(super) fn read(text: &'static [u8]) -> Families {
    let mut reader = Reader::new(text);
    for entry in reader.text.split(|byte| *byte == b';').filter(|entry| !entry.is_empty()) {
        if let Err(why) = reader.entry(entry) {
            refuse(VARIABLE, entry, why);
        }
    }
    let locks = reader.finish();
    let by_place = |rule: &Rule| !matches!(rule.place, Where::Anywhere);
    // Without an answer for its own code there is none for any.
    if locks.rules.iter().any(by_place) && modules::of(choose as *const () as usize).is_none() {
        refuse(
            VARIABLE,
            b"...",
            "this C library cannot say what an address belongs to: it takes glibc 2.35 on x86-64",
        );
    }
    let serves = |family| locks.rules.iter().any(|rule| rule.family == family);
    let is_rest = |rule: &Rule| rule.family == Family::Mutex && matches!(rule.place, Where::Anywhere);
    let families = Families {
        mutex: serves(Family::Mutex),
        rwlock: serves(Family::RwLock),
        leaves_rest_to_glibc: locks.rules.iter().any(|rule| is_rest(rule) && rule.lock == Choice::GLIBC),
    };
    LOCKS.set(locks);
    choice::install(choose);
    families
}

/// Ends the process if locks are chosen for a family that this library does not serve. `mutex` and `rwlock` say which it
/// serves, with a lock of the registry.
pub(super) fn check(families: Families, mutex: bool, rwlock: bool) {
    for (asked, served, why) in [
        (families.mutex, mutex, "LATCHWORK_MUTEX must name a lock"),
        (families.rwlock, rwlock, "LATCHWORK_RWLOCK must name a lock that is not over glibc's"),
    ] {
        if asked && !served {
            refuse(VARIABLE, b"...", why);
        }
    }
}

/// The parts of the table while they are read. Their memory stays.
struct Reader {
    text: &'static [u8],
    modules: &'static mut [MaybeUninit<Module>],
    rules: &'static mut [MaybeUninit<Rule>],
    module_count: usize,
    rule_count: usize,
    sites: [bool; 2],
}

impl Reader {
    fn new(text: &'static [u8]) -> Self {
        // A copy: servers write their process title over the environment.
        let entries = text.iter().filter(|byte| **byte == b';').count() + 1;
        // SAFETY: each array gets pages of its own that stay mapped, and its elements need no initialisation.
        unsafe {
            let copy = memory::map(text.len().max(1));
            copy.copy_from_nonoverlapping(text.as_ptr(), text.len());
            let modules = memory::map(entries * size_of::<Module>()).cast();
            let rules = memory::map(entries * size_of::<Rule>()).cast();
            Reader {
                text: core::slice::from_raw_parts(copy, text.len()),
                modules: core::slice::from_raw_parts_mut(modules, entries),
                rules: core::slice::from_raw_parts_mut(rules, entries),
                module_count: 0,
                rule_count: 0,
                sites: [false; 2],
            }
        }
    }

    fn entry(&mut self, entry: &'static [u8]) -> Result<(), &'static str> {
        let unknown = "there is no such entry; `latchwork run --config` makes the value";
        let (family, kind, rest) = match entry {
            [b'B', hex @ ..] => {
                return self.module(build_id(hex).ok_or("a build id is 1 to 32 bytes in hex")?);
            }
            [b'P', paths @ ..] => return self.module(Module::Paths(paths)),
            [b'm', kind, rest @ ..] => (Family::Mutex, *kind, rest),
            [b'r', kind, rest @ ..] => (Family::RwLock, *kind, rest),
            _ => return Err(unknown),
        };
        let mut words = rest.split(|byte| *byte == b' ');
        let word = words.next().unwrap_or(b"");
        let bad = "a span is MODULE:START-END, of a module that stands before it";
        let mut spans: [Span; DEPTH] = [const { Span { module: 0, addresses: 0..0 } }; DEPTH];
        let mut depth = 0;
        for (place, text) in spans.iter_mut().zip(words) {
            *place = self.span(text).ok_or(bad)?;
            depth += 1;
        }
        let place = match kind {
            b'@' if depth == 1 => Where::Static(spans[0].clone()),
            b'<' if depth > 0 => Where::Site { spans, depth },
            b'*' if depth == 0 => Where::Anywhere,
            b'?' | b'!' if depth == 0 => Where::Chance(number(word, 10).ok_or("no number")?, kind == b'?'),
            _ => return Err(unknown),
        };
        let by_chance = matches!(place, Where::Chance(..));
        if by_chance || matches!(place, Where::Site { .. }) {
            self.sites[index(family)] = true;
        }
        let lock = if by_chance { Choice::FAMILY } else { lock(family, word)? };
        self.rules[self.rule_count].write(Rule { family, lock, place });
        self.rule_count += 1;
        Ok(())
    }

    fn module(&mut self, module: Module) -> Result<(), &'static str> {
        self.modules[self.module_count].write(module);
        self.module_count += 1;
        Ok(())
    }

    fn span(&self, text: &[u8]) -> Option<Span> {
        let (module, addresses) = split(text, b':')?;
        let (start, end) = split(addresses, b'-')?;
        let module = number(module, 10)? as usize;
        let addresses = number(start, 16)? as usize..number(end, 16)? as usize;
        (module < self.module_count).then_some(Span { module, addresses })
    }

    fn finish(self) -> &'static Locks {
        // SAFETY: the first so many elements have been written, and the pages stay mapped.
        unsafe {
            let modules: &'static [Module] =
                core::slice::from_raw_parts(self.modules.as_ptr().cast(), self.module_count);
            let rules = core::slice::from_raw_parts(self.rules.as_ptr().cast(), self.rule_count);
            let by_path = modules.iter().any(|module| matches!(module, Module::Paths(_)));
            let program = if by_path { program() } else { b"" };
            let locks = memory::map(size_of::<Locks>()).cast::<Locks>();
            locks.write(Locks { modules, rules, sites: self.sites, program });
            &*locks
        }
    }
}

/// The path of the program's file.
fn program() -> &'static [u8] {
    let path = memory::map(libc::PATH_MAX as usize);
    // SAFETY: there is room for so many bytes, in pages that stay mapped.
    unsafe {
        let length = memory::quietly(|| {
            libc::readlink(c"/proc/thread-self/exe".as_ptr(), path.cast(), libc::PATH_MAX as usize)
        });
        core::slice::from_raw_parts(path, usize::try_from(length).unwrap_or(0))
    }
}

fn index(family: Family) -> usize {
    usize::from(family == Family::RwLock)
}

fn split(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let position = text.iter().position(|byte| *byte == at)?;
    Some((&text[..position], &text[position + 1..]))
}

fn number(text: &[u8], radix: u32) -> Option<u64> {
    let digit = |number: u64, byte: &u8| {
        let digit = char::from(*byte).to_digit(radix)?;
        number.checked_mul(radix.into())?.checked_add(digit.into())
    };
    if text.is_empty() { None } else { text.iter().try_fold(0, digit) }
}

fn build_id(hex: &[u8]) -> Option<Module> {
    let mut bytes = [0; 32];
    let length = hex.len() / 2;
    if hex.is_empty() || !hex.len().is_multiple_of(2) || length > bytes.len() {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(hex.chunks(2)) {
        *byte = number(digits, 16)? as u8;
    }
    Some(Module::BuildId { bytes, length })
}

/// The lock of the family with this name.
fn lock(family: Family, name: &[u8]) -> Result<Choice, &'static str> {
    struct Named<'a> {
        family: Family,
        name: &'a [u8],
        seen: usize,
        found: Option<usize>,
    }
    impl Named<'_> {
        fn see(&mut self, family: Family, name: &str) {
            if self.family == family {
                if self.name == name.as_bytes() {
                    self.found = Some(self.seen);
                }
                self.seen += 1;
            }
        }
    }
    impl Visitor<Native> for Named<'_> {
        fn mutex<L: RawMutex<Machine = Native>>(&mut self) {
            self.see(Family::Mutex, L::INFO.name);
        }
        fn rwlock<R: RawRwLock<Machine = Native>>(&mut self) {
            self.see(Family::RwLock, R::INFO.name);
        }
    }
    if name == b"glibc" {
        return Ok(Choice::GLIBC);
    }
    let mut named = Named { family, name, seen: 0, found: None };
    visit(&mut named);
    let found = named.found.ok_or("there is no such lock that can be chosen for a single lock")?;
    Ok(Choice::registered(found))
}

/// How many locks of the family there are.
fn locks(family: Family) -> usize {
    struct Count([usize; 2]);
    impl Visitor<Native> for Count {
        fn mutex<L: RawMutex<Machine = Native>>(&mut self) {
            self.0[0] += 1;
        }
        fn rwlock<R: RawRwLock<Machine = Native>>(&mut self) {
            self.0[1] += 1;
        }
    }
    let mut count = Count([0; 2]);
    visit(&mut count);
    count.0[index(family)]
}

/// Where an object comes from: the modules and addresses of its stack, or its own.
struct Origin {
    is_static: bool,
    /// The number of the module, if a rule names it, and the address in its file.
    places: [(Option<usize>, usize); DEPTH],
    depth: usize,
}

/// The choice for an object.
fn choose(family: Family, address: usize) -> Choice {
    let locks = LOCKS.get();
    let mut origin = Origin { is_static: false, places: [(None, 0); DEPTH], depth: 0 };
    if let Some(module) = modules::of(address) {
        origin.is_static = true;
        origin.places[0] = locks.place(&module, address);
        origin.depth = 1;
    } else if locks.sites[index(family)] {
        locks.unwind(&mut origin);
    }
    let fits = |rule: &&Rule| {
        rule.family == family
            && match &rule.place {
                Where::Static(span) => origin.is_static && span.contains(origin.places[0]),
                Where::Site { spans, depth } => {
                    let frames = origin.places.iter().zip(spans);
                    !origin.is_static
                        && origin.depth >= *depth
                        && frames.take(*depth).all(|(place, span)| span.contains(*place))
                }
                Where::Anywhere | Where::Chance(..) => true,
            }
    };
    match locks.rules.iter().find(fits) {
        None => Choice::FAMILY,
        Some(Rule { place: Where::Chance(seed, glibc), .. }) => by_chance(*seed, *glibc, family, &origin),
        Some(rule) => rule.lock,
    }
}

/// A lock that depends on nothing but the seed and the site.
fn by_chance(seed: u64, glibc: bool, family: Family, origin: &Origin) -> Choice {
    let mut hash = seed ^ (origin.places[0].1 as u64) << 1 ^ index(family) as u64;
    for _ in 0..3 {
        hash = (hash ^ hash >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    let locks = locks(family);
    match (hash >> 33) as usize % (locks + usize::from(glibc)) {
        number if number == locks => Choice::GLIBC,
        number => Choice::registered(number),
    }
}

impl Span {
    fn contains(&self, (module, address): (Option<usize>, usize)) -> bool {
        module == Some(self.module) && self.addresses.contains(&address)
    }
}

impl Locks {
    /// An address as rules name it.
    fn place(&self, module: &modules::Object, address: usize) -> (Option<usize>, usize) {
        // SAFETY: the module has a lock that is in use, or code on this thread's stack, so it stays loaded.
        unsafe {
            let bias = module.bias();
            let id = modules::build_id(module, bias);
            let is = |known: &Module| match known {
                Module::BuildId { bytes, length } => id == Some(&bytes[..*length]),
                Module::Paths(paths) => {
                    let name = module.name();
                    let name = if name.is_empty() { self.program } else { name };
                    paths.split(|byte| *byte == b' ').any(|path| is_path(path, name))
                }
            };
            (self.modules.iter().position(is), address.wrapping_sub(bias))
        }
    }

    /// The frames of the calling thread above this library.
    #[inline(never)]
    fn unwind(&self, origin: &mut Origin) {
        let Some(registers) = unwind::Registers::here() else { return };
        let mut window = unwind::Window::EMPTY;
        unwind::each(&registers, &mut window, |_, address, ours| {
            if ours && origin.depth == 0 {
                return true;
            }
            let call = address - 1;
            let place = modules::of(call).map_or((None, call), |module| self.place(&module, call));
            origin.places[origin.depth] = place;
            origin.depth += 1;
            origin.depth < DEPTH
        });
    }
}

/// Whether a path is the one that is written down with `%XX` for some bytes.
fn is_path(mut written: &[u8], path: &[u8]) -> bool {
    for byte in path {
        let expected = match written {
            [b'%', high, low, rest @ ..] => {
                written = rest;
                number(&[*high, *low], 16)
            }
            [one, rest @ ..] => {
                written = rest;
                Some(u64::from(*one))
            }
            [] => None,
        };
        if expected != Some(u64::from(*byte)) {
            return false;
        }
    }
    written.is_empty()
}
