#!/usr/bin/env bash
# Chapter 6 of the thesis (L 6.5): pool and tier managed together, over *logical* page requests. Fills
# a PostgreSQL with TPC-C on plain storage, captures every page request to its buffer manager (hits
# too) and every page it dirties (../captures/logical.py), and simulates pool and tier below them; the
# figures behind evaluation/results/chapter6.md.
#
#   evaluation/workloads/chapter6.sh [OUT]
#
# Needs root, uprobes, Debian's PostgreSQL with its contrib extensions, python3 with venv,
# target/release/thermocline (or THERMOCLINE=program), 8 GiB of memory and 10 GiB of disk. go-tpc is built with
# `go install` unless GO_TPC names a program.
set -euo pipefail

: "${WAREHOUSES:=10}"
: "${TERMINALS:=20}"      # twice the warehouses, as in L 6.5.1
: "${WARM:=30}"           # seconds before the capture
: "${REQUESTS:=75000000}" # events to capture: requests and dirtied pages
: "${SECONDS_AT_MOST:=1500}"
: "${BUFFERS:=4GB}"       # more than the database will have: no page may leave its buffer
: "${GO_TPC_VERSION:=682637f4f995}"
: "${DIRECTORY:=${TMPDIR:-/tmp}}"
: "${LOADED:=}"           # directory that keeps the filled database for further captures
: "${KEEP:=}"             # directory that keeps the capture; if it has one, nothing is captured
: "${PYTHON_VENV:=}"      # a virtual environment with numpy and pyarrow

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$(realpath -m "${1:-$here/../../target/chapter6}")
thermocline=$(realpath "${THERMOCLINE:-$here/../../target/release/thermocline}")
mkdir -p "$out"
work=$(mktemp -d "$DIRECTORY/thermocline-chapter6-XXXXXX")
chmod 755 "$work"
mkdir "$work"/{base,run,raw}
chown postgres "$work" "$work"/{base,run}
as=(runuser -u postgres --)
cd "$work"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
serving=no load=
finish() {
    if [[ -n $load ]]; then kill "$load" 2> /dev/null || true; fi
    if [[ $serving == yes ]]; then stop || true; fi
    cd /
    rm -rf --one-file-system "$work"
}
trap finish EXIT
# shellcheck source=../captures/postgres.sh
source "$here/../captures/postgres.sh" # create start prepare stop sql analyze

venv=$PYTHON_VENV
if [[ -z $venv ]]; then
    venv=$work/venv
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet numpy pyarrow==26.0.1
fi
python=$venv/bin/python

on=(-d postgres --conn-params sslmode=disable -U capture -D test -H 127.0.0.1 -P "$port" --warehouses "$WAREHOUSES")

# In place of the captures': no write of the database waits for a device, and no page leaves its
# buffer. What the database asks of its buffers is the matter.
start() { # data directory
    local settings=(listen_addresses=127.0.0.1 "port=$port" "shared_buffers=$BUFFERS" jit=off fsync=off
        full_page_writes=off synchronous_commit=off checkpoint_timeout=1h max_wal_size=64GB
        effective_io_concurrency=0 maintenance_io_concurrency=0 max_parallel_workers_per_gather=0)
    if ! "${as[@]}" "$bin/pg_ctl" -D "$1" -w -t 300 -l "$work/run/log" \
        -o "-k $work/run ${settings[*]/#/-c }" start > "$work/start.log"; then
        cat "$work/run/log" >&2
        return 1
    fi
    data=$1 serving=yes
}

fill() {
    create "$work/base/data"
    start "$work/base/data"
    prepare
    "$GO_TPC" tpcc prepare "${on[@]}" -T 4 --no-check > "$work/prepare.log"
    analyze
    stop
}

held() { # which page each buffer has
    sql -c "COPY (SELECT bufferid, reldatabase, relfilenode, relforknumber, relblocknumber
        FROM pg_buffercache WHERE relfilenode IS NOT NULL) TO STDOUT (FORMAT csv)"
}

capture() {
    if [[ -z ${GO_TPC:-} ]]; then
        GOBIN=$work go install "github.com/pingcap/go-tpc/cmd/go-tpc@$GO_TPC_VERSION"
        GO_TPC=$work/go-tpc
    fi
    local kept=${LOADED:+$LOADED/chapter6-$WAREHOUSES}
    if [[ -n $kept && -d $kept ]]; then
        cp -a --reflink=auto "$kept/." "$work/base/"
    else
        echo "loading $WAREHOUSES warehouses" >&2
        fill
        if [[ -n $kept ]]; then cp -a --reflink=auto "$work/base" "$kept"; fi
    fi
    start "$work/base/data"
    sql -c 'CREATE EXTENSION IF NOT EXISTS pg_buffercache; CREATE EXTENSION IF NOT EXISTS pg_prewarm'
    sql -c "SELECT sum(pg_prewarm(oid)) FROM pg_class WHERE relkind IN ('r', 'i', 't', 'm')" > "$keep/prewarmed"
    sql -c "SELECT pg_database_size('test')" > "$keep/bytes"
    sql -c 'SHOW server_version' > "$keep/version"
    "$GO_TPC" tpcc run "${on[@]}" -T "$TERMINALS" --time "$((WARM + SECONDS_AT_MOST + 120))s" --ignore-error \
        --interval 1s > >(while IFS= read -r line; do echo "${EPOCHREALTIME/./} $line"; done > "$keep/run.log") 2>&1 &
    load=$!
    sleep "$WARM"
    held > "$work/raw/before.csv"
    "$python" "$here/../captures/logical.py" record "$bin/postgres" "$work/raw" \
        --requests "$REQUESTS" --seconds "$SECONDS_AT_MOST" >&2
    held > "$work/raw/buffers.csv"
    kill "$load"
    wait "$load" || true
    load=
    sql -c "SELECT pg_database_size('test')" > "$keep/bytes-after"
    sql -c "COPY (SELECT d.oid, pg_relation_filenode(c.oid), relname, relkind, c.oid < 16384 FROM pg_class c, pg_database d
        WHERE d.datname = current_database() AND pg_relation_filenode(c.oid) IS NOT NULL
        AND NOT relisshared) TO STDOUT (FORMAT csv)" > "$work/raw/names.csv"
    stop
    echo "converting" >&2
    "$python" "$here/../captures/logical.py" convert "$work/raw" "$keep/chapter6.parquet" >&2
}

keep=${KEEP:-$out}
mkdir -p "$keep"
[[ -e $keep/chapter6.json ]] || capture
PYTHONPATH=$here/../captures "$python" "$here/chapter6.py" "$thermocline" "$keep" "$out"
