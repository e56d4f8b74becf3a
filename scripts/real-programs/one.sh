# shellcheck shell=bash
# Sourced by real-programs.sh: one run of one program, and the watch over it.

# The child's side. Its surroundings come in RP_ variables; the result goes to the file `result`.
one() {
    cd "$RP_DIR"
    S=$RP_SECONDS SHRINK=$RP_SHRINK SERVER=''
    LOCKED=(env)
    if [[ $RP_MUTEX != glibc || $RP_RWLOCK != glibc ]]; then
        if [[ -n ${LATCHWORK_PRELOAD:-} ]]; then
            LOCKED=(env "LD_PRELOAD=$LATCHWORK_PRELOAD" "LATCHWORK_MUTEX=$RP_MUTEX" "LATCHWORK_RWLOCK=$RP_RWLOCK")
        else
            LOCKED=("$RP_LATCHWORK" run --mutex "$RP_MUTEX" --rwlock "$RP_RWLOCK" --)
        fi
    fi
    trap '[[ -z $SERVER ]] || kill -KILL "$SERVER" 2>/dev/null || true' EXIT
    "run_${1//-/_}"
}

members() { ps -s "$1" -o pid= 2>/dev/null || true; }

# Whether a session has no thread that could go on by itself: none runs, or waits for a processor or a
# disk, in any of 20 looks over two seconds. (CPU time would not do: on a busy machine a thread that
# spins and yields gets hardly any.)
is_asleep() {
    local look pid name
    for ((look = 0; look < 20; look++)); do
        for pid in $(members "$1"); do
            name=$(cat "/proc/$pid/comm" 2>/dev/null) || continue
            [[ $name != bash && $name != sh && $name != sleep ]] || continue
            if cut -d')' -f2- "/proc/$pid/task/"*/stat 2>/dev/null | grep -q '^ [RD]'; then return 1; fi
        done
        sleep 0.1
    done
}

# Ends everything that a run has started: politely, then by force.
end_session() {
    local pids
    [[ -n $(members "$1") ]] || return 0
    kill -TERM -- "-$1" 2>/dev/null || true
    sleep 0.5
    pids=$(members "$1")
    # shellcheck disable=SC2086
    [[ -z $pids ]] || kill -KILL $pids 2>/dev/null || true
}

stacks() { # session file
    local pid name
    for pid in $(members "$1"); do
        name=$(cat "/proc/$pid/comm" 2>/dev/null) || continue
        [[ $name != bash && $name != sh ]] || continue
        echo "== $name ($pid): $(tr '\0' ' ' <"/proc/$pid/cmdline")"
        if command -v gdb >/dev/null; then
            timeout 60 gdb -p "$pid" -batch -nx -ex 'set debuginfod enabled off' -ex 'thread apply all bt 14' 2>&1 \
                | grep -vE '^(\[New LWP|warning:|$)' || true
        fi
    done >"$2"
}

# How much less counted work is done under these locks: where waiters spin in a queue, and there are
# more threads than cores, every turn may wait for a thread that is not running.
shrink() {
    local name
    for name in "$1" "$2"; do
        if [[ " $QUEUE_SPINNING " == *" $name "* ]]; then echo 10; return; fi
    done
    echo 1
}

# Runs a program once. Sets STATUS, FIGURE, BESIDE (a second figure, or nothing), NOTE and WALL.
run_once() { # program mutex rwlock
    local dir start now status name=$1 label="$1.$2.$3"
    dir=$(mktemp -d "$SCRATCH/latchwork.XXXXXX")
    RUN_DIR=$dir
    STATUS=fail FIGURE='' BESIDE='' NOTE=''
    start=$(date +%s%N)
    RP_DIR=$dir RP_SECONDS=$SECONDS_EACH RP_SHRINK=$(shrink "$2" "$3") RP_MUTEX=$2 RP_RWLOCK=$3 RP_LATCHWORK=$LATCHWORK \
        setsid "$BASH" "$SELF" __one "$name" >"$dir/script.log" 2>&1 </dev/null &
    SESSION=$!
    while kill -0 "$SESSION" 2>/dev/null; do
        sleep 0.1
        now=$(date +%s%N)
        if (((now - start) / 1000000000 >= LIMIT)); then
            if is_asleep "$SESSION"; then
                STATUS=hang NOTE="stopped after $LIMIT s, every thread was asleep"
            else
                STATUS=slow NOTE="stopped after $LIMIT s, still busy"
            fi
            stacks "$SESSION" "$OUT/$label.stacks"
            break
        fi
    done
    if [[ $STATUS == fail ]]; then
        status=0
        wait "$SESSION" || status=$?
        if [[ ! -e $dir/result ]]; then
            NOTE="the script ended with status $status: $(tail -n 1 "$dir/script.log")"
        else
            read -r STATUS NOTE <"$dir/result"
            if [[ $STATUS == ok ]]; then
                read -r FIGURE BESIDE <<<"$NOTE"
                NOTE=''
            fi
        fi
    fi
    WALL=$((($(date +%s%N) - start) / 1000000))
    end_session "$SESSION"
    wait "$SESSION" 2>/dev/null || true
    SESSION=''
    rm -rf "$OUT/$label.logs"
    if [[ $STATUS != ok ]]; then
        mkdir "$OUT/$label.logs"
        find "$dir" -maxdepth 1 -type f -size -2048k -exec cp {} "$OUT/$label.logs/" \;
    else
        rm -f "$OUT/$label.stacks"
    fi
    rm -rf "$dir"
    RUN_DIR=''
}
