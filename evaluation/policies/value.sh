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
source "$here/traces.sh"
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

each_trace --flash "$SIZES"

for name in $NOISE; do
    for types in 1 2 3; do
        simulate "noise-$name-$types" "$here/../captures/$name.parquet" --page-size 8KiB \
            --flash 10% --noise "$types"
    done
done

python3 "$here/value.py" "$out" "$here/../results/policies.md"
