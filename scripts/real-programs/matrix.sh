# shellcheck shell=bash
# Sourced by real-programs.sh: which programs under which locks, the results and the table.

field() { cut -d'|' -f"$2" <<<"$1"; }

find_program() {
    local line
    for line in "${PROGRAMS[@]}"; do
        [[ ${line%%|*} != "$1" ]] || { echo "$line"; return; }
    done
    die "no program '$1'; there are: $(printf '%s\n' "${PROGRAMS[@]%%|*}" | paste -sd' ')"
}

chosen_programs() {
    local name
    if [[ -z $ONLY ]]; then
        printf '%s\n' "${PROGRAMS[@]%%|*}"
    else
        for name in ${ONLY//,/ }; do field "$(find_program "$name")" 1; done
    fi
}

missing_for() {
    local command
    for command in $(field "$1" 2); do
        [[ -x $WORK/bin/$command ]] || command -v "$command" >/dev/null || echo "$command"
    done
}

list_programs() {
    local line missing
    for line in "${PROGRAMS[@]}"; do
        missing=$(missing_for "$line" | paste -sd' ')
        printf '%-17s %-13s %s%s\n' "${line%%|*}" "$(field "$line" 3)" "$(field "$line" 5)" \
            "${missing:+  [missing: $missing]}"
    done
}

find_latchwork() {
    LATCHWORK='' QUEUE_SPINNING=''
    [[ $MUTEXES$RWLOCKS$PAIRS != nonenonenone ]] || return 0
    if [[ -n ${LATCHWORK_PRELOAD:-} ]]; then
        LATCHWORK_PRELOAD=$(readlink -e "$LATCHWORK_PRELOAD") || die "LATCHWORK_PRELOAD: no such file"
        export LATCHWORK_PRELOAD
        return
    fi
    echo 'building latchwork' >&2
    (cd "$ROOT" && cargo build --release --quiet --package latchwork-cli) || die "cargo build --release --package latchwork-cli failed in $ROOT"
    LATCHWORK=$(cd "$ROOT" && cargo metadata --format-version 1 --no-deps --offline \
        | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/release/latchwork
    [[ -x $LATCHWORK ]] || die "$LATCHWORK was not built"
    QUEUE_SPINNING=$("$LATCHWORK" list --json \
        | jq -r '.[] | select((.blocking | not) and .fairness != "none").name' | paste -sd' ')
}

# The names of one kind: those asked for, else all.
names() { # kind asked
    local all='' name
    [[ $2 != none ]] || return 0
    if [[ -n $LATCHWORK ]]; then
        all=$("$LATCHWORK" list --json | jq -r --arg kind "$1" '.[] | select(.kind == $kind).name')
    elif [[ -z $2 ]]; then
        die "with LATCHWORK_PRELOAD the locks must be named: --mutex A,B --rwlock A,B (or none)"
    fi
    if [[ -z $2 ]]; then
        echo "$all"
        return
    fi
    for name in ${2//,/ }; do
        [[ -z $all || $name == glibc ]] || grep -qxF -- "$name" <<<"$all" \
            || die "no $1 '$name'; there are: $(paste -sd' ' <<<"$all")"
        [[ $name == glibc ]] || echo "$name"
    done
}

# Lines "mutex rwlock": the columns of the table.
columns() {
    local name pair
    echo 'glibc glibc'
    for name in $(names mutex "$MUTEXES"); do echo "$name glibc"; done
    for name in $(names rwlock "$RWLOCKS"); do echo "glibc $name"; done
    [[ $PAIRS != none ]] || return 0
    for pair in ${PAIRS//,/ }; do
        [[ $pair == *+* ]] || die "--pair takes MUTEX+RWLOCK, not '$pair'"
        echo "$(names mutex "${pair%%+*}") $(names rwlock "${pair#*+}")"
    done
}

# Whether a run would differ from one that is made anyhow.
is_useful() { # kinds mutex rwlock
    [[ -n $EVERY || "$2$3" == glibcglibc ]] && return 0
    [[ $2 == glibc || $1 == *mutex* ]] && [[ $3 == glibc || $1 == *rwlock* ]]
}

# Lines "program mutex rwlock" in the order in which they run, one round.
plan() {
    local program kinds mutex rwlock columns
    columns=$(columns)
    for program in $(chosen_programs); do
        kinds=$(field "$(find_program "$program")" 3)
        while read -r mutex rwlock; do
            if is_useful "$kinds" "$mutex" "$rwlock"; then echo "$program $mutex $rwlock"; fi
        done <<<"$columns"
    done
}

# Seconds that a plan takes, from earlier results where there are some.
estimate() {
    local known='{}'
    [[ ! -e $OUT/results.json ]] || known=$(jq --argjson seconds "$SECONDS_EACH" '. as $all | [.runs[] | {
        key: "\(.program) \(.mutex) \(.rwlock)", value: (.wall_s * $seconds / $all.seconds)}] | from_entries' "$OUT/results.json")
    jq -Rn --argjson known "$known" --argjson default $((SECONDS_EACH + 2)) --argjson runs "$RUNS" \
        '[inputs | $known[.] // $default] | add * $runs | ceil' <<<"$1"
}

# The commit that the locks were built from: the last one that changed them.
source_commit() {
    local commit
    commit=$(git -C "$ROOT" log -1 --format=%h -- crates Cargo.lock 2>/dev/null) || commit=unknown
    git -C "$ROOT" diff --quiet HEAD -- crates Cargo.lock 2>/dev/null || commit+=-dirty
    echo "$commit"
}

machine() {
    local versions
    versions=$(for package in "${MEASURED_PACKAGES[@]}"; do
        dpkg-query -W -f '${Package} ${Version}\n' "$package" 2>/dev/null || true
    done
    for source in leveldb sqlite3; do
        sed -nE "s/^Version: /$source (source) /p" "$WORK/src/${source}"_*.dsc 2>/dev/null | head -n 1 || true
    done)
    # shellcheck disable=SC1091
    jq -n --arg cpu "$(sed -n 's/^model name\s*: //p' /proc/cpuinfo | head -n 1)" --argjson cores "$(nproc)" \
        --arg kernel "$(uname -sr)" --arg libc "$(getconf GNU_LIBC_VERSION)" \
        --arg system "$(. /etc/os-release && echo "$PRETTY_NAME")" --arg versions "$versions" \
        --arg load "$(cut -d' ' -f1 /proc/loadavg)" --arg date "$(date -u +%F)" \
        --arg commit "$(source_commit)" \
        --argjson seconds "$SECONDS_EACH" --argjson rounds "$RUNS" --argjson limit "$LIMIT" \
        '{machine: {$cpu, $cores, $kernel, $libc, $system, load_at_start: $load}, $date, $commit, $seconds, $rounds,
          limit_s: $limit, packages: ($versions | split("\n"))}'
}

finish() {
    local status=$?
    trap - EXIT INT TERM
    [[ -z ${SESSION:-} ]] || end_session "$SESSION"
    [[ -z ${RUN_DIR:-} ]] || rm -rf "$RUN_DIR"
    if [[ -s $OUT/runs.jsonl ]]; then
        jq -s '.[0] + {runs: .[1:]}' "$OUT/machine.json" "$OUT/runs.jsonl" >"$OUT/results.json"
        echo
        DOC='' print_table || true
        echo
        jq -r '.runs | group_by(.status) | map("\(length) \(.[0].status)") | "runs: " + join(", ")' "$OUT/results.json"
        jq -r '.runs[] | select(.status != "ok") | "\(.status | ascii_upcase) \(.program) --mutex \(.mutex) --rwlock \(.rwlock): \(.note)"' \
            "$OUT/results.json"
        echo "results: $OUT/results.json"
        if [[ $status == 0 ]]; then
            status=$(jq 'if all(.runs[]; .status == "ok") then 0 else 1 end' "$OUT/results.json")
        fi
    fi
    exit "$status"
}

# Keeps the runs of $OUT if they were made with this length and these locks. Fills HAD: how many runs each "program mutex
# rwlock" has.
keep_earlier_runs() {
    local key count
    jq -es --argjson seconds "$SECONDS_EACH" --arg commit "$(source_commit)" '.[0] | .seconds == $seconds and .commit == $commit' \
        "$OUT/machine.json" >/dev/null || die "--resume: the runs in $OUT are of another length, or of other locks"
    while read -r count key; do HAD[$key]=$count; done \
        < <(jq -r '"\(.program) \(.mutex) \(.rwlock)"' "$OUT/runs.jsonl" | sort | uniq -c)
    # More rounds may be asked for than the first time.
    jq --argjson rounds "$RUNS" '.rounds = ([.rounds, $rounds] | max)' "$OUT/machine.json" >"$OUT/machine.new"
    mv "$OUT/machine.new" "$OUT/machine.json"
}

# What all commands that run programs need, and where these put their files.
prepare_to_run() {
    export PATH=$PATH:/usr/sbin:/sbin
    command -v jq >/dev/null || die "jq is missing; run: $0 install"
    if [[ -z $SCRATCH ]]; then
        SCRATCH=${TMPDIR:-/tmp}
        [[ ! -w /dev/shm ]] || SCRATCH=/dev/shm
    fi
}

run_matrix() {
    local work total done=0 round program mutex rwlock unit base='' line missing seconds
    local -A HAD=()
    if [[ -z $RESUME$DRY && -s $OUT/runs.jsonl ]]; then
        die "$OUT has the runs of another comparison: --resume adds to them, and --out takes another directory"
    fi
    prepare_to_run
    for program in $(chosen_programs); do
        missing=$(missing_for "$(find_program "$program")" | paste -sd' ')
        [[ -z $missing ]] || die "$program needs $missing; run: scripts/real-programs.sh install"
    done
    find_latchwork
    if [[ -z $PAIRS ]]; then
        PAIRS=shfl+bravo-pf-q
        # By default only if there are such locks, and if both kinds were to run.
        [[ $MUTEXES != none && $RWLOCKS != none && -n $LATCHWORK ]] \
            && (names mutex shfl && names rwlock bravo-pf-q) >/dev/null 2>&1 || PAIRS=none
    fi
    work=$(plan)
    total=$(($(wc -l <<<"$work") * RUNS))
    seconds=$(estimate "$work")
    echo "$total runs, about $(((seconds + 59) / 60)) minutes (at most $((total * LIMIT / 60)))"
    if [[ -n $DRY ]]; then
        echo "$work" | column -t -N program,mutex,rwlock
        return
    fi
    mkdir -p "$OUT"
    OUT=$(readlink -f "$OUT")
    if [[ -n $RESUME && -s $OUT/runs.jsonl ]]; then
        keep_earlier_runs
    else
        machine >"$OUT/machine.json"
        : >"$OUT/runs.jsonl"
    fi
    trap finish EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    for ((round = 1; round <= RUNS; round++)); do
        while read -r program mutex rwlock <&3; do
            done=$((done + 1))
            ((round > ${HAD["$program $mutex $rwlock"]:-0})) || continue
            printf '[%d/%d] %-17s %-12s %-12s ' "$done" "$total" "$program" "$mutex" "$rwlock"
            run_once "$program" "$mutex" "$rwlock"
            line=$(find_program "$program")
            unit=$(field "$line" 4)
            jq -cn --arg program "$program" --arg mutex "$mutex" --arg rwlock "$rwlock" --arg status "$STATUS" \
                --arg unit "$unit" --arg figure "$FIGURE" --arg beside "$BESIDE" --arg note "$NOTE" --argjson wall "$WALL" --argjson round "$round" \
                '{$program, $mutex, $rwlock, $round, $status, figure: ($figure | tonumber? // null), $unit,
                  beside: ($beside | tonumber? // null), wall_s: ($wall / 1000), $note}' >>"$OUT/runs.jsonl"
            if [[ $STATUS == ok ]]; then
                [[ $mutex$rwlock != glibcglibc ]] || base=$FIGURE
                printf 'ok %12.0f %s, %s x glibc, %d.%d s\n' "$FIGURE" "$unit" \
                    "$([[ -z $base ]] || printf %.3g "$(calc "$FIGURE / $base")")" $((WALL / 1000)) $((WALL % 1000 / 100))
            else
                [[ $mutex$rwlock != glibcglibc ]] || base=''
                printf '%s %s\n' "${STATUS^^}" "$NOTE"
            fi
        done 3<<<"$work"
    done
}

print_table() {
    [[ -e $OUT/results.json ]] || die "no $OUT/results.json; run: scripts/real-programs.sh run"
    local about first=/dev/null
    [[ -z $FIRST ]] || first=$FIRST/results.json
    [[ -e $first ]] || die "no $first: --first takes the --out of another run"
    about=$(printf '%s\n' "${PROGRAMS[@]}" | jq -R 'split("|") | {key: .[0], value: {unit: .[3], about: .[4], beside: .[5]}}' | jq -s from_entries)
    jq -r --argjson about "$about" --argjson doc "${DOC:-0}" --arg locks "$LOCKS" --slurpfile first "$first" --rawfile notes "$HERE/notes.md" -f "$HERE/table.jq" "$OUT/results.json"
}

# The judge judged: locks with a seeded mistake must be noticed, and for what they are.
self_test() {
    OUT=$WORK/selftest
    rm -rf "$OUT"
    mkdir -p "$OUT"
    OUT=$(readlink -f "$OUT")
    gcc -shared -fPIC -O2 -o "$OUT/broken.so" "$HERE/broken.c"
    LATCHWORK_PRELOAD=$OUT/broken.so "$BASH" "$SELF" run --out "$OUT" --seconds 1 --limit 15 \
        --only leveldb-empty,threadtest3,sysbench-mutex --mutex no-exclusion,lost-wakeup,lost-handover --rwlock none || true
    # A critical section without exclusion may fail, crash or hang; all that matters is that it is seen.
    jq -e '.runs | length == 12 and all(.[];
        if .mutex == "glibc" then .status == "ok"
        elif .mutex == "no-exclusion" then .status != "ok"
        elif .mutex == "lost-wakeup" then .status == "hang"
        else .status == "slow" end)' "$OUT/results.json" >/dev/null || die 'selftest: a seeded mistake was not noticed'
    echo 'selftest: every seeded mistake was noticed'
}
