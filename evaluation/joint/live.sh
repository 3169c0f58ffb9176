#!/usr/bin/env bash
# Pool and tier together under a live PostgreSQL, over a base that is an emulated 7200-rpm disk:
# mixed pgbench and TPC-C, one run, one table.
#
#   evaluation/joint/live.sh [RESULT.md]
#
# Needs root (or a user who may mount and run postgres), FUSE, PostgreSQL, python3, go-tpc (built
# with `go install` unless GO_TPC names a program), and target/release/thermocline (or
# THERMOCLINE=program). Parameters below, each to be overridden by the environment. PostgreSQL's
# own buffers are tiny, so that nearly every page request reaches the mount, whose pool is the
# buffer that counts. Its log is not on the mount but on the fast disk, for all alike. Every
# measurement starts from a copy of the same files, an empty cache and the same seeds.
set -euo pipefail

: "${SCALE:=13}"          # pgbench: 100,000 rows each, about 15 MB
: "${WAREHOUSES:=2}"      # TPC-C: about 100 MB each
: "${SHARE:=3}"           # database size over flash size
: "${POOL:=20}"           # pool as a percentage of flash
: "${SHARED_BUFFERS:=1MB}"
: "${CLIENTS:=8}"
: "${UPDATES:=3}"         # pgbench: updates in ten transactions
: "${SKEW:=1.01}"         # pgbench: exponent of the Zipf distribution
: "${WARM:=120}"          # seconds before measuring
: "${SECONDS_MEASURED:=60}"
: "${FULL:=2}"            # the emulated disk's capacity over the database's size
: "${WORKLOADS:=pgbench tpcc}"
: "${CONFIGURATIONS:=base-only tac:through tac lru+lc gd2l+cc gd2l+cac all-ssd}"
: "${MORE:=lru+cc lru+mv-fifo}" # for TPC-C besides
: "${GO_TPC_VERSION:=682637f4f995}"
: "${DIRECTORY:=${TMPDIR:-/tmp}}"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
thermocline=$(realpath "${THERMOCLINE:-$here/../../target/release/thermocline}")
result=$(realpath -m "${1:-$here/../results/joint-live.md}")
bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)
rows=$((SCALE * 100000))

work=$(mktemp -d "$DIRECTORY/thermocline-live-XXXXXX")
chmod 755 "$work"
mkdir "$work"/{mnt,run,wal,loaded}
as=()
if ((EUID == 0)); then
    as=(runuser -u postgres --)
    chown postgres "$work" "$work"/{run,wal,loaded}
fi
cp "$here"/{read,update}.sql "$work/run/"
chmod -R a+rX "$work/run"
cd "$work"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')

mounted=no
serving=no
finish() {
    if [[ $serving == yes ]]; then stop || true; fi
    if [[ $mounted == yes ]]; then "$thermocline" umount --lazy --keep-dirty "$work/mnt" > /dev/null || true; fi
    cd /
    rm -rf "$work"
}
trap finish EXIT

if [[ $WORKLOADS == *tpcc* && -z ${GO_TPC:-} ]]; then
    GOBIN=$work go install "github.com/pingcap/go-tpc/cmd/go-tpc@$GO_TPC_VERSION"
    GO_TPC=$work/go-tpc
fi

start() { # data directory, shared buffers
    local settings=(listen_addresses=127.0.0.1 "port=$port" "shared_buffers=$2" jit=off
        effective_io_concurrency=0 maintenance_io_concurrency=0 checkpoint_timeout=30s
        max_wal_size=8GB autovacuum=off)
    if ! "${as[@]}" "$bin/pg_ctl" -D "$1" -w -t 300 -l "$work/run/log" \
        -o "-k $work/run ${settings[*]/#/-c }" start > "$work/start.log"; then
        cat "$work/run/log" >&2
        return 1
    fi
    data=$1
    serving=yes
}
stop() { # as a power failure would: a shutdown's checkpoint on a slow disk is not measured
    "${as[@]}" "$bin/pg_ctl" -D "$data" -w -m "${1:-immediate}" stop > /dev/null
    serving=no
}
sql() { "${as[@]}" "$bin/psql" -X -A -t -q -h "$work/run" -p "$port" -U bench -d test -v ON_ERROR_STOP=1 "$@"; }
tpcc() { "$GO_TPC" tpcc "$1" -d postgres --conn-params sslmode=disable -U bench -D test -H 127.0.0.1 -P "$port" --warehouses "$WAREHOUSES" "${@:2}"; }

load() { # workload
    echo "filling the database of $1" >&2
    local at="$work/loaded/$1"
    "${as[@]}" mkdir "$at"
    "${as[@]}" "$bin/initdb" -D "$at/data" -X "$work/wal/$1" --no-locale --encoding=UTF8 -A trust -k -U bench > /dev/null
    start "$at/data" 256MB
    "${as[@]}" "$bin/createdb" -h "$work/run" -p "$port" -U bench test
    if [[ $1 == pgbench ]]; then
        "${as[@]}" "$bin/pgbench" -h "$work/run" -p "$port" -U bench --initialize --quiet \
            --fillfactor=90 --scale="$SCALE" test 2> /dev/null
    else
        tpcc prepare -T 4 --no-check > "$work/prepare.log"
    fi
    sql -c 'VACUUM (FREEZE, ANALYZE)'
    sql -c CHECKPOINT
    sql -c "SELECT pg_database_size('test')" > "$work/bytes.$1"
    version=$(sql -c 'SHOW server_version')
    stop fast
    cp -a "$work/wal/$1" "$work/wal/$1.loaded"
}

