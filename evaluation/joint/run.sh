#!/usr/bin/env bash
# Pool and tier managed together: simulates the captures with the smallest database buffer, and
# leaves one JSON file for each run in OUT. table.py makes the tables of results/joint.md of them.
#
#   evaluation/joint/run.sh [OUT]
#
# Needs target/release/thermocline (or THERMOCLINE=program). No device, no database.
set -euo pipefail

: "${WARM_UP:=40%}"
: "${SEEDS:=1 2 3 4 5}" # of `value`, which draws lots; the others do not
: "${ONLY:=}" # only runs whose name matches this expression

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${1:-$here/../../target/joint}
thermocline=${THERMOCLINE:-$here/../../target/release/thermocline}
mkdir -p "$out"

joint() { # name, capture, further options
    local name=$1 capture=$2 transactions=6434 page=16KiB
    shift 2
    if [[ -n $ONLY && ! $name =~ $ONLY ]]; then return; fi
    if [[ $capture == postgres ]]; then transactions=7071 page=8KiB; fi
    echo "$name" >&2
    "$thermocline" joint "$here/../captures/$capture-tpcc-0.parquet" --page-size "$page" \
        --transactions "$transactions" --warm-up "$WARM_UP" --base-filled --json "$@" \
        > "$out/$name.json.new"
    mv "$out/$name.json.new" "$out/$name.json"
}

five=lru+cc,gd2l+cc,gd2l+cac,lru+lc,lru+mv-fifo
more=lru+cac,lru+tac,lru+tac:through,gd2l+tac,lru+tac-mixed,lru+clean-write,lru+dual-write,lru+none
for capture in mariadb postgres; do
    joint "$capture" "$capture" --combination "$five"
    for seed in $SEEDS; do
        joint "$capture-value-$seed" "$capture" --combination gd2l+value,lru+value --seed "$seed"
    done
    joint "$capture-more" "$capture" --combination "$more" --database 3 --pool 20%
    joint "$capture-clients" "$capture" --combination "$five" --database 3 --pool 20% --clients 8
    joint "$capture-lazy" "$capture" --combination "$five" --database 3 --pool 10%,40% \
        --dirty-high 100%
    joint "$capture-zone" "$capture" --combination gd2l+cac,gd2l+cc,lru+lc --database 3 --pool 20% \
        --zone 1%,2%,5%,10%,100%
done
