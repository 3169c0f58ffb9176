#!/usr/bin/env bash
# Every policy on every trace: the figures behind evaluation/results/policies.md.
#
#   evaluation/policies/run.sh [OUTPUT DIRECTORY]
#
# Simulates the captures of evaluation/captures and, where TRACES names a directory with them, the
# public traces listed below; writes one JSON file each (and noise-*.json for the noise hints) to
# the output directory, then prints the tables (table.py) that the report is made of.
#
# Needs python3 and target/release/thermocline (or THERMOCLINE=program).
set -euo pipefail

: "${SIZES:=1%,5%,10%,20%,40%}"
: "${WARM_UP:=10%}"     # of the page requests, not counted
: "${TRACES:=}"         # directory with OLTP.lis.zst, P3.lis.zst, ...
: "${ONLY:=}"           # a pattern that the names of traces must match
: "${NOISE:=postgres-tpcc-50 postgres-tpch-50}"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/traces.sh"
thermocline=${THERMOCLINE:-$here/../../target/release/thermocline}
out=${1:-$here/../../target/policies}
mkdir -p "$out"

simulate() { # name, trace, further options
    local name=$1 trace=$2
    shift 2
    if [[ -n $ONLY && ! $name =~ $ONLY ]]; then return; fi
    echo "$name" >&2
    "$thermocline" simulate "$trace" --policy all --flash "$SIZES" --warm-up "$WARM_UP" \
        --learned --json "$@" > "$out/$name.json.new"
    mv "$out/$name.json.new" "$out/$name.json"
}

each_trace
if [[ -n $TRACES ]]; then
    simulate rocksdb-mixgraph "$TRACES/rocksdb_mixgraph_blockcache.csv.xz" \
        --columns "$(cat "$here/rocksdb.columns")"
fi

# Hint types that mean nothing (thesis section 3.4.4, 5.3).
for name in $NOISE; do
    for types in 0 1 2 3; do
        if [[ -n $ONLY && ! noise =~ $ONLY ]]; then continue; fi
        echo "noise $name $types" >&2
        "$thermocline" simulate "$here/../captures/$name.parquet" --page-size 8KiB \
            --policy auto,value,clic,clic-topk,clic-hybrid,dp-clic,dp-clic-topk,dp-clic-hybrid,lru,arc \
            --flash 10% --warm-up "$WARM_UP" --noise "$types" --json > "$out/noise.json.new"
        mv "$out/noise.json.new" "$out/noise-$name-$types.json"
    done
done

python3 "$here/table.py" "$out"
