#!/usr/bin/env bash
# What files that grow cost in write-back, over a base that is an emulated disk: COPY into a new table
# and an index of it; then, from an empty cache, an external sort of the table and a hash join with
# itself in many batches (as of TPC-H's query 18), whose temporary files are on the mount.
#
#   evaluation/growth/run.sh PROGRAM...
#
# One line for each program, run and load: seconds, and what base did meanwhile. Needs root, FUSE and
# PostgreSQL. The log and the system's tables are beside the mount, on the machine's own disk.
# Parameters, each to be overridden by the environment:
set -euo pipefail

: "${ROWS:=100000}"     # of about 180 bytes
: "${REPEATS:=3}"
: "${POLICY:=priority}" # of those that admit temporary files by themselves
: "${SIZE:=256MiB}"     # of the tier
: "${DISK:=hdd}"
: "${FULL:=64MiB}"      # what the emulated disk's arm moves over
: "${DIRECTORY:=${TMPDIR:-/tmp}}"

bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)
work=$(mktemp -d "$DIRECTORY/thermocline-growth-XXXXXX")
chmod 755 "$work"
mkdir "$work"/{mnt,base,run}
chown postgres "$work" "$work"/{base,run}
as=(runuser -u postgres --)
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
cd "$work"
serving=no mounted=no
finish() {
    if [[ $serving == yes ]]; then "${as[@]}" "$bin/pg_ctl" -D "$work/run/data" -m immediate stop > /dev/null || true; fi
    if [[ $mounted == yes ]]; then "$program" umount --lazy --keep-dirty "$work/mnt" > /dev/null || true; fi
    cd /
    rm -rf --one-file-system "$work"
}
trap finish EXIT
sql() { "${as[@]}" "$bin/psql" -X -A -t -q -h "$work/run" -p "$port" -U bench -d postgres -v ON_ERROR_STOP=1 "$@"; }
base() { # figure of base's meter so far
    "$program" status --json "$work/mnt" | python3 -c '
import json, sys
base = json.load(sys.stdin)["devices"][0]
print(base["writes"]["count"], base["writes"]["bytes"], base["reads"]["count"], base["busy_s"])'
}

"${as[@]}" "$bin/initdb" -D "$work/run/data" --no-locale --encoding=UTF8 -A trust -U bench > /dev/null
start() {
    "${as[@]}" "$bin/pg_ctl" -D "$work/run/data" -w -l "$work/run/log" -o "-k $work/run -c listen_addresses= \
-c port=$port -c jit=off -c autovacuum=off -c max_parallel_workers_per_gather=0 -c work_mem=1MB \
-c max_parallel_maintenance_workers=0 -c maintenance_work_mem=4MB -c checkpoint_timeout=1h \
-c max_wal_size=8GB -c shared_buffers=2MB -c temp_tablespaces=grown" start > /dev/null
    serving=yes
}
stop() {
    "${as[@]}" "$bin/pg_ctl" -D "$work/run/data" -w stop > /dev/null
    serving=no
}
mount() { # with an empty cache
    rm -f "$work/cache"
    "$program" mount "$work/base" "$work/mnt" --policy "$POLICY" --write-back --cache "$work/cache" \
        --size "$SIZE" --page-size 8KiB --emulate-base "$DISK" --emulate-capacity "$FULL" \
        --log "$work/mount.log" > /dev/null
    mounted=yes
}
unmount() {
    "$program" umount "$work/mnt" > /dev/null
    mounted=no
}
python3 - "$ROWS" > "$work/run/rows" << 'END'
import hashlib, random, sys
draw = random.Random(5)
for number in range(int(sys.argv[1])):
    print(draw.random(), number, 4 * hashlib.md5(str(number).encode()).hexdigest(), sep="\t")
END
load() { # name, statement, statement before it
    local before after from to
    sql -c "${3:-SELECT 1}" > /dev/null
    before=$(base)
    from=$(date +%s%N)
    sql -c "$2" > /dev/null
    to=$(date +%s%N)
    after=$(base)
    echo "$(basename "$program") $number $1 $(((to - from) / 1000000)) $before $after" \
        | awk '{printf "%s run %s %s: %.1f s, base busy %.1f s, %d writes, %.1f MiB, %d reads\n",
            $1, $2, $3, $4 / 1000, $12 - $8, $9 - $5, ($10 - $6) / 1048576, $11 - $7}'
}
for number in $(seq "$REPEATS"); do
    for program in "$@"; do
        rm -rf "$work/base"
        "${as[@]}" mkdir -p "$work/base/space"
        mount
        start
        sql -c "CREATE TABLESPACE grown LOCATION '$work/mnt/space'"
        load copy "COPY source FROM '$work/run/rows'" "CREATE TABLE source (key float8, id int, pad text) TABLESPACE grown"
        load checkpoint CHECKPOINT
        load index 'CREATE INDEX ON source (key) TABLESPACE grown'
        stop
        unmount
        mount
        start
        load sort "SET enable_indexscan = off; SELECT sum(length(pad) + id) FROM (SELECT * FROM source ORDER BY key OFFSET 0) s"
        load join "SELECT sum(length(a.pad) + length(b.pad)) FROM source a JOIN source b ON a.id = b.id"
        sql -c 'DROP TABLE source' -c CHECKPOINT -c 'DROP TABLESPACE grown'
        stop
        unmount
    done
done
