#!/usr/bin/env bash
# Builds the Debian package, target/debian/latchwork_*.deb, with cargo-deb (`cargo install cargo-deb`). With --test, it also
# installs the package into an empty root directory that has the C library alone, and runs the command there (as root).
#
#     scripts/deb.sh [--test]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! command -v cargo-deb >/dev/null; then
    echo "cargo-deb is missing: cargo install cargo-deb" >&2
    exit 1
fi
cargo build --release -p latchwork-cli
target=$(cargo metadata --format-version 1 --no-deps --offline | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
latchwork=$target/release/latchwork
files=target/deb
rm -rf "$files"
mkdir -p "$files/cache"
"$latchwork" man "$files/man"
for shell in bash zsh fish; do
    "$latchwork" completions "$shell" >"$files/latchwork.$shell"
done
# The library, where the command puts it that carries it.
XDG_CACHE_HOME=$PWD/$files/cache "$latchwork" run -- /bin/true
cp "$files"/cache/latchwork/liblatchwork_preload-*.so "$files/liblatchwork_preload.so"
rm -r "$files/cache"
package=$(cargo deb -p latchwork-cli --no-build --strip | tail -1)
echo "$package"
dpkg-deb --contents "$package"

if [[ ${1:-} != --test ]]; then
    exit
fi
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
# What a minimal Debian has: a shell, the C library, and what the package's dependencies name.
mkdir -p "$root"/{var/lib/dpkg/updates,var/lib/dpkg/info,dev,proc,tmp}
touch "$root/var/lib/dpkg/status"
for file in /bin/sh /bin/true; do
    install -D "$(realpath "$file")" "$root$file"
done
for library in libc.so.6 libgcc_s.so.1 libm.so.6 ld-linux-x86-64.so.2; do
    found=$(ldconfig -p | awk -v name="$library" '$1 == name && /x86-64/ { print $NF; exit }')
    install -D "$(realpath "$found")" "$root$found"
done
mkdir -p "$root/lib64"
[[ -e $root/lib64/ld-linux-x86-64.so.2 ]] || install -D "$(realpath /lib64/ld-linux-x86-64.so.2)" "$root/lib64/ld-linux-x86-64.so.2"
dpkg --root "$root" --force-depends --install "$package"
sections=$(readelf --sections --wide "$root/usr/bin/latchwork")
[[ $sections != *debug_info* ]] || { echo "the command has debug information" >&2; exit 1; }
[[ $(chroot "$root" /usr/bin/latchwork --version) == latchwork\ * ]]
# The installed library is the one that is loaded.
preloaded=$(chroot "$root" /usr/bin/latchwork run -- /bin/sh -c 'echo $LD_PRELOAD' 2>"$root/warnings")
[[ ! -s $root/warnings ]] || { cat "$root/warnings" >&2; exit 1; }
[[ $preloaded == /usr/lib/latchwork/liblatchwork_preload.so ]] || { echo "preloads $preloaded" >&2; exit 1; }
chroot "$root" /usr/bin/latchwork run --stats -- /usr/bin/latchwork demo-kv --threads 2 --seconds 0.2 2>"$root/statistics"
grep -q 'mutex (shfl)' "$root/statistics" || { cat "$root/statistics" >&2; exit 1; }
dpkg --root "$root" --remove latchwork
[[ ! -e $root/usr/bin/latchwork && ! -e $root/usr/lib/latchwork ]]
echo "the package installs, runs and is removed in an empty root"
