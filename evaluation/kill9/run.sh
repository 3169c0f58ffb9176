#!/usr/bin/env bash
# kill -9 of the mount in write-back, again and again, under writers of PostgreSQL and MariaDB: a
# ledger outside of the mount has every commit that was acknowledged; none may be missing.
#
#   evaluation/kill9/run.sh [RESULT.md]
#
# Needs root, FUSE, PostgreSQL, MariaDB, python3, go-tpc (built with `go install` unless GO_TPC
# names a program), and target/release/thermocline (or THERMOCLINE=program). A round: the work for
# BEFORE seconds, kill -9 of mount and server, mount and server again, the ledger compared, the
# work again for AFTER seconds. The work is pgbench (PostgreSQL) or TPC-C (MariaDB), and beside it
# writers that insert ledger rows with unique ids, update an account in the same transaction, and
# note an id once its commit has returned.
set -euo pipefail

: "${ROUNDS:=30}"
: "${SERVERS:=postgres mariadb}"
: "${POLICY:=lc}"
: "${POOL:=16M}"
: "${SIZE:=64M}"
: "${BEFORE:=12}"  # seconds of work before a kill
: "${AFTER:=60}"   # seconds of work after the restart over which the hit ratio is taken,
: "${EVERY:=10}"   # in every so many rounds;
: "${AFTER_SHORT:=3}" # in the others
: "${WRITERS:=2}"
: "${CLIENTS:=4}"  # of pgbench and of TPC-C
: "${ROWS:=200000}"
: "${SCALE:=5}"      # pgbench: 100,000 rows each, about 15 MB
: "${WAREHOUSES:=1}" # TPC-C: about 100 MB
: "${GO_TPC_VERSION:=682637f4f995}"
: "${DIRECTORY:=${TMPDIR:-/tmp}}"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
thermocline=$(realpath "${THERMOCLINE:-$here/../../target/release/thermocline}")
result=$(realpath -m "${1:-$here/../results/recovery-rounds.md}")
bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)
work=$(mktemp -d "$DIRECTORY/thermocline-kill9-XXXXXX")
chmod 755 "$work"
cd "$work"
server=; serving=; jobs_=()
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
if [[ $SERVERS == *mariadb* && -z ${GO_TPC:-} ]]; then
    GOBIN=$work go install "github.com/pingcap/go-tpc/cmd/go-tpc@$GO_TPC_VERSION"
    GO_TPC=$work/go-tpc
fi
finish() {
    stop_work
    [[ -z $server ]] || kill -9 "$server" 2> /dev/null || true
    "$thermocline" umount --lazy --timeout 30 "$work/mnt" > /dev/null 2>&1 || true
    rm -rf "$work"
}
trap finish EXIT

now() { date +%s.%N; }
since() { python3 -c "print(f'{$(now) - $1:.2f}')"; }
mount_() {
    "$thermocline" mount "$work/base" "$work/mnt" --cache "$work/cache" --size "$SIZE" \
        --write-back --policy "$POLICY" --pool "$POOL" --page-size "$page" --log "$work/log" > /dev/null
    serving=$("$thermocline" status --json "$work/mnt" | python3 -c \
        'import json, sys; print(json.load(sys.stdin)["mount"]["pid"])')
}
reads() { # hits and page reads so far
    "$thermocline" status --json "$work/mnt" | python3 -c '
import json, sys
reads = json.load(sys.stdin)["stats"]["page_reads"]
print(sum(reads.values()) - reads["base"], sum(reads.values()))'
}
ratio() { # "hits reads" before, after
    python3 -c "
a, b = '$1'.split(), '$2'.split()
n = int(b[1]) - int(a[1])
print(f'{100 * (int(b[0]) - int(a[0])) / n:.1f} %' if n else '-')"
}

# Writers insert ids nobody else has and print each once its commit has returned.
writer() { # number, round
    python3 -c "
import sys
w, r, rows = $1, $2, $ROWS
for t in range(10**7):
    i = (r * 64 + w) * 10**7 + t
    a = 1 + i * 2654435761 % rows
    sys.stdout.write(f'''BEGIN;
UPDATE account SET balance = balance + 1 WHERE id = {a};
INSERT INTO ledger VALUES ({i}, {a});
COMMIT;
SELECT 'ack {i}';
SELECT balance FROM account WHERE id = {1 + i * 40503 % rows};
''')" 2> /dev/null | client 2> /dev/null | sed -nu 's/^ack //p' >> "$work/ledger.$1"
}
start_work() {
    jobs_=()
    for ((w = 0; w < WRITERS; w++)); do
        writer "$w" "$1" &
        jobs_+=($!)
    done
    load "$1" > "$work/run/load" 2>&1 &
    jobs_+=($!)
}
stop_work() {
    local job
    for job in "${jobs_[@]}"; do
        pkill -P "$job" 2> /dev/null || true
        kill "$job" 2> /dev/null || true
    done
    for job in "${jobs_[@]}"; do wait "$job" 2> /dev/null || true; done
    jobs_=()
}

