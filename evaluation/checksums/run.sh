#!/usr/bin/env bash
# What a checksum of a page costs: XXH3 (what the tier uses), CRC32C, CRC64 and AEGIS' MAC, beside the
# mere touch of each cache line, for pages in the CPU's cache and for pages in memory.
#
#   evaluation/checksums/run.sh
#
# Prints the table of evaluation/results/overhead.md. Takes half a minute once built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
exec cargo run --quiet --release --locked --target-dir ../../target/checksums
