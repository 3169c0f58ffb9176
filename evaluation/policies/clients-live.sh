#!/usr/bin/env bash
# Several clients of one cache, live (thesis §3.4.5, figure 3.17): three PostgreSQL servers, one that
# reads a few rows over and over, one that reads all of them alike, one that scans, on one mount with
# one flash, against three mounts with a third of the flash and of the volume each. Prints the live
# tables of evaluation/results/clients.md.
#
#   evaluation/policies/clients-live.sh [OUTPUT DIRECTORY]
#
# Needs root (or a user who may mount and run postgres), FUSE, PostgreSQL, python3 and
# target/release/thermocline (or THERMOCLINE=program).
#
# The volume is emulated (--emulate-base network), with the limits below; a third of a volume has a
# third of them, and the same latency. Nothing is written, so all runs have the same files and seeds;
# each starts with an empty cache. Configurations take turns within a repeat.
set -euo pipefail

: "${REQUESTS:=1500}" # of the volume, a second
: "${RATE:=60}"       # MiB of it, a second
: "${SCALE:=10}"      # pgbench, of each: 100,000 rows each, about 15 MB
: "${FLASH:=6000}"    # pages of 8 KiB, all together: about a tenth of the three databases
: "${SHARED_BUFFERS:=4MB}"
: "${SKEW:=1.05}"     # exponent of the Zipf distribution, over scattered rows
: "${SPAN:=100000}"   # rows of a scan
: "${CLIENTS:=8 8 1}" # of the zipf, the uniform and the scanning server
: "${SCANS:=0.5}"     # a second: a small table that is scanned at full speed is the hottest of all
: "${WARM:=40}"       # seconds before measuring
: "${SECONDS_MEASURED:=15}"
: "${REPEATS:=3}"
: "${POLICIES:=clic value auto}"
: "${DIRECTORY:=${TMPDIR:-/tmp}}"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
thermocline=$(realpath "${THERMOCLINE:-$here/../../target/release/thermocline}")
out=$(realpath -m "${1:-$here/../../target/clients-live}")
bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)
databases=(zipf uniform scan)
read -ra clients <<< "$CLIENTS"
rows=$((SCALE * 100000))
mkdir -p "$out"

work=$(mktemp -d "$DIRECTORY/thermocline-clients-XXXXXX")
chmod 755 "$work"
mkdir "$work"/{run,all,mnt-all} "$work"/{,mnt-}{zipf,uniform,scan}
as=()
if ((EUID == 0)); then
    as=(runuser -u postgres --)
    chown postgres "$work"/{run,all,zipf,uniform,scan}
fi
cd "$work"

cp "$here/../pgbench-skewed/scattered.sql" run/zipf.sql
echo '\set row random(1, :rows)
SELECT abalance FROM pgbench_accounts WHERE aid = :row;' > run/uniform.sql
echo '\set from random(1, :rows - :span)
\set to :from + :span
SELECT sum(abalance) FROM pgbench_accounts WHERE aid BETWEEN :from AND :to;' > run/scan.sql
chmod -R a+rX run

mounts=() serving=()
finish() {
    for at in "${serving[@]}"; do stop "$at" || true; done
    for at in "${mounts[@]}"; do "$thermocline" umount --lazy "$at" > /dev/null || true; done
    cd /
    rm -rf --one-file-system "$work"
}
trap finish EXIT

