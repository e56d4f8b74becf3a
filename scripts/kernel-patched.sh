#!/usr/bin/env bash
# Builds a Linux kernel whose own semaphores and mutexes are latchwork's, boots it in an emulated machine, and runs the kernel's own
# torture of locks and programs that use its locks much. docs/kernel.md says what is checked, and what has been done so far: the
# kernel has not been linked and booted yet.
set -euo pipefail

usage() {
    cat <<'TEXT'
Usage: scripts/kernel-patched.sh [OPTIONS]

Options:
  --kernel KIND     debug: latchwork's locks, with lockdep (PROVE_LOCKING), the locking self-tests and DEBUG_ATOMIC_SLEEP
                    latchwork: latchwork's locks
                    stock: the kernel's own locks, to compare with  [default: debug]
  --processors N    of the emulated machine [default: 4]
  --seconds N       how long each torture takes [default: 10]
  --minutes N       how long the programs run [default: 1]
  --count           count atomic operations and stores of semaphores per operation of the programs, and run no torture
  --sizes           print the sizes of the kernel's structures, and boot nothing
  --build           build only
  -h, --help        this text

Examples:
  scripts/kernel-patched.sh
  scripts/kernel-patched.sh --kernel latchwork --minutes 10
  scripts/kernel-patched.sh --kernel stock --count

It needs Debian's packages for compiling a kernel and qemu-system-x86 (as root it installs them). The kernel's source is Debian's
linux-source-6.1. A kernel takes some minutes to compile. What is built is under target/kernel (or $CARGO_TARGET_DIR/kernel), and
is kept. It exits with 0 if each check passed, 1 if one did not, 2 if it could not run.
TEXT
}

fail() {
    printf 'kernel-patched.sh: %s\n' "$*" >&2
    exit 2
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
kind=debug processors=4 seconds=10 minutes=1 count=0 sizes=0 build_only=0
while (($#)); do
    case $1 in
        --kernel | --processors | --seconds | --minutes)
            (($# > 1)) || fail "$1 needs a value"
            case $1 in
                --kernel) kind=$2 ;;
                --processors) processors=$2 ;;
                --seconds) seconds=$2 ;;
                --minutes) minutes=$2 ;;
            esac
            shift ;;
        --count) count=1 ;;
        --sizes) sizes=1 ;;
        --build) build_only=1 ;;
        -h | --help) usage; exit 0 ;;
        *) fail "no option is named $1; see --help" ;;
    esac
    shift
done
case $kind in debug | latchwork | stock) ;; *) fail "--kernel is debug, latchwork or stock" ;; esac
for number in "$processors" "$seconds" "$minutes"; do
    [[ $number =~ ^[1-9][0-9]*$ ]] || fail "'$number' is no number from 1"
done
((processors <= 8)) || fail "the kernel is built for 8 processors at most"

out=${CARGO_TARGET_DIR:-$root/target}/kernel
mkdir -p "$out"
log=$out/log-patched
: >"$log"
step() { printf '# %s\n' "$*"; }

# ---- Packages and source.

missing=()
for package in qemu-system-x86 busybox-static cpio make gcc libc6-dev flex bison bc libelf-dev xz-utils patch; do
    if [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true) != installed ]]; then
        missing+=("$package")
    fi
