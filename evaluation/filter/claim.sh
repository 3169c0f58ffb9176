#!/usr/bin/env bash
# Is a "no" always right, and is a "maybe" as seldom wrong as was promised? A filter of KEYS keys by
# the command line, asked for all of them and for as many others.
#
#   evaluation/filter/claim.sh DIRECTORY [KEYS]
#
# DIRECTORY is on an SSD with about 20 bytes a key free. Ends with an error when a key of the set is
# answered with "no", or when "maybe" for the others is further from what was expected than six
# standard deviations. Environment: THERMOCLINE (the program), MEMORY.
set -euo pipefail

directory=$1
keys=${2:-100000000}
: "${MEMORY:=64MiB}"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
thermocline=${THERMOCLINE:-$here/../../target/release/thermocline}
work=$(mktemp -d "$directory/thermocline-claim-XXXXXX")
trap 'rm -rf "$work"' EXIT

timed() { # name, command
    local begin=$EPOCHREALTIME
    "${@:2}"
    python3 -c "print(f'$1: {$EPOCHREALTIME - $begin:.1f} s')"
}
seq 1 "$keys" > "$work/keys"
seq $((keys + 1)) $((2 * keys)) > "$work/others"
build() { "$thermocline" filter build "$work/keys" --out "$work/filter" --memory "$MEMORY" --json > "$work/built.json"; }
probe() { "$thermocline" filter probe "$work/filter" "$work/$1" --memory "$MEMORY" --json > "$work/$1.json"; }
timed build build
timed "ask for its keys" probe keys
timed "ask for others" probe others
python3 - "$work" <<'PYTHON'
import json
import math
import sys

said = {name: json.load(open(f"{sys.argv[1]}/{name}.json")) for name in ("built", "keys", "others")}
asked, found = said["keys"]["asked"], said["keys"]["maybe"]
print(f"{asked} keys of the set: {asked - found} answered with no")
others, maybe = said["others"]["asked"], said["others"]["maybe"]
expected = said["built"]["expected_false_positives"]
print(f"{others} other keys: {maybe / others:.4%} maybe, expected {expected:.4%}")
print(f"{said['built']['file_bytes']} bytes of filter")
allowed = 6 * math.sqrt(others * expected * (1 - expected)) + 1
if found != asked:
    sys.exit("a false no")
if abs(maybe - others * expected) > allowed:
    sys.exit(f"further from what was expected than {allowed / others:.4%}")
PYTHON
