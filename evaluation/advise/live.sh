#!/usr/bin/env bash
# Whole objects on flash against a tier, live: TPC-C by PostgreSQL over a base that is an emulated
# 7200-rpm disk, flash for a share of the database.
#
#   evaluation/advise/live.sh [RESULT.md]
#
# Needs root (or a user who may mount and run postgres), FUSE, PostgreSQL, python3, go-tpc (built
# with `go install` unless GO_TPC names a program), and target/release/thermocline (or
# THERMOCLINE=program). Parameters below, each to be overridden by the environment.
#
# First the load is recorded on a mount without a slow disk, and `thermocline advise` says which
# objects belong on flash. Then, REPEATS times, every row in turn, each from a copy of the same
# files with an empty cache. Rows:
#
#   none        the disk alone
#   indexes     the advisor's naive plan: index files are moved to flash (links to files there)
#   opa         the files that access density chooses are moved to flash
#   POLICY      a tier of that policy, write-through; POLICY:back in write-back
#   opa+POLICY  the advised files are pinned in the tier, the policy has the rest; also with :back
#   ssd         everything on flash
#
# Flash, the database's log (in every row) and `ssd` are the machine's own disk.
set -euo pipefail

: "${WAREHOUSES:=2}"      # TPC-C: about 100 MB each
: "${SHARES:=23 36}"      # flash in per cent of the database
: "${MEMORY:=2.5}"        # the database's own buffers, in per cent of the database
: "${CLIENTS:=8}"
: "${PROFILED:=60}"       # seconds that are recorded for the advice
: "${WARM:=60}"           # seconds before measuring
: "${SECONDS_MEASURED:=40}"
: "${REPEATS:=3}"
: "${FULL:=2}"            # the emulated disk's capacity over the database's size
: "${ROWS:=indexes opa tac tac:back value:back opa+tac:back}"
: "${GO_TPC_VERSION:=682637f4f995}"
: "${DIRECTORY:=${TMPDIR:-/tmp}}"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
thermocline=$(realpath "${THERMOCLINE:-$here/../../target/release/thermocline}")
result=$(realpath -m "${1:-$here/../results/advise-live.md}")
bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)

work=$(mktemp -d "$DIRECTORY/thermocline-opa-XXXXXX")
chmod 755 "$work"
mkdir "$work"/{mnt,run,loaded,flash}
as=()
if ((EUID == 0)); then
    as=(runuser -u postgres --)
    chown postgres "$work" "$work"/{run,loaded,flash}
fi
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

if [[ -z ${GO_TPC:-} ]]; then
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
run() { tpcc run -T "$CLIENTS" --time "${1}s" --ignore-error --interval 3600s > "$2" 2>&1; } # seconds, report

load() {
    echo "filling the database" >&2
    "${as[@]}" "$bin/initdb" -D "$work/loaded/data" -X "$work/loaded/wal" --no-locale --encoding=UTF8 -A trust -k -U bench > /dev/null
    start "$work/loaded/data" 256MB
    "${as[@]}" "$bin/createdb" -h "$work/run" -p "$port" -U bench test
    tpcc prepare -T 4 --no-check > "$work/prepare.log"
    sql -c 'VACUUM (FREEZE, ANALYZE)'
    sql -c CHECKPOINT
    bytes=$(sql -c "SELECT pg_database_size('test')")
    version=$(sql -c 'SHOW server_version')
    stop fast
    buffers=$(python3 -c "print(max(1024, round($bytes * $MEMORY / 100 / 1024)))")kB
    disk=(--emulate-base hdd --emulate-capacity $((bytes * FULL)))
}

