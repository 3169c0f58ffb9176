#!/usr/bin/env bash
# How much of the way from LRU to the optimum `auto` and `value` go on the captures, by several
# seeds: the figures at the head of evaluation/results/value.md.
#
#   evaluation/policies/gap.sh [OUTPUT DIRECTORY]
#
# Leaves one JSON file for each capture and seed in the output directory, then prints the tables
# (gap.py). Needs python3 and target/release/thermocline (or THERMOCLINE=program). Takes 5 minutes on two processors.
set -euo pipefail

: "${POLICIES:=auto,value}"
: "${SEEDS:=1 2 3}"
: "${SIZES:=5%,10%,20%}"
: "${WARM_UP:=10%}"     # of the page requests, not counted
: "${NOISE:=postgres-tpcc-50 postgres-tpch-50}" # captures with noise hints added, tier of 10 %

TRACES= # captures alone
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/traces.sh"
thermocline=${THERMOCLINE:-$here/../../target/release/thermocline}
out=${1:-$here/../../target/gap}
mkdir -p "$out"

simulate() { # name, trace, further options
    local file=$out/$1-$suffix.json
    echo "$1-$suffix" >&2
    "$thermocline" simulate "$2" --warm-up "$WARM_UP" --json "${@:3}" > "$file.new"
    mv "$file.new" "$file"
}

suffix=bounds
each_trace --flash "$SIZES" --policy lru,opt-bypass
for seed in $SEEDS; do
    suffix=seed-$seed
    each_trace --flash "$SIZES" --policy "$POLICIES" --seed "$seed"
done
for name in $NOISE; do
    for types in 0 1 2 3; do
        suffix=noise-$types
        simulate "$name" "$here/../captures/$name.parquet" --page-size 8KiB --flash 10% \
            --policy "lru,$POLICIES" --noise "$types"
    done
done

python3 "$here/gap.py" "$out"
