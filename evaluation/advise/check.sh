#!/usr/bin/env bash
# Does advice hold? Advice from the first half of each capture, followed on the second half: the
# figures behind evaluation/results/advise.md.
#
#   evaluation/advise/check.sh [OUTPUT DIRECTORY]
#
# Three questions each: no tier yet; a tier of 10 % of the pages, which may grow; the same tier, which
# may not. Writes the advice and what following it gained as JSON, and prints the table.
# Environment: ONLY (a pattern of names), THERMOCLINE (the program), BASE (the device below).
set -euo pipefail

: "${ONLY:=}"
: "${BASE:=hdd}"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
thermocline=${THERMOCLINE:-$here/../../target/release/thermocline}
out=${1:-$here/../../target/advise}
mkdir -p "$out"

advise() { # further options
    "$thermocline" advise "$capture" --page-size "$page" --base "$BASE" --threads 2 --json "$@"
}

ask() { # question, options
    local file=$out/$name.$1
    shift
    if advise "$@" --end 50% > "$file.json" 2> "$file.refused"; then
        rm "$file.refused"
        advise --begin 50% --check "$file.json" > "$file.checked.json"
    else
        rm "$file.json"
    fi
}

for capture in "$here"/../captures/*.parquet; do
    name=$(basename "$capture" .parquet)
    if [[ -n $ONLY && ! $name =~ $ONLY ]]; then continue; fi
    page=8KiB
    if [[ $name == mariadb-* ]]; then page=16KiB; fi
    echo "$name" >&2
    ask none
    ask grow --size 10%
    ask keep --size 10% --keep-size
done
python3 "$here/table.py" "$out"
