#!/usr/bin/env bash
# Several clients of one cache (thesis §3.4.5, figure 3.17), simulated: three captures as three
# databases on one tier, against a third of the tier for each. Prints the tables of
# evaluation/results/clients.md.
#
#   evaluation/policies/clients.sh [OUTPUT DIRECTORY]
#
# Needs python3 and target/release/thermocline (or THERMOCLINE=program). No device, no database. The
# simulator is deterministic: one run each.
set -euo pipefail

: "${POLICIES:=clic-topk,clic,value,tac,lru}"
: "${SHARE:=6400}" # pages of each client's part; together 10 % of all pages, as in the thesis
: "${WARM_UP:=10%}"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
captures=$here/../captures
thermocline=${THERMOCLINE:-$here/../../target/release/thermocline}
out=${1:-$here/../../target/clients}
mkdir -p "$out"

simulate() { # name, pages, further arguments
    local name=$1 pages=$2
    shift 2
    echo "$name" >&2
    "$thermocline" simulate "$@" --page-size 8KiB --policy "$POLICIES" --flash "${pages}p" \
        --warm-up "$WARM_UP" --set clic-topk.k=100 --json > "$out/$name.json.new"
    mv "$out/$name.json.new" "$out/$name.json"
}

mix() { # name, capture...
    local name=$1 files=()
    shift
    for capture in "$@"; do
        files+=("$captures/$capture.parquet")
        simulate "part-$capture" "$SHARE" "$captures/$capture.parquet"
    done
    simulate "$name-time" "$((SHARE * $#))" "${files[@]}" --interleave time
    simulate "$name-turns" "$((SHARE * $#))" "${files[@]}" --interleave round-robin
    python3 "$here/clients.py" "$out" "$name" "$@"
}

# As in the thesis: TPC-C thrice, over a small, a middling and a large buffer of the database.
mix buffers postgres-tpcc-10 postgres-tpcc-50 postgres-tpcc-90
# Transactions beside two analysts.
mix loads postgres-tpcc-10 postgres-tpch-10 postgres-tpch-50
