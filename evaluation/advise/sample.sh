#!/usr/bin/env bash
# How far is advice by a sample off? The table of docs/advise.md: each line of the advice on a whole
# capture, beside what the same change gains on samples of that capture.
#
#   evaluation/advise/sample.sh [OUTPUT DIRECTORY]
#
# Two questions each: no tier yet, and a tier of 10 % of the pages. Environment: THERMOCLINE (the
# program), SHARES.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
thermocline=${THERMOCLINE:-$here/../../target/release/thermocline}
out=${1:-$here/../../target/advise-sample}
mkdir -p "$out"
: "${SHARES:=50% 25% 12.5%}"

for capture in "$here"/../captures/*.parquet; do
    for options in "" "--size 10%"; do
        advice=$out/$(basename "$capture" .parquet)${options:+-10}
        # What has too few reads for advice is left out.
        # shellcheck disable=SC2086
        "$thermocline" advise "$capture" $options --json > "$advice.json" 2> /dev/null || continue
        for share in $SHARES; do
            "$thermocline" advise "$capture" --sample "$share" --check "$advice.json" --json \
                > "$advice.sampled-$share" 2> /dev/null || rm "$advice.sampled-$share"
        done
    done
done
python3 - "$out" $SHARES << 'PYTHON'
import json
import pathlib
import statistics
import sys

print("| sample | lines | off by, median | mean | most | most, WRITE-BACK aside |\n|---|---:|---:|---:|---:|---:|")
for share in sys.argv[2:]:
    rows = [row for file in pathlib.Path(sys.argv[1]).glob(f"*.sampled-{share}") for row in json.loads(file.read_text())]
    off = {row["id"] + str(n): abs(row["observed"]["percent"] - row["predicted"]["percent"]) for n, row in enumerate(rows)}
    aside = [value for name, value in off.items() if not name.startswith("write-back")]
    every = list(off.values())
    print(f"| {share.replace('%', ' %')} | {len(every)} | {statistics.median(every):.1f} | {statistics.mean(every):.1f} "
          f"| {max(every):.1f} | {max(aside):.1f} |")
PYTHON