# The workload for some seconds; its report goes to OUT, one line `time_us latency_us kind` for
# each transaction to OUT.latency where it tells.
run() { # workload, seconds, seed, out
    if [[ $1 == pgbench ]]; then
        "${as[@]}" rm -f "$work"/run/latency.*
        (cd "$work/run" && "${as[@]}" "$bin/pgbench" -h "$work/run" -p "$port" -U bench --no-vacuum \
            --file=read.sql@$((10 - UPDATES)) --file=update.sql@"$UPDATES" \
            --define=rows="$rows" --define=skew="$SKEW" --client="$CLIENTS" --jobs=2 \
            --protocol=prepared --time="$2" --random-seed="$3" \
            --log --log-prefix=latency test) > "$4" 2>&1
        cat "$work"/run/latency.* > "$4.latency"
    else
        tpcc run -T "$CLIENTS" --time "${2}s" --ignore-error --interval 3600s > "$4" 2>&1
    fi
}

measure() { # workload, configuration
    local workload=$1 configuration=$2 flash pool options=() policy pool_policy=lru
    flash=$(($(cat "$work/bytes.$workload") / SHARE / 8192))
    pool=$((flash * POOL / 100))
    local disk=(--emulate-base hdd --emulate-capacity $(($(cat "$work/bytes.$workload") * FULL)))
    local tier=(--cache "$work/cache" --size "${flash}p" --format)
    case $configuration in
        base-only) policy=none; options=("${disk[@]}") ;;
        all-ssd) policy=none ;;
        *:through) policy=${configuration%:through}; options=("${disk[@]}" "${tier[@]}") ;;
        *) policy=${configuration#*+}; options=("${disk[@]}" "${tier[@]}" --write-back)
            [[ $configuration != *+* ]] || pool_policy=${configuration%+*} ;;
    esac
    # All of base: it remembers which cache it is owed bytes by.
    rm -rf "$work/cache" "$work/base" "$work/wal/$workload"
    "${as[@]}" mkdir "$work/base"
    cp -a "$work/loaded/$workload/data" "$work/base/"
    cp -a "$work/wal/$workload.loaded" "$work/wal/$workload"
    printf '[pool]\nsize = "%sp"\npolicy = "%s"\n' "$pool" "$pool_policy" > "$work/config.toml"
    "$thermocline" mount "$work/base" "$work/mnt" --config "$work/config.toml" --policy "$policy" \
        --page-size 8KiB "${options[@]}" --log "$work/mount.log" > /dev/null
    mounted=yes
    start "$work/mnt/data" "$SHARED_BUFFERS"
    run "$workload" "$WARM" 1 "$work/warm"
    "$thermocline" status --json "$work/mnt" > "$work/before.json"
    run "$workload" "$SECONDS_MEASURED" 2 "$work/report"
    "$thermocline" status --json "$work/mnt" > "$work/after.json"
    stop
    "$thermocline" umount --keep-dirty "$work/mnt" > /dev/null
    mounted=no
    python3 "$here/live.py" "$workload" "$configuration" "$work" | tee -a "$work/rows"
}

for workload in $WORKLOADS; do
    load "$workload"
    configurations=$CONFIGURATIONS
    [[ $workload != tpcc ]] || configurations+=" $MORE"
    for configuration in $configurations; do measure "$workload" "$configuration"; done
done

settings="SCALE=$SCALE WAREHOUSES=$WAREHOUSES SHARE=$SHARE POOL=$POOL SHARED_BUFFERS=$SHARED_BUFFERS \
CLIENTS=$CLIENTS UPDATES=$UPDATES SKEW=$SKEW WARM=$WARM SECONDS_MEASURED=$SECONDS_MEASURED FULL=$FULL"
{
    cat << END
# Pool and tier together, live: PostgreSQL on an emulated 7200-rpm base

$(date -u +%Y-%m-%d). $("$thermocline" --version), PostgreSQL $version, Linux $(uname -r | cut -d- -f1), $(nproc)
cores. Base is a file system slowed down to an **emulated** hard disk, $FULL times as large as the database;
flash, the database's log (in every row) and the all-SSD row are the machine's own disk.

Command: \`$settings evaluation/joint/live.sh\`

Database: pgbench $(($(cat "$work/bytes.pgbench" 2> /dev/null || echo 0) >> 20)) MiB, TPC-C $(($(cat "$work/bytes.tpcc" 2> /dev/null || echo 0) >> 20)) MiB. Flash is 1/$SHARE of it, the pool $POOL % of flash (in every row).
$CLIENTS clients; caches start empty, $WARM s of warming, then $SECONDS_MEASURED s measured. Transactions: of pgbench, $UPDATES in ten of which
update a row, Zipf $SKEW over rows; of TPC-C all five kinds, and *new orders a minute* beside.

END
    echo '| workload | configuration | transactions/s | new orders/min | mean ms | p95 ms | pool hits | flash hits | base ms/transaction | flash ms/transaction | base writes/transaction | base busy | dirty pages |'
    echo '|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|'
    cat "$work/rows"
} > "$result"
echo "written to $result"
