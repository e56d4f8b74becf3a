#!/usr/bin/env bash
# Builds the preload library for AArch64, and runs C programs of its tests under it in QEMU's user mode, on any machine.
#
# An emulator on x86-64 shows that the code does what it should. It does not show weak orders: it runs a translation for a processor
# that keeps nearly all orders. Those are what loom checks.
#
#     scripts/aarch64.sh [--no-install]
#
# It needs Debian's packages gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user, which root installs without --no-install, and
# Rust's standard library for aarch64-unknown-linux-gnu. Exit status 2: something of that is missing.
set -euo pipefail
script=$(readlink -f "${BASH_SOURCE[0]}")
root=$(dirname "$script")/..
cd "$root"
# shellcheck source=scripts/kernel/common.sh
. scripts/kernel/common.sh

install=1
case ${1:-} in
'') ;;
--no-install) install=0 ;;
*) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$script"; [[ $1 == --help || $1 == -h ]] && exit 0; exit 2 ;;
esac

target=aarch64-unknown-linux-gnu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
log=$work/log
install_packages "$install" gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
[[ -d $(rustc --print target-libdir --target $target) ]] ||
    fail "Rust's standard library for $target is missing: rustup target add $target"

step "building the library"
directory=$(target_directory)
CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc CARGO_PROFILE_RELEASE_OPT_LEVEL=1 \
    CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 cargo build --quiet --release -p latchwork-preload --target $target
library=$directory/$target/release/liblatchwork_preload.so

# emulate PROGRAM [NAME=VALUE]..: runs it, with these variables in its environment.
emulate() {
    local settings=() value
    for value in "${@:2}"; do settings+=(-E "$value"); done
    timeout 120 qemu-aarch64 -L /usr/aarch64-linux-gnu "${settings[@]}" "$1"
}

results=0 failed=0
# report STATUS WHAT: 0 is a check that passed.
report() {
    results=$((results + 1))
    if (($1 == 0)); then
        echo "ok $results - $2"
    else
        echo "not ok $results - $2"
        failed=$((failed + 1))
    fi
}

# QEMU 7.2 itself fails in a child of a process with several threads, so the programs that fork are left out.
programs=(mutex cond rwlock spin c11 sem threads cancel bypass)
for name in "${programs[@]}"; do
    program=$work/$name
    aarch64-linux-gnu-gcc -O2 -pthread -std=gnu11 -o "$program" "crates/preload/tests/programs/$name.c"
    for locks in "shfl bravo-2d-shfl-rw" "ttas shfl-rw" "mcs-park rwsem"; do
        read -r mutex rwlock <<<"$locks"
        status=0
        emulate "$program" "LD_PRELOAD=$library" "LATCHWORK_MUTEX=$mutex" "LATCHWORK_RWLOCK=$rwlock" LATCHWORK_STATS=1 \
            >"$work/output" 2>"$work/errors" || status=1
        # The statistics name the locks: the library was loaded, with these.
        grep -q "^ok" "$work/output" || status=1
        grep -q "mutex ($mutex)" "$work/errors" && grep -q "rwlock ($rwlock)" "$work/errors" || status=1
        report $status "$name.c under $mutex and $rwlock"
        ((status == 0)) || sed 's/^/# /' "$work/output" "$work/errors"
    done
done

# The harness must notice a library that does not serve.
status=0
emulate "$work/mutex" "LD_PRELOAD=$library" LATCHWORK_MUTEX=no-such-lock >"$work/output" 2>&1 && status=1
report $status "a lock that does not exist is refused"

echo "1..$results"
((failed == 0)) || { echo "# $failed of $results checks failed"; exit 1; }
