#!/usr/bin/env bash
# The default policy against others, live: PostgreSQL over a base that is an emulated 7200-rpm disk,
# flash for a fifth of the database. The figures behind evaluation/results/policies-live.md.
#
#   evaluation/policies/live.sh [RESULT.md]
#
# Needs root (or a user who may mount and run postgres), FUSE, PostgreSQL, Python 3 with venv,
# target/release/thermocline (or THERMOCLINE=program), and for TPC-C GO_TPC=program, a go-tpc that
# speaks to PostgreSQL (see network.sh in ../workloads). Without it TPC-C is left out. Parameters here
# and in ../workloads/lib.sh, each to be overridden by the environment.
#
# Workloads: `scattered` and `clustered` are those of ../pgbench-skewed; `tpcc` is TPC-C in
# write-through, `tpcc-back` in write-back; `tpch` are some queries of TPC-H, one stream to warm and
# another one to measure. Each has a mount, a database and an emulated disk of its own, and AT_ONCE of
# them run at the same time: the emulated disk is the limit, so processors and flash have time for
# several. Policies take turns within a repeat, and each repeat begins with another one. Every
# measurement starts from a copy of the same files and the same seeds (of its repeat), with an empty
# cache. The database's log is not below the mount but on the fast disk, in every row.
set -euo pipefail

set -a # the lanes are processes of their own
: "${SCALE:=15}"          # pgbench: 100,000 rows each, about 15 MB
: "${SKEW:=1.01}"         # pgbench: exponent of the Zipf distribution
: "${WAREHOUSES:=2}"      # TPC-C: about 100 MB each
: "${TPCH:=0.02}"         # TPC-H: scale
: "${QUERIES:=3 4 5 7 10 12 14 17 18 19}" # TPC-H
: "${SHARE:=5}"           # database size over flash size
: "${SHARED_BUFFERS:=8MB}"
: "${BUFFERS_TPCH:=2MB}"   # the same of TPC-H, whose database is smaller
: "${CLIENTS:=8}"
: "${WARM:=80}"           # seconds before measuring; TPC-H: a stream of queries, however long it takes
: "${WARM_SHORT:=40}"     # the same of base alone, which has nothing to warm but checkpoints
: "${SECONDS_MEASURED:=45}"
: "${REPEATS:=3}"
: "${POLICIES:=none auto value tac clic lru}" # none: base alone
: "${WORKLOADS:=scattered clustered tpcc tpcc-back tpch}"
: "${AT_ONCE:=5}"
: "${GO_TPC:=}"
: "${KEEP:=}"             # directory that keeps what was measured; what is there is not measured again
: "${RECORD:=}"           # directory for recordings of the mounts, to simulate; recording takes time
: "${LOADED:=}"           # directory that keeps the loaded databases
: "${PRELOAD=}"
set +a

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../workloads" && pwd)
policies=$here/../policies
lane=
if [[ ${1:-} == --lane ]]; then lane=$2; else result=$(realpath -m "${1:-$policies/../results/policies-live.md}"); fi
KEEP=${KEEP:+$(realpath -m "$KEEP")} LOADED=${LOADED:+$(realpath -m "$LOADED")} RECORD=${RECORD:+$(realpath -m "$RECORD")}
# shellcheck source=../workloads/lib.sh
source "$here/lib.sh"
bin=$("$config" --bindir)

pgbench() { (cd "$work/run" && "${as[@]}" "$bin/pgbench" -h "$work/run" -p "$port" -U bench "$@" test); }
tpcc() {
    "$GO_TPC" tpcc "$1" -d postgres --conn-params sslmode=disable -U bench -D test -H 127.0.0.1 -P "$port" \
        --warehouses "$WAREHOUSES" "${@:2}"
}
fill_pgbench() { pgbench --initialize --quiet --scale="$SCALE" 2> /dev/null; }
fill_tpcc() { tpcc prepare -T 4 --no-check > "$work/prepare.log"; }
fill_tpch() {
    load_tpch "$TPCH"
    sql << 'SQL'
CREATE INDEX l_orderkey ON lineitem (l_orderkey);
CREATE INDEX l_partkey ON lineitem (l_partkey, l_suppkey);
CREATE INDEX o_orderkey ON orders (o_orderkey);
CREATE INDEX o_custkey ON orders (o_custkey);
CREATE INDEX ps_partkey ON partsupp (ps_partkey, ps_suppkey);
CREATE INDEX ps_suppkey ON partsupp (ps_suppkey);
CREATE INDEX p_partkey ON part (p_partkey);
CREATE INDEX c_custkey ON customer (c_custkey);
CREATE INDEX s_suppkey ON supplier (s_suppkey);
SQL
}
database() { # workload
    case $1 in
        scattered | clustered) echo pgbench ;;
        tpcc*) echo tpcc ;;
        *) echo "$1" ;;
    esac
}

# Fills a database once; its size and the server's version lie beside it.
prepare() { # database
    [[ ! -e $LOADED/$1.bytes ]] || return 0
    load "$1" "fill_$1"
    start "$work/base/data" 16MB
    bytes > "$LOADED/$1.bytes"
    sql -c 'SHOW server_version' > "$LOADED/version"
    stop
    rm -rf "$work/base"
    "${as[@]}" mkdir "$work/base"
}

