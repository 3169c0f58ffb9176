#!/usr/bin/env bash
# TAC with regions of several sizes: the figures behind evaluation/results/tac-regions.md.
#
#   evaluation/policies/regions.sh [OUTPUT DIRECTORY]
#
# Simulates TAC on the traces of run.sh with regions of 8 to 64 pages, none of them forgotten, and prints
# tables beside the figures of evaluation/results/policies.md. TRACES, ONLY, WARM_UP and THERMOCLINE are
# those of run.sh.
set -euo pipefail

: "${SIZES:=5%,10%,20%}"
: "${WARM_UP:=10%}"
: "${TRACES:=}"
: "${ONLY:=}"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/traces.sh"
thermocline=${THERMOCLINE:-$here/../../target/release/thermocline}
out=${1:-$here/../../target/regions}
mkdir -p "$out"

simulate() { # name, trace, further options
    local name=$1 trace=$2 pages
    shift 2
    if [[ -n $ONLY && ! $name =~ $ONLY ]]; then return; fi
    echo "$name" >&2
    for pages in 8 16 32 64; do
        "$thermocline" simulate "$trace" --policy tac --flash "$SIZES" --warm-up "$WARM_UP" --json \
            --set "tac.region_pages=$pages" --set tac.regions_per_slot=4 --threads 1 "$@" \
            > "$out/$name.$pages.json.new"
        mv "$out/$name.$pages.json.new" "$out/$name.$pages.json"
    done
}

each_trace
python3 "$here/regions.py" "$out" "$here/../results/policies.md"