start() { # database, data directory
    local settings=(listen_addresses= "shared_buffers=$SHARED_BUFFERS" jit=off autovacuum=off
        effective_io_concurrency=0 maintenance_io_concurrency=0 checkpoint_timeout=1h
        bgwriter_lru_maxpages=0 max_parallel_workers_per_gather=0)
    mkdir -p "run/$1" && chmod 777 "run/$1"
    if ! "${as[@]}" "$bin/pg_ctl" -D "$2" -w -t 120 -l "$work/run/$1.log" \
        -o "-k $work/run/$1 ${settings[*]/#/-c }" start > start.log; then
        cat "run/$1.log" >&2
        return 1
    fi
    serving+=("$2")
}
stop() { "${as[@]}" "$bin/pg_ctl" -D "$1" -w -m fast stop > /dev/null; }
stop_all() {
    for at in "${serving[@]}"; do stop "$at"; done
    serving=()
}
client() { # database, program, arguments
    (cd "$work/run" && "${as[@]}" env PGHOST="$work/run/$1" "$bin/$2" "${@:3}" postgres)
}
load() {
    for database in "${databases[@]}"; do
        echo "filling $database" >&2
        "${as[@]}" "$bin/initdb" -D "all/$database" --no-locale --encoding=UTF8 -A trust -k > /dev/null
        start "$database" "$work/all/$database"
        client "$database" pgbench --initialize --quiet --scale="$SCALE" 2> /dev/null
        client "$database" psql -X -q -c 'VACUUM (FREEZE, ANALYZE)' -c CHECKPOINT
        # Index scans in order of the table, whatever the planner thinks of this volume.
        client "$database" psql -X -q -c 'ALTER SYSTEM SET enable_seqscan = off' -c 'ALTER SYSTEM SET enable_bitmapscan = off'
        client "$database" psql -X -A -t -q -c 'SHOW server_version' > version
        client "$database" psql -X -A -t -q -c "SELECT pg_table_size('pgbench_accounts') + pg_indexes_size('pgbench_accounts')" > bytes
    done
    stop_all
}
mount() { # name, policy, share: 1 of so many
    local list
    list=$([[ $1 == all ]] && printf '"%s", ' "${databases[@]}" || printf '"%s"' "$1")
    printf '[tier]\nclients = [%s]\n' "${list%, }" > "$1.toml"
    rm -f "cache-$1"
    "$thermocline" mount "$work/$1" "$work/mnt-$1" --config "$1.toml" --policy "$2" --page-size 8KiB \
        --cache "$work/cache-$1" --size "$((FLASH / $3))p" --emulate-base network \
        --emulate-requests "$((REQUESTS / $3))" --emulate-rate "$((RATE / $3))MiB" --log "$work/$1.log" > /dev/null
    mounts+=("$work/mnt-$1")
}
status() { # before or after
    for at in "${mounts[@]}"; do "$thermocline" status --json "$at" > "$1-${at##*/mnt-}.json"; done
}
load_all() { # seconds, seed
    local pids=()
    for at in 0 1 2; do
        local database=${databases[at]} pace=()
        if [[ $database == scan ]]; then pace=("--rate=$SCANS"); fi
        client "$database" pgbench "${pace[@]}" --no-vacuum --file="$database.sql" --define=rows="$rows" --define=skew="$SKEW" \
            --define=span="$SPAN" --client="${clients[at]}" --jobs=1 --protocol=prepared --time="$1" \
            --random-seed="$2" > "report-$database" 2>&1 &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid" || { cat report-* >&2 && return 1; }; done
}
measure() { # policy, shared or parts, repeat
    if [[ $2 == shared ]]; then
        mount all "$1" 1
        for database in "${databases[@]}"; do start "$database" "$work/mnt-all/$database"; done
    else
        for database in "${databases[@]}"; do
            mv "all/$database" "$database/"
            mount "$database" "$1" 3
            start "$database" "$work/mnt-$database/$database"
        done
    fi
    load_all "$WARM" "1$3"
    # Looked at while all of them run.
    load_all "$((SECONDS_MEASURED + 4))" "2$3" &
    local load=$!
    sleep 2
    status before
    sleep "$SECONDS_MEASURED"
    status after
    wait "$load"
    python3 "$here/clients_live.py" row "$1" "$2" "$3" "$work" > "$out/$1-$2-$3.json"
    cat "$out/$1-$2-$3.json" >&2
    stop_all
    for at in "${mounts[@]}"; do "$thermocline" umount "$at" > /dev/null; done
    mounts=()
    if [[ $2 == parts ]]; then
        for database in "${databases[@]}"; do mv "$database/$database" all/; done
    fi
    rm -f before-*.json after-*.json
}

load
for repeat in $(seq "$REPEATS"); do
    for policy in $POLICIES; do
        measure "$policy" parts "$repeat"
        measure "$policy" shared "$repeat"
    done
done
echo "$("$thermocline" --version), PostgreSQL $(cat version), $(nproc) cores; each database has $(($(cat bytes) / 8192)) pages of 8 KiB"
python3 "$here/clients_live.py" table "$out"
