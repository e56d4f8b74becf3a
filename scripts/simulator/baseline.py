#!/usr/bin/env python3
"""How often does another order agree with a machine's order of the locks, without any simulation? The simulator has to be better.

baseline.py         compares the measurements kept in crates/lab/machines, and prints a table in Markdown
baseline.py NAME    how often the orders of these machines agree with another measurement there, crates/lab/machines/NAME.jsonl

Pairs of locks are compared by the two rules of docs/validation.md, at the same workload and number of threads. The simulator's
order is replaced by one of these:

- the order of another machine's medians
- the order of the geometric mean of the other three machines' medians
- one fixed list: the locks' mean rank on the other three machines, over both workloads and all numbers of threads

The third row of each machine has the pairs of the second rule that the other three machines do not all have in the same order.
The simulator's agreement is read from docs/validation.md: its sums, and the pairs of the second rule that disagree.
"""
import collections
import itertools
import json
import pathlib
import re
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIFFER = 1.2
# What docs/validation.md has of each machine: a sentence with the sums, and a table of the pairs that disagree.
SUMS = re.compile(r"Of ([\d,]+) pairs whose medians differ by over 20%, ([\d,]+) \([^)]*\) are in the same order in the simulator. "
                  r"Of ([\d,]+) that differ by over\n20% in each of three rounds, ([\d,]+) \(")
ROW = re.compile(r"^\| (\S+) \| (\d+) \| (\S+) \| (\S+) \|", re.MULTILINE)
MACHINES = {
    "Zen 3": "zen3-2026-11-28",
    "Zen 4": "zen4-2026-11-24",
    "Emerald Rapids": "emerald-rapids-2026-11-28",
    "Sapphire Rapids": "sapphire-rapids-2026-11-28",
}


def measured(name):
    """The rates of each lock, by workload and number of threads."""
    points = collections.defaultdict(dict)
    for line in (ROOT / f"crates/lab/machines/{name}.jsonl").read_text().splitlines()[1:]:
        point = json.loads(line)
        if point["rates"]:
            points[point["workload"], point["threads"]][point["lock"]] = point["rates"]
    return points


def simulated(name):
    """The simulator's agreement as docs/validation.md has it: a list of pairs and agreement by the first and by the second rule, and
    the pairs of the second rule that disagree."""
    page = (ROOT / "docs/validation.md").read_text()
    before, rest = page.split(f"crates/lab/machines/{name}.jsonl --markdown", 1)
    sums = SUMS.findall(before)[-1]
    wrong = ROW.findall(rest.split("<!-- end of generated -->", 1)[0])
    return ([int(number.replace(",", "")) for number in sums],
            {(workload, int(threads), fast, slow) for workload, threads, fast, slow in wrong})


def medians(points):
    return {place: {lock: statistics.median(rates) for lock, rates in locks.items()} for place, locks in points.items()}


def mean(others):
    """The geometric mean of several machines' medians, as an order."""
    return {place: {lock: statistics.geometric_mean(other[place][lock] for other in others) for lock in locks}
            for place, locks in others[0].items()}


def fixed(others):
    """One list for all workloads and numbers of threads, by mean rank."""
    ranks = collections.defaultdict(list)
    for other in others:
        for locks in other.values():
            for rank, lock in enumerate(sorted(locks, key=locks.get)):
                ranks[lock].append(rank / len(locks))
    order = {lock: statistics.mean(of) for lock, of in ranks.items()}
    return {place: order for place in others[0]}


def pairs(points):
    """The pairs that differ by the first rule, each with whether it differs by the second."""
    for (workload, threads), locks in points.items():
        for fast, slow in itertools.permutations(locks, 2):
            if statistics.median(locks[fast]) > DIFFER * statistics.median(locks[slow]):
                yield (workload, threads, fast, slow), min(locks[fast]) > DIFFER * max(locks[slow])


def agrees(order, pair):
    workload, threads, fast, slow = pair
    return order[workload, threads][fast] > order[workload, threads][slow]


def share(agree, pairs):
    return f"{100 * agree / pairs:.1f}%"


def main():
    machines = {machine: measured(name) for machine, name in MACHINES.items()}
    # The Zen 4's file has locks that the others do not have.
    common = {place: set.intersection(*(set(points[place]) for points in machines.values())) for place in machines["Zen 3"]}
    machines = {machine: {place: {lock: points[place][lock] for lock in locks} for place, locks in common.items()}
                for machine, points in machines.items()}
    orders = {machine: medians(points) for machine, points in machines.items()}
    print("| machine | pairs | simulator | " + " | ".join(machines) + " | mean of the other three | one fixed list |")
    print("|---|---" + "|---" * (len(machines) + 3) + "|")
    for machine, points in machines.items():
        others = {other: order for other, order in orders.items() if other != machine}
        (all_first, agree_first, all_second, agree_second), wrong = simulated(MACHINES[machine])
        first = dict(pairs(points))
        second = [pair for pair, always in first.items() if always]
        disputed = [pair for pair in second if len({agrees(order, pair) for order in others.values()}) == 2]
        assert (all_first, all_second) == (len(first), len(second)) and wrong <= set(second), "docs/validation.md has other pairs"
        assert agree_second == len(second) - len(wrong), "docs/validation.md does not list all pairs that disagree"
        of_three = list(others.values())
        columns = [others.get(other) for other in machines] + [mean(of_three), fixed(of_three)]
        for rule, some, ours in [("first rule", first, agree_first), ("second rule", second, agree_second),
                                 ("of these, in dispute", disputed, len(set(disputed) - wrong))]:
            shares = [share(sum(agrees(order, pair) for pair in some), len(some)) if order else "" for order in columns]
            print(f"| {machine} | {rule}: {len(some):,} | {share(ours, len(some))} | " + " | ".join(shares) + " |")


def one(name):
    """How often the orders of the four machines agree with another measurement."""
    first = dict(pairs(measured(name)))
    second = [pair for pair, always in first.items() if always]
    print("| order | first rule | second rule |\n|---|---|---|")
    for machine, kept in MACHINES.items():
        order = medians(measured(kept))
        shares = [share(sum(agrees(order, pair) for pair in some), len(some)) for some in (first, second)]
        print(f"| {machine}, {kept[-10:]} | {shares[0]} of {len(first):,} | {shares[1]} of {len(second):,} |")


main() if len(sys.argv) == 1 else one(sys.argv[1])
