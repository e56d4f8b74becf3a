#!/usr/bin/env python3
"""How far can `latchwork predict` be trusted? Measures a program with n threads, and predicts that from a recording with n/2.

validate.py [--seconds S] [--rounds N] [--json FILE] [--measured DIR] [--measure-only]: writes a table in Markdown to stdout. It needs latchwork and
latchwork-lab in the PATH, cc, and an otherwise idle machine. --measured keeps the measurements and the traces in a directory, or
takes them from there, so that a changed predictor can be tried without measuring again.

Each program of CASES runs with n/2 threads under `latchwork record`, and with n threads under glibc's locks and under the
recommended ones, without the recorder, ROUNDS times. The prediction for n threads is made on the machine's own profile.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import common

# Name (hold and think, in thousands of turns), and what comes after THREADS SECONDS.
CASES = [
    ("mutex 0.5/0.5", "500 500"),
    ("mutex 0.5/5", "500 5000"),
    ("mutex 3/3", "3000 3000"),
    ("mutex 3/15", "3000 15000"),
    ("mutex 15/15", "15000 15000"),
    ("mutex 15/150", "15000 150000"),
    ("mutex 100/100", "100000 100000"),
    ("8 mutexes 3/3", "3000 3000 -1 8"),
    ("rwlock, 90% reads, 3/3", "3000 3000 90"),
    ("rwlock, 99% reads, 0.5/0.5", "500 500 99"),
]
PAIRS = [(1, 2), (2, 4)]

# A case is measured again, up to so often, if other programs use so much of the machine's CPU time meanwhile.
TRIES, OTHERS = 3, 0.05


def output(words, **more):
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True, **more).stdout


def machine_seconds():
    """Seconds that the CPUs of the machine were busy, and that this script's ended children used, since each began."""
    busy = sum(int(field) for at, field in enumerate(pathlib.Path("/proc/stat").read_text().split()[1:9]) if at not in (3, 4))
    own = os.times()
    return busy / os.sysconf("SC_CLK_TCK"), own.user + own.system + own.children_user + own.children_system


def rate(text):
    return float(text.split()[-1])


def measure(args, keep):
    here = pathlib.Path(__file__).parent
    program = keep / "closed"
    output(["cc", "-O2", "-g", "-pthread", here / "closed.c", "-o", program])
    measured = {}
    for name, case in CASES:
        words = case.split()
        for half, full in PAIRS:
            trace = keep / f"{name.replace('/', '-').replace(' ', '_').replace('%', '').replace(',', '')}-{half}.lw"
            for _ in range(TRIES):
                before, start = machine_seconds(), time.monotonic()
                rates = {"glibc": [], "latchwork": [], "half": [], "recorded": []}
                for _ in range(args.rounds):
                    rates["glibc"].append(rate(output([program, full, args.seconds, *words])))
                    rates["latchwork"].append(rate(output(["latchwork", "run", "--", program, full, args.seconds, *words])))
                    rates["half"].append(rate(output([program, half, args.seconds, *words])))
                recorder = ["latchwork", "record", "-o", trace, "--"]
                rates["recorded"].append(rate(output([*recorder, program, half, args.seconds, *words])))
                after, seconds = machine_seconds(), time.monotonic() - start
                others = ((after[0] - before[0]) - (after[1] - before[1])) / (seconds * os.cpu_count())
                if others < OTHERS:
                    break
            else:
                print(f"{name}, {half} to {full}: left out, other programs used {others:.0%} of the machine", file=sys.stderr)
                continue
            measured[f"{name}, {half} to {full}"] = {
                "trace": trace.name,
                "threads": full,
                **{lock: statistics.median(values) for lock, values in rates.items()},
            }
            print(name, half, full, rates, file=sys.stderr)
    (keep / "measured.json").write_text(json.dumps(measured, indent=1))


def predict(keep, acquisitions):
    results = []
    for name, case in json.loads((keep / "measured.json").read_text()).items():
        # The machine's own profile, if it has been calibrated; the report says which one it was.
        words = ["latchwork-lab", "predict", keep / case["trace"], "--machine", os.environ.get("MACHINE", "this-machine")]
        words += ["--recorded-on", os.environ.get("MACHINE", "this-machine"), "--threads", case["threads"], "--json", "-"]
        words += ["--acquisitions", acquisitions]
        run = subprocess.run([str(word) for word in words], capture_output=True, text=True)
        if run.returncode not in (0, 1):
            sys.exit(run.stderr)
        report = json.loads(run.stdout)
        row = {"case": name, **case, "refused": report["refused"], "check": report["check"]}
        if not report["refused"]:
            for curve, lock in zip(report["curves"], ["glibc", "latchwork"]):
                row[f"predicted {lock}"] = curve["points"][-1]["throughput"]
        results.append(row)
    return results


def table(results):
    print("| program, threads | recorder | fit of the replay | glibc: measured | predicted | error | latchwork: measured | predicted | error | order |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---|")
    errors, ordered = [], []
    for row in results:
        check = row["check"]
        fit = check["replayed_throughput"] / check["recorded_throughput"] - 1
        points = (check["replayed_waiting"] - check["recorded_waiting"]) * 100
        cells = [row["case"], f"{row['recorded'] / row['half'] - 1:+.0%}", f"{fit:+.0%}, {points:+.0f} points"]
        for lock in ["glibc", "latchwork"]:
            predicted = row.get(f"predicted {lock}")
            error = predicted / row[lock] - 1 if predicted else None
            cells.append(f"{row[lock] / 1e3:.0f} k/s")
            cells += ["refused", ""] if predicted is None else [f"{predicted / 1e3:.0f} k/s", f"{error:+.0%}"]
            if predicted:
                errors.append(abs(error))
        predicted = [] if row["refused"] else [row["predicted glibc"], row["predicted latchwork"]]
        print("| " + " | ".join([*cells, common.order(row, predicted, ordered)]) + " |")
    print("\n" + common.summary(results, sum(row["refused"] for row in results), errors, ordered))


def report(args, keep):
    results = predict(keep, args.acquisitions)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(results, indent=1))
    table(results)


parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=0.5)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--json")
common.main(parser, measure, report)
