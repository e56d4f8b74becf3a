#!/usr/bin/env bash
# Builds the Debian packages liblatchwork0.1, liblatchwork-dev and latchwork in target/debian-packages, with dpkg-buildpackage and
# debhelper (cargo-deb makes one package of a crate; these are three of one source, with the shared library's symbols file). With
# --test, as root on x86-64, it also installs them into an empty root directory with `dpkg --root`, and runs a C program and the
# command there. --test-only does that with the packages of a directory, and builds nothing.
#
#     scripts/deb.sh [--test]
#     scripts/deb.sh && sudo scripts/deb.sh --test-only target/debian-packages
set -euo pipefail
here=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case ${1:-} in
'' | --test) (($# < 2)) || { echo "too many arguments: try scripts/deb.sh --help" >&2; exit 2; } ;;
--test-only) (($# == 2)) || { echo "--test-only needs the directory of the packages" >&2; exit 2; } ;;
--help | -h)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' scripts/deb.sh
    exit
    ;;
*)
    echo "unknown argument $1: try scripts/deb.sh --help" >&2
    exit 2
    ;;
esac

PATH=$PATH:/usr/sbin:/sbin
tools=(dpkg-buildpackage dh cargo)
if [[ -n ${1:-} ]]; then
    ((EUID == 0)) || { echo "$1 needs root" >&2; exit 2; }
    [[ $(uname -m) == x86_64 ]] || { echo "$1 needs x86-64" >&2; exit 2; }
    [[ $1 == --test ]] || tools=()
    tools+=("${CC:-cc}" pkg-config readelf ldconfig dpkg-architecture)
fi
for tool in "${tools[@]}"; do
    command -v "$tool" >/dev/null ||
        { echo "$tool is missing: it needs Rust, and apt-get install dpkg-dev debhelper gcc pkg-config libc-bin" >&2; exit 1; }
done
if [[ ${1:-} == --test-only ]]; then
    debian=$2
    [[ $debian == /* ]] || debian=$here/$debian
else
    target=$(cargo metadata --format-version 1 --no-deps --offline | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
    debian=$target/debian-packages
    rm -rf "$debian"
    mkdir -p "$debian/latchwork"
    # A copy of the source: dpkg-buildpackage writes into it, and beside it. Cargo's target stays the usual one.
    git ls-files -z | tar --create --null --files-from - | tar --extract --directory "$debian/latchwork"
    (
        cd "$debian/latchwork"
        CARGO_TARGET_DIR=$target dpkg-buildpackage --build=binary --no-sign --no-check-builddeps
    )
    rm -r "$debian/latchwork"
fi
packages=()
for name in liblatchwork0.1 liblatchwork-dev latchwork; do
    packages+=("$(ls "$debian/${name}"_*.deb)")
    dpkg-deb --contents "${packages[-1]}" | awk '{ print $NF }' | grep -v '/$' | sed "s|^|$name: |"
done

if [[ -z ${1:-} ]]; then
    exit
fi
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
# What a minimal Debian has: a shell, the C library, and what the packages' dependencies name.
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
# libc6 itself is not installed there as a package.
dpkg --root "$root" --force-depends --install "${packages[@]}"

# The library: a C program that is built with the installed files alone, shared and static.
multiarch=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
for kind in shared static; do
    flags=(--cflags --libs)
    [[ $kind == shared ]] || flags+=(--static)
    # shellcheck disable=SC2046
    "${CC:-cc}" -std=c11 -O2 crates/capi/man/examples/rcu_map.c -o "$root/tmp/$kind" $(PKG_CONFIG_SYSROOT_DIR=$root \
        PKG_CONFIG_LIBDIR=$root/usr/lib/$multiarch/pkgconfig PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1 \
        pkg-config "${flags[@]}" latchwork | { [[ $kind == shared ]] && cat || sed 's/-llatchwork/-l:liblatchwork.a/'; })
done
shared=$(readelf --dynamic "$root/tmp/shared") static=$(readelf --dynamic "$root/tmp/static")
[[ $shared == *liblatchwork.so.0.1* ]] || { echo "the shared program does not need liblatchwork.so.0.1" >&2; exit 1; }
[[ $static != *liblatchwork* ]] || { echo "the static program needs liblatchwork.so" >&2; exit 1; }
for kind in shared static; do
    chroot "$root" "/tmp/$kind" || { echo "the $kind program fails" >&2; exit 1; }
done
[[ -e $root/usr/share/man/man3/lw_mutex_lock.3.gz && -e $root/usr/share/gdb/auto-load/usr/lib/$multiarch ]]

# The command.
sections=$(readelf --sections --wide "$root/usr/bin/latchwork")
[[ $sections != *debug_info* ]] || { echo "the command has debug information" >&2; exit 1; }
[[ $(chroot "$root" /usr/bin/latchwork --version) == latchwork\ * ]]
# The installed library is the one that is loaded.
preloaded=$(chroot "$root" /usr/bin/latchwork run -- /bin/sh -c 'echo $LD_PRELOAD' 2>"$root/warnings")
[[ ! -s $root/warnings ]] || { cat "$root/warnings" >&2; exit 1; }
[[ $preloaded == /usr/lib/latchwork/liblatchwork_preload.so ]] || { echo "preloads $preloaded" >&2; exit 1; }
chroot "$root" /usr/bin/latchwork run --stats -- /usr/bin/latchwork demo-kv --threads 2 --seconds 0.2 2>"$root/statistics"
grep -q 'mutex (shfl)' "$root/statistics" || { cat "$root/statistics" >&2; exit 1; }

dpkg --root "$root" --remove latchwork liblatchwork-dev liblatchwork0.1
left=$(find "$root" -path "$root/var" -prune -o \( -name '*latchwork*' -o -name 'lw_*' \) ! -type d -print)
[[ -z $left ]] || { echo "left behind: $left" >&2; exit 1; }
echo "the packages install, run and are removed in an empty root"
