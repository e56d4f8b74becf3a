#!/usr/bin/env bash
# Builds a Linux kernel whose own semaphores and mutexes are latchwork's, boots it in an emulated machine, and runs the kernel's own
# torture of locks and programs that use its locks much. docs/kernel.md says what is checked, and what has been seen.
set -euo pipefail

usage() {
    cat <<'TEXT'
Usage: scripts/kernel-patched.sh [OPTIONS]

Options:
  --kernels LIST    debug: latchwork's locks, with lockdep (PROVE_LOCKING), the locking self-tests and DEBUG_ATOMIC_SLEEP
                    latchwork: latchwork's locks, BRAVO over the kernel's own semaphore
                    shfl: ShflLock as the semaphore, the mutex and the spin lock
                    shfl-debug: as shfl, with what the kernel debug has
                    kcsan: as shfl, compiled with KCSAN; no report may name a lock or the torture
                    kcsan-twin: as shfl-twin, compiled with KCSAN; a report must name the torture
                    own: latchwork's mutexes and the kernel's own semaphores, to compare with
                    twin, shfl-twin: the same, broken on purpose; the kernel's torture must fail
                                                                            [default: debug latchwork shfl shfl-debug twin shfl-twin own]
  --checks LIST     run: torture and programs, on each kernel but `own` (or on `own`, if it is the only kernel)
                    count: count atomic operations and stores of semaphores per operation of the programs, on the
                    kernels own, latchwork and shfl
                    sizes: the sizes of structures in a kernel without the patch and with it  [default: run count sizes]
  --machines LIST   emulated machines, as PROCESSORS or PROCESSORSxNODES [default: 2 4x2]
  --seconds N       how long each torture takes [default: 10]
  --minutes N       how long the programs run on each machine; in the kernels debug, shfl-debug and kcsan, which are
                    slow, one minute at most
                                                                            [default: 1]
  --jobs N          of the kernel's compilation [default: as many as processors]
  --build           build only
  -h, --help        this text

Examples:
  scripts/kernel-patched.sh
  scripts/kernel-patched.sh --kernels latchwork --checks run --machines 4x2 --minutes 10
  scripts/kernel-patched.sh --kernels 'latchwork own' --checks 'count sizes'

It needs Debian's packages for compiling a kernel and qemu-system-x86 (as root it installs them). The kernel's source is
linux-source-6.1, which only Debian 12 has. A kernel takes some minutes to compile. What is built is under target/kernel (or
$CARGO_TARGET_DIR/kernel), and is kept. It exits with 0 if each check passed, 1 if one did not, 2 if it could not run.
TEXT
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source-path=SCRIPTDIR source=kernel/common.sh
source "$root/scripts/kernel/common.sh"
kernels='debug latchwork shfl shfl-debug twin shfl-twin own' checks='run count sizes' machines='2 4x2' seconds=10 minutes=1 jobs=$(nproc) build_only=0
while (($#)); do
    case $1 in
        --kernels | --checks | --machines | --seconds | --minutes | --jobs)
            (($# > 1)) || fail "$1 needs a value"
            case $1 in
                --kernels) kernels=$2 ;;
                --checks) checks=$2 ;;
                --machines) machines=$2 ;;
                --seconds) seconds=$2 ;;
                --minutes) minutes=$2 ;;
                --jobs) jobs=$2 ;;
            esac
            shift ;;
        --build) build_only=1 ;;
        -h | --help) usage; exit 0 ;;
        *) fail "no option is named $1; see --help" ;;
    esac
    shift
done
for kind in $kernels; do
    case $kind in
        debug | latchwork | shfl | shfl-debug | own | twin | shfl-twin | kcsan | kcsan-twin) ;;
        *) fail "no kernel is named '$kind'; see --help" ;;
    esac
done
for check in $checks; do
    case $check in run | count | sizes) ;; *) fail "the checks are run, count and sizes, not '$check'" ;; esac
done
for number in "$seconds" "$minutes" "$jobs"; do
    [[ $number =~ ^[1-9][0-9]*$ ]] || fail "'$number' is no number from 1"
done
for machine in $machines; do
    [[ $machine =~ ^[1-8](x[12])?$ && $machine != [1357]x2 ]] ||
        fail "'$machine' is no machine: write 4 or 4x2 (an even number on two nodes), 8 processors at most"
