//! A shared object with this crate in it is unloaded while a thread lives that has used it.

use std::ffi::{CString, c_void};
use std::fs::DirEntry;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

/// Compiles the plugin with the crate as cargo has built it for these tests: any of its builds will do.
fn plugin() -> CString {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap();
    let name = |entry: &DirEntry| entry.file_name().into_string().unwrap_or_default();
    let is_crate = |name: String| name.starts_with("liblatchwork-") && name.ends_with(".rlib");
    let builds = std::fs::read_dir(folder).unwrap().flatten().filter(|entry| is_crate(name(entry)));
    let newest = builds.max_by_key(|entry| entry.metadata().unwrap().modified().unwrap());
    let plugin = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libplugin.so");
    let mut rustc = Command::new(Path::new(env!("CARGO")).with_file_name("rustc"));
    rustc.args(["--edition", "2024", "--crate-type", "cdylib", "--extern"]);
    rustc.arg(format!("latchwork={}", newest.expect("the tests are linked with it").path().display()));
    rustc.arg("-L").arg(format!("dependency={}", folder.display())).arg("-o").arg(&plugin);
    rustc.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/unload/plugin.rs"));
    let output = rustc.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    CString::new(plugin.as_os_str().as_bytes()).unwrap()
}

/// The thread's exit would call unmapped code, and the process would crash.
#[test]
fn a_thread_survives_the_plugin_that_it_has_used() {
    let used = std::thread::spawn(|| {
        let path = plugin();
        let open = |more| -> *mut c_void {
            // SAFETY: the plugin's initialisers are those of Rust's library.
            unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | more) }
        };
        let handle = open(0);
        assert!(!handle.is_null(), "{path:?} is there");
        // SAFETY: the symbol is a function of this type; after `dlclose` nothing of the plugin is used.
        let counts = unsafe {
            let symbol = libc::dlsym(handle, c"plugin_count".as_ptr());
            let count = std::mem::transmute::<*mut c_void, extern "C" fn() -> u64>(symbol);
            let counts = [count(), count()];
            assert_eq!(libc::dlclose(handle), 0);
            counts
        };
        assert!(open(libc::RTLD_NOLOAD).is_null(), "it is not loaded any more");
        counts
    });
    assert_eq!(used.join().unwrap(), [1, 2]);
}
