#!/usr/bin/env bash
# TPC-C as the TAC paper (T, section 5.2) measures it: memory for 2.5 % of the database, flash for 12.5
# and 25 %, in write-through and in write-back. Simulates the captures that have nearly every page
# request (evaluation/captures, the smallest buffer), with a pool for the database's own memory; the
# figures behind evaluation/results/tpcc.md.
#
#   evaluation/workloads/tpcc.sh [OUT]
#
# Needs python3 and target/release/thermocline (or THERMOCLINE=program). No device, no database.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$(realpath -m "${1:-$here/../../target/tpcc}")
thermocline=$(realpath "${THERMOCLINE:-$here/../../target/release/thermocline}")
mkdir -p "$out"

modes=lru+none,lru+none:back
for tier in lru arc tac tac-blocks tac-mixed value; do modes+=,lru+$tier:through,lru+$tier; done
modes+=,lru+lc,gd2l+cac
for capture in postgres mariadb; do
    page=8KiB transactions=7071 # as in evaluation/joint/run.sh
    if [[ $capture == mariadb ]]; then page=16KiB transactions=6434; fi
    trace=$here/../captures/$capture-tpcc-0.parquet
    for size in 12.5 25; do
        ratio=8 pool=20%
        if [[ $size == 25 ]]; then ratio=4 pool=10%; fi
        kept=$out/$capture-$size.json
        [[ -e $kept ]] || "$thermocline" joint "$trace" --page-size "$page" --transactions "$transactions" \
            --warm-up 40% --base-filled --base hdd --flash-device iodrive --clients 15 --database "$ratio" \
            --pool "$pool" --combination "$modes" --json --threads "${THREADS:-2}" > "$kept.new"
        [[ -e $kept ]] || mv "$kept.new" "$kept"
        # What writes cost: the same reads, as if nothing was written.
        kept=$out/$capture-$size-reads.json
        [[ -e $kept ]] || "$thermocline" joint "$trace" --page-size "$page" --transactions "$transactions" \
            --warm-up 40% --base-filled --base hdd --flash-device iodrive --clients 15 --database "$ratio" \
            --pool "$pool" --combination lru+none,lru+lru:through,lru+tac:through,lru+value:through --json \
            --writes ignore --threads "${THREADS:-2}" > "$kept.new"
        [[ -e $kept ]] || mv "$kept.new" "$kept"
        # The paper's regions are 32 pages of a database 50 times as large.
        kept=$out/$capture-$size-regions.json
        [[ -e $kept ]] || "$thermocline" joint "$trace" --page-size "$page" --transactions "$transactions" \
            --warm-up 40% --base-filled --base hdd --flash-device iodrive --clients 15 --database "$ratio" \
            --pool "$pool" --combination lru+tac:through,lru+tac --json --set tac.region_pages=8 \
            --threads "${THREADS:-2}" > "$kept.new"
        [[ -e $kept ]] || mv "$kept.new" "$kept"
    done
    kept=$out/$capture-ssd.json
    [[ -e $kept ]] || "$thermocline" joint "$trace" --page-size "$page" --transactions "$transactions" \
        --warm-up 40% --base ssd --clients 15 --database 8 --pool 20% --combination lru+none,lru+none:back --json > "$kept.new"
    [[ -e $kept ]] || mv "$kept.new" "$kept"
done
python3 "$here/tpcc.py" "$out"
