#!/usr/bin/env bash
# Every policy on traces that no parameter of ours was chosen on: those of the LIRS paper, and the
# accesses of a shop's object-relational mapper. Prints the tables of evaluation/results/unseen.md.
#
#   TRACES=DIRECTORY evaluation/policies/unseen.sh [OUTPUT DIRECTORY]
#
# TRACES has lirs_*.trace.gz (a block a line, lines with * are marks) and cache2k_orm-busy.trace.xz
# (big-endian 32-bit numbers, the type of the object in bits 27 to 31). Needs python3 and
# target/release/thermocline (or THERMOCLINE=program). Takes 7 minutes.
set -euo pipefail

: "${TRACES:?the directory with the traces}"
: "${SIZES:=5%,10%,20%}"
: "${WARM_UP:=10%}"     # of the requests, not counted

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
thermocline=${THERMOCLINE:-$here/../../target/release/thermocline}
out=${1:-$here/../../target/unseen}
mkdir -p "$out"

simulate() { # name, columns
    echo "$1" >&2
    "$thermocline" simulate "$out/$1.csv" --from csv --columns "$2" --policy all \
        --flash "$SIZES" --warm-up "$WARM_UP" --json > "$out/$1.json"
    rm "$out/$1.csv"
}

for trace in "$TRACES"/lirs_*.trace.gz; do
    name=$(basename "$trace" .trace.gz)
    { echo op,page; zcat "$trace" | awk '/^ *[0-9]/ { print "r," $1 }'; } > "$out/$name.csv"
    simulate "$name" op=op,page=page
done
xzcat "$TRACES/cache2k_orm-busy.trace.xz" | python3 -c '
import struct, sys
print("op,page,type")
while words := sys.stdin.buffer.read(1 << 20):
    for (word,) in struct.iter_unpack(">I", words):
        print(f"r,{word},{word >> 27}")
' > "$out/orm-busy.csv"
simulate orm-busy op=op,page=page,hint:type=type

python3 "$here/unseen.py" "$out"
