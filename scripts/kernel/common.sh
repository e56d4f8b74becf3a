# What scripts/kernel.sh and scripts/kernel-patched.sh share, and in part scripts/aarch64.sh. They set $root before they read this file.

fail() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 2
}
step() { printf '# %s\n' "$*"; }

target_directory() { # where cargo builds
    (cd "$root" && cargo metadata --format-version 1 --no-deps --offline | sed 's/.*"target_directory":"\([^"]*\)".*/\1/') ||
        fail "cargo does not say where it builds"
}

begin() { # begin SUFFIX: sets $out, $log and $pid_file; the files of the two scripts differ by the suffix
    out=$(target_directory)/kernel
    mkdir -p "$out"
    # One at a time: a second one would write over the files of the first one, and stop its machine at its end.
    exec 9>"$out/lock$1"
    flock -n 9 || fail "another scripts/${0##*/} runs in $out"
    pid_file=$out/machine$1.pid log=$out/log$1
    rm -f "$pid_file"
    : >"$log"
}

install_packages() { # install_packages MAY PACKAGE..: those that are missing, if MAY is 1 and this is root
    local may=$1 missing=() package
    for package in "${@:2}"; do
        if [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true) != installed ]]; then
            missing+=("$package")
        fi
    done
    if ((${#missing[@]})); then
        ((EUID == 0 && may)) || fail "missing: install them with  sudo apt-get install ${missing[*]}"
        step "installing ${missing[*]}"
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; } \
            >>"$log" 2>&1 || fail "the packages cannot be installed: see $log"
    fi
}

# The kernel's calling convention has no vector registers; interrupts use the memory below the stack pointer; kernel code
# lies in the upper 2 GiB of addresses. The targets of a jump table would need endbr64, and a jump by it a thunk.
flags='-Ctarget-feature=-sse,-sse2,-sse3 -Cno-redzone=yes -Ccode-model=kernel -Crelocation-model=static'
flags+=' -Cforce-unwind-tables=no -Cforce-frame-pointers=yes -Csymbol-mangling-version=v0'
flags+=' -Cllvm-args=--min-jump-table-entries=1000000'

replace() { # replace FROM TO: unless they are equal, so that make sees no change
    cmp -s "$1" "$2" || cp "$1" "$2"
}

check_locks() { # check_locks OBJECT WRONG: calls WRONG with what a kernel would not bear in the object
    local undefined code bad
    # The output of a tool is kept first: a tool that fails must not look like one that finds nothing.
    undefined=$(nm -u "$1") || fail "nm cannot read $1"
    code=$(objdump -d --no-show-raw-insn "$1") || fail "objdump cannot read $1"
    bad=$(awk '{ print $2 }' <<<"$undefined" | grep -vE '^(lw_k_|__x86_(return|indirect)_thunk)' || true)
    [[ -z $bad ]] || "$2" "the locks call what the kernel does not have: $bad"
    [[ ! $undefined =~ lw_k_a_lock_(allocates|frees) ]] || "$2" "a lock allocates memory"
    # The flags leave these out, but not in functions of Rust's own library, which was compiled without the flags.
    [[ ! $code =~ %[xyz]?mm[0-9]|$'\t'f ]] || "$2" "the locks use vector or floating-point registers, which belong to the user's program"
    [[ ! $code =~ -0x[0-9a-f]+\(%rsp ]] || "$2" "the locks use memory below the stack pointer, which an interrupt overwrites"
    # A stack of the kernel has 16 KiB, for all that is called.
    bad=$(awk '/^[0-9a-f]+ </ { name = $2 }
        match($0, /sub +\$0x[0-9a-f]+,%rsp/) { size = substr($0, RSTART, RLENGTH); gsub(/.*\$|,.*/, "", size)
            if (length(size) > 5 || size > "0x200" && length(size) == 5) print name, size }' <<<"$code")
    [[ -z $bad ]] || "$2" "functions with more than 512 bytes on the stack: $bad"
}

check_branches() { # check_branches OBJECT WRONG: calls WRONG with what a kernel with indirect branch tracking would not bear
    local functions code bad
    functions=$(functions_of "$1") || fail "nm cannot read $1"
    code=$(objdump -d --no-show-raw-insn "$1") || fail "objdump cannot read $1"
    # Which functions an indirect call reaches is not looked at: all of them begin so.
    bad=$(comm -23 <(echo "$functions") <(awk '/^[0-9a-f]+ </ { gsub(/[<>:]/, "", $2); name = $2; next }
        name != "" { if ($2 == "endbr64") print name; name = "" }' <<<"$code" | sort -u))
    [[ -n $functions && -z $bad ]] || "$2" "functions that do not begin with endbr64, so that an indirect call panics: ${bad:0:500}"
    bad=$(grep -E 'jmp +\*.*\(,' <<<"$code" || true)
    [[ -z $bad ]] || "$2" "the locks have jump tables, whose targets do not begin with endbr64: ${bad:0:500}"
}

check_unwinding() { # check_unwinding OBJECT MODULE WRONG: calls WRONG with the object's functions that the kernel cannot unwind through
    local relocations bad
    relocations=$(readelf -rW "$2") || fail "readelf cannot read $2"
    bad=$(comm -23 <(functions_of "$1") <(awk '/^Relocation section/ { orc = /orc_unwind_ip/ }
        orc && sub(/^\.text\.(unlikely\.)?/, "", $5) { print $5 }' <<<"$relocations" | sort -u))
    [[ -z $bad ]] || "$3" "functions without data for the ORC unwinder: ${bad:0:500}"
}

functions_of() { nm "$1" | awk 'NF == 3 && $2 ~ /^[tT]$/ { print $3 }' | sort; }

pack() { # pack DIRECTORY FILE: the directory as a memory disk
    (cd "$1" && find . | cpio -o -H newc --quiet | gzip -1) >"$2"
}

emulate() { # emulate MACHINE SECONDS MIB KERNEL DISK OPTIONS [ARGUMENT..]: boots a kernel; prints what the machine says
    local processors=${1%x*} half sockets='' numa=()
    if [[ $1 == *x2 ]]; then
        half=$((processors / 2))
        sockets=,sockets=2 # the kernel warns if the processors of a socket are on two nodes
        numa=(
            -object "memory-backend-ram,id=m0,size=$(($3 / 2))M" -object "memory-backend-ram,id=m1,size=$(($3 / 2))M"
            -numa "node,nodeid=0,cpus=0-$((half - 1)),memdev=m0"
            -numa "node,nodeid=1,cpus=$half-$((processors - 1)),memdev=m1"
        )
    fi
    timeout -k 5 "$2" qemu-system-x86_64 -pidfile "$pid_file" -accel tcg,thread=multi -cpu max -smp "$processors$sockets" -m "$3" \
        "${numa[@]}" "${@:7}" -nographic -no-reboot -plugin "$out/libyield.so" -kernel "$4" -initrd "$5" -append "$6" \
        </dev/null 2>&1 | sed -u 's/\r//g'
}

# If the script is stopped, the machine stops too. (A machine that ends by itself removes the file; the number of one that was
# killed may belong to another process by now.)
stop_machine() {
    local pid
    pid=$(cat "$pid_file" 2>/dev/null) || return 0
    if grep -qsaF "$pid_file" "/proc/$pid/cmdline"; then kill "$pid"; fi
}
