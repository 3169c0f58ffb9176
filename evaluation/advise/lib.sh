# shellcheck shell=bash
# PostgreSQL under TPC-C below `$work`, for live.sh and follow.sh: a database that is loaded once, and
# copies of it on a mount over an emulated disk. Sourced with $here and $thermocline set.

: "${WAREHOUSES:=2}"      # TPC-C: about 100 MB each
: "${MEMORY:=2.5}"        # the database's own buffers, in per cent of the database
: "${CLIENTS:=8}"
: "${FULL:=2}"            # the emulated disk's capacity over the database's size
: "${GO_TPC_VERSION:=682637f4f995}"
: "${DIRECTORY:=${TMPDIR:-/tmp}}"

bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)
work=$(mktemp -d "$DIRECTORY/thermocline-advise-XXXXXX")
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

load() { # tpcc or pgbench
    echo "filling the database of ${1:-tpcc}" >&2
    rm -rf "$work"/loaded/*
    "${as[@]}" "$bin/initdb" -D "$work/loaded/data" -X "$work/loaded/wal" --no-locale --encoding=UTF8 -A trust -k -U bench > /dev/null
    start "$work/loaded/data" 256MB
    "${as[@]}" "$bin/createdb" -h "$work/run" -p "$port" -U bench test
    if [[ ${1:-tpcc} == tpcc ]]; then
        tpcc prepare -T 4 --no-check > "$work/prepare.log"
    else
        pgbench --initialize --quiet --fillfactor=90 --scale="$SCALE" 2> /dev/null
    fi
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
