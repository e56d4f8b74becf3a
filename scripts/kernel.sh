#!/usr/bin/env bash
# Builds the locks as a module of a kernel, Debian's unless told, boots that kernel in an emulated machine, and has threads try to
# break each lock there. docs/kernel.md says what is checked.
set -euo pipefail

usage() {
    cat <<'TEXT'
Usage: scripts/kernel.sh [OPTIONS]

Without --machines, --locks, --kinds or --full it boots machines 1 2 4x2 8x2, and checks the locks that the kernel's own would be
replaced by: a few minutes once built.

Options:
  --full            every check of every lock on machines 1 2 4x2 8x2: 37 minutes where it was measured
  --machines LIST   emulated machines, as PROCESSORS or PROCESSORSxNODES [default: 2 4x2]
  --seconds N       how long each check takes [default: 1]
  --least N         acquisitions that each check has at least, even if it takes longer, a minute at most [default: 2000]
  --locks LIST      these locks alone, by name
  --kinds LIST      these kinds of checks alone: mixed signals real-time interrupts softirqs crowd others hotplug
                    memory contention broken lockdep
  --smoke           the checks of the default on machine 2 alone: about a minute once built. On a machine that is too slow to end
                    within two minutes it exits with 2
  --debian SUITE    the newest kernel of another Debian release in place of the installed headers' one, unpacked under target/kernel.
                    On Debian 12, bookworm-backports has Linux 6.12
  --headers DIR     the kernel whose headers or build are there (make -C DIR M=... must work), with
  --image FILE      its image [default: DIR/arch/x86/boot/bzImage]
  --build           build only
  --no-install      install no package: exit with 2 if one is missing
  --json FILE       the results as JSON too
  --state FILE      keep results there, and take those over that an interrupted run of the same modules has left there
  -h, --help        this text

Examples:
  scripts/kernel.sh
  scripts/kernel.sh --full --state results
  scripts/kernel.sh --locks 'shfl bravo-rwsem' --machines 8x2 --seconds 10
  scripts/kernel.sh --smoke --debian bookworm-backports
  scripts/kernel.sh --smoke --headers ~/linux

It needs Debian's packages qemu-system-x86, busybox-static, cpio and linux-headers-amd64 (as root it installs them), and
downloads the kernel's package without installing it. What it builds is under target/kernel. It exits with 0 if each
check ended as expected, 1 if one did not, 2 if it could not run (a package or the emulated machine is missing, or too slow).
TEXT
}

wrong() {
    printf 'not ok - %s\n' "$*"
    exit 1
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source-path=SCRIPTDIR source=kernel/common.sh
source "$root/scripts/kernel/common.sh"
# shellcheck source-path=SCRIPTDIR source=kernel/choose.sh
source "$root/scripts/kernel/choose.sh"
machines='' kinds='' locks='' full=0 seconds=1 least=2000 json='' state='' build_only=0 within=0 install=1 stall=10
suite='' headers='' image=''
all_machines='1 2 4x2 8x2' all_kinds='mixed signals real-time interrupts softirqs crowd others hotplug memory contention broken lockdep'
few_kinds='mixed signals interrupts others memory contention broken lockdep'
few_locks='shfl shfl-rw bravo-rwsem qspinlock mcs broken-spin broken-bravo broken-bravo-other broken-shfl broken-shfl-stubborn'
while (($#)); do
    case $1 in
        --machines | --seconds | --least | --locks | --kinds | --json | --state | --debian | --headers | --image)
            (($# > 1)) || fail "$1 needs a value"
            case $1 in
                --machines) machines=$2 ;;
                --seconds) seconds=$2 ;;
                --least) least=$2 ;;
                --locks) locks=$2 ;;
                --kinds) kinds=$2 ;;
                --json) json=$2 ;;
                --state) state=$2 ;;
                --debian) suite=$2 ;;
                --headers) headers=$2 ;;
                --image) image=$2 ;;
            esac
            shift ;;
        --smoke)
            # A lock that is sound never fails because the machine is slow: a thread must get nowhere for 30 s, in which all
            # processors run, and a machine that does not end in time is no failure.
            machines=2 within=115 stall=30 kinds=${few_kinds/memory /} locks=$few_locks ;;
        --full) full=1 ;;
        --build) build_only=1 ;;
        --no-install) install=0 ;;
        -h | --help) usage; exit 0 ;;
        *) fail "no option is named $1; see --help" ;;
    esac
    shift
