//! Programs and systems that a preloaded library gets on with badly: raised privileges, all thread-specific keys
//! taken, sanitizers, filters of system calls, libraries that bind past it, profilers.

use super::*;

/// A path that leads elsewhere may be another user's trap: statistics follow no symbolic link.
#[test]
fn statistics_follow_no_link() {
    let Some(program) = compile("foreign.c", "statistics_link", &[]) else { return };
    let (file, link) = (scratch().join("statistics-target"), scratch().join("statistics-link"));
    for path in [&file, &link] {
        let _ = fs::remove_file(path);
    }
    fs::write(&file, "").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let mut setting = Setting::new(default_mutex(), "glibc");
    setting.stats = Some(format!("json:{}", link.display()));
    let stderr = String::from_utf8(setting.check(&program).stderr).unwrap();
    assert!(stderr.contains("statistics-link") && stderr.contains("symbolic link"), "{stderr}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "");
}

/// A program with raised privileges (set-group-id here) does nothing that the caller's environment asks for.
#[test]
fn privileged_programs_ignore_the_environment() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    let directory = library().parent().unwrap().display().to_string();
    let link = [format!("-L{directory}"), format!("-Wl,-rpath,{directory},--no-as-needed")];
    let link = [link[0].as_ref(), link[1].as_ref(), "-llatchwork_preload".as_ref()];
    let Some(program) = compile("secure.c", "secure", &link) else { return };
    let mut groups = [0; 64];
    // SAFETY: room for as many numbers as are asked for.
    let count = unsafe { libc::getgroups(64, groups.as_mut_ptr()) };
    let own = fs::metadata(&program).unwrap().gid();
    let groups = groups.into_iter().take(usize::try_from(count).unwrap_or(0)).chain([65534]);
    let other =
        groups.filter(|group| *group != own).find(|group| chown(&program, None, Some(*group)).is_ok());
    fs::set_permissions(&program, fs::Permissions::from_mode(0o2755)).unwrap();
    let file = scratch().join("secure.json");
    let _ = fs::remove_file(&file);
    let mut command = Command::new(&program);
    command.env("LATCHWORK_STATS", format!("json:{}", file.display()));
    let run = |command: Command| {
        let output = watch(command, "a set-group-id program");
        let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.code(), stdout, stderr)
    };
    command.env("LATCHWORK_MUTEX", "shfl");
    let (status, stdout, stderr) = run(command);
    if stdout == "insecure\n" {
        eprintln!(
            "SKIPPED: no other group for the program ({other:?}), or its file system is mounted nosuid"
        );
        return;
    }
    assert_eq!((status, stdout.as_str(), stderr.as_str()), (Some(0), "ok\n", ""));
    assert!(!file.exists(), "a privileged program wrote the caller's file");
    let mut command = Command::new(&program);
    command.env("LATCHWORK_MUTEX", "no-such-lock");
    assert_eq!(run(command), (Some(0), "ok\n".into(), String::new()));
}
