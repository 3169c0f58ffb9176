#!/usr/bin/env bash
# PostgreSQL on a volume behind a network, as clouds sell it, with a flash that a restart of the host may
# lose: what a tier gives there, in write-through and in write-back, and how long until it is warm
# again after its loss, without and with the list of what was hot (mount --warm-from). The figures behind
# evaluation/results/network.md.
#
#   evaluation/workloads/network.sh [RESULT.md]
#
# Needs root (or a user who may mount and run postgres), FUSE, PostgreSQL, python3,
# target/release/thermocline (or THERMOCLINE=program), and for TPC-C GO_TPC=program, a go-tpc that speaks
# to PostgreSQL, built from its repository (commit 682637f4f995; the releases that `go install` finds
# are for MySQL alone). Without it TPC-C is left out. TPC-H's data come from tpchgen-cli (PyPI).
#
# The volume is emulated: --emulate-base network, with the limits below. The whole data directory is
# on it, the database's log too. Every measurement starts from a copy of the same files and the same
# seeds, with an empty cache; configurations take turns within a repeat.
set -euo pipefail

: "${REQUESTS:=3000}"     # of the volume, a second: the baseline of a general-purpose volume
: "${RATE:=125MiB}"       # bytes of it, a second
: "${SCALE:=60}"          # pgbench: 100,000 rows each, about 15 MB
: "${WAREHOUSES:=4}"      # TPC-C: about 100 MB each
: "${SCALE_TPCH:=0.1}"     # TPC-H: about 170 MB with its indexes
: "${SHARE:=3}"           # database size over flash size
: "${SHARED_BUFFERS:=16MB}"
: "${CLIENTS:=16}"
: "${SKEW:=1.01}"         # of the loss: exponent of the Zipf distribution over scattered rows
: "${WARM:=25}"           # seconds before measuring
: "${WARM_NEXT:=10}"      # before the next workload on the same mount
: "${SECONDS_MEASURED:=12}"
: "${LOSS_CLIENTS:=16 2}" # of the loss: clients that keep the volume busy, and that do not
: "${SECONDS_BEFORE:=35}" # of the loss: under load before it
: "${SECONDS_AFTER:=35}"  # and after it
: "${REPEATS:=3}"
: "${POLICY:=tac}"
: "${CONFIGURATIONS:=base through back}"
: "${WORKLOADS:=select tpcb tpcc tpch loss}"
: "${GO_TPC:=}"
: "${PYTHON_VENV:=}"      # a virtual environment with tpchgen-cli
: "${KEEP:=}"             # directory that keeps what was measured; what is there is not measured again
: "${DIRECTORY:=${TMPDIR:-/tmp}}"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
thermocline=$(realpath "${THERMOCLINE:-$here/../../target/release/thermocline}")
result=$(realpath -m "${1:-$here/../results/network.md}")
bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)
rows=$((SCALE * 100000))

work=$(mktemp -d "$DIRECTORY/thermocline-network-XXXXXX")
chmod 755 "$work"
mkdir "$work"/{mnt,run,loaded,kept}
as=()
if ((EUID == 0)); then
    as=(runuser -u postgres --)
    chown postgres "$work" "$work"/{run,loaded}
fi
kept=${KEEP:-$work/kept}
mkdir -p "$kept"
cp "$here/../pgbench-skewed/scattered.sql" "$work/run/"
chmod -R a+rX "$work/run"
cd "$work"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
[[ -n $GO_TPC ]] || WORKLOADS=${WORKLOADS/tpcc/}

mounted=no serving=no
finish() {
    if [[ $serving == yes ]]; then stop || true; fi
    if [[ $mounted == yes ]]; then "$thermocline" umount --lazy --keep-dirty "$work/mnt" > /dev/null || true; fi
    cd /
    rm -rf --one-file-system "$work"
}
trap finish EXIT

start() { # data directory, shared buffers
    local settings=(listen_addresses=127.0.0.1 "port=$port" "shared_buffers=$2" jit=off autovacuum=off
        checkpoint_timeout=5min max_wal_size=8GB)
    if ! "${as[@]}" "$bin/pg_ctl" -D "$1" -w -t 300 -l "$work/run/log" \
        -o "-k $work/run ${settings[*]/#/-c }" start > "$work/start.log"; then
        cat "$work/run/log" >&2
        return 1
    fi
    data=$1 serving=yes
}
stop() { # as a power failure would: a shutdown's checkpoint is not measured
    "${as[@]}" "$bin/pg_ctl" -D "$data" -w -t 300 -m "${1:-immediate}" stop > /dev/null
    serving=no
}
sql() { "${as[@]}" "$bin/psql" -X -A -t -q -h "$work/run" -p "$port" -U bench -d test -v ON_ERROR_STOP=1 "$@"; }
pgbench() { (cd "$work/run" && "${as[@]}" "$bin/pgbench" -h "$work/run" -p "$port" -U bench "$@" test); }
tpcc() { "$GO_TPC" tpcc "$1" -d postgres --conn-params sslmode=disable -U bench -D test -H 127.0.0.1 -P "$port" --warehouses "$WAREHOUSES" "${@:2}"; }

