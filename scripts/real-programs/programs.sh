# shellcheck shell=bash
# Sourced by real-programs.sh: the programs.
#
# A program NAME is one line of PROGRAMS and a function run_NAME (with _ for -). The function runs
# in a fresh empty directory. It starts the program with `locked COMMAND...` (or `serve COMMAND...`
# for a server), leaves its output in files there, checks the result with `expect`, and ends with
# `figure NUMBER`: one number, a rate, the more the better. A second number, `figure NUMBER NUMBER`, is the
# rate of other work in the same run, which the first does not count; the line of PROGRAMS names its unit.
# $S is the length of a run in seconds. Work that is counted and not timed is N times $S, chosen so that glibc needs about $S seconds on two
# cores. Where the rate does not depend on the amount it is `$(work N)`: a lock with waiters that spin in a
# queue gets a tenth of it (see notes.md).

# name | needs | kinds of lock it calls much | unit of the figure | what it is | unit of the second figure, if there is one
PROGRAMS=(
    'kccachetest|kccachetest|mutex rwlock|operations/s|Kyoto Cabinet, in-memory cache: random operations, 4 threads'
    'kchashtest|kchashtest|mutex rwlock|operations/s|Kyoto Cabinet, file hash: random operations, 4 threads'
    'kctreetest|kctreetest|mutex rwlock|operations/s|Kyoto Cabinet, B+ tree: random operations, 4 threads'
    'leveldb-empty|leveldb_db_bench|mutex|reads/s|LevelDB db_bench readrandom, empty database, 4 threads'
    'leveldb-filled|leveldb_db_bench|mutex|reads/s|LevelDB db_bench readrandom, filled database, 4 threads'
    'rocksdb|db_bench|mutex rwlock|reads/s|RocksDB db_bench readwhilewriting, update in place, one update lock, 4 readers, a writer without a pause|writes/s'
    'rocksdb-rate|db_bench|mutex rwlock|reads/s|the same with a writer that is limited to 1 MB/s, which it reaches under glibc too|writes/s'
    'hash_table_bench|hash_table_bench|rwlock|operations/s|RocksDB hash_table_bench, one lock: 4 threads read, one inserts, one erases|reads/s'
    'cache_bench|cache_bench|mutex|operations/s|RocksDB block cache, one shard, 4 threads'
    'threadtest3|threadtest3|mutex|statements|SQLite threadtest3 (checks itself), shared cache, 2 to 15 threads'
    'mariadb|mariadbd sysbench|mutex rwlock|transactions/s|MariaDB under sysbench oltp_read_write, 8 clients'
    'unbound|unbound dnsperf|mutex rwlock|queries/s|Unbound DNS server, 4 threads, local data, under dnsperf'
    'haproxy|haproxy ab openssl|mutex rwlock|handshakes/s|HAProxy with TLS, 4 threads, a new connection per request, under ab'
    'memcached|memcached memcslap|mutex|operations/s|memcached, 4 threads, sets then gets from 16 connections'
    'sysbench-mutex|sysbench|mutex|acquisitions/s|sysbench mutex: 4 threads, one mutex, hardly any work'
    'sysbench-threads|sysbench|mutex|events/s|sysbench threads: 16 threads, 4 mutexes, yields while holding'
    'pi_stress|pi_stress|mutex|inversions/s|rt-tests pi_stress: priority inheritance under real-time scheduling (must go to glibc)'
)

# Starts a command under the lock of this run, in the foreground; $LOCKED is set by one.sh.
locked() { "${LOCKED[@]}" "$@"; }

# Starts a server under the lock; $SERVER is its process.
serve() {
    "${LOCKED[@]}" "$@" >server.log 2>&1 &
    SERVER=$!
}

# Waits until a command succeeds, for at most 20 seconds or while the server lives.
await() {
    local i
    for ((i = 0; i < 200; i++)); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        kill -0 "$SERVER" 2>/dev/null || fail "the server ended at its start: $(tail -n 1 server.log)"
        sleep 0.1
    done
    fail "the server did not answer: $*"
}

# Ends the server as its users would; a server that fails to stop or stops badly is a failure.
stop() {
    local status=0
    kill -TERM "$SERVER"
    wait "$SERVER" || status=$?
    SERVER=''
    [[ " $* " == *" $status "* ]] || fail "the server ended with status $status"
}