done
[[ -n ${kernels// /} && -n ${machines// /} ]] || fail "without a kernel or a machine there is nothing to do"

begin -patched
trap stop_machine EXIT
has() { [[ " $1 " == *" $2 "* ]]; }

# ---- Packages and source.

install_packages 1 qemu-system-x86 busybox-static cpio make gcc libc6-dev flex bison bc libelf-dev xz-utils patch
source=$out/source
patched=$(sha256sum <"$root/crates/kernel/patch/linux-6.1.patch")
if [[ ! -e $source/.patched || $(<"$source/.patched") != "$patched" ]]; then
    step "unpacking the kernel's source"
    rm -rf "$out/unpacked" "$out/source"
    (cd "$out" && { [[ -n $(compgen -G 'linux-source-6.1_*.deb') ]] || timeout 300 apt-get download -qq linux-source-6.1; } \
        && dpkg -x linux-source-6.1_*.deb unpacked && mkdir source \
        && tar xf unpacked/usr/src/linux-source-6.1.tar.xz --strip-components=1 -C source && rm -rf unpacked) \
        >>"$log" 2>&1 || fail "the kernel's source cannot be had (linux-source-6.1 is in Debian 12): see $log"
    (cd "$source" && patch -p1 <"$root/crates/kernel/patch/linux-6.1.patch") >>"$log" 2>&1 \
        || fail "the patch does not apply: see $log"
    echo "$patched" >"$source/.patched"
fi

# ---- The Rust library, as in scripts/kernel.sh, but with the functions of src/builtin.rs.

step "compiling the locks"
compile_locks() { # compile_locks FEATURES: FEATURES/locks.o; several are joined by -
    local target=$out/$1 library wrong symbol link=() keep=() sections
    (cd "$root/crates/kernel" \
        && RUSTFLAGS=$flags CARGO_TARGET_DIR=$target cargo build --release --locked --features "${1//-/,}") >>"$log" 2>&1 9>&- \
        || fail "the library does not compile: see $log"
    library=$target/release/liblatchwork_kernel.a
    while read -r symbol; do
        link+=(-u "$symbol") keep+=("--keep-global-symbol=$symbol")
    done < <(nm -g --defined-only "$library" 2>/dev/null | awk '$3 ~ /^lw_(bravo|shfl)_/ { print $3 }' | sort -u)
    ld -r --gc-sections --strip-debug -T "$root/crates/kernel/patch/locks.lds" -e lw_shfl_lock "${link[@]}" -o "$target/locks.o" "$library" 2>>"$log" \
        || fail "the library does not link: see $log"
    objcopy "${keep[@]}" --remove-section=.eh_frame --remove-section=.rela.eh_frame "$target/locks.o"
    check_locks "$target/locks.o" fail
    sections=$(readelf -SW "$target/locks.o") || fail "readelf cannot read $target/locks.o"
    wrong=$(sed -n 's/^.* \(\.[a-z.]*[^ ]*\) *\(PROGBITS\|NOBITS\) .* [WAX]*A[WAX]* .*/\1/p' <<<"$sections" | grep -vxE '\.(text|rodata|data|bss)' || true)
    [[ -z $wrong ]] || fail "the kernel's linker would not know the section $wrong"
}
locks_of() { # locks_of KIND: the features of the library
    case $1 in shfl | twin | shfl-twin) echo "$1" ;; shfl-debug | kcsan) echo shfl ;; kcsan-twin) echo shfl-twin ;; *) echo builtin ;; esac
}
for features in builtin shfl twin shfl-twin; do
    for kind in $kernels; do
        if [[ $(locks_of "$kind") == "$features" ]]; then compile_locks "$features"; break; fi
    done
done
mkdir -p "$source/kernel/locking/latchwork"
for file in Kconfig Makefile mutex.c rwsem.h selftest.h shfl_rwsem.h spin.c stock_mutex.h; do
    replace "$root/crates/kernel/patch/latchwork/$file" "$source/kernel/locking/latchwork/$file"
done
replace "$root/crates/kernel/patch/latchwork/latchwork.h" "$source/include/linux/latchwork.h"
replace "$root/crates/kernel/patch/latchwork/shfl_rwsem_types.h" "$source/include/linux/latchwork_rwsem.h"
for file in shim.c shim.h sleep.c nodes.c numbered.c; do
    replace "$root/crates/kernel/module/$file" "$source/kernel/locking/latchwork/$file"
done

# ---- The kernels.