# shellcheck source=tables.sh
source "$here/tables.sh" # load_tpch index_tpch

load() { # database: pgbench, tpcc or tpch
    local at="$work/loaded/$1"
    [[ ! -d $at ]] || return 0
    echo "filling the database of $1" >&2
    "${as[@]}" mkdir "$at"
    "${as[@]}" "$bin/initdb" -D "$at/data" --no-locale --encoding=UTF8 -A trust -k -U bench > /dev/null
    start "$at/data" 256MB
    "${as[@]}" "$bin/createdb" -h "$work/run" -p "$port" -U bench test
    if [[ $1 == pgbench ]]; then
        pgbench --initialize --quiet --scale="$SCALE" 2> /dev/null
    elif [[ $1 == tpcc ]]; then
        tpcc prepare -T 4 --no-check > "$work/prepare.log"
    else
        venv=${PYTHON_VENV:-$work/venv}
        if [[ ! -d $venv ]]; then
            python3 -m venv "$venv"
            "$venv/bin/pip" install --quiet tpchgen-cli==4.0.0
        fi
        load_tpch "$SCALE_TPCH"
        index_tpch
    fi
    sql -c 'VACUUM (FREEZE, ANALYZE)'
    sql -c CHECKPOINT
    sql -c "SELECT pg_database_size('test')" > "$work/loaded/$1.bytes"
    sql -c 'SHOW server_version' > "$work/version"
    stop fast
}
flash() { echo $(($(cat "$work/loaded/$1.bytes") / SHARE / 8192)); } # database: pages of its cache

# The same files again.
copy() { # database
    rm -rf "$work/cache" "$work/base" "$work/.base.thermocline-hot"
    "${as[@]}" mkdir "$work/base"
    cp -a --reflink=auto "$work/loaded/$1/data" "$work/base/"
    sync -f "$work/base"
}
mount() { # database, configuration, more options
    local options=(--policy "$POLICY" --cache "$work/cache" --size "$(flash "$1")p")
    case $2 in
        base) options=(--policy none) ;;
        ahead) options=(--policy "$POLICY" --cache "$work/cache" --size 2MiB) ;;
        through) ;;
        back) options+=(--write-back) ;;
    esac
    "$thermocline" mount "$work/base" "$work/mnt" --page-size 8KiB --emulate-base network \
        --emulate-requests "$REQUESTS" --emulate-rate "$RATE" "${options[@]}" "${@:3}" --log "$work/mount.log" > /dev/null
    mounted=yes
    start "$work/mnt/data" "$SHARED_BUFFERS"
}
unmount() {
    stop
    "$thermocline" umount --keep-dirty "$work/mnt" > /dev/null
    mounted=no
}

# The workload for some seconds: its report in $work/report, a latency a line in $work/latency.
run() { # workload, seconds, seed
    rm -f "$work"/run/latency.* "$work/latency"
    local options=(--no-vacuum "--client=${clients:-$CLIENTS}" --jobs=2 --protocol=prepared "--time=$2" "--random-seed=$3")
    case $1 in
        select) pgbench -S "${options[@]}" --log --log-prefix=latency > "$work/report" 2>&1 ;;
        tpcb) pgbench "${options[@]}" --log --log-prefix=latency > "$work/report" 2>&1 ;;
        zipf) pgbench --file=scattered.sql --define=rows="$rows" --define=skew="$SKEW" --progress=1 \
            "${options[@]}" > "$work/report" 2>&1 ;;
        tpcc) tpcc run -T "$CLIENTS" --time "${2}s" --ignore-error --interval 3600s > "$work/report" 2>&1 ;;
        tpch) streams "$3" > "$work/report" ;;
    esac
    [[ $1 != select && $1 != tpcb ]] || cat "$work"/run/latency.* > "$work/latency"
}
# TPC-H takes as long as it takes: one stream warms up, then the throughput test, three streams and one
# of three pairs of refresh functions at once. A line for each query: its stream, its name, its seconds.
streams() { # seed: one that begins with 1 warms up
    local running=()
    if [[ $1 == 1* ]]; then
        stream 0 stream 0 "$SCALE_TPCH"
        return
    fi
    for number in 1 2 3; do
        stream "$number" stream "$number" "$SCALE_TPCH" & running+=($!)
    done
    stream refresh refresh 3 "$SCALE_TPCH" & running+=($!)
    wait "${running[@]}"
}
stream() { # name, arguments of queries.py
    local name text from
    while IFS=$'\t' read -r name text; do
        from=$EPOCHREALTIME
        sql -c "$text" > /dev/null
        echo "$1 $name $from $EPOCHREALTIME"
    done < <(python3 "$here/queries.py" "${@:2}")
}
status() { "$thermocline" status --json "$work/mnt" > "$work/$1.json"; }