done
if ((${#missing[@]})); then
    ((EUID == 0)) || fail "missing: install them with  sudo apt-get install ${missing[*]}"
    step "installing ${missing[*]}"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; } \
        >>"$log" 2>&1 || fail "the packages cannot be installed: see $log"
fi
source=$out/source-latchwork
[[ $kind == stock ]] && source=$out/source-stock
if [[ ! -e $source/.complete ]]; then
    step "unpacking the kernel's source"
    rm -rf "$out/unpacked" "$source"
    (cd "$out" && { [[ -n $(compgen -G 'linux-source-6.1_*.deb') ]] || apt-get download -qq linux-source-6.1; } \
        && dpkg -x linux-source-6.1_*.deb unpacked && mkdir "$source" \
        && tar xf unpacked/usr/src/linux-source-6.1.tar.xz --strip-components=1 -C "$source" && rm -rf unpacked) \
        >>"$log" 2>&1 || fail "the kernel's source cannot be had: see $log"
    if [[ $kind != stock ]]; then
        (cd "$source" && patch -p1 <"$root/crates/kernel/patch/linux-6.1.patch") >>"$log" 2>&1 \
            || fail "the patch does not apply: see $log"
    fi
    touch "$source/.complete"
fi

# ---- The Rust library, as in scripts/kernel.sh, but with the functions of src/builtin.rs.

replace() { # replace FROM TO: unless they are equal, so that make sees no change
    cmp -s "$1" "$2" || cp "$1" "$2"
}
if [[ $kind != stock ]]; then
    step "compiling the locks"
    flags='-Ctarget-feature=-sse,-sse2,-sse3 -Cno-redzone=yes -Ccode-model=kernel -Crelocation-model=static'
    flags+=' -Cforce-unwind-tables=no -Cforce-frame-pointers=yes -Csymbol-mangling-version=v0'
    (cd "$root/crates/kernel" \
        && RUSTFLAGS=$flags CARGO_TARGET_DIR=$out/builtin cargo build --release --locked --features builtin) >>"$log" 2>&1 \
        || fail "the library does not compile: see $log"
    library=$out/builtin/release/liblatchwork_kernel.a
    link=() keep=()
    while read -r symbol; do
        link+=(-u "$symbol") keep+=("--keep-global-symbol=$symbol")
    done < <(nm -g --defined-only "$library" 2>/dev/null | awk '$3 ~ /^lw_(bravo|shfl)_/ { print $3 }' | sort -u)
    ld -r --gc-sections --strip-debug -e lw_bravo_read "${link[@]}" -o "$out/builtin/locks.o" "$library" 2>>"$log" \
        || fail "the library does not link: see $log"
    objcopy "${keep[@]}" --remove-section=.eh_frame --remove-section=.rela.eh_frame "$out/builtin/locks.o"
    wrong=$(nm -u "$out/builtin/locks.o" | awk '{ print $2 }' | grep -v '^lw_k_' || true)
    [[ -z $wrong ]] || fail "the locks call what the kernel does not have: $wrong"
    ! nm -u "$out/builtin/locks.o" | grep -qE 'lw_k_a_lock_(allocates|frees)' || fail "a lock allocates memory"
    ! objdump -d "$out/builtin/locks.o" | grep -q '%[xyz]mm' || fail "the locks use vector registers"
    mkdir -p "$source/kernel/locking/latchwork"
    for file in Kconfig Makefile mutex.c rwsem.h selftest.h stock_mutex.h; do
        replace "$root/crates/kernel/patch/latchwork/$file" "$source/kernel/locking/latchwork/$file"
    done
    replace "$root/crates/kernel/patch/latchwork/latchwork.h" "$source/include/linux/latchwork.h"
    replace "$root/crates/kernel/module/shim.c" "$source/kernel/locking/latchwork/shim.c"
    replace "$out/builtin/locks.o" "$source/kernel/locking/latchwork/locks.o_shipped"
fi

# ---- The kernel.

build=$out/kernel-$kind
fragments=("$root/crates/kernel/patch/config")
[[ $kind == stock ]] || fragments+=("$root/crates/kernel/patch/config.latchwork")
[[ $kind == debug ]] && fragments+=("$root/crates/kernel/patch/config.debug")
mkdir -p "$build"
cat "${fragments[@]}" >"$build/fragments.new"
if ! cmp -s "$build/fragments.new" "$build/fragments"; then
    step "configuring the kernel"
    (cd "$source" && make -s O="$build" tinyconfig \
        && scripts/kconfig/merge_config.sh -m -O "$build" "$build/.config" "$build/fragments.new" \
        && make -s O="$build" olddefconfig) >>"$log" 2>&1 || fail "the kernel cannot be configured: see $log"
    while IFS= read -r line; do
        case $line in
            CONFIG_*=n) ! grep -q "^${line%n}" "$build/.config" || fail "the configuration does not accept $line" ;;
            CONFIG_*) grep -qx "$line" "$build/.config" || fail "the configuration does not accept $line" ;;
        esac
    done <"$build/fragments.new"
    mv "$build/fragments.new" "$build/fragments"
fi
if ((sizes)); then
    step "sizes in bytes, $kind kernel"
    mkdir -p "$out/sizes-$kind"
    printf 'obj-m := sizes.o\n' >"$out/sizes-$kind/Kbuild"
    replace "$root/crates/kernel/load/sizes.c" "$out/sizes-$kind/sizes.c"
    make -s -C "$source" O="$build" prepare modules_prepare >>"$log" 2>&1 \
        && make -s -C "$source" O="$build" M="$out/sizes-$kind" sizes.o >>"$log" 2>&1 || fail "sizes.c does not compile: see $log"
    nm -S "$out/sizes-$kind/sizes.o" | awk '$4 ~ /^size_of_/ { sub(/^size_of_/, "", $4); printf "%-24s %d\n", $4, strtonum("0x" $2) }'
    exit 0
