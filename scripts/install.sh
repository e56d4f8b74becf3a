#!/usr/bin/env bash
# Builds and installs latchwork for C and C++: headers, liblatchwork.so and liblatchwork.a, the files by which pkg-config and
# CMake find them, manual pages, what gdb and helgrind need, the licences, the command with its completions, and the preload library.
# Needs Rust, a C compiler and binutils. It builds everything first, and installs it afterwards. Where only root may write, build as
# yourself and copy as root: see the last example.
#
#     scripts/install.sh --prefix DIR [--libdir DIR] [--destdir DIR] [--library-only]
#     scripts/install.sh --uninstall --prefix DIR [--libdir DIR] [--destdir DIR]
#
#     --prefix DIR     where it is used from (/usr/local)
#     --libdir DIR     where the libraries are used from (PREFIX/lib)
#     --destdir DIR    installs below this directory instead, for packages
#     --library-only   no command, no preload library
#     --uninstall      removes what installations with the same directories have put there
#
# Examples:
#
#     scripts/install.sh --prefix ~/.local && export PKG_CONFIG_PATH=~/.local/lib/pkgconfig
#     cc main.c $(pkg-config --cflags --libs latchwork) -Wl,-rpath,$HOME/.local/lib
#     scripts/install.sh --prefix /usr --libdir /usr/lib/x86_64-linux-gnu --destdir debian/tmp
#     scripts/install.sh --destdir staged && sudo cp -dR --remove-destination staged/. / && sudo ldconfig
set -euo pipefail
# For the ranges of letters.
export LC_ALL=C
# shellcheck disable=SC2155
readonly root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

prefix=/usr/local libdir='' destdir='' command=yes uninstall=no
while (($#)); do
    case $1 in
    --prefix=* | --libdir=* | --destdir=*)
        set -- "${1%%=*}" "${1#*=}" "${@:2}"
        continue
        ;;
    --prefix | --libdir | --destdir)
        (($# > 1)) || { echo "$1 needs a directory" >&2; exit 2; }
        declare "${1#--}=$2"
        shift
        ;;
    --library-only) command=no ;;
    --uninstall) uninstall=yes ;;
    --help | -h)
        sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
        exit
        ;;
    *)
        echo "unknown argument $1: try $0 --help" >&2
        exit 2
        ;;
    esac
    shift
done
for directory in "$prefix" ${libdir:+"$libdir"}; do
    [[ $directory == /* ]] || { echo "$directory is not an absolute path: the installed files name it" >&2; exit 2; }
    if [[ $directory =~ [^A-Za-z0-9/._+~-] ]]; then
        echo "$directory has the character '${BASH_REMATCH[0]}', which pkg-config's file cannot have: only letters, digits and /._+~- may stand in --prefix and --libdir" >&2
        exit 2
    fi
done
[[ -z $destdir || $destdir == /* ]] || destdir=$PWD/$destdir
libdir=${libdir:-$prefix/lib}
manifest=$destdir$libdir/latchwork/manifest

if [[ $uninstall == yes ]]; then
    [[ -e $manifest ]] || { echo "$manifest is missing: latchwork is not installed there" >&2; exit 1; }
    # Files, and then the directories that the installation made, which are empty now unless something else is there.
    while IFS= read -r entry; do
        [[ $entry == */ ]] || rm -f "$destdir$entry"
    done <"$manifest"
    mapfile -t directories < <(grep '/$' "$manifest" | sort -r)
    rm "$manifest"
    for directory in "${directories[@]}"; do
        rmdir --ignore-fail-on-non-empty "$destdir$directory" 2>/dev/null || true
    done
    exit
fi

# The commands for directories in which only root may write. Root seldom has cargo, and would leave files of its own in target/.
as_yourself() {
    local again=(--prefix "$prefix" --libdir "$libdir")
    [[ $command == yes ]] || again+=(--library-only)
    echo "build as yourself, and copy as root:"
    printf '    %q %s --destdir %q\n' "$root/scripts/install.sh" "${again[*]}" "$PWD/staged"
    printf '    sudo cp -dR --remove-destination %q/. / && sudo ldconfig\n' "$PWD/staged"
}
# As for make, CC may hold options, or a compiler cache before the compiler.
read -ra compiler <<<"${CC:-cc}"
for tool in cargo "${compiler[0]}" ld ar objcopy; do
    if ! command -v "$tool" >/dev/null; then
        echo "$tool is missing: this needs Rust, a C compiler and binutils" >&2
        [[ -z ${SUDO_USER:-} || $tool != cargo ]] || as_yourself >&2
        exit 2
    fi
