#!/usr/bin/env bash
# The policy `auto` beside its finalists: the figures behind evaluation/results/auto.md.
#
#   evaluation/policies/auto.sh [OUTPUT DIRECTORY]
#
# Simulates `auto`, its finalists, TAC and the optimum on the traces of run.sh, and on two captures
# one after another and in turns of several lengths. TRACES, ONLY, WARM_UP and THERMOCLINE are those
# of run.sh. About half an hour.
set -euo pipefail

: "${SIZES:=5%,10%,20%}"
: "${WARM_UP:=10%}"
: "${TRACES:=}"
: "${ONLY:=}"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/traces.sh"
thermocline=${THERMOCLINE:-$here/../../target/release/thermocline}
out=${1:-$here/../../target/auto}
mkdir -p "$out"
policies=auto,value,value-time,clic,arc,lru,tac,opt-bypass

simulate() { # name, trace, further options
    local name=$1 trace=$2
    shift 2
    if [[ -n $ONLY && ! $name =~ $ONLY ]]; then return; fi
    echo "$name" >&2
    "$thermocline" simulate "$trace" --policy "$policies" --warm-up "$WARM_UP" --threads 1 --json \
        --learned "$@" > "$out/$name.json.new"
    mv "$out/$name.json.new" "$out/$name.json"
}

each_trace --flash "$SIZES"

# Two captures of one server's kind in turns of so many requests; all of it for one after another.
for name in postgres-tpcc-50 postgres-tpch-50; do
    if [[ -n $ONLY && ! turns =~ $ONLY ]]; then break; fi
    "$thermocline" trace convert "$here/../captures/$name.parquet" "$out/$name.csv" --force >&2
done
for turn in 5000 50000 150000 1000000; do
    if [[ -n $ONLY && ! turns =~ $ONLY ]]; then break; fi
    python3 "$here/turns.py" "$turn" "$out"/postgres-tpcc-50.csv "$out"/postgres-tpch-50.csv \
        > "$out/turns.csv"
    simulate "turns-$turn" "$out/turns.csv" --page-size 8KiB --flash 10%
done
rm -f "$out"/*.csv

python3 "$here/auto.py" "$out"