# A copy of the loaded files below base; the log lies beside, on the fast disk.
fresh() {
    # All of base: it remembers which cache it is owed bytes by.
    rm -rf "$work/cache" "$work/base" "$work/wal" "$work/flash"/*
    "${as[@]}" mkdir "$work/base"
    cp -a "$work/loaded/data" "$work/base/"
    cp -a "$work/loaded/wal" "$work/wal"
    rm "$work/base/data/pg_wal"
    ln -s "$work/wal" "$work/base/data/pg_wal"
}
mount() { # mount's options
    "$thermocline" mount "$work/base" "$work/mnt" --page-size 8KiB "$@" --log "$work/mount.log" > /dev/null
    mounted=yes
}
unmount() {
    "$thermocline" umount --keep-dirty "$work/mnt" > /dev/null
    mounted=no
}

advise() {
    echo "recording for $PROFILED s" >&2
    fresh
    mount --policy tac --cache "$work/cache" --size 2MiB --format --record "$work/trace.parquet"
    start "$work/mnt/data" "$buffers"
    run "$PROFILED" "$work/profiled"
    sql -c "COPY (SELECT 'data/' || pg_relation_filepath(oid), relname FROM pg_class
        WHERE pg_relation_filepath(oid) IS NOT NULL) TO STDOUT (FORMAT csv)" > "$work/names.csv"
    stop
    unmount
    for share in $SHARES; do
        echo $((bytes * share / 100 / 8192)) > "$work/slots.$share"
        "$thermocline" advise "$work/trace.parquet" --policies tac --size "$((bytes * share / 100 / 8192))p" \
            --keep-size --placements "$work/placements.$share.json" > "$work/advice.$share" 2> /dev/null
    done
}

measure() { # share, row, repeat
    local share=$1 row=$2 slots options=() mode=() policy plan
    slots=$((bytes * share / 100 / 8192))
    fresh
    [[ $row != *:back ]] || mode=(--write-back)
    policy=${row%:back}
    policy=${policy#opa+}
    case $row in
        none) options=(--policy none "${disk[@]}") ;;
        ssd) options=(--policy none) ;;
        indexes | opa)
            options=(--policy none "${disk[@]}")
            plan=$("$here/live.py" plan "$work" "$share" "$row")
            for file in $plan; do
                mv "$work/base/$file" "$work/flash/${file//\//-}"
                ln -s "$work/flash/${file//\//-}" "$work/base/$file"
            done
            ;;
        *)
            options=(--policy "$policy" --cache "$work/cache" --size "${slots}p" --format "${mode[@]}" "${disk[@]}")
            if [[ $row == opa+* ]]; then
                "$here/live.py" plan "$work" "$share" copied | python3 -c \
                    'import json, sys; print("[tier]\npin =", json.dumps(sys.stdin.read().split()))' > "$work/config.toml"
                options+=(--config "$work/config.toml")
            fi
            ;;
    esac
    mount "${options[@]}"
    start "$work/mnt/data" "$buffers"
    run "$WARM" "$work/warm"
    "$thermocline" status --json "$work/mnt" > "$work/before.json"
    run "$SECONDS_MEASURED" "$work/report"
    "$thermocline" status --json "$work/mnt" > "$work/after.json"
    stop
    unmount
    "$here/live.py" row "$work" "$share" "$row" "$3" | tee -a "$work/rows.jsonl"
}

load
advise
for repeat in $(seq "$REPEATS"); do
    measure 0 none "$repeat"
    measure 100 ssd "$repeat"
    for share in $SHARES; do
        for row in $ROWS; do measure "$share" "$row" "$repeat"; done
    done
done

settings="WAREHOUSES=$WAREHOUSES SHARES='$SHARES' MEMORY=$MEMORY CLIENTS=$CLIENTS PROFILED=$PROFILED WARM=$WARM \
SECONDS_MEASURED=$SECONDS_MEASURED REPEATS=$REPEATS FULL=$FULL ROWS='$ROWS'"
{
    cat << END
# Whole objects on flash against a tier, live

$(date -u +%Y-%m-%d). $("$thermocline" --version), PostgreSQL $version, Linux $(uname -r | cut -d- -f1), $(nproc)
cores. Base is a file system slowed down to an **emulated** 7200-rpm disk, $FULL times as large as the database.
Flash, the database's log (in every row) and \`ssd\` are the machine's own disk, which nothing slows down.

    $settings evaluation/advise/live.sh

TPC-C, $WAREHOUSES warehouses, $((bytes >> 20)) MiB, $CLIENTS clients, no think times, shared_buffers $buffers. Each row starts from a copy of the same files
and an empty cache: $WARM s of warming, $SECONDS_MEASURED s measured, $REPEATS repeats in turn: medians and ranges.

END
    "$here/live.py" table "$work"
} > "$result"
for share in $SHARES; do cp "$work/advice.$share" "${result%.md}-advice-$share.txt"; done
echo "written to $result"
