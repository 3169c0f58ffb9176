#!/usr/bin/env bash
# Policies at their defaults beside their papers' values: the figures behind
# evaluation/results/papers.md.
#
#   evaluation/policies/papers.sh [OUTPUT DIRECTORY]
#
# Simulates TAC, CLIC, DP-CLIC and the hybrid on the captures that run.sh takes, CAC on those of
# evaluation/joint/run.sh, and CLIC's rules for equal priorities on both kinds of trace. TRACES,
# ONLY, WARM_UP and THERMOCLINE are those of run.sh.
set -euo pipefail

: "${FLASH:=10%}"
: "${WARM_UP:=10%}"
: "${TRACES:=}"
: "${ONLY:=}"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
thermocline=${THERMOCLINE:-$here/../../target/release/thermocline}
out=${1:-$here/../../target/papers}
mkdir -p "$out"

simulate() { # name, then options
    local name=$1
    shift
    "$thermocline" simulate --flash "$FLASH" --warm-up "$WARM_UP" --threads 1 --json "$@" \
        > "$out/$name.json.new"
    mv "$out/$name.json.new" "$out/$name.json"
}

each() { # name, trace, further options
    local name=$1
    shift
    if [[ -n $ONLY && ! $name =~ $ONLY ]]; then return; fi
    echo "$name" >&2
    # A window of 10^6 requests never closes on most captures, so also with windows that fit.
    simulate "$name.paper" "$@" --policy tac,clic,dp-clic,clic-hybrid --preset paper
    simulate "$name.fitted" "$@" --policy clic:paper,dp-clic:paper,clic-hybrid:paper \
        --set clic.window=0 --set clic.bucket_width=0
    simulate "$name.bounds" "$@" --policy lru,opt-bypass
    for ties in refuse overdue informed; do
        simulate "$name.$ties" "$@" --policy clic,dp-clic,clic-hybrid --set "clic.ties=$ties"
    done
}

for capture in "$here"/../captures/*.parquet; do
    name=$(basename "$capture" .parquet)
    page=8KiB
    if [[ $name == mariadb-* ]]; then page=16KiB; fi
    if [[ $name == mariadb-*-90 || $name == *-0 ]]; then continue; fi # as in run.sh
    each "$name" "$capture" --page-size "$page"
done
if [[ -n $TRACES ]]; then
    each OLTP "$TRACES/OLTP.lis.zst"
    each P3 "$TRACES/P3.lis.zst"
fi

for database in mariadb postgres; do
    if [[ -n $ONLY && ! joint-$database =~ $ONLY ]]; then continue; fi
    echo "joint $database" >&2
    transactions=6434 page=16KiB # as in evaluation/joint/run.sh
    if [[ $database == postgres ]]; then transactions=7071 page=8KiB; fi
    "$thermocline" joint "$here/../captures/$database-tpcc-0.parquet" --page-size "$page" \
        --transactions "$transactions" --warm-up 40% --base-filled --database 3 --threads 1 \
        --combination gd2l+cac --preset paper --json > "$out/joint-$database.json"
done

python3 "$here/papers.py" "$out"