fi
step "compiling the kernel"
make -C "$source" O="$build" -j"$(nproc)" bzImage modules >>"$log" 2>&1 || fail "the kernel does not compile: see $log"
((build_only)) && exit 0

# ---- The machine.

rm -rf "$out/root-patched"
mkdir -p "$out/root-patched/bin"
cp /bin/busybox "$out/root-patched/bin/"
install -m 755 "$root/crates/kernel/patch/init" "$out/root-patched/init"
gcc -O2 -Wall -static -o "$out/root-patched/load" "$root/crates/kernel/load/load.c" -lpthread >>"$log" 2>&1 \
    || fail "load.c does not compile: see $log"
plugin=()
if ((count)); then
    minutes=0
    gcc -O2 -Wall -shared -fPIC -o "$out/libcount.so" "$root/crates/kernel/load/count.c" >>"$log" 2>&1 \
        || fail "count.c does not compile: see $log"
    # The code of semaphores, stock or ours, with all that is inlined there.
    sort "$build/System.map" | awk '
        { if (code) print "code", first, $1; code = 0 }
        $2 ~ /^[tTwW]$/ && $3 ~ /^_*(down|up)_(read|write)|^downgrade_write|^rwsem_|^lw_bravo|^lw_k_.*(down|up)_|^_R.*(bravo|rwsem)/ {
            first = $1; code = 1 }
        table { print "table", table, $1; table = "" }
        $3 ~ /^_R.*5TABLE$/ { table = $1 }
        $3 == "__x64_sys_personality" { print "mark", $1 }
        END { print "data ffff888000000000 ffffc87fffffffff" }' >"$out/count.map"
    plugin=(-plugin "$out/libcount.so,map=$out/count.map")
else
    cp "$build/kernel/locking/locktorture.ko" "$build/kernel/torture.ko" "$out/root-patched/"
fi
echo "$seconds $processors $minutes" >"$out/root-patched/plan"
(cd "$out/root-patched" && find . | cpio -o -H newc --quiet | gzip -1) >"$out/initrd-patched.gz"

said=$out/patched-$kind.log
step "booting the $kind kernel with $processors processors"
timeout $((900 + 60 * minutes + 60 * seconds)) qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp "$processors" -m 768 \
    "${plugin[@]}" -nographic -no-reboot -kernel "$build/arch/x86/boot/bzImage" -initrd "$out/initrd-patched.gz" \
    -append 'console=ttyS0 quiet panic=1 no_timer_check torture.disable_onoff_at_boot' </dev/null 2>&1 | sed -u 's/\r//g' >"$said" || true
grep -qa '^KERNEL' "$said" || fail "the emulated machine does not boot: see $said"

number=0 failed=0
verdict() {
    number=$((number + 1))
    echo "$1 $number - $2"
    [[ $1 == ok ]] || failed=$((failed + 1))
}
if ((count)); then
    echo "# per operation, by all semaphores:"
    printf '# %-12s %12s %14s %13s %14s %13s\n' load operations 'lock atomics' 'lock stores' 'table atomics' 'table stores'
    awk -F'|' '/^COUNT/ { for (i = 2; i <= 5; i++) c[i] = $i }
        /^LOAD/ { printf "# %-12s %12d %14.3f %13.3f %14.3f %13.3f\n", $2, $4, c[2] / $4, c[3] / $4, c[4] / $4, c[5] / $4 }' "$said"
fi
while IFS='|' read -r _ name expected got; do
    if [[ $got == "$expected" ]]; then verdict ok "$name ($got)"; else verdict "not ok" "$name: $got, not $expected"; fi
done < <(grep -a '^RESULT|' "$said")
if [[ $kind == debug ]]; then
    selftest=$(sed -n 's/^SELFTEST|//p' "$said")
    if [[ $selftest == *"testcases passed"* ]]; then verdict ok "self-tests: $selftest"; else verdict "not ok" "self-tests: $selftest"; fi
fi
if grep -qa '^SILENT' "$said" && grep -qa '^DONE' "$said"; then
    verdict ok "the kernel has noticed nothing"
else
    verdict "not ok" "the kernel has noticed something, or stopped: see $said"
fi
echo "1..$number"
((failed == 0))