directory() { # directory KIND: all of `own` and of the twins but one or two files is as in another kernel
    case $1 in own | twin) echo "$out/kernel-latchwork" ;; *-twin) echo "$out/kernel-${1%-twin}" ;; *) echo "$out/kernel-$1" ;; esac
}
configure() { # configure KIND
    local build=$(directory "$1") fragments=("$root/crates/kernel/patch/config") line
    case $1 in
        stock) ;;
        shfl* | kcsan*) fragments+=("$root/crates/kernel/patch/config.shfl") ;;
        *) fragments+=("$root/crates/kernel/patch/config.latchwork") ;;
    esac
    case $1 in
        own) fragments+=("$root/crates/kernel/patch/config.own") ;;
        *debug) fragments+=("$root/crates/kernel/patch/config.debug") ;;
        kcsan*) fragments+=("$root/crates/kernel/patch/config.kcsan") ;;
    esac
    [[ $1 != *twin ]] || fragments+=("$root/crates/kernel/patch/config.twin")
    mkdir -p "$build"
    cat "${fragments[@]}" >"$build/fragments.new"
    if ! cmp -s "$build/fragments.new" "$build/fragments"; then
        step "configuring the kernel ($1)"
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
}
for kind in $kernels; do
    configure "$kind"
    step "compiling the kernel ($kind)"
    build=$(directory "$kind")
    replace "$out/$(locks_of "$kind")/locks.o" "$source/kernel/locking/latchwork/locks.o_shipped"
    make -C "$source" O="$build" -j"$jobs" bzImage modules >>"$log" 2>&1 || fail "the kernel does not compile: see $log"
    # What the kernel's linker script does not know lies outside of the kernel's memory.
    awk '{ at[$3] = $1 }
        $3 ~ /^_R.*5TABLE$/ { table = $1 }
        END { exit !((table == "" || table >= at["__bss_start"] && table < at["__bss_stop"]) &&
            at["lw_shfl_lock"] >= at["_text"] && at["lw_shfl_lock"] < at["_etext"]) }' "$build/System.map" \
        || fail "the locks are not inside the kernel: see $build/System.map"
    mkdir -p "$out/built-$kind"
    for file in arch/x86/boot/bzImage System.map kernel/locking/locktorture.ko kernel/torture.ko; do
        replace "$build/$file" "$out/built-$kind/${file##*/}"
    done
done
((build_only)) && exit 0

number=0 failed=0
verdict() { # verdict ok|"not ok" TEXT
    number=$((number + 1))
    echo "$1 $number - $2"
    [[ $1 == ok ]] || failed=$((failed + 1))
}
: >"$out/results-patched"

# ---- Sizes of structures.

sizes_of() { # sizes_of KIND: the name and the size of each
    local directory=$out/sizes-$1
    mkdir -p "$directory"
    printf 'obj-m := sizes.o\n' >"$directory/Kbuild"
    replace "$root/crates/kernel/load/sizes.c" "$directory/sizes.c"
    make -s -C "$source" O="$out/kernel-$1" prepare modules_prepare >>"$log" 2>&1 \
        && make -s -C "$source" O="$out/kernel-$1" M="$directory" sizes.o >>"$log" 2>&1 || fail "sizes.c does not compile: see $log"
    nm -S "$directory/sizes.o" | awk '$4 ~ /^size_of_/ { sub(/^size_of_/, "", $4); print $4, $2 }' | sort \
        | while read -r name size; do echo "$name $((16#$size))"; done
}
if has "$checks" sizes; then
    configure stock
    configure latchwork
    configure shfl
    for kind in stock latchwork shfl; do sizes_of "$kind" >"$out/sizes-of-$kind"; done
    printf '# %-20s %10s %10s %10s\n' 'bytes of structures' stock latchwork shfl
    join "$out/sizes-of-stock" "$out/sizes-of-latchwork" | join - "$out/sizes-of-shfl" |
        awk '{ printf "# %-20s %10d %10d %10d\n", $1, $2, $3, $4 }'
fi

# ---- What the machine has in memory: busybox, our programs, and a C compiler with the source of a program.

