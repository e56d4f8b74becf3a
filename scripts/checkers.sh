#!/usr/bin/env bash
# Compares `latchwork check` with other checkers of locks: which mistakes of scripts/checkers/cases.c each reports, what each reports
# that is none, and what an uncontended pair of lock and unlock costs under it. Prints a table for docs/cli.md.
# Needs gcc and valgrind; ThreadSanitizer comes with gcc.
set -euo pipefail
script=$(readlink -f "$0")
cd "$(dirname "$script")/.."
case ${1:-} in
'') ;;
*) sed -n '2,5s/^# //p' "$script"; [[ $1 == --help || $1 == -h ]] && exit 0; exit 2 ;;
esac
for tool in gcc valgrind cargo; do
    command -v "$tool" >/dev/null || { echo "checkers.sh: $tool is missing" >&2; exit 1; }
done
cargo build --quiet --release -p latchwork-cli -p latchwork-preload
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
latchwork=$(cargo metadata --format-version 1 --no-deps --offline | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/release/latchwork
gcc -g -O1 -o "$work/plain" scripts/checkers/cases.c -lpthread
gcc -g -O1 -fsanitize=thread -o "$work/tsan" scripts/checkers/cases.c -lpthread

tools=(check helgrind drd tsan)
under() { # TOOL CASE...
    local tool=$1
    shift
    case $tool in
    none) set -- "$work/plain" "$@" ;;
    check) set -- "$latchwork" check --mutex glibc --rwlock glibc --error-exitcode 9 -- "$work/plain" "$@" ;;
    helgrind | drd) set -- valgrind -q --tool="$tool" --error-exitcode=9 "$work/plain" "$@" ;;
    tsan) set -- env TSAN_OPTIONS="exitcode=9 detect_deadlocks=1" "$work/tsan" "$@" ;;
    esac
    timeout 60 "$@"
}
reports() { # TOOL CASE: yes or no
    local status=0
    under "$1" "$2" >/dev/null 2>"$work/log" || status=$?
    case $status in
    0) echo no ;;
    9) echo yes ;;
    *) echo "checkers.sh: $2 under $1 ended with status $status:" >&2; cat "$work/log" >&2; exit 1 ;;
    esac
}
row() { # WORDS CASE
    local line="| $1 |" tool
    for tool in "${tools[@]}"; do line+=" $(reports "$tool" "$2") |"; done
    echo "$line"
}
echo '| | `latchwork check` | Helgrind | DRD | ThreadSanitizer |'
echo '|---|---|---|---|---|'
row 'two mutexes in both orders' inversion
row 'three mutexes in a circle' chain
row 'two reader-writer locks in both orders' rwlocks
row 'a deadlock with oneself, with a deadline' self
row 'an unlock by another thread' stranger
row 'an unlock of a free mutex' free
row 'a wait for a condition without the mutex' wait
row 'a thread that ends while it holds a mutex' ended
row 'a mutex destroyed while it is held' destroyed
row 'no mistake: both orders under a third lock' gate
row 'no mistake: the second order is an attempt' attempt
row 'no mistake: two readers in both orders' readers
row 'no mistake: another lock in the same memory' reuse
line='| an uncontended pair, ns (without a checker: '
line+="$(under none cost 3000000)) |"
for tool in "${tools[@]}"; do line+=" $(under "$tool" cost 30000 2>/dev/null) |"; done
echo "$line"
echo '| needs another build of the program | no | no | no | yes |'