answers() { # command: waits until it succeeds, while the server runs
    until "$@" > /dev/null 2>&1; do
        kill -0 "$server" || { tail "$work/run/log" >&2; exit 1; }
        sleep 0.1
    done
}
postgres_server() {
    owner=postgres page=8KiB
    create() {
        runuser -u postgres -- "$bin/initdb" -k --auth=trust -U postgres -D "$work/mnt/data" > /dev/null
    }
    start() {
        setpriv --reuid=postgres --regid=postgres --init-groups "$bin/postgres" -D "$work/mnt/data" -k "$work/run" \
            -c listen_addresses= -c shared_buffers=8MB -c max_wal_size=256MB \
            -c checkpoint_timeout=30s >> "$work/run/log" 2>&1 &
        server=$!
        answers client -c 'SELECT 1'
    }
    client() {
        runuser -u postgres -- psql -X -A -t -q -v ON_ERROR_STOP=1 -h "$work/run" -U postgres \
            -d postgres "$@"
    }
    statement() { client -c "$1"; }
    fill() {
        statement "CREATE TABLE ledger (id bigint PRIMARY KEY, account int)"
        statement "CREATE TABLE account (id int PRIMARY KEY, balance bigint, filler char(84))"
        statement "INSERT INTO account SELECT i, 0, '' FROM generate_series(1, $ROWS) i"
        runuser -u postgres -- "$bin/pgbench" -h "$work/run" -i -q -s "$SCALE" postgres 2> /dev/null
    }
    load() { # seed
        exec setpriv --reuid=postgres --regid=postgres --init-groups "$bin/pgbench" -n \
            -h "$work/run" -U postgres -c "$CLIENTS" -T 100000 --random-seed="$1" postgres
    }
    verify() {
        # Each transaction of pgbench adds the same to four tables.
        [[ $(statement "SELECT count(DISTINCT sum) FROM (SELECT sum(abalance) FROM pgbench_accounts
            UNION ALL SELECT sum(bbalance) FROM pgbench_branches UNION ALL SELECT sum(tbalance)
            FROM pgbench_tellers UNION ALL SELECT sum(delta) FROM pgbench_history) s") == 1 ]]
        echo "pgbench: the four sums agree over $(statement "SELECT count(*) FROM pgbench_history") transactions"
        runuser -u postgres -- "$bin/pg_amcheck" -h "$work/run" -U postgres --all \
            --install-missing --heapallindexed && echo "pg_amcheck: clean"
        kill -INT "$server"; wait "$server" || true; server=
        "$thermocline" umount "$work/mnt" > /dev/null
        runuser -u postgres -- "$bin/pg_checksums" --check -D "$work/base/data" | grep Bad
    }
}
mariadb_server() {
    owner=mysql page=16KiB
    create() {
        mkdir "$work/mnt/data" && chown mysql: "$work/mnt/data"
        runuser -u mysql -- mariadb-install-db --no-defaults --skip-test-db \
            --auth-root-authentication-method=normal --datadir="$work/mnt/data" > /dev/null
    }
    start() {
        setpriv --reuid=mysql --regid=mysql --init-groups mariadbd --no-defaults --datadir="$work/mnt/data" \
            --socket="$work/run/s" --pid-file="$work/run/pid" \
            --bind-address=127.0.0.1 --port="$port" --skip-name-resolve \
            --innodb-buffer-pool-size=8M --innodb-flush-method=O_DIRECT \
            --innodb-buffer-pool-load-at-startup=OFF >> "$work/run/log" 2>&1 &
        server=$!
        answers client -e 'SELECT 1'
    }
    client() {
        mariadb --no-defaults --socket="$work/run/s" -u root --batch --skip-column-names \
            --unbuffered --database "${database:-mysql}" "$@"
    }
    statement() { client -e "$1"; }
    fill() {
        statement "CREATE DATABASE l"
        database=l
        statement "CREATE TABLE ledger (id BIGINT PRIMARY KEY, account INT)"
        statement "CREATE TABLE account (id INT PRIMARY KEY, balance BIGINT, filler CHAR(84))"
        statement "INSERT INTO account SELECT seq, 0, '' FROM seq_1_to_$ROWS"
        statement "CREATE DATABASE test; CREATE USER tpc@127.0.0.1; GRANT ALL ON test.* TO tpc@127.0.0.1"
        tpcc prepare -T 2 --no-check > "$work/run/load"
    }
    tpcc() {
        "$GO_TPC" tpcc "$1" -d mysql -U tpc -D test -H 127.0.0.1 -P "$port" --warehouses "$WAREHOUSES" "${@:2}"
    }
    load() {
        exec "$GO_TPC" tpcc run -d mysql -U tpc -D test -H 127.0.0.1 -P "$port" \
            --warehouses "$WAREHOUSES" -T "$CLIENTS" --time 100000s --ignore-error --interval 3600s
    }
    verify() {
        statement "CHECK TABLE ledger, account EXTENDED"
        tpcc check && echo "TPC-C: consistent"
        database=test statement "SELECT CONCAT(COUNT(*), ' orders') FROM orders"
        mariadb-admin --no-defaults --socket="$work/run/s" -u root shutdown
        wait "$server" || true; server=
        "$thermocline" umount "$work/mnt" > /dev/null
        innochecksum "$work"/base/data/l/*.ibd && echo "innochecksum: clean"
    }
}

missing() { # ids of the ledger that the database has not; prints acknowledged, found, missing
    statement "SELECT id FROM ledger" > "$work/found"
    python3 - "$work" "$WRITERS" <<'PYTHON'
import sys
work, writers = sys.argv[1], int(sys.argv[2])
said = set()
for w in range(writers):
    for line in open(f"{work}/ledger.{w}").read().split("\n")[:-1]:
        said.add(int(line))
found = {int(line) for line in open(f"{work}/found")}
print(len(said), len(found), len(said - found))
PYTHON
}

campaign() { # server
    rm -rf "$work"/{base,cache,run,ledger.*}
    mkdir -p "$work"/{base,mnt,run}
    database=
    "$1_server"
    chown "$owner": "$work/base" "$work/run"
    mount_; create; start; fill
    for ((w = 0; w < WRITERS; w++)); do : > "$work/ledger.$w"; done
    echo; echo "## $1, $ROUNDS rounds"; echo
    echo "| round | acknowledged | found | missing | mount | server | hits before | hits after |"
    echo "|---:|---:|---:|---:|---:|---:|---:|---:|"
    local round
    for ((round = 0; round < ROUNDS; round++)); do
        start_work $((2 * round))
        sleep "$((BEFORE / 4))"; before=$(reads)
        sleep "$((BEFORE - BEFORE / 4)).$((RANDOM % 10))"; hits=$(ratio "$before" "$(reads)")
        kill -9 "$serving"
        pkill -9 -P "$server" 2> /dev/null || true
        kill -9 "$server" 2> /dev/null || true
        wait "$server" 2> /dev/null || true
        sleep 2 # clients notice, print what was acknowledged, and end
        stop_work
        "$thermocline" umount --lazy "$work/mnt" > /dev/null
        started=$(now); mount_; mounted=$(since "$started")
        before=$(reads)
        started=$(now); start; served=$(since "$started")
        read -r said found lost < <(missing)
        seconds=$AFTER
        ((round % EVERY == 0)) || seconds=$AFTER_SHORT
        before=$(reads); start_work $((2 * round + 1)); sleep "$seconds"
        after=$(ratio "$before" "$(reads)"); stop_work
        echo "| $round | $said | $found | $lost | $mounted s | $served s | $hits | $after |"
        ((lost == 0)) || { echo "LOST $lost commits"; exit 1; }
    done
    echo; verify
}
{
    echo "$ROUNDS rounds, $WRITERS writers, policy $POLICY, cache $SIZE, pool $POOL, $ROWS rows;"
    echo "hits: share of page reads that base did not serve, $((BEFORE - BEFORE / 4)) s before and"
    echo "$AFTER s after in each $EVERY th round, $AFTER_SHORT s in the others"
    for name in $SERVERS; do campaign "$name"; done
} | tee "$result"
