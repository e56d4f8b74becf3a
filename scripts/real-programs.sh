#!/usr/bin/env bash
# Runs programs that nobody here wrote under every lock, checks that they still work, and compares
# their speed with glibc's locks. See --help.
#
# One run of one program is one process group and session of its own, so that whatever it started
# can be ended, also when it hangs. The programs themselves are in real-programs/programs.sh.
set -euo pipefail
shopt -s inherit_errexit

SELF=$(readlink -f "${BASH_SOURCE[0]}")
HERE=${SELF%.sh}
ROOT=$(dirname "$(dirname "$SELF")")
export WORK=$ROOT/real-programs

usage() {
    cat <<'EOF'
Runs real programs under every lock and compares them with glibc.

usage: scripts/real-programs.sh COMMAND [OPTIONS]

commands:
  install   Install the programs from Debian packages, and build two from Debian source packages
            into real-programs/. Needs root (or sudo) for apt. Running it again does only what is
            missing.
  list      Show the programs: what they do, which kinds of lock they call, whether they are here.
  run       Run every program under every lock, check its result, write DIR/results.json and print
            a table. Exits with 1 if any run failed or did not end. Refuses if DIR has runs already,
            but for --resume.
  tune      Run `latchwork tune` on every program that is here, write its files to DIR, and print a
            table: glibc, the best pair of locks, and a lock for each lock. With --only, --seconds,
            --search, --limit, --resume, --scratch, --out.
  selftest  Run three programs under locks with seeded mistakes, and see that each is noticed.
  table     Print the table of DIR/results.json again; with --doc the whole docs/real-programs.md.

options:
  --only A,B      only these programs (see list)
  --mutex A,B     only these mutexes ("none": no mutex runs)   [all that `latchwork list` knows]
  --rwlock A,B    only these reader-writer locks ("none": no)  [all that `latchwork list` knows]
  --pair M+R,..   mutex and rwlock at once ("none": no)        [shfl+bravo-pf-q]
  --every         also run programs under a kind of lock that they hardly call
  --runs N        rounds; the table shows medians                                     [1]
  --seconds S     length of each run under glibc: time-bound programs run S seconds, the others
                  do about as much work                                               [3]
  --search N      with tune: at most N runs to search, for each program              [32]
  --resume        keep the runs that --out has, and make those that are missing (see below)
  --limit S       a run that has not ended after S seconds is stopped and recorded    [60]
  --out DIR       where results and logs go           [real-programs/results, of tune real-programs/tuned]
  --scratch DIR   where the programs put their databases; removed after each run
                                                            [/dev/shm, else $TMPDIR or /tmp]
  --doc           with table: the complete page
  --first DIR     with table --doc: the page begins with the table of the run whose --out was DIR
  --locks A,B,M + R,..  with table: only these columns, as they are called there
  -n, --dry-run   with run: print what would be run, and how long it will take

Each run is one of: ok; FAIL (wrong exit status or result); HANG (stopped at the limit, every
thread asleep); SLOW (stopped at the limit, still busy). With HANG and SLOW the stacks
are kept in DIR, if gdb is installed. Columns named after a mutex ran with glibc's rwlock, and the
other way round. Servers run under the lock, the clients that load them do not; they listen on
127.0.0.1 or a socket file only.

An interrupted `run` writes its results. With --resume and the same options it goes on there, so that
a long comparison may be cut into pieces. It refuses if the locks were changed since.

The locks come from `latchwork run` (built here with cargo). To try a library by hand set
LATCHWORK_PRELOAD=path/to/liblatchwork_preload.so.

examples:
  scripts/real-programs.sh install
  scripts/real-programs.sh run --only leveldb-empty,unbound --mutex shfl,mcs --rwlock bravo-pf-q
  scripts/real-programs.sh run --runs 3 --seconds 2 && scripts/real-programs.sh table --doc
  scripts/real-programs.sh run --every --mutex none --rwlock none --pair shfl+bravo-2d-shfl-rw --runs 9 --seconds 1
  scripts/real-programs.sh tune --seconds 1 --only cache_bench,mariadb
EOF
}

die() {
    echo "real-programs: $*" >&2
    exit 2
}

# shellcheck source-path=SCRIPTDIR source=real-programs/programs.sh
source "$HERE/programs.sh"
# shellcheck source-path=SCRIPTDIR source=real-programs/install.sh
source "$HERE/install.sh"
# shellcheck source-path=SCRIPTDIR source=real-programs/one.sh
source "$HERE/one.sh"
# shellcheck source-path=SCRIPTDIR source=real-programs/matrix.sh
source "$HERE/matrix.sh"
# shellcheck source-path=SCRIPTDIR source=real-programs/tune.sh
source "$HERE/tune.sh"

ONLY='' MUTEXES='' RWLOCKS='' PAIRS='' EVERY='' RUNS=1 SECONDS_EACH=3 LIMIT=60 DOC='' LOCKS='' FIRST='' DRY='' RESUME='' SEARCH_RUNS=32
OUT=$WORK/results SCRATCH=''

[[ $# -gt 0 ]] || { usage >&2; exit 2; }
COMMAND=$1
shift
if [[ $COMMAND == __one ]]; then
    one "$@"
    exit
elif [[ $COMMAND == __tuned ]]; then
    tuned_run "$@"
    exit
fi

whole() { [[ $2 =~ ^[1-9][0-9]*$ ]] || die "$1 takes a whole number above 0, not '$2'"; }
while [[ $# -gt 0 ]]; do
    case $1 in
        --*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}"; continue ;;
        --only | --mutex | --rwlock | --pair | --runs | --seconds | --search | --limit | --out | --scratch | --locks | --first)
            [[ $# -gt 1 ]] || die "$1 needs a value" ;;&
        --only) ONLY=$2; shift ;;
        --mutex) MUTEXES=$2; shift ;;
        --rwlock) RWLOCKS=$2; shift ;;
        --pair) PAIRS=$2; shift ;;
        --runs) whole "$1" "$2"; RUNS=$2; shift ;;
        --seconds) whole "$1" "$2"; SECONDS_EACH=$2; shift ;;
        --search) whole "$1" "$2"; SEARCH_RUNS=$2; shift ;;
        --limit) whole "$1" "$2"; LIMIT=$2; shift ;;
        --locks) LOCKS=$2; shift ;;
        --first) FIRST=$2; shift ;;
        --out) OUT=$2; shift ;;
        --scratch) SCRATCH=$2; shift ;;
        --every) EVERY=1 ;;
        --resume) RESUME=1 ;;
        --doc) DOC=1 ;;
        -n | --dry-run) DRY=1 ;;
        -h | --help) usage; exit ;;
        *) die "unknown option '$1'; --help lists them" ;;
    esac
    shift
done

case $COMMAND in
    install) install_all ;;
    list) list_programs ;;
    run) run_matrix ;;
    tune) tune_all ;;
    selftest) self_test ;;
    table) print_table ;;
    -h | --help | help) usage ;;
    *) die "unknown command '$COMMAND'; the commands are install, list, run, tune, table and selftest" ;;
esac
