//! What is installed: names, sections, files.

use super::*;

fn readelf(arguments: &[&str]) -> String {
    run(Command::new("readelf").args(arguments).arg("--wide").arg(prefix().join("lib/liblatchwork.so")))
}

#[test]
fn the_shared_library_exports_the_names_of_the_list_and_no_others() {
    let names = run(Command::new("nm")
        .args(["--dynamic", "--defined-only", "--with-symbol-versions"])
        .arg(prefix().join("lib/liblatchwork.so")));
    let series = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));
    let mut exported = BTreeSet::new();
    for name in names.lines().filter_map(|line| line.split_whitespace().nth(2)) {
        let (name, version) = name.split_once('@').unwrap_or((name, ""));
        let version = version.trim_start_matches('@');
        if name.starts_with("LATCHWORK_") {
            continue; // the version itself
        }
        assert_eq!(version, format!("LATCHWORK_{series}"), "{name}");
        exported.insert(name.to_owned());
    }
    let list = fs::read_to_string(manifest().join("exports")).unwrap();
    let expected: BTreeSet<_> = list.lines().map(str::to_owned).collect();
    assert_eq!(exported, expected, "exports must list what src defines for C, and nothing else");
    assert!(list.lines().is_sorted(), "the list is sorted");
}

/// The list has each name that a header declares, and the archive has no other global name.
#[test]
fn the_archive_defines_the_names_of_the_list_and_no_others() {
    let names = run(Command::new("nm")
        .args(["--extern-only", "--defined-only", "--no-sort"])
        .arg(prefix().join("lib/liblatchwork.a")));
    let defined: BTreeSet<_> =
        names.lines().filter_map(|line| line.split_whitespace().nth(2)).map(str::to_owned).collect();
    let list = fs::read_to_string(manifest().join("exports")).unwrap();
    assert_eq!(defined, list.lines().map(str::to_owned).collect());
}