# The program is the kernel's device tree compiler. The compiler, make and all that they load come from this machine.
program() {
    local program=$out/program compiler
    [[ -e $program/.complete ]] && return
    step "gathering a compiler and a program for it"
    rm -rf "$program"
    mkdir -p "$program/src" "$program/expected"
    # Not ( ... ) || fail: in front of || bash ignores set -e.
    set +e
    (
        set -e
        cd "$program/src"
        cp "$source"/scripts/dtc/{checks,data,dtc,flattree,fstree,livetree,srcpos,treesource,util}.c "$source"/scripts/dtc/*.h .
        cp "$source"/scripts/dtc/libfdt/{fdt,libfdt,libfdt_env}.h .
        flex -o dtc-lexer.lex.c "$source/scripts/dtc/dtc-lexer.l"
        bison -d -o dtc-parser.tab.c "$source/scripts/dtc/dtc-parser.y"
        sed -i '/^#line/d' dtc-lexer.lex.c dtc-parser.tab.c dtc-parser.tab.h
        printf 'all: $(patsubst %%.c,%%.o,$(wildcard *.c))\n%%.o: %%.c\n\tgcc -O2 -DNO_YAML -I. -c -o $@ $<\n' >Makefile
        make -s -j"$jobs"
        mv ./*.o ../expected/
        compiler=$(gcc -print-prog-name=cc1)
        mkdir ../root
        {
            gcc -O2 -M -DNO_YAML -I. ./*.c | tr ' \\' '\n\n' | grep '^/'
            for file in "$compiler" "$(command -v gcc)" "$(command -v as)" "$(command -v make)"; do
                echo "$file"
                ldd "$file" | awk '$3 ~ /^\// { print $3 } $1 ~ /^\// { print $1 }'
            done
        } | sort -u | xargs cp -L --parents -t ../root
        cd ..
        mv src expected root/
    ) >>"$log" 2>&1
    local status=$?
    set -e
    ((status == 0)) || fail "the program to compile cannot be prepared: see $log"
    touch "$program/.complete"
}

memory_disk() { # memory_disk KIND MINUTES PROCESSORS [BROKEN TORTURE]
    local disk=$out/root-patched
    rm -rf "$disk"
    mkdir -p "$disk/bin"
    cp /bin/busybox "$disk/bin/"
    install -m 755 "$root/crates/kernel/patch/init" "$disk/init"
    gcc -O2 -Wall -static -o "$disk/load" "$root/crates/kernel/load/load.c" -lpthread >>"$log" 2>&1 \
        || fail "load.c does not compile: see $log"
    if (($2)); then
        cp "$out/built-$1"/*.ko "$disk/"
        if [[ $1 != *twin ]]; then
            program
            cp -r "$out/program/root/." "$disk/"
        fi
    fi
    echo "$seconds $3 $2 ${4-}" >"$disk/plan"
    pack "$disk" "$out/initrd-patched.gz"
    rm -rf "$disk"
}

plugin() { # plugin NAME: libNAME.so for QEMU
    gcc -O2 -Wall -shared -fPIC -o "$out/lib$1.so" "$root/crates/kernel/load/$1.c" >>"$log" 2>&1 || fail "$1.c does not compile: see $log"
}
plugin yield # an emulated processor that spins lets the others run: see the file

# The kernel's own watchdogs are patient from the start: the machine may get little time.
boot_options='console=ttyS0 quiet panic=1 no_timer_check lpj=200000 no5lvl watchdog_thresh=150 rcupdate.rcu_cpu_stall_timeout=300 rcupdate.rcu_normal=1'
boot() { # boot KIND MACHINE SECONDS ARGUMENTS: prints what the machine says
    # The kernel measures its delay loop by a clock that an emulated processor cannot keep up with. With lpj, a delay is
    # not ten times as long as it should be, and the torture's threads acquire the more often.
    emulate "$2" "$3" 1280 "$out/built-$1/bzImage" "$out/initrd-patched.gz" "$boot_options" "${@:4}"
}

# ---- Counts.

count() { # count KIND
    local said=$out/patched-count-$1.log
    memory_disk "$1" 0 2
    plugin count
    # The code of semaphores, stock or ours, with all that is inlined there.
    sort "$out/built-$1/System.map" | awk '
        { if (code) print "code", first, $1; code = 0 }
        $2 ~ /^[tTwW]$/ && $3 ~ /^_*(down|up)_(read|write)|^downgrade_write|^rwsem_|^osq_(lock|unlock)|^lw_(bravo|shfl_rw)|^lw_k_.*(down|up)_|^_R.*(bravo|rwsem|shfl_rw)/ {
            first = $1; code = 1 }
        table { print "table", table, $1; table = "" }
        $3 ~ /^_R.*5TABLE$/ { table = $1 }
        $3 == "__x64_sys_personality" { print "mark", $1 }
        $3 == "try_to_wake_up" { print "wake", $1 }
        END { print "data ffff888000000000 ffffc87fffffffff" }' >"$out/count.map"
    step "counting on the $1 kernel with 2 processors"
    boot "$1" 2 1200 -plugin "$out/libcount.so,map=$out/count.map" >"$said" || true
    grep -qa 'KERNEL [0-9]' "$said" || fail "the emulated machine does not boot: see $said"
    awk -F'|' -v kind="$1" '/^COUNT/ { for (i = 2; i <= 7; i++) c[i] = $i }
        /^LOAD/ { printf "%s %s %d %.3f %.3f %.3f %.3f %.1f %.4f\n", kind, $2, $4,
            c[2] / $4, c[3] / $4, c[4] / $4, c[5] / $4, c[6] / $4, c[7] / $4 }' "$said" \
        >>"$out/counts"
    if grep -qa '^DONE' "$said"; then verdict ok "$1: counted"; else verdict "not ok" "$1: the machine stopped: see $said"; fi
}
if has "$checks" count; then
    : >"$out/counts"
    for kind in $kernels; do
        case $kind in latchwork | own | shfl) count "$kind" ;; esac
    done
    echo "# per operation, of all semaphores:"
    printf '# %-10s %-12s %10s %13s %12s %14s %13s %13s %9s\n' kernel load operations 'lock atomics' 'lock stores' 'table atomics' \
        'table stores' instructions wakeups
    sort -k2,2 -k1,1r "$out/counts" \
        | awk '{ printf "# %-10s %-12s %10d %13.3f %12.3f %14.3f %13.3f %13.1f %9.4f\n", $1, $2, $3, $4, $5, $6, $7, $8, $9 }'
fi

# ---- Torture and load.

run() { # run KIND MACHINE [BROKEN TORTURE]
    local said=$out/patched-$1-$2${3:+-$3}.log name expected got extra selftest
    case $1 in *debug | kcsan) local minutes=1 ;; esac
    memory_disk "$1" "$minutes" "${2%x*}" "${3-}"
    step "booting the $1 kernel on the machine $2${3:+ with a broken $3}"
    boot "$1" "$2" $((900 + 300 * minutes + 60 * seconds)) >"$said" || true
    grep -qa 'KERNEL [0-9]' "$said" || fail "the emulated machine does not boot: see $said"
    sed -n 's/^TORTURE|/# /p' "$said"
    if [[ $1 == *debug ]]; then
        selftest=$(sed -n 's/^SELFTEST|//p' "$said")
        got=fails
        [[ $selftest == *"testcases passed"* && $selftest != *BUG* ]] && got=passes
        echo "RESULT|locking self-tests|passes|$got|$selftest" >>"$said"
    fi
    # Linux itself has reports under KCSAN. The library is not instrumented: what is seen are the accesses that its locks protect.
    if [[ $1 == kcsan* ]]; then
        sed -n 's/^KCSAN|/# /p' "$said"
        got=none expected=none
        [[ $1 != *twin ]] || expected=some
        ! grep -aE '^KCSAN\|.*(lw_|lock_torture|torture_|rwsem|mutex|down_|up_|spin)' "$said" >/dev/null || got=some
        echo "RESULT|reports about locks|$expected|$got|$(grep -ac '^KCSAN|' "$said") in all" >>"$said"
    fi
    if [[ $1 != *twin ]]; then
        got=noticed
        grep -qa '^SILENT' "$said" && grep -qa '^DONE' "$said" && got=silent
        echo "RESULT|the kernel|silent|$got|log in $said" >>"$said"
    fi
    while IFS='|' read -r _ name expected got extra; do
        name="${name% }"
        echo "$1 on $2|$name|$expected|$got|$extra" >>"$out/results-patched"
        if [[ $got == "$expected" ]]; then
            verdict ok "$1 on $2: $name ($got${extra:+, $extra})"
        else
            verdict "not ok" "$1 on $2: $name: $got, not $expected ${extra:+($extra)}"
        fi
    done < <(grep -a '^RESULT|' "$said")
}
if has "$checks" run; then
    for kind in $kernels; do
        [[ $kind != own || ${kernels// /} == own ]] || continue
        case $kind in
            twin) broken='rwsem_lock mutex_lock' ;;
            shfl-twin) broken='rwsem_lock mutex_lock spin_lock' ;;
            kcsan-twin) broken=spin_lock ;;
            *) broken='' ;;
        esac
        if [[ -n $broken ]]; then
            for torture in $broken; do run "$kind" "${machines%% *}" "$torture"; done
            continue
        fi
        for machine in $machines; do
            run "$kind" "$machine"
        done
    done
    echo "#"
    awk -F'|' '
        { if (!($2 in rows)) { rows[$2]; order[++n] = $2 }
          if (!($1 in seen)) { seen[$1]; column[++m] = $1 }
          result[$1, $2] = $3 == $4 ? "ok" : "FAILS" }
        END { printf "# %-52s", "check"; for (j = 1; j <= m; j++) printf "%18s", column[j]; print ""
              for (i = 1; i <= n; i++) { printf "# %-52s", order[i]
                  for (j = 1; j <= m; j++) printf "%18s", result[column[j], order[i]]; print "" } }' "$out/results-patched"
fi
echo "1..$number"
echo "# $((number - failed)) passed, $failed failed"
((failed == 0))
