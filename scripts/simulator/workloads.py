#!/usr/bin/env python3
"""How often does the simulator order locks as a machine does, on every workload? Measures, simulates the same, and compares.

workloads.py measure DIR     measures this machine: some 12 minutes, in which nothing else should run; goes on where it stopped
workloads.py simulate DIR    simulates the same, also beside other work, and prints a table in Markdown; also on another machine

`measure` begins with `latchwork-lab calibrate` and keeps the profile in DIR. It needs latchwork-lab in the PATH. `simulate` does
again what another build of latchwork-lab, or another profile, has simulated. Pairs of locks are compared by two
rules, as `latchwork-lab reproduce --only simulator` does: those whose medians differ by over 20%, and those that differ by over
20% in each of three rounds.
"""
import argparse
import hashlib
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

MUTEXES = "tas,ttas,ticket,mcs,clh,hemlock,qspinlock,cna,fissile,mcs-park,malthusian,mutexee,hybrid,shfl-spin,shfl"
RWLOCKS = "pf-t,pf-q,mcs-rw,percpu,rwsem,cohort-rw,shfl-rw,bravo-pf-q,bravo-2d-shfl-rw,glibc-rw-model"
BOTH = MUTEXES + "," + RWLOCKS
# Name, workload and settings, locks, numbers of threads.
CASES = [
    ("counter", "counter", MUTEXES, "1,2,3,4,8,16"),
    ("counter, sections of 5 us, pauses of 2 us", "counter --set hold=5us --set gap=2us", MUTEXES, "2,4,8"),
    ("hash-table, 1% writes", "hash-table", BOTH, "1,2,3,4,8,16"),
    ("hash-table, half writes", "hash-table --set writes=50%", RWLOCKS, "2,3,4,8"),
    ("rwbench, 1 of 10,000 writes", "rwbench", RWLOCKS, "1,2,3,4,8,16"),
    ("rwbench, 1 of 100", "rwbench --set writes=1/100", RWLOCKS, "2,4"),
    ("rwbench, 1 of 2", "rwbench --set writes=1/2", RWLOCKS, "2,4"),
    ("oversubscribe", "oversubscribe", MUTEXES, "2,4,8,16"),
    ("barrier", "barrier", MUTEXES, "2,4"),
    ("readrandom", "readrandom", MUTEXES, "2,4"),
    ("lock-per-node", "lock-per-node", BOTH, "2,4"),
    ("locktorture", "locktorture", RWLOCKS, "2,4"),
    ("snapshot", "snapshot", RWLOCKS, "2,4"),
    ("alternator", "alternator", RWLOCKS, "2,4"),
    ("test-rwlock", "test-rwlock", RWLOCKS, "2,4"),
    ("interference", "interference", RWLOCKS, "64"),
    ("readwhilewriting", "readwhilewriting", RWLOCKS, "2,4"),
    ("page-fault", "page-fault", RWLOCKS, "2,4"),
    ("mmap", "mmap", RWLOCKS, "2,4"),
    ("wc", "wc", RWLOCKS, "2,4"),
    ("wrmem", "wrmem", RWLOCKS, "2,4"),
    ("file-sections", "file-sections", RWLOCKS, "2,4"),
    ("interpreter", "interpreter", MUTEXES, "2,4"),
    ("thread-pool", "thread-pool", MUTEXES, "2,4"),
    ("queue", "queue", MUTEXES, "1,4"),
    ("yield-inside", "yield-inside", MUTEXES, "2,4"),
]
ROUNDS, DIFFER = 3, 1.2


def lab(*words):
    subprocess.run(["latchwork-lab", *words], check=True, stdout=subprocess.DEVNULL)


def digest(*parts):
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]


def label(kind, directory):
    """Begins the names of files of this kind. A simulation depends on the program and on the profile."""
    if kind == "measured":
        return kind
    program = shutil.which("latchwork-lab") or sys.exit("latchwork-lab is not in the PATH")
    return f"{kind}-{digest(pathlib.Path(program).read_bytes(), (directory / 'profile.toml').read_bytes())}"


