#!/bin/sh
# The Buffered Bloom filter in the paper's setting beside filters in memory: evaluation/results/filter.md.
# Usage: evaluation/filter/run.sh FILE [KEYS [REPEATS]]; FILE is a scratch file on an SSD and is lost.
# Build first: cargo build --release -p thermocline-filter --benches. Prints CSV, every run a line.
set -eu
file=$1
keys=${2:-50000000}
repeats=${3:-3}
program=$(ls -t "${CARGO_TARGET_DIR:-target}"/release/deps/compare-* | grep -v '\.d$' | head -n 1)
# Lets a caller take turns with others on the machine: a command put before each run.
wrap=${WRAP:-}
# Contenders and their MiB of memory, in the order of a turn.
runs=${RUNS:-bbf:16 bbf:32 bbf:64 bbf:128 bbf-one:32 bbf-twice:32 mapped:32 sbbf-ssd:32 cascade:32 plain:32 plain:64 plain:128
    fastbloom:32 fastbloom:64 fastbloom:128 sbbf:32 sbbf:64 sbbf:128 quotient:0}
echo "contender,memory_mib,dram_bytes_per_key,false_positives_percent,build_us,ask_us,bytes_written_per_key,pages_read,pages_written"
for repeat in $(seq "$repeats"); do
    for run in $runs; do
        # shellcheck disable=SC2086
        $wrap "$program" "${run%:*}" "$keys" "${run#*:}" "$file"
    done
done
rm -f "$file"
