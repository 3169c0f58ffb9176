#!/usr/bin/env bash
# TPC-H as hStorage-DB (H, section 6) measures it: each query alone, the power test, the throughput
# test of three streams and one of refreshes. Recorded once below a PostgreSQL that publishes its
# plans, then simulated; evaluation/results/tpch.md is made of what is left in OUT.
#
#   evaluation/workloads/tpch.sh [OUT]
#
# Needs root (or a user who may mount and run postgres), FUSE, PostgreSQL with its server headers,
# a C compiler, Python 3 with venv, and target/release/thermocline (or THERMOCLINE=program).
# Parameters here and in lib.sh, each to be overridden by the environment.
#
# Memory is PostgreSQL's own buffers (the first part) and, in the simulation, a pool above the tier
# (the rest), which stands for the system's page cache: H says how much memory there was, not how
# PostgreSQL and Linux shared it.
set -euo pipefail

: "${SCALE:=1}"            # H: 30, and 10 for the throughput test
: "${SCALE_THROUGHPUT:=0.05}"
: "${BUFFERS:=3}"         # shared_buffers in per cent of the database
: "${WORK_MEM:=1MB}"      # of a sort or hash table; hash tables may take twice that
: "${COST:=4}"            # random_page_cost

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$(realpath -m "${1:-$here/../../target/tpch}")
mkdir -p "$out"
# shellcheck source=lib.sh
source "$here/lib.sh"

fill() {
    load_tpch "$SCALE"
    index_tpch
}
serve() { start "$work/mnt/data" "$buffers" "work_mem=$WORK_MEM" "random_page_cost=$COST" effective_cache_size="$cached"; }
queries() { # what, further arguments of queries.py; a trace of its own for each with a prefix
    local prefix=$1 name text from
    shift
    while IFS=$'\t' read -r name text; do
        [[ -z $prefix ]] || serve
        from=$(now)
        sql -c "$text" > /dev/null
        echo "$name $((($(now) - from) / 1000000)) ms" >&2
        if [[ -n $prefix ]]; then
            phase "$prefix-$name" "$from"
            stop
        fi
    done < <(python3 "$here/queries.py" "$@")
}

# Records below a database of its own, into a directory of its own.
record() { # alone or together, scale
    if [[ -e $traces/$1/bytes ]]; then return; fi
    local traces=$traces/$1 SCALE=$2 size from stream
    mkdir -p "$traces"
    # All of base: it remembers which cache it is owed bytes by.
    rm -rf "$work/base" "$work/phases" "$work/cache"
    "${as[@]}" mkdir "$work/base"
    load "tpch-$2" fill
    size=$(du -sb "$work"/base/data/base/* | sort -n | tail -1 | cut -f1)
    buffers=$((size * BUFFERS / 100 / 1024))kB cached=$((size / 8 / 1024))kB
    mount
    serve
    names
    "${as[@]}" "$bin/psql" -X -A -t -q -h "$work/run" -p "$port" -U bench -d test -f - \
        < <(python3 "$here/queries.py" single | cut -f2 | sed 's/^/explain /') > "$out/plans-$1"
    bytes > "$work/bytes"
    sql -c 'SHOW server_version' > "$traces/version"
    "$1" "$2"
    stop
    unmount
    cut_phases
    mv "$work/bytes" "$traces/"
}
alone() { # scale
    stop
    queries single single
    serve
    local from
    from=$(now)
    queries '' power "$1"
    phase power "$from"
}
together() { # scale
    local from stream running=()
    from=$(now)
    for stream in 1 2 3; do
        queries '' stream "$stream" "$1" 2> "$work/stream.$stream" & running+=($!)
    done
    queries '' refresh 3 "$1" & running+=($!)
    wait "${running[@]}"
    phase throughput "$from"
}
if [[ ! -e $traces/alone/bytes || ! -e $traces/together/bytes ]]; then
    server
    record alone "$SCALE"
    record together "$SCALE_THROUGHPUT"
fi
"$python" "$here/tpch.py" "$traces" "$out" "$thermocline" "$BUFFERS"
