#!/usr/bin/env bash
# Builds and installs latchwork for C and C++: headers, liblatchwork.so and liblatchwork.a, the files by which pkg-config and
# CMake find them, manual pages, what gdb and helgrind need, the licences, the command with its completions, and the preload library.
# Needs Rust and a C compiler.
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
set -euo pipefail
# For the ranges of letters.
export LC_ALL=C
# shellcheck disable=SC2155
readonly root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

prefix=/usr/local libdir='' destdir='' command=yes uninstall=no
while (($#)); do
    case $1 in
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
cargo rustc --release --target "$host" -p latchwork-capi --lib --crate-type staticlib -- --print native-static-libs 2>"$work/log" ||
    { cat "$work/log" >&2; exit 1; }
# Without libgcc's unwinder: compilers link the shared or the static one, as the program is.
private=$(sed -n 's/^note: native-static-libs: //p' "$work/log" | tail -1 | sed 's/-lgcc_s *//')
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
# As for make, CC may hold options, or a compiler cache before the compiler.
read -ra compiler <<<"${CC:-cc}"
# shellcheck disable=SC2086
"${compiler[@]}" -shared -o "$work/liblatchwork.so" "$work/latchwork.o" -Wl,-soname,"$soname" \
    -Wl,--version-script="$work/versions.map" -Wl,--gc-sections -Wl,-z,defs -Wl,-z,relro -Wl,-z,now -Wl,--as-needed $private

# A program that is linked with the archive exports the archive's names: plug-ins that are linked with the shared library use
# the program's copy then. A linker without the option (binutils before 2.35) exports all names of a program, or none.
names=$prefix/share/latchwork/latchwork.names
sed -e '1i {' -e 's/$/;/' -e '$a };' "$exports" >"$work/names"
echo 'int main(void) { return 0; }' >"$work/main.c"
if "${compiler[@]}" "$work/main.c" -o "$work/main" -Wl,--export-dynamic-symbol-list="$work/names" 2>"$work/log"; then
    export_pc=-Wl,--export-dynamic-symbol-list=\${pc_sysrootdir}$names export_cmake=-Wl,--export-dynamic-symbol-list=$names
else
    export_pc=-rdynamic export_cmake=-rdynamic
fi

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
    mkdir -p "$(dirname "$manifest")"
    printf '%s\n' "${installed[@]}" "${made[@]}" | sort -u >"$work/manifest"
    install -m 644 "$work/manifest" "$manifest"
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
    sed -e "s|@PREFIX@|$prefix|g" -e "s|@LIBDIR@|$libdir|g" -e "s|@VERSION@|$version|g" -e "s|@SONAME@|$soname|g" \
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
    cargo build --release --target "$host" -p latchwork-cli
    latchwork=$built/latchwork
    put 755 "$latchwork" "$prefix/bin/latchwork"
    "$latchwork" man "$work/man"
    for page in "$work"/man/*; do
        put 644 "$page" "$prefix/share/man/man1/$(basename "$page")"
    done
    "$latchwork" completions bash >"$work/bash" && put 644 "$work/bash" "$prefix/share/bash-completion/completions/latchwork"
    "$latchwork" completions zsh >"$work/zsh" && put 644 "$work/zsh" "$prefix/share/zsh/site-functions/_latchwork"
    "$latchwork" completions fish >"$work/fish" && put 644 "$work/fish" "$prefix/share/fish/vendor_completions.d/latchwork.fish"
    # The command carries it.
    "$latchwork" library "$work/preload.so"
    put 644 "$work/preload.so" "$prefix/lib/latchwork/liblatchwork_preload.so"
fi

# The licences: this project's, and those of the crates that are linked into what is installed.
for file in LICENSE-APACHE LICENSE-MIT; do
    put 644 "$file" "$prefix/share/doc/latchwork/$file"
done
linked=(-p latchwork-capi)
[[ $command == no ]] || linked+=(-p latchwork-cli -p latchwork-preload)
# The terms of a crate, if cargo has its source: those of MIT where there is a choice.
terms_of() {
    local file
    for file in "${CARGO_HOME:-$HOME/.cargo}/registry/src"/*/"$1-$2"/{LICENSE-MIT*,LICENSE*,LICENCE*,COPYING*,UNLICENSE*}; do
        [[ ! -f $file ]] || { printf '\n==== %s %s\n\n' "$1" "$2"; cat "$file"; return; }
    done
}
cargo tree --offline --target "$host" "${linked[@]}" --edges normal,no-proc-macro --no-dedupe --prefix none \
    --format '{p}: {l}, {r}' | sed '/^$/d;/^latchwork/d' | sort -u >"$work/crates"
{
    echo "Linked into latchwork, beside its own crates, with the licence of each, and with its terms below:"
    echo "the Rust standard library: MIT OR Apache-2.0"
    cat "$work/crates"
    while read -r name version _; do
        version=${version#v}
        terms_of "$name" "${version%:}"
    done <"$work/crates"
} >"$work/third-party"
put 644 "$work/third-party" "$prefix/share/doc/latchwork/THIRD-PARTY"

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
fi