# The loaded files again: data below the mount, the log beside.
fresh() { # database
    # All of base: it remembers which cache it is owed bytes by.
    rm -rf "$work/cache" "$work/base" "$work/wal" "$work/.base.thermocline-hot"
    "${as[@]}" mkdir "$work/base"
    cp -a --reflink=auto "$LOADED/$1/data" "$work/base/"
    mv "$work/base/data/pg_wal" "$work/wal"
    ln -s "$work/wal" "$work/base/data/pg_wal"
    sync -f "$work/base"
}
mount() { # workload, policy, repeat
    local size options=(--policy none)
    size=$(cat "$LOADED/$(database "$1").bytes")
    if [[ $2 != none ]]; then
        options=(--policy "$2" --cache "$work/cache" --size "$((size / SHARE / 8192))p")
        if [[ $1 == *-back ]]; then options+=(--write-back); fi
        if [[ -n $RECORD ]]; then options+=(--record "$RECORD/$1-$2-$3.parquet"); fi
    fi
    "$thermocline" mount "$work/base" "$work/mnt" --page-size 8KiB --emulate-base hdd \
        "${options[@]}" --log "$work/mount.log" > /dev/null
    mounted=yes
}
unmount() {
    "$thermocline" umount --keep-dirty "$work/mnt" > /dev/null
    mounted=no
}

# The workload for some seconds: its report in $work/report, a latency a line in $work/latency where
# it tells. TPC-H: the queries of stream 1 to warm and of stream 2 to measure, a line each.
run() { # workload, seconds, seed, warm or measured
    rm -f "$work"/run/latency.* "$work/latency"
    case $1 in
        scattered | clustered)
            pgbench --no-vacuum --file="$1.sql" --define=rows=$((SCALE * 100000)) \
                --define=extents=$((SCALE * 100000 / 2048)) --define=skew="$SKEW" --client="$CLIENTS" \
                --jobs=2 --protocol=prepared --time="$2" --random-seed="$3" --log --log-prefix=latency \
                > "$work/report" 2>&1
            cat "$work"/run/latency.* > "$work/latency"
            ;;
        tpcc*) tpcc run -T "$CLIENTS" --time "${2}s" --ignore-error --interval 3600s > "$work/report" 2>&1 ;;
        tpch)
            local stream=1 name text from
            if [[ $4 == measured ]]; then stream=2; fi
            while IFS=$'\t' read -r name text; do
                [[ " $QUERIES " == *" ${name#Q} "* ]] || continue
                from=$(now)
                sql -c "$text" > /dev/null < /dev/null
                echo "$name $((($(now) - from) / 1000))"
            done < <(python3 "$here/queries.py" stream "$stream" "$TPCH") > "$work/report"
            ;;
    esac
}
status() { # name: what the mount says, and what the processors have done
    "$thermocline" status --json "$work/mnt" > "$work/$1.json"
    grep '^cpu ' /proc/stat > "$work/$1.cpu"
}

measure() { # workload, policy, repeat
    local warm=$WARM buffers=$SHARED_BUFFERS out=$KEEP/$1-$2-$3
    [[ ! -e $out.json ]] || return 0
    if [[ $2 == none ]]; then warm=$WARM_SHORT; fi
    fresh "$(database "$1")"
    mount "$1" "$2" "$3"
    if [[ $1 == tpch ]]; then buffers=$BUFFERS_TPCH; fi
    start "$work/mnt/data" "$buffers" checkpoint_timeout=30s work_mem=16MB
    if [[ $1 != tpch || $2 != none ]]; then run "$1" "$warm" "1$3" warm; fi
    status before
    run "$1" "$SECONDS_MEASURED" "2$3" measured
    status after
    "$thermocline" status --once "$work/mnt" > "$out.status"
    stop immediate
    unmount
    python3 "$policies/live.py" row "$1" "$2" "$3" "$work" > "$work/row.json"
    mv "$work/row.json" "$out.json"
    cut -c1-300 "$out.json" >&2
}
turns() { # workload
    local names=() at repeat
    read -ra names <<< "$POLICIES"
    cp "$here"/../pgbench-skewed/*.sql "$work/run/"
    chmod a+r "$work"/run/*.sql
    for repeat in $(seq "$REPEATS"); do
        for at in "${!names[@]}"; do
            measure "$1" "${names[(at + repeat - 1) % ${#names[@]}]}" "$repeat"
        done
    done
}

if [[ -n $lane ]]; then
    turns "$lane"
    exit
fi
[[ -n $GO_TPC ]] || WORKLOADS=$(tr ' ' '\n' <<< "$WORKLOADS" | grep -v '^tpcc' | xargs)
if [[ -z $LOADED ]]; then LOADED=$work/loaded; fi
if [[ -z $KEEP ]]; then KEEP=$work/kept; fi
mkdir -p "$LOADED" "$KEEP" ${RECORD:+"$RECORD"}
if ((EUID == 0)); then chmod a+rx "$LOADED"; fi
for workload in $WORKLOADS; do prepare "$(database "$workload")"; done
cp "$LOADED"/*.bytes "$LOADED/version" "$KEEP/"
PYTHON_VENV=$venv xargs -n 1 -P "$AT_ONCE" "$policies/live.sh" --lane <<< "$WORKLOADS"
settings="SCALE=$SCALE SKEW=$SKEW WAREHOUSES=$WAREHOUSES TPCH=$TPCH QUERIES='$QUERIES' SHARE=$SHARE \
SHARED_BUFFERS=$SHARED_BUFFERS BUFFERS_TPCH=$BUFFERS_TPCH CLIENTS=$CLIENTS WARM=$WARM WARM_SHORT=$WARM_SHORT SECONDS_MEASURED=$SECONDS_MEASURED \
REPEATS=$REPEATS POLICIES='$POLICIES' WORKLOADS='$WORKLOADS' AT_ONCE=$AT_ONCE"
python3 "$policies/live.py" page "$KEEP" "$("$thermocline" --version)" "$settings" > "$result"
echo "written to $result"