def place(directory, label, case, count):
    """The file of a case with so many threads. Cases that come and go do not change the names of others."""
    _, words, locks, _ = case
    readable = re.sub(r"[^a-z0-9]+", "-", words.replace("--set ", ""))
    return directory / f"{label}-{readable}-{digest(words.encode(), locks.encode())}-{count}.json"


def run(directory, kind, seconds, more):
    """Every case and number of threads that DIR does not have yet; `seconds` by number of threads."""
    start = label(kind, directory)
    for case in CASES:
        name, words, locks, threads = case
        for count in threads.split(","):
            path = place(directory, start, case, count)
            if path.exists():
                continue
            print(f"{kind}: {name}, {count} threads", file=sys.stderr)
            fresh = path.with_suffix(".new")
            lab({"measured": "bench", "simulated": "simulate"}[kind], *words.split(), "--locks", locks, "--threads", count,
                "--seconds", str(seconds(int(count))), "--runs", str(ROUNDS), "--json", str(fresh), *more)
            fresh.rename(path)


def rates(path):
    points = json.loads(path.read_text())["points"]
    return {p["lock"]: [r["ops_per_s"] for r in p["runs"]] for p in points if not p["failure"] and p["runs"]}


def compare(measured, simulated):
    """How many pairs there are and how many are in the same order, by the first rule and by the second; those that are not."""
    counts, wrong = [0, 0, 0, 0], []
    locks = [lock for lock in measured if lock in simulated]
    middle = {lock: statistics.median(measured[lock]) for lock in locks}
    ours = {lock: statistics.median(simulated[lock]) for lock in locks}
    for fast in locks:
        for slow in locks:
            if middle[fast] <= DIFFER * middle[slow]:
                continue
            same = ours[fast] > ours[slow]
            counts[0] += 1
            counts[1] += same
            if min(measured[fast]) > DIFFER * max(measured[slow]):
                counts[2] += 1
                counts[3] += same
                if not same:
                    wrong.append((fast, slow, middle[fast] / middle[slow], ours[fast] / ours[slow]))
    return counts, wrong


def share(of, agree):
    return f"{agree:,} of {of:,}: {100 * agree / of:.1f}%" if of else "none"


def table(directory):
    total, wrong = [0, 0, 0, 0], []
    print("| workload | threads | first rule | second rule |\n|---|---|---|---|")
    labels = [label(kind, directory) for kind in ("measured", "simulated")]
    for case in CASES:
        name, _, _, threads = case
        sums = [0, 0, 0, 0]
        for count in threads.split(","):
            paths = [place(directory, start, case, count) for start in labels]
            if not all(path.exists() for path in paths):
                sys.exit(f"{directory} has no {name} with {count} threads: it was not measured to the end")
            counts, others = compare(*map(rates, paths))
            sums = [a + b for a, b in zip(sums, counts)]
            wrong += [(name, count, *other) for other in others]
        print(f"| {name} | {threads} | {share(*sums[:2])} | {share(*sums[2:])} |")
        total = [a + b for a, b in zip(total, sums)]
    print(f"| all | | {share(*total[:2])} | {share(*total[2:])} |")
    print("\n| workload | threads | measured faster | measured slower | measured | simulated |\n|---|---|---|---|---|---|")
    for name, count, fast, slow, measured, simulated in wrong:
        print(f"| {name} | {count} | {fast} | {slow} | {measured:.3g} | {simulated:.3g} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["measure", "simulate"])
    parser.add_argument("directory", type=pathlib.Path)
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    profile = options.directory / "profile.toml"
    if options.what == "measure":
        if not profile.exists():
            lab("calibrate", "--output", str(profile))
        run(options.directory, "measured", lambda threads: 0.05 if threads <= 2 else 0.2, ["--cut", "0.01"])
    else:
        run(options.directory, "simulated", lambda threads: 0.02 if threads <= 2 else 0.1, ["--machine", str(profile)])
        table(options.directory)


main()
