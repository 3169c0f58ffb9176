#!/usr/bin/env bash
# The policy `value` beside the rest of the box: the figures behind evaluation/results/value.md.
#
#   evaluation/policies/value.sh [OUTPUT DIRECTORY]
#
# Simulates `value` and the optimum on the traces of run.sh, with noise hints too, and prints tables
# with the other policies' figures out of evaluation/results/policies.md. TRACES, ONLY, WARM_UP and
# THERMOCLINE are those of run.sh.
set -euo pipefail

: "${SIZES:=5%,10%,20%}"
: "${WARM_UP:=10%}"
: "${TRACES:=}"
: "${ONLY:=}"
: "${NOISE:=postgres-tpcc-50 postgres-tpch-50}"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
thermocline=${THERMOCLINE:-$here/../../target/release/thermocline}
out=${1:-$here/../../target/value}
mkdir -p "$out"

simulate() { # name, trace, further options
    local name=$1 trace=$2
    shift 2
    if [[ -n $ONLY && ! $name =~ $ONLY ]]; then return; fi
    echo "$name" >&2
    "$thermocline" simulate "$trace" --policy value,opt-bypass --warm-up "$WARM_UP" --threads 1 \
        --json "$@" > "$out/$name.json.new"
    mv "$out/$name.json.new" "$out/$name.json"
}

for capture in "$here"/../captures/*.parquet; do
    name=$(basename "$capture" .parquet)
    page=8KiB
    if [[ $name == mariadb-* ]]; then page=16KiB; fi
    if [[ $name == mariadb-*-90 || $name == *-0 ]]; then continue; fi # as in run.sh
    simulate "$name" "$capture" --page-size "$page" --flash "$SIZES"
done

if [[ -n $TRACES ]]; then
    simulate OLTP "$TRACES/OLTP.lis.zst" --flash "$SIZES"
    simulate P3 "$TRACES/P3.lis.zst" --flash "$SIZES"
    simulate cloudPhysicsIO "$TRACES/cloudPhysicsIO.vscsi.xz" --page-size 4KiB --flash "$SIZES"
    simulate pg15-pgbench "$TRACES/pg15_pgbench_below_shared_buffers.csv.xz" --page-size 8KiB \
        --unit 8KiB --columns "$(cat "$here/pg15.columns")" --flash "$SIZES"
fi

for name in $NOISE; do
    for types in 1 2 3; do
        simulate "noise-$name-$types" "$here/../captures/$name.parquet" --page-size 8KiB \
            --flash 10% --noise "$types"
    done
done

python3 "$here/value.py" "$out" "$here/../results/policies.md"
