#!/usr/bin/env bash
# Prints the path of the `fsx` program (File System eXerciser), installing it on first use.
# It is a development tool: it goes to target/fsx, not into the workspace's dependencies.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=0.3.2
root="${CARGO_TARGET_DIR:-$PWD/target}/fsx"
# Tests that run side by side ask at once: where they share a target directory, two builds of one
# program take it from each other. The lock goes with the process.
mkdir -p "$root"
exec 9> "$root/lock"
flock 9
if [[ ! -x "$root/bin/fsx" ]] || [[ "$("$root/bin/fsx" --version)" != "fsx $version" ]]; then
    # From outside the workspace: its toolchain file and profiles do not apply to the tool.
    (cd / && cargo install --quiet --locked --root "$root" "fsx@$version") >&2
fi
echo "$root/bin/fsx"