#[test]
fn the_shared_library_is_as_a_library_should_be() {
    let dynamic = readelf(&["--dynamic"]);
    // Before 1.0, minor versions do not go together.
    let (major, minor) = (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
    let series = if major == "0" { format!("0.{minor}") } else { major.to_owned() };
    assert!(dynamic.contains(&format!("[liblatchwork.so.{series}]")), "{dynamic}");
    assert!(prefix().join(format!("lib/liblatchwork.so.{series}")).exists());
    assert!(!dynamic.contains("TEXTREL"), "{dynamic}");
    assert!(dynamic.contains("BIND_NOW") && dynamic.contains("STATIC_TLS"), "{dynamic}");
    for needed in dynamic.lines().filter(|line| line.contains("(NEEDED)")) {
        let known = ["libc.so.6", "libgcc_s.so.1", "ld-linux"];
        assert!(known.iter().any(|library| needed.contains(library)), "{needed}");
    }
    // The words of a thread are reached without a call.
    let words: Vec<_> =
        readelf(&["--relocs"]).lines().filter(|line| line.contains("lw_thread")).map(str::to_owned).collect();
    let model = if cfg!(target_arch = "x86_64") { "TPOFF64" } else { "TPREL" };
    assert!(!words.is_empty() && words.iter().all(|line| line.contains(model)), "{words:?}");
    let stack = readelf(&["--program-headers"]);
    let stack = stack.lines().find(|line| line.contains("GNU_STACK")).expect("the header is there");
    assert!(!stack.contains("RWE"), "an executable stack: {stack}");
}

/// Sizes and offsets of the types of C are those of the last release.
#[test]
fn the_layout_is_the_one_that_is_written_down() {
    if !is_there("gcc") {
        return;
    }
    let program =
        Build { compiler: "gcc", standard: "c11", source: "layout.c", link: Link::Shared, more: &[] }.build();
    let now = run_program(&program, &[]);
    let path = manifest().join("layout");
    if env::var_os("LATCHWORK_WRITE_DOCS").is_some() {
        fs::write(&path, &now).unwrap();
    }
    let before = fs::read_to_string(path).unwrap_or_default();
    assert_eq!(
        now, before,
        "a changed layout breaks programs: LATCHWORK_WRITE_DOCS=1 writes it down, for a new soname"
    );
}

#[test]
fn cmake_finds_both_libraries() {
    if !is_there("cmake") {
        return;
    }
    let build = cmake("cmake-build", &[]);
    for program in ["shared-c", "static-c", "shared-cpp", "static-cpp"] {
        run_program(&build.join(program), &[]);
    }
    // For plug-ins that are linked with the shared library.
    let names = run(Command::new("nm").args(["--dynamic", "--defined-only"]).arg(build.join("static-c")));
    assert!(names.contains(" lw_rcu_synchronize\n"), "{names}");
}

/// A range of versions is what the program asks for: it may end before this version, or begin at one that breaks programs of this one.
#[test]
fn cmake_finds_the_versions_that_a_program_asks_for() {
    if !is_there("cmake") {
        return;
    }
    let (major, minor) = (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
    let this = format!("{major}.{minor}");
    let next = format!("{major}.{}", minor.parse::<u32>().unwrap() + 1);
    let asked = [
        (format!("{this} EXACT"), true),
        (format!("{this}...<{next}"), true),
        (format!("0.0.1...{next}"), true),
        (next.clone(), false),
        ("0.0.1".into(), false),
        (format!("0...<{this}"), false),
        (format!("{next}...9"), false),
    ];
    let mut text = "cmake_minimum_required(VERSION 3.19)\nproject(asks NONE)\n".to_owned();
    let mut expected = String::new();
    for (version, is_found) in asked {
        text += &format!(
            "find_package(latchwork {version} QUIET)\nmessage(\"{version}: ${{latchwork_FOUND}}\")\n"
        );
        expected += &format!("{version}: {}\n", u8::from(is_found));
    }
    let project = scratch().join("versions");
    let _ = fs::remove_dir_all(&project);
    fs::create_dir(&project).unwrap();
    fs::write(project.join("CMakeLists.txt"), text).unwrap();
    let prefix = format!("-DCMAKE_PREFIX_PATH={}", prefix().display());
    let said =
        run(Command::new("cmake").arg(prefix).arg("-B").arg(project.join("build")).arg("-S").arg(&project));
    let found: String = said
        .lines()
        .filter(|line| line.ends_with(": 0") || line.ends_with(": 1"))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(found, expected, "{said}");
}

/// CMake says so when it configures, before the linker would.
#[test]
fn cmake_finds_nothing_for_components_and_for_32_bits() {
    if !is_there("cmake") {
        return;
    }
    let configure = |name: &str, lines: &str| {
        let project = scratch().join(name);
        let _ = fs::remove_dir_all(&project);
        fs::create_dir(&project).unwrap();
        let text = format!("cmake_minimum_required(VERSION 3.19)\nproject(asks NONE)\n{lines}\n");
        fs::write(project.join("CMakeLists.txt"), text).unwrap();
        let prefix = format!("-DCMAKE_PREFIX_PATH={}", prefix().display());
        let mut cmake = Command::new("cmake");
        let result = output(cmake.arg(prefix).arg("-B").arg(project.join("build")).arg("-S").arg(&project));
        // CMake breaks the lines of a message.
        let said = String::from_utf8_lossy(&result.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        (result.status.success(), said)
    };
    for (name, lines, message) in [
        (
            "components",
            "find_package(latchwork REQUIRED COMPONENTS rcu)",
            "has no components, and so not rcu",
        ),
        ("bits", "set(CMAKE_SIZEOF_VOID_P 4)\nfind_package(latchwork REQUIRED)", "(64-bit)"),
    ] {
        let (found, said) = configure(name, lines);
        assert!(!found && said.contains(message), "{name}: {said}");
    }
    let (found, said) = configure("optional", "find_package(latchwork REQUIRED OPTIONAL_COMPONENTS rcu)");
    assert!(found, "{said}");
}

/// A project that has the sources inside builds the library with them, for each of both targets.
#[test]
fn cmake_builds_the_library_as_a_part_of_another_project() {
    if !is_there("cmake") {
        return;
    }
    let project = scratch().join("inside");
    let _ = fs::remove_dir_all(&project);
    fs::create_dir(&project).unwrap();
    let programs = manifest().join("tests/programs/cmake");
    let text = format!(
        "cmake_minimum_required(VERSION 3.16)
project(has_latchwork_inside C CXX)
set(CMAKE_CXX_STANDARD 17)
add_subdirectory({} latchwork)
foreach(kind latchwork static)
  add_executable(${{kind}}-c {programs}/main.c)
  add_executable(${{kind}}-cpp {programs}/main.cpp)
  target_link_libraries(${{kind}}-c PRIVATE latchwork::${{kind}})
  target_link_libraries(${{kind}}-cpp PRIVATE latchwork::${{kind}})
endforeach()
",
        manifest().join("../..").display(),
        programs = programs.display(),
    );
    fs::write(project.join("CMakeLists.txt"), text).unwrap();
    let build = project.join("build");
    // What cargo has built for the other tests serves here too, and cargo's own environment must not.
    let cmake = |more: &[&OsStr]| {
        let mut command = Command::new("cmake");
        command.env("CARGO_TARGET_DIR", scratch().join("library")).env_remove("RUSTC_WORKSPACE_WRAPPER");
        run(command.args(more));
    };
    cmake(&["-S".as_ref(), project.as_os_str(), "-B".as_ref(), build.as_os_str()]);
    cmake(&["--build".as_ref(), build.as_os_str(), "--parallel".as_ref(), "2".as_ref()]);
    for program in ["latchwork-c", "latchwork-cpp", "static-c", "static-cpp"] {
        run_program(&build.join(program), &[]);
    }
}

/// The files for pkg-config and CMake name nothing of the directory that it was installed in.
#[test]
fn an_installation_can_be_moved() {
    let moved = scratch().join("moved");
    let _ = fs::remove_dir_all(&moved);
    run(Command::new("cp").arg("-a").arg(prefix()).arg(&moved));
    // A link leads to CMake's file, as /lib does to /usr/lib.
    let linked = scratch().join("linked");
    let _ = fs::remove_dir_all(&linked);
    fs::create_dir(&linked).unwrap();
    std::os::unix::fs::symlink(moved.join("lib"), linked.join("lib")).unwrap();
    if let Some(words) = pkg_config_in(&moved, &["--static", "--cflags", "--libs"]) {
        let paths = words.iter().filter_map(|word| Some(&word[word.find('/')?..]));
        let paths: Vec<PathBuf> = paths.map(|path| fs::canonicalize(path).expect(path)).collect();
        assert!(paths.len() == 3 && paths.iter().all(|path| path.starts_with(&moved)), "{words:?}");
    }
    if is_there("cmake") {
        for found in [&moved, &linked] {
            let build = cmake("cmake-moved", &[&format!("-DCMAKE_PREFIX_PATH={}", found.display())]);
            for program in ["shared-c", "static-c"] {
                run_program(&build.join(program), &[]);
            }
            let files = run(Command::new("grep")
                .args(["-rhoE", "-e", "-I[^ ]+|-isystem [^ ]+|[^ ]+/liblatchwork[.]so[.0-9]*"])
                .arg(&build));
            assert!(
                files.contains("/moved/include") && !files.contains(prefix().to_str().unwrap()),
                "{files}"
            );
        }
    }
}

/// Two shared libraries of a process have one registry: a reader in one library holds up grace periods in the other. Both may
/// be linked with the shared library, or each with the archive. A program that is linked with the archive has one registry with a
/// plug-in that is linked with the shared library. What would have the variables of one copy and the functions of another one ends.
#[test]
fn two_libraries_have_one_registry() {
    if !is_there("gcc") {
        return;
    }
    let compile = |name: &str, more: &[&str]| {
        let file = scratch().join(name);
        let lib = prefix().join("lib");
        run(Command::new("gcc")
            .args(["-std=c11", "-O2", "-D_GNU_SOURCE", "-pthread", "-I"])
            .arg(prefix().join("include"))
            .arg(manifest().join("tests/programs/registry.c"))
            .arg("-o")
            .arg(&file)
            .arg("-L")
            .arg(&lib)
            .arg("-L")
            .arg(scratch())
            .args(more)
            .arg(format!("-Wl,-rpath,{}:{}", lib.display(), scratch().display())));
        file
    };
    let archive = "-l:liblatchwork.a";
    for (kind, library, more) in [
        ("shared", "-llatchwork", "-O2"),
        ("static", archive, "-O2"),
        ("bound", archive, "-Wl,-Bsymbolic-functions"),
    ] {
        for part in ["READER", "UPDATER"] {
            let define = format!("-D{part}");
            let name = format!("liblwtest-{part}-{kind}.so");
            compile(&name, &["-fPIC", "-shared", &define, library, "-lgcc_s", "-lm", more]);
        }
        let [reader, updater] = ["READER", "UPDATER"].map(|part| format!("-l:liblwtest-{part}-{kind}.so"));
        let program = compile(&format!("registry-{kind}"), &["-DMAIN", &reader, &updater]);
        if kind == "bound" {
            let ended = output(&mut Command::new(program));
            let said = String::from_utf8_lossy(&ended.stderr);
            assert!(ended.status.signal() == Some(6) && said.contains("liblatchwork.so"), "{ended:?}");
        } else {
            run_program(&program, &[]);
        }
    }
    let plugin = scratch().join("liblwtest-UPDATER-shared.so");
    let more = &["-DMAIN", "-DREADER", "-DPLUGIN"];
    // Also in a program of which the linker drops what it does not use.
    for more in [&more[..], &[&more[..], &["-Wl,--gc-sections"]].concat()] {
        let program =
            Build { compiler: "gcc", standard: "c11", source: "registry.c", link: Link::Static, more };
        run_program(&program.build(), &[("PLUGIN", plugin.as_os_str())]);
    }
}

#[test]
fn an_installation_can_be_removed() {
    let root = scratch().join("destdir");
    let _ = fs::remove_dir_all(&root);
    let more = ["--library-only", "--libdir", "/usr/lib/here", "--destdir", "destdir"];
    install(Path::new("/usr"), &more);
    let config = fs::read_to_string(root.join("usr/lib/here/pkgconfig/latchwork.pc")).unwrap();
    assert!(config.contains("prefix=/usr\n") && config.contains("libdir=/usr/lib/here\n"), "{config}");
    assert!(config.contains("\nLibs.private: -l"), "{config}");
    for file in ["include/latchwork/mutex.h", "share/doc/latchwork/LICENSE-MIT"] {
        assert!(root.join("usr").join(file).exists(), "{file}");
    }
    let linked = fs::read_to_string(root.join("usr/share/doc/latchwork/THIRD-PARTY")).unwrap();
    assert!(linked.contains("\nlock_api v") && !linked.contains("\nclap v"), "{linked}");
    assert!(
        linked.contains("\n==== lock_api ") && linked.contains("Permission is hereby granted"),
        "{linked}"
    );
    // As if an installation before this one had put a command there, and a library of another version.
    let manifest = root.join("usr/lib/here/latchwork/manifest");
    let mut entries = fs::read_to_string(&manifest).unwrap();
    fs::create_dir(root.join("usr/bin")).unwrap();
    for file in ["/usr/bin/latchwork", "/usr/lib/here/liblatchwork.so.0.0.1"] {
        fs::write(root.join(&file[1..]), "").unwrap();
        entries += &format!("{file}\n");
    }
    fs::write(&manifest, entries + "/usr/bin/\n").unwrap();
    install(Path::new("/usr"), &more);
    let mut uninstall = more.to_vec();
    uninstall[0] = "--uninstall";
    install(Path::new("/usr"), &uninstall);
    assert!(!root.join("usr").exists(), "{}", run(Command::new("find").arg(&root)));
}

#[test]
fn a_directory_that_the_installed_files_cannot_name_is_refused() {
    for directory in ["relative", "/tmp/a&b", "/tmp/a b", "/tmp/a|b"] {
        for option in ["--prefix", "--libdir"] {
            let mut install = Command::new(manifest().join("../../scripts/install.sh"));
            let result = output(install.args(["--uninstall", option, directory]));
            let said = String::from_utf8_lossy(&result.stderr);
            assert!(result.status.code() == Some(2) && said.contains(directory), "{directory}: {said}");
            // The other way to write it.
            let mut install = Command::new(manifest().join("../../scripts/install.sh"));
            let again = output(install.args(["--uninstall", &format!("{option}={directory}")]));
            assert_eq!(again.stderr, result.stderr);
        }
    }
}

/// A new version changes these files by hand: the test names those that were forgotten.
#[test]
fn every_file_that_names_the_version_names_this_one() {
    let version = env!("CARGO_PKG_VERSION");
    let (major, minor) = (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
    let series = if major == "0" { format!("0.{minor}") } else { major.to_owned() };
    let read = |file: &str| fs::read_to_string(manifest().join("../..").join(file)).unwrap();
    let header = "crates/capi/include/latchwork/base.h";
    let mut wrong = Vec::new();
    for (file, text) in [
        (header, format!("#define LW_VERSION \"{version}\"\n")),
        (header, format!("#define LW_VERSION_MAJOR {major}\n")),
        (header, format!("#define LW_VERSION_MINOR {minor}\n")),
        (header, format!("The version of the library: \"{version}\".")),
        ("crates/capi/tests/programs/cmake/CMakeLists.txt", format!("(latchwork {major}.{minor} REQUIRED)")),
        (
            "crates/cli/Cargo.toml",
            format!("\nlatchwork-preload = {{ path = \"../preload\", version = \"{version}\" }}"),
        ),
        // scripts/kernel.sh builds with --locked.
        ("crates/kernel/Cargo.lock", format!("name = \"latchwork\"\nversion = \"{version}\"\n")),
        ("debian/changelog", format!("latchwork ({version}) ")),
        ("debian/control", format!("\nPackage: liblatchwork{series}\n")),
        ("debian/rules", format!("'liblatchwork.so.{series} liblatchwork{series} ")),
        ("debian/rules", format!("@LATCHWORK_{major}.{minor} ")),
        ("docs/c.md", format!("(latchwork {major}.{minor} REQUIRED)")),
        ("scripts/deb.sh", format!(" liblatchwork{series} liblatchwork-dev latchwork;")),
    ] {
        if !read(file).contains(&text) {
            wrong.push(format!("{file} has no {text:?}"));
        }
    }
    let dependency = format!("version = \"{version}\"");
    let workspace = read("Cargo.toml");
    for line in workspace.lines().filter(|line| line.starts_with("latchwork") && line.contains("version")) {
        if !line.contains(&dependency) {
            wrong.push(format!("Cargo.toml: {line}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The script says so before minutes of compiling, with the commands that work.
#[test]
fn a_directory_that_cannot_be_written_is_refused_at_once() {
    // Not even root can make a directory below a file.
    let file = scratch().join("file");
    fs::write(&file, "").unwrap();
    let mut install = Command::new(manifest().join("../../scripts/install.sh"));
    let result = output(install.arg("--prefix").arg(file.join("prefix")));
    let said = String::from_utf8_lossy(&result.stderr);
    assert!(result.status.code() == Some(2) && said.contains("--destdir"), "{said}");
}

/// The exit of a thread that has used the library does not call it once it is unloaded.
#[test]
fn a_thread_survives_the_library_that_it_has_used() {
    let library = prefix().join("lib/liblatchwork.so");
    let path = std::ffi::CString::new(library.into_os_string().into_encoded_bytes()).unwrap();
    let used = thread::spawn(move || {
        // SAFETY: a null domain is the process's own. After `dlclose` nothing of the library is used.
        unsafe {
            let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
            assert!(!handle.is_null(), "{path:?} is there");
            let read = libc::dlsym(handle, c"lw_rwlock_rdlock_slow".as_ptr());
            let read: extern "C" fn(*mut u64) = std::mem::transmute(read);
            let lock: &'static mut [u64] = Box::leak(Box::new([0; 64]));
            read(lock.as_mut_ptr());
            assert_eq!(libc::dlclose(handle), 0);
            libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD).is_null()
        }
    });
    assert!(used.join().unwrap(), "it is not loaded any more");
}