done
# Before minutes of compiling: whether the directories can be written, or made where they are missing.
directories=("$libdir" "$prefix/include" "$prefix/share")
[[ $command == no ]] || directories+=("$prefix/bin" "$prefix/lib")
for directory in "${directories[@]}"; do
    there=$destdir$directory
    until [[ -e $there || -z $there ]]; do there=${there%/*}; done
    there=${there:-/}
    if [[ ! -d $there || ! -w $there ]]; then
        echo "$destdir$directory cannot be written: $there is no directory in which $(id -un) may write" >&2
        [[ -n $destdir ]] || as_yourself >&2
        exit 2
    fi
done

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
# Before 1.0, a minor version may break programs, so it has a name of its own.
[[ $version =~ ^0\.[0-9]+ || $version =~ ^[0-9]+ ]]
soname=liblatchwork.so.${BASH_REMATCH[0]}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cd "$root"
# The target of the C compiler and the linker. Cargo's configuration may name another one.
host=$(cargo -vV | sed -n 's/^host: //p')
# The static archive, and what it needs beside itself.
cargo rustc --color never --release --target "$host" -p latchwork-capi --features archive --lib --crate-type staticlib -- --print native-static-libs \
    2>"$work/log" || { cat "$work/log" >&2; exit 1; }
# Without libgcc's unwinder: compilers link the shared or the static one, as the program is.
private=$(sed -n 's/^note: native-static-libs: //p' "$work/log" | tail -1 | sed 's/-lgcc_s *//')
[[ -n $private ]] || { cat "$work/log" >&2; echo "rustc does not say which libraries the archive needs" >&2; exit 1; }
target=$(cargo metadata --format-version 1 --no-deps --offline | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
built=$target/$host/release
archive=$built/liblatchwork_capi.a

# One object that has what the exported functions need, with no other global name in it: a program may have another Rust
# library of another compiler.
exports=$root/crates/capi/exports
roots=()
while IFS= read -r name; do
    roots+=(-u "$name")
done <"$exports"
ld -r --gc-sections "${roots[@]}" -o "$work/all.o" "$archive"
# Without the bitcode that Rust's own library has: another LLVM, as a plug-in of ar, cannot read it.
objcopy --keep-global-symbols="$exports" --strip-unneeded -R .llvmbc -R .llvmcmd "$work/all.o" "$work/latchwork.o"
ar rcsD "$work/liblatchwork.a" "$work/latchwork.o"

{
    echo "LATCHWORK_${version%.*} {"
    echo "    global:"
    sed 's/.*/        &;/' "$exports"
    echo "    local: *;"
    echo "};"
} >"$work/versions.map"
# shellcheck disable=SC2086
"${compiler[@]}" -shared -o "$work/liblatchwork.so" "$work/latchwork.o" -Wl,-soname,"$soname" \
    -Wl,--version-script="$work/versions.map" -Wl,--gc-sections -Wl,-z,defs -Wl,-z,relro -Wl,-z,now -Wl,--as-needed $private

# The files for pkg-config and CMake name directories from where they lie, so that an installation can be moved, or used where
# --destdir has put it. Below /usr, pkg-config's file names them in full: pkg-config leaves out those that compilers search anyway.
up=$(realpath --canonicalize-missing --no-symlinks --relative-to="$libdir" "$prefix")
pc_prefix=\${pcfiledir}/../$up pc_libdir=\${pcfiledir}/.. pc_names=\${prefix}
if [[ $prefix == /usr ]]; then
    pc_prefix=/usr pc_libdir=$libdir pc_names=\${pc_sysrootdir}/usr
fi

# A program that is linked with the archive exports the archive's names: plug-ins that are linked with the shared library use
# the program's copy then. A linker without the option (binutils before 2.35) exports all names of a program, or none.
names=$prefix/share/latchwork/latchwork.names
sed -e '1i {' -e 's/$/;/' -e '$a };' "$exports" >"$work/names"
echo 'int main(void) { return 0; }' >"$work/main.c"
if "${compiler[@]}" "$work/main.c" -o "$work/main" -Wl,--export-dynamic-symbol-list="$work/names" 2>"$work/log"; then
    export_pc=-Wl,--export-dynamic-symbol-list=$pc_names/share/latchwork/latchwork.names
    export_cmake="-Wl,--export-dynamic-symbol-list=\${latchwork_prefix}/share/latchwork/latchwork.names"
else
    export_pc=-rdynamic export_cmake=-rdynamic
fi

if [[ $command == yes ]]; then
    cargo build --release --target "$host" -p latchwork-cli
    latchwork=$built/latchwork
    "$latchwork" man "$work/man"
    for shell in bash zsh fish; do
        "$latchwork" completions "$shell" >"$work/$shell"
    done
    # The command carries it.
    "$latchwork" library "$work/preload.so"
fi

# The licences of the crates that are linked into what is installed.
linked=(-p latchwork-capi)
[[ $command == no ]] || linked+=(-p latchwork-cli -p latchwork-preload)
cargo tree --color never --offline --target "$host" "${linked[@]}" --edges normal,no-proc-macro --no-dedupe --prefix none \
    --format '{p}: {l}, {r}' | sed '/^$/d;/^latchwork/d' | sort -u >"$work/crates"
# Lines of NAME VERSION DIRECTORY. Without the network, cargo has no answer if a crate is missing that only tests of the workspace need.
# Then terms_of looks where cargo unpacks the crates of a registry.
{ cargo metadata --format-version 1 --offline --filter-platform "$host" 2>/dev/null || true; } |
    { grep -o '{"name":"[^"]*","version":"[^"]*"\|"manifest_path":"[^"]*"' || true; } |
    awk -F '"' '$2 == "name" { crate = $4 " " $8; next } { sub("/Cargo.toml$", "", $4); print crate " " $4 }' >"$work/directories"
cargo_home=${CARGO_HOME:-~/.cargo}
# terms_of NAME VERSION: the terms of a crate: those of MIT where there is a choice.
terms_of() {
    local source directory file
    source=$(sed -n "s|^$1 $2 ||p" "$work/directories")
    for directory in ${source:+"$source"} "$cargo_home/registry/src"/*/"$1-$2"; do
        for file in "$directory"/{LICENSE-MIT*,LICENSE*,LICENCE*,COPYING*,UNLICENSE*}; do
            [[ ! -f $file ]] || { printf '\n==== %s %s\n\n' "$1" "$2"; cat "$file"; return; }
        done
    done
    echo "the crate $1 $2 has no file with its licence in ${source:-$cargo_home/registry/src}" >&2
    return 1
}
# Rust's own list for its library and for the crates in it. A distribution may have it elsewhere.
rust_terms=$("${RUSTC:-rustc}" --print sysroot)/share/doc/rust/COPYRIGHT-library.html
{
    echo "Linked into latchwork, beside its own crates, with the licence of each, and with its terms below:"
    echo "the Rust standard library: MIT OR Apache-2.0$([[ ! -f $rust_terms ]] || echo ", see THIRD-PARTY-rust.html")"
    cat "$work/crates"
    while read -r name number _; do
        number=${number#v}
        terms_of "$name" "${number%:}"
    done <"$work/crates"
} >"$work/third-party"

# All is built. From here on it is put where it belongs.
installed=()
made=()
# What an earlier installation has put there and this one does not, such as the command or a library of another version, is
# still there for --uninstall.
if [[ -e $manifest ]]; then
    while IFS= read -r entry; do
        [[ ! -e $destdir$entry && ! -L $destdir$entry ]] || made+=("$entry")
    done <"$manifest"
fi
# note_directories FILE: notes the directories of a file that are not there yet, for --uninstall.
note_directories() {
    local directory=${1%/*}
    while [[ -n $directory && ! -d $destdir$directory ]]; do
        made+=("$directory/")
        directory=${directory%/*}
    done
}
# What --uninstall removes.
write_manifest() {
    note_directories "${manifest#"$destdir"}"
    printf '%s\n' "${installed[@]}" "${made[@]}" | sort -u >"$work/manifest"
    install -D -m 644 "$work/manifest" "$manifest"
}
# An installation that fails or is interrupted can be removed, too.
trap '((${#installed[@]} == 0)) || write_manifest; rm -rf "$work"' EXIT
# put MODE FILE TO: installs a file, and notes that.
put() {
    note_directories "$3"
    install -D -m "$1" "$2" "$destdir$3"
    installed+=("$3")
}
for header in latchwork.h latchwork.hpp; do
    [[ ! -e crates/capi/include/$header ]] || put 644 "crates/capi/include/$header" "$prefix/include/$header"
done
for header in crates/capi/include/latchwork/*; do
    put 644 "$header" "$prefix/include/latchwork/$(basename "$header")"
done
put 644 "$work/liblatchwork.a" "$libdir/liblatchwork.a"
put 644 "$work/liblatchwork.so" "$libdir/liblatchwork.so.$version"
for link in "$soname" liblatchwork.so; do
    ln -sf "liblatchwork.so.$version" "$destdir$libdir/$link"
    installed+=("$libdir/$link")
done

fill() {
    sed -e "s|@PREFIX@|$pc_prefix|g" -e "s|@LIBDIR@|$pc_libdir|g" -e "s|@UP@|$up|g" -e "s|@VERSION@|$version|g" -e "s|@SONAME@|$soname|g" \
        -e "s|@PRIVATE@|$private|g" -e "s|@EXPORT_PC@|$export_pc|g" -e "s|@EXPORT_CMAKE@|$export_cmake|g" "$1" >"$work/filled"
}
fill crates/capi/packaging/latchwork.pc.in
put 644 "$work/filled" "$libdir/pkgconfig/latchwork.pc"
for file in latchworkConfig.cmake latchworkConfigVersion.cmake; do
    fill "crates/capi/packaging/$file.in"
    put 644 "$work/filled" "$libdir/cmake/latchwork/$file"
done

# gdb loads the first by itself if it trusts the directory; the second is for programs that are linked with the archive.
put 644 crates/capi/gdb/latchwork-gdb.py "$prefix/share/gdb/auto-load$libdir/liblatchwork.so.$version-gdb.py"
put 644 crates/capi/gdb/latchwork-gdb.py "$prefix/share/latchwork/latchwork-gdb.py"
put 644 crates/capi/packaging/latchwork.supp "$prefix/share/latchwork/latchwork.supp"
put 644 "$work/names" "$names"
for page in crates/capi/man/*.3; do
    name=$(basename "$page")
    put 644 "$page" "$prefix/share/man/man3/$name"
    # A page for each function, which leads to the page of its header.
    for function in $(sed -n '/^\.Sh NAME/,/^\.Nd /s/^\.Nm \([a-z0-9_]*\).*/\1/p' "$page"); do
        if [[ $function.3 != "$name" ]]; then
            echo ".so man3/$name" >"$work/link"
            put 644 "$work/link" "$prefix/share/man/man3/$function.3"
        fi
    done
done

if [[ $command == yes ]]; then
    put 755 "$latchwork" "$prefix/bin/latchwork"
    for page in "$work"/man/*; do
        put 644 "$page" "$prefix/share/man/man1/$(basename "$page")"
    done
    put 644 "$work/bash" "$prefix/share/bash-completion/completions/latchwork"
    put 644 "$work/zsh" "$prefix/share/zsh/site-functions/_latchwork"
    put 644 "$work/fish" "$prefix/share/fish/vendor_completions.d/latchwork.fish"
    put 644 "$work/preload.so" "$prefix/lib/latchwork/liblatchwork_preload.so"
fi

for file in LICENSE-APACHE LICENSE-MIT; do
    put 644 "$file" "$prefix/share/doc/latchwork/$file"
done
put 644 "$work/third-party" "$prefix/share/doc/latchwork/THIRD-PARTY"
[[ ! -f $rust_terms ]] || put 644 "$rust_terms" "$prefix/share/doc/latchwork/THIRD-PARTY-rust.html"

write_manifest
echo "installed in ${destdir}${prefix}: ${#installed[@]} files"

# Without --destdir: whether the dynamic linker finds the library by itself.
if [[ -z $destdir ]]; then
    PATH=$PATH:/usr/sbin:/sbin
    known=no
    while IFS= read -r directory; do
        [[ ! $directory -ef $libdir ]] || known=yes
    done < <(ldconfig -vNX 2>/dev/null | sed -n 's/^\(\/[^:]*\):.*/\1/p')
    if [[ $known == yes ]] && ((EUID == 0)) && ldconfig; then
        :
    elif [[ $known == yes ]]; then
        echo "programs find the library after: sudo ldconfig"
    else
        echo "programs find the library if they are linked with -Wl,-rpath,$libdir"
    fi
    if command -v pkg-config >/dev/null && [[ ! $(pkg-config --variable=libdir latchwork 2>/dev/null) -ef $libdir ]]; then
        echo "pkg-config finds it after: export PKG_CONFIG_PATH=$libdir/pkgconfig"
    fi
fi
