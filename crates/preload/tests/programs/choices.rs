//! A lock per lock: `LATCHWORK_LOCKS`.

use super::*;

/// The program with a build id of our choice, and where its symbols are.
fn program(name: &str, linker: &[&str]) -> Option<(PathBuf, impl Fn(&str) -> (u64, u64))> {
    let mut more = vec![OsStr::new("-Wl,--build-id=0x1a7c4204c401ce")];
    more.extend(linker.iter().map(OsStr::new));
    let program = compile("choices.c", name, &more)?;
    let listing =
        Command::new("nm").arg("--print-size").arg(&program).output().expect("nm comes with the compiler");
    let listing = String::from_utf8(listing.stdout).unwrap();
    let span = move |symbol: &str| {
        let line = listing.lines().find(|line| line.split(' ').next_back() == Some(symbol)).expect(symbol);
        let mut numbers = line.split(' ').map(|word| u64::from_str_radix(word, 16));
        let (start, size) = (numbers.next().unwrap().unwrap(), numbers.next().unwrap().unwrap());
        (start, start + size)
    };
    Some((program, span))
}

const BUILD_ID: &str = "B1a7c4204c401ce";

/// The statistics of the parent, in which the child does not report: it ends by `_exit`.
fn chosen(setting: &Setting, program: &Path) -> String {
    let file = scratch().join(format!("choices-{}.json", program.file_name().unwrap().display()));
    let _ = fs::remove_file(&file);
    let counted = Setting { stats: Some(format!("json:{}", file.display())), ..setting.clone() };
    counted.check(program);
    fs::read_to_string(file).unwrap()
}

#[test]
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
fn each_class_gets_its_lock() {
    for (name, linker) in [("choices", &[][..]), ("choices_gaps", &GAPS)] {
        let Some((program, span)) = program(name, linker) else { return };
        check_each_class(&program, span);
    }
}

fn check_each_class(program: &Path, span: impl Fn(&str) -> (u64, u64)) {
    let at = |symbol: &str| {
        let (start, end) = span(symbol);
        format!("0:{start:x}-{end:x}")
    };
    let rules = [
        BUILD_ID.to_owned(),
        format!("m@ticket {}", at("static_mutex")),
        format!("m@glibc {}", at("static_table")),
        format!("m@mcs {}", at("static_recursive")),
        format!("m<hmcs {}", at("make_queue")),
        format!("m<hybrid {}", at("make_checking")),
        format!("m<mcs-tp {}", at("use_first")),
        format!("r<pf-q {} {}", at("wrapped_init"), at("make_cache")),
        format!("r<glibc {} {}", at("wrapped_init"), at("make_index")),
        format!("r@rwsem {}", at("static_rwlock")),
    ];
    let setting = Setting { locks: Some(rules.join(";")), ..Setting::new("shfl", "bravo-2d-shfl-rw") };
    setting.check(program);
    let json = chosen(&setting, program);
    // In the order of the registry. Each static mutex is one object; 3 are of `static_table`.
    let mutexes = "\"chosen\":{\"ticket\":1,\"mcs\":1,\"mcs-tp\":3,\"hmcs\":3,\"hybrid\":1,\"glibc\":3}";
    assert!(json.contains(mutexes), "{json}");
    assert!(json.contains("\"chosen\":{\"pf-q\":1,\"rwsem\":1,\"glibc\":1}"), "{json}");
    // The observers work over it.
    let recorded = Setting { profiled: true, ..setting.clone() };
    recorded.check(program);
    let mut checked = setting.command(program);
    let output = watch(checked.env("LATCHWORK_CHECK", "1"), "choices, checked");
    // The program locks a mutex that checks for errors twice, and unlocks it without holding it: no mistake, its kind asks for it.
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "ok\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );

    // Rules for another build do not fit, and the last entry serves what no other fits.
    let others = rules[1..].iter().cloned();
    let stale: Vec<String> =
        ["Bffff".to_owned()].into_iter().chain(others).chain(["m*glibc".to_owned()]).collect();
    let json = chosen(&Setting { locks: Some(stale.join(";")), ..setting.clone() }, program);
    assert!(json.contains("\"chosen\":{\"glibc\":12}"), "{json}");

    // A module without a build id is found by its path.
    let path = program.to_str().unwrap().replace("choices", "%63hoices");
    let by_path = format!("P{path};m@twa {};m*glibc", at("static_mutex"));
    let json = chosen(&Setting { locks: Some(by_path), ..setting }, program);
    assert!(json.contains("\"chosen\":{\"twa\":1,\"glibc\":11}"), "{json}");
}

#[test]
fn locks_that_are_not_understood_are_refused_before_main() {
    let Some(program) = compile("mutex.c", "refused_locks", &[]) else { return };
    for (mutex, locks, why) in [
        ("shfl", "m@nope 0:1-2", "a module that stands before it"),
        ("shfl", "B12;m@nope 0:1-2", "no such lock"),
        ("shfl", "B12;m@mcs", "no such entry"),
        ("shfl", "B123", "a build id"),
        ("shfl", "x", "no such entry"),
        ("shfl", "m<mcs", "no such entry"),
        ("shfl", "r*rwsem", "LATCHWORK_RWLOCK must name a lock"),
        ("glibc", "m*mcs", "LATCHWORK_MUTEX must name a lock"),
    ] {
        let output = Setting { locks: Some(locks.into()), ..Setting::new(mutex, "glibc") }.run(&program);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(127), "{locks}: {stderr}");
        assert!(stderr.contains(why) && stderr.lines().count() == 1, "{locks}: {stderr}");
    }
}

/// The programs, with a lock by chance for each class of their locks. `LATCHWORK_TEST_CHOICES=N` tries N seeds from the first
/// on; without it there are few.
#[test]
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
fn a_lock_by_chance_for_each_class() {
    let seeds =
        env::var("LATCHWORK_TEST_CHOICES").map_or(1, |seeds| seeds.parse().expect("a number of seeds"));
    // What the others expect of this library's locks, glibc's do not do: the child of a fork can use them, for example,
    // and a thread may release what another has written under.
    let with_glibc = ["mutex.c", "cond.c", "foreign.c", "c11.c", "cpp.cpp", "choices.c"];
    let without = ["rwlock.c", "cancel.c", "fork.c", "bypass.c"];
    let programs =
        with_glibc.map(|source| (source, '?')).into_iter().chain(without.map(|source| (source, '!')));
    for (source, set) in programs {
        let name = format!("by_chance_{}", source.replace('.', "_"));
        let Some(program) = compile(source, &name, &[]) else { return };
        for seed in 1..=seeds {
            let locks = Some(format!("m{set}{seed};r{set}{seed}"));
            Setting { locks, ..Setting::new("shfl", "bravo-2d-shfl-rw") }.check(&program);
        }
    }
}
