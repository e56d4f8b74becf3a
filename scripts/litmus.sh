#!/usr/bin/env bash
# Runs the litmus programs of crates/loom/litmus under herd7 (https://github.com/herd/herdtools7; Debian 12 has no package): orders that
# keep a load before a later store, which loom and the exploring machine cannot break. What a program asks for must never happen.
# Without the release, or without the acquire, it must happen: so the program would notice that it is missing.
# Exit status 2: herd7 is not installed.
#
# The model is C11 as Batty, Donaldson and Wickerson give it (POPL 2016), in which a load may read a store that comes after it.
# RC11 forbids that, and would accept relaxed orders here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../crates/loom/litmus"

command -v herd7 >/dev/null || { echo "herd7 is not installed" >&2; exit 2; }
twin=$(mktemp --suffix=.litmus)
trap 'rm "$twin"' EXIT

# expect VERDICT WHAT: herd7's verdict on the program in $twin.
expect() {
    local found
    found=$(herd7 -model c11_simp.cat "$twin" | awk '$1 == "Observation" { print $3 }') || exit 1
    echo "$2: $found"
    [[ $found == "$1" ]] || { echo "expected: $1" >&2; exit 1; }
}

for program in *.litmus; do
    cp "$program" "$twin"
    expect Never "$program"
    for order in release acquire; do
        sed "s/memory_order_$order/memory_order_relaxed/" "$program" >"$twin"
        expect Sometimes "$program without its $order"
    done
done
