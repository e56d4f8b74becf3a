# shellcheck shell=bash
# Sourced by real-programs.sh: brings the programs onto this machine.

APT_PACKAGES=(kyotocabinet-utils rocksdb-tools sysbench mariadb-server mariadb-client unbound dnsperf
    haproxy apache2-utils openssl memcached libmemcached-tools rt-tests
    jq gdb binutils dpkg-dev build-essential cmake tcl libsnappy-dev libgtest-dev libgmock-dev
    librocksdb-dev libgflags-dev)
# Their versions are recorded with the results.
MEASURED_PACKAGES=(libc6 kyotocabinet-utils rocksdb-tools sysbench mariadb-server unbound dnsperf
    haproxy libssl3 apache2-utils memcached libmemcached-tools rt-tests)

as_root() {
    if [[ $(id -u) == 0 ]]; then "$@"; else sudo "$@"; fi
}

# Installs packages without letting Debian start their servers: we start our own, on loopback. The file that says so is removed
# however this ends: a server that is installed later would silently not start. One of an earlier run that was killed is ours too.
apt_install() (
    policy=/usr/sbin/policy-rc.d text='#!/bin/sh
# Made by real-programs.sh, and removed by it.
exit 101'
    if [[ ! -e $policy || $(cat "$policy") == "$text" ]]; then
        trap 'as_root rm -f "$policy"' EXIT
        trap 'exit 130' INT
        trap 'exit 143' TERM
        as_root tee "$policy" <<<"$text" >/dev/null
        as_root chmod 755 "$policy"
    fi
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"
)

# A Debian source package, unpacked with Debian's patches. It uses package lists of its own, so that
# the system's apt configuration needs no deb-src line.
fetch_source() {
    local name=$1 apt=$WORK/src/apt suite key=/usr/share/keyrings/debian-archive-keyring.gpg
    [[ ! -e $WORK/src/$name/.unpacked ]] || return 0
    # shellcheck disable=SC1091
    suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
    mkdir -p "$apt/lists/partial" "$apt/parts"
    printf 'deb-src [signed-by=%s] http://deb.debian.org/%s main\n' \
        "$key" "debian $suite" "$key" "debian-security $suite-security" >"$apt/sources.list"
    local options=(-q -o "Dir::Etc::sourcelist=$apt/sources.list" -o "Dir::Etc::sourceparts=$apt/parts"
        -o "Dir::State::lists=$apt/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=
        -o APT::Sandbox::User=)
    (
        cd "$WORK/src"
        rm -rf "$name" "${name}"_*
        apt-get "${options[@]}" update
        apt-get "${options[@]}" --download-only source "$name"
        dpkg-source --no-check -x "${name}"_*.dsc "$name"
        touch "$name/.unpacked"
    )
}

build_leveldb() {
    [[ ! -x $WORK/bin/leveldb_db_bench ]] || return 0
    echo 'building LevelDB db_bench from source'
    fetch_source leveldb
    local build=$WORK/src/leveldb-build
    {
        cmake -S "$WORK/src/leveldb" -B "$build" -DCMAKE_BUILD_TYPE=Release -DLEVELDB_BUILD_TESTS=OFF \
            -DLEVELDB_BUILD_BENCHMARKS=ON && cmake --build "$build" --parallel 2 --target db_bench
    } >"$WORK/src/leveldb.log" 2>&1 || die "building LevelDB failed; see $WORK/src/leveldb.log"
    cp "$build/db_bench" "$WORK/bin/leveldb_db_bench"
}

# The test has the length of each part in its source (20 s and more); ours takes it from THREADTEST3_MS.
build_threadtest3() {
    [[ ! -x $WORK/bin/threadtest3 ]] || return 0
    echo 'building SQLite threadtest3 from source'
    fetch_source sqlite3
    local src=$WORK/src/sqlite3 build=$WORK/src/sqlite3-build
    mkdir -p "$build"
    (
        cd "$build"
        "$src/configure" --disable-tcl --disable-readline && make sqlite3.c
    ) >"$build/build.log" 2>&1 || die "building sqlite3.c failed; see $build/build.log"
    (
        cd "$build"
        sed 's/aTest\[i\]\.xTest(aTest\[i\]\.nMs)/aTest[i].xTest(aTest[i].nMs \&\& getenv("THREADTEST3_MS") ? atoi(getenv("THREADTEST3_MS")) : aTest[i].nMs)/' \
            "$src/test/threadtest3.c" >threadtest3.c
        grep -q THREADTEST3_MS threadtest3.c || die "threadtest3.c has changed: its main loop was not found"
        gcc -O2 -g -w -D_GNU_SOURCE -include stdlib.h -I. -I"$src/src" -I"$src/test" \
            -DSQLITE_THREADSAFE=1 -DSQLITE_ENABLE_UNLOCK_NOTIFY \
            -o "$WORK/bin/threadtest3" threadtest3.c "$src/src/test_multiplex.c" sqlite3.c -lpthread -ldl -lm
    )
}

# It fills each of its tables with 11 GB before it begins; ours with a sixteenth of that.
build_hash_table_bench() {
    [[ ! -x $WORK/bin/hash_table_bench ]] || return 0
    echo "building RocksDB's hash_table_bench from source"
    fetch_source rocksdb
    local src=$WORK/src/rocksdb bench=utilities/persistent_cache/hash_table_bench.cc
    (
        cd "$src"
        sed 's/max_prepop_key = 1ULL \* 1024/max_prepop_key = 64ULL/' "$bench" >hash_table_bench.cc
        grep -q 'max_prepop_key = 64ULL' hash_table_bench.cc || die "hash_table_bench.cc has changed: its size was not found"
        g++ -std=c++17 -O2 -DNDEBUG -DGFLAGS=1 -DOS_LINUX -DROCKSDB_PLATFORM_POSIX -DROCKSDB_LIB_IO_POSIX -I. -Iinclude \
            -o "$WORK/bin/hash_table_bench" hash_table_bench.cc -lrocksdb -lgflags -lpthread
    )
}

install_all() {
    command -v apt-get >/dev/null || die "install needs Debian's apt-get, and its sources; elsewhere install by hand: ${APT_PACKAGES[*]}"
    mkdir -p "$WORK/bin" "$WORK/src"
    local missing=() package
    for package in "${APT_PACKAGES[@]}"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
    done
    if [[ ${#missing[@]} -gt 0 ]]; then
        echo "installing ${missing[*]}"
        as_root apt-get update -q
        apt_install "${missing[@]}"
    fi
    build_leveldb
    build_threadtest3
    build_hash_table_bench
    list_programs
}