fail() {
    echo "fail $*" >result
    exit 1
}

expect() { # what file pattern
    grep -Eq -- "$3" "$2" || fail "$1: '$3' is not in its output; last line: $(tail -n 1 "$2" | cut -c1-200)"
}

figure() {
    local number
    for number; do
        [[ $number =~ ^[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$ ]] || fail "no figure in the output: '$number'"
    done
    awk -v x="$1" 'BEGIN { exit !(x > 0) }' || fail "the figure is $1"
    echo "ok $*" >result
}

work() { echo $(($1 * S / SHRINK)); }

calc() { awk "BEGIN { printf \"%.6g\", $1 }"; }

port_answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

free_port() {
    local port
    while :; do
        port=$((20000 + RANDOM % 12000))
        port_answers "$port" || { echo "$port"; return; }
    done
}

kyoto() { # program count path...
    local program=$1 count=$2
    shift 2
    locked "$program" wicked -th 4 "$@" "$count" >log 2>&1 || fail "status $?: $(tail -n 1 log)"
    expect "$program" log '^ok$'
    figure "$(calc "4 * $count / $(sed -n 's/^time: //p' log)")"
}
run_kccachetest() { kyoto kccachetest $((350000 * S)); }
run_kchashtest() { kyoto kchashtest $((250000 * S)) casket.kch; }
run_kctreetest() { kyoto kctreetest $((55000 * S)) casket.kct; }

leveldb() { # benchmarks keys reads
    locked "$WORK/bin/leveldb_db_bench" --db="$PWD/db" --benchmarks="$1" --num="$2" --reads="$3" --threads=4 \
        >log 2>&1 || fail "status $?: $(tail -n 1 log)"
    tr '\r' '\n' <log | grep -E '^readrandom' >line || true
    expect db_bench line "readrandom +: +[0-9.]+ micros/op; +\($4 of $2 found\)"
    figure "$(calc "4e6 / $(sed -E 's/.*: +([0-9.]+) micros.*/\1/' line)")"
}
run_leveldb_empty() { leveldb readrandom 1000000 "$(work 2000000)" 0; }
run_leveldb_filled() { leveldb fillseq,readrandom 20000 "$(work 200000)" "$(work 200000)"; }

db_bench_locked() { # benchmark options...
    locked db_bench --db="$PWD/db" --benchmarks="$1" --num=50000 --threads=4 --duration="$S" \
        --inplace_update_support=1 --inplace_update_num_locks=1 --allow_concurrent_memtable_write=0 \
        --compression_type=none "${@:2}" >log 2>&1 || fail "status $?: $(tail -n 1 log)"
}
# A process of its own fills the database: a limit of the writer would hold for the filling too, and the database's log then
# tells what the writer wrote. Each of its writes, 16 bytes of key and 100 of value, takes 138 bytes there.
rocksdb() { # options...
    local filled reads seconds
    db_bench_locked fillseq
    filled=$(cat db/*.log | wc -c)
    db_bench_locked readwhilewriting --use_existing_db=1 --avoid_flush_during_recovery=1 "$@"
    tr '\r' '\n' <log | grep -E 'readwhilewriting +:' >line || true
    expect db_bench line '\(([0-9]+) of \1 found\)'
    read -r reads seconds < <(sed -E 's/.* ([0-9]+) ops\/sec ([0-9.]+) seconds.*/\1 \2/' line)
    figure "$reads" "$(calc "($(cat db/*.log | wc -c) - $filled) / 138 / $seconds")"
}
run_rocksdb() { rocksdb; }
run_rocksdb_rate() { rocksdb --benchmark_write_rate_limit=1000000; }

# It benchmarks two tables, one after the other; the first is the one with a single lock.
run_hash_table_bench() {
    locked "$WORK/bin/hash_table_bench" --nsec="$S" --nthread_write=1 --nthread_erase=1 --nthread_read=4 \
        >log 2>&1 || fail "status $?: $(tail -n 1 log)"
    expect hash_table_bench log '^Micro benchmarking scalable hash map'
    # An erase that finds nothing is short, so the reads, which all locks must serve, are a figure of their own.
    figure "$(sed -nE 's/^ops\/sec = ([0-9.]+).*/\1/p' log | head -n 1)" "$(sed -nE 's/^read\/sec = ([0-9.]+).*/\1/p' log | head -n 1)"
}

run_cache_bench() {
    local operations
    operations=$(work 80000)
    locked cache_bench -threads=4 -ops_per_thread="$operations" -cache_size=67108864 -num_shard_bits=0 \
        >log 2>&1 || fail "status $?: $(tail -n 1 log)"
    expect cache_bench log "^Count: $((4 * operations)) "
    figure "$(sed -nE 's/.*Rough parallel ops\/sec = ([0-9]+).*/\1/p' log)"
}

# The parts that share a cache between threads, and so lock; the others wait for files.
run_threadtest3() {
    THREADTEST3_MS=$((200 * S)) locked "$WORK/bin/threadtest3" walthread5 dynamic_triggers create_drop_index_1 \
        lookaside1 vacuum1 stress1 stress2 shared1 >log 2>&1 || fail "status $?: $(grep -m1 Error: log || tail -n 1 log)"
    expect threadtest3 log '^0 errors out of 8 tests'
    figure "$(awk '/ inserts, /{n += $4 + $6} /says: (wrote|read|deleted)/{split($0, p, "t1 "); split(p[2], q, "/"); n += q[1]}
        /says: ok [0-9]/{split($5, q, "/"); n += q[1]} END {print n}' log)"
}

MARIADB=(mariadbd --no-defaults --skip-networking --skip-log-bin --innodb-flush-log-at-trx-commit=0
    --innodb-log-file-size=16M --innodb-buffer-pool-size=64M --performance-schema=OFF)
sql() { mariadb --no-defaults --user=root --socket="$PWD/s" --batch --skip-column-names -e "$1"; }
oltp() {
    sysbench oltp_read_write --db-driver=mysql --mysql-socket="$PWD/s" --mysql-user=root --tables=1 \
        --table-size=10000 "$@" >client.log 2>&1 || fail "sysbench: status $?: $(tail -n 1 client.log)"
}
run_mariadb() {
    local user
    user=$(id -un)
    mariadb-install-db --no-defaults --user="$user" --datadir="$PWD/data" --innodb-log-file-size=16M \
        --auth-root-authentication-method=normal --skip-test-db --skip-name-resolve >install.log 2>&1 \
        || fail "mariadb-install-db: $(tail -n 1 install.log)"
    serve "${MARIADB[@]}" --user="$user" --datadir="$PWD/data" --socket="$PWD/s" --pid-file="$PWD/pid"
    await sql 'SELECT 1'
    sql 'CREATE DATABASE sbtest'
    oltp prepare
    oltp --threads=8 --time="$S" run
    expect sysbench client.log 'ignored errors: +[0-9]'
    expect sysbench client.log 'reconnects: +0 '
    # Each transaction deletes a row and inserts it again, so none may be lost.
    sql 'CHECK TABLE sbtest.sbtest1 EXTENDED; SELECT COUNT(*) FROM sbtest.sbtest1' >check.log 2>&1 || true
    expect 'CHECK TABLE' check.log 'status.OK$'
    expect 'row count' check.log '^10000$'
    stop 0
    figure "$(sed -nE 's/.*transactions:.*\(([0-9.]+) per sec.*/\1/p' client.log)"
}

run_unbound() {
    local port i
    port=$(free_port)
    {
        cat <<EOF
server:
  interface: 127.0.0.1@$port
  access-control: 127.0.0.0/8 allow
  num-threads: 4
  so-reuseport: yes
  do-daemonize: no
  use-syslog: no
  logfile: ""
  verbosity: 0
  username: ""
  chroot: ""
  directory: "$PWD"
  pidfile: "$PWD/pid"
  module-config: "iterator"
  local-zone: "." refuse
  local-zone: "example.test." static
EOF
        for ((i = 0; i < 2000; i++)); do
            echo "  local-data: \"host$i.example.test. 3600 IN A 192.0.2.$((i % 250 + 1))\""
            echo "host$i.example.test A" >&4
        done
        echo 'remote-control:'
        echo '  control-enable: no'
    } >unbound.conf 4>queries
    serve unbound -d -c unbound.conf
    echo 'host1.example.test A' >probe
    await sh -c "dnsperf -s 127.0.0.1 -p $port -d probe -n 1 -t 1 | grep -q 'NOERROR 1 '"
    dnsperf -s 127.0.0.1 -p "$port" -d queries -l "$S" -c 8 -T 2 -q 50 >client.log 2>&1 \
        || fail "dnsperf: status $?: $(tail -n 1 client.log)"
    expect dnsperf client.log 'Queries lost: +0 '
    expect dnsperf client.log 'Response codes: +NOERROR [0-9]+ \(100.00%\)'
    stop 0
    figure "$(sed -nE 's/.*Queries per second: +([0-9.]+).*/\1/p' client.log)"
}

run_haproxy() {
    local port
    port=$(free_port)
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out cert.pem -days 1 \
        -subj /CN=localhost >openssl.log 2>&1 || fail "openssl req: $(tail -n 1 openssl.log)"
    cat cert.pem key.pem >both.pem
    cat >haproxy.cfg <<EOF
global
  nbthread 4
  maxconn 2000
defaults
  mode http
  timeout connect 5s
  timeout client 10s
  timeout server 10s
frontend tls
  bind 127.0.0.1:$port ssl crt $PWD/both.pem
  http-request return status 200 content-type text/plain string "hello"
EOF
    serve haproxy -db -f haproxy.cfg
    await port_answers "$port"
    ab -q -c 16 -t "$S" -n 10000000 "https://127.0.0.1:$port/" >client.log 2>&1 \
        || fail "ab: status $?: $(tail -n 1 client.log)"
    expect ab client.log 'Failed requests: +0$'
    expect ab client.log '^Document Length: +5 bytes'
    stop 0 143
    figure "$(sed -nE 's/^Requests per second: +([0-9.]+).*/\1/p' client.log)"
}

run_memcached() {
    local port count set get
    port=$(free_port) count=$((2500 * S))
    serve memcached -l 127.0.0.1 -p "$port" -U 0 -u "$(id -un)" -t 4 -m 512
    await port_answers "$port"
    memcslap --servers="127.0.0.1:$port" --concurrency=16 --execute-number="$count" --test=set >set.log 2>&1 \
        || fail "memcslap set: status $?: $(tail -n 1 set.log)"
    memcslap --servers="127.0.0.1:$port" --concurrency=16 --execute-number="$count" --test=get >get.log 2>&1 \
        || fail "memcslap get: status $?: $(tail -n 1 get.log)"
    expect 'memcslap set' set.log "^Time to set +$((16 * count)) keys by"
    expect 'memcslap get' get.log "^Time to get +$((16 * count)) keys by"
    memccapable -h 127.0.0.1 -p "$port" >capable.log 2>&1 || fail "memccapable: $(grep -m1 -i fail capable.log)"
    expect memccapable capable.log '^All tests passed'
    stop 0
    set=$(sed -nE 's/^Time to set .* by .*: +([0-9.]+) seconds.*/\1/p' set.log)
    get=$(sed -nE 's/^Time to get .* by .*: +([0-9.]+) seconds.*/\1/p' get.log)
    figure "$(calc "2 * 16 * $count / ($set + $get)")"
}

run_sysbench_mutex() {
    local locks
    locks=$(work 2000000)
    locked sysbench mutex --threads=4 --mutex-num=1 --mutex-locks="$locks" --mutex-loops=10 run >log 2>&1 \
        || fail "status $?: $(tail -n 1 log)"
    expect sysbench log 'total number of events: +4$'
    figure "$(calc "4 * $locks / $(sed -nE 's/.*total time: +([0-9.]+)s/\1/p' log)")"
}

run_sysbench_threads() {
    locked sysbench threads --threads=16 --thread-locks=4 --thread-yields=100 --time="$S" run >log 2>&1 \
        || fail "status $?: $(tail -n 1 log)"
    expect sysbench log 'execution time \(avg'
    figure "$(calc "$(sed -nE 's/.*total number of events: +([0-9]+)/\1/p' log) / $S")"
}

# It looks at the clock once in a second or so, so a run takes up to a second longer than asked for.
run_pi_stress() {
    local start=$EPOCHREALTIME
    locked pi_stress --duration="$S" --groups=2 --quiet >log 2>&1 || fail "status $?: $(tail -n 1 log)"
    expect pi_stress log '^Total inversion performed: [1-9]'
    figure "$(calc "$(sed -n 's/^Total inversion performed: //p' log) / ($EPOCHREALTIME - $start)")"
}
