# shellcheck shell=bash
# Sourced by real-programs.sh: `latchwork tune` on each program, and the table of what it found.

# One run of a program for `latchwork tune`, which has put the locks into the surroundings. The figure goes to stdout.
tuned_run() { # program
    local dir
    dir=$(mktemp -d "$RP_SCRATCH/latchwork.XXXXXX")
    # shellcheck disable=SC2064
    trap "rm -rf '$dir'" EXIT
    # A shell of its own, because a program that fails ends its shell.
    RP_DIR=$dir "$BASH" "$SELF" __one "$1" >"$dir/script.log" 2>&1 || true
    if ! grep -q '^ok ' "$dir/result" 2>/dev/null; then
        cat "$dir/result" 2>/dev/null || tail -n 1 "$dir/script.log"
        exit 1
    fi
    sed -E 's/^ok ([^ ]+).*/figure \1/' "$dir/result"
}

# Writes DIR/NAME.toml (if there is something to write), DIR/NAME.json and DIR/NAME.log for each program.
tune_all() {
    local program name
    prepare_to_run
    [[ -z ${LATCHWORK_PRELOAD:-} ]] || die "tune needs the command latchwork: unset LATCHWORK_PRELOAD"
    find_latchwork
    [[ $OUT != "$WORK/results" ]] || OUT=$WORK/tuned
    mkdir -p "$OUT"
    OUT=$(readlink -f "$OUT")
    export RP_SECONDS=$SECONDS_EACH RP_SHRINK=1 RP_MUTEX=glibc RP_RWLOCK=glibc RP_LATCHWORK=$LATCHWORK RP_SCRATCH=$SCRATCH
    for program in $(chosen_programs); do
        # The program itself comes first among what it needs; the others are its clients.
        name=$(field "$(find_program "$program")" 2)
        if [[ -n $(missing_for "$(find_program "$program")") ]]; then
            echo "$program: left out, it is not installed"
            continue
        fi
        if [[ -n $RESUME && -s $OUT/$program.json ]]; then continue; fi
        echo "== $program"
        rm -f "$OUT/$program".{toml,json,log}
        "$LATCHWORK" tune --only "${name%% *}" --runs "$SEARCH_RUNS" --timeout "$LIMIT" --metric '^figure ([0-9.e+]+)' \
            --output "$OUT/$program.toml" --json "$OUT/$program.json" -- "$BASH" "$SELF" __tuned "$program" \
            2>&1 | tee "$OUT/$program.log" || [[ -s $OUT/$program.json ]] || echo "$program: tune ended with an error"
    done
    print_tuned
}

# The table. A program that `tune` leaves alone has no ratios.
print_tuned() {
    local program file
    echo '| program | glibc | best pair | to glibc | tuned | to glibc | to the pair | result |'
    echo '|---|---:|---|---:|---|---:|---:|---|'
    for program in $(chosen_programs); do
        file=$OUT/$program.json
        [[ ! -s $file ]] || jq -r --arg program "$program" --arg unit "$(field "$(find_program "$program")" 4)" '
            def to($locks; $glibc): .proof.against | map(select(.locks == $locks and (.what == "glibc") == $glibc)) | .[0]
                | if . == null or .ratio == null then "" else "\(.ratio * 100 | round / 100)" end;
            def number: if . == null then "" else round | tostring end;
            . as $all | (if .pair.rwlock == null then "`\(.pair.mutex)`" else "`\(.pair.mutex)` + `\(.pair.rwlock)`" end) as $pair
            | ([.classes[] | select(.lock != (if .kind == "rwlock" then $all.pair.rwlock else $all.pair.mutex end))]
                | map("`\(.lock)` for \(.name)") | join("; ")) as $own
            | "| \($program) | \(.proof.glibc | number) \($unit) | \($pair) | \(to("pair"; true)) | \($own) | \(
                to("tuned"; true)) | \(to("tuned"; false)) | \(.result) |"' "$file"
    done
}