done
if ((full)); then
    machines=${machines:-$all_machines}
elif [[ -z $machines$kinds$locks ]]; then
    machines=$all_machines kinds=$few_kinds locks=$few_locks
fi
[[ -z $suite || -z $headers$image ]] || fail "--debian chooses the headers and the image: leave --headers and --image out"
[[ -z $image || -n $headers ]] || fail "--image needs --headers: the module is built for one kernel"
machines=${machines:-2 4x2} kinds=${kinds:-$all_kinds}
[[ $seconds =~ ^[1-9][0-9]*$ && $least =~ ^[1-9][0-9]*$ ]] || fail "--seconds and --least are numbers from 1"
for machine in $machines; do
    [[ $machine =~ ^([1-9][0-9]*)(x[12])?$ && $machine != *[13579]x2 ]] ||
        fail "'$machine' is no machine: write 4 or 4x2 (an even number on two nodes)"
done

begin ''
trap stop_machine EXIT

# ---- Packages.

if [[ -n $suite ]]; then
    install_packages "$install" qemu-system-x86 busybox-static cpio make gcc
    debian_kernel "$suite"
elif [[ -n $headers ]]; then
    install_packages "$install" qemu-system-x86 busybox-static cpio make gcc
    headers=$(realpath "$headers") image=${image:-$headers/arch/x86/boot/bzImage}
else
    install_packages "$install" qemu-system-x86 busybox-static cpio linux-headers-amd64
    debian_installed
fi
release=$(release_of_headers "$headers")
boots=$(release_of_image "$image")
[[ $boots == "$release" ]] || fail "the headers are of the kernel $release, and the image is of $boots: --headers and --image must be one kernel's"

# ---- The Rust library.

SECONDS=0 # what --smoke may take begins here: packages are installed and downloaded once
step "compiling the locks"
(cd "$root/crates/kernel" && RUSTFLAGS=$flags CARGO_TARGET_DIR=$out/cargo cargo rustc --release --locked -- --emit "asm=$out/locks.s") \
    >>"$log" 2>&1 9>&- || wrong "the library does not compile: see $log"

module=$out/module-$release
mkdir -p "$module"
awk -f "$root/scripts/kernel/kbuild.awk" "$out/locks.s" >"$out/locks.S"
for file in "$root"/crates/kernel/module/{Kbuild,*.c,*.h} "$out/locks.S"; do
    replace "$file" "$module/${file##*/}"
done

step "compiling the module for Linux $release"
# Without types for BPF, which need pahole.
make -s -C "$headers" M="$module" CONFIG_DEBUG_INFO_BTF_MODULES= modules >"$out/make.log" 2>&1 ||
    wrong "the module does not compile: see $out/make.log"
check_locks "$module/locks.o" wrong
check_branches "$module/locks.o" wrong
! grep -qsx 'CONFIG_UNWINDER_ORC=y' "$headers/include/config/auto.conf" || check_unwinding "$module/locks.o" "$module/latchwork.ko" wrong
bad=$(readelf -rW "$module/locks.o" | awk '$3 ~ /^R_X86/ && $3 !~ /_(64|32|32S|PC32|PLT32)$/ { print $3 }' | sort -u)
[[ -z $bad ]] || wrong "the kernel's loader does not know the relocation $bad"
! grep -q 'warning: objtool' "$out/make.log" || wrong "objtool warns: see $out/make.log"
((build_only)) && exit 0

# An emulated processor that spins lets the others run: without that, each handover of a lock costs time slices of the host.
gcc -O2 -Wall -shared -fPIC -o "$out/libyield.so" "$root/crates/kernel/load/yield.c" >>"$log" 2>&1 || wrong "yield.c does not compile: see $log"

# ---- The checks: NAME|EXPECTED|PARAMETERS.

