# shellcheck shell=bash
# For the scripts of this directory: a PostgreSQL with the extension that publishes plans, TPC-H's
# data, and recordings of it on a mount. Sourced with $here set and the shell in strict mode.

: "${DIRECTORY:=${TMPDIR:-/tmp}}"
: "${LOADED:=}"           # directory that keeps loaded databases for further runs
: "${PYTHON_VENV:=}"      # a virtual environment with numpy, pyarrow and tpchgen-cli
: "${KEEP:=}"             # directory that keeps the recordings; if it has them, nothing is recorded
: "${PRELOAD=thermocline}" # what PostgreSQL loads at its start; empty: it publishes no plans

thermocline=$(realpath "${THERMOCLINE:-$here/../../target/release/thermocline}")
config=$(ls -d /usr/lib/postgresql/*/bin/pg_config | sort -V | tail -1)
work=$(mktemp -d "$DIRECTORY/thermocline-loads-XXXXXX")
chmod 755 "$work"
mkdir "$work"/{mnt,run,base,traces}
as=()
if ((EUID == 0)); then
    as=(runuser -u postgres --)
    chown postgres "$work" "$work"/{run,base}
fi
traces=${KEEP:-$work/traces}
mkdir -p "$traces"
cd "$work"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
mounted=no serving=no
finish() {
    if [[ $serving == yes ]]; then stop || true; fi
    if [[ $mounted == yes ]]; then "$thermocline" umount --lazy "$work/mnt" > /dev/null || true; fi
    cd /
    rm -rf --one-file-system "$work"
}
trap finish EXIT

venv=$PYTHON_VENV
if [[ -z $venv ]]; then
    venv=$work/venv
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet numpy pyarrow==26.0.1 tpchgen-cli==4.0.0
fi
python=$venv/bin/python

server() { bin=$("$here/../../pg/private.sh" "$config" "$work/pg"); }
start() { # data directory, shared buffers, further settings
    local settings=(listen_addresses=127.0.0.1 "port=$port" "shared_buffers=$2" jit=off
        "shared_preload_libraries=$PRELOAD" effective_io_concurrency=0 autovacuum=off
        maintenance_io_concurrency=0 checkpoint_timeout=5min max_wal_size=8GB
        max_parallel_workers_per_gather=0 "${@:3}")
    if ! "${as[@]}" "$bin/pg_ctl" -D "$1" -w -t 300 -l "$work/run/log" \
        -o "-k $work/run ${settings[*]/#/-c }" start > "$work/start.log"; then
        cat "$work/run/log" >&2
        return 1
    fi
    data=$1 serving=yes
}
stop() {
    "${as[@]}" "$bin/pg_ctl" -D "$data" -w -t 300 -m "${1:-fast}" stop > /dev/null
    serving=no
}
sql() { "${as[@]}" "$bin/psql" -X -A -t -q -h "$work/run" -p "$port" -U bench -d test -v ON_ERROR_STOP=1 "$@"; }
bytes() { sql -c "SELECT pg_database_size('test')"; }

# A database in $work/base/data: what $2 (a function) puts into it, or the copy that LOADED has.
load() { # name, function
    local kept=${LOADED:+$LOADED/$1}
    if [[ -n $kept && -d $kept ]]; then
        cp -a --reflink=auto "$kept/." "$work/base/"
        return
    fi
    echo "loading $1" >&2
    "${as[@]}" "$bin/initdb" -D "$work/base/data" --no-locale --encoding=UTF8 -A trust -U bench > /dev/null
    start "$work/base/data" 256MB maintenance_work_mem=256MB max_wal_size=512MB wal_level=minimal max_wal_senders=0 fsync=off
    "${as[@]}" "$bin/createdb" -h "$work/run" -p "$port" -U bench test
    "$2"
    sql -c 'VACUUM (FREEZE, ANALYZE)'
    sql -c CHECKPOINT
    stop
    if [[ -n $kept ]]; then cp -a --reflink=auto "$work/base" "$kept"; fi
}
# shellcheck source=tables.sh
source "$here/tables.sh" # load_tpch index_tpch

# A recorded mount. The policy is `priority` because only it takes temporary files into the tier, so
# only then are they recorded; of a tier of 2 MiB nothing is served.
mount() {
    "$thermocline" mount "$work/base" "$work/mnt" --policy priority --cache "$work/cache" --size 2MiB \
        --format --page-size 8KiB --record "$work/trace.parquet" --log "$work/mount.log" > /dev/null
    mounted=yes
}
unmount() {
    "$thermocline" umount "$work/mnt" > /dev/null
    mounted=no
}
names() {
    sql -c "COPY (SELECT 'data/' || pg_relation_filepath(oid), relname FROM pg_class
        WHERE pg_relation_filepath(oid) IS NOT NULL) TO STDOUT (FORMAT csv)" > "$work/names.csv"
}
now() { date +%s%N; }
phase() { # name, from: what was recorded since then becomes a trace of that name
    echo "$1 $2 $(now)" >> "$work/phases"
}
# All phases become traces in $traces.
cut_phases() {
    "$python" "$here/cut.py" "$work/trace.parquet" "$traces" --names "$work/names.csv" --phases "$work/phases"
    rm -f "$work"/trace*.parquet
}

# One session with all of queries.py's queries, MEMORY per cent of the database in buffers, becomes
# the trace $1.
record_queries() { # name, arguments of queries.py
    local name=$1 size from
    shift
    size=$(du -sb "$work"/base/data/base/* | sort -n | tail -1 | cut -f1)
    mount
    start "$work/mnt/data" "$(python3 -c "print(int($size * $MEMORY / 100 / 1024))")kB"
    names
    bytes > "$traces/bytes"
    sql -c 'SHOW server_version' > "$traces/version"
    python3 "$here/queries.py" "$@" | cut -f2 > "$work/run/queries.sql"
    from=$(now)
    sql -f "$work/run/queries.sql" > /dev/null
    phase "$name" "$from"
    stop
    unmount
    cut_phases
}
