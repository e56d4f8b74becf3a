#!/usr/bin/env bash
# Builds and runs the command `latchwork` from the published packages alone: packages every crate that is published, puts
# the packages into a directory registry with what they depend on, and installs latchwork-cli from there in an empty
# directory, offline. With --verify, cargo also compiles each package by itself first.
# It needs the network: it downloads what the workspace depends on.
#
#     scripts/packages.sh [--verify]
set -euo pipefail
script=$(readlink -f "${BASH_SOURCE[0]}")
cd "$(dirname "$script")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

unpublished=(latchwork-lab latchwork-loom latchwork-torture latchwork-workloads)
verify=(--no-verify)
case ${1:-} in
'') ;;
--verify) verify=() ;;
*) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$script"; [[ $1 == --help || $1 == -h ]] && exit 0; exit 2 ;;
esac
cargo package --workspace "${unpublished[@]/#/--exclude=}" "${verify[@]}" --allow-dirty --target-dir "$work/packages"

registry=$work/registry
cargo vendor --quiet --locked "$registry" >"$work/vendor.log" 2>&1 || { cat "$work/vendor.log" >&2; exit 1; }
for package in "$work"/packages/package/*.crate; do
    name=$(basename "$package" .crate)
    directory=$registry/${name%-*}
    mkdir "$directory"
    tar --extract --file "$package" --directory "$directory" --strip-components 1
    printf '{"files":{},"package":"%s"}' "$(sha256sum "$package" | cut -d ' ' -f 1)" >"$directory/.cargo-checksum.json"
done

mkdir "$work/empty" "$work/home"
cd "$work/empty"
cat >"$work/home/config.toml" <<END
[source.crates-io]
replace-with = "packages"
[source.packages]
directory = "$registry"
END
CARGO_HOME=$work/home cargo install latchwork-cli --locked --offline --root "$work/installed"

export XDG_CACHE_HOME=$work/cache
latchwork=$work/installed/bin/latchwork
"$latchwork" --version
"$latchwork" run --stats -- "$latchwork" demo-kv --threads 4 --seconds 0.2 2>"$work/statistics"
grep -q 'mutex (shfl)' "$work/statistics" || { cat "$work/statistics" >&2; echo "the locks are not served" >&2; exit 1; }
"$latchwork" compare --settle 0 --runs 1 --mutex shfl
echo "the command works from its packages alone"