measure() { # database, configuration, repeat, workloads in turn
    copy "$1"
    mount "$1" "$2"
    local warm=$WARM
    for workload in "${@:4}"; do
        run "$workload" "$warm" "1$3"
        warm=$WARM_NEXT
        status before
        run "$workload" "$SECONDS_MEASURED" "2$3"
        status after
        python3 "$here/network.py" row "$workload" "$2" "$3" "$work" > "$kept/$workload-$2-$3.json"
        cat "$kept/$workload-$2-$3.json" >&2
    done
    unmount
}

lose() { # repeat, clients: the flash is lost; how long until the tier is as warm as before
    local clients=$2
    copy pgbench
    mount pgbench through
    watched before
    unmount # the list is written
    if ! cp "$work/.base.thermocline-hot" "$work/list"; then
        cat "$work/mount.log" >&2
        return 1
    fi
    for way in cold warm-from; do
        rm "$work/cache"
        local options=()
        if [[ $way == warm-from ]]; then options=(--warm-from "$work/list"); fi
        mount pgbench through "${options[@]}"
        watched "$way"
        unmount
    done
    python3 "$here/network.py" loss "$1" "$2" "$work" > "$kept/loss-$2-$1.json"
    cut -c1-400 "$kept/loss-$2-$1.json" >&2
}
watched() { # before, cold or warm-from: a Zipf load, and the mount's figures each second
    local seconds=$SECONDS_AFTER seed=32
    if [[ $1 == before ]]; then seconds=$SECONDS_BEFORE seed=31; fi
    python3 "$here/network.py" watch "$work/mnt/.thermocline/stats.json" > "$work/$1.seconds" &
    local watcher=$!
    run zipf "$seconds" "$seed"
    kill "$watcher" 2> /dev/null || true
    wait "$watcher" || true
    mv "$work/report" "$work/$1.report"
}

selected=()
for workload in select tpcb; do
    if [[ " $WORKLOADS " == *" $workload "* ]]; then selected+=("$workload"); fi
done
for repeat in $(seq "$REPEATS"); do
    for configuration in $CONFIGURATIONS; do
        if ((${#selected[@]})) && [[ ! -e $kept/${selected[-1]}-$configuration-$repeat.json ]]; then
            load pgbench
            measure pgbench "$configuration" "$repeat" "${selected[@]}"
        fi
        if [[ $WORKLOADS == *tpcc* && ! -e $kept/tpcc-$configuration-$repeat.json ]]; then
            load tpcc
            measure tpcc "$configuration" "$repeat" tpcc
        fi
        # Without a tier a mount reads no scan ahead, as a kernel would on a volume: hence a tier too
        # small to serve anything beside.
        if [[ $configuration == base ]]; then with=(base ahead); else with=("$configuration"); fi
        for one in "${with[@]}"; do
            if [[ $WORKLOADS == *tpch* && ! -e $kept/tpch-$one-$repeat.json ]]; then
                load tpch
                measure tpch "$one" "$repeat" tpch
            fi
        done
    done
    for clients in $LOSS_CLIENTS; do
        if [[ $WORKLOADS == *loss* && ! -e $kept/loss-$clients-$repeat.json ]]; then
            load pgbench
            lose "$repeat" "$clients"
        fi
    done
    unset clients
done
for database in pgbench tpcc tpch; do
    if [[ -e $work/loaded/$database.bytes ]]; then cp "$work/loaded/$database.bytes" "$kept/"; fi
done
if [[ -e $work/version ]]; then cp "$work/version" "$kept/"; fi

settings="REQUESTS=$REQUESTS RATE=$RATE SCALE=$SCALE WAREHOUSES=$WAREHOUSES SCALE_TPCH=$SCALE_TPCH SHARE=$SHARE SHARED_BUFFERS=$SHARED_BUFFERS \
CLIENTS=$CLIENTS SKEW=$SKEW WARM=$WARM WARM_NEXT=$WARM_NEXT SECONDS_MEASURED=$SECONDS_MEASURED LOSS_CLIENTS='$LOSS_CLIENTS' SECONDS_BEFORE=$SECONDS_BEFORE \
SECONDS_AFTER=$SECONDS_AFTER REPEATS=$REPEATS POLICY=$POLICY"
python3 "$here/network.py" page "$kept" "$("$thermocline" --version)" "$settings" "$REQUESTS" "$RATE" > "$result"
echo "written to $result"