initrd() { # initrd CHECKS: the memory disk with the modules and these checks
    rm -rf "$out/root"
    mkdir -p "$out/root/bin"
    cp /bin/busybox "$out/root/bin/"
    cp "$module"/latchwork{,_torture}.ko "$out/root/"
    strip -g "$out/root"/*.ko
    install -m 755 "$root/crates/kernel/module/init" "$out/root/init"
    cp "$1" "$out/root/checks"
    pack "$out/root" "$out/initrd.gz"
}

# The kernel's own watchdogs are more patient than the torture, from the start. A host that suspends the emulated machine for four
# minutes makes them report nothing: a soft lockup takes twice watchdog_thresh. An expedited grace period is reported after 21 s whatever
# the parameters say, so there are none.
boot_options='console=ttyS0 quiet panic=1 mitigations=off no_timer_check watchdog_thresh=150 rcupdate.rcu_cpu_stall_timeout=300 rcupdate.rcu_normal=1'
boot() { # boot MACHINE SECONDS: runs the checks in the memory disk; prints what the machine says
    emulate "$1" "$2" 1024 "$image" "$out/initrd.gz" "$boot_options"
}

left_of_time() { # left_of_time SECONDS: how long a machine may run, with --smoke until its time is over
    if ((within)); then echo $((within > SECONDS + 5 ? within - SECONDS : 5)); else echo "$1"; fi
}
modules=$(cat "$module"/latchwork{,_torture}.ko "$image" | sha256sum | cut -c1-16)
rows=$out/rows-$modules # a module that was asked before has the same locks
if [[ ! -s $rows ]]; then
    step "asking the module for its locks"
    rm -f "$out"/rows-*
    : >"$out/checks"
    initrd "$out/checks"
    boot 1 "$(left_of_time 120)" >"$out/rows.log" || true
    if ! grep -qa '^DONE\|BROKEN' "$out/rows.log" && ((within == 0)); then
        boot 1 120 >"$out/rows.log" || true # an emulated clock on a busy machine
    fi
    grep -qa '^DONE\|BROKEN' "$out/rows.log" || fail "the emulated machine does not boot, or not in time: see $out/rows.log"
    sed -n 's/.*latchwork: lock //p' "$out/rows.log" | awk '!seen[$1]++' >"$rows"
    if [[ ! -s $rows ]]; then
        echo "not ok 1 - the module does not load: see $out/rows.log"
        exit 1
    fi
fi
for lock in $locks; do
    grep -q "^$lock " "$rows" || fail "no lock is named $lock; there are: $(cut -d' ' -f1 "$rows" | tr '\n' ' ')"
done

# A sound lock passes within the seconds and a number of acquisitions. A broken one is tortured until an error shows: a minute
# at most, usually a second. Each fault shows by construction (src/broken.rs), given threads enough that wait or read asleep.
: >"$out/checks.all"
while read -r lock _ _ row; do
    if [[ -n $locks && " $locks " != *" $lock "* ]]; then continue; fi
    common="lock=$lock seconds=$seconds least=$least stall=$stall"
    crowd=$common hotplug="lock=$lock seconds=$((2 * seconds)) stall=$stall"
    # It passes over a waiter for 1000 handovers, and in a crowd each of 15 waiters has its turn: an emulated processor may need 20 s.
    [[ $lock != malthusian ]] || crowd=${crowd/stall=$stall/stall=60} hotplug=${hotplug/stall=$stall/stall=60}
    # A lock that loses wakeups could fail in the scripted steps already. It must fail in the torture, so it has no steps.
    others=() twin='steps=0'
    [[ $lock != *-stubborn ]] || twin='timed=1'
    [[ $lock == *-other || $lock == bravo-rwsem ]] && others=(handed=1)
    if [[ $row == *broken* ]]; then
        echo "broken $lock|fails|lock=$lock seconds=60 stall=2 $twin writers=8 readers=8 long_holds=1 ${others[*]}"
    else
        echo "mixed $lock|ok|$common timed=1 long_holds=1"
        if [[ $row == *sleeps* ]]; then
            echo "signals $lock|ok|$common killed=1 long_holds=1"
            echo "real-time $lock|ok|$common realtime=1"
        else
            echo "interrupts $lock|ok|$common irq=safe"
            echo "softirqs $lock|ok|$common irq=safe soft=1"
        fi
        echo "crowd $lock|ok|$crowd writers=16 readers=16"
        echo "hotplug $lock|ok|$hotplug"
        if ((${#others[@]})); then
            echo "others $lock|ok|$common timed=1 long_holds=1 ${others[*]}"
        fi
    fi
done <"$rows" >>"$out/checks.all"
if [[ -z $locks || " $locks " == *" mcs "* ]]; then
    {
        echo "broken mcs|fails|lock=mcs irq=unsafe long_holds=1 seconds=60"
        echo "softirqs mcs (unsafe)|fails|lock=mcs irq=unsafe soft=1 long_holds=1 seconds=60"
    } >>"$out/checks.all"
fi
# More threads than there are queue nodes: a processor has 64.
if [[ -z $locks || " $locks " == *" shfl "* ]]; then
    echo "memory shfl|ok|lock=shfl seconds=$seconds least=$least stall=60 writers=80-each" >>"$out/checks.all"
fi
# Each kind of check can fail. (Of the other kinds there are twins above.)
for check in 'signals broken-shfl|steps=0 killed=1' 'signals broken-shfl-stubborn|killed=1' 'real-time broken-shfl|realtime=1' \
    'crowd broken-shfl-rw|writers=16 readers=16' 'hotplug broken-shfl|' 'hotplug broken-bravo|writers=8 readers=8'; do
    IFS='|' read -r name parameters <<<"$check"
    if [[ -z $locks || " $locks " == *" ${name#* } "* ]]; then
        echo "$name|fails|lock=${name#* } seconds=60 stall=2 long_holds=1 $parameters" >>"$out/checks.all"
    fi
done
if [[ -z $locks || " $locks " == *" shfl "* ]]; then
    echo "hotplug shfl (alone)|no processor went offline|lock=shfl seconds=1" >>"$out/checks.all"
fi
for lock in shfl shfl-rw qspinlock; do
    if grep -qsw __tracepoint_contention_begin "$headers/Module.symvers" && [[ -z $locks || " $locks " == *" $lock "* ]]; then
        echo "contention $lock|ok|lock=$lock seconds=$seconds least=$least stall=$stall" >>"$out/checks.all"
    fi
done
# The last ones: lockdep turns itself off when it has reported something.
if grep -qsx 'CONFIG_PROVE_LOCKING=y' "$headers/include/config/auto.conf"; then
    while read -r lock _ _ row; do
        [[ $row == *broken* || -n $locks && " $locks " != *" $lock "* ]] || echo "lockdep $lock|ok|lock=$lock order=same"
    done <"$rows" >>"$out/checks.all"
    lock=${locks:-shfl}
    echo "lockdep ${lock%% *} (inverted)|fails|lock=${lock%% *} order=inverted" >>"$out/checks.all"
fi
while IFS= read -r check; do
    [[ " $kinds " != *" ${check%% *} "* ]] || printf '%s\n' "$check"
done <"$out/checks.all" >"$out/checks.any"

# On one processor no thread and no timer meets a held lock that spins, because its holder is not preempted; and no processor can go
# offline, which one check must notice. There are too many threads in `memory` for more than two.
checks_on() { # checks_on MACHINE
    awk -F'[ |]' -v processors="${1%x*}" '
        NR == FNR { if (!/ sleeps/) spins[$1]; next }
        processors == 1 && ($1 == "hotplug" && !/alone/ || /irq=safe/ || ($1 == "mixed" || $1 == "crowd") && $2 in spins) { next }
        processors > 1 && /alone/ { next }
        processors > 2 && $1 == "memory" { next }
        { sub(/80-each/, 80 * processors); print }' "$rows" "$out/checks.any"
}

# ---- The machines.

# An interrupted run is continued check by check, whatever a check's result was. A line of the state begins with the modules' hash.
[[ -z $state ]] || touch "$state"
known() { # known MACHINE: the results of the wanted checks that the state has
    [[ -n $state ]] || return 0
    awk -F'|' -v modules="$modules" -v machine="$1" '
        NR == FNR { wanted[$1 "|" $2 "|" $3]; next }
        $1 == modules && $2 == machine && ($3 "|" $4 "|" $6) in wanted { print "RESULT|" $3 "|" $4 "|" $5 "|" $6 }' "$out/checks" "$state"
}
to_do() { # to_do MACHINE: the wanted checks that the state has no result of
    grep -vxF -f <(known "$1" | awk -F'|' '{ print $2 "|" $3 "|" $5 }') "$out/checks" || true
}

count=0 failed=0 total=0
for machine in $machines; do
    checks_on "$machine" >"$out/checks"
    total=$((total + $(wc -l <"$out/checks") + 1))
    step "$(wc -l <"$out/checks") checks on machine $machine"
done
echo "1..$total"
: >"$out/results"
verdict() { # verdict ok|"not ok" TEXT
    count=$((count + 1))
    echo "$1 $count - $2"
    [[ $1 == ok ]] || failed=$((failed + 1))
}
check_ended() { # check_ended RESULT-LINE
    local name expected got parameters
    IFS='|' read -r _ name expected got parameters <<<"$1"
    seen=$((seen + 1))
    echo "$machine|$name|$expected|$got|$parameters" >>"$out/results"
    if [[ $got == "$expected" ]]; then
        verdict ok "$machine: $name ($got)"
    else
        verdict "not ok" "$machine: $name: $got, not $expected ($parameters)"
    fi
}
for machine in $machines; do
    checks_on "$machine" >"$out/checks"
    to_do "$machine" >"$out/checks.to_do"
    initrd "$out/checks.to_do"
    said=$out/machine-$machine.log
    # Of an idle machine's time, ten times as much. --smoke gives up sooner.
    limit=$(left_of_time $((300 + 10 * (seconds + 2) * $(wc -l <"$out/checks"))))
    seen=0 started=$SECONDS
    while IFS= read -r line; do
        check_ended "$line"
    done < <(known "$machine")
    while IFS= read -r line; do
        printf '%s\n' "$line" >>"$said.new"
        case $line in
            RESULT\|*)
                check_ended "$line"
                [[ -z $state ]] || echo "$modules|$machine|${line#RESULT|}" >>"$state" ;;
        esac
    done < <(: >"$said.new"; boot "$machine" "$limit")
    mv "$said.new" "$said"
    left=$(($(wc -l <"$out/checks") - seen))
    if ((left)); then
        grep -qa 'KERNEL [0-9]' "$said" || fail "the emulated machine $machine does not boot: see $said"
        # With --smoke, to be late is no failure, unless a check or the kernel has said that something is wrong. The torture itself
        # notices a lock that hangs.
        if ((within && failed == 0)) && ! grep -qaE 'BUG|Oops|Kernel panic' "$said"; then
            fail "this machine is too slow: $seen of $((seen + left)) checks in $((SECONDS - started)) s, all as expected"
        fi
        count=$((count + left - 1)) failed=$((failed + left - 1))
        verdict "not ok" "$machine: the machine stopped before $left checks had ended: see $said"
    fi
    # With --smoke: the checks have ended as expected, and the time was over before the kernel's log was looked at.
    if ((within && failed == 0)) && ! grep -qa '^DONE' "$said" && ! grep -qaE 'NOTICED|BUG|Oops|Kernel panic' "$said"; then
        fail "this machine is too slow: all checks in $((SECONDS - started)) s as expected, but the kernel's log was not seen"
    fi
    if grep -qa '^SILENT' "$said" && grep -qa '^UNLOADED' "$said"; then
        verdict ok "$machine: the kernel has noticed nothing"
    else
        verdict "not ok" "$machine: the kernel has noticed something, or the module does not unload: see $said"
    fi
done

# ---- The table: a lock in each row, a machine in each column, and how many of its checks ended as expected.

echo "#"
awk -F'|' '
    { split($2, part, " "); lock = part[2]; machine = $1
      if (!(lock in rows)) { rows[lock] = 1; order[++n] = lock }
      if (!(machine in seen)) { seen[machine] = 1; column[++m] = machine }
      all[lock, machine]++; good[lock, machine] += $3 == $4 }
    END { printf "# %-22s", "lock"; for (j = 1; j <= m; j++) printf "%10s", column[j]; print ""
          for (i = 1; i <= n; i++) { printf "# %-22s", order[i]
              for (j = 1; j <= m; j++) 
                  printf "%10s", (order[i], column[j]) in all ? good[order[i], column[j]] "/" all[order[i], column[j]] : "-"
              print "" } }
' "$out/results"
if [[ -n $json ]]; then
    awk -F'|' 'BEGIN { print "[" } { gsub(/"/, "\\\"")
        printf "%s  {\"machine\": \"%s\", \"check\": \"%s\", \"expected\": \"%s\", \"got\": \"%s\", \"parameters\": \"%s\"}",
            (NR > 1 ? ",\n" : ""), $1, $2, $3, $4, $5 } END { print "\n]" }' "$out/results" >"$json"
fi
echo "# $((count - failed)) passed, $failed failed"
((failed == 0))
