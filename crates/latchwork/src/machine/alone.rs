//! Tests that must not share their process with others.

/// Runs a test of this crate, with this body, in a process of its own.
pub(crate) fn alone(test: &str, body: impl FnOnce()) {
    const VARIABLE: &str = "LATCHWORK_TEST_ALONE";
    if std::env::var_os(VARIABLE).is_some() {
        return body();
    }
    let (succeeded, said) = in_a_process(test, VARIABLE, "1");
    assert!(succeeded && said.contains("1 passed"), "{said}");
}

/// Runs a test of this crate in a process of its own, with this value of a variable. Returns whether it succeeded, and what it
/// printed.
pub(crate) fn in_a_process(test: &str, variable: &str, value: &str) -> (bool, std::string::String) {
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture"]);
    let output = child.env(variable, value).env("RUST_BACKTRACE", "0").output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), std::string::String::from_utf8_lossy(&text).into_owned())
}

/// Refuses the calling thread, and no other, a system call (EPERM); or only with this second argument.
pub(crate) fn refuse(call: libc::c_long, second: Option<u32>) {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    // Where `struct seccomp_data` has the number of the call, and the lower half of its second argument.
    let (number, argument) = (0, 16 + 8);
    let mut program = [
        step(LOAD, number, 0, 0),
        step(JUMP_IF_EQUAL, call as u32, 0, 3),
        step(LOAD, argument, 0, 0),
        step(JUMP_IF_EQUAL, second.unwrap_or(0), 0, u8::from(second.is_some())),
        step(RETURN, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0, 0),
        step(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the program is valid for the calls.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program), 0);
    }
}
