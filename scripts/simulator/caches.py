#!/usr/bin/env python3
"""Are the simulated caches and memory like a machine's? Measures `working-set` on this machine, simulates the same, and prints
the tables of docs/simulator.md.

caches.py measure DIR     calibrates and measures this machine: some 2 minutes, in which nothing else should run
caches.py simulate DIR    simulates the same, also beside other work, and prints the tables in Markdown

Both need latchwork-lab in the PATH. A real time is the processor time of the program, so threads that wait for a processor do not
count. Medians count. Behind a real one stand the least and the greatest, if they differ by over a tenth.
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess

LINE = 64
PER_OPERATION = 256
# Of each table: threads, the settings of all points, and the seconds of a simulated measurement and of its warm-up.
CASES = {
    "strides": ("1", "kib=1,2,4,8,16,32,64,128,256 stride=64,256,4096", (0.002, 0.002)),
    "bandwidth": ("1,2", "kib=65536 order=ascending", (0.005, 0.005)),
}
ROUNDS = 9
# Of the simulated bandwidth beside one thread's.
SHARES = [3, 1.5, 0.5]


def lab(*words):
    subprocess.run(["latchwork-lab", *words], check=True, stdout=subprocess.DEVNULL)


def run(kind, case, path, *more):
    threads, settings, (seconds, warm_up) = CASES[case]
    words = [word for setting in settings.split() for word in ("--set", setting)]
    times = ["0.2", "0.1"] if kind == "bench" else [str(seconds), str(warm_up)]
    lab(kind, "working-set", "--locks", "shfl-rw", "--threads", threads, *words, "--runs", str(ROUNDS if kind == "bench" else 3),
        "--seconds", times[0], "--warm-up", times[1], "--json", str(path), *more)


def read(path):
    """By settings and threads, the nanoseconds that each thread took for a line, in all rounds."""
    def nanoseconds(run, threads):
        used = run.get("usage")
        return (used["user_ns_per_op"] if used else 1e9 * threads / run["ops_per_s"]) / PER_OPERATION

    found = {}
    for point in json.loads(path.read_text())["points"]:
        key = tuple(sorted(point["settings"].items())) + (point["threads"],)
        found[key] = sorted(nanoseconds(run, point["threads"]) for run in point["runs"])
    return found


def digits(value):
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def real(times):
    middle = digits(statistics.median(times))
    return middle if times[-1] < 1.1 * times[0] else f"{middle} ({digits(times[0])} .. {digits(times[-1])})"


def of(found, threads, **settings):
    keys = [key for key in found if key[-1] == threads and all((name, str(value)) in key for name, value in settings.items())]
    assert len(keys) == 1, (keys, settings)
    return found[keys[0]]


def rows(case, name):
    return [value for setting in CASES[case][1].split() if setting.startswith(name + "=") for value in setting.split("=")[1].split(",")]


def strides(measured, simulated):
    columns = rows("strides", "stride")
    print("| lines | " + " | ".join(f"{stride} bytes apart: real | simulated" for stride in columns) + " |")
    print("|---|" + "---|---|" * len(columns))
    for kib in rows("strides", "kib"):
        cells = [f"{int(kib) * 1024 // LINE:,}"]
        for stride in columns:
            cells.append(real(of(measured, 1, kib=kib, stride=stride)))
            cells.append(digits(statistics.median(of(simulated, 1, kib=kib, stride=stride))))
        print("| " + " | ".join(cells) + " |")


def rate(times, threads):
    """Gigabytes a second of all threads."""
    return threads * LINE / statistics.median(times)


def bandwidth(directory, measured, simulated):
    alone = rate(of(simulated, 1), 1)
    print("| | 1 thread, GB/s | 2 threads, GB/s |\n|---|---|---|")
    both = [digits(rate(of(measured, threads), threads)) for threads in (1, 2)]
    print(f"| real | {both[0]} | {both[1]} |")
    both = [digits(rate(of(simulated, threads), threads)) for threads in (1, 2)]
    print(f"| simulated, without a limit | {both[0]} | {both[1]} |")
    text = (directory / "profile.toml").read_text()
    for share in SHARES:
        limit = round(alone * share, 1)
        profile, path = directory / "limited.toml", directory / "limited.json"
        profile.write_text(f"{text}\n[memory.bandwidth]\nvalue = {limit}\nsource = \"estimate: made up\"\n")
        run("simulate", "bandwidth", path, "--machine", str(profile))
        found = read(path)
        both = [digits(rate(of(found, threads), threads)) for threads in (1, 2)]
        print(f"| simulated, memory with {limit} GB/s | {both[0]} | {both[1]} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["measure", "simulate"])
    parser.add_argument("directory", type=pathlib.Path)
    options = parser.parse_args()
    directory = options.directory
    directory.mkdir(parents=True, exist_ok=True)
    profile = directory / "profile.toml"
    if options.what == "measure":
        lab("calibrate", "--output", str(profile))
        for case in CASES:
            run("bench", case, directory / f"{case}-measured.json")
        return
    for case, table in [("strides", strides), ("bandwidth", lambda *both: bandwidth(directory, *both))]:
        run("simulate", case, directory / f"{case}-simulated.json", "--machine", str(profile))
        print(f"\n{case}\n")
        table(*(read(directory / f"{case}-{kind}.json") for kind in ("measured", "simulated")))
    for number in re.findall(r"\[(memory\S*|lines\.(?:hit|dram_local|scan_misses))\]\nvalue = (\S+)", profile.read_text()):
        print(*number)


main()
