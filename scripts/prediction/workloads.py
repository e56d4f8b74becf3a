#!/usr/bin/env python3
"""How far can `latchwork predict` be trusted for the workloads of `latchwork-lab bench`?

workloads.py [--seconds S] [--runs N] [--only A,B,..] [--most N] [--calibrate N] [--measured DIR] [--measure-only]: writes a table in
Markdown to stdout. It needs latchwork and latchwork-lab in the PATH, a profile by `latchwork-lab calibrate`, and an otherwise idle machine.
--most leaves out recordings with more threads. --measured keeps measurements and traces in a directory, or takes them from there, so that a
changed predictor can be tried without measuring again.

--calibrate makes a profile before and after each case, and repeats the case, up to N times, if a cache line moved between two CPUs
in another time after it than before it: the CPUs of a virtual machine may share a core at times.

Each workload runs with n/2 threads under glibc's locks, recorded; the prediction is for n threads, on the machine's own profile. The
measurement with n threads has glibc's locks and those of `latchwork run` in turns, without the recorder. A workload counts
operations, a prediction acquisitions: the recorded run says how many acquisitions an operation has.
"""
import argparse
import array
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tomllib

import common

MUTEX, RWLOCK = "glibc", "glibc-rw"
CASES = [(name, MUTEX) for name in ["counter", "hash-table", "oversubscribe", "readrandom", "lock-per-node", "barrier", "queue", "interpreter", "thread-pool"]]
CASES += [(name, RWLOCK) for name in ["rwbench", "locktorture", "test-rwlock", "alternator", "file-sections"]]
PAIRS = [(1, 2), (2, 4), (4, 8)]
ACQUIRES, SLEEPS = (1, 2, 10), (4, 5)


STEADY = 1.5


def run(words, config=None):
    env = {**os.environ, "XDG_CONFIG_HOME": str(config)} if config else None
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, env=env)


def transfer(config):
    """Makes a profile; returns what a load of a line takes that another CPU has written, or 0 if the calibration failed."""
    path = config / "latchwork" / "this-machine.toml"
    path.unlink(missing_ok=True)
    if run(["latchwork-lab", "calibrate"], config).returncode:
        return 0
    return tomllib.loads(path.read_text())["lines"]["cluster_modified"]["value"]


def rate(path):
    """Operations a second; 0 if the run failed."""
    point = json.loads(path.read_text())["points"][0]
    return 0 if point["failure"] else point["ops_per_s"]["median"]


def acquisitions(path):
    """Acquisitions a second that the program asked for, as the trace has them."""
    with open(path, "rb") as file:
        file.readline()
        about = json.loads(file.readline())
        words = array.array("I", file.read())
    conditions = {index for index, name in enumerate(about["objects"]) if about["classes"][name]["kind"] == "condvar"}
    count, slept = 0, False
    for what in words[0::4]:
        op, thing = what >> 28, what & 0xFFFFFFF
        count += op in ACQUIRES and not slept
        slept = op in SLEEPS and thing in conditions
    return count / about["seconds"]


def measure(args, keep):
    measured = {}
    chosen = args.only.split(",") if args.only else [name for name, _ in CASES]
    for name, lock in CASES:
        for half, full in PAIRS if name in chosen else []:
            if half > args.most:
                continue
            trace, out = keep / f"{name}-{half}.lw", keep / "out.json"

            def ops(before, threads):
                bench = ["latchwork-lab", "bench", name, "--json", out, "--seconds", args.seconds, "--locks", lock]
                # A run that crashes writes no file, and must not find that of the run before it.
                out.unlink(missing_ok=True)
                done = run([*before, *bench, "--threads", threads, "--runs", 1])
                return 0 if done.returncode else rate(out)

            for _ in range(max(args.calibrate, 1)):
                before = transfer(keep / trace.stem) if args.calibrate else 1
                plain, recorded = ops([], half), ops(["latchwork", "record", "-o", trace, "--"], half)
                both = [(ops([], full), ops(["latchwork", "run", "--"], full)) for _ in range(args.runs)]
                after = transfer(keep / "after") if args.calibrate else 1
                if max(before, after) < STEADY * min(before, after):
                    break
            else:
                print(f"{name}, {half}: left out, each time the machine changed or the calibration failed", file=sys.stderr)
                continue
            if not min(plain, recorded, *(min(pair) for pair in both)):
                print(f"{name}, {half}: left out, a run failed", file=sys.stderr)
                continue
            measured[f"{name}, {half} to {full}"] = {
                "trace": trace.name,
                "threads": full,
                "plain": plain,
                "recorded": recorded,
                "glibc": statistics.median(pair[0] for pair in both),
                "latchwork": statistics.median(pair[1] for pair in both),
            }
    (keep / "measured.json").write_text(json.dumps(measured, indent=1))


def predict(keep, acquisitions_each):
    machine = os.environ.get("MACHINE", "this-machine")
    for name, case in json.loads((keep / "measured.json").read_text()).items():
        words = ["latchwork-lab", "predict", keep / case["trace"], "--machine", machine, "--recorded-on", machine]
        words += ["--acquisitions", acquisitions_each]
        config = keep / pathlib.Path(case["trace"]).stem
        done = run([*words, "--threads", case["threads"], "--json", "-"], config if config.exists() else None)
        if done.returncode not in (0, 1):
            print(f"{name}: {done.stderr}", file=sys.stderr)
            continue
        report = json.loads(done.stdout)
        each = acquisitions(keep / case["trace"]) / case["recorded"]
        curves = [] if report["refused"] else [curve["points"][-1]["throughput"] / each for curve in report["curves"]]
        yield {"case": name, **case, "check": report["check"], "predicted": curves}


def number(value):
    return f"{value / 1e3:.0f} k/s" if value >= 1e4 else f"{value:.0f}/s"


def table(results):
    print("| workload, threads | fit of the replay | glibc: measured | predicted | error | latchwork: measured | predicted | error | order |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---|")
    errors, ordered = [], []
    for row in results:
        check, cells = row["check"], [row["case"]]
        fit = check["replayed_throughput"] / max(check["recorded_throughput"], 1e-9) - 1
        points = [(check[f"replayed_{what}"] - check[f"recorded_{what}"]) * 100 for what in ("waiting", "sleeping")]
        cells.append(f"{fit:+.0%}, {points[0]:+.0f} and {points[1]:+.0f} points")
        for at, lock in enumerate(["glibc", "latchwork"]):
            cells.append(number(row[lock]))
            if row["predicted"]:
                error = row["predicted"][at] / row[lock] - 1
                errors.append(abs(error))
                cells += [number(row["predicted"][at]), f"{error:+.0%}"]
            else:
                cells += ["refused", ""]
        print("| " + " | ".join([*cells, common.order(row, row["predicted"], ordered)]) + " |")
    summary = common.summary(results, sum(not row["predicted"] for row in results), errors, ordered)
    cost = [row["recorded"] / row["plain"] for row in results]
    print(f"\n{summary} Recorded to not recorded, one run each: median {statistics.median(cost):.2f}.")


def report(args, keep):
    table(list(predict(keep, args.acquisitions)))


parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=0.25)
parser.add_argument("--runs", type=int, default=2)
parser.add_argument("--only")
parser.add_argument("--most", type=int, default=4, help="threads of a recording")
parser.add_argument("--calibrate", type=int, default=0, metavar="N")
common.main(parser, measure, report)
